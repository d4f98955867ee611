"""Tables ready to print: numbers as the papers write them, with the records behind each row."""

import numpy as np
import pandas as pd

from snnl_book import results
from snnl_book.experiments import images, short_texts
from snnl_book.experiments.grades import grade
from snnl_book.paper import paper_table
from snnl_book.report.judgement import judge_value
from snnl_book.report.select import asked_by, stale
from snnl_book.report.statistics import LOWER_IS_BETTER, by_unit, interval, paired

_INFERSENT = ("infersent-nli", "infersent-random", "infersent")
FORMS = {"spacy": "spacy"} | dict.fromkeys(_INFERSENT, "infersent")
"""Our embeddings, and the columns of the paper's tables beside which they stand."""

VALUE_WORDS = {"holds": "matches", "fails": "differs", "open": "open", "unfair": "collapsed"}
"""What a table says about a mean beside the paper's, by its direction under rule 3."""

COMPUTED, QUOTED = "computed on this page", "quoted"
"""Where a row of a table comes from that no record is behind: what the chapter does when it is
executed, or a source that the page names.
"""


# ---------------------------------------------------------------- numbers


def show_number(value: float, metric: str) -> str:
    """Format a score as the papers do: two decimals for dbi, none for chs, three for all others."""
    if not np.isfinite(value):
        return "–"
    return f"{value:,.{ {'chs': 0, 'dbi': 2}.get(metric, 3) }f}"


def show_interval(low: float, high: float, metric: str) -> str:
    """Format an interval; a dash where there is none."""
    return f"{show_number(low, metric)} to {show_number(high, metric)}" if np.isfinite(low) else "–"


def show_ends(counts) -> str:
    """Say from where to where counts go: ``3 to 5``, or ``5``; a dash if there are none."""
    ends = sorted({min(counts), max(counts)}) if len(counts) else []
    return " to ".join(f"{count:,}" for count in ends) or "–"


def show_difference(records: pd.DataFrame, metric: str, name: str, reference: str) -> str:
    """Say how much better one row is than another, paired by seed.

    Mean, 95 % interval and number of seeds, or of draws of a random encoder where they are fewer;
    or "not recorded yet".
    """
    judged = paired(records, metric, name, reference)
    mean, low, high, units = (judged[key] for key in ("difference", "low", "high", "units"))
    if not units:
        return "not recorded yet"
    counted = f"{units} {'encoder' if units < judged['seeds'] else 'seed'}{'s' * (units > 1)}"
    spread = f"95 % interval {low:+.3f} to {high:+.3f}, {counted}" if units > 1 else counted
    return f"{mean:+.3f} ({spread})"


def count_runs(rows: pd.DataFrame) -> str:
    """Say how many runs there are, one row each, how many are not ok, and if any is stale.

    For instance ``5, 1 collapsed, stale``.
    """
    return ", ".join([f"{len(rows)}", *_flaws(rows)])


def _flaws(runs):
    """Say what is wrong with runs, one row each: how many are not ok, and if any is stale."""
    odd = runs.loc[runs["status"] != "ok", "status"].value_counts()
    stale = ["stale"] if runs["stale"].any() else []
    return [f"{count} {status}" for status, count in odd.items()] + stale


# ---------------------------------------------------------------- beside the papers


def beside_paper(
    number: int, records: pd.DataFrame, embedding: str = "spacy", metrics=None
) -> pd.DataFrame:
    """Set our records beside the columns of one of the paper's tables: a row a model and metric.

    ``number`` is that of the table, 1 to 4; ``embedding``: ``spacy`` or ``infersent``; ``metrics``
    takes some of the table's (default: all). Where some of a model's runs collapsed, a second row
    leaves these out. Verdicts are those of rule 3 on a value (``judge_value``).

    >>> from snnl_book.report.select import recorded
    >>> table = beside_paper(4, recorded("clustering", "ag_news"), metrics=["acc"])
    >>> table[["model", "paper mean", "our mean", "our verdict"]].to_numpy().tolist()[0]
    ['Orig.', '0.78', '0.781', 'matches']
    """
    paper, rows = paper_table(number).query("embedding == @embedding"), []
    paper = paper if metrics is None else paper[paper["metric"].isin(metrics)]
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
    return pd.DataFrame(rows).reindex(columns=columns).fillna("–")


