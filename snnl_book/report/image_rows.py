"""The records of the chapters on images: each method with what it knows, and accuracies by the
number of labels.
"""

import numpy as np
import pandas as pd

from snnl_book.experiments import labels, text_clustering
from snnl_book.paper import literature
from snnl_book.report.findings import LABELS, LOSS, uses_of_labels
from snnl_book.report.select import recorded

SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
"""The data sets that are recorded, with their titles."""
KINDS = {"loss": "labels, our loss", "labels": "the same labels", "none": "no labels"}
"""What a method knows, with its words in a legend."""
BASE = "AE(D), alpha 1"
USES = {
    "AE(D)": "AE(D), then k-means",
    "AE(D), 30 epochs in all": "AE(D), short training, then k-means",
    "SupCon": "SupCon, then k-means",
    "AE with a classifier on its code": "autoencoder with a classifier, then k-means",
    "linear discriminant analysis, then k-means": "linear discriminants, then k-means",
    "linear discriminant analysis": "linear discriminants",
    "support vector machine": "support vector machine",
    "plain network": "plain network",
    "5 nearest neighbours": "5 nearest neighbours",
    "logistic regression": "logistic regression",
    "logistic regression, then k-means": "logistic regression, then k-means",
}
"""The chapter's name for each use of the labels, by its name in ``uses_of_labels``."""
HIDDEN = {
    "hidden2_acc": "plain network's last hidden layer, then k-means",
    "hidden2_normalized_acc": "plain network's last hidden layer, normalised, then k-means",
}
"""The chapter's name for each clustering of the plain network's last hidden layer, by its score."""
ENCODER = "encoder as a classifier"
LAYERS = {
    text_clustering.SAME_NETWORK["ffn-hidden", 0]: HIDDEN,
    labels.ENCODERS[0]: {
        "predictions_acc": ENCODER,
        "hidden4_acc": f"{ENCODER}, code, then k-means",
        "hidden4_normalized_acc": f"{ENCODER}, normalised code, then k-means",
    },
    labels.SHORT_ENCODER: {
        "predictions_acc": f"{ENCODER}, short training",
        "hidden4_acc": f"{ENCODER}, short training, code, then k-means",
        "hidden4_normalized_acc": f"{ENCODER}, short training, normalised code, then k-means",
    },
    labels.ENCODERS[1]: {
        "predictions_acc": f"{ENCODER}, with the loss",
        "hidden4_acc": f"{ENCODER}, with the loss, code, then k-means",
        "hidden4_normalized_acc": f"{ENCODER}, with the loss, normalised code, then k-means",
    },
}
"""The chapter's names for the classes and layers of networks, by the network and the score."""


def methods(dataset: str, seeds=None) -> pd.DataFrame:
    """Return the image runs of a data set, without those that vary the loss of AE(D).

    These have other temperatures or weights, normalise the codes, apply the loss to fewer layers or
    epochs, or stop early. Adds
    ``kind``, one of ``KINDS``, and ``paper``, the accuracy that the image paper reports for
    the method (nan where it reports none).

    >>> found = methods("mnist").query("metric == 'acc'")
    >>> found.groupby("kind")["label"].nunique().to_dict()
    {'labels': 2, 'loss': 3, 'none': 10}
    """
    runs = recorded("images", dataset, "pixels", seeds=seeds)
    varied = "fixed temperature|weight|normalised codes|half only|code only| (?:5|10) epochs"
    runs = runs[~runs["label"].str.contains(varied)]
    quoted = literature().query("metric == 'acc' and dataset == @dataset")
    printed = quoted.set_index("method")["value"]
    known = {"ae-d": "loss", "supcon": "labels", "ae-classifier": "labels"}
    return runs.assign(
        kind=runs["model"].map(known).fillna("none"),
        paper=runs["label"].str.split(", alpha").str[0].map(printed).astype(float),
    )


def by_labels(dataset: str, seeds=None) -> pd.DataFrame:
    """Return the runs of ``uses_of_labels`` that saw labels, AE(D) with alpha 1 among them.

    ``method`` is one of ``USES`` or ``LAYERS``; where k-means clusters the values that a classifier
    decides by, it says so.

    >>> found = by_labels("mnist")
    >>> sorted(found["labels"].unique().tolist())
    [100, 300, 1000, 3000, 10000]
    """
    runs = uses_of_labels(dataset, seeds, metrics=("acc", "kmeans_acc"))
    named = runs["method"].map(USES)
    on_values = named + ", then k-means"
    runs = runs.assign(method=np.where(runs["metric"] == "acc", named, on_values))
    hidden = recorded("labels", dataset, "pixels", seeds=seeds)
    hidden = hidden[(hidden["model"] == "ffn-hidden") & ~hidden["stale"].astype(bool)]
    networks = hidden["label"].str.replace(r", [\d,]+ labels$", "", regex=True)
    names = [
        LAYERS.get(name, {}).get(metric)
        for name, metric in zip(networks, hidden["metric"], strict=True)
    ]
    groups = np.where(hidden["alpha"] == 0, LABELS, LOSS)
    hidden = hidden.assign(method=names, group=groups, labels=hidden["n_train"])
    hidden = hidden.assign(metric="acc", recorded_as=hidden["metric"])
    found = pd.concat([runs[named.notna()], hidden.dropna(subset="method")], ignore_index=True)
    return found[runs.columns]


def without_labels(dataset: str, seeds=None) -> pd.Series:
    """Return the mean accuracy of each method that sees no labels, the best first.

    >>> without_labels("mnist").index[0]
    'N2D'
    """
    runs = methods(dataset, seeds).query("metric == 'acc' and kind == 'none'")
    return runs.groupby("label")["value"].mean().sort_values(ascending=False)
