"""The scores of clusterings, classifiers and rankings: each against its formula written out by
hand, and one table of properties for all.
"""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
import torch
from scipy.spatial import ConvexHull, KDTree
from scipy.spatial.distance import pdist

from snnl_lib.metrics import (
    check_points,
    classification_scores,
    clustering_accuracy,
    clustering_scores,
    dunn_index,
    external_scores,
    query_scores,
)

# ---------------------------------------------------------------- Eq. 20


def accuracy_by_brute_force(labels, clusters):
    """Eq. 20 literally: try every one-to-one mapping of clusters to classes; surplus clusters map
    to no class.
    """
    names, classes = sorted(set(clusters)), sorted(set(labels))
    targets = classes + [None] * max(0, len(names) - len(classes))
    mappings = (
        dict(zip(names, chosen, strict=True))
        for chosen in itertools.permutations(targets, len(names))
    )
    return max(
        sum(label == mapping[cluster] for label, cluster in zip(labels, clusters, strict=True))
        for mapping in mappings
    ) / len(labels)


@pytest.mark.parametrize(("classes", "clusters"), [(4, 4), (2, 5), (5, 2), (1, 4), (4, 1), (3, 6)])
def test_clustering_accuracy_is_the_best_over_all_one_to_one_mappings(classes, clusters):
    for seed in range(5):
        random = np.random.default_rng(seed)
        labels, found = random.integers(0, classes, 30), random.integers(0, clusters, 30)
        expected = accuracy_by_brute_force(labels.tolist(), found.tolist())
        assert clustering_accuracy(labels, found) == pytest.approx(expected, abs=1e-12)


# ---------------------------------------------------------------- Eqs. 9-19, from the formulas


def members(features, clusters):
    return [features[clusters == name] for name in sorted(set(clusters.tolist()))]


def dbi_by_hand(features, clusters):
    groups = members(features, clusters)
    centres = [group.mean(axis=0) for group in groups]
    spread = [
        np.mean([math.dist(x, centre) for x in group])
        for group, centre in zip(groups, centres, strict=True)
    ]
    k = range(len(groups))
    return sum(
        max((spread[i] + spread[j]) / math.dist(centres[i], centres[j]) for j in k if j != i)
        for i in k
    ) / len(groups)


def silhouette_by_hand(features, clusters):
    values = []
    for i, x in enumerate(features):
        away = {
            name: [
                math.dist(x, y) for j, y in enumerate(features) if clusters[j] == name and j != i
            ]
            for name in set(clusters.tolist())
        }
        own = away.pop(clusters[i])
        if not own:  # Eq. 12 divides by |C| - 1 = 0 here; Rousseeuw (1987) sets the value to 0
            values.append(0.0)
            continue
        a, b = sum(own) / len(own), min(sum(d) / len(d) for d in away.values())
        values.append((b - a) / max(a, b))
    return sum(values) / len(values)


def chs_by_hand(features, clusters):
    n, groups, centre = len(features), members(features, clusters), features.mean(axis=0)
    k, width = len(groups), features.shape[1]
    between, within = np.zeros((width, width)), np.zeros((width, width))
    for group in groups:
        mean = group.mean(axis=0)
        between += len(group) * np.outer(mean - centre, mean - centre)
        for x in group:
            within += np.outer(x - mean, x - mean)
    return np.trace(between) / np.trace(within) * (n - k) / (k - 1)


def nmi_by_hand(labels, clusters):
    n = len(labels)

    def probability(condition):
        return sum(map(condition, zip(labels, clusters, strict=True))) / n

    def entropy(values):
        return -sum(p * math.log(p) for p in (values.count(v) / n for v in set(values)))

    information = 0.0
    for y, c in set(zip(labels, clusters, strict=True)):
        both = probability(lambda pair, y=y, c=c: pair == (y, c))
        information += both * math.log(both / (labels.count(y) / n * (clusters.count(c) / n)))
    return 2 * information / (entropy(labels) + entropy(clusters))


