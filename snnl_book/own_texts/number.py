"""Choose the number of clusters."""

from typing import TYPE_CHECKING

import numpy as np

from snnl_book.own_texts.tables import TextsError
from snnl_lib.seeds import named_seed

if TYPE_CHECKING:  # importing pandas would slow down the command line
    import pandas as pd

CANDIDATES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 22, 25, 30, 35, 40, 50, 60, 80, 100)
SAMPLE_SIZE = 2000  # the largest number of texts from which k is chosen
# Below this average size of a cluster, the silhouette rises with k on any corpus.
LEAST_TEXTS_PER_CLUSTER = 20


def silhouettes(vectors: np.ndarray, *, seed: int = 42) -> "pd.DataFrame":
    """Compute the silhouette of clusterings of vectors [N, D] for several numbers of clusters.

    The ``seed`` draws at most 2,000 vectors. k-means clusters them for each k of ``CANDIDATES``
    with at least twenty vectors per cluster on average. Returns a frame with a row for each:
    ``k`` and ``silhouette``, the mean silhouette by cosine distance, in [-1, 1]. Raises TextsError
    for fewer than 40 vectors.

    >>> table = silhouettes(np.eye(3)[np.arange(60) % 3] + 0.01 * np.arange(60)[:, None] / 60)
    >>> table.round(2).to_numpy().tolist()
    [[2.0, 0.66], [3.0, 1.0]]
    """
    import pandas as pd
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    least = 2 * LEAST_TEXTS_PER_CLUSTER
    if len(vectors) < least:
        raise TextsError(f"choosing k needs at least {least} texts, got {len(vectors)}: name k")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = (vectors / np.where(lengths > 0, lengths, 1))[_sample(len(vectors), seed)]
    rows = []
    for k in CANDIDATES:
        if k * LEAST_TEXTS_PER_CLUSTER > len(vectors):
            break
        kmeans = KMeans(k, n_init=4, random_state=named_seed(seed, "kmeans"))
        clusters = kmeans.fit_predict(vectors)
        score = np.nan  # equal vectors form a single cluster
        if len(np.unique(clusters)) > 1:
            score = silhouette_score(vectors, clusters, metric="cosine")
        rows.append({"k": k, "silhouette": float(score)})
    return pd.DataFrame(rows)


def _sample(count, seed):
    """Draw at most ``SAMPLE_SIZE`` of ``count`` row numbers."""
    return np.random.default_rng(named_seed(seed, "subset")).permutation(count)[:SAMPLE_SIZE]


def best_k(table: "pd.DataFrame") -> int:
    """Return the k with the largest silhouette in a table of ``silhouettes``.

    This is a rule of thumb, and it ignores what the clusters are for. On some of the book's corpora
    it comes close to the number of classes, on others it finds a fraction or a multiple of it (see
    the chapter *Cluster your own texts*). Raises TextsError if no silhouette is defined.

    >>> centers = 10 * np.eye(5)[np.repeat(np.arange(5), 40)]
    >>> best_k(silhouettes(centers + np.random.default_rng(0).normal(size=(200, 5)), seed=1))
    5
    """
    if table["silhouette"].isna().all():
        raise TextsError("all texts are alike to this method: take another, or name k")
    return int(table.loc[table["silhouette"].idxmax(), "k"])
