"""The scores of Tables 1-4, the Dunn index and the scores of rankings: each written out by hand
beside them, and one table of properties for all.
"""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
import torch
from scipy.spatial import ConvexHull, KDTree
from scipy.spatial.distance import pdist
from sklearn.metrics import average_precision_score, label_ranking_average_precision_score

from snnl_lib.metrics import (
    classification_scores,
    clustering_accuracy,
    clustering_scores,
    dunn_index,
    retrieval_scores,
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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("classes", "clusters"), [(4, 4), (2, 5), (5, 2), (1, 4), (4, 1), (3, 6)])
def test_clustering_accuracy_is_the_best_over_all_one_to_one_mappings(classes, clusters, seed):
    random = np.random.default_rng(seed)
    labels, found = random.integers(0, classes, 30), random.integers(0, clusters, 30)
    expected = accuracy_by_brute_force(labels.tolist(), found.tolist())
    assert clustering_accuracy(labels, found) == pytest.approx(expected, abs=1e-12)


def test_clustering_accuracy_is_not_the_greedy_match():
    # The largest cell (cluster 0, class 0: 3) leaves only 0 for the other; giving it up wins
    # 2 + 2 = 4.
    labels, clusters = [0] * 3 + [1] * 2 + [0] * 2, [0] * 3 + [0] * 2 + [1] * 2
    assert clustering_accuracy(labels, clusters) == 4 / 7


@pytest.mark.parametrize(
    ("labels", "clusters", "expected"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], 1.0),
        ([0, 0, 0, 0], [0, 1, 2, 3], 0.25),  # more clusters than classes: the surplus is wrong
        ([0, 1, 2, 3], [0, 0, 0, 0], 0.25),  # fewer: one class at most is found
        ([7, 7, -3, -3], [10**9, 10**9, 10**9, 5], 0.75),  # any numbering
        ([4], [9], 1.0),
    ],
)
def test_clustering_accuracy_of_cases_counted_by_hand(labels, clusters, expected):
    assert clustering_accuracy(labels, clusters) == expected


# ---------------------------------------------------------------- Eqs. 9-19, written from the
# formulas


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
    return sum((labels[i] == labels[j]) == (clusters[i] == clusters[j]) for i, j in pairs) / len(
        pairs
    )


