"""Tables of short texts: our rows next to the paper's, what others report, and slips of the paper.

``runs`` are records as ``short_texts`` returns them.
"""

import pandas as pd

from snnl_book.experiments import PROFILES
from snnl_book.experiments import short_texts as experiment
from snnl_book.paper import literature, paper_corpora, paper_short_texts
from snnl_book.report.labels import SHORT_LABELS
from snnl_book.report.select import by_stage
from snnl_book.report.tables import QUOTED, behind, show_number

TITLES, WAYS = experiment.DATASETS, experiment.CLUSTERERS
SCORES = {"nmi_geometric": "NMI", "acc": "ACC"}
REPORTED = {  # a method in what others report: our row, and the paper's
    "TF-IDF": ("TF-IDF", "TF-IDF", "kmeans"),
    "SIF": ("SIF, own vectors", "SIF", "kmeans"),
    "SIF+IDEC": ("SIF, own vectors", "SIF", "idec"),
    "SCCL": ("SCCL", "SCCL", "kmeans"),
    "VaSCL": ("VaSCL", "VaSCL", "kmeans"),
}


def paper_rows() -> pd.DataFrame:
    """Return the paper's Tables 2 and 3 with ``method``, the name that our rows have.

    >>> paper_rows()["method"].nunique()
    8
    """
    paper = paper_short_texts()
    pairs = zip(paper["model"], paper["embedding"], strict=True)
    return paper.assign(method=[SHORT_LABELS[pair] for pair in pairs])


