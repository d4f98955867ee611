"""The book's main comparisons of texts, repeated on a second corpus with the same settings.

What is compared was fixed before the first run, apart from other weights, layers and temperatures
of the loss, which were added when it had done badly. All use averaged word vectors.
"""

from dataclasses import replace

from snnl_book.experiments import classification, labels, text_clustering
from snnl_book.experiments.cells import (
    CONFIRMING_SEEDS,
    FIFTEEN_SEEDS,
    MORE_SEEDS,
    PAPER_SEEDS,
    Cell,
    Experiment,
)

CORPUS = "newsgroups20"
FEW, ALL = "3,000 documents", "20,000 documents"  # at most
CUT = "learning rate divided by 10 at halftime"
_AUTOENCODERS = ("AE", "LC(D)", "AE(D)", text_clustering.AE_CLASSIFIER)
_LABELS = ("lda-predictions", "logreg-predictions", "kmeans")
COMPARED = {
    "classification": (FIFTEEN_SEEDS, {*classification.LABELS.values()}),
    "classification-readings": (
        CONFIRMING_SEEDS,
        {
            f"{FEW}, alpha 0",
            FEW,
            f"{FEW}, loss in the first half only",
            f"{FEW}, {CUT}, alpha 0",
            f"{FEW}, loss in the first half only, {CUT}",
            f"{ALL}, alpha 0",
            f"{ALL}, loss in the first half only",
            f"{ALL}, {CUT}, alpha 0",
            *("alpha 1", "alpha 10"),  # these and the next were added when the loss had done harm
            *("100 epochs, alpha 0", "100 epochs"),
        },
    ),
    "clustering": (PAPER_SEEDS, {*text_clustering.LABELS.values()}),
    "clustering-readings": (
        PAPER_SEEDS,
        {
            *(f"{name}, {text_clustering.RAW_READING}" for name in _AUTOENCODERS[:3]),
            # added when a classifier in place of the loss had proved to be far ahead
            f"AE(D), {text_clustering.CODE_ONLY}",
            f"AE(D), {text_clustering.RAW_READING}, {text_clustering.CODE_ONLY}",
            *("AE(D), alpha 10", "AE(D), alpha 1000", "AE(D), fixed temperature 0.15"),
            f"AE(D), {text_clustering.RAW_READING}, normalised codes",
        },
    ),
    "clustering-rivals": (
        PAPER_SEEDS,
        {
            *(text_clustering.RIVALS[model] for model in _LABELS),
            text_clustering.AE_CLASSIFIER,
            f"{text_clustering.AE_CLASSIFIER}, {text_clustering.RAW_READING}",
            text_clustering.ENCODER,
        },
    ),
    "labels": (PAPER_SEEDS, {f"{labels.CLASSIFIERS['svm']}, 20,000 labels"}),
    "unseen": (MORE_SEEDS[:9], {"vectors", *_AUTOENCODERS} - {"LC(D)"}),
}
"""Experiment -> (seeds, labels of the cells that are repeated)."""


def cells(name: str, experiment: Experiment, profile: dict) -> list[Cell]:
    """Return the cells of an experiment that are also run on ``CORPUS``."""
    seeds, chosen = COMPARED.get(name, ((), ()))
    return [
        replace(cell, seeds=seeds, dataset=CORPUS)
        for cell in experiment.cells(profile)
        if cell.label in chosen and cell.embedding == "spacy" and cell.model != "cnn"
    ]
