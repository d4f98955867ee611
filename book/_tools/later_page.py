"""The tables of the page of later results: numbers of other works, of the paper, and ours."""

import re

import pandas as pd

from snnl_book import report
from snnl_book.experiments import short_texts
from snnl_book.paper.tables import later_results

PAPER = "https://openreview.net/forum?id=oja19FZn5Y"
GRID = "best of a grid that the classes choose among; NMI's geometric mean"
ALL_TEXTS = "all texts of its copies of the corpora"
OURS = {  # by method and clusterer, the backbone
    ("TF-IDF", "kmeans"): "word counts",
    ("SIF, own vectors", "kmeans"): "word vectors trained on the corpus",
    ("MiniLM, mean", "kmeans"): "all-MiniLM-L6-v2, not trained further",
    ("MiniLM, mean", "umap"): "all-MiniLM-L6-v2, not trained further",
    ("ClusterBERT", "kmeans"): "all-MiniLM-L6-v2",
}
OF_PAPER = {  # by label in the paper's Table 2: method, backbone, protocol
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
    """Return tables of the scores, the protocols, their counts, and the works without numbers."""
    later = later_results()
    with_numbers = later[later["corpus"] != ""]
    rows = pd.DataFrame([*_ours(), *_papers(), *_others(with_numbers)])
    protocol = ["method", "texts", "labels", "backbone", "protocol", "read", "records"]
    counts = {
        "numbers in the table from other works": with_numbers[["acc", "nmi"]].notna().sum().sum(),
        "sources that they were read in": with_numbers["address"].nunique(),
        "works of which no number could be read": len(later) - len(with_numbers),
    }
    table_of_counts = pd.DataFrame({"what": [*counts], "how many": [*counts.values()]})
    return {
        "later-scores": rows[["method", *CORPORA.values(), "records"]],
        "later-protocols": rows[protocol],
        "later-counts": table_of_counts.assign(records=report.COMPUTED),
        "later-looked": _without_numbers(later[later["corpus"] == ""]),
    }


CORPORA = {
    name: title for name, title in short_texts.DATASETS.items() if name != "newsgroups20_openings"
}


def _sized(runs):
    """Yield each row of ``OURS``, its backbone, and its records on one number of texts.

    The largest number comes first, and smaller ones only follow until all corpora have records.
    """
    runs = runs[runs["dataset"].isin(CORPORA)]
    for (method, clusterer), backbone in OURS.items():
        of_row = runs[(runs["method"] == method) & (runs["clusterer"] == clusterer)]
        for _, sized in sorted(of_row.groupby("asked"), reverse=True):
            yield (method, clusterer), backbone, sized
            if set(sized["dataset"]) == set(CORPORA):
                break


def _ours():
    """Yield our rows, one for each number of texts, with means over seeds."""
    for (method, clusterer), backbone, records in _sized(report.short_texts("clusterbert")):
        texts = records["n_train"].drop_duplicates()
        is_whole = (records["n_train"] < records["asked"]).all()  # the plan has more than exist
        smallest = f"{texts.min():,}"
        sizes = smallest if len(texts) == 1 else f"{smallest} to {texts.max():,}"
        counts = records.groupby("dataset")["seed"].nunique()
        seeds = " to ".join(f"{count}" for count in sorted({counts.min(), counts.max()}))
        seeds = "one seed" if seeds == "1" else f"mean of {seeds} seeds"
        title = f"ours: {method}, {short_texts.CLUSTERERS[clusterer]}"
        yield {
            "method": f"**{title}, {'all' if is_whole else smallest} texts**",
            **{
                corpus: _cell(records[records["dataset"] == name].dropna(subset="value"))
                for name, corpus in CORPORA.items()
            },
            "texts": f"all of each corpus, {sizes}" if is_whole else f"{smallest} of each corpus",
            "labels": "none",
            "backbone": backbone,
            "protocol": f"k is the number of classes; {seeds}; NMI's geometric mean",
            "read": "recorded",
            "records": report.behind(records),
        }


def _cell(records):
    """Return ACC and NMI of the records of one row on one corpus, as text."""
    means = records.groupby("metric")["value"].mean()
    scores = _pair(means.get("acc"), means.get("nmi_geometric"))
    return f"{scores}*" if records["stale"].any() else scores


def _pair(acc, nmi, form=""):
    """Return ACC and NMI as text for a cell, and the form of the corpus if it is not ours."""
    if pd.isna(acc) and pd.isna(nmi):
        return "–"
    scores = " / ".join("–" if pd.isna(value) else f"{100 * value:.1f}" for value in (acc, nmi))
    return f"{scores} ({form})" if form else scores


def _papers():
    """Yield the rows that the ClusterBERT paper prints in its Table 2."""
    paper = report.paper_short_texts()
    for label, (method, backbone, protocol) in OF_PAPER.items():
        values = paper[paper["label"] == label].set_index(["dataset", "metric"])["value"]
        yield {
            "method": f"[{method}]({PAPER})",
            **{
                title: _pair(values.get((name, "acc")), values.get((name, "nmi_geometric")))
                for name, title in CORPORA.items()
            },
            "texts": ALL_TEXTS,
            "labels": "to choose the settings" if protocol == GRID else "none",
            "backbone": backbone,
            "protocol": f"k-means, k the number of classes; {protocol}",
            "read": "the paper",
            "records": report.QUOTED,
        }


def _others(later):
    """Yield a row for each method of each source, by the year of the source."""
    later = later.sort_values("year", kind="stable")
    for (method, _, labels), rows in later.groupby(["method", "address", "labels"], sort=False):
        source = rows.iloc[0]
        cells = rows.set_index("corpus")
        if len(cells["texts"].unique()) == 1:
            texts = source["texts"]
        else:
            texts = "; ".join(f"{CORPORA[name]}: {text}" for name, text in cells["texts"].items())
        known_classes = re.search(r"\d+ % of the classes", labels)
        suffix = f", {known_classes[0]} known" if known_classes else ""
        yield {
            "method": f"[{method}{suffix}]({source['address']}) ({source['year']})",
            **{
                title: _pair(*cells.loc[name, ["acc", "nmi", "form"]])
                if name in cells.index
                else "–"
                for name, title in CORPORA.items()
            },
            "texts": texts,
            "labels": labels,
            "backbone": source["backbone"],
            "protocol": source["protocol"],
            "read": f"{source['source']}: {source['read']} {{cite:p}}`{source['cite']}`",
            "records": report.QUOTED,
        }


def _without_numbers(works):
    """Return a table of the works of which no number could be read, and of what was read."""
    rows = {
        "work": [f"[{row.method}]({row.address})" for row in works.itertuples()],
        "year": works["year"].replace("", "–"),
        "what was read": works["read"],
    }
    return pd.DataFrame(rows).assign(records=report.QUOTED)
