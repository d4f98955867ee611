"""Tables ready to print: numbers as the papers write them, with the records behind each row."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from snnl_book import results
from snnl_book.experiments import images, short_texts
from snnl_book.paper import paper_table
from snnl_book.paper.declared import LOWER_IS_BETTER
from snnl_book.report.contrasts import base
from snnl_book.report.documents import COUNTED
from snnl_book.report.judgement import judge_value
from snnl_book.report.statistics import by_unit, interval, paired, within_range

_INFERSENT = ("infersent-nli", "infersent-random", "infersent")
FORMS = {"spacy": "spacy"} | dict.fromkeys(_INFERSENT, "infersent")
"""Our embeddings, and the embedding of the paper's tables that each is compared with."""

VALUE_WORDS = {"holds": "matches", "fails": "differs", "open": "open", "unfair": "collapsed"}
"""The words for a mean compared with the paper's, by its direction under rule 3."""

COMPUTED = "computed on this page"
"""The source of rows that a chapter computes when it is executed."""
QUOTED = "quoted"
"""The source of rows that are quoted from a work which the page names."""


# ---------------------------------------------------------------- numbers


def show_number(value: float, metric: str) -> str:
    """Format a score as the papers do: two decimals for dbi, none for chs, three for all others.

    ``points`` is a score times 100, with one decimal.

    A million and more, which only collapsed codes reach, is shown by its first two digits.

    >>> show_number(0.8534, "acc"), show_number(24172.4, "chs"), show_number(934_682_953, "chs")
    ('0.853', '24,172', '9.3e8')
    """
    if not np.isfinite(value):
        return "–"
    if abs(value) >= 1e6:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    return f"{value:,.{ {'chs': 0, 'dbi': 2, 'points': 1}.get(metric, 3) }f}"


def show_interval(low: float, high: float, metric: str) -> str:
    """Format an interval; a dash where there is none."""
    return f"{show_number(low, metric)} to {show_number(high, metric)}" if np.isfinite(low) else "–"


def show_ends(counts) -> str:
    """Return the range of some counts, ``3 to 5`` or ``5``; a dash if there are none."""
    ends = sorted({min(counts), max(counts)}) if len(counts) else []
    return " to ".join(f"{count:,}" for count in ends) or "–"


def show_difference(records: pd.DataFrame, metric: str, name: str, reference: str) -> str:
    """Return how much better one row is than another, paired by seed, as text.

    It has the mean, the 95 % interval and the number of seeds, or of draws of a random encoder if
    those are fewer. "Alone" says that the interval of a score that counts test data ignores their
    choice. Without a pair of runs it is "not recorded yet".
    """
    judged = paired(records, metric, name, reference)
    mean, low, high, units = (judged[key] for key in ("difference", "low", "high", "units"))
    if not units:
        return "not recorded yet"
    counted = f"{units} {'encoder' if units < judged['seeds'] else 'seed'}{'s' * (units > 1)}"
    if units > 1:
        counted = f"95 % interval {low:+.3f} to {high:+.3f}, {counted}"
        counted += "" if judged["documents"] or base(metric) not in COUNTED else " alone"
    return f"{mean:+.3f} ({counted})"


def plus_minus(row) -> str:
    """Format a difference, with a true minus sign, and half of its 95 % interval, if it has one.

    ``row`` has ``mean``, ``low`` and ``high``, as rows of ``differences`` do.

    >>> plus_minus({"mean": -0.0171, "low": -0.0211, "high": -0.0131})
    '−0.017 ± 0.004'
    >>> plus_minus({"mean": 0.02, "low": np.nan, "high": np.nan})
    '+0.020'
    """
    if not np.isfinite(row["mean"]):
        return "–"
    half = (row["high"] - row["low"]) / 2
    mean = f"{row['mean']:+.3f}".replace("-", "−")
    return mean + (f" ± {half:.3f}" if half > 0 else "")