def ari_by_hand(labels, clusters):
    """Eq. 19; the expectation of RI is over all ways to hand out the same cluster sizes: TP is then
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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("clusters", [2, 4, 7])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-4)])
def test_every_clustering_score_equals_its_formula_by_hand(clusters, dtype, tolerance, seed):
    features, found, labels = sample(seed, clusters=clusters, dtype=dtype)
    scores = clustering_scores(features, found, labels)
    assert list(scores) == ["dbi", "sil", "chs", "nmi", "ari", "acc"]
    for name, by_hand in INTERNAL.items():
        assert scores[name] == pytest.approx(
            by_hand(features.astype(np.float64), found), rel=tolerance
        ), name
    for name, by_hand in EXTERNAL.items():
        assert scores[name] == pytest.approx(
            by_hand(labels.tolist(), found.tolist()), rel=1e-9, abs=1e-12
        ), name


def test_a_cluster_of_one_point_has_silhouette_0_and_no_width():
    features, found = np.array([[0.0], [1.0], [10.0]]), np.array([0, 0, 1])
    scores = clustering_scores(features, found, found)
    assert scores["sil"] == pytest.approx(
        (9 / 10 + 8 / 9 + 0) / 3
    )  # a = 1 and b = 10, then a = 1 and b = 9
    assert scores["dbi"] == pytest.approx(0.5 / 9.5)
    assert scores["chs"] == pytest.approx(chs_by_hand(features, found))


def test_ari_is_corrected_by_the_mean_of_ri_over_all_ways_to_deal_out_the_clusters():
    labels, clusters = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 1, 0]
    dealt = [rand_index(labels, order) for order in itertools.permutations(clusters)]
    expected = sum(dealt) / len(dealt)
    ari = clustering_scores(np.zeros((6, 1)), clusters, labels)["ari"]
    assert ari == pytest.approx(
        (rand_index(labels, clusters) - expected) / (1 - expected), rel=1e-9
    )


def test_scores_move_the_right_way_when_clusters_part():
    features, found, labels = sample(0, clusters=3)
    near, far = (
        clustering_scores(features + shift * found[:, None], found, labels) for shift in (0, 20)
    )
    assert far["dbi"] < near["dbi"] and far["sil"] > near["sil"] and far["chs"] > near["chs"]
    assert [far[name] for name in EXTERNAL] == [
        near[name] for name in EXTERNAL
    ]  # these never look at the features


@pytest.mark.parametrize("name", INTERNAL)
def test_internal_scores_ignore_units_origin_and_the_names_of_clusters(name):
    features, found, labels = sample(1)
    expected = pytest.approx(clustering_scores(features, found, labels)[name], rel=1e-9)
    assert clustering_scores(features * 1000 + 5, found, labels)[name] == expected
    assert clustering_scores(features, 9 - 2 * found, labels)[name] == expected


# ---------------------------------------------------------------- one table of properties


def score_of_clusters(name):
    return lambda labels, found: clustering_scores(np.arange(len(labels))[:, None], found, labels)[
        name
    ]


def score_of_classes(name):
    return lambda labels, found: classification_scores(labels, found)[name]


# name: (score of (labels, found), unmoved when the found names alone change, lowest possible
# value). All are symmetric.
PROPERTIES = {
    "clustering_accuracy": (clustering_accuracy, True, 0),
    "acc of clusters": (score_of_clusters("acc"), True, 0),
    "nmi": (score_of_clusters("nmi"), True, 0),
    "ari": (score_of_clusters("ari"), True, -0.5),
    "acc of classes": (score_of_classes("acc"), False, 0),
    "f1_micro": (score_of_classes("f1_micro"), False, 0),
    "f1_macro": (score_of_classes("f1_macro"), False, 0),
}
every_score = pytest.mark.parametrize(
    ("score", "by_partition", "lowest"), PROPERTIES.values(), ids=PROPERTIES
)


def two_labellings(seed=0, n=60, classes=4):
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, n)
    return labels, np.where(random.random(n) < 0.6, labels, random.integers(0, classes, n))


@every_score
def test_score_is_1_for_a_perfect_answer_and_less_for_another(score, by_partition, lowest):
    labels, found = two_labellings()
    assert score(labels, labels) == pytest.approx(1, abs=1e-12)
    assert 0.1 < score(labels, found) < 0.95


@every_score
def test_score_stays_in_its_range(score, by_partition, lowest):
    for seed in range(10):
        random = np.random.default_rng(seed)
        assert lowest <= score(random.integers(0, 3, 8), random.integers(0, 4, 8)) <= 1


@every_score
def test_score_is_the_same_with_the_arguments_swapped(score, by_partition, lowest):
    for classes in (2, 4):
        labels, found = two_labellings(classes=classes)
        assert score(labels, found) == pytest.approx(score(found, labels), abs=1e-12)


@every_score
def test_score_ignores_new_names_for_both_and_a_clustering_score_for_one(
    score, by_partition, lowest
):
    labels, found = two_labellings()
    names = np.array([11, -4, 1000, 7])
    before = pytest.approx(score(labels, found), abs=1e-12)
    assert score(names[labels], names[found]) == before
    rotated = (found + 1) % 4
    assert (score(labels, rotated) == before) is by_partition


@every_score
def test_score_ignores_the_order_of_the_points(score, by_partition, lowest):
    labels, found = two_labellings()
    order = np.random.default_rng(1).permutation(len(labels))
    assert score(labels[order], found[order]) == pytest.approx(score(labels, found), abs=1e-12)


@every_score
@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        lambda ids: ids.astype(np.int8),
        lambda ids: ids.astype(np.uint8),
        lambda ids: ids.astype(np.int32),
        torch.as_tensor,
    ],
    ids=["list", "tuple", "int8", "uint8", "int32", "torch"],
)
def test_score_is_a_python_float_for_every_form_of_input(score, by_partition, lowest, form):
    labels, found = two_labellings()
    value = score(form(labels), form(found))
    assert type(value) is float
    assert value == score(labels, found)


BAD_IDS = {
    "empty": ([], []),
    "unequal lengths": ([0, 1, 1], [0, 1]),
    "fractions": ([0.5, 1.0], [0, 1]),
    "nan": ([0, 1], [0, math.nan]),
    "strings": (["a", "b"], [0, 1]),
    "truth values": ([True, False], [0, 1]),
    "two axes": ([[0, 1]], [[0, 1]]),
    "ragged": ([[0], [1, 2]], [0, 1]),
}


@pytest.mark.parametrize("bad", BAD_IDS)
@every_score
def test_score_refuses(score, by_partition, lowest, bad):
    labels, found = BAD_IDS[bad]
    for arguments in ((labels, found), (found, labels)):
        with pytest.raises(ValueError):
            score(*arguments)


@pytest.mark.parametrize("score", [clustering_accuracy, classification_scores])
@pytest.mark.parametrize(
    ("labels", "found", "shown"),
    [
        ([0, 1, 1], [0, 1], "labels 3, (clusters|predictions) 2"),
        ([0.5], [0], "^labels must be whole"),
        ([0], [0.5], "^(clusters|predictions) must be whole"),
        (0, [0], "^labels must be a non-empty array of one axis"),
    ],
)
def test_score_says_which_of_its_arguments_is_wrong(score, labels, found, shown):
    with pytest.raises(ValueError, match=shown):
        score(labels, found)


# ---------------------------------------------------------------- clustering_scores at its edges


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("found", "external"),
    [([3] * 6, {"nmi": 0.0, "ari": 0.0, "acc": 0.5}), (list(range(6)), {"ari": 0.0, "acc": 2 / 6})],
    ids=["one cluster", "as many clusters as points"],
)
def test_internal_scores_are_nan_where_they_are_not_defined_and_the_others_stay(found, external):
    labels = [0, 0, 0, 1, 1, 1]
    scores = clustering_scores(np.random.default_rng(0).normal(size=(6, 2)), found, labels)
    assert all(math.isnan(scores[name]) for name in INTERNAL)
    assert {name: scores[name] for name in external} == pytest.approx(external, abs=1e-12)
    assert {type(value) for value in scores.values()} == {float}


@pytest.mark.filterwarnings("error")
def test_a_single_point_has_a_perfect_external_score_and_no_internal_one():
    scores = clustering_scores([[1.0, 2.0]], [0], [5])
    assert scores["acc"] == scores["nmi"] == scores["ari"] == 1
    assert all(math.isnan(scores[name]) for name in INTERNAL)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "found",
    [
        [19, 4, 4, 7, 11, 7],
        [5, 0, 1, 2, 3, 3],
        [0, 0, 0, 0, 0, 1],
        [-7, 10**9, 10**9, -7, 10**9, -7],
    ],
    ids=["ids of k > n", "all alone but two", "one apart", "any numbers"],
)
@pytest.mark.parametrize(
    "labels",
    [[0, 0, 0, 1, 1, 1], [3, 3, 3, 3, 3, 3], [5, 4, 3, 2, 1, 0]],
    ids=["two classes", "one class", "a class each"],
)
def test_scores_of_odd_clusters_still_equal_their_formulas(found, labels):
    features = np.random.default_rng(1).normal(size=(6, 2))
    scores = clustering_scores(features, found, labels)
    for name, by_hand in INTERNAL.items():
        assert scores[name] == pytest.approx(by_hand(features, np.array(found)), rel=1e-9), name
    for name, by_hand in EXTERNAL.items():
        assert scores[name] == pytest.approx(by_hand(labels, found), rel=1e-9, abs=1e-12), name


@pytest.mark.filterwarnings("error")
def test_external_scores_of_every_point_a_cluster_of_its_own_equal_their_formulas():
    labels, found = [0, 0, 0, 0, 1, 1, 2], [6, 5, 4, 3, 2, 1, 0]
    scores = clustering_scores(np.zeros((7, 1)), found, labels)
    assert {name: scores[name] for name in EXTERNAL} == pytest.approx(
        {name: by_hand(labels, found) for name, by_hand in EXTERNAL.items()}, abs=1e-12
    )


@pytest.mark.filterwarnings("error")
def test_a_collapsed_code_gets_the_scores_that_the_chapter_tells_of():
    features, found, labels = sample(0)
    tight, same = (
        clustering_scores(values, found, labels)
        for values in (features * 1e-9, np.full((40, 3), 0.3))
    )
    assert (
        tight["dbi"] == same["dbi"] == 0
    )  # scikit-learn's exception; by the formula the index does not change with the unit
    assert same["sil"] == pytest.approx(0, abs=1e-9)
    assert dbi_by_hand(features * 1e-9, found) == pytest.approx(dbi_by_hand(features, found))
    assert clustering_scores(features * 1e-6, found, labels)["dbi"] == pytest.approx(
        dbi_by_hand(features, found)
    )


def test_clustering_scores_are_python_floats_from_lists_and_integers():
    features, found, labels = sample(2)
    features = (features * 10).astype(int)
    expected = clustering_scores(features.astype(float), found, labels)
    scores = clustering_scores(features.tolist(), found.tolist(), labels.tolist())
    assert scores == pytest.approx(expected) and {type(value) for value in scores.values()} == {
        float
    }


def test_clustering_scores_leave_their_input_as_it_was():
    arrays = sample(3)
    copies = [array.copy() for array in arrays]
    clustering_scores(*arrays)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, copies, strict=True))


FEATURES, FOUND = np.arange(8.0).reshape(4, 2), [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("features", "clusters", "labels", "shown"),
    [
        (FEATURES[:0], [], [], "non-empty"),
        (FEATURES[:3], FOUND, FOUND, "features 3, clusters 4, labels 4"),
        (FEATURES, FOUND[:3], FOUND, "clusters 3"),
        (FEATURES, FOUND, FOUND[:3], "labels 3"),
        (FEATURES[:, 0], FOUND, FOUND, r"shape \(4,\)"),
        (FEATURES[None], FOUND, FOUND, r"shape \(1, 4, 2\)"),
        (FEATURES.astype(str), FOUND, FOUND, "numeric"),
        (FEATURES > 3, FOUND, FOUND, "bool"),
        (np.where(FEATURES == 3, np.nan, FEATURES), FOUND, FOUND, "got nan"),
        (np.where(FEATURES == 3, -np.inf, FEATURES), FOUND, FOUND, "got -inf"),
        (
            np.where(FEATURES == 3, np.inf, FEATURES),
            [0] * 4,
            FOUND,
            "got inf",
        ),  # with one cluster too, where nothing reads them
        (FEATURES, 0, FOUND, "clusters must be a non-empty array of one axis"),
        (FEATURES, FOUND, 0, "labels must be a non-empty array of one axis"),
        (FEATURES, [0.0, 0.0, 1.0, 1.0], FOUND, "clusters must be whole numbers"),
        (FEATURES, FOUND, list("aabb"), "labels must be whole numbers"),
    ],
)
def test_clustering_scores_refuse_bad_input_and_say_what(features, clusters, labels, shown):
    with pytest.raises(ValueError, match=shown):
        clustering_scores(features, clusters, labels)


# ---------------------------------------------------------------- the Dunn index


def dunn_by_hand(features, clusters):
    """The definition, pair by pair; None where it divides by 0 or has no gap."""
    within, between = [0.0], []
    for (x, a), (y, b) in itertools.combinations(
        zip(np.asarray(features, dtype=float), clusters, strict=True), 2
    ):
        (within if a == b else between).append(math.dist(x, y))
    return min(between) / max(within) if between and max(within) else None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("clusters", [2, 4, 7, 39])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64])
def test_dunn_index_equals_its_definition_pair_by_pair(clusters, dtype, seed):
    features, found, _ = sample(seed, clusters=clusters)
    features = (features * 10).astype(dtype)
    assert dunn_index(features, found) == pytest.approx(dunn_by_hand(features, found), rel=1e-12)


def test_dunn_index_of_a_case_worked_out_by_hand():
    # Widest: (0, 0) to (3, 4), 5. Narrowest gap: (3, 4) to (3, 14), 10; the single point adds
    # no width.
    features, found = [[0, 0], [3, 4], [3, 14], [3, 15], [60, 0]], [2, 2, 0, 0, 9]
    assert dunn_index(features, found) == 2
    assert type(dunn_index(features, found)) is float


def test_dunn_index_grows_when_clusters_part_and_falls_for_one_stray_point():
    features, found, _ = sample(0, clusters=3)
    values = [dunn_index(features + shift * found[:, None], found) for shift in (0, 5, 20)]
    assert values[0] < values[1] < values[2]
    strayed = np.vstack([features, [[0, 0, 100]]])
    assert dunn_index(strayed, [*found, 0]) < values[0] / 2


def test_dunn_index_ignores_units_origin_order_and_the_names_of_clusters():
    features, found, _ = sample(1)
    expected = pytest.approx(dunn_index(features, found), rel=1e-6)
    assert dunn_index(features * 1e-9, found) == expected
    assert (
        dunn_index(features + 1e6, found) == expected
    )  # distances from differences of squares would be off here
    assert dunn_index(features, 9 - 2 * found) == expected
    order = np.random.default_rng(0).permutation(len(found))
    assert dunn_index(features[order], found[order]) == expected


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("features", "found", "expected"),
    [
        (np.eye(4), [3] * 4, math.nan),
        (np.eye(4), [0, 1, 2, 3], math.nan),
        (np.eye(4), [19, 4, 4, 7], 1.0),  # ids of k > n; all four points equally far apart
        ([[0.5]], [0], math.nan),
        ([[0.1, 0.7, 0.3]] * 5, [0, 0, 0, 1, 1], math.nan),
        ([[0.1, 0.7, 0.3]] * 3 + [[1.1, 0.2, 0.9]] * 3, [0, 0, 0, 1, 1, 1], math.nan),
        ([[0.1, 0.7, 0.3]] * 3 + [[1.1, 0.2, 0.9]] * 3, [0, 0, 0, 0, 1, 1], 0.0),
        ([[0.0], [1.0], [1.0], [5.0]], [0, 0, 1, 1], 0.0),
    ],
    ids=[
        "one cluster",
        "all alone",
        "k > n",
        "one point",
        "one place",
        "only copies in each",
        "a copy in two",
        "clusters that touch",
    ],
)
def test_dunn_index_of_degenerate_clusters(features, found, expected):
    assert dunn_index(features, found) == pytest.approx(expected, nan_ok=True, abs=0)


def test_dunn_index_of_many_points_needs_little_memory():
    # A full matrix of distances would take 1.2 GB. Gap by a tree and width by convex hulls,
    # which need no matrix.
    found = np.random.default_rng(0).integers(0, 2, 12_000)
    features = np.random.default_rng(1).uniform(size=(12_000, 2)) + 1.5 * found[:, None]
    tracemalloc.start()
    value = dunn_index(features, found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    first, second = features[found == 0], features[found == 1]
    gap = KDTree(first).query(second)[0].min()
    assert value == pytest.approx(
        gap / max(pdist(group[ConvexHull(group).vertices]).max() for group in (first, second)),
        rel=1e-12,
    )
    assert peak < 200e6


def test_dunn_index_leaves_its_input_as_it_was():
    features, found, _ = sample(3)
    copies = features.copy(), found.copy()
    dunn_index(features, found)
    assert np.array_equal(features, copies[0]) and np.array_equal(found, copies[1])


@pytest.mark.parametrize(
    ("features", "clusters", "shown"),
    [
        (FEATURES[:0], [], "clusters must be a non-empty array"),
        (FEATURES[:3], FOUND, "features 3, clusters 4"),
        (FEATURES[:, 0], FOUND, r"shape \(4,\)"),
        (FEATURES.astype(str), FOUND, "numeric"),
        (np.where(FEATURES == 3, np.nan, FEATURES), FOUND, "got nan"),
        (np.where(FEATURES == 3, np.inf, FEATURES), [0] * 4, "got inf"),
        (FEATURES, [0.0, 0.0, 1.0, 1.0], "clusters must be whole numbers"),
        (FEATURES, [0, 0, 1, math.nan], "clusters must be whole numbers"),
    ],
)
def test_dunn_index_refuses_bad_input_and_says_what(features, clusters, shown):
    with pytest.raises(ValueError, match=shown):
        dunn_index(features, clusters)


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
    return 2 * tp / (2 * tp + fp + fn), sum(2 * t / (2 * t + p + n) for t, p, n in counts) / len(
        classes
    )


@pytest.mark.parametrize("seed", range(3))
def test_classification_scores_equal_counting_by_hand(seed):
    labels, predictions = two_labellings(seed)
    scores = classification_scores(labels, predictions)
    micro, macro = f1_by_hand(labels, predictions, range(4))
    assert list(scores) == ["acc", "f1_micro", "f1_macro"]
    assert scores == pytest.approx(
        {"acc": np.mean(labels == predictions), "f1_micro": micro, "f1_macro": macro}, rel=1e-12
    )
    assert scores["f1_macro"] != pytest.approx(scores["f1_micro"], abs=1e-6)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_micro_f1_is_accuracy_as_the_chapter_says_of_the_papers_f1(classes):
    # With two classes a "binary" F1 would differ; the paper's F1 column equals its accuracy column.
    for seed in range(5):
        labels, predictions = two_labellings(seed, classes=classes)
        scores = classification_scores(labels, predictions)
        assert scores["f1_micro"] == pytest.approx(scores["acc"], abs=1e-12)


@pytest.mark.filterwarnings("error")
def test_a_class_never_predicted_counts_as_0_in_macro_f1_without_a_warning():
    scores = classification_scores([0, 0, 1, 1], [0, 0, 0, 0])
    assert scores == pytest.approx({"acc": 0.5, "f1_micro": 0.5, "f1_macro": (4 / 6 + 0) / 2})


# ---------------------------------------------------------------- rankings


def ranking_by_hand(scores, relevant):
    """Average precision and reciprocal rank, the mean over all orders that scores leave open."""
    found = []
    for order in itertools.permutations(range(len(scores))):
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order)):
            ranks = [rank for rank, i in enumerate(order, start=1) if relevant[i]]
            found.append(
                (
                    sum(count / rank for count, rank in enumerate(ranks, start=1)) / len(ranks),
                    1 / ranks[0],
                )
            )
    return np.mean(found, axis=0)


@pytest.mark.parametrize(
    ("queries", "precision", "reciprocal"),
    [
        ([([3, 2, 1], [True, False, False])], 1, 1),
        ([([3, 2, 1], [False, False, True])], 1 / 3, 1 / 3),
        (
            [([0.9, 0.1, 0.8, 0.7, 0.2], [False, True, True, False, True])],
            (1 / 2 + 2 / 4 + 3 / 5) / 3,
            1 / 2,
        ),
        (
            [([3, 2, 1], [True, False, True]), ([-1, -2], [False, True])],
            ((1 + 2 / 3) / 2 + 1 / 2) / 2,
            3 / 4,
        ),
        ([([7, 7], [True, False])], 3 / 4, 3 / 4),  # first in one order, second in the other
        (
            [([7, 7, 7], [True, True, False])],
            ((1 + 1) + (1 + 2 / 3) + (1 / 2 + 2 / 3)) / 6,
            (1 + 1 + 1 / 2) / 3,
        ),
        (
            [([9, 7, 7, 5], [False, True, False, True])],
            ((1 / 2 + 2 / 4) / 2 + (1 / 3 + 2 / 4) / 2) / 2,
            (1 / 2 + 1 / 3) / 2,
        ),
    ],
)
def test_retrieval_scores_of_rankings_worked_out_by_hand(queries, precision, reciprocal):
    scores = retrieval_scores(queries)
    assert scores == pytest.approx({"map": precision, "mrr": reciprocal}, rel=1e-12)
    assert {type(value) for value in scores.values()} == {float}


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.float16])
def test_retrieval_scores_take_similarities_of_every_kind_of_number(dtype):
    scores = retrieval_scores(
        [
            (np.array([1, 0], dtype=dtype), [True, False]),
            (np.array([0, 1], dtype=dtype), [True, False]),
        ]
    )
    assert scores == {"map": 3 / 4, "mrr": 3 / 4}  # first, then second of two


@pytest.mark.parametrize("seed", range(20))
def test_retrieval_scores_are_the_mean_over_all_orders_of_equal_candidates(seed):
    random = np.random.default_rng(seed)
    count, levels = random.integers(2, 8), random.integers(1, 5)
    scores, relevant = (
        random.integers(0, levels, count) / 7,
        random.permutation(np.arange(count) < random.integers(1, count)),
    )
    precision, reciprocal = ranking_by_hand(scores, relevant)
    assert retrieval_scores([(scores, relevant)]) == pytest.approx(
        {"map": precision, "mrr": reciprocal}, rel=1e-12
    )


def rankings(seed=0, queries=30):
    random = np.random.default_rng(seed)
    counts = random.integers(2, 60, queries)
    return [
        (random.normal(size=n), random.permutation(np.arange(n) < random.integers(1, n)))
        for n in counts
    ]


def test_retrieval_scores_equal_scikit_learns_where_no_candidates_are_equal():
    queries = rankings()
    assert retrieval_scores(queries)["map"] == pytest.approx(
        np.mean([average_precision_score(relevant, scores) for scores, relevant in queries]),
        rel=1e-12,
    )
    single = [
        (scores, np.arange(len(scores)) == len(scores) // 2) for scores, _ in queries
    ]  # with one relevant candidate both are 1 over its rank
    expected = np.mean(
        [
            label_ranking_average_precision_score(relevant[None], scores[None])
            for scores, relevant in single
        ]
    )
    assert retrieval_scores(single) == pytest.approx({"map": expected, "mrr": expected}, rel=1e-12)


def test_retrieval_scores_ignore_the_order_of_candidates_and_queries_and_the_scale():
    queries = [
        (np.round(scores), relevant) for scores, relevant in rankings(1)
    ]  # with many equal ones
    before = retrieval_scores(queries)
    order = np.random.default_rng(2).permutation
    shuffled = [
        (scores[mix], relevant[mix]) for scores, relevant in queries for mix in [order(len(scores))]
    ]
    assert retrieval_scores(shuffled) == before
    assert retrieval_scores(queries[::-1]) == pytest.approx(before, rel=1e-12)
    assert (
        retrieval_scores((np.exp(scores / 3), relevant) for scores, relevant in queries) == before
    )


def test_retrieval_scores_of_a_perfect_ranking_are_1_and_of_equal_candidates_those_of_a_guess():
    queries = rankings(3)
    perfect = retrieval_scores((relevant.astype(float), relevant) for _, relevant in queries)
    assert perfect == pytest.approx({"map": 1, "mrr": 1}, rel=1e-12)
    random = np.random.default_rng(4)
    guesses = [
        retrieval_scores((random.random(len(relevant)), relevant) for _, relevant in queries)
        for _ in range(400)
    ]
    equal = retrieval_scores((np.zeros(len(relevant)), relevant) for _, relevant in queries)
    for name in ("map", "mrr"):
        values = [guess[name] for guess in guesses]
        assert abs(equal[name] - np.mean(values)) < 4 * np.std(values) / 20


def test_retrieval_scores_of_many_equal_candidates_need_no_large_numbers():
    relevant = np.arange(5000) < 2500
    scores = retrieval_scores([(np.zeros(5000), relevant)])
    assert scores["map"] == pytest.approx(0.5, abs=0.001) and scores["mrr"] == pytest.approx(
        math.log(2), abs=0.001
    )


@pytest.mark.parametrize(
    ("queries", "shown"),
    [
        ([], "at least one query"),
        ([([1.0, math.nan], [True, False])], r"finite scores \[C\].* nan"),
        ([([1.0, -math.inf], [True, False])], "finite scores"),
        ([([1.0, 2.0, 3.0], [True, False])], "finite scores"),
        ([([1.0, 2.0], [True, False, True])], "finite scores"),
        ([(1.0, True)], "finite scores"),
        ([([[1.0, 2.0]], [[True, False]])], "finite scores"),
        ([([1.0, 2.0], [1, 0])], r"relevant as bool \[C\], .*\[1 0\] \(int64\)"),
        ([([1.0, 2.0], ["yes", "no"])], "relevant as bool"),
        ([([], [])], "finite scores"),
        (
            [([1.0, 2.0], [True, False]), ([1.0, 2.0], [True, True])],
            "2 of 2 relevant: leave it out",
        ),
        ([([1.0, 2.0], [False, False])], "0 of 2 relevant: leave it out"),
    ],
)
def test_retrieval_scores_refuse_bad_input_and_say_what(queries, shown):
    with pytest.raises(ValueError, match=shown):
        retrieval_scores(queries)


def test_where_the_equations_divide_by_0_the_scores_are_what_is_documented():
    points = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], 4, axis=0)
    clusters = np.repeat([0, 1, 2], 4)
    assert clustering_scores(points, clusters, clusters)["chs"] == 1
    spread = points + 0.1 * np.tile([[1, 0], [-1, 0], [0, 1], [0, -1]], (3, 1))
    twice = np.concatenate([spread, spread[:4]])  # a fourth cluster with the centre of the first
    found = clustering_scores(twice, np.append(clusters, [3] * 4), np.append(clusters, [3] * 4))
    assert 0 < found["dbi"] < 1
