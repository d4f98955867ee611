"""Text clustering: Tables 3 and 4 of the text paper, its readings, and rivals with the same labels.

A run makes codes of the test documents (Sec. 3.4), clusters them by k-means and scores that.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from snnl_book.experiments import classification, codes
from snnl_book.experiments.cells import FIFTEEN_SEEDS, Cell, Experiment, choices
from snnl_book.results import Outcome, Spec
from snnl_lib.seeds import named_seed

CHOICES = classification.CHOICES | choices("text-clustering")
"""Our choices where the text paper says nothing."""

LABELS = {"pca": "Orig.", "ae": "AE", "lc-d": "LC(D)", "ae-d": "AE(D)"}
ALPHAS = {"pca": 0, "ae": 0, "lc-d": 100, "ae-d": 100}
LAYERS = {"ae": "none", "lc-d": f"code[:{codes.CODE_UNITS}]", "ae-d": "sum"}
RIVALS = {
    "lda": "linear discriminant analysis, then k-means",
    "lda-predictions": "linear discriminant analysis",
    "logreg": "logistic regression, then k-means",
    "logreg-predictions": "logistic regression",
    "kmeans": "k-means on all dimensions",
    "spherical-kmeans": "spherical k-means",
    "umap": "UMAP",
    "gmm": "Gaussian mixture",
}
CLASSIFIERS = ("lda", "lda-predictions", "logreg", "logreg-predictions")
AE_CLASSIFIER = "AE with a classifier on its code"
SAME_NETWORK = {
    ("ffn-layer", 0): "plain network's last hidden layer",
    ("ffn-layer", 100): "last hidden layer of a network with Eq. 4",
    ("ae-supcon", 100): "AE with the supervised contrastive loss",
    ("ae-classifier", 100): AE_CLASSIFIER,
    ("ffn-hidden", 0): "each hidden layer of a plain network",
    ("ffn-hidden", 100): "each hidden layer of a network with Eq. 4",
}
"""Codes of similar networks that were trained on the same labels in another way."""
ENCODER_SIZES = [500, 500, 2000, 128]  # the units of the autoencoder's encoder and code
ENCODER = "each hidden layer of the encoder as a classifier"
"""AE(D)'s encoder with a classification layer in place of the decoder."""
RAW = {"scaling": "none", "reconstruction": "squared error"}
RAW_READING = "squared error, inputs not scaled"
"""What the chapters call raw inputs: the reading of an autoencoder closest to the paper."""
CODE_ONLY = "loss on the code only"
"""AE(D) with the loss where ``AE_CLASSIFIER`` has its classifier: not on the other layers."""
INFERSENT_DOCUMENTS = 10_000  # Sec. 3.5
NLI_NEEDS = (
    "five minutes on a CPU core, plus two and a half hours (once) to train the encoder and ten"
    " minutes (once) to embed the documents"
)
UMAP_REVISION = 2  # since then UMAP's ties are broken at random

# ---------------------------------------------------------------- cells


def numbers_of_documents(profile: dict) -> dict:
    """Map a profile's embeddings to numbers of training documents (None: the profile's own)."""
    if not profile["sentence_vectors"]:
        return {"spacy": None}
    return {"spacy": None, "infersent-random": INFERSENT_DOCUMENTS}


def settings_of(profile: dict, model: str, **changes) -> dict:
    """Return the settings of Orig., of an autoencoder (``LABELS``) or of a rival."""
    starts = {"kmeans_starts": profile["kmeans_starts"]}
    if model in RIVALS:
        return starts | changes
    if model == "pca":
        return starts | {"components": codes.COMPONENTS} | changes
    epochs = profile["clustering_epochs"]
    return starts | {"epochs": epochs, "scaling": "feature", "layers": LAYERS[model]} | changes