def count_runs(rows: pd.DataFrame) -> str:
    """Return the number of runs, one row each, how many are not ok, and whether any is stale.

    An example is ``5, 1 collapsed, stale``.
    """
    return ", ".join([f"{len(rows)}", *_flaws(rows)])


def _flaws(runs):
    """List what is wrong with runs, one row each: how many are not ok, and whether any is stale."""
    not_ok = runs.loc[runs["status"] != "ok", "status"].value_counts()
    flaws = [f"{count} {status}" for status, count in not_ok.items()]
    return [*flaws, "stale"] if runs["stale"].any() else flaws


# ---------------------------------------------------------------- next to the papers


def beside_paper(
    number: int, records: pd.DataFrame, embedding: str = "spacy", metrics=None
) -> pd.DataFrame:
    """Compare our records with one of the paper's tables: a row for each model and metric.

    If some of a model's runs collapsed, a second row leaves these out. Verdicts are those of rule 3
    on a value (``judge_value``).

    Args:
        number: of the table, 1 to 4.
        records: as ``recorded`` returns them.
        embedding: the paper's, ``spacy`` or ``infersent``.
        metrics: keep these of the table (default: all).

    >>> from snnl_book.report.select import recorded
    >>> table = beside_paper(4, recorded("clustering", "ag_news"), metrics=["acc"])
    >>> table[["model", "paper mean", "our mean", "our verdict"]].to_numpy().tolist()[0]
    ['Orig.', '0.78', '0.781', 'matches']
    """
    paper = paper_table(number).query("embedding == @embedding")
    if metrics is not None:
        paper = paper[paper["metric"].isin(metrics)]
    rows = []
    for (label, metric), printed in paper.groupby(["label", "metric"], sort=False):
        printed = printed.set_index("statistic")
        ours = records[(records["label"] == label) & (records["metric"] == metric)]
        rows.append(_beside(label, metric, printed, ours))
        collapsed = ours["status"] == "collapsed"
        if collapsed.any() and not collapsed.all():
            without = f"{label}, without collapsed runs"
            rows.append(_beside(without, metric, printed, ours[~collapsed]))
    columns = ["model", "metric", "paper mean", "paper best", "our mean", "95 % interval", "ours"]
    columns += ["sd", "our best", "difference", "documents", "runs", "our verdict", "records"]
    return pd.DataFrame(rows).reindex(columns=columns).astype(object).fillna("–")


def _beside(label, metric, paper, ours):
    """Make a row of ``beside_paper``: the paper's mean and best, and our runs."""
    is_percent = paper["printed"].str.endswith("%")
    printed = paper["printed"].where(~is_percent, paper["value"].map("{:.4f}".format))
    row = {
        "model": label,
        "metric": metric,
        "paper mean": printed["mean"],
        "paper best": printed["best"],
        "documents": show_ends(ours["n_train"]),
        "runs": count_runs(ours),
        "records": behind(ours),
    }
    values = by_unit(ours)
    if values.empty:
        verdict = "not tested" if ours.empty else "no run ended with a number"
        return row | {"our verdict": verdict}
    papers_mean = paper.loc["mean", "value"]
    mean = values.mean()
    runs = ours["value"]
    best = runs.min() if metric in LOWER_IS_BETTER else runs.max()
    low, high = interval(values)
    sign = "+" if mean >= papers_mean else ""
    half = (high - low) / 2
    low, high = within_range(low, high, metric)
    if not np.isfinite(half):
        spread = ""
    elif high - low < 2 * half - 1e-12:  # cut where the score ends
        spread = f" ({show_interval(low, high, metric)})"
    else:
        spread = f" ± {show_number(half, metric)}"
    return row | {
        "our mean": show_number(mean, metric),
        "95 % interval": show_interval(low, high, metric),
        "ours": show_number(mean, metric) + spread,
        "sd": show_number(runs.std(), metric),
        "our best": show_number(best, metric),
        "difference": sign + show_number(mean - papers_mean, metric),
        "our verdict": VALUE_WORDS[judge_value(ours, metric, papers_mean).direction],
    }