def rand_index(labels, clusters):
    """Eq. 18, pair by pair."""
    pairs = list(itertools.combinations(range(len(labels)), 2))
    agreed = sum((labels[i] == labels[j]) == (clusters[i] == clusters[j]) for i, j in pairs)
    return agreed / len(pairs)


def ari_by_hand(labels, clusters):
    """Eq. 19; the expectation of RI is over all ways to assign the same cluster sizes: TP is then
    P·Q / all pairs.
    """
    pairs = list(itertools.combinations(range(len(labels)), 2))
    p, q = (sum(values[i] == values[j] for i, j in pairs) for values in (labels, clusters))
    expected_tp = p * q / len(pairs)
    expected_tn = (len(pairs) - p) * (len(pairs) - q) / len(pairs)
    expected = (expected_tp + expected_tn) / len(pairs)
    return (rand_index(labels, clusters) - expected) / (1 - expected)  # max(RI) is 1


def sample(seed, n=40, classes=3, clusters=4, dtype=np.float64):
    random = np.random.default_rng(seed)
    found = np.concatenate([np.arange(clusters), random.integers(0, clusters, n - clusters)])
    features = (random.normal(size=(n, 3)) + found[:, None] * 0.7).astype(dtype)
    return features, found, random.integers(0, classes, n)


INTERNAL = {"dbi": dbi_by_hand, "sil": silhouette_by_hand, "chs": chs_by_hand}
EXTERNAL = {"nmi": nmi_by_hand, "ari": ari_by_hand, "acc": accuracy_by_brute_force}


def assert_scores_equal_their_formulas(features, found, labels, tolerance=1e-9):
    scores = clustering_scores(features, found, labels)
    assert list(scores) == ["dbi", "sil", "chs", "nmi", "ari", "acc"]
    assert {type(value) for value in scores.values()} == {float}
    points, found, labels = np.asarray(features, dtype=float), np.asarray(found), list(labels)
    for name, by_hand in INTERNAL.items():
        assert scores[name] == pytest.approx(by_hand(points, found), rel=tolerance), name
    for name, by_hand in EXTERNAL.items():
        expected = pytest.approx(by_hand(labels, found.tolist()), rel=1e-9, abs=1e-12)
        assert scores[name] == expected, name
    external = {name: scores[name] for name in EXTERNAL}
    assert external_scores(found, np.asarray(labels)) == external


@pytest.mark.parametrize("clusters", [2, 4, 7])
def test_every_clustering_score_equals_its_formula_by_hand(clusters):
    for seed, (dtype, tolerance) in itertools.product(
        range(3), ((np.float64, 1e-9), (np.float32, 1e-4))
    ):
        arguments = sample(seed, clusters=clusters, dtype=dtype)
        assert_scores_equal_their_formulas(*arguments, tolerance)
    features, found, labels = sample(2)  # lists of integers are points too
    points = (features * 10).astype(int).tolist()
    assert_scores_equal_their_formulas(points, found.tolist(), labels.tolist())


@pytest.mark.filterwarnings("error")
def test_scores_of_odd_clusters_equal_their_formulas_too():
    features = np.random.default_rng(1).normal(size=(6, 2))
    for found in (
        [19, 4, 4, 7, 11, 7],  # numbers above the number of points
        [5, 0, 1, 2, 3, 3],  # all alone but two
        [0, 0, 0, 0, 0, 1],  # one apart
        [-7, 10**9, 10**9, -7, 10**9, -7],
    ):
        for labels in ([0, 0, 0, 1, 1, 1], [3] * 6, [5, 4, 3, 2, 1, 0]):
            assert_scores_equal_their_formulas(features, found, labels)


def test_internal_scores_ignore_units_origin_and_the_names_of_clusters():
    features, found, labels = sample(1)
    expected = pytest.approx(clustering_scores(features, found, labels), rel=1e-9)
    assert clustering_scores(features * 1000 + 5, found, labels) == expected
    for origin in (1e8, [1.7e9, 0, 0]):  # as for a column of times
        near = pytest.approx(clustering_scores(features, found, labels), rel=1e-6)
        assert clustering_scores(features + np.array(origin), found, labels) == near
    assert clustering_scores(features, 9 - 2 * found, labels) == expected


