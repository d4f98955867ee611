"""Records beside the papers: tables, intervals, verdicts and figures. Nothing here trains."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from snnl_lib import require, results
from snnl_lib.experiments import EXPERIMENTS

LOWER_IS_BETTER = {"dbi", "snn", "common"}
POINTS = {
    "acc",
    "f1_micro",
    "f1_macro",
    "nmi",
    "nmi_geometric",
    "ari",
    "sil",
}  # fractions, for which "within 1.5 points" means something
MATCH = 0.015
LABELS = {
    (model, alpha): label
    for model in ("ffn", "cnn")
    for alpha, label in ((0, "Baseline"), (100, "SNNL 100"), (-100, "SNNL -100"))
}
LABELS |= {("pca", 0): "Orig.", ("ae", 0): "AE", ("lc-d", 100): "LC(D)", ("ae-d", 100): "AE(D)"}
LABELS |= {
    ("original", 0): "Orig.",
    ("logreg-predictions", 0): "logistic regression, its own classes",
    ("kmeans", 0): "k-means on all dimensions",
}
LABELS |= {
    ("spherical-kmeans", 0): "spherical k-means",
    ("umap", 0): "UMAP",
    ("gmm", 0): "Gaussian mixture",
}
LABELS |= {
    ("lda", 0): "linear discriminant analysis",
    ("logreg", 0): "logistic regression",
    ("knn", 0): "nearest neighbours",
}
LABELS |= {
    ("supcon", 100): "supervised contrastive",
    ("ffn-knn", 0): "neighbours in Baseline",
    ("ffn-knn", 100): "neighbours in SNNL 100",
}
IMAGE_LABELS = {
    ("original", 0): "pixels",
    ("pca", 0): "PCA",
    ("ae", 0): "AE",
    ("ae-d", 1): "AE(D)",
    ("supcon", 1): "SupCon",
}
IMAGE_LABELS |= {
    ("ae-10", 0): "AE, 10 units",
    ("dec", 0): "DEC",
    ("idec", 0): "IDEC",
    ("vade", 0): "VaDE",
    ("n2d", 0): "N2D",
}
SHORT_LABELS = {
    ("plain", "tfidf"): "TF-IDF",
    ("plain", "sif"): "SIF",
    ("plain", "sif-corpus"): "SIF, own vectors",
    ("plain", "minilm"): "MiniLM, mean",
}
SHORT_LABELS |= {
    ("plain", "minilm-cls"): "MiniLM",
    ("plain", "roberta-base"): "RoBERTa",
    ("plain", "nli-roberta-base"): "SBERT",
}
SHORT_LABELS |= {
    ("plain", "vascl-roberta-large"): "VaSCL",
    ("sccl", "minilm"): "SCCL",
    ("tsdae", "minilm-cls"): "TSDAE",
}
SHORT_LABELS |= {
    ("clusterbert", "minilm-cls"): "ClusterBERT",
    ("clusterbert", "minilm"): "ClusterBERT",
}
FORMS = {
    "spacy": "spacy",
    "infersent-random": "infersent",
    "infersent-nli": "infersent",
    "infersent": "infersent",
}
"""Our embeddings, and the columns of the paper's tables beside which they stand."""

COMPUTED, QUOTED = "computed on this page", "quoted"
"""Where a row of a table comes from that no record is behind: what the chapter does when it is
executed, or a source that the page names.
"""


# ---------------------------------------------------------------- the papers' numbers, ours, and
# verdicts


def paper_table(number: int) -> pd.DataFrame:
    """Read one of the text paper's Tables 1-4: columns label, model, alpha, embedding, metric,
    statistic (mean or best), value, printed, source.
    """
    return pd.read_csv(
        Path(__file__).parents[1] / "paper" / f"table{number}.csv", dtype={"printed": str}
    )