def _beside(label, metric, paper, ours):
    """Make a row of ``beside_paper``: the paper's mean and best, and our runs."""
    percent = paper["printed"].str.endswith("%")
    printed = paper["printed"].where(~percent, paper["value"].map("{:.4f}".format))
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
    theirs, mean = paper.loc["mean", "value"], values.mean()
    runs = ours["value"]
    best = runs.min() if metric in LOWER_IS_BETTER else runs.max()
    low, high = interval(values)
    spread = show_number((high - low) / 2, metric)
    return row | {
        "our mean": show_number(mean, metric),
        "95 % interval": show_interval(low, high, metric),
        "ours": show_number(mean, metric) + (f" ± {spread}" if np.isfinite(low) else ""),
        "sd": show_number(runs.std(), metric),
        "our best": show_number(best, metric),
        "difference": ("+" if mean >= theirs else "") + show_number(mean - theirs, metric),
        "our verdict": VALUE_WORDS[judge_value(ours, metric, theirs).direction],
    }


def paper_tables(
    parts: list[tuple[dict[str, str], int, pd.DataFrame]], metrics=None
) -> pd.DataFrame:
    """Put several ``beside_paper`` into one table.

    A part is its own first columns (name -> text, ``vectors`` among them), the number of the
    paper's table and our records.
    """
    tables = []
    for first, number, records in parts:
        table = beside_paper(number, records, FORMS[first["vectors"]], metrics)
        tables.append(table.assign(**first)[[*first, *table.columns]])
    return pd.concat(tables)


def in_papers_shape(table: pd.DataFrame) -> pd.DataFrame:
    """Turn ``beside_paper`` or ``paper_tables`` into the paper's shape: a row a model, a column a
    score, our mean with half of its 95 % interval, and beneath it the paper's mean.

    A score whose mean differs from the paper's, by rule 3, is marked with ≠. What a row is besides
    its model (``vectors``, ...) stays.

    >>> from snnl_book.report.select import recorded
    >>> table = in_papers_shape(beside_paper(4, recorded("clustering", "ag_news")))
    >>> table[["model", "nmi", "acc"]].to_numpy().tolist()[:2]
    [['Orig.', '0.475 ± 0.001 ≠', '0.781 ± 0.001'], ['the paper', '0.51', '0.78']]
    """
    first = [*table.columns[: table.columns.get_loc("model") + 1]]
    rows = []
    for names, own in table.groupby(first, sort=False):
        scores = own.set_index("metric")
        marked = scores["our verdict"].eq("differs").map({True: " ≠", False: ""})
        row = dict(zip(first, names, strict=True)) | (scores["ours"] + marked).to_dict()
        row |= {name: own[name].iloc[0] for name in ("documents", "runs")}
        rows.append(row | {"records": behind(own)})
        if "without collapsed" not in row["model"]:
            theirs = scores["paper mean"].to_dict()
            rows.append({"model": "the paper", **theirs, "records": QUOTED})
    return pd.DataFrame(rows).fillna("")


# ---------------------------------------------------------------- rows against each other


