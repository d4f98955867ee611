"""Scores of clusterings (Eqs. 9-20 of the text paper, the Dunn index), classifiers and rankings.

All return Python floats; fractions, not percent.
"""

import math
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn import metrics as sk


def clustering_accuracy(labels, clusters):
    """Return the accuracy of the best one-to-one match between clusters and classes, in [0, 1].

    Eq. 20, ClusterBERT's Eq. 7. ``labels`` and ``clusters`` are integer arrays [N], numbered in any
    way. With more clusters than classes the surplus clusters count as wrong. Raises ValueError for
    empty, unequal or non-integer input.

    >>> clustering_accuracy([0, 0, 1, 1], [5, 5, 3, 5])
    0.75
    """
    labels, clusters = _ids("labels", labels), _ids("clusters", clusters)
    _check_lengths(labels=labels, clusters=clusters)
    table = sk.cluster.contingency_matrix(labels, clusters)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / len(labels))


def clustering_scores(features, clusters, labels):
    """Score a clustering by the six metrics of the text paper's Tables 3 and 4.

    Args:
        features: float array [N, D], what was clustered; Euclidean distances.
        clusters: integer array [N], the predicted clusters.
        labels: integer array [N], the true classes.

    Returns:
        A dict of floats. The first three are nan where they are not defined, for one cluster or as
        many clusters as points, and scikit-learn's where the equations divide by 0.

        - ``dbi``: Davies-Bouldin index (Eqs. 9-10), >= 0, lower is better; a pair of clusters with
          one centre is left out (Eq. 9: infinite)
        - ``sil``: silhouette (Eqs. 11-13), mean over points, in [-1, 1]
        - ``chs``: Calinski-Harabasz score (Eqs. 14-16), >= 0; 1 if the points of each cluster are
          equal (Eq. 14: infinite)
        - ``nmi``: normalised mutual information (Eq. 17), in [0, 1]; arithmetic mean of the
          entropies
        - ``ari``: adjusted Rand index (Eqs. 18-19), in [-0.5, 1] (the paper says [0, 1])
        - ``acc``: clustering accuracy (Eq. 20), in [0, 1]

    Raises:
        ValueError: empty or unequal input, features that are not finite, or clusters or labels that
            are not integers.

    >>> points = [[0], [1], [8], [9]]
    >>> scores = clustering_scores(points, [0, 0, 1, 1], labels=[0, 0, 1, 0])
    >>> [round(scores[name], 3) for name in ("dbi", "sil", "chs", "nmi", "ari", "acc")]
    [0.125, 0.875, 128.0, 0.344, 0.0, 0.75]
    """
    clusters, labels = _ids("clusters", clusters), _ids("labels", labels)
    features = check_points(features, clusters=clusters, labels=labels)
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
    """Score clusters, int [N], against the true classes, int [N], without looking at the points.

    Returns ``nmi``, ``ari`` and ``acc`` of ``clustering_scores``.
    """
    return {
        "nmi": float(sk.normalized_mutual_info_score(labels, clusters)),
        "ari": float(sk.adjusted_rand_score(labels, clusters)),
        "acc": clustering_accuracy(labels, clusters),
    }


def dunn_index(features, clusters):
    """Return the Dunn index: the smallest distance between clusters over the largest within one.

    Dunn (1974), Sec. 4.3 of the ClusterBERT paper; distances are Euclidean, between two points.
    ``features`` is a float array [N, D], ``clusters`` an integer array [N]. >= 0, higher is better;
    nan where it is not defined: one cluster only, or no cluster with two distinct points. The time
    grows with N², the memory does not: 20,000 points in 128 dimensions take some ten seconds.
    Raises ValueError for empty, unequal or non-finite input.

    >>> dunn_index([[0, 0], [0, 1], [4, 0], [4, 2]], [0, 0, 1, 1])
    2.0
    """
    clusters = _ids("clusters", clusters)
    features = check_points(features, clusters=clusters)
    features = features[np.argsort(clusters)]  # cluster after cluster
    ends = np.unique(clusters, return_counts=True)[1].cumsum().tolist()
    ranges = list(pairwise([0, *ends]))
    # Squared distances from differences, in chunks: equal points are at distance 0 exactly.
    squared = partial(sk.pairwise_distances_chunked, metric="sqeuclidean", working_memory=64)
    within = (squared(features[start:end]) for start, end in ranges)
    between = (squared(features[start:end], features[end:]) for start, end in ranges[:-1])
    widest = max(chunk.max() for chunks in within for chunk in chunks)
    if len(ends) == 1 or widest == 0:
        return math.nan
    nearest = min(chunk.min() for chunks in between for chunk in chunks)
    return math.sqrt(nearest / widest)