def literature(kind: str = "images") -> pd.DataFrame:
    """Read what the literature reports for ``images`` or ``short-texts``: method, dataset, metric,
    value (nan: nothing found), statistic, source, note.
    """
    return pd.read_csv(
        Path(__file__).parents[1] / "paper" / f"{kind}.csv",
        keep_default_na=False,
        na_values={"value": ""},
    )


def paper_corpora() -> pd.DataFrame:
    """Read ClusterBERT's Table 1: columns label, dataset, metric (as ``data.corpus_statistics``
    names it), value, printed, source, note.
    """
    return pd.read_csv(
        Path(__file__).parents[1] / "paper" / "clusterbert-corpora.csv",
        dtype={"printed": str},
        keep_default_na=False,
    )


def paper_short_texts() -> pd.DataFrame:
    """Read ClusterBERT's Tables 2 and 3: columns label, embedding, model, clusterer, dataset,
    metric, value, source, note.
    """
    return pd.read_csv(
        Path(__file__).parents[1] / "paper" / "clusterbert.csv", keep_default_na=False
    )


def short_texts(experiment: str = "clusterbert", profile: str = "full") -> pd.DataFrame:
    """Load an experiment's records on short texts; adds ``method`` (of ``SHORT_LABELS``),
    ``clusterer``, ``reading``, ``asked`` (documents) and ``stale``.
    """
    records = results.load_results(experiment, profile)
    settings = records["settings"].map(json.loads)
    names = [
        SHORT_LABELS.get((model, embedding), model)
        for model, embedding in zip(records["model"], records["embedding"], strict=True)
    ]
    added = {
        name: settings.str.get(key)
        for name, key in (
            ("clusterer", "clusterer"),
            ("reading", "reading"),
            ("asked", "n_train"),
            ("task", "task"),
        )
    }
    return records.assign(method=names, **added, stale=_stale(records))


def _stale(records):
    """Tell which records an older revision of their experiment made."""
    return records["revision"] < records["experiment"].map(lambda name: EXPERIMENTS[name].revision)


def recorded(
    experiment: str,
    dataset: str,
    embedding: str | None = "spacy",
    profile: str = "full",
    seeds=None,
    model=None,
) -> pd.DataFrame:
    """Load an experiment's records on one data set and embedding (None: all) for some seeds, with
    each row's label.

    ``seeds``: default, the experiment's own; ``"all"`` takes all there are.

    ``model`` takes that model's runs only. Of a row that was run on several numbers of documents,
    the largest that has all the seeds is taken. Adds ``label`` (the paper's name of the row, or the
    reading) and ``stale`` (made by an older revision).
    """
    records = results.load_results(experiment, profile)
    records = records[
        (records["dataset"] == dataset)
        & ((records["embedding"] == embedding) | (embedding is None))
    ]
    if seeds != "all":
        records = records[
            records["seed"].isin(EXPERIMENTS[experiment].seeds if seeds is None else seeds)
        ]
    if model is not None:
        records = records[records["model"] == model]
    if records.empty:
        return records.assign(label=pd.Series(dtype=str), stale=pd.Series(dtype=bool))
    records = records.sort_values(
        "created", kind="stable"
    )  # readings have no order of their own but that of the grid, in which they were run
    settings = records["settings"].map(json.loads)
    names = LABELS | IMAGE_LABELS if embedding == "pixels" else LABELS
    labels = [
        _label(*row, names)
        for row in zip(records["model"], records["alpha"], settings, strict=True)
    ]
    records = records.assign(asked=settings.str["n_train"], label=labels)
    rows = [records[name] for name in ("label", "model", "embedding")]
    seeds_of = records["seed"].groupby([*rows, records["asked"]]).transform("nunique")
    full = seeds_of == seeds_of.groupby(rows).transform("max")
    largest = records["asked"] == records["asked"].where(full).groupby(rows).transform("max")
    records = records[largest].drop(columns="asked").assign(stale=_stale(records))
    order = list(dict.fromkeys(names.values()))
    return records.sort_values(
        "label",
        key=lambda labels: labels.map(
            lambda label: order.index(label) if label in order else len(order)
        ),
        kind="stable",
    )


