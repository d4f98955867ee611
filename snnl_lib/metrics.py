"""Scores for clusterings, classifiers and rankings.

The clustering scores are the Dunn index and those of Eqs. 9-20 of the text paper (Agarap, 2021).
The ClusterBERT paper is *ClusterBERT: Multi-Stage Fine-Tuning of Transformers for Deep Text
Clustering* (2023). All scores are Python floats. Scores that range from 0 to 1 are fractions, not
percentages.
"""

import math
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn import metrics as sk


def clustering_accuracy(labels, clusters):
    """Return the accuracy of the best one-to-one match between clusters and classes, in [0, 1].

    This is Eq. 20 of the text paper and Eq. 7 of the ClusterBERT paper. ``labels`` and ``clusters``
    are integer arrays [N] in any numbering. If there are more clusters than classes, the points of
    the surplus clusters count as wrong. Raises ValueError if the arrays are empty, differ in length
    or do not hold integers.

    >>> clustering_accuracy([0, 0, 1, 1], [5, 5, 3, 5])
    0.75
    """
    labels, clusters = _ids("labels", labels), _ids("clusters", clusters)
    _check_lengths(labels=labels, clusters=clusters)
    table = sk.cluster.contingency_matrix(labels, clusters)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / len(labels))


def clustering_scores(features, clusters, labels):
    """Return the six clustering scores of Tables 3 and 4 of the text paper.

    Args:
        features: float array [N, D], the points that were clustered. Distances are Euclidean.
        clusters: integer array [N], the predicted clusters.
        labels: integer array [N], the true classes.

    Returns:
        A dict of floats. The first three are NaN if there is only one cluster or if every point is
        its own cluster. If an equation divides by 0, the score is the value that scikit-learn
        returns.

        - ``dbi``: Davies-Bouldin index (Eqs. 9-10), at least 0, lower is better; two clusters with
          the same centre are not compared (Eq. 9 would be infinite)
        - ``sil``: silhouette (Eqs. 11-13), the mean over the points, in [-1, 1]
        - ``chs``: Calinski-Harabasz score (Eqs. 14-16), at least 0; 1 if all points of each cluster
          are equal (Eq. 14 would be infinite)
        - ``nmi``: normalised mutual information (Eq. 17), in [0, 1]; the normaliser is the
          arithmetic mean of the entropies
        - ``ari``: adjusted Rand index (Eqs. 18-19), in [-0.5, 1]; the paper says [0, 1]
        - ``acc``: clustering accuracy (Eq. 20), in [0, 1]

    Raises:
        ValueError: the arrays are empty or differ in length, ``features`` is not finite, or
            ``clusters`` or ``labels`` does not hold integers.

    >>> points = [[0], [1], [8], [9]]
    >>> scores = clustering_scores(points, [0, 0, 1, 1], labels=[0, 0, 1, 0])
    >>> [round(scores[name], 3) for name in ("dbi", "sil", "chs", "nmi", "ari", "acc")]
    [0.125, 0.875, 128.0, 0.344, 0.0, 0.75]
    """
    clusters, labels = _ids("clusters", clusters), _ids("labels", labels)
    features = check_points(features, clusters=clusters, labels=labels)
    # Far from the origin, scikit-learn's distances lose digits. Medians of integers are exact.
    features = features - np.median(features, axis=0)
    defined = 1 < len(np.unique(clusters)) < len(clusters)

    def internal(score):
        return float(score(features, clusters)) if defined else math.nan

    return {
        "dbi": internal(sk.davies_bouldin_score),
        "sil": internal(sk.silhouette_score),
        "chs": internal(sk.calinski_harabasz_score),
        **external_scores(clusters, labels),
    }


def external_scores(clusters, labels):
    """Return the scores that do not need the points: ``nmi``, ``ari`` and ``acc``.

    ``clusters`` and ``labels`` are integer arrays [N]. The result is a dict.
    """
    return {
        "nmi": float(sk.normalized_mutual_info_score(labels, clusters)),
        "ari": float(sk.adjusted_rand_score(labels, clusters)),
        "acc": clustering_accuracy(labels, clusters),
    }