def table_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of Tables 3 and 4."""
    for embedding, n_train in numbers_of_documents(profile).items():
        for model, label in LABELS.items():
            settings = settings_of(profile, model)
            fields = {"n_train": n_train, "drawn_anew": embedding == "infersent-random"}
            if embedding == "spacy" and model != "lc-d":
                fields["seeds"] = FIFTEEN_SEEDS
            yield Cell(label, embedding, model, ALPHAS[model], settings, **fields)
    if profile["sentence_vectors"]:
        for embedding, needs in (("infersent-nli", NLI_NEEDS), ("infersent", "")):
            for model, label in LABELS.items():
                settings = settings_of(profile, model)
                fields = {"n_train": INFERSENT_DOCUMENTS, "needs": needs}
                if embedding == "infersent-nli" and model == "pca":  # each run takes seconds
                    fields["seeds"] = FIFTEEN_SEEDS
                yield Cell(label, embedding, model, ALPHAS[model], settings, **fields)


def _reading(profile, reading, model, alpha=None, embedding="spacy", **changes):
    """Return the cell of a reading, which changes one choice of the cell in the table."""
    fields = {"temperature": "annealed", "seeds": 3, "needs": ""}
    for name in fields.keys() & changes.keys():
        fields[name] = changes.pop(name)
    settings = settings_of(profile, model, **changes) | {"reading": reading}
    alpha = ALPHAS[model] if alpha is None else alpha
    n_train = numbers_of_documents(profile).get(embedding, INFERSENT_DOCUMENTS)
    label = f"{LABELS[model]}, {reading}"
    return Cell(label, embedding, model, alpha, settings, n_train=n_train, **fields)


def reading_cells(profile: dict) -> Iterator[Cell]:
    """Yield cells that change one choice at a time."""
    cell = partial(_reading, profile)
    yield cell("inputs not scaled", "ae", seeds=None, scaling="none")
    for model in ("lc-d", "ae-d"):
        yield cell("inputs not scaled", model, scaling="none")
    for model in ("ae", "ae-d"):
        yield cell("one scale for all features", model, scaling="global")
        yield cell("linear code", model, linear_code=True)
        yield cell("squared error", model, seeds=None, reconstruction="squared error")
    yield from squared_error_cells(profile)
    for alpha in (1, 10, 1000):
        yield cell(f"alpha {alpha}", "ae-d", alpha)
    for temperature in ("0.15", "0.3", "0.5", "1.0"):  # "1.0" reads as in older records
        reading = f"fixed temperature {float(temperature):g}"
        yield cell(reading, "ae-d", temperature=temperature, seeds=None)
    for reading, temperature, weight in codes.WEIGHTS:
        yield cell(reading, "ae-d", temperature=temperature, seeds=None, weight=weight)
    yield cell("before the nonlinearity", "ae-d", before_nonlinearity=True)
    yield cell(CODE_ONLY, "ae-d", seeds=None, layers="code")
    yield cell(f"{RAW_READING}, {CODE_ONLY}", "ae-d", seeds=None, layers="code", **RAW)
    yield cell("k-means on the 100 units only", "lc-d", clustered=codes.CODE_UNITS)
    for model in ("pca", "ae", "ae-d"):
        yield cell("k-means fitted on training codes", model, fitted_on="train")
    yield cell("normalised codes", "ae-d", seeds=None, normalized=True)
    yield cell("Gaussian mixture", "ae-d", seeds=None, clusterer="gmm")
    for model in ("pca", "ae", "ae-d"):
        yield cell("as many directions as LDA", model, directions_of_lda=True)
    yield from half_cells(profile)
    if profile["sentence_vectors"]:  # there the logistic code of the main setting collapses
        for model in ("ae", "lc-d", "ae-d"):
            yield cell("linear code", model, embedding="infersent-random", linear_code=True)


def half_cells(profile: dict) -> Iterator[Cell]:
    """Yield AE(D) with the loss in only one half of the epochs.

    The labels act through the loss alone. If the code keeps the classes once the loss is off, the
    first half alone is enough; if reconstruction undoes them, only the second half counts.
    """
    for name, epochs in codes.halves(profile["clustering_epochs"]).items():
        reading = f"loss in the {name} half only"
        yield _reading(profile, reading, "ae-d", seeds=5, loss_epochs=epochs)


def squared_error_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of the reading closest to the paper, with a linear and a logistic output."""
    cell = partial(_reading, profile)
    reading, changes = RAW_READING, RAW
    seeds_of = {"ae": FIFTEEN_SEEDS, "lc-d": None, "ae-d": FIFTEEN_SEEDS}
    for embedding in numbers_of_documents(profile):
        for model, spacy_seeds in seeds_of.items():
            seeds = spacy_seeds if embedding == "spacy" else None
            yield cell(reading, model, embedding=embedding, seeds=seeds, **changes)
    normalised = changes | {"normalized": True}
    yield cell(f"{reading}, normalised codes", "ae-d", seeds=None, **normalised)
    mixture = changes | {"clusterer": "gmm"}
    yield cell(f"{reading}, Gaussian mixture", "ae-d", seeds=None, **mixture)
    directions = changes | {"directions_of_lda": True}
    yield cell(f"{reading}, as many directions as LDA", "ae-d", **directions)
    for model, seeds in seeds_of.items():
        logistic = changes | {"logistic_output": True}
        yield cell(f"{reading}, logistic output", model, seeds=seeds, **logistic)
    if profile["sentence_vectors"]:
        for model in seeds_of:
            fields = {"embedding": "infersent-nli", "seeds": None, "needs": NLI_NEEDS}
            yield cell(reading, model, **fields, **changes)