def _label(model, alpha, settings, names):
    reading = settings.get("reading")
    if reading and model not in ("ffn", "cnn"):
        return f"{names.get((model, 100)) or names.get((model, 0), model)}, {reading}"
    if reading:
        return (
            reading
            if str(alpha).removesuffix(".0") in (reading.removeprefix("alpha "), "100")
            or model == "cnn"
            else f"{reading}, alpha {alpha:g}"
        )
    return names.get((model, alpha), f"{model} {alpha:g}")


def interval(values) -> tuple[float, float]:
    """Return the 95 % t-interval of the mean of some numbers; (nan, nan) for fewer than two."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return np.nan, np.nan
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return values.mean() - half, values.mean() + half


def matches(paper_mean: float, values, metric: str) -> bool:
    """Tell if the paper's mean lies in our 95 % interval, or within 1.5 points of our mean (DESIGN:
    written before the runs).
    """
    low, high = interval(values)
    return bool(
        low <= paper_mean <= high
        or (metric in POINTS and abs(paper_mean - np.mean(values)) <= MATCH)
    )


def paired(records: pd.DataFrame, metric: str, winner: str, loser: str) -> dict:
    """Judge "winner beats loser on metric" from differences paired by seed.

    Returns the claim, the mean difference in the claimed direction, its 95 % interval, the
    probability of improvement (that a run of the winner, whatever its seed, beats a run of the
    loser, whatever its seed; ties count half), the number of seeds and the verdict: ``reproduced``
    if the interval lies wholly on the claimed side, else ``not reproduced``; ``not attempted`` with
    fewer than two seeds.
    """
    values = records[records["metric"] == metric].pivot_table(
        index="seed", columns="label", values="value"
    )
    pair = values.reindex(columns=[winner, loser]).dropna()
    sign = -1 if metric in LOWER_IS_BETTER else 1
    difference = sign * (pair[winner] - pair[loser]).to_numpy()
    crossed = sign * np.subtract.outer(pair[winner].to_numpy(), pair[loser].to_numpy())
    low, high = interval(difference)
    verdict = (
        "not attempted" if len(difference) < 2 else "reproduced" if low > 0 else "not reproduced"
    )
    mean = difference.mean() if len(difference) else np.nan
    found = {
        "winner": winner,
        "loser": loser,
        "metric": metric,
        "difference": mean,
        "low": low,
        "high": high,
    }
    return found | {
        "probability": ((np.sign(crossed) + 1) / 2).mean() if crossed.size else np.nan,
        "seeds": len(difference),
        "verdict": verdict,
    }


def together(verdicts) -> str:
    """Combine the verdicts of a claim's cells: all, some (``partly``) or none reproduced, and how
    many were attempted if not all.
    """
    verdicts = list(verdicts)
    attempted = [verdict for verdict in verdicts if verdict != "not attempted"]
    if not attempted:
        return "not attempted"
    combined = attempted[0] if len(set(attempted)) == 1 else "partly"
    return (
        combined
        if len(attempted) == len(verdicts)
        else f"{combined} ({len(attempted)} of {len(verdicts)} cells attempted)"
    )


# ---------------------------------------------------------------- tables


def show_interval(low: float, high: float, metric: str) -> str:
    """Format an interval; a dash where there is none."""
    return f"{show_number(low, metric)} to {show_number(high, metric)}" if np.isfinite(low) else "–"


def show_difference(records: pd.DataFrame, metric: str, name: str, reference: str) -> str:
    """Say how much better one row is than another, paired by seed: mean, 95 % interval and number
    of seeds, or "not recorded yet".
    """
    found = paired(records, metric, name, reference)
    if not found["seeds"]:
        return "not recorded yet"
    spread = (
        f"95 % interval {found['low']:+.3f} to {found['high']:+.3f}, {found['seeds']} seeds"
        if found["seeds"] > 1
        else "1 seed"
    )
    return f"{found['difference']:+.3f} ({spread})"


def show_number(value: float, metric: str) -> str:
    """Format a score as the papers do: two decimals for dbi, none for chs, three for all others."""
    if not np.isfinite(value):
        return "–"
    return (
        f"{value:,.0f}"
        if metric == "chs"
        else f"{value:.2f}"
        if metric == "dbi"
        else f"{value:.3f}"
    )


def beside_paper(
    number: int, records: pd.DataFrame, embedding: str = "spacy", metrics=None
) -> pd.DataFrame:
    """Set our records beside the columns of one of the paper's tables (``spacy`` or ``infersent``):
    one row a model and metric, ready to print.

    Where some of a model's runs collapsed, a second row leaves these out.
    """
    paper, rows = paper_table(number), []
    paper = paper if metrics is None else paper[paper["metric"].isin(metrics)].copy()
    paper["printed"] = [
        text if not text.endswith("%") else f"{value:.4f}"
        for text, value in zip(paper["printed"], paper["value"], strict=True)
    ]
    for (label, metric), cells in paper[paper["embedding"] == embedding].groupby(
        ["label", "metric"], sort=False
    ):
        ours = records[(records["label"] == label) & (records["metric"] == metric)]
        rows.append(_beside(label, metric, cells.set_index("statistic"), ours))
        collapsed = ours["status"] == "collapsed"
        if collapsed.any() and not collapsed.all():
            rows.append(
                _beside(
                    f"{label}, without collapsed runs",
                    metric,
                    cells.set_index("statistic"),
                    ours[~collapsed],
                )
            )
    columns = [
        "model",
        "metric",
        "paper mean",
        "paper best",
        "our mean",
        "95 % interval",
        "sd",
        "our best",
        "difference",
        "documents",
        "runs",
    ]
    return pd.DataFrame(rows).reindex(columns=[*columns, "our verdict", "records"]).fillna("–")


def _beside(label, metric, paper, ours):
    """One row of ``beside_paper``: the paper's mean and best, and our runs."""
    row = {
        "model": label,
        "metric": metric,
        "paper mean": paper.loc["mean", "printed"],
        "paper best": paper.loc["best", "printed"],
    }
    row["documents"] = (
        " to ".join(f"{n:,}" for n in sorted({ours["n_train"].min(), ours["n_train"].max()}))
        if len(ours)
        else "–"
    )
    row |= {"runs": count_runs(ours), "records": behind(ours)}
    finite = ours["value"].dropna()
    if finite.empty:
        return row | {
            "our verdict": "not attempted" if ours.empty else "no run ended with a number"
        }
    theirs, mean = paper.loc["mean", "value"], finite.mean()
    return row | {
        "our mean": show_number(mean, metric),
        "95 % interval": show_interval(*interval(finite), metric),
        "sd": show_number(finite.std(), metric),
        "our best": show_number(
            finite.min() if metric in LOWER_IS_BETTER else finite.max(), metric
        ),
        "difference": ("+" if mean >= theirs else "") + show_number(mean - theirs, metric),
        "our verdict": "matches" if matches(theirs, finite, metric) else "differs",
    }