def dunn_index(features, clusters):
    """Return the Dunn index (Dunn, 1974), at least 0; higher is better.

    The index is the smallest Euclidean distance between two points of different clusters, divided
    by the largest distance between two points of the same cluster (Sec. 4.3 of the ClusterBERT
    paper). It is NaN if there is only one cluster, or if no cluster has two distinct points.

    ``features`` is a float array [N, D] and ``clusters`` an integer array [N]. Raises ValueError if
    the arrays are empty or differ in length, ``features`` is not finite, or ``clusters`` does not
    hold integers. Memory use does not grow with N², but the running time does: 20,000 points in 128
    dimensions take about ten seconds.

    >>> dunn_index([[0, 0], [0, 1], [4, 0], [4, 2]], [0, 0, 1, 1])
    2.0
    """
    clusters = _ids("clusters", clusters)
    features = check_points(features, clusters=clusters)
    features = features[np.argsort(clusters)]  # so that each cluster is one range of rows
    ends = np.unique(clusters, return_counts=True)[1].cumsum().tolist()
    ranges = list(pairwise([0, *ends]))
    # This metric works on differences in chunks, so that equal points are exactly at distance 0.
    squared = partial(sk.pairwise_distances_chunked, metric="sqeuclidean", working_memory=64)
    within = (squared(features[start:end]) for start, end in ranges)
    between = (squared(features[start:end], features[end:]) for start, end in ranges[:-1])
    widest = max(chunk.max() for chunks in within for chunk in chunks)
    if len(ends) == 1 or widest == 0:
        return math.nan
    nearest = min(chunk.min() for chunks in between for chunk in chunks)
    return math.sqrt(nearest / widest)


def classification_scores(labels, predictions):
    """Return the accuracy and two F1 scores of predicted classes, each in [0, 1].

    The result is a dict of ``acc``, ``f1_micro`` and ``f1_macro`` (the mean F1 of the classes). The
    text paper's F1 is ``f1_micro``, which equals the accuracy because each point has one class.
    ``labels`` and ``predictions`` are integer arrays [N]. Raises ValueError if they are empty,
    differ in length or do not hold integers.

    >>> scores = classification_scores([0, 0, 1, 1], predictions=[0, 0, 0, 1])
    >>> {name: round(score, 3) for name, score in scores.items()}
    {'acc': 0.75, 'f1_micro': 0.75, 'f1_macro': 0.733}
    """
    labels, predictions = _ids("labels", labels), _ids("predictions", predictions)
    _check_lengths(labels=labels, predictions=predictions)
    return {
        "acc": float(sk.accuracy_score(labels, predictions)),
        "f1_micro": float(sk.f1_score(labels, predictions, average="micro")),
        "f1_macro": float(sk.f1_score(labels, predictions, average="macro")),
    }


def query_scores(queries):
    """Return the average precision and the reciprocal rank of each ranking, in (0, 1].

    Their means are the scores of Sec. 4.4 of the ClusterBERT paper (MAP and MRR), over the whole
    ranking of each query. ``queries`` is an iterable with a pair of arrays [C] for the C candidates
    of each query: their similarities to the query (larger is closer), and whether they are relevant
    (bool). The order of equally similar candidates is arbitrary, so each score is the mean over all
    their orders (McSherry and Najork, 2008).

    The result is a dict of two lists with one float per query: ``map`` holds the average precision,
    and ``mrr`` the reciprocal rank (1 / rank of the first relevant candidate). Raises ValueError if
    ``queries`` is empty, the two arrays of a query differ in length, a similarity is not finite, or
    a query lacks relevant or irrelevant candidates. Beforehand, remove queries that lack either, as
    is usual for the data sets TREC-QA and AskUbuntu.

    >>> query_scores([([0.9, 0.8, 0.1], [False, True, True]), ([0.5, 0.5], [True, False])])
    {'map': [0.5833333333333333, 0.75], 'mrr': [0.5, 0.75]}
    """
    scores = [
        _ranking_scores(np.asarray(similarities, dtype=float), np.asarray(relevant))
        for similarities, relevant in queries
    ]
    if not scores:
        raise ValueError("queries must contain at least one query")
    precisions, reciprocals = zip(*scores, strict=True)
    return {"map": list(precisions), "mrr": list(reciprocals)}