def rival_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of other uses of the same labels, and of clusterings without labels."""
    for embedding, n_train in numbers_of_documents(profile).items():
        for model, label in RIVALS.items():
            settings = settings_of(profile, model)
            if embedding != "spacy" and model not in ("kmeans", "gmm"):
                settings["standardize"] = True
            fields = {"n_train": n_train}
            if model == "umap":
                fields["revision"] = UMAP_REVISION
            if embedding == "spacy" and model in CLASSIFIERS:
                fields["seeds"] = FIFTEEN_SEEDS
            yield Cell(label, embedding, model, 0, settings, **fields)
    classifier = classification.NETWORKS["ffn"](profile) | settings_of(profile, "lda")
    settings = {
        "ffn-layer": classifier,
        "ffn-hidden": classifier | {"neighbours": codes.NEIGHBOURS},
        "ae-supcon": settings_of(profile, "ae-d"),
        "ae-classifier": settings_of(profile, "ae-d") | {"layers": "code"},
    }
    for (model, alpha), label in SAME_NETWORK.items():
        yield Cell(label, "spacy", model, alpha, settings[model], seeds=FIFTEEN_SEEDS)
    raw = settings["ae-classifier"] | RAW | {"reading": RAW_READING}
    label = f"{AE_CLASSIFIER}, {RAW_READING}"
    yield Cell(label, "spacy", "ae-classifier", 100, raw, seeds=FIFTEEN_SEEDS)
    encoder = settings["ffn-hidden"] | {"hidden_sizes": ENCODER_SIZES, "reading": "encoder"}
    yield Cell(ENCODER, "spacy", "ffn-hidden", 0, encoder, seeds=FIFTEEN_SEEDS)
    yield Cell(f"{ENCODER} with the loss", "spacy", "ffn-hidden", 100, encoder, seeds=5)


# ---------------------------------------------------------------- runs


def run_codes(spec: Spec, task, device, progress):
    """Make codes as in Sec. 3.4, cluster those of the test documents and score the clusters.

    With ``directions_of_lda`` only the first principal components are clustered: as many as linear
    discriminant analysis has directions, one fewer than there are classes. Further scores are
    ``variance``, their share of the variance of the codes, and ``class_directions``, the share of
    the variance of the class means that they hold (``shared_directions``).
    """
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import normalize

    if spec.model == "ae-classifier":
        return run_classified_codes(spec, task, device, progress)
    train_codes, test_codes, curve = codes.make_codes(spec, task, device, progress)
    if spec.get("normalized"):
        test_codes = normalize(test_codes)
    fitted_on = train_codes if spec.get("fitted_on") == "train" else None
    if not spec.get("directions_of_lda"):
        return codes.score_codes(spec, task, test_codes, curve, fitted_on)
    components = PCA(task.classes - 1).fit(test_codes)
    outcome = codes.score_codes(spec, task, components.transform(test_codes), curve)
    outcome.metrics["variance"] = float(components.explained_variance_ratio_.sum())
    outcome.metrics["class_directions"] = shared_directions(
        components.components_, test_codes, task.test_y
    )
    return outcome


def shared_directions(directions, points, labels) -> float:
    """Return how far orthonormal ``directions`` [k, D] span the differences of the class means.

    ``points`` [N, D] have ``labels`` [N]. The result is the share of the variance of the class
    means that lies in the span: 1 if the directions hold all of it, 0 if none.
    """
    means = np.stack([points[labels == label].mean(axis=0) for label in np.unique(labels)])
    means = means - means.mean(axis=0)
    return float(((means @ directions.T) ** 2).sum() / (means**2).sum())


def spherical_kmeans(features, k, starts=10, seed=0):
    """Cluster features [N, D] by the cosine to k mean directions (Dhillon and Modha, 2001).

    Returns int clusters [N] of the best of some starts.
    """
    from sklearn.cluster import kmeans_plusplus

    tiny = np.finfo(np.float32).tiny
    unit = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), tiny)
    random = np.random.RandomState(seed)
    best_total = -np.inf
    best_clusters = None
    for _ in range(starts):
        centres, _ = kmeans_plusplus(unit, k, random_state=random)
        clusters = None
        for _ in range(300):  # iterations at most
            cosines = unit @ centres.T
            before = clusters
            clusters = cosines.argmax(axis=1)
            if before is not None and (clusters == before).all():
                break
            sums = np.eye(k, dtype=unit.dtype)[clusters].T @ unit
            lengths = np.linalg.norm(sums, axis=1, keepdims=True)
            centres = np.where(lengths > 0, sums / np.maximum(lengths, tiny), centres)
        total = cosines.max(axis=1).sum()
        if total > best_total:
            best_total = total
            best_clusters = clusters
    return best_clusters


def cluster_by_rival(spec: Spec, task) -> tuple[np.ndarray, np.ndarray]:
    """Cluster the test documents by another method.

    Returns (clusters [N], what was clustered [N, d]).
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression

    from snnl_book.methods.deep_clustering import fit_umap

    train_x, test_x = codes.standardized(spec, task)
    seed = named_seed(spec.seed, "umap" if spec.model == "umap" else "kmeans")
    classes = task.classes
    clustered = test_x
    clusters = None
    if spec.model.startswith("lda"):
        settings = {"solver": "eigen", "shrinkage": "auto", "n_components": classes - 1}
        analysis = LinearDiscriminantAnalysis(**settings).fit(train_x, task.train_y)
        clustered = analysis.transform(test_x)
        clusters = analysis.predict(test_x) if spec.model == "lda-predictions" else None
    elif spec.model.startswith("logreg"):
        classifier = LogisticRegression(max_iter=1000).fit(train_x, task.train_y)
        clustered = classifier.predict_proba(test_x)
        clusters = clustered.argmax(axis=1) if spec.model == "logreg-predictions" else None
    elif spec.model == "spherical-kmeans":
        clusters = spherical_kmeans(test_x, classes, spec["kmeans_starts"], seed)
    elif spec.model == "umap":
        settings = {"n_neighbors": 20, "min_dist": 0.0, "metric": "cosine"}
        _, clustered = fit_umap(test_x, seed, n_components=classes, **settings)
    elif spec.model == "gmm":
        clustered = codes.fitted_pca(codes.COMPONENTS, task, spec.seed).transform(test_x)
        clusters = codes.mixture(spec, classes).fit_predict(clustered)
    if clusters is None:
        clusters = codes.kmeans(spec, classes).fit_predict(clustered)
    return clusters, clustered