def compare(
    records: pd.DataFrame, pairs: list[tuple[str, str]], metric: str = "acc"
) -> pd.DataFrame:
    """Compare rows with a reference row, paired by seed, without a claim to judge.

    A row for each (label, reference).
    """
    rows, scored = [], records[records["metric"] == metric]
    for label, reference in pairs:
        judged, ours = paired(records, metric, label, reference), scored[scored["label"] == label]
        row = {
            "what": label,
            "against": reference,
            "runs": count_runs(ours),
            "mean": show_number(by_unit(ours).mean(), metric),
            "sd": show_number(ours["value"].std(), metric),
            "difference": show_number(judged["difference"], metric),
            "95 % interval": show_interval(judged["low"], judged["high"], metric),
            "P(better)": f"{judged['probability']:.2f}" if judged["seeds"] else "–",
            "records": behind(scored[scored["label"].isin((label, reference))]),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def differences(
    records: pd.DataFrame, pairs: list[tuple[str, str]], metric: str = "acc", group: str = ""
) -> pd.DataFrame:
    """Return differences between rows, paired by seed, as numbers: what ``figures.forest`` draws.

    ``records`` have the columns ``label``, ``seed``, ``metric`` and ``value``; ``pairs`` are labels
    of rows, each with that of its reference, compared by a ``metric``. Returns a row a pair with
    ``label``, ``against``, the ``group`` given, ``mean`` (above 0 if the label is the better one),
    ``low`` and ``high`` (its 95 % interval, nan for fewer than two units), ``seeds`` and
    ``records``. Without a seed that both have the mean is nan.

    >>> from snnl_book.report.select import recorded
    >>> rows = differences(recorded("clustering", "ag_news"), [("AE(D)", "AE")], "nmi")
    >>> rows[["label", "mean", "seeds"]].round(3).to_numpy().tolist()
    [['AE(D)', 0.128, 5]]
    """
    rows, scored = [], records[records["metric"] == metric]
    for pair in pairs:
        judged, own = paired(records, metric, *pair), scored[scored["label"].isin(pair)]
        numbers = [judged[name] for name in ("difference", "low", "high", "seeds")]
        rows.append([*pair, group, *numbers, behind(own)])
    columns = ["label", "against", "group", "mean", "low", "high", "seeds", "records"]
    return pd.DataFrame(rows, columns=columns)


def by_corpus(records: pd.DataFrame, metric: str, column: str, pair: list) -> pd.DataFrame:
    """Compare two kinds of runs by a ``metric`` in each corpus, by the seeds that both have there,
    of the same revision.

    ``column`` of the records says of which kind a run is (``clusterer``, ``stage``, ...), and
    ``pair`` names two of its values. Returns a row a corpus that has both, by its name: either
    kind's mean, in a column of its name, ``gain`` (above 0 if the first is the better one),
    ``seeds``, ``stale`` and ``records`` of the runs compared.

    >>> from snnl_book.report.select import short_texts
    >>> found = by_corpus(short_texts(), "acc", "method", ["MiniLM, mean", "TF-IDF"])
    >>> bool((found["gain"] > 0).all()), list(found.columns[:3])
    (True, ['MiniLM, mean', 'TF-IDF', 'gain'])
    """
    runs = records[records["metric"] == metric].dropna(subset="value")
    runs = runs[runs[column].isin(pair)]
    runs = runs[runs.groupby(["dataset", "seed"])[column].transform("nunique") == 2]
    runs = runs[runs.groupby(["dataset", "seed"])["stale"].transform("nunique") == 1]
    found = runs.pivot_table("value", "dataset", column).reindex(columns=pair)
    corpora = runs.groupby("dataset")
    return found.assign(
        gain=(found[pair[0]] - found[pair[1]]) * (-1 if metric in LOWER_IS_BETTER else 1),
        seeds=corpora["seed"].nunique(),
        stale=corpora["stale"].any(),
        records=[behind(own) for _, own in corpora],
    )


def gain_row(gains: pd.DataFrame, points: bool = False) -> dict[str, str]:
    """Say what ``by_corpus`` found, a corpus a unit, as columns of a table.

    With ``points`` in points, else in the score's own unit: the mean gain, its 95 % interval, in
    how many corpora the first kind is better, and over how many seeds each.

    >>> gains = pd.DataFrame({"gain": [0.1, 0.3], "seeds": [5, 3]})
    >>> [*gain_row(gains, points=True).values()]
    ['+20.0', '-107.1 to 147.1', '2 of 2', '3 to 5']
    """
    gain, form = gains["gain"] * (100 if points else 1), ".1f" if points else ".3f"
    low, high = interval(gain)
    return {
        "gain": f"{gain.mean():+{form}}",
        "95 % interval over corpora": f"{low:{form}} to {high:{form}}" if len(gain) > 1 else "–",
        "better in": f"{(gain > 0).sum()} of {len(gain)}",
        "seeds": show_ends(gains["seeds"]),
    }


def means(records: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Summarise records of any profile: a row a label, the mean of each of the metrics over seeds
    (over encoders, where several were drawn).

    >>> from snnl_book.report.select import recorded
    >>> table = means(recorded("clustering", "ag_news"), ["acc"])
    >>> table[["model", "acc"]].to_numpy().tolist()
    [['Orig.', '0.781'], ['AE', '0.792'], ['LC(D)', '0.859'], ['AE(D)', '0.853']]
    """
    rows, scored = [], records.loc[records["metric"].isin(metrics), "label"]
    for label in scored.unique():
        ours = records[records["label"] == label]
        scores = {name: by_unit(ours[ours["metric"] == name]).mean() for name in metrics}
        row = {"model": label} | {name: show_number(score, name) for name, score in scores.items()}
        runs = count_runs(ours.drop_duplicates("key"))
        rows.append(row | {"runs": runs, "records": behind(ours)})
    return pd.DataFrame(rows, columns=["model", *metrics, "runs", "records"])


# ---------------------------------------------------------------- where numbers come from


def provenance(records: pd.DataFrame, clustered: str = "") -> str:
    """Say in a line which runs a table rests on, if any are stale or not ok, and of what grade.

    ``records`` are those behind the table; ``clustered`` names what was both trained on and scored,
    such as ``texts``, if anything. Runs of the full profile have a grade, the others stand beside
    no paper.

    >>> from snnl_book.report.select import recorded
    >>> provenance(recorded("clustering", "ag_news"), clustered="texts").split(",")[0]
    '20 runs of the full profile on ag_news: 20'
    >>> provenance(recorded("images", "mnist", "pixels")).partition("computing. ")[2][:15]
    'Grade: as publi'
    """
    if records.empty:
        return "No runs are recorded."
    runs = records.drop_duplicates("key").reset_index(drop=True)  # of tables put together
    if "stale" not in runs:
        runs = runs.assign(stale=stale(runs))

    def spell(column, form="{}"):
        return " and ".join(form.format(value) for value in sorted(runs[column].unique()))

    counts = f"{spell('n_train', '{:,}')} {clustered or 'training'}"
    if not clustered:
        counts += f" and {spell('n_test', '{:,}')} test documents"
    flaws = f" ({', '.join(_flaws(runs))})" if _flaws(runs) else ""
    cells = asked_by(runs[runs["profile"] == "full"])
    graded = f" Grade: {grade(cells)}." if cells else ""
    return (
        f"{len(runs)} run{'s' * (len(runs) > 1)}{flaws} of the {spell('profile')} profile on"
        f" {spell('dataset')}: {counts}, seeds {', '.join(map(str, runs['seed'].unique()))};"
        f" {spell('device')}; {computing_seconds(records) / 60:,.1f} minutes of computing.{graded}"
    )


def computing_seconds(records: pd.DataFrame) -> float:
    """Add up the seconds of runs, and once those of each training that several share."""
    shared = records.query("metric == 'shared_seconds'")  # equal to the digit: one training
    shared = shared.drop_duplicates(["experiment", "dataset", "seed", "value"])["value"].sum()
    return records.drop_duplicates(["experiment", "key"])["seconds"].sum() + shared


def includes_shared_training(records: pd.DataFrame) -> pd.Series:
    """Tell of each row of records if its ``seconds`` include training that runs share, as bool.

    A run that starts from a network shared with others says in ``shared_seconds`` how long that
    took, and its ``seconds`` are its own; a record that was made before this says nothing, and its
    ``seconds`` include both.
    """
    ok = records["status"] == "ok"  # what broke down may not have come as far
    shares = ok & records["model"].isin([*images.DEEP, *short_texts.TRAINED])
    runs = records["experiment"] + "/" + records["key"]
    return shares & ~runs.isin(runs[records["metric"] == "shared_seconds"])


def behind(rows: pd.DataFrame) -> str:
    """Name the records behind a row of a table, for its column ``records``.

    Each as ``experiment/key``, a blank between two; empty if there are none. ``rows`` are rows of
    records, of whatever metrics and runs, or of a table that has such a column.
    """
    if "records" in rows:
        return " ".join(dict.fromkeys(" ".join(rows["records"]).split()))
    return " ".join(dict.fromkeys(map("{}/{}".format, rows["experiment"], rows["key"])))


# ---------------------------------------------------------------- benchmarks

_BENCHMARK = ["chapter", "loss", "way", "batch", "features", "runs", "epochs", "seconds", "memory"]
_BENCHMARK += ["turns", "device", "threads", "versions", "commit", "created"]


def _benchmark_paths(name):
    return sorted((results.results_dir("full") / "bench").glob(f"{name}-*.csv"))


def benchmark(name: str) -> pd.DataFrame:
    """Load the tables of a benchmark, of all devices.

    ``name``: ``loss``, ``step``, ``clustering`` or ``chapters``.
    """
    tables = [pd.read_csv(path) for path in _benchmark_paths(name)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=_BENCHMARK)


def benchmark_files(name: str) -> str:
    """Name the files that ``benchmark`` reads, as ``source`` of a table (``show_table``)."""
    return " ".join(f"results/bench/{path.name}" for path in _benchmark_paths(name))


def benchmark_provenance(table: pd.DataFrame) -> str:
    """Say in one sentence where the numbers of a benchmark come from."""
    sources = [
        f"{row.device}; {row.versions}; commit {row.commit}; {row.created[:10]}"
        for row in table.drop_duplicates(["device", "threads", "commit"]).itertuples()
    ]
    return ". ".join(sources) + "." if sources else "No benchmark is recorded."
