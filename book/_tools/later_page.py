"""The tables of the page of later results: what other works print, beside the paper and our
records.
"""

import re

import pandas as pd

from snnl_book import report
from snnl_book.experiments import short_texts
from snnl_book.paper.tables import later_results

PAPER = "https://openreview.net/forum?id=oja19FZn5Y"
GRID = "best of a grid that the classes choose among; NMI's geometric mean"
GIVEN = "all texts of its copies of the corpora"
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
        "NMI's geometric mean; runs not said there",
    ),
    "VaSCL+kmeans": (
        "VaSCL, as the ClusterBERT paper ran it",
        "vascl-roberta-large",
        "NMI's geometric mean; runs not said there",
    ),
}


def tables() -> dict[str, pd.DataFrame]:
    """Make the scores of all rows, their protocols beside each other, and what was looked for."""
    later = later_results()
    found = later[later["corpus"] != ""]
    rows = [*_ours(), *_papers(), *_others(found)]
    scores = [
        {name: row[name] for name in ("method", *CORPORA.values(), "records")} for row in rows
    ]
    told = ("method", "texts", "labels", "backbone", "protocol", "read", "records")
    counts = {
        "numbers in the table from other works": found[["acc", "nmi"]].notna().sum().sum(),
        "sources that they were read in": found["address"].nunique(),
        "works of which no number could be read": len(later) - len(found),
    }
    counted = pd.DataFrame({"what": [*counts], "how many": [*counts.values()]})
    return {
        "later-scores": pd.DataFrame(scores),
        "later-protocols": pd.DataFrame([{name: row[name] for name in told} for row in rows]),
        "later-counts": counted.assign(records=report.COMPUTED),
        "later-looked": _looked(later[later["corpus"] == ""]),
    }


CORPORA = {
    name: title for name, title in short_texts.DATASETS.items() if name != "newsgroups20_openings"
}


def _sized(runs):
    """The records of each of our rows, the most texts first: fewer only where a corpus lacks them.

    Yields a row of ``OURS``, its backbone and the records.
    """
    runs = runs[runs["dataset"].isin(CORPORA)]
    for row, backbone in OURS.items():
        own = runs[(runs["method"] == row[0]) & (runs["clusterer"] == row[1])]
        for _, sized in sorted(own.groupby("asked"), reverse=True):
            yield row, backbone, sized
            if set(sized["dataset"]) == set(CORPORA):
                break


def _ours():
    """Our rows, a number of texts each: the mean over its seeds."""
    for (method, clusterer), backbone, own in _sized(report.short_texts("clusterbert")):
        texts = own["n_train"].drop_duplicates()
        whole = (own["n_train"] < own["asked"]).all()  # asked for more than there are
        few = f"{texts.min():,}"
        many = few if len(texts) == 1 else f"{few} to {texts.max():,}"
        seeds = own.groupby("dataset")["seed"].nunique()
        counted = " to ".join(f"{count}" for count in sorted({seeds.min(), seeds.max()}))
        counted = "one seed" if counted == "1" else f"mean of {counted} seeds"
        yield {
            "method": f"**ours: {method}, {short_texts.CLUSTERERS[clusterer]},"
            f" {'all' if whole else few} texts**",
            **{
                title: _cell(own[own["dataset"] == name].dropna(subset="value"))
                for name, title in CORPORA.items()
            },
            "texts": f"all of each corpus, {many}" if whole else f"{few} of each corpus",
            "labels": "none",
            "backbone": backbone,
            "protocol": f"k is the number of classes; {counted}; NMI's geometric mean",
            "read": "recorded",
            "records": report.behind(own),
        }


def _cell(own):
    """ACC and NMI of the records of one row on one corpus."""
    means = own.groupby("metric")["value"].mean()
    shown = _pair(means.get("acc"), means.get("nmi_geometric"))
    return shown + "*" * bool(own["stale"].any())


def _pair(acc, nmi, form=""):
    """ACC and NMI as they stand in a cell, and the form of the corpus where it is not ours."""
    if pd.isna(acc) and pd.isna(nmi):
        return "–"
    shown = " / ".join("–" if pd.isna(value) else f"{100 * value:.1f}" for value in (acc, nmi))
    return shown + f" ({form})" * bool(form)


def _papers():
    """What the ClusterBERT paper prints of its own runs, in its Table 2."""
    paper = report.paper_short_texts()
    for label, (method, backbone, protocol) in THEIRS.items():
        own = paper[paper["label"] == label].set_index(["dataset", "metric"])["value"]
        yield {
            "method": f"[{method}]({PAPER})",
            **{
                title: _pair(own.get((name, "acc")), own.get((name, "nmi_geometric")))
                for name, title in CORPORA.items()
            },
            "texts": GIVEN,
            "labels": "to choose the settings" if protocol == GRID else "none",
            "backbone": backbone,
            "protocol": f"k-means, k the number of classes; {protocol}",
            "read": "the paper",
            "records": report.QUOTED,
        }


def _others(found):
    """A row for each method of each source, by the year of the source."""
    found = found.sort_values("year", kind="stable")
    for (method, _, labels), own in found.groupby(["method", "address", "labels"], sort=False):
        first, cells = own.iloc[0], own.set_index("corpus")
        texts = cells["texts"].drop_duplicates()
        one = (
            texts.iloc[0]
            if len(texts) == 1
            else "; ".join(f"{CORPORA[name]}: {text}" for name, text in cells["texts"].items())
        )
        known = re.search(r"\d+ % of the classes", labels)
        seen = f", {known[0]} known" if known else ""
        yield {
            "method": f"[{method}{seen}]({first['address']}) ({first['year']})",
            **{
                title: _pair(*cells.loc[name, ["acc", "nmi", "form"]])
                if name in cells.index
                else "–"
                for name, title in CORPORA.items()
            },
            "texts": one,
            "labels": labels,
            "backbone": first["backbone"],
            "protocol": first["protocol"],
            "read": f"{first['source']}: {first['read']} {{cite:p}}`{first['cite']}`",
            "records": report.QUOTED,
        }


def _looked(missed):
    """What was looked for in vain, and what was opened."""
    rows = {
        "work": [f"[{row.method}]({row.address})" for row in missed.itertuples()],
        "year": missed["year"].replace("", "–"),
        "what was read": missed["read"],
    }
    return pd.DataFrame(rows).assign(records=report.QUOTED)
