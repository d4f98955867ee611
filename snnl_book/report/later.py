"""What other works report on the six corpora of short texts, next to the paper and our records."""

import re

import pandas as pd

from snnl_book.experiments import short_texts as experiment
from snnl_book.paper import paper_short_texts
from snnl_book.paper.tables import later_results
from snnl_book.report.select import short_texts
from snnl_book.report.tables import QUOTED, behind

PAPER = "https://openreview.net/forum?id=oja19FZn5Y"
GRID = "The settings are the best of a grid, chosen by the true classes."
GEOMETRIC = "NMI uses the geometric mean."
NO_RUNS = "The paper does not give the number of runs."
OURS = {  # method and way to cluster: the backbone
    ("TF-IDF", "kmeans"): "word counts",
    ("SIF, own vectors", "kmeans"): "word vectors trained on the corpus",
    ("MiniLM, mean", "kmeans"): "all-MiniLM-L6-v2, not trained further",
    ("MiniLM, mean", "umap"): "all-MiniLM-L6-v2, not trained further",
    ("ClusterBERT", "kmeans"): "all-MiniLM-L6-v2",
}
THEIRS = {  # a label in the paper's Table 2: what the row is, and its backbone
    "ClusterBERT+kmeans": ("ClusterBERT, the paper", "roberta-base", GRID),
    "SCCL+kmeans": (
        "SCCL, as the ClusterBERT paper ran it",
        "distilbert-base-nli-stsb-mean-token",
        NO_RUNS,
    ),
    "VaSCL+kmeans": ("VaSCL, as the ClusterBERT paper ran it", "vascl-roberta-large", NO_RUNS),
}
CORPORA = {
    name: title for name, title in experiment.DATASETS.items() if name != "newsgroups20_openings"
}


def scores() -> pd.DataFrame:
    """Return a row per method and source: ours first, then the paper's, then those of other works.

    A cell of a corpus holds ACC / NMI, times 100, and in brackets the source's form of the corpus
    where it differs from ours; an asterisk marks stale runs of ours. The other columns say on which
    texts, with which labels, backbone and protocol, and where the numbers were read.
    """
    later = later_results()
    rows = [*_ours(), *_papers(), *_others(later[later["corpus"] != ""])]
    columns = ["method", *CORPORA.values(), "labels", "texts", "backbone", "protocol", "source"]
    return pd.DataFrame(rows)[[*columns, "address", "records"]]


def looked_for() -> pd.DataFrame:
    """Return the works of which no number could be read, with what was opened."""
    later = later_results()
    missed = later[later["corpus"] == ""].rename(columns={"method": "work", "read": "what we read"})
    missed = missed[["work", "year", "what we read", "address"]].replace({"year": {"": "–"}})
    return missed.assign(records=QUOTED)


def _sized(runs):
    """Yield each of our rows with its backbone and records: those on the most texts, and those on
    fewer where these lack a corpus.
    """
    runs = runs[runs["dataset"].isin(CORPORA)]
    for row, backbone in OURS.items():
        chosen = runs[(runs["method"] == row[0]) & (runs["clusterer"] == row[1])]
        for _, sized in sorted(chosen.groupby("asked"), reverse=True):
            yield row, backbone, sized
            if set(sized["dataset"]) == set(CORPORA):
                break


def _ours():
    """Yield our rows: means over the seeds."""
    for (method, clusterer), backbone, runs in _sized(short_texts("clusterbert")):
        texts = runs["n_train"].drop_duplicates()
        whole = (runs["n_train"] < runs["asked"]).all()  # asked for more than there are
        few = f"{texts.min():,}"
        many = few if len(texts) == 1 else f"{few} to {texts.max():,}"
        seeds = runs.groupby("dataset")["seed"].nunique()
        counted = " to ".join(f"{count}" for count in sorted({seeds.min(), seeds.max()}))
        counted = (
            "The score is from one seed."
            if counted == "1"
            else f"Scores are means of {counted} seeds."
        )
        way = experiment.CLUSTERERS[clusterer]
        yield {
            "method": f"ours: {method}, {way}, {'all' if whole else few} texts",
            **{
                title: _cell(runs[runs["dataset"] == name].dropna(subset="value"))
                for name, title in CORPORA.items()
            },
            "labels": "none",
            "texts": f"all texts of each corpus ({many})" if whole else f"{few} of each corpus",
            "backbone": backbone,
            "protocol": f"k is the number of classes. {counted} {GEOMETRIC}",
            "source": "our records",
            "address": "–",
            "records": behind(runs),
        }


def _cell(runs):
    """Return ACC and NMI of the records of one row on one corpus."""
    means = runs.groupby("metric")["value"].mean()
    shown = _pair(means.get("acc"), means.get("nmi_geometric"))
    return shown + "*" * bool(runs["stale"].any())


def _pair(acc, nmi, form=""):
    """Return ACC and NMI as a cell, with the form of the corpus where it is not ours."""
    if pd.isna(acc) and pd.isna(nmi):
        return "–"
    shown = " / ".join("–" if pd.isna(value) else f"{100 * value:.1f}" for value in (acc, nmi))
    return shown + f" ({form})" * bool(form)


def _papers():
    """Yield what the ClusterBERT paper prints of its own runs, in its Table 2."""
    paper = paper_short_texts()
    for label, (method, backbone, protocol) in THEIRS.items():
        printed = paper[paper["label"] == label].set_index(["dataset", "metric"])["value"]
        yield {
            "method": method,
            **{
                title: _pair(printed.get((name, "acc")), printed.get((name, "nmi_geometric")))
                for name, title in CORPORA.items()
            },
            "labels": "to choose the settings" if protocol == GRID else "none",
            "texts": "all texts of the paper's copies of the corpora",
            "backbone": backbone,
            "protocol": f"k-means, with k equal to the number of classes. {protocol} {GEOMETRIC}",
            "source": "Table 2 of the ClusterBERT paper (2023)",
            "address": PAPER,
            "records": QUOTED,
        }


def _others(later):
    """Yield a row for each method of each source, by the year of the source."""
    later = later.sort_values("year", kind="stable")
    for (method, address, labels), rows in later.groupby(
        ["method", "address", "labels"], sort=False
    ):
        first, cells = rows.iloc[0], rows.set_index("corpus")
        texts = cells["texts"].drop_duplicates()
        one = texts.iloc[0]
        if len(texts) > 1:
            one = "; ".join(f"{CORPORA[name]}: {text}" for name, text in cells["texts"].items())
        known = re.search(r"\d+ % of the classes", labels)
        yield {
            "method": method + (f", {known[0]} known" if known else ""),
            **{
                title: _pair(*cells.loc[name, ["acc", "nmi", "form"]])
                if name in cells.index
                else "–"
                for name, title in CORPORA.items()
            },
            "labels": labels,
            "texts": one,
            "backbone": first["backbone"],
            "protocol": first["protocol"],
            "source": f"{first['source']} ({first['year']}). We read {first['read']}.",
            "address": address,
            "records": QUOTED,
        }