def count_runs(rows: pd.DataFrame) -> str:
    """Say how many runs there are, one row each, how many of them are not ok, and if any is stale:
    ``5, 1 collapsed, stale``.
    """
    return ", ".join([f"{len(rows)}", *_odd(rows)])


def _odd(rows):
    """Say what is wrong with runs, one row each: how many are not ok, and if any is stale."""
    found = rows.loc[rows["status"] != "ok", "status"].value_counts()
    return [f"{count} {name}" for name, count in found.items()] + ["stale"] * bool(
        rows["stale"].any()
    )


def paper_tables(
    parts: list[tuple[dict[str, str], int, pd.DataFrame]], metrics=None
) -> pd.DataFrame:
    """Put several ``beside_paper`` into one table: for each its own first columns (name -> text,
    ``vectors`` among them), the paper's table, our records.
    """
    tables = []
    for names, number, records in parts:
        table = beside_paper(number, records, FORMS[names["vectors"]], metrics)
        tables.append(
            pd.concat([pd.DataFrame([names] * len(table), index=table.index), table], axis=1)
        )
    return pd.concat(tables)


def claim_table(records: pd.DataFrame, claims: list[tuple[str, str, str, str]]) -> pd.DataFrame:
    """Judge claims (sentence, metric, winner, loser) one row each, ready to print; rows that share
    a sentence also get its verdict as a whole.
    """
    rows = []
    for sentence, metric, winner, loser in claims:
        result = paired(records, metric, winner, loser)
        spread = show_interval(result["low"], result["high"], metric)
        row = {
            "the paper says": sentence,
            "tested as": f"{winner} against {loser}, {metric}",
            "gain": show_number(result["difference"], metric),
        }
        row |= {
            "95 % interval": spread,
            "P(better)": f"{result['probability']:.2f}" if result["seeds"] else "–",
            "seeds": result["seeds"],
        }
        tested = records[records["label"].isin((winner, loser)) & (records["metric"] == metric)]
        tested = tested[tested.groupby("seed")["label"].transform("nunique") == 2]  # the pairs
        rows.append(row | {"verdict": result["verdict"], "records": behind(tested)})
    table = pd.DataFrame(rows)
    table.insert(
        len(table.columns) - 1,
        "the sentence",
        table.groupby("the paper says")["verdict"].transform(together),
    )
    return table