def classification_scores(labels, predictions):
    """Score predicted classes by accuracy and F1, each in [0, 1].

    Returns ``acc``, ``f1_micro`` (the papers' F1; equal to accuracy here) and ``f1_macro``.
    ``labels`` and ``predictions`` are integer arrays [N]. Raises ValueError for empty, unequal or
    non-integer input.

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


def retrieval_scores(queries):
    """Score rankings by mean average precision and mean reciprocal rank.

    Sec. 4.4 of the ClusterBERT paper; over the whole ranking of each query. ``queries`` is any
    iterable of pairs of arrays [C], one pair a query: its candidates' similarities (larger is
    closer) and which of them are relevant (bool). Candidates of equal similarity count as in random
    order: the mean over all their orders (McSherry and Najork, 2008). Returns ``map`` and ``mrr``,
    each in (0, 1]. Raises ValueError for no query, unequal or non-finite input, and for a query
    whose candidates are all relevant or all not: TREC-QA and AskUbuntu are scored without those.

    >>> retrieval_scores([([0.9, 0.8, 0.1], [False, True, True]), ([0.5, 0.5], [True, False])])
    {'map': 0.6666666666666666, 'mrr': 0.625}
    """
    return {name: float(np.mean(values)) for name, values in query_scores(queries).items()}


def query_scores(queries):
    """Score each query by itself: the values that ``retrieval_scores`` takes the means of.

    Returns ``map`` and ``mrr``, each a list of one float per query.
    """
    scores = [_ranking(np.asarray(row, dtype=float), np.asarray(hits)) for row, hits in queries]
    if not scores:
        raise ValueError("queries must hold at least one query")
    precisions, reciprocals = zip(*scores, strict=True)
    return {"map": list(precisions), "mrr": list(reciprocals)}


def _ranking(scores, relevant):
    """Return one query's expected average precision and reciprocal rank."""
    like = scores.ndim == 1 and scores.shape == relevant.shape and relevant.dtype == bool
    if not like or not np.isfinite(scores).all():
        found = f"{scores} and {relevant} ({relevant.dtype})"
        wanted = "finite scores [C] and relevant as bool [C]"
        raise ValueError(f"a query must have {wanted}, got {found}")
    if relevant.all() or not relevant.any():
        wanted = "a query must have candidates that are relevant and that are not"
        found = f"{relevant.sum()} of {len(relevant)} relevant"
        raise ValueError(f"{wanted}, got {found}: leave it out")
    # All arrays from here on have one entry a rank; a tie is a group of candidates of equal score.
    _, tie, size = np.unique(-scores, return_inverse=True, return_counts=True)
    hits = np.bincount(tie, relevant)
    n, r = np.repeat(size, size), np.repeat(hits, size)  # candidates, and relevant ones, of the tie
    before = np.repeat(np.cumsum(size) - size, size)
    hits_before = np.repeat(np.cumsum(hits) - hits, size)
    rank = np.arange(1, len(scores) + 1)
    place = rank - before  # within the tie, from 1
    # Expected at this rank if a relevant candidate is there.
    precision = (hits_before + 1 + (place - 1) * (r - 1) / np.maximum(n - 1, 1)) / rank
    chance = r / (n - place + 1)  # of the first relevant candidate at this rank if none came before
    none_before = np.cumprod(np.append(1, 1 - chance))[:-1]
    return (r / n * precision).sum() / relevant.sum(), (none_before * chance / rank).sum()


def _ids(name, values):
    values = np.asarray(values)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name} must be a non-empty array of one axis, got shape {values.shape}")
    if not np.issubdtype(values.dtype, np.integer):
        found = f"{values.dtype} (first value {values[0]!r})"
        raise ValueError(f"{name} must be whole numbers, got {found}")
    return values


def check_points(features, **ids):
    """Return features as an array [N, D].

    Raises ValueError unless they are finite numbers, and as many rows as each of the ``ids`` has.
    """
    features = np.asarray(features)
    if features.ndim != 2 or not np.issubdtype(features.dtype, np.number):
        kind = f"{features.dtype} of shape {features.shape}"
        raise ValueError(f"features must be a numeric array [N, D], got {kind}")
    _check_lengths(features=features, **ids)
    finite = np.isfinite(features)
    if not finite.all():
        raise ValueError(f"features must be finite, got {features[~finite][0]} among them")
    return features


def _check_lengths(**arrays):
    if len({len(array) for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise ValueError(f"unequal lengths: {lengths}")