# ---------------------------------------------------------------- one table of properties


def score_of_clusters(name):
    points = np.arange(100)[:, None]
    return lambda labels, found: clustering_scores(points[: len(labels)], found, labels)[name]


def score_of_classes(name):
    return lambda labels, found: classification_scores(labels, found)[name]


# name: (score of (labels, found), whether the found names alone may change, lowest value)
PROPERTIES = {
    "clustering_accuracy": (clustering_accuracy, True, 0),
    "acc of clusters": (score_of_clusters("acc"), True, 0),
    "nmi": (score_of_clusters("nmi"), True, 0),
    "ari": (score_of_clusters("ari"), True, -0.5),
    "acc of classes": (score_of_classes("acc"), False, 0),
    "f1_micro": (score_of_classes("f1_micro"), False, 0),
    "f1_macro": (score_of_classes("f1_macro"), False, 0),
}


def two_labellings(seed=0, n=60, classes=4):
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, n)
    return labels, np.where(random.random(n) < 0.6, labels, random.integers(0, classes, n))


FORMS = [list, tuple, torch.as_tensor, np.int8, np.uint8, np.int32]


@pytest.mark.parametrize(
    ("score", "by_partition", "lowest"), PROPERTIES.values(), ids=list(PROPERTIES)
)
def test_every_score_has_the_properties_of_its_kind(score, by_partition, lowest):
    labels, found = two_labellings()
    value = score(labels, found)
    same = pytest.approx(value, abs=1e-12)
    assert score(labels, labels) == pytest.approx(1, abs=1e-12) and 0.1 < value < 0.95
    assert score(found, labels) == same
    names = np.array([11, -4, 1000, 7])
    assert score(names[labels], names[found]) == same
    assert (score(labels, (found + 1) % 4) == same) is by_partition
    order = np.random.default_rng(1).permutation(len(labels))
    assert score(labels[order], found[order]) == same
    for seed in range(10):
        random = np.random.default_rng(seed)
        assert lowest <= score(random.integers(0, 3, 8), random.integers(0, 4, 8)) <= 1
    for form in FORMS:
        again = score(form(labels), form(found))
        assert type(again) is float and again == value


BAD_IDS = {
    "empty": ([], []),
    "unequal lengths": ([0, 1, 1], [0, 1]),
    "fractions": ([0.5, 1.0], [0, 1]),
    "nan": ([0, 1], [0, math.nan]),
    "strings": (["a", "b"], [0, 1]),
    "bools": ([True, False], [0, 1]),
    "two axes": ([[0, 1]], [[0, 1]]),
    "ragged": ([[0], [1, 2]], [0, 1]),
    "a number": (0, [0]),
}


def test_every_score_refuses_ids_that_are_no_whole_numbers_of_the_same_length():
    for (bad, ids), (score, _, _) in itertools.product(BAD_IDS.items(), PROPERTIES.values()):
        for arguments in (ids, ids[::-1]):
            with pytest.raises((ValueError, TypeError) if bad == "a number" else ValueError):
                score(*arguments)


def test_a_refusal_names_the_argument():
    for labels, found, named in (
        ([0, 1, 1], [0, 1], "labels 3, (clusters|predictions) 2"),
        ([0.5], [0], "^labels .*0.5"),
        ([0], [0.5], "^(clusters|predictions) .*0.5"),
        (0, [0], "^labels "),
    ):
        for score in (clustering_accuracy, classification_scores):
            with pytest.raises(ValueError, match=named):
                score(labels, found)


# ---------------------------------------------------------------- clustering_scores at its edges