def compare(
    records: pd.DataFrame, pairs: list[tuple[str, str]], metric: str = "acc"
) -> pd.DataFrame:
    """Compare rows with a reference row, paired by seed, without a claim to judge: one row a
    (label, reference), ready to print.
    """
    rows = []
    for label, reference in pairs:
        scored, result = (
            records[records["metric"] == metric],
            paired(records, metric, label, reference),
        )
        ours, both = (
            scored[scored["label"] == label],
            scored[scored["label"].isin((label, reference))],
        )
        row = {"what": label, "against": reference, "runs": count_runs(ours)}
        row |= {
            "mean": show_number(ours["value"].mean(), metric),
            "sd": show_number(ours["value"].std(), metric),
        }
        row |= {"difference": show_number(result["difference"], metric)}
        row |= {"95 % interval": show_interval(result["low"], result["high"], metric)}
        rows.append(
            row
            | {
                "P(better)": f"{result['probability']:.2f}" if result["seeds"] else "–",
                "records": behind(both),
            }
        )
    return pd.DataFrame(rows)


def means(records: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Summarise runs of any profile: one row a model, the mean of each metric over the seeds, ready
    to print.
    """
    if records.empty:
        return pd.DataFrame(columns=["model", *metrics, "runs", "records"])
    table = records[records["metric"].isin(metrics)].pivot_table(
        index="label", columns="metric", values="value", sort=False, dropna=False
    )
    table = table.reindex(columns=metrics).apply(
        lambda column: column.map(lambda value: show_number(value, column.name))
    )
    runs = (
        records.drop_duplicates("key")
        .groupby("label", sort=False)[["status", "stale"]]
        .apply(count_runs)
    )
    table = table.assign(
        runs=runs,
        records=pd.Series(
            {label: behind(rows) for label, rows in records.groupby("label", sort=False)}
        ),
    )
    return table.rename_axis("model").rename_axis(None, axis=1).reset_index()


def provenance(records: pd.DataFrame, clustered: str = "") -> str:
    """Say in one sentence where a table's numbers come from, and if runs are stale or not ok.

    ``clustered`` names what was both trained on and scored, such as ``texts``, if anything.
    """
    if records.empty:
        return "No runs are recorded."
    runs = records.drop_duplicates("key").assign(stale=_stale)

    def spell(column, form="{}"):
        return " and ".join(form.format(value) for value in sorted(runs[column].unique()))

    seeds = ", ".join(str(seed) for seed in dict.fromkeys(runs["seed"]))
    minutes = runs["seconds"].sum() / 60
    counts = f"{spell('n_train', '{:,}')} {clustered or 'training'}" + (
        "" if clustered else f" and {spell('n_test', '{:,}')} test documents"
    )
    data = (
        spell("fingerprint")
        if runs["fingerprint"].nunique() < 5
        else f"of {runs['fingerprint'].nunique()} fingerprints, which the records name"
    )
    odd = f" ({', '.join(_odd(runs))})" if _odd(runs) else ""
    return (
        f"{len(runs)} run{'s' * (len(runs) > 1)}{odd} of the {spell('profile')} profile on {spell('dataset')}: {counts}, seeds {seeds}; "
        f"{spell('device')}; {spell('versions')}; commit {spell('commit')}; data {data}; "
        f"{runs['created'].min()[:10]} to {runs['created'].max()[:10]}; {minutes:,.1f} minutes of computing."
    )


def benchmark(name: str) -> pd.DataFrame:
    """Load the tables of the benchmarks with a name (``loss``, ``stack``, ``clustering`` or
    ``chapters``), of all devices.
    """
    paths = sorted((results.results_dir("full") / "bench").glob(f"{name}-*.csv"))
    columns = [
        "chapter",
        "loss",
        "way",
        "batch",
        "features",
        "runs",
        "epochs",
        "seconds",
        "memory",
        "turns",
        "device",
        "threads",
        "versions",
        "commit",
        "created",
    ]
    return (
        pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
        if paths
        else pd.DataFrame(columns=columns)
    )


def benchmark_files(name: str) -> str:
    """Name the files that ``benchmark`` reads, as ``source`` of a table (``write_table``)."""
    return " ".join(
        f"results/bench/{path.name}"
        for path in sorted((results.results_dir("full") / "bench").glob(f"{name}-*.csv"))
    )


def benchmark_provenance(table: pd.DataFrame) -> str:
    """Say in one sentence where the numbers of a benchmark come from."""
    found = []
    for row in table.drop_duplicates(["device", "threads", "commit"]).itertuples():
        found.append(f"{row.device}; {row.versions}; commit {row.commit}; {row.created[:10]}")
    return ". ".join(found) + "." if found else "No benchmark is recorded."


def behind(rows: pd.DataFrame) -> str:
    """Name the records behind a row of a table, for its column ``records``: each as
    ``experiment/key``, a blank between two; empty if there are none.

    ``rows`` are rows of records, of whatever metrics and runs.
    """
    return " ".join(
        dict.fromkeys(
            f"{experiment}/{key}"
            for experiment, key in zip(rows["experiment"], rows["key"], strict=True)
        )
    )


def write_table(
    table: pd.DataFrame, name: str, source: pd.DataFrame | str | None = None
) -> pd.DataFrame:
    """Write a table to ``tables/<name>.csv`` beside the chapter, from which the page shows it and
    offers it; returns the table as it is shown.

    The file's last column, ``records``, says where each row comes from (``behind``); the page makes
    links to the runs of it. A table that has no such column needs a ``source`` for all of its rows:
    records, or ``COMPUTED`` or ``QUOTED``. Raises ValueError without either.
    """
    if source is not None:
        table = table.assign(records=source if isinstance(source, str) else behind(source))
    elif "records" not in table:
        raise ValueError(
            f"nothing says where the rows of {name} come from: give them a column 'records' (report.behind), or name a source"
        )
    shown = table.drop(columns="records")
    if table.empty:
        table = shown = pd.DataFrame(
            [["nothing recorded yet", *["–"] * (len(shown.columns) - 1)]], columns=shown.columns
        )
        table = table.assign(records="")
    results.write_atomically(
        Path("tables") / f"{name}.csv", table[[*shown.columns, "records"]].to_csv(index=False)
    )
    return shown


def glue(name: str, text: str) -> None:
    """Put a text under a name into the chapter, so that prose can quote it and no number is typed
    in.
    """
    require("myst_nb")
    import myst_nb

    myst_nb.glue(name, str(text), display=False)