def paper_tables(
    parts: list[tuple[dict[str, str], int, pd.DataFrame]], metrics=None
) -> pd.DataFrame:
    """Put several tables of ``beside_paper`` into one.

    A part has its first columns (name -> text, with ``vectors``), the number of the paper's table,
    and our records.
    """
    tables = []
    for columns, number, records in parts:
        table = beside_paper(number, records, FORMS[columns["vectors"]], metrics)
        tables.append(table.assign(**columns)[[*columns, *table.columns]])
    return pd.concat(tables)


def in_papers_shape(table: pd.DataFrame) -> pd.DataFrame:
    """Bring a table of ``beside_paper`` or ``paper_tables`` into the shape of the paper's.

    It has a row for each model and a column for each score, with our mean and half of its 95 %
    interval (its two ends where the score ends within it), and in the row below it the paper's
    mean. Rule 3 marks our means that differ from the paper's with ≠. Columns before the model, such
    as ``vectors``, stay.

    >>> from snnl_book.report.select import recorded
    >>> table = in_papers_shape(beside_paper(4, recorded("clustering", "ag_news")))
    >>> table[["model", "nmi", "acc"]].to_numpy().tolist()[:2]
    [['Orig.', '0.475 ± 0.000 ≠', '0.781 ± 0.000'], ['the paper', '0.51', '0.78']]
    """
    columns = [*table.columns[: table.columns.get_loc("model") + 1]]
    rows = []
    for names, of_model in table.groupby(columns, sort=False):
        scores = of_model.set_index("metric")
        marks = scores["our verdict"].eq("differs").map({True: " ≠", False: ""})
        row = {
            **dict(zip(columns, names, strict=True)),
            **(scores["ours"] + marks).to_dict(),
            "documents": of_model["documents"].iloc[0],
            "runs": of_model["runs"].iloc[0],
            "records": behind(of_model),
        }
        rows.append(row)
        if "without collapsed" not in row["model"]:
            papers_means = scores["paper mean"].to_dict()
            rows.append({"model": "the paper", **papers_means, "records": QUOTED})
    return pd.DataFrame(rows).fillna("")


# ---------------------------------------------------------------- rows against each other


def compare(
    records: pd.DataFrame, pairs: list[tuple[str, str]], metric: str = "acc"
) -> pd.DataFrame:
    """Compare rows with reference rows, paired by seed, where there is no claim to judge.

    ``pairs`` are (label, reference), and the table has a row for each.
    """
    rows = []
    for judged in differences(records, pairs, metric).to_dict("records"):
        ours = records[(records["metric"] == metric) & (records["label"] == judged["label"])]
        row = {
            "what": judged["label"],
            "against": judged["against"],
            "runs": count_runs(ours),
            "mean": show_number(by_unit(ours).mean(), metric),
            "sd": show_number(ours["value"].std(), metric),
            "difference": show_number(judged["mean"], metric),
            "95 % interval": show_interval(judged["low"], judged["high"], metric),
            "interval over": "seeds and test data" if judged["documents"] else "seeds",
            "records": judged["records"],
        }
        rows.append(row)
    return pd.DataFrame(rows)


