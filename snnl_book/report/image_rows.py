"""The records of the chapters on images: each method with what it knows, and accuracies by the
number of labels.
"""

import numpy as np
import pandas as pd

from snnl_book.experiments import PROFILES
from snnl_book.paper import literature
from snnl_book.report.select import recorded

SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
"""The data sets that are recorded, with their titles."""
KINDS = {"loss": "labels, our loss", "labels": "the same labels", "none": "no labels"}
"""What a method knows, with its words in a legend."""
BASE = "AE(D), alpha 1"
USES = {
    "ae-d": "AE(D), then k-means",
    "svm": "support vector machine",
    "ffn": "plain network",
    "knn": "5 nearest neighbours",
    "supcon": "SupCon, then k-means",
    "logreg-predictions": "logistic regression",
    "logreg": "logistic regression, then k-means",
    "lda": "linear discriminants, then k-means",
}
"""Each use of the labels, by the name of its model."""


def methods(dataset: str, seeds=None) -> pd.DataFrame:
    """Return the image runs of a data set without those at other temperatures or weights.

    Adds ``kind``, one of ``KINDS``, and ``paper``, the accuracy that the image paper reports for
    the method (nan where it reports none).

    >>> found = methods("mnist").query("metric == 'acc'")
    >>> found.groupby("kind")["label"].nunique().to_dict()
    {'labels': 1, 'loss': 3, 'none': 9}
    """
    runs = recorded("images", dataset, "pixels", seeds=seeds)
    runs = runs[~runs["label"].str.contains("fixed temperature|weight")]
    quoted = literature().query("metric == 'acc' and dataset == @dataset")
    printed = quoted.set_index("method")["value"]
    known = {"ae-d": "loss", "supcon": "labels"}
    return runs.assign(
        kind=runs["model"].map(known).fillna("none"),
        paper=runs["label"].str.split(", alpha").str[0].map(printed).astype(float),
    )


def by_labels(dataset: str, seeds=None) -> pd.DataFrame:
    """Return the accuracies of each use of the labels, AE(D) with alpha 1 among them.

    Adds ``labels``, how many a run has seen, and ``method``, one of ``USES``; where k-means
    clusters the values that a classifier decides by, the method says so.

    >>> found = by_labels("mnist")
    >>> sorted(found["labels"].unique().tolist())
    [100, 300, 1000, 3000, 10000]
    """
    few = recorded("labels", dataset, "pixels", seeds=seeds)
    counts = few["label"].str.extract(r"([\d,]+) labels")[0].str.replace(",", "")
    few = few.assign(labels=counts.astype(int))
    whole = recorded("images", dataset, "pixels", seeds=seeds)
    whole = whole[whole["label"].isin([BASE, "SupCon"])]
    whole = whole.assign(labels=PROFILES["full"]["image_train"])
    runs = pd.concat([few, whole], ignore_index=True)
    runs = runs[runs["metric"].isin(["acc", "kmeans_acc"])]
    named = runs["model"].map(USES)
    on_values = named + ", then k-means"
    return runs.assign(method=np.where(runs["metric"] == "acc", named, on_values))


def without_labels(dataset: str, seeds=None) -> pd.Series:
    """Return the mean accuracy of each method that sees no labels, the best first.

    >>> without_labels("mnist").index[0]
    'N2D'
    """
    runs = methods(dataset, seeds).query("metric == 'acc' and kind == 'none'")
    return runs.groupby("label")["value"].mean().sort_values(ascending=False)
