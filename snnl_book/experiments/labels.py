"""Accuracy against the number of labels: cells of several families side by side, on one curve."""

import math
from collections.abc import Iterator

from snnl_book.experiments import classification, codes, images, short_texts, text_clustering
from snnl_book.experiments.cells import FIFTEEN_SEEDS, Cell, Experiment
from snnl_book.results import Outcome, Spec
from snnl_lib.seeds import BATCH_SIZE

CLASSIFIERS = {
    "svm": "support vector machine",
    "knn": "5 nearest neighbours",
    "ffn": "plain network",
}
"""Other uses of the same labels: the class that each gives a document is its cluster."""
ENCODERS = {0: text_clustering.ENCODER, 1: f"{text_clustering.ENCODER} with the loss"}
"""AE(D)'s encoder with a classification layer in place of the decoder, by the loss's weight."""
SHORT_ENCODER = f"{ENCODERS[0]}, one pass an epoch"
AS_ENCODER = {"hidden_sizes": text_clustering.ENCODER_SIZES, "neighbours": codes.NEIGHBOURS}
"""The settings by which a classifier has the layers of AE(D)'s encoder, each of them scored."""
CANDIDATES = [1, 10, 100]  # for C of the support vector machine, one of which is chosen
FOLDS = 5  # of the training labels, by which it is chosen
CHOSEN_ON = 5000  # of these at most, as the time for a machine grows with their square
NEIGHBOURS = 5

# ---------------------------------------------------------------- cells


def cells(profile: dict) -> Iterator[Cell]:
    """Yield all points of the curves; each family's own tables have the full number of labels."""
    yield from text_cells(profile)
    yield from better_vector_cells(profile)
    yield from clusterbert_cells(profile)
    yield from image_cells(profile)
    yield from classifier_cells(profile)


def text_cells(profile: dict) -> Iterator[Cell]:
    """Yield the text paper's autoencoders, LDA on the same labels, and k-means without labels."""
    steps = math.ceil(profile["n_train"] / BATCH_SIZE)

    def cell(label, embedding, model, reading, seeds=None, n_train=None, revision=None, **changes):
        settings = text_clustering.settings_of(profile, model, **changes, reading=reading)
        alpha = text_clustering.ALPHAS.get(model, 0)
        fields = {"seeds": seeds, "n_train": n_train, "revision": revision}
        return Cell(f"{label}, {reading}", embedding, model, alpha, settings, **fields)

    for n_train in profile["label_sizes"]:
        reading = f"{n_train:,} labels"
        size = {"n_train": n_train}
        yield cell("AE(D)", "spacy", "ae-d", reading, **size, steps_per_epoch=steps)
        yield cell("AE(D)", "spacy", "ae-d", f"{reading}, one pass an epoch", **size)
        raw, changes = f"{text_clustering.RAW_READING}, {reading}", size | text_clustering.RAW
        yield cell("AE(D)", "spacy", "ae-d", raw, steps_per_epoch=steps, **changes)
        yield cell("AE(D)", "spacy", "ae-d", f"{raw}, one pass an epoch", **changes)
        for embedding in ("spacy", "minilm"):
            yield cell(text_clustering.RIVALS["lda"], embedding, "lda", reading, **size)
        yield cell("LC(D)", "spacy", "lc-d", reading, 3, **size, steps_per_epoch=steps)
    reading, size = f"{profile['n_train']:,} labels", {"n_train": profile["n_train"]}
    yield cell(text_clustering.RIVALS["lda"], "minilm", "lda", reading, **size)
    label = text_clustering.RIVALS["kmeans"]
    for embedding in (*short_texts.WORD_VECTORS, "minilm", short_texts.START):
        fields = {}
        if embedding not in short_texts.WORD_VECTORS:
            # Only word counts need many training documents; a published model needs none.
            fields["n_train"] = profile["label_sizes"][0]
        if embedding == "tfidf":
            fields["revision"] = short_texts.TFIDF_REVISION
        yield cell(label, embedding, "kmeans", "no labels", **fields)


def better_vector_cells(profile: dict) -> Iterator[Cell]:
    """Yield AE(D) on MiniLM's vectors, and two ways to train its network without the loss.

    In short training, which suits AE(D) with few labels, and without scaling.
    """
    starts = {"kmeans_starts": profile["kmeans_starts"]}
    encoder = starts | classification.NETWORKS["ffn"](profile) | AS_ENCODER
    ae_d = text_clustering.settings_of(profile, "ae-d", **text_clustering.RAW)
    for n_train in (*profile["label_sizes"], profile["n_train"]):
        short = f"{n_train:,} labels, one pass an epoch"
        raw = f"{text_clustering.RAW_READING}, {short}"
        for model, alpha, label, settings, reading in (
            ("ae-d", 100, "AE(D)", ae_d, raw),
            ("ae-classifier", 100, text_clustering.AE_CLASSIFIER, ae_d | {"layers": "code"}, raw),
            ("ffn-hidden", 0, text_clustering.ENCODER, encoder, f"encoder, {short}"),
        ):
            settings = settings | {"reading": reading}
            yield Cell(f"{label}, {reading}", "minilm", model, alpha, settings, n_train=n_train)