@pytest.mark.filterwarnings("error")
def test_internal_scores_are_nan_where_they_are_undefined_and_the_others_stay():
    points, halves = np.random.default_rng(0).normal(size=(6, 2)), [0, 0, 0, 1, 1, 1]
    for features, found, labels, external in (
        (points, [3] * 6, halves, {"nmi": 0.0, "ari": 0.0, "acc": 0.5}),
        (points, list(range(6)), halves, {"ari": 0.0, "acc": 2 / 6}),
        (points[:1], [0], [5], {"nmi": 1.0, "ari": 1.0, "acc": 1.0}),
    ):
        scores = clustering_scores(features, found, labels)
        assert all(math.isnan(scores[name]) for name in INTERNAL)
        assert {name: scores[name] for name in external} == pytest.approx(external, abs=1e-12)
        assert {type(value) for value in scores.values()} == {float}


@pytest.mark.filterwarnings("error")
def test_where_the_equations_divide_by_0_the_scores_are_what_is_documented():
    features, found, labels = sample(0)
    tight, same = (
        clustering_scores(values, found, labels)
        for values in (features * 1e-9, np.full((40, 3), 0.3))
    )
    # Scikit-learn's exception; by the formula the index does not change with the unit.
    assert tight["dbi"] == same["dbi"] == 0 and same["sil"] == pytest.approx(0, abs=1e-9)
    small = clustering_scores(features * 1e-6, found, labels)["dbi"]
    assert small == pytest.approx(dbi_by_hand(features, found))
    points = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], 4, axis=0)
    clusters = np.repeat([0, 1, 2], 4)
    assert clustering_scores(points, clusters, clusters)["chs"] == 1
    spread = points + 0.1 * np.tile([[1, 0], [-1, 0], [0, 1], [0, -1]], (3, 1))
    twice = np.concatenate([spread, spread[:4]])  # a fourth cluster with the centre of the first
    clusters = np.append(clusters, [3] * 4)
    assert 0 < clustering_scores(twice, clusters, clusters)["dbi"] < 1


FEATURES, FOUND = np.arange(8.0).reshape(4, 2), [0, 0, 1, 1]
BAD_POINTS = [
    (FEATURES[:0], [], "non-empty"),
    (FEATURES[:3], FOUND, "features 3, clusters 4"),
    (FEATURES[:, 0], FOUND, r"shape \(4,\)"),
    (FEATURES[None], FOUND, r"shape \(1, 4, 2\)"),
    (FEATURES.astype(str), FOUND, "numeric"),
    (FEATURES > 3, FOUND, "bool"),
    (np.where(FEATURES == 3, np.nan, FEATURES), FOUND, "contain nan"),
    (
        np.where(FEATURES == 3, np.inf, FEATURES),
        [0] * 4,
        "contain inf",
    ),  # though nothing reads them
    (FEATURES, 0, "^clusters "),
    (FEATURES, [0.0, 0.0, 1.0, 1.0], "^clusters .*0.0"),
]


def test_points_and_clusters_that_do_not_fit_are_refused():
    for features, clusters, named in BAD_POINTS:
        with pytest.raises(ValueError, match=named):
            dunn_index(features, clusters)
        with pytest.raises(ValueError, match=named):
            clustering_scores(features, clusters, clusters)


def test_clustering_scores_name_bad_labels_and_points_come_back_as_an_array():
    for labels, named in ((FOUND[:3], "labels 3"), (0, "^labels "), (list("aabb"), "^labels .*a")):
        with pytest.raises(ValueError, match=named):
            clustering_scores(FEATURES, FOUND, labels)
    points = check_points(FEATURES.tolist(), clusters=FOUND)
    assert type(points) is np.ndarray and np.array_equal(points, FEATURES)


def test_scores_leave_their_input_as_it_was():
    arrays = sample(3)
    copies = [array.copy() for array in arrays]
    clustering_scores(*arrays)
    dunn_index(*arrays[:2])
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, copies, strict=True))


# ---------------------------------------------------------------- the Dunn index