def run_rival(spec: Spec, task, device, progress) -> Outcome:
    """Cluster the test documents by another method, and score what was clustered."""
    from snnl_lib import metrics
    from snnl_lib.training import forward

    if spec.model in ("ae-supcon", "ae-classifier"):
        return run_codes(spec, task, device, progress)
    if spec.model == "ffn-hidden":
        return run_hidden_layers(spec, task, device, progress)
    if spec.model == "ffn-layer":
        model, curve = classification.trained_classifier(
            spec, task.train_x, task.train_y, task.classes, device, progress
        )
        test_codes = forward(model, task.test_x, layer=f"hidden{len(spec['hidden_sizes'])}")
        return codes.score_codes(spec, task, test_codes, curve, None)
    clusters, clustered = cluster_by_rival(spec, task)
    scores = metrics.clustering_scores(clustered, clusters, task.test_y)
    return Outcome(scores, answers={"": clusters})


def run_classified_codes(spec: Spec, task, device, progress):
    """Cluster the test documents by the codes of an autoencoder that also learns to classify.

    Its loss is AE(D)'s with one change: the cross entropy of a linear classifier on the code
    replaces the soft nearest neighbor loss. ``predictions_acc`` and so on are the scores of the
    classifier's classes, taken as clusters.
    """
    import torch

    from snnl_lib import metrics
    from snnl_lib.training import forward

    train_x, test_x = codes.scale_to_unit(task.train_x, task.test_x, spec["scaling"])
    model, curve = codes.trained_autoencoder(spec, train_x, task.train_y, device, progress)
    test_codes = forward(model, test_x, layer="code")
    outcome = codes.score_codes(spec, task, test_codes, curve)
    with torch.no_grad():
        logits = model.head(torch.as_tensor(test_codes, device=device))
    classes = logits.argmax(dim=1).cpu().numpy()
    for metric, value in metrics.external_scores(classes, task.test_y).items():
        outcome.metrics[f"predictions_{metric}"] = value
    outcome.answers["predictions_"] = classes
    return outcome