def clusterbert_cells(profile: dict) -> Iterator[Cell]:
    """Yield ClusterBERT, fine-tuned on training documents without their labels."""
    _, settings = next(short_texts.clusterer_settings(profile, "kmeans"))
    settings = settings | {"reading": "no labels"} | short_texts.recipe_settings(profile)
    fields = {"n_train": profile["short_documents"], "seeds": 2}
    fields["revision"] = 2  # since then texts are read without padding: other draws of dropout
    yield Cell("ClusterBERT, no labels", short_texts.START, "clusterbert", 0, settings, **fields)


def image_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells on images, with classifiers of the same pixels."""
    steps = math.ceil(profile["image_train"] / BATCH_SIZE)
    for dataset in (*images.DATASETS[:2], images.EMBEDDED):
        for n_train in (*profile["image_labels"], profile["image_train"]):
            reading = f"{n_train:,} labels"
            fields = {"seeds": FIFTEEN_SEEDS, "n_train": n_train, "dataset": dataset}
            if n_train < profile["image_train"]:
                changes = {"steps_per_epoch": steps, "reading": reading}
                settings = images.settings_of(profile, "ae-d", **changes)
                yield Cell(f"AE(D), {reading}", "pixels", "ae-d", 1, settings, **fields)
                short = f"{reading}, one pass an epoch"
                settings = images.settings_of(profile, "ae-d", reading=short)
                yield Cell(
                    f"AE(D), {short}", "pixels", "ae-d", 1, settings, **fields | {"seeds": 5}
                )
                settings = images.settings_of(profile, "supcon", **changes)
                few = fields | {"seeds": 5, "temperature": str(images.CONTRASTIVE_TEMPERATURE)}
                yield Cell(f"SupCon, {reading}", "pixels", "supcon", 1, settings, **few)
            for model in text_clustering.CLASSIFIERS:
                settings = images.settings_of(profile, model, reading=reading)
                label = f"{text_clustering.RIVALS[model]}, {reading}"
                yield Cell(label, "pixels", model, 0, settings, **fields)


def classifier_cells(profile: dict) -> Iterator[Cell]:
    """Yield classifiers with the same labels: on averaged vectors, MiniLM's vectors and images."""
    network = classification.NETWORKS["ffn"](profile)
    starts = {"kmeans_starts": profile["kmeans_starts"]}
    all_texts, all_images = profile["n_train"], profile["image_train"]
    for n_train in (*profile["label_sizes"], all_texts):
        seeds = FIFTEEN_SEEDS if n_train == all_texts else None
        fields = {"embedding": "spacy", "seeds": seeds, "n_train": n_train}
        yield from _classifiers(all_texts, network, starts, fields)
        fields = {"embedding": "minilm", "n_train": n_train}
        yield from _classifiers(all_texts, network, starts, fields)
    network = network | {"epochs": profile["image_epochs"]}
    starts = starts | {"n_test": profile["image_test"]}
    for dataset in (*images.DATASETS[:2], images.EMBEDDED):
        for n_train in (*profile["image_labels"], all_images):
            fields = {"embedding": "pixels", "seeds": FIFTEEN_SEEDS, "n_train": n_train}
            fields["dataset"] = dataset
            yield from _classifiers(all_images, network, starts, fields)
            fields["seeds"] = 5
            yield _hidden_layers(all_images, network, starts, fields)
            yield from _encoder_cells(all_images, network, starts, fields)


def _classifiers(all_documents, network, starts, fields):
    """Yield the cells of each classifier for one number of labels.

    With fewer labels than ``all_documents`` the network takes as many steps an epoch as with all.
    """
    n_train = fields["n_train"]
    reading = f"{n_train:,} labels"
    settings_of_model = {
        "svm": {"candidates": CANDIDATES, "folds": FOLDS, "chosen_on": CHOSEN_ON},
        "knn": {"neighbours": NEIGHBOURS},
        "ffn": _as_many_steps(network, n_train, all_documents),
    }
    for model, label in CLASSIFIERS.items():
        yield Cell(
            label=f"{label}, {reading}",
            model=model,
            alpha=0,
            settings=starts | settings_of_model[model] | {"reading": reading},
            **fields,
        )


def _as_many_steps(network, n_train, all_documents):
    """Return a network's settings, with as many steps an epoch as with all documents."""
    if n_train == all_documents:
        return network
    return network | {"steps_per_epoch": math.ceil(all_documents / BATCH_SIZE)}