def differences(
    records: pd.DataFrame, pairs: list[tuple[str, str]], metric: str = "acc", group: str = ""
) -> pd.DataFrame:
    """Return differences between rows, paired by seed, as the numbers that ``forest`` draws.

    ``records`` have the columns ``label``, ``seed``, ``metric`` and ``value``; ``pairs`` are (label
    of a row, label of its reference). Returns a row for each pair with ``label``, ``against``,
    ``group``, ``mean`` (above 0 if the label is better; nan if no seed is in both rows), ``low``
    and ``high`` (its 95 % interval, nan for fewer than two units), ``documents`` (whether that
    allows for the choice of test documents), ``seeds`` and ``records``.

    >>> from snnl_book.report.select import recorded
    >>> rows = differences(recorded("clustering", "ag_news"), [("AE(D)", "AE")], "nmi")
    >>> rows[["label", "mean", "seeds"]].round(3).to_numpy().tolist()
    [['AE(D)', 0.142, 15]]
    """
    rows = []
    scored = records[records["metric"] == metric]
    for pair in pairs:
        judged = paired(records, metric, *pair)
        numbers = [judged[name] for name in ("difference", "low", "high", "documents", "seeds")]
        rows.append([*pair, group, *numbers, behind(scored[scored["label"].isin(pair)])])
    columns = ["label", "against", "group", "mean", "low", "high", "documents", "seeds", "records"]
    return pd.DataFrame(rows, columns=columns)


def by_corpus(records: pd.DataFrame, metric: str, column: str, pair: list) -> pd.DataFrame:
    """Compare two groups of runs by a ``metric`` in each corpus, by the seeds that both have there.

    The groups are those with two values, ``pair``, in a ``column`` of the records, such as
    ``clusterer`` or ``stage``; compared runs are of the same revision. Returns a row for each
    corpus that has both groups, indexed by its name. Columns are the mean of each group, in a
    column of its name, ``gain`` (above 0 if the first is better), ``seeds``, ``stale`` and
    ``records`` of the compared runs.

    >>> from snnl_book.report.select import short_texts
    >>> gains = by_corpus(short_texts(), "acc", "method", ["MiniLM, mean", "TF-IDF"])
    >>> bool((gains["gain"] > 0).all()), list(gains.columns[:3])
    (True, ['MiniLM, mean', 'TF-IDF', 'gain'])
    """
    runs = records[records["metric"] == metric].dropna(subset="value")
    runs = runs[runs[column].isin(pair)]
    runs = runs[runs.groupby(["dataset", "seed"])[column].transform("nunique") == 2]
    runs = runs[runs.groupby(["dataset", "seed"])["stale"].transform("nunique") == 1]
    table = runs.pivot_table("value", "dataset", column).reindex(columns=pair)
    corpora = runs.groupby("dataset")
    return table.assign(
        gain=(table[pair[0]] - table[pair[1]]) * (-1 if metric in LOWER_IS_BETTER else 1),
        seeds=corpora["seed"].nunique(),
        stale=corpora["stale"].any(),
        records=[behind(of_corpus) for _, of_corpus in corpora],
    )


def gain_row(gains: pd.DataFrame, points: bool = False) -> dict[str, str]:
    """Summarise a table of ``by_corpus``, with a corpus as the unit, as columns of a table.

    They are the mean gain, its 95 % interval, in how many corpora the first group is better, and
    how many seeds each corpus has. With ``points`` the gain is in points, else in the score's unit.

    >>> gains = pd.DataFrame({"gain": [0.1, 0.3], "seeds": [5, 3]})
    >>> [*gain_row(gains, points=True).values()]
    ['+20.0', '-107.1 to +147.1', '2 of 2', '3 to 5']
    """
    gain = gains["gain"] * (100 if points else 1)
    digits = 1 if points else 3
    low, high = interval(gain)
    spread = f"{low:+.{digits}f} to {high:+.{digits}f}" if len(gain) > 1 else "–"
    return {
        "gain": f"{gain.mean():+.{digits}f}",
        "95 % interval over corpora": spread,
        "better in": f"{(gain > 0).sum()} of {len(gain)}",
        "seeds": show_ends(gains["seeds"]),
    }