def run_hidden_layers(spec: Spec, task, device, progress):
    """Cluster and classify the test documents by each hidden layer of a classifier.

    ``hidden1_acc`` is the accuracy of k-means on the layer of the test documents,
    ``hidden1_normalized_acc`` that on its rows at unit length, ``hidden1_neighbours_acc`` the
    accuracy of a nearest-neighbour classifier fitted on the layer of the training documents, and
    so on for each layer; ``predictions_acc`` is that of the classifier's own classes, taken as
    clusters. Scores without a prefix are those of the last layer as it is.
    """
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import normalize

    from snnl_lib import metrics
    from snnl_lib.training import forward

    model, curve = classification.trained_classifier(
        spec, task.train_x, task.train_y, task.classes, device, progress
    )
    neighbours = {}
    clusters = {}
    for number in range(1, len(spec["hidden_sizes"]) + 1):
        name = f"hidden{number}"
        train_layer, layer = (forward(model, x, layer=name) for x in (task.train_x, task.test_x))
        clusters[f"{name}_"] = codes.kmeans(spec, task.classes).fit_predict(layer)
        unit = codes.kmeans(spec, task.classes).fit_predict(normalize(layer))
        clusters[f"{name}_normalized_"] = unit
        classifier = KNeighborsClassifier(spec["neighbours"]).fit(train_layer, task.train_y)
        neighbours[f"{name}_neighbours_"] = classifier.predict(layer)
    clusters["predictions_"] = forward(model, task.test_x).argmax(axis=1)
    last = clusters[f"{name}_"]
    scores = metrics.clustering_scores(layer, last, task.test_y)
    scores["snn"] = codes.entanglement(layer, task.test_y)
    for prefix, layer_clusters in clusters.items():
        for metric, value in metrics.external_scores(layer_clusters, task.test_y).items():
            scores[f"{prefix}{metric}"] = value
    for prefix, predictions in neighbours.items():
        scores[f"{prefix}acc"] = metrics.classification_scores(task.test_y, predictions)["acc"]
    answers = {"": last} | clusters | neighbours
    return Outcome(scores, curve, *codes.collapse(layer), answers=answers)


_RIVALS_TITLE = "Other uses of the same labels, and clusterings without labels"
EXPERIMENTS = {
    "clustering": Experiment(
        "Text clustering (text paper, Tables 3-4)", codes.SCORES, table_cells, run_codes
    ),
    "clustering-readings": Experiment(
        "What the text paper leaves open about clustering", codes.SCORES, reading_cells, run_codes
    ),
    "clustering-rivals": Experiment(_RIVALS_TITLE, codes.METRICS, rival_cells, run_rival),
}