def dunn_by_hand(features, clusters):
    """The definition, pair by pair."""
    within, between = [0.0], []
    points = zip(np.asarray(features, dtype=float), clusters, strict=True)
    for (x, a), (y, b) in itertools.combinations(points, 2):
        (within if a == b else between).append(math.dist(x, y))
    return min(between) / max(within)


@pytest.mark.parametrize("clusters", [2, 4, 7, 39])
def test_dunn_index_equals_its_definition_pair_by_pair(clusters):
    for seed in range(4):
        features, found, _ = sample(seed, clusters=clusters)
        for dtype in (np.float64, np.float32, np.float16, np.int64):
            points = (features * 10).astype(dtype)
            expected = pytest.approx(dunn_by_hand(points, found), rel=1e-12)
            assert dunn_index(points, found) == expected


def test_dunn_index_ignores_units_origin_order_and_the_names_of_clusters():
    features, found, _ = sample(1)
    expected = pytest.approx(dunn_index(features, found), rel=1e-6)
    order = np.random.default_rng(0).permutation(len(found))
    assert dunn_index(features * 1e-9, found) == expected
    assert dunn_index(features + 1e6, found) == expected  # |x|² + |y|² - 2xy would be off here
    assert dunn_index(features, 9 - 2 * found) == expected
    assert dunn_index(features[order], found[order]) == expected


@pytest.mark.filterwarnings("error")
def test_dunn_index_of_degenerate_clusters():
    copies = [[0.1, 0.7, 0.3]] * 3 + [[1.1, 0.2, 0.9]] * 3
    for features, found, expected in (
        (np.eye(4), [3] * 4, math.nan),  # one cluster
        (np.eye(4), [0, 1, 2, 3], math.nan),  # all alone
        (np.eye(4), [19, 4, 4, 7], 1.0),  # all four points equally far apart
        ([[0.5]], [0], math.nan),
        (copies[:3], [0, 0, 1], math.nan),
        (copies, [0, 0, 0, 1, 1, 1], math.nan),  # only copies in each
        (copies, [0, 0, 0, 0, 1, 1], 0.0),  # a copy in both
        ([[0.0], [1.0], [1.0], [5.0]], [0, 0, 1, 1], 0.0),  # clusters that touch
    ):
        assert dunn_index(features, found) == pytest.approx(expected, nan_ok=True, abs=0)


def test_dunn_index_of_many_points_needs_little_memory():
    # A full matrix of distances would take 512 MB. Gap by a tree and width by convex hulls, which
    # need no matrix.
    found = np.random.default_rng(0).integers(0, 2, 8_000)
    features = np.random.default_rng(1).uniform(size=(8_000, 2)) + 1.5 * found[:, None]
    tracemalloc.start()
    value = dunn_index(features, found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    groups = features[found == 0], features[found == 1]
    gap = KDTree(groups[0]).query(groups[1])[0].min()
    width = max(pdist(group[ConvexHull(group).vertices]).max() for group in groups)
    assert value == pytest.approx(gap / width, rel=1e-12)
    assert peak < 200e6


# ---------------------------------------------------------------- classification


def f1_by_hand(labels, predictions, classes):
    """Return (micro, macro) from the counts of each class."""
    counts = []
    for name in classes:
        tp = sum(y == name and p == name for y, p in zip(labels, predictions, strict=True))
        fp = sum(y != name and p == name for y, p in zip(labels, predictions, strict=True))
        fn = sum(y == name and p != name for y, p in zip(labels, predictions, strict=True))
        counts.append((tp, fp, fn))
    tp, fp, fn = map(sum, zip(*counts, strict=True))
    macro = sum(2 * t / (2 * t + p + n) for t, p, n in counts) / len(classes)
    return 2 * tp / (2 * tp + fp + fn), macro


@pytest.mark.filterwarnings("error")
def test_classification_scores_equal_counting_by_hand():
    for seed, classes in itertools.product(range(3), (2, 4)):
        labels, predictions = two_labellings(seed, classes=classes)
        scores = classification_scores(labels, predictions)
        micro, macro = f1_by_hand(labels, predictions, range(classes))
        accuracy = np.mean(labels == predictions)
        expected = {"acc": accuracy, "f1_micro": micro, "f1_macro": macro}
        assert list(scores) == list(expected) and scores == pytest.approx(expected, rel=1e-12)
        assert micro == pytest.approx(accuracy) and macro != pytest.approx(micro, abs=1e-6)
    scores = classification_scores([0, 0, 1, 1], [0, 0, 0, 0])  # a class that is never predicted
    assert scores == pytest.approx({"acc": 0.5, "f1_micro": 0.5, "f1_macro": (4 / 6 + 0) / 2})


# ---------------------------------------------------------------- rankings


def ranking_by_hand(scores, relevant):
    """Average precision and reciprocal rank, the mean over all orders that scores leave open."""
    found = []
    for order in itertools.permutations(range(len(scores))):
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order)):
            ranks = [rank for rank, i in enumerate(order, start=1) if relevant[i]]
            precision = sum(count / rank for count, rank in enumerate(ranks, start=1)) / len(ranks)
            found.append((precision, 1 / ranks[0]))
    return np.mean(found, axis=0)


