"""Accuracy against the number of labels: cells of several families side by side, on one curve."""

import math
from collections.abc import Iterator

from snnl_lib.experiments import images, short_texts, text_clustering
from snnl_lib.experiments.cells import BATCH_SIZE, Cell, Experiment
from snnl_lib.experiments.codes import METRICS
from snnl_lib.results import Spec


def cells(profile: dict) -> Iterator[Cell]:
    """All points of the curves; the full number of labels also stands in each family's tables."""
    yield from text_cells(profile)
    yield from clusterbert_cells(profile)
    yield from image_cells(profile)


def text_cells(profile: dict) -> Iterator[Cell]:
    """The text paper's autoencoders, linear discriminant analysis, and k-means without labels."""
    steps = math.ceil(profile["n_train"] / BATCH_SIZE)

    def cell(label, embedding, model, reading, seeds=None, n_train=None, revision=None, **changes):
        settings = text_clustering.settings_of(profile, model, **changes, reading=reading)
        label, alpha = f"{label}, {reading}", text_clustering.ALPHAS.get(model, 0)
        more = {"seeds": seeds, "n_train": n_train, "revision": revision}
        return Cell(label, embedding, model, alpha, settings, **more)

    for n_train in profile["label_sizes"]:
        reading, size = f"{n_train:,} labels", {"n_train": n_train}
        yield cell("AE(D)", "spacy", "ae-d", reading, **size, steps_per_epoch=steps)
        yield cell("AE(D)", "spacy", "ae-d", f"{reading}, one pass an epoch", **size)
        for embedding in ("spacy", "minilm"):
            yield cell("linear discriminant analysis", embedding, "lda", reading, **size)
        yield cell("LC(D)", "spacy", "lc-d", reading, 3, **size, steps_per_epoch=steps)
    label, few = text_clustering.RIVALS["kmeans"], profile["label_sizes"][0]
    for embedding in (*short_texts.WORD_VECTORS, "minilm", short_texts.START):
        # Words are counted in the training documents; a published model need not embed them all.
        n_train = None if embedding in short_texts.WORD_VECTORS else few
        revision = 2 if embedding == "tfidf" else None  # which now has words of two characters
        more = {"n_train": n_train, "revision": revision}
        yield cell(label, embedding, "kmeans", "no labels", **more)


def clusterbert_cells(profile: dict) -> Iterator[Cell]:
    """ClusterBERT: fine-tuned on training documents, it needs no labels."""
    _, settings = next(short_texts.clusterer_settings(profile, "kmeans"))
    settings |= {"reading": "no labels"} | short_texts.recipe_settings(profile)
    more = {"n_train": profile["short_documents"], "seeds": 2}
    more["revision"] = 2  # since then texts are read without padding: other draws of dropout
    yield Cell("ClusterBERT, no labels", short_texts.START, "clusterbert", 0, settings, **more)


def image_cells(profile: dict) -> Iterator[Cell]:
    """Images, and the classifiers that see what the autoencoder sees."""
    steps = math.ceil(profile["image_train"] / BATCH_SIZE)
    for dataset in (*images.DATASETS[:2], images.EMBEDDED):
        for n_train in (*profile["image_labels"], profile["image_train"]):
            reading = f"{n_train:,} labels"
            more = {"seeds": 5, "n_train": n_train, "dataset": dataset}
            if n_train < profile["image_train"]:
                changes = {"steps_per_epoch": steps, "reading": reading}
                settings = images.settings_of(profile, "ae-d", **changes)
                yield Cell(f"AE(D), {reading}", "pixels", "ae-d", 1, settings, **more)
            for model in ("lda", "logreg", "logreg-predictions"):
                settings = images.settings_of(profile, model, reading=reading)
                label = f"{text_clustering.RIVALS[model]}, {reading}"
                yield Cell(label, "pixels", model, 0, settings, **more)


def run(spec: Spec, task, device, progress):
    """Carry out one point of a curve, as its family does."""
    if spec.model in short_texts.TRAINED:
        return short_texts.run_test_documents(spec, task, device, progress)
    rival = spec.model in text_clustering.RIVALS
    family = text_clustering.run_rival if rival else text_clustering.run_codes
    return family(spec, task, device, progress)


_TITLE = "Clustering accuracy against the number of labels"
EXPERIMENTS = {"labels": Experiment(_TITLE, METRICS, cells, run)}