def _ranking_scores(similarities, relevant):
    """Return the average precision and reciprocal rank of a query, averaged over orders of ties."""
    _check_query(similarities, relevant)
    # A tie is a group of equally similar candidates. From here on, arrays have one entry per rank.
    _, tie, tie_sizes = np.unique(-similarities, return_inverse=True, return_counts=True)
    tie_hits = np.bincount(tie, relevant)
    size = np.repeat(tie_sizes, tie_sizes)  # candidates of this rank's tie
    hits = np.repeat(tie_hits, tie_sizes)  # relevant candidates of it
    before = np.repeat(np.cumsum(tie_sizes) - tie_sizes, tie_sizes)  # candidates before the tie
    hits_before = np.repeat(np.cumsum(tie_hits) - tie_hits, tie_sizes)
    rank = np.arange(1, len(similarities) + 1)
    place = rank - before  # within the tie, from 1

    # The expected precision at this rank, given that a relevant candidate is there.
    others_hit = (place - 1) * (hits - 1) / np.maximum(size - 1, 1)
    precision = (hits_before + 1 + others_hit) / rank
    average_precision = (hits / size * precision).sum() / relevant.sum()

    # The probability that the first relevant candidate is here, given that none came before.
    chance = hits / (size - place + 1)
    none_before = np.cumprod(np.append(1, 1 - chance))[:-1]
    reciprocal_rank = (none_before * chance / rank).sum()
    return float(average_precision), float(reciprocal_rank)


def _check_query(similarities, relevant):
    matching = similarities.ndim == 1 and similarities.shape == relevant.shape
    if not matching or relevant.dtype != bool or not np.isfinite(similarities).all():
        value = f"{similarities} and {relevant} ({relevant.dtype})"
        expected = "finite similarities [C] and relevant as a bool array [C]"
        raise ValueError(f"a query must have {expected}, got {value}")
    if relevant.all() or not relevant.any():
        expected = "a query must have relevant and irrelevant candidates"
        value = f"{relevant.sum()} relevant of {len(relevant)}"
        raise ValueError(f"{expected}, got {value}: leave this query out")


def _ids(name, values):
    """Return integer ids as an array [N]; raise ValueError for anything else."""
    values = np.asarray(values)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name} must be a non-empty array [N], got shape {values.shape}")
    if not np.issubdtype(values.dtype, np.integer):
        value = f"{values.dtype} (first value {values[0]!r})"
        raise ValueError(f"{name} must be whole numbers, got {value}")
    return values


def check_points(features, **ids):
    """Return features as an array [N, D].

    Raises ValueError unless ``features`` has shape [N, D] and holds finite numbers, and each array
    in ``ids`` has length N.
    """
    features = np.asarray(features)
    if features.ndim != 2 or not np.issubdtype(features.dtype, np.number):
        value = f"{features.dtype} of shape {features.shape}"
        raise ValueError(f"features must be a numeric array [N, D], got {value}")
    _check_lengths(features=features, **ids)
    finite = np.isfinite(features)
    if not finite.all():
        raise ValueError(f"features must be finite, but contain {features[~finite][0]}")
    return features.astype(np.float32) if features.dtype == np.float16 else features


def _check_lengths(**arrays):
    if len({len(array) for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise ValueError(f"lengths must be equal, got {lengths}")
