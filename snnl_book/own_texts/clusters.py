"""Cluster texts by one of four methods."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from snnl_book import results
from snnl_book.own_texts.tables import TextsError
from snnl_book.recipes import STAGES, Recipe
from snnl_lib.seeds import named_seed

METHODS = {
    "tfidf": "k-means on word counts (TF-IDF)",
    "sif-corpus": "k-means on averaged word vectors, made from the texts themselves",
    "minilm": "k-means on MiniLM's sentence vectors, as published",
    "clusterbert": "MiniLM fine-tuned on the texts by ClusterBERT, then k-means",
}
"""The methods of ``cluster_texts``."""


@dataclass(frozen=True)
class Clustering:
    """The result of ``cluster_texts``.

    - ``clusters``: int array [N] of numbers from 0 to k - 1.
    - ``vectors``: float32 array [N, D], the vectors that were clustered.
    - ``model``: the fitted ``ClusterBERT``, which can predict and be saved; None for other methods.
    """

    clusters: np.ndarray
    vectors: np.ndarray
    model: object = None


def cluster_texts(
    texts: Sequence[str],
    k: int,
    method: str = "minilm",
    *,
    seed: int = 42,
    device: str = "cpu",
    progress: str | None = None,
    folder: Path | None = None,
) -> Clustering:
    """Cluster N texts into k clusters by one of ``METHODS``.

    ClusterBERT starts from the mean of MiniLM's pieces, because MiniLM was trained so. Its
    checkpoints are saved in ``folder``, from which an interrupted call continues, and ``progress``
    names its progress bar. ``seed`` determines k-means and everything random in ClusterBERT. A
    transformer runs on ``device``. Raises TextsError for an unknown method, empty texts or a
    training that diverges, and ValueError for a k that is not a whole number from 1 to N.

    >>> texts = ["sort a list", "a sorted list", "red wine", "a red wine"]
    >>> a, b, c, d = cluster_texts(texts, 2, "tfidf").clusters
    >>> bool(a == b != c == d)
    True
    """
    from snnl_book.methods._fitting import check_clusters, k_means

    _check_method(method)
    texts = list(texts)
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise TextsError("texts must be strings that are not empty: leave the others out")
    check_clusters(k, len(texts), "texts")
    if method == "clusterbert":
        from snnl_book.methods import ClusterBERT

        settings = {"seed": seed, "device": device, "progress": progress, "folder": folder}
        model = ClusterBERT(k, "minilm", Recipe(pooling="mean"), **settings).fit(texts)
        if model.diverged:
            raise TextsError(f"the training diverged ({model.diverged}): take another seed")
        return Clustering(model.labels_, model.embeddings[STAGES[-1]], model)
    vectors = embed_texts(texts, method, device)
    return Clustering(k_means(vectors, k, named_seed(seed, "kmeans")).labels_, vectors)


def embed_texts(texts: Sequence[str], method: str, device: str = "cpu") -> np.ndarray:
    """Return the vectors [N, D] of texts from which ``cluster_texts`` starts with a method.

    A transformer runs on ``device``. Raises TextsError for an unknown method.

    >>> embed_texts(["a list", "red wine"], "tfidf").shape
    (2, 3)
    """
    from snnl_book.embeddings import embed

    _check_method(method)
    return embed(list(texts), "minilm" if method == "clusterbert" else method, device=device)


def _check_method(method):
    if method not in METHODS:
        raise TextsError(f"there is no method {method!r}: choose one of {', '.join(METHODS)}")


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