def test_scores_of_rankings_worked_out_by_hand():
    queries, precisions, reciprocals = zip(
        (([3, 2, 1], [True, False, False]), 1, 1),
        (([3, 2, 1], [False, False, True]), 1 / 3, 1 / 3),
        (([5, 1, 4, 3, 2], [False, True, True, False, True]), (1 / 2 + 2 / 4 + 3 / 5) / 3, 1 / 2),
        (([3, 2, 1], [True, False, True]), (1 + 2 / 3) / 2, 1),
        (([7, 7], [True, False]), 3 / 4, 3 / 4),  # first in one order, second in the other
        strict=True,
    )
    scores = query_scores(iter(queries))
    assert scores["map"] == pytest.approx(precisions, rel=1e-12)
    assert scores["mrr"] == pytest.approx(reciprocals, rel=1e-12)
    assert {type(value) for values in scores.values() for value in values} == {float}


def test_scores_of_rankings_take_similarities_of_every_kind_of_number():
    for dtype in (bool, np.uint8, np.int8, np.float16):
        queries = [(np.array(row, dtype=dtype), [True, False]) for row in ([1, 0], [0, 1])]
        assert query_scores(queries) == {"map": [1, 1 / 2], "mrr": [1, 1 / 2]}


def test_scores_of_rankings_are_the_mean_over_all_orders_of_equal_candidates():
    for seed in range(20):
        random = np.random.default_rng(seed)
        count, levels = random.integers(2, 8), random.integers(1, 5)
        scores = random.integers(0, levels, count) / 7
        relevant = random.permutation(np.arange(count) < random.integers(1, count))
        precision, reciprocal = ranking_by_hand(scores, relevant)
        expected = pytest.approx([precision, reciprocal], rel=1e-12)
        assert [score for (score,) in query_scores([(scores, relevant)]).values()] == expected


def test_scores_of_rankings_refuse_bad_input_and_show_it():
    for queries, named in (
        ([], "query"),
        ([([1.0, math.nan], [True, False])], "finite .* nan"),
        ([([1.0, -math.inf], [True, False])], "finite"),
        ([([1.0, 2.0, 3.0], [True, False])], r"similarities \[C\]"),
        ([([1.0, 2.0], [True, False, True])], r"similarities \[C\]"),
        ([(1.0, True)], r"similarities \[C\]"),
        ([([[1.0, 2.0]], [[True, False]])], r"similarities \[C\]"),
        ([([1.0, 2.0], [1, 0])], r"bool .*\[1 0\] \(int64\)"),
        ([([1.0, 2.0], ["yes", "no"])], "bool"),
        ([([], [])], "got"),
        ([([1.0, 2.0], [True, False]), ([1.0, 2.0], [True, True])], "2 relevant of 2"),
        ([([1.0, 2.0], [False, False])], "0 relevant of 2"),
    ):
        with pytest.raises(ValueError, match=named):
            query_scores(queries)