def means(records: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Summarise records of any profile: a row for each label, with the mean of each of ``metrics``.

    The mean is over seeds, or over encoders if several were drawn.

    >>> from snnl_book.report.select import recorded
    >>> table = means(recorded("clustering", "ag_news"), ["acc"])
    >>> table[["model", "acc"]].to_numpy().tolist()
    [['Orig.', '0.781'], ['AE', '0.789'], ['LC(D)', '0.856'], ['AE(D)', '0.860']]
    """
    rows = []
    for label in records.loc[records["metric"].isin(metrics), "label"].unique():
        ours = records[records["label"] == label]
        row = {"model": label}
        for name in metrics:
            row[name] = show_number(by_unit(ours[ours["metric"] == name]).mean(), name)
        row["runs"] = count_runs(ours.drop_duplicates("key"))
        row["records"] = behind(ours)
        rows.append(row)
    return pd.DataFrame(rows, columns=["model", *metrics, "runs", "records"])


# ---------------------------------------------------------------- where numbers come from


def computing_seconds(records: pd.DataFrame) -> float:
    """Add up the seconds of runs, and once those of each training that several share."""
    shared = records.query("metric == 'shared_seconds'")  # equal to the digit: one training
    shared = shared.drop_duplicates(["experiment", "dataset", "seed", "value"])["value"].sum()
    return records.drop_duplicates(["experiment", "key"])["seconds"].sum() + shared


def includes_shared_training(records: pd.DataFrame) -> pd.Series:
    """Return for each row of records whether its ``seconds`` include shared training, as bool.

    Runs that start from a shared network record the time of its training as ``shared_seconds``, and
    leave it out of their ``seconds``. Older records lack that score, and their ``seconds`` include
    both.
    """
    ok = records["status"] == "ok"  # other runs may have ended before the shared training
    shares = ok & records["model"].isin([*images.DEEP, *short_texts.TRAINED])
    runs = records["experiment"] + "/" + records["key"]
    return shares & ~runs.isin(runs[records["metric"] == "shared_seconds"])


def behind(rows: pd.DataFrame) -> str:
    """Return the names of the records behind a row of a table, for its column ``records``.

    A name is ``experiment/key``, and a blank is between two. ``rows`` are rows of records, of any
    metrics and runs, or rows of a table that has such a column.
    """
    if "records" in rows:
        return " ".join(dict.fromkeys(" ".join(rows["records"]).split()))
    return " ".join(dict.fromkeys(map("{}/{}".format, rows["experiment"], rows["key"])))


def choices(made: dict[str, str], about: Sequence[str]) -> pd.DataFrame:
    """Return the choices that a paper leaves open, from an experiment's ``CHOICES``, by subject.

    >>> choices(images.CHOICES, ["epochs"])["our choice"].str[:22].tolist()
    ['We train for 30 epochs']
    """
    rows = [(subject, made[subject]) for subject in about]
    return pd.DataFrame(rows, columns=["topic", "our choice"]).assign(records=COMPUTED)


# ---------------------------------------------------------------- benchmarks

_BENCHMARK = [
    *("chapter", "loss", "way", "batch", "features", "runs", "epochs", "seconds", "memory"),
    *("turns", "device", "threads", "versions", "commit", "created"),
]


def _benchmark_paths(name):
    return sorted((results.results_dir("full") / "bench").glob(f"{name}-*.csv"))


def benchmark(name: str) -> pd.DataFrame:
    """Load the tables of a benchmark, of all devices.

    ``name``: ``loss``, ``step``, ``clustering`` or ``chapters``.
    """
    tables = [pd.read_csv(path) for path in _benchmark_paths(name)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=_BENCHMARK)


def benchmark_files(name: str) -> str:
    """Return the names of the files that ``benchmark`` reads, as a ``source`` of ``show_table``."""
    return " ".join(f"results/bench/{path.name}" for path in _benchmark_paths(name))


def benchmark_provenance(table: pd.DataFrame) -> str:
    """Return in one line where the numbers of a benchmark come from."""
    sources = [
        f"{row.device}; {row.versions}; commit {row.commit}; {row.created[:10]}"
        for row in table.drop_duplicates(["device", "threads", "commit"]).itertuples()
    ]
    return ". ".join(sources) + "." if sources else "No benchmark is recorded."
