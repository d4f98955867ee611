"""Accuracy against the number of labels: cells of several families side by side, on one curve."""

import math
from collections.abc import Iterator

from snnl_book.experiments import classification, codes, images, short_texts, text_clustering
from snnl_book.experiments.cells import BATCH_SIZE, FIFTEEN_SEEDS, Cell, Experiment
from snnl_book.results import Outcome, Spec

CLASSIFIERS = {
    "svm": "support vector machine, its own classes",
    "knn": "5 nearest neighbours, their class",
    "ffn": "plain classifier, its own classes",
}
"""Other uses of the same labels: the class that each gives a document is its cluster."""
CANDIDATES = [1, 10, 100]  # for C of the support vector machine, one of which is chosen
FOLDS = 5  # of the training labels, by which it is chosen
CHOSEN_ON = 5000  # of these at most, since a machine's time grows with the square of their number
NEIGHBOURS = 5
# ---------------------------------------------------------------- cells


def cells(profile: dict) -> Iterator[Cell]:
    """All points of the curves; the full number of labels also stands in each family's tables."""
    yield from text_cells(profile)
    yield from clusterbert_cells(profile)
    yield from image_cells(profile)
    yield from classifier_cells(profile)


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
    """Yield the cells on images, with classifiers of the same pixels."""
    steps = math.ceil(profile["image_train"] / BATCH_SIZE)
    for dataset in (*images.DATASETS[:2], images.EMBEDDED):
        for n_train in (*profile["image_labels"], profile["image_train"]):
            reading = f"{n_train:,} labels"
            more = {"seeds": FIFTEEN_SEEDS, "n_train": n_train, "dataset": dataset}
            if n_train < profile["image_train"]:
                changes = {"steps_per_epoch": steps, "reading": reading}
                settings = images.settings_of(profile, "ae-d", **changes)
                yield Cell(f"AE(D), {reading}", "pixels", "ae-d", 1, settings, **more)
            for model in ("lda", "logreg", "logreg-predictions"):
                settings = images.settings_of(profile, model, reading=reading)
                label = f"{text_clustering.RIVALS[model]}, {reading}"
                yield Cell(label, "pixels", model, 0, settings, **more)


def classifier_cells(profile: dict) -> Iterator[Cell]:
    """Yield classifiers with the same labels, on averaged vectors and on images."""
    network = classification.NETWORKS["ffn"](profile)
    starts = {"kmeans_starts": profile["kmeans_starts"]}
    all_texts, all_images = profile["n_train"], profile["image_train"]
    for n_train in (*profile["label_sizes"], all_texts):
        seeds = FIFTEEN_SEEDS if n_train == all_texts else None
        more = {"embedding": "spacy", "seeds": seeds, "n_train": n_train}
        yield from _classifiers(all_texts, network, starts, more)
    network = network | {"epochs": profile["image_epochs"]}
    starts = starts | {"n_test": profile["image_test"]}
    for dataset in (*images.DATASETS[:2], images.EMBEDDED):
        for n_train in (*profile["image_labels"], all_images):
            more = {"embedding": "pixels", "seeds": FIFTEEN_SEEDS, "n_train": n_train}
            yield from _classifiers(all_images, network, starts, more | {"dataset": dataset})


def _classifiers(most, network, starts, more):
    """Yield the cells of each classifier for one number of labels, at most ``most``."""
    reading = f"{more['n_train']:,} labels"
    svm = {"candidates": CANDIDATES, "folds": FOLDS, "chosen_on": CHOSEN_ON}
    own = {"svm": svm, "knn": {"neighbours": NEIGHBOURS}, "ffn": network}
    if more["n_train"] < most:
        own["ffn"] = network | {"steps_per_epoch": math.ceil(most / BATCH_SIZE)}
    for model, label in CLASSIFIERS.items():
        settings = starts | own[model] | {"reading": reading}
        measured = {"seconds": seconds_of(model, more["n_train"])}
        row = {"label": f"{label}, {reading}", "model": model, "alpha": 0}
        yield Cell(settings=settings, **row, **measured, **more)


def seconds_of(model: str, n_train: int) -> float:
    """Return about how many seconds of one CPU core a classifier takes."""
    chosen = min(n_train, CHOSEN_ON)
    return {"svm": 5 + 3e-6 * chosen**2 + 4e-7 * n_train**2, "knn": 10, "ffn": 60}[model]


# ---------------------------------------------------------------- runs


def run(spec: Spec, task, device, progress):
    """Carry out one point of a curve by the run of its family."""
    if spec.model in CLASSIFIERS:
        return run_classifier(spec, task, device, progress)
    if spec.model in short_texts.TRAINED:
        return short_texts.run_test_documents(spec, task, device, progress)
    rival = spec.model in text_clustering.RIVALS
    family = text_clustering.run_rival if rival else text_clustering.run_codes
    return family(spec, task, device, progress)


def fitted_svm(spec: Spec, train_x, train_y):
    """Fit a support vector machine (RBF kernel); cross-validation on the first labels chooses C."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    first = slice(spec["chosen_on"])
    candidates = {"C": list(spec["candidates"])}
    search = GridSearchCV(SVC(gamma="scale"), candidates, cv=spec["folds"], refit=False)
    search.fit(train_x[first], train_y[first])
    return SVC(gamma="scale", **search.best_params_).fit(train_x, train_y)


def run_classifier(spec: Spec, task, device, progress):
    """Take a classifier's own classes for clusters, and cluster what it computes of each document.

    Scores without a prefix are those of its classes, as clusters of what it computes of the test
    documents: the decision values of a support vector machine, a network's logits, or for nearest
    neighbours the documents themselves. ``kmeans_acc``, ``kmeans_nmi`` and ``kmeans_ari`` are those
    of k-means on the decision values or logits; nearest neighbours have neither. ``chosen_c`` is
    the C that cross-validation chose.
    """
    from sklearn.neighbors import KNeighborsClassifier

    from snnl_lib import metrics
    from snnl_lib.training import forward

    curve = None
    if spec.model == "ffn":
        model, curve = classification.trained_classifier(
            spec, task.train_x, task.train_y, task.classes, device, progress
        )
        computed = forward(model, task.test_x)
        predictions = computed.argmax(axis=1)
    elif spec.model == "svm":
        machine = fitted_svm(spec, task.train_x, task.train_y)
        predictions, computed = machine.predict(task.test_x), machine.decision_function(task.test_x)
    else:
        classifier = KNeighborsClassifier(spec["neighbours"]).fit(task.train_x, task.train_y)
        predictions, computed = classifier.predict(task.test_x), task.test_x
    scores = metrics.clustering_scores(computed, predictions, task.test_y)
    answers = {"": predictions}
    if spec.model == "svm":
        scores["chosen_c"] = float(machine.C)
    if spec.model != "knn":
        answers["kmeans_"] = codes.kmeans(spec, task.classes).fit_predict(computed)
        of_clusters = metrics.external_scores(answers["kmeans_"], task.test_y)
        scores |= {f"kmeans_{name}": value for name, value in of_clusters.items()}
    return Outcome(scores, curve, answers=answers)


_TITLE = "Clustering accuracy against the number of labels"
EXPERIMENTS = {"labels": Experiment(_TITLE, codes.METRICS, cells, run)}
