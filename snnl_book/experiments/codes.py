"""Codes of documents and images: how all families make, cluster and score them."""

from functools import partial

import numpy as np

from snnl_book.results import Outcome, Spec
from snnl_lib.seeds import named_seed

CODE_UNITS = 100  # LC(D): the disentangled part of the code (Sec. 3.4)
COMPONENTS = 128  # Orig.: as many as the code has units
NEIGHBOURS = 10  # of nearest-neighbour classifiers and scores
ENTANGLEMENT_DOCUMENTS = 2000
METRICS = ("dbi", "sil", "chs", "nmi", "ari", "acc")
SCORES = (*METRICS, "snn")
"""The scores of clusters, and the entanglement of the codes (``score_codes``)."""
WEIGHTS = (  # reading, temperature, weight (``training.train``)
    ("weight divided by the falling T", "1.0", "over T"),
    ("weight times the falling T", "annealed", "times T"),
)
"""Readings that compare the temperature with the weight of the loss, at the same alpha."""
COLLAPSED_SHARE = 0.01
"""A code has collapsed when, rounded to 3 decimals, fewer than this share of the documents have
distinct codes."""


def temperature_of(spec: Spec):
    """Return a spec's temperature as an argument of ``train``."""
    if spec.temperature == "none":
        return 1.0
    return "annealed" if spec.temperature == "annealed" else float(spec.temperature)


def alpha_of(spec: Spec):
    """Return alpha, or a function of the epoch where the loss has only some of the epochs."""
    epochs = spec.get("loss_epochs")
    return partial(_alpha_within, spec.alpha, *epochs) if epochs else spec.alpha


def halves(epochs: int) -> dict:
    """Map ``first`` and ``second`` to the ``loss_epochs`` of that half of the epochs."""
    half = epochs // 2
    return {"first": (0, half), "second": (half, epochs)}


def _alpha_within(alpha, start, stop, epoch):
    return alpha if start <= epoch < stop else 0.0


# ---------------------------------------------------------------- inputs


def standardized(spec: Spec, task) -> tuple[np.ndarray, np.ndarray]:
    """Return a task's training and test vectors, standardised if the spec asks for it."""
    if spec.get("standardize"):
        return standardize(task.train_x, task.test_x)
    return task.train_x, task.test_x


def standardize(train_x, test_x):
    """Give each feature a training mean of 0 and deviation of 1; arrays [N, D], float32."""
    mean = train_x.mean(axis=0)
    deviation = train_x.std(axis=0)
    constant = train_x.min(axis=0) == train_x.max(axis=0)
    deviation[constant] = 1  # rounding can leave it a little above 0
    return (train_x - mean) / deviation, (test_x - mean) / deviation


def scale_to_unit(train_x, test_x, scaling="feature"):
    """Scale arrays [N, D] to [0, 1] by the training minimum and maximum, clipping test values.

    ``scaling`` is ``feature`` (one range per feature), ``global`` (one range) or ``none``.
    """
    if scaling == "none":
        return train_x, test_x
    axis = 0 if scaling == "feature" else None
    low, high = train_x.min(axis=axis), train_x.max(axis=axis)
    width = np.where(high > low, high - low, 1)
    return tuple(np.clip((x - low) / width, 0, 1).astype(np.float32) for x in (train_x, test_x))


# ---------------------------------------------------------------- codes


def _first_units(hidden, output):
    return {"code": hidden["code"][:, :CODE_UNITS]}


def _code(hidden, output):
    return {"code": hidden["code"]}


def trained_autoencoder(spec: Spec, train_x, train_y, device, progress=None):
    """Train a spec's autoencoder (``ae``, ``lc-d``, ``ae-d``, ...) on its inputs.

    The model of ``ae-classifier`` has the further part ``head``, which turns codes into logits of
    classes. Returns (model, curve). Raises Diverged.
    """
    from torch.nn.functional import cross_entropy

    from snnl_lib.losses import supervised_contrastive_loss
    from snnl_lib.models import Autoencoder, output_layer
    from snnl_lib.training import (
        binary_cross_entropy,
        build,
        raise_if_diverged,
        squared_error,
        squared_error_of_logistic,
        train,
    )

    options = {name: spec.get(name, False) for name in ("linear_code", "before_nonlinearity")}
    model = build(Autoencoder, train_x.shape[1], **options, seed=spec.seed)
    primary = squared_error if spec.get("reconstruction") else binary_cross_entropy
    if spec.get("logistic_output"):
        primary = squared_error_of_logistic
    select = _code if spec.get("layers") == "code" else {"lc-d": _first_units}.get(spec.model)
    if spec.model == "ae-classifier":
        classes = int(train_y.max()) + 1
        model.head = build(output_layer, model.code.out_features, classes, seed=spec.seed)

    def classifier_loss(code, labels, temperature):
        return cross_entropy(model.head(code), labels)

    regularizers = {"ae-supcon": supervised_contrastive_loss, "ae-classifier": classifier_loss}
    history = train(
        model,
        train_x,
        train_y,
        primary,
        epochs=spec["epochs"],
        seed=spec.seed,
        alpha=alpha_of(spec),
        temperature=temperature_of(spec),
        weight=spec.get("weight"),
        steps_per_epoch=spec.get("steps_per_epoch"),
        select=select,
        regularizer=regularizers.get(spec.model),
        device=device,
        progress=progress,
    )
    return model, raise_if_diverged(history).curve