def _hidden_layers(all_images, network, starts, fields):
    """Return the cell of the plain network's hidden layers, as they are and normalised."""
    settings = _as_many_steps(network, fields["n_train"], all_images)
    reading = f"{fields['n_train']:,} labels"
    settings = starts | settings | {"neighbours": codes.NEIGHBOURS, "reading": reading}
    label = text_clustering.SAME_NETWORK["ffn-hidden", 0]
    return Cell(f"{label}, {reading}", model="ffn-hidden", alpha=0, settings=settings, **fields)


def _encoder_cells(all_images, network, starts, fields):
    """Yield the layers of AE(D)'s encoder as a classifier, without the loss and with it.

    They tell what the loss adds from what a network of this size does with the labels alone. With
    few labels, the encoder without the loss also gets AE(D)'s short training.
    """
    reading = f"{fields['n_train']:,} labels"
    settings = starts | _as_many_steps(network, fields["n_train"], all_images) | AS_ENCODER
    for alpha, label in ENCODERS.items():
        changes = settings | {"reading": f"encoder, {reading}"}
        yield Cell(
            f"{label}, {reading}", model="ffn-hidden", alpha=alpha, settings=changes, **fields
        )
    if "steps_per_epoch" in settings:
        short = {name: value for name, value in settings.items() if name != "steps_per_epoch"}
        short["reading"] = f"encoder, {reading}, one pass an epoch"
        yield Cell(
            f"{SHORT_ENCODER}, {reading}", model="ffn-hidden", alpha=0, settings=short, **fields
        )


# ---------------------------------------------------------------- runs


def run(spec: Spec, task, device, progress):
    """Carry out one point of a curve by the run of its family."""
    if spec.model in CLASSIFIERS:
        return run_classifier(spec, task, device, progress)
    if spec.model in short_texts.TRAINED:
        return short_texts.run_test_documents(spec, task, device, progress)
    if spec.model == "supcon":
        return images.run_images(spec, task, device, progress)
    if spec.model in text_clustering.RIVALS or spec.model == "ffn-hidden":
        return text_clustering.run_rival(spec, task, device, progress)
    return text_clustering.run_codes(spec, task, device, progress)


def fitted_svm(spec: Spec, train_x, train_y):
    """Fit a support vector machine (RBF kernel); cross-validation on the first labels chooses C."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    candidates = {"C": list(spec["candidates"])}
    search = GridSearchCV(SVC(gamma="scale"), candidates, cv=spec["folds"], refit=False)
    search.fit(train_x[: spec["chosen_on"]], train_y[: spec["chosen_on"]])
    return SVC(gamma="scale", **search.best_params_).fit(train_x, train_y)


def run_classifier(spec: Spec, task, device, progress):
    """Take a classifier's predictions as clusters, and also cluster its outputs by k-means.

    The outputs are the decision values of a support vector machine or the logits of a network; for
    nearest neighbours they are the documents' vectors. Scores without a prefix are those of the
    predictions, as clusters of the outputs. ``kmeans_acc``, ``kmeans_nmi`` and ``kmeans_ari`` are
    those of k-means on the outputs, which nearest neighbours do not have. ``chosen_c`` is the C
    that cross-validation chose.
    """
    from sklearn.neighbors import KNeighborsClassifier

    from snnl_lib import metrics
    from snnl_lib.training import forward

    curve = None
    if spec.model == "ffn":
        model, curve = classification.trained_classifier(
            spec, task.train_x, task.train_y, task.classes, device, progress
        )
        outputs = forward(model, task.test_x)
        predictions = outputs.argmax(axis=1)
    elif spec.model == "svm":
        machine = fitted_svm(spec, task.train_x, task.train_y)
        predictions = machine.predict(task.test_x)
        outputs = machine.decision_function(task.test_x)
    else:
        classifier = KNeighborsClassifier(spec["neighbours"]).fit(task.train_x, task.train_y)
        predictions = classifier.predict(task.test_x)
        outputs = task.test_x
    scores = metrics.clustering_scores(outputs, predictions, task.test_y)
    answers = {"": predictions}
    if spec.model == "svm":
        scores["chosen_c"] = float(machine.C)
    if spec.model != "knn":
        answers["kmeans_"] = codes.kmeans(spec, task.classes).fit_predict(outputs)
        for name, value in metrics.external_scores(answers["kmeans_"], task.test_y).items():
            scores[f"kmeans_{name}"] = value
    return Outcome(scores, curve, answers=answers)


_TITLE = "Clustering accuracy against the number of labels"
EXPERIMENTS = {"labels": Experiment(_TITLE, codes.METRICS, cells, run)}
