"""Cluster texts by one of four methods."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from snnl_book import results
from snnl_book.own_texts.tables import TextsError, TextsWarning
from snnl_book.recipes import STAGES
from snnl_lib.seeds import named_seed

PIECES = 256  # as MiniLM was published; experiments keep 128
MOST_PIECES = 512  # MiniLM has no more positions

METHODS = {
    "tfidf": "k-means on weighted word counts (TF-IDF)",
    "sif-corpus": "k-means on averages of word vectors made from the texts themselves",
    "minilm": "k-means on sentence vectors from MiniLM without fine-tuning",
    "clusterbert": "k-means on sentence vectors from MiniLM fine-tuned on the texts by ClusterBERT",
}
"""The methods of ``cluster_texts``."""

RETURNS = 0.75
"""A cluster returns with another seed if it shares so much with a cluster there (Hennig, 2007)."""


@dataclass(frozen=True)
class Clustering:
    """The result of ``cluster_texts``.

    - ``clusters``: int array [N] of numbers from 0 to k - 1.
    - ``vectors``: float32 array [N, D], the vectors that were clustered.
    - ``distances``: float array [N], each vector's Euclidean distance from its cluster's mean.
    - ``outliers``: bool array [N], whether that distance exceeds the upper quartile of the
      cluster's by more than 1.5 times the range between the quartiles.
    - ``model``: the fitted ``TextKMeans`` or ``ClusterBERT``, which can predict and be saved; None
      for other methods.
    """

    clusters: np.ndarray
    vectors: np.ndarray
    distances: np.ndarray
    outliers: np.ndarray
    model: object = None


def _clustering(vectors, clusters, centers, limits, model=None):
    from snnl_book.methods._fitting import distances_to

    distances = distances_to(vectors, centers, clusters)
    return Clustering(clusters, vectors, distances, distances > limits[clusters], model)


def cluster_texts(  # noqa: PLR0913 - a public name
    texts: Sequence[str],
    k: int,
    method: str = "minilm",
    *,
    seed: int = 42,
    device: str = "cpu",
    progress: str | None = None,
    folder: Path | None = None,
    pieces: int = PIECES,
) -> Clustering:
    """Cluster N texts into k clusters by one of ``METHODS``.

    ClusterBERT fine-tunes MiniLM by its published recipe. Its checkpoints are saved in ``folder``,
    from which an interrupted call continues, and ``progress`` names its progress bar. ``seed``
    determines k-means and everything random in ClusterBERT. A transformer runs on ``device`` and
    reads at most ``pieces`` word pieces of a text. Texts that are cut, and fewer clusters than k,
    cause a warning. Raises TextsError for an unknown method, empty texts, texts without a word to
    count or a training that diverges, and ValueError for a k that is not a whole number from 1 to
    N.

    >>> texts = ["sort a list", "a sorted list", "red wine", "a red wine"]
    >>> a, b, c, d = cluster_texts(texts, 2, "tfidf").clusters
    >>> bool(a == b != c == d)
    True
    """
    from snnl_book.methods import ClusterBERT, TextKMeans
    from snnl_book.methods._fitting import check_clusters, distance_limits, k_means

    texts = _checked(texts, method, pieces)
    check_clusters(k, len(texts), "texts")
    settings = {"seed": seed, "device": device, "max_pieces": pieces}
    if method == "minilm":
        _warn_of_cut_texts(texts, pieces)
        model = TextKMeans(k, **settings).fit(texts)
        return _clustering(
            model.transform(texts), model.labels_, model.centers, model.limits, model
        )
    if method == "clusterbert":
        _warn_of_cut_texts(texts, pieces)
        settings |= {"progress": progress, "folder": folder}
        model = ClusterBERT(k, "minilm", **settings).fit(texts)
        if model.diverged:
            raise TextsError(f"the training diverged ({model.diverged}): try another seed")
        vectors = model.embeddings[STAGES[-1]]
        return _clustering(vectors, model.labels_, model.centers, model.limits, model)
    vectors = embed_texts(texts, method, device)
    kmeans = k_means(vectors, k, named_seed(seed, "kmeans"))
    limits = distance_limits(vectors, kmeans.cluster_centers_, kmeans.labels_)
    return _clustering(vectors, kmeans.labels_, kmeans.cluster_centers_, limits)


def predict_clusters(texts: Sequence[str], folder: Path, device: str = "cpu") -> Clustering:
    """Return the clusters of N texts by a model that was saved in a folder.

    A transformer runs on ``device``. Raises SnnlError if the folder holds no ``TextKMeans`` or
    ``ClusterBERT``.

    >>> folder = getfixture("tmp_path") / "model"
    >>> texts = ["sort a list", "a sorted list", "red wine", "a red wine"]
    >>> cluster_texts(texts, 2).model.save(folder)
    >>> a, b = predict_clusters(["white wine", "red wine"], folder).clusters
    >>> bool(a == b)
    True
    """
    from snnl_book.methods import ClusterBERT, TextKMeans
    from snnl_book.methods._saving import saved_class

    estimator = ClusterBERT if saved_class(folder) == "ClusterBERT" else TextKMeans
    model = estimator.load(folder, device)
    texts = _checked(texts, "minilm", model.max_pieces)
    _warn_of_cut_texts(texts, model.max_pieces)
    vectors = model.transform(texts)
    return _clustering(vectors, model._assign(vectors), model.centers, model.limits, model)


def embed_texts(
    texts: Sequence[str], method: str, device: str = "cpu", pieces: int = PIECES
) -> np.ndarray:
    """Return the vectors [N, D] of texts from which ``cluster_texts`` starts with a method.

    A transformer runs on ``device`` and reads at most ``pieces`` word pieces of a text. Equal texts
    have equal vectors. Raises TextsError as ``cluster_texts``.

    >>> embed_texts(["a list", "red wine"], "tfidf").shape
    (2, 3)
    """
    from snnl_book.methods.text_kmeans import embed_once

    texts = _checked(texts, method, pieces)
    name = "minilm" if method == "clusterbert" else method
    try:
        return embed_once(texts, name, device=device, max_pieces=pieces)
    except ValueError as error:  # no text has a word to count
        raise TextsError(str(error)) from error


def _checked(texts, method, pieces):
    """Return texts as a list without half characters; raise TextsError for wrong arguments."""
    from snnl_book.methods._texts import checked_texts

    check_options(method, pieces)
    try:
        texts = checked_texts(texts)
    except ValueError as error:
        raise TextsError(str(error)) from error
    if not all(text.strip() for text in texts):
        raise TextsError("texts must be non-empty strings: leave out all others")
    return texts


def check_options(method: str, pieces: int) -> None:
    """Raise TextsError for an unknown method, and for more word pieces than MiniLM can read."""
    if method not in METHODS:
        raise TextsError(f"there is no method {method!r}: choose one of {', '.join(METHODS)}")
    if not isinstance(pieces, int) or not 3 <= pieces <= MOST_PIECES:
        wanted = f"a whole number from 3 to {MOST_PIECES}"
        raise TextsError(f"the number of word pieces must be {wanted}, got {pieces!r}")


def _warn_of_cut_texts(texts, pieces):
    from snnl_book.embeddings.backbones import tokenize

    if cut := tokenize(texts, "minilm", max_pieces=pieces).cut:
        longer = f"{cut:,} of {len(texts):,} texts {'is' if cut == 1 else 'are'} longer"
        sentence = f"{longer} than {pieces} word pieces: only the beginning was read"
        warnings.warn(sentence, TextsWarning, stacklevel=3)


def typical_minutes(count: int, method: str) -> float:
    """Estimate how many minutes ``cluster_texts`` takes on one CPU core for ``count`` texts.

    The estimate is proportional to the largest measurement of ``python -m benchmarks.own_texts``.
    It is nan for a ``method`` without a measurement.

    >>> typical_minutes(10, "minilm") < typical_minutes(1000, "minilm")
    True
    """
    import pandas as pd

    path = results.results_dir("full") / "bench" / "own-texts-cpu.csv"
    if not path.exists():
        return np.nan
    took = pd.read_csv(path).query("method == @method").nlargest(1, "texts")
    return float((took["seconds"] / took["texts"]).mean() * count / 60)


def shared_texts(clusters: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return how well another clustering of the same texts repeats each cluster.

    Args:
        clusters, others: the cluster of each text, int [N].

    Returns float [k] between 0 and 1, in the order of the clusters' numbers: the largest Jaccard
    index with a cluster of ``others``, which is the texts in both as a share of the texts in
    either. It is 1 if the other clustering has the same cluster.

    >>> shared_texts(np.array([0, 0, 1, 1, 1]), np.array([1, 1, 0, 0, 2])).round(2).tolist()
    [1.0, 0.67]
    """
    from sklearn.metrics.cluster import contingency_matrix

    both = contingency_matrix(clusters, others)
    either = both.sum(axis=1, keepdims=True) + both.sum(axis=0, keepdims=True) - both
    return (both / either).max(axis=1)
