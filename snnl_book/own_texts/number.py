"""Choose the number of clusters."""

from typing import TYPE_CHECKING

import numpy as np

from snnl_book.own_texts.tables import TextsError
from snnl_lib.seeds import named_seed

if TYPE_CHECKING:  # importing pandas would slow down the command line
    import pandas as pd

CANDIDATES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 22, 25, 30, 35, 40, 50, 60, 80, 100)
SAMPLE_SIZE = 2000  # the largest number of texts from which k is chosen
COMPONENTS = 50  # of the vectors; what is beyond them hides the clusters from the silhouette
# Below this average size of a cluster, the silhouette rises with k on any corpus.
LEAST_TEXTS_PER_CLUSTER = 20
CLEAR = 0.05  # by how much the silhouette of clusters must exceed that of vectors without any


def silhouettes(
    vectors: np.ndarray, *, seed: int = 42, progress: str | None = None
) -> "pd.DataFrame":
    """Compute the silhouette of clusterings of vectors [N, D] for several numbers of clusters.

    The ``seed`` draws at most 2,000 vectors. k-means clusters the first 50 principal components of
    their directions, for each k of ``CANDIDATES`` with at least twenty vectors per cluster on
    average. Returns a frame with a row for each: ``k``, ``silhouette`` (the mean by cosine
    distance, in [-1, 1]) and ``chance``, the same of normally distributed vectors with the same
    variances, which have no clusters. ``progress`` names a progress bar. Raises TextsError for
    fewer than 40 vectors.

    >>> table = silhouettes(np.eye(3)[np.arange(60) % 3] + 0.01 * np.arange(60)[:, None] / 60)
    >>> table["k"].tolist(), int(table.loc[table["silhouette"].idxmax(), "k"])
    ([2, 3], 3)
    """
    import pandas as pd
    from sklearn.decomposition import PCA

    from snnl_lib.training import progress_bar

    least = 2 * LEAST_TEXTS_PER_CLUSTER
    if len(vectors) < least:
        raise TextsError(f"choosing k needs at least {least} texts, got {len(vectors)}: set k")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = (vectors / np.where(lengths > 0, lengths, 1))[_sample(len(vectors), seed)]
    size = min(COMPONENTS, *vectors.shape)
    components = PCA(size, random_state=named_seed(seed, "components"))
    with np.errstate(invalid="ignore"):  # the shares of no variance at all
        points = components.fit_transform(vectors)
    random = np.random.default_rng(named_seed(seed, "chance"))
    shapeless = random.normal(size=points.shape) * points.std(axis=0)
    tried = [k for k in CANDIDATES if k * LEAST_TEXTS_PER_CLUSTER <= len(points)]
    rows = []
    for place in progress_bar(progress, 0, len(tried)):
        k = tried[place]
        scores = [_silhouette(found, k, seed) for found in (points, shapeless)]
        rows.append({"k": k} | dict(zip(("silhouette", "chance"), scores, strict=True)))
    return pd.DataFrame(rows)


def _silhouette(points, k, seed):
    import warnings

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import silhouette_score

    with warnings.catch_warnings():  # equal vectors form fewer clusters
        warnings.simplefilter("ignore", ConvergenceWarning)
        kmeans = KMeans(k, n_init=2, random_state=named_seed(seed, "kmeans"))
        clusters = kmeans.fit_predict(points)
    if len(np.unique(clusters)) == 1:
        return np.nan
    return float(silhouette_score(points, clusters, metric="cosine"))


def _sample(count, seed):
    """Draw at most ``SAMPLE_SIZE`` of ``count`` row numbers."""
    return np.random.default_rng(named_seed(seed, "subset")).permutation(count)[:SAMPLE_SIZE]


def best_k(table: "pd.DataFrame") -> int:
    """Return the k with the largest silhouette in a table of ``silhouettes``.

    This is a rule of thumb, and it ignores what the clusters are for; ``stands_out`` says whether
    the table supports it. The chapter *Cluster your own texts* compares its choices with the
    classes of several corpora. Raises TextsError if no silhouette is defined.

    >>> centers = 10 * np.eye(5)[np.repeat(np.arange(5), 40)]
    >>> best_k(silhouettes(centers + np.random.default_rng(0).normal(size=(200, 5)), seed=1))
    5
    """
    if table["silhouette"].isna().all():
        raise TextsError("all texts are alike to this method: use another method, or set k")
    return int(table.loc[table["silhouette"].idxmax(), "k"])


def stands_out(table: "pd.DataFrame") -> bool:
    """Return whether the largest silhouette of a table exceeds that of chance clearly, by 0.05.

    >>> import pandas as pd
    >>> stands_out(pd.DataFrame({"k": [2, 3], "silhouette": [0.07, 0.3], "chance": [0.05, 0.05]}))
    True
    """
    row = table.loc[table["silhouette"].idxmax()]
    return bool(row["silhouette"] - row["chance"] >= CLEAR)