def make_codes(spec: Spec, task, device="cpu", progress=None):
    """Make a spec's codes of all documents, by a network that it trains if the spec has one.

    Returns (training codes, test codes, curve or None). Raises Diverged.
    """
    from scipy.special import expit

    from snnl_lib.training import forward

    if spec.model == "original":
        return task.train_x, task.test_x, None
    if spec.model == "pca":
        pca = fitted_pca(spec["components"], task, spec.seed)
        return pca.transform(task.train_x), pca.transform(task.test_x), None
    train_x, test_x = scale_to_unit(task.train_x, task.test_x, spec["scaling"])
    model, curve = trained_autoencoder(spec, train_x, task.train_y, device, progress)
    clustered = slice(spec.get("clustered"))
    codes = [forward(model, x, layer="code")[:, clustered] for x in (train_x, test_x)]
    if spec.get("before_nonlinearity"):
        codes = [expit(values) for values in codes]
    return *codes, curve


def fitted_pca(components, task, seed):
    """Fit PCA on a task's training vectors, with ``components`` or as many as there can be."""
    from sklearn.decomposition import PCA

    components = min(components, *task.train_x.shape)
    return PCA(components, random_state=named_seed(seed, "pca")).fit(task.train_x)


# ---------------------------------------------------------------- scores


def kmeans(spec: Spec, classes: int):
    """Build the k-means of a spec, not fitted yet."""
    from sklearn.cluster import KMeans

    seed = named_seed(spec.seed, "kmeans")
    return KMeans(classes, n_init=spec["kmeans_starts"], random_state=seed)


def mixture(spec: Spec, classes: int):
    """Build the Gaussian mixture (full covariances) of a spec, not fitted yet."""
    from sklearn.mixture import GaussianMixture

    seed = named_seed(spec.seed, "kmeans")
    return GaussianMixture(classes, n_init=spec["kmeans_starts"], random_state=seed)


def score_codes(spec: Spec, task, codes, curve=None, fitted_on=None) -> Outcome:
    """Cluster the test documents' codes [N, D] by k-means or a mixture, and score the clusters.

    ``fitted_on`` are other codes that it is fitted on, if any.
    """
    from snnl_lib import metrics

    clustering = (mixture if spec.get("clusterer") == "gmm" else kmeans)(spec, task.classes)
    if fitted_on is None:
        clusters = clustering.fit_predict(codes)
    else:
        clusters = clustering.fit(fitted_on).predict(codes)
    scores = metrics.clustering_scores(codes, clusters, task.test_y)
    scores["snn"] = entanglement(codes, task.test_y)
    return Outcome(scores, curve, *collapse(codes), answers={"": clusters})


def pretrained_scores(clusters, labels) -> dict[str, float]:
    """Score the clusters [N] that DEC or IDEC starts from: k-means on the pretrained codes."""
    from snnl_lib.metrics import external_scores

    scores = external_scores(clusters, labels)
    return {"pretrained_acc": scores["acc"], "pretrained_nmi": scores["nmi"]}


def entanglement(features, labels) -> float:
    """Measure Eq. 4 at T = 0.1 on the first 2,000 documents: one temperature, to compare runs by.

    features [N, D], labels [N]; log(classes) is what chance gives.
    """
    import torch

    from snnl_lib.losses import soft_nearest_neighbor_loss

    features = torch.as_tensor(features[:ENTANGLEMENT_DOCUMENTS])
    labels = torch.as_tensor(labels[:ENTANGLEMENT_DOCUMENTS])
    return soft_nearest_neighbor_loss(features, labels, temperature=0.1).item()


def collapse(codes) -> tuple[str, str]:
    """Return ``ok`` or ``collapsed`` (``COLLAPSED_SHARE``) for codes [N, D], and why."""
    share = len(np.unique(codes.round(3), axis=0)) / len(codes)
    if share >= COLLAPSED_SHARE:
        return "ok", ""
    return "collapsed", f"only {share:.2%} of the test documents have distinct codes (3 decimals)"


def neighbour_share(points, labels) -> float:
    """Return the mean share of a point's 10 nearest points that have its class."""
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(points)
    neighbours = index.kneighbors(return_distance=False)
    return float((labels[neighbours] == labels[:, None]).mean())