def every_row(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per method, clustering, number of texts and score: our mean and standard
    deviation over the seeds, times 100, and the paper's value in brackets. An asterisk marks means
    with stale runs.

    >>> from snnl_book.report.select import short_texts
    >>> every_row(short_texts().query("model == 'clusterbert'"))["StackOverflow"].iloc[0]
    '80.7±0.9 [75.6]'
    """
    paper, rows = _values(paper_rows()), []
    for (asked, method, way), group in runs.groupby(["asked", "method", "clusterer"], sort=False):
        texts = "all" if asked == PROFILES["full"]["short_all"] else f"{asked:,}"
        ours = _values(group)
        for metric, score in SCORES.items():
            row = {"method": method, "clustered by": WAYS[way], "texts": texts, "score": score}
            for name, title in TITLES.items():
                cell = method, way, name, metric
                row[title] = ours.get(cell, "–") + (f" [{paper[cell]}]" if cell in paper else "")
            rows.append(row | {"records": behind(group)})
    return pd.DataFrame(rows, columns=None if rows else ["method", "records"])


def _values(rows):
    """Return mean and standard deviation times 100 as text, with an asterisk if a run is stale, by
    method, clustering, data set and score.
    """
    values = {}
    for cell, runs in rows.groupby(["method", "clusterer", "dataset", "metric"]):
        stale = "stale" in runs and bool(runs["stale"].any())
        spread = f"±{100 * runs['value'].std():.1f}" if len(runs) > 1 else ""
        values[cell] = f"{100 * runs['value'].mean():.1f}{spread}" + "*" * stale
    return values


def reported(runs: pd.DataFrame) -> pd.DataFrame:
    """Return what the authors of the rivals report, what the paper finds for them and what we find:
    TF-IDF and SIF on all texts, the others on 2,000.

    >>> from snnl_book.report.select import short_texts
    >>> reported(short_texts())[["method", "corpus", "NMI, reported"]].iloc[0].tolist()
    ['TF-IDF', 'StackOverflow', '15.6']
    """
    full, paper, rows = PROFILES["full"], _values(paper_rows()), []
    for (method, dataset), group in literature("short-texts").groupby(
        ["method", "dataset"], sort=False
    ):
        ours, theirs, way = REPORTED[method]
        texts = full["short_all" if method in ("TF-IDF", "SIF") else "short_documents"]
        records = runs[(runs["dataset"] == dataset) & (runs["asked"] == texts)]
        records = records[(records["method"] == ours) & (records["clusterer"] == way)]
        found = _values(records)
        row = {"method": method, "corpus": TITLES[dataset]}
        row["reported by"] = group["note"].iloc[0].removeprefix("of ")
        for metric, score in SCORES.items():
            value = group.loc[group["metric"] == score.lower(), "value"].mean()
            row[f"{score}, reported"] = f"{100 * value:.1f}".replace("nan", "–")
            row[f"{score}, the paper"] = paper.get((theirs, way, dataset, metric), "–")
            row[f"{score}, ours"] = found.get((ours, way, dataset, metric), "–")
        rows.append(row | {"records": behind(records)})
    return pd.DataFrame(rows)


def stages(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of ClusterBERT before training and after each stage, by corpus.

    >>> from snnl_book.report.select import short_texts
    >>> stages(short_texts().query("clusterer == 'kmeans'")).columns[2:6].tolist()
    ['before', 'after Stage 1', 'after Stage 2', 'after Stage 3']
    """
    scores, rows = SCORES | {"sil": "silhouette", "dunn": "Dunn index"}, []
    staged = by_stage(runs)
    for (name, metric), group in staged[staged["metric"].isin(scores)].groupby(
        ["dataset", "metric"], sort=False
    ):
        row = {"corpus": TITLES[name], "score": scores[metric]}
        for stage in range(4):
            title = f"after Stage {stage}" if stage else "before"
            row[title] = show_number(group[group["stage"] == stage]["value"].mean(), "acc")
        rows.append(row | {"records": behind(group)})
    return pd.DataFrame(rows, columns=None if rows else ["corpus", "records"])


def slips() -> pd.DataFrame:
    """Return numbers of the paper that cannot be right, or contradict one another.

    >>> slips()["where"].iloc[0]
    'Table 3, TF-IDF+kmeans, GoogleNews'
    """
    paper = paper_rows()
    noted = paper[paper["note"] != ""]
    noted = noted.drop_duplicates(["method", "clusterer", "dataset", "note"])
    rows = [
        (f"Table 3, {row.label}, {TITLES[row.dataset]}", row.note) for row in noted.itertuples()
    ]
    counts = paper_corpora().query("note != ''").itertuples()
    rows += [(f"Table 1, {row.label}, {row.metric}: {row.printed}", row.note) for row in counts]
    rows += [(f"Sec. 4.2, {where}", what) for where, what in _text_against_tables(paper)]
    return pd.DataFrame(rows, columns=["where", "what"]).assign(records=QUOTED)


def _text_against_tables(paper):
    """Yield what the paper's text says about its Tables 2 and 3, next to what they print."""
    nmi = paper[paper["metric"] == "nmi_geometric"]
    table = 100 * nmi[nmi["clusterer"] == "kmeans"].pivot_table("value", "dataset", "method")
    by_way = nmi[nmi["method"] != "ClusterBERT"].pivot_table("value", "method", "clusterer")
    acc = paper.query("method == 'ClusterBERT' and metric == 'acc'")
    acc = 100 * acc.pivot_table("value", "dataset", "clusterer")
    for rival, points in (("RoBERTa", 39.2), ("TSDAE", 16.3)):
        gain = (table["ClusterBERT"] - table[rival]).mean()
        what = (
            f"The text gives an average gain of {points} points of NMI; Table 2 gives {gain:.1f}."
        )
        yield f"ClusterBERT against {rival}", what
    largest = (table["ClusterBERT"] - table["RoBERTa"]).max()
    what = f"The text says up to 65 points of NMI; the largest gain in Table 2 is {largest:.1f}."
    yield "the largest gain", what
    lead = (table["TSDAE"] - table["TF-IDF"]).mean()
    what = f"The text places TSDAE behind TF-IDF; in Table 2 it is {lead:.1f} points of NMI ahead."
    yield "TF-IDF against TSDAE", what
    better, counted = (by_way["idec"] > by_way["kmeans"]).sum(), by_way["idec"].count()
    what = "The text says that most methods gain. In Table 3, the average NMI rises for "
    yield "IDEC instead of k-means", what + f"{better} of {counted} methods."
    drop = (acc["kmeans"] - acc["umap"]).max()
    what = f"The text calls ClusterBERT stable; in Table 3 it loses up to {drop:.1f} points."
    yield "UMAP instead of k-means, ACC", what
