"""The experiments of the text paper: the cells of its tables, and what one run of each does.

Where the paper is silent the choice is made here, in ``CHOICES``, and shown next to the table it can move.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from snnl_lib import metrics
from snnl_lib.losses import soft_nearest_neighbor_loss
from snnl_lib.models import Autoencoder, ConvNet, FeedForwardNet
from snnl_lib.results import Spec
from snnl_lib.training import build, forward, named_seed, train

CODE_UNITS = 100  # LC(D): the disentangled part of the code (Sec. 3.4)

CHOICES = {
    "subset": "the training documents are drawn uniformly without replacement, a new draw for each seed; those without a known word are left out and counted",
    "hidden": "hidden layers are counted after their nonlinearity, their losses are summed, and the output layer is not one of them",
    "cross_entropy": "the mean over the batch; a last, smaller batch is used",
    "epoch": "the last epoch is reported",
    "convolution": "the convolution has 32 filters and no pooling; its stride and kernel grow with the number of features, so that 64 positions, "
    "2,048 values in all, are left",
    "scaling": "for the binary cross entropy each feature is scaled to [0, 1] by its training minimum and maximum; test values beyond are clipped",
    "reconstruction": "the binary cross entropy is the mean over documents and features",
    "code": "LC(D) applies the loss to units 1-100 of the code; k-means sees all 128",
    "kmeans": "k-means (k = number of classes, 10 starts) is fitted on the test documents' codes, and the six metrics are computed on these",
    "entanglement": "snn is Eq. 4 at T = 0.1 on the first 2,000 test documents: of the code, or the mean over a classifier's hidden layers",
    "pca": "PCA to 128 components is fitted on the unscaled training vectors",
}

ENTANGLEMENT_DOCUMENTS = 2000
COLLAPSED_SHARE = 0.01
"""A code has collapsed when, rounded to 3 decimals, fewer than this share of the documents have distinct codes."""


@dataclass(frozen=True)
class Cell:
    """One cell of a table: what is run for each seed. ``seeds`` limits it to the first few of those asked for."""

    embedding: str
    model: str
    alpha: float
    settings: dict
    temperature: str = "annealed"
    seeds: int | None = None


# ---------------------------------------------------------------- the grids


def classification_cells(profile: dict) -> Iterator[Cell]:
    """Tables 1 and 2."""
    ffn = {"epochs": profile["classification_epochs"], "hidden_sizes": [500, 500], "layers": "sum"}
    cnn = {"epochs": profile["convolution_epochs"], "filters": 32, "positions": 64, "kernel": None, "layers": "sum"}
    for model, settings in (("ffn", ffn), ("cnn", cnn)):
        for alpha in (0, 100, -100):
            yield Cell("spacy", model, alpha, settings)


def clustering_cells(profile: dict) -> Iterator[Cell]:
    """Tables 3 and 4."""
    starts = {"kmeans_starts": profile["kmeans_starts"]}
    yield Cell("spacy", "pca", 0, starts | {"components": 128})
    settings = starts | {"epochs": profile["clustering_epochs"], "scaling": "feature"}
    yield Cell("spacy", "ae", 0, settings | {"layers": "none"})
    yield Cell("spacy", "lc-d", 100, settings | {"layers": f"code[:{CODE_UNITS}]"})
    yield Cell("spacy", "ae-d", 100, settings | {"layers": "sum"})


# ---------------------------------------------------------------- losses and inputs


def cross_entropy(output, features, labels):
    """Eq. 2, mean over the batch."""
    return F.cross_entropy(output, labels)


def binary_cross_entropy(output, features, labels):
    """Eq. 3 with its printed sign slip put right, from logits; mean over documents and features."""
    return F.binary_cross_entropy_with_logits(output, features)


def scale_to_unit(train_x, test_x):
    """Scale each feature to [0, 1] by the training minimum and maximum (``CHOICES["scaling"]``); arrays [N, D], float32."""
    low, high = train_x.min(axis=0), train_x.max(axis=0)
    width = np.where(high > low, high - low, 1)
    return tuple(np.clip((x - low) / width, 0, 1).astype(np.float32) for x in (train_x, test_x))


def entanglement(features, labels) -> float:
    """Measure Eq. 4 at one common temperature (``CHOICES["entanglement"]``), comparable between runs; log(classes) is what chance gives."""
    first = slice(ENTANGLEMENT_DOCUMENTS)
    return soft_nearest_neighbor_loss(torch.as_tensor(features[first]), torch.as_tensor(labels[first]), temperature=0.1).item()


def _number(temperature):
    return temperature if temperature == "annealed" else 1.0 if temperature == "none" else float(temperature)


# ---------------------------------------------------------------- one run


def build_classifier(spec: Spec, in_features: int, classes: int):
    """Build the network of a classification spec, ``ffn`` or ``cnn``, with the weights of its seed."""
    if spec.model == "cnn":
        sizes = {name: spec[name] for name in ("filters", "positions", "kernel")}
        return build(ConvNet, in_features, classes, **sizes, seed=spec.seed)
    return build(FeedForwardNet, in_features, classes, spec["hidden_sizes"], seed=spec.seed)


def run_classification(spec: Spec, task, device, progress):
    """Train a classifier on Eq. 7 and score it on the test documents: (metrics, curve, status, reason)."""
    model = build_classifier(spec, task.train_x.shape[1], task.classes)

    def score(model):
        return metrics.classification_scores(task.test_y, forward(model, task.test_x).argmax(axis=1))

    history = train(
        model, task.train_x, task.train_y, cross_entropy, epochs=spec["epochs"], seed=spec.seed, alpha=spec.alpha, temperature=_number(spec.temperature),
        layers=spec["layers"], device=device, after_epoch=lambda model: {"test_acc": score(model)["acc"]}, progress=progress,
    )  # fmt: skip
    if history.diverged:
        return {}, history.curve, "diverged", history.diverged
    predictions = forward(model, task.test_x).argmax(axis=1)
    _, hidden = model(torch.as_tensor(task.test_x[:1], device=device))
    layers = [forward(model, task.test_x[:ENTANGLEMENT_DOCUMENTS], layer=name) for name in hidden]
    snn = float(np.mean([entanglement(layer, task.test_y) for layer in layers]))
    collapsed = len(np.unique(predictions)) == 1
    reason = f"every test document was given class {predictions[0]}" if collapsed else ""
    return score(model) | {"snn": snn}, history.curve, "collapsed" if collapsed else "ok", reason


def train_autoencoder(spec: Spec, train_x, train_y, device="cpu", progress=None):
    """Train the autoencoder of a clustering spec (``ae``, ``lc-d`` or ``ae-d``) on features [N, D] in [0, 1]; returns (model, History)."""
    model = build(Autoencoder, train_x.shape[1], seed=spec.seed)
    select = {"lc-d": lambda hidden: {"code": hidden["code"][:, :CODE_UNITS]}}.get(spec.model)
    history = train(
        model, train_x, train_y, binary_cross_entropy, epochs=spec["epochs"], seed=spec.seed, alpha=spec.alpha, temperature=_number(spec.temperature),
        select=select, device=device, progress=progress,
    )  # fmt: skip
    return model, history


def run_clustering(spec: Spec, task, device, progress):
    """Make codes as in Sec. 3.4, cluster those of the test documents and score the clusters: (metrics, curve, status, reason)."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    curve = None
    if spec.model == "pca":
        from sklearn.decomposition import PCA

        components = min(spec["components"], *task.train_x.shape)
        codes = PCA(components, random_state=named_seed(spec.seed, "pca")).fit(task.train_x).transform(task.test_x)
    else:
        train_x, test_x = scale_to_unit(task.train_x, task.test_x)
        model, history = train_autoencoder(spec, train_x, task.train_y, device, progress)
        curve = history.curve
        if history.diverged:
            return {}, curve, "diverged", history.diverged
        codes = forward(model, test_x, layer="code")
    kmeans = KMeans(task.classes, n_init=spec["kmeans_starts"], random_state=named_seed(spec.seed, "kmeans"))
    with threadpool_limits(1):
        scores = metrics.clustering_scores(codes, kmeans.fit_predict(codes), task.test_y)
    scores["snn"] = entanglement(codes, task.test_y)
    distinct = len(np.unique(codes.round(3), axis=0)) / len(codes)
    reason = f"only {distinct:.2%} of the test documents have distinct codes (3 decimals)" if distinct < COLLAPSED_SHARE else ""
    return scores, curve, "collapsed" if reason else "ok", reason
