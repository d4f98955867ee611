"""The clustering experiments: their grids, what one run of each does on data made up for it, and
small real runs.
"""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import sklearn.cluster
import torch
from conftest import nearest_share
from sklearn import metrics as sk
from sklearn.decomposition import PCA

from snnl_lib import embeddings, experiments, metrics, results
from snnl_lib.data import Dataset
from snnl_lib.data.readers import Split
from snnl_lib.experiments import Task, clustering, load_task, run, short_texts, specs
from snnl_lib.experiments.clustering import (
    RIVALS,
    collapsed,
    run_clustering,
    run_labels,
    run_lexicon,
    run_rival,
    run_tsne,
    scale_to_unit,
    spherical_kmeans,
    train_autoencoder,
)
from snnl_lib.training import forward


def grid(experiment, profile="full", seeds=None):
    return specs(experiment, profile, "newsgroups4", *([seeds] if seeds else []))


def of_seed_42(experiment):
    return grid(experiment, seeds=[42])


# ---------------------------------------------------------------- the grids


def test_a_run_of_clusterbert_gets_the_texts_of_a_corpus_with_its_test_documents(
    packages, monkeypatch, newsgroups4
):
    (spec,) = [spec for spec in grid("labels", "tiny", [42]) if spec.model == "clusterbert"]
    seen = []
    monkeypatch.setattr(
        short_texts,
        "run_test_documents",
        lambda spec, task, *rest: seen.append((spec, task)) or results.Outcome({"acc": 0.5}),
    )
    record = run(spec, "cpu")
    ((same, task),) = seen
    assert same == spec and (record.n_train, record.n_test, record.metrics["acc"]) == (60, 200, 0.5)
    assert [newsgroups4.train.texts[row] for row in task.train_rows] == task.train_x.tolist()
    assert [newsgroups4.test.texts[row] for row in task.test_rows] == task.test_x.tolist()
    vectors = load_task("newsgroups4", "spacy", 42, 60, 200)
    assert np.array_equal(
        vectors.train_rows, task.train_rows[np.isin(task.train_rows, vectors.train_rows)]
    ), "those that other runs of the seed see"


MODELS = ("original", "ae", "lc-d", "ae-d")


def test_each_reading_reaches_the_training_as_its_name_says(packages, monkeypatch):
    seen = {}

    def noting(model, features, labels, primary, **settings):
        seen[reading] = model, features, primary, settings
        raise RuntimeError("far enough: what training starts from has been noted")

    monkeypatch.setattr(clustering, "train", noting)
    for spec in [*grid("clustering", "tiny", [42]), *grid("clustering-readings", "tiny", [42])]:
        reading = f"{spec.get('reading', 'main')} {spec.model}"
        assert run(spec, "cpu").status == ("ok" if spec.model == "pca" else "failed")
    unscaled = load_task("newsgroups4", "spacy", 42, 300, 200).train_x
    for reading, (model, features, primary, settings) in seen.items():
        if "not scaled" in reading:
            assert np.array_equal(features, unscaled)
        elif "one scale" in reading:
            np.testing.assert_allclose(
                features, (unscaled - unscaled.min()) / (unscaled.max() - unscaled.min()), atol=1e-6
            )
        else:
            assert (features.min(axis=0) == 0).all() and (features.max(axis=0) == 1).all()
        assert primary is (
            clustering.squared_error
            if "squared error" in reading
            else clustering.binary_cross_entropy
        )
        assert (model.linear_code, model.before_nonlinearity) == (
            "linear code" in reading,
            "before the nonlinearity" in reading,
        )
        alpha = (
            0
            if reading.endswith(" ae")
            else int(reading.split()[1])
            if reading.startswith("alpha")
            else 100
        )
        assert (settings["alpha"], settings["temperature"]) == (alpha, "annealed" if alpha else 1.0)
        assert settings["epochs"] == 2 and settings["steps_per_epoch"] is None
        hidden = {"encoder1": torch.zeros(1, 3), "code": torch.arange(128.0)[None]}
        selected = settings["select"](hidden, None) if settings["select"] else hidden
        assert [tuple(values.shape) for values in selected.values()] == (
            [(1, 100)] if reading.endswith("lc-d") else [(1, 3), (1, 128)]
        )
    assert len(seen) == 3 + 16


# ---------------------------------------------------------------- inputs and losses

TRAIN = np.array([[0, 5, -1], [10, 5, 1], [5, 5, 0]], dtype=np.float32)
TEST = np.array([[2.5, 5, 0.5], [20, 7, -3]], dtype=np.float32)


def test_features_are_scaled_by_the_training_minimum_and_maximum_of_each():
    scaled_train, scaled_test = scale_to_unit(TRAIN, TEST)
    np.testing.assert_array_equal(scaled_train, [[0, 0, 0], [1, 0, 1], [0.5, 0, 0.5]])
    np.testing.assert_array_equal(
        scaled_test, [[0.25, 0, 0.75], [1, 1, 0]]
    )  # beyond the training range: clipped
    assert scaled_train.dtype == scaled_test.dtype == np.float32
    for found, same in zip(
        scale_to_unit(TRAIN, TEST, "feature"), (scaled_train, scaled_test), strict=True
    ):
        assert np.array_equal(found, same)


def test_one_scale_for_all_features_keeps_their_proportions():
    scaled_train, scaled_test = scale_to_unit(TRAIN, TEST, "global")  # from -1 to 10
    np.testing.assert_allclose(scaled_train, (TRAIN + 1) / 11, rtol=1e-6)
    np.testing.assert_allclose(
        scaled_test, [[3.5 / 11, 6 / 11, 1.5 / 11], [1, 8 / 11, 0]], rtol=1e-6
    )
    assert scaled_train.dtype == scaled_test.dtype == np.float32


def test_not_scaled_means_as_they_are():
    for found, same in zip(scale_to_unit(TRAIN, TEST, "none"), (TRAIN, TEST), strict=True):
        assert np.array_equal(found, same) and found.dtype == np.float32


@pytest.mark.parametrize("scaling", ["feature", "global"])
def test_documents_that_are_all_the_same_scale_to_finite_numbers(scaling):
    scaled = scale_to_unit(np.full((3, 2), 7, np.float32), np.full((1, 2), 7, np.float32), scaling)
    assert all((values == 0).all() for values in scaled)


def test_the_two_reconstruction_losses_are_means_over_documents_and_features():
    random = np.random.default_rng(0)
    output, features = random.normal(size=(4, 5)), random.random((4, 5))
    tensors = torch.tensor(output), torch.tensor(features), torch.zeros(4)
    found = 1 / (1 + np.exp(-output))
    by_hand = -(features * np.log(found) + (1 - features) * np.log(1 - found)).mean()  # Eq. 3
    assert clustering.binary_cross_entropy(*tensors).item() == pytest.approx(by_hand, rel=1e-12)
    assert clustering.squared_error(*tensors).item() == pytest.approx(
        ((output - features) ** 2).mean(), rel=1e-12
    )


# ---------------------------------------------------------------- one run, on data made up for it


def made_up_task(train=300, test=200, width=20, spread=0.2, seed=0):
    """Four classes, each around a direction of its own; the documents stand anywhere in the corpus."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(train + test) % 4)
    features = (
        2 * np.eye(4, width)[labels] + spread * random.normal(size=(train + test, width))
    ).astype(np.float32)
    rows = random.permutation(10_000)
    return Task(
        features[:train],
        labels[:train],
        features[train:],
        labels[train:],
        4,
        0,
        0,
        rows[:train],
        rows[-test:],
    )


@pytest.fixture(scope="module")
def clouds():
    return made_up_task()


def made_up(model, alpha=0, experiment="clustering", **settings):
    settings = {
        "kmeans_starts": 3,
        "components": 128,
        "epochs": 2,
        "scaling": "feature",
        "n_test": None,
    } | settings
    temperature = "annealed" if alpha else "none"
    return results.Spec(
        experiment,
        "tiny",
        "made-up",
        "spacy",
        model,
        alpha,
        temperature,
        42,
        300,
        1,
        tuple(sorted(settings.items())),
    )


@pytest.fixture
def fitted(monkeypatch):
    """What k-means was fitted on, call by call."""
    calls, fit = [], sklearn.cluster.KMeans.fit

    def noting(self, codes, *args, **kwargs):
        calls.append(codes)
        return fit(self, codes, *args, **kwargs)

    monkeypatch.setattr(sklearn.cluster.KMeans, "fit", noting)
    return calls


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def codes_of(spec, task):
    """Train a spec's autoencoder as a run does: what it hands out as the code of the test
    documents.
    """
    train_x, test_x = scale_to_unit(task.train_x, task.test_x, spec["scaling"])
    return forward(train_autoencoder(spec, train_x, task.train_y)[0], test_x, layer="code")


@pytest.mark.parametrize("alpha", [0, 100])
def test_what_the_loss_is_shown_before_the_nonlinearity_changes_training_only_through_the_loss(
    clouds, alpha
):
    (after, curve), (before, other) = (
        train_autoencoder(made_up("ae-d", alpha, before_nonlinearity=flag), *scaled(clouds))
        for flag in (False, True)
    )
    assert torch.equal(weights(after), weights(before)) == (alpha == 0)
    assert curve.curve.equals(other.curve) == (alpha == 0)
    x = torch.as_tensor(clouds.test_x[:5])
    before.load_state_dict(after.state_dict())
    assert torch.equal(after(x)[0], before(x)[0])


def scaled(task):
    return scale_to_unit(task.train_x, task.test_x)[0], task.train_y


def test_in_the_reading_before_the_nonlinearity_k_means_sees_the_code_after_the_logistic_function(
    clouds, scored, fitted
):
    spec = made_up("ae-d", 100, before_nonlinearity=True)
    outcome = run_clustering(spec, clouds, "cpu", None)
    raw, ((codes, _, _),) = codes_of(spec, clouds), scored
    assert raw.min() < 0, "the case is the one meant"
    np.testing.assert_allclose(codes, 1 / (1 + np.exp(-raw)), rtol=1e-5)
    assert len(fitted) == 1 and np.array_equal(fitted[0], codes)
    assert outcome.metrics["snn"] == clustering.entanglement(codes, clouds.test_y)


def test_a_linear_code_is_clustered_as_it_is(clouds, scored, fitted):
    spec = made_up("ae", linear_code=True)
    run_clustering(spec, clouds, "cpu", None)
    ((codes, _, _),) = scored
    assert (
        codes.min() < 0
        and np.array_equal(codes, codes_of(spec, clouds))
        and np.array_equal(fitted[0], codes)
    )


def test_k_means_sees_all_units_of_the_code_or_the_first_ones_if_so_asked(clouds, scored, fitted):
    for clustered in ({}, {"clustered": 100}):
        run_clustering(made_up("lc-d", 100, **clustered), clouds, "cpu", None)
    (whole, _, _), (part, _, _) = scored
    assert whole.shape == (200, 128) and np.array_equal(part, whole[:, :100]), "the same training"
    assert np.array_equal(fitted[0], whole) and np.array_equal(fitted[1], part)


def test_clusters_of_the_training_codes_are_carried_over_to_the_test_documents_where_so_asked():
    # The training documents lie in two heaps, the test documents about one of them, where
    # they form two heaps of their own.
    random = np.random.default_rng(0)
    labels, noise = np.arange(100) % 2, 0.1 * random.normal(size=(2, 100, 2))
    train = np.array([[-10, 0], [10, 0]])[labels] + noise[0]
    test = np.array([[8, 0], [12, 0]])[labels] + noise[1]
    task = Task(train.astype(np.float32), labels, test.astype(np.float32), labels, 2, 0, 0)
    own = run_clustering(made_up("pca"), task, "cpu", None).metrics
    carried = run_clustering(made_up("pca", fitted_on="train"), task, "cpu", None).metrics
    assert own["acc"] == 1 and own["dbi"] < 0.2
    assert carried["acc"] == 0.5 and np.isnan(carried["dbi"]), "all fall to one cluster"


@pytest.mark.parametrize("model", ["pca", "ae", "lc-d", "ae-d"])
def test_labels_of_test_documents_say_nothing_but_the_score(clouds, scored, model):
    spec = made_up(model, 100 if model.endswith("d") else 0)
    run_clustering(spec, clouds, "cpu", None)
    run_clustering(
        spec,
        replace(clouds, test_y=np.random.default_rng(0).permutation(clouds.test_y)),
        "cpu",
        None,
    )
    (codes, clusters, labels), (same, again, other) = scored
    assert (
        np.array_equal(codes, same)
        and np.array_equal(clusters, again)
        and not np.array_equal(labels, other)
    )


def test_training_labels_reach_the_codes_through_the_loss_alone(clouds, scored):
    other = replace(clouds, train_y=np.random.default_rng(0).permutation(clouds.train_y))
    for model, alpha in (("ae", 0), ("lc-d", 100), ("ae-d", 100)):
        del scored[:]
        for task in (clouds, other):
            run_clustering(made_up(model, alpha), task, "cpu", None)
        assert np.array_equal(scored[0][0], scored[1][0]) == (alpha == 0)


# ---------------------------------------------------------------- codes that have collapsed


@pytest.mark.parametrize(
    ("documents", "distinct", "said"),
    [
        (200, 2, ""),
        (200, 1, "only 0.50%"),
        (201, 2, "only 1.00%"),
        (300, 3, ""),
        (300, 2, "only 0.67%"),
        (7, 1, ""),
    ],
)
def test_codes_have_collapsed_below_one_distinct_code_in_a_hundred(documents, distinct, said):
    codes = np.tile([[0.25, 0.5]], (documents, 1))
    codes[:, 1] += np.arange(documents) % distinct
    assert collapsed(codes) == (
        f"{said} of the test documents have distinct codes (3 decimals)" if said else ""
    )


@pytest.mark.parametrize("centre", [0.5, 0.0, -3.0])
def test_codes_are_distinct_when_they_differ_in_the_third_decimal(centre):
    steps = np.linspace(-0.5, 0.5, 200)
    for width, expected in (
        (0.0009, True),
        (0.003, False),
    ):  # at 0 some of the values round to 0 and others to -0: they are the same
        codes = np.full((200, 3), centre, dtype=np.float32)
        codes[:, 1] += width * steps
        assert bool(collapsed(codes)) == expected


def test_a_run_whose_codes_collapse_says_so_with_its_scores(clouds, monkeypatch):
    spec = made_up("ae", epochs=1)
    monkeypatch.setattr(clustering, "COLLAPSED_SHARE", 1.01)
    outcome = run_clustering(spec, clouds, "cpu", None)
    assert (
        outcome.status == "collapsed"
        and "have distinct codes" in outcome.reason
        and np.isfinite(outcome.metrics["acc"])
    )
    monkeypatch.setattr(clustering, "COLLAPSED_SHARE", 0)
    assert run_clustering(spec, clouds, "cpu", None)[2:4] == ("ok", "")


# ---------------------------------------------------------------- spherical k-means


def unit_rows(points):
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def spherical_objective(points, clusters):
    """The sum of the cosines to the mean direction of the own cluster: the length of the sum of
    each cluster's directions.
    """
    return sum(np.linalg.norm(unit_rows(points)[clusters == k].sum(axis=0)) for k in set(clusters))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [2, 3])
def test_the_best_of_all_clusterings_is_found_on_a_small_case(seed, k):
    points = np.random.default_rng(seed).normal(size=(8, 3)) * np.random.default_rng(
        seed + 100
    ).uniform(0.1, 10, size=(8, 1))
    best = max(
        itertools.product(range(k), repeat=8),
        key=lambda clusters: spherical_objective(points, np.array(clusters)),
    )
    found = spherical_kmeans(points, k, starts=50, seed=seed)
    assert spherical_objective(points, found) == pytest.approx(
        spherical_objective(points, np.array(best)), rel=1e-12
    )
    assert metrics.clustering_accuracy(np.array(best), found) == 1
    plain = sklearn.cluster.KMeans(k, n_init=50, random_state=seed).fit_predict(points)
    assert spherical_objective(points, plain) <= spherical_objective(points, found) + 1e-12


def test_k_means_on_lengths_too_would_miss_some_of_these_cases():
    missed = 0
    for seed in range(5):
        points = np.random.default_rng(seed).normal(size=(8, 3)) * np.random.default_rng(
            seed + 100
        ).uniform(0.1, 10, size=(8, 1))
        plain = sklearn.cluster.KMeans(3, n_init=50, random_state=seed).fit_predict(points)
        missed += (
            spherical_objective(points, plain)
            < spherical_objective(points, spherical_kmeans(points, 3, 50)) - 1e-3
        )
    assert missed >= 3


def test_more_starts_are_never_worse_and_sometimes_better():
    random = np.random.default_rng(0)
    points = random.normal(size=(150, 4))
    few, many = (
        [
            spherical_objective(points, spherical_kmeans(points, 8, starts, seed))
            for seed in range(8)
        ]
        for starts in (1, 10)
    )
    assert all(b >= a - 1e-9 for a, b in zip(few, many, strict=True)), (
        "the first start is the same one"
    )
    assert any(b > a + 0.01 for a, b in zip(few, many, strict=True))


def test_directions_are_all_that_counts():
    points = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    lengths = 2.0 ** np.random.default_rng(1).integers(
        -20, 20, size=(200, 1)
    )  # powers of two change no digit
    assert np.array_equal(
        spherical_kmeans(points, 4), spherical_kmeans((points * lengths).astype(np.float32), 4)
    )


def test_clusters_are_the_same_for_a_seed_and_draw_on_nothing_else():
    points = np.random.default_rng(0).normal(size=(150, 4))
    first = [spherical_kmeans(points, 8, 1, seed) for seed in range(6)]
    np.random.seed(999)  # noqa: NPY002 - the global state, which nothing may draw from
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert all(
        np.array_equal(clusters, spherical_kmeans(points, 8, 1, seed))
        for seed, clusters in enumerate(first)
    )
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    assert len({tuple(clusters) for clusters in first}) > 1, "the starts are drawn from the seed"


@pytest.mark.filterwarnings("error")
def test_rows_of_zeros_and_fewer_directions_than_clusters_do_no_harm(clouds):
    points = clouds.test_x.copy()
    points[::10] = 0
    said = np.arange(len(points)) % 10 > 0
    found = spherical_kmeans(points, 4)
    assert (
        found.shape == (200,)
        and np.issubdtype(found.dtype, np.integer)
        and set(found) <= {0, 1, 2, 3}
    )
    assert metrics.clustering_accuracy(clouds.test_y[said], found[said]) == 1
    assert len(set(spherical_kmeans(np.array([[1.0, 0], [2, 0], [0, 1], [0, 3]]), 3))) == 2
    assert set(spherical_kmeans(np.zeros((5, 2)), 2)) == {0}


# ---------------------------------------------------------------- rivals

WITH_LABELS, WITHOUT = (
    ("lda", "logreg", "logreg-predictions"),
    ("kmeans", "spherical-kmeans", "umap", "gmm"),
)
EACH = [
    pytest.param(model, marks=[pytest.mark.slow] * (model == "umap")) for model in RIVALS
]  # umap compiles itself for half a minute


@pytest.mark.parametrize("model", EACH)
def test_every_rival_finds_classes_that_lie_apart(clouds, scored, model):
    outcome = run_rival(made_up(model, experiment="clustering-rivals"), clouds, "cpu", None)
    assert (
        outcome.metrics.keys() == {"dbi", "sil", "chs", "nmi", "ari", "acc"}
        and outcome.metrics["acc"] > 0.98
    )
    assert (outcome.status, outcome.reason, outcome.curve, outcome.points) == ("ok", "", None, None)
    assert outcome.metrics["sil"] > 0.4 and len(scored) == 1
    again = run_rival(made_up(model, experiment="clustering-rivals"), clouds, "cpu", None)
    assert again.metrics == outcome.metrics, "the same seed"


@pytest.mark.parametrize("model", EACH)
def test_labels_of_test_documents_say_nothing_but_the_score_of_a_rival(clouds, scored, model):
    run_rival(made_up(model), clouds, "cpu", None)
    run_rival(
        made_up(model),
        replace(clouds, test_y=np.random.default_rng(0).permutation(clouds.test_y)),
        "cpu",
        None,
    )
    (codes, clusters, labels), (same, again, other) = scored
    assert np.array_equal(codes, same) and np.array_equal(clusters, again)
    assert np.array_equal(labels, clouds.test_y) and not np.array_equal(labels, other)


@pytest.mark.parametrize("model", [own for own in EACH if own.values[0] in WITHOUT])
def test_rivals_without_labels_do_not_see_the_training_labels_nor_the_training_documents(
    clouds, model
):
    random = np.random.default_rng(0)
    expected = run_rival(made_up(model), clouds, "cpu", None).metrics
    assert (
        run_rival(
            made_up(model), replace(clouds, train_y=random.permutation(clouds.train_y)), "cpu", None
        ).metrics
        == expected
    )
    if (
        model != "gmm"
    ):  # its principal components are those of the training documents, as in the row that it is set beside
        other = replace(clouds, train_x=random.normal(size=clouds.train_x.shape).astype(np.float32))
        assert run_rival(made_up(model), other, "cpu", None).metrics == expected


@pytest.mark.parametrize("model", WITH_LABELS)
def test_rivals_with_labels_learn_from_the_training_documents_alone(clouds, scored, model):
    run_rival(made_up(model), clouds, "cpu", None)
    few = replace(clouds, test_x=np.concatenate([clouds.test_x[:50], -clouds.test_x[50:]]))
    run_rival(made_up(model), few, "cpu", None)
    np.testing.assert_allclose(
        scored[0][0][:50], scored[1][0][:50], rtol=1e-6
    )  # the other test documents do not matter
    run_rival(
        made_up(model),
        replace(clouds, train_y=np.random.default_rng(0).permutation(clouds.train_y)),
        "cpu",
        None,
    )
    assert np.abs(scored[0][0][:50] - scored[2][0][:50]).max() > 0.3, "and the labels do"


@pytest.mark.parametrize("model", EACH)
def test_what_was_clustered_is_what_the_scores_are_computed_on(clouds, scored, fitted, model):
    found = run_rival(made_up(model), clouds, "cpu", None).metrics
    ((codes, clusters, _),) = scored
    assert found["dbi"] == sk.davies_bouldin_score(codes, clusters) and found[
        "sil"
    ] == pytest.approx(sk.silhouette_score(codes, clusters))
    if model in ("lda", "logreg", "kmeans", "umap"):
        assert len(fitted) == 1 and np.array_equal(fitted[0], codes)
    elif model != "gmm":  # whose start k-means finds
        assert not fitted
    if model in ("kmeans", "spherical-kmeans"):
        assert np.array_equal(codes, clouds.test_x)
    elif model == "gmm":
        expected = PCA(20, svd_solver="full").fit(clouds.train_x).transform(clouds.test_x)
        np.testing.assert_allclose(np.abs(codes), np.abs(expected), atol=1e-4)
    else:
        assert codes.shape == (200, 3 if model == "lda" else 4)
    if model.startswith("logreg"):
        np.testing.assert_allclose(codes.sum(axis=1), 1, rtol=1e-6)
    if model == "logreg-predictions":
        assert np.array_equal(clusters, codes.argmax(axis=1))


def test_umap_and_the_mixture_are_set_up_as_the_choices_say(clouds, monkeypatch):
    import sklearn.mixture
    import umap

    seen = {}

    def stand_in(name):
        def noting(*args, **settings):
            seen[name] = args, settings
            raise RuntimeError("far enough")

        return noting

    monkeypatch.setattr(umap, "UMAP", stand_in("umap"))
    monkeypatch.setattr(sklearn.mixture, "GaussianMixture", stand_in("gmm"))
    for model in ("umap", "gmm"):
        with pytest.raises(RuntimeError, match="far enough"):
            run_rival(made_up(model), clouds, "cpu", None)
    assert {name: value for name, value in seen["umap"][1].items() if name != "random_state"} == {
        "n_components": 4,
        "n_neighbors": 20,
        "min_dist": 0,
        "metric": "cosine",
        "n_jobs": 1,
    }
    (classes,), settings = seen["gmm"]
    assert (classes, settings["n_init"], settings.get("covariance_type", "full")) == (4, 3, "full")
    assert isinstance(seen["umap"][1]["random_state"], int) and isinstance(
        settings["random_state"], int
    )


def accuracies(task, *models, **settings):
    return [
        run_rival(made_up(model, **settings), task, "cpu", None).metrics["acc"] for model in models
    ]


def test_where_one_direction_is_loud_and_says_nothing_labels_help_and_k_means_is_lost(clouds):
    loud = np.array([1] * 19 + [60], np.float32)
    task = replace(clouds, train_x=clouds.train_x * loud, test_x=clouds.test_x * loud)
    lda, logreg, predictions, kmeans = accuracies(
        task, "lda", "logreg", "logreg-predictions", "kmeans"
    )
    assert min(lda, logreg, predictions) > 0.95 and kmeans < 0.5


def test_a_dense_cloud_in_a_wide_one_is_for_the_mixture_and_rays_are_for_the_sphere():
    random = np.random.default_rng(0)
    labels = np.arange(400) % 2
    points = np.where(
        labels[:, None] == 0,
        0.1 * random.normal(size=(400, 2)),
        [3, 0] + 3 * random.normal(size=(400, 2)),
    ).astype(np.float32)
    mixture, kmeans = accuracies(
        Task(points[:200], labels[:200], points[200:], labels[200:], 2, 0, 0), "gmm", "kmeans"
    )
    assert mixture > 0.95 > 0.85 > kmeans
    labels = np.arange(400) % 4
    rays = np.exp(random.normal(size=(400, 1))) * (
        np.eye(4, 6)[labels] + 0.1 * random.normal(size=(400, 6))
    )
    task = Task(
        rays[:200].astype(np.float32),
        labels[:200],
        rays[200:].astype(np.float32),
        labels[200:],
        4,
        0,
        0,
    )
    sphere, kmeans = accuracies(task, "spherical-kmeans", "kmeans")
    assert sphere > 0.95 > 0.85 > kmeans


def test_rivals_are_standardised_where_the_spec_says_so(clouds):
    loud = np.array([1] * 19 + [60], np.float32)
    task = replace(clouds, train_x=clouds.train_x * loud, test_x=clouds.test_x * loud)
    as_it_is, standardised = (
        accuracies(task, "spherical-kmeans", standardize=flag)[0] for flag in (False, True)
    )
    assert as_it_is < 0.6 < 0.9 < standardised


def test_logistic_regressions_own_classes_and_clusters_of_its_probabilities_are_two_things(scored):
    task = made_up_task(spread=2)  # classes that overlap
    for model in ("logreg", "logreg-predictions"):
        run_rival(made_up(model), task, "cpu", None)
    (codes, clusters, _), (same, classes, _) = scored
    assert np.array_equal(codes, same) and 0.8 < metrics.clustering_accuracy(clusters, classes) < 1


# ---------------------------------------------------------------- labels


@pytest.fixture
def steps(monkeypatch):
    """The optimiser's steps are counted, and what ``train`` was given is noted."""
    counted, step, train = Counter(), torch.optim.Adam.step, clustering.train

    def counting(self, *args, **kwargs):
        counted["steps"] += 1
        return step(self, *args, **kwargs)

    def noting(model, features, labels, *args, **settings):
        counted["documents"] += len(features)
        return train(model, features, labels, *args, **settings)

    monkeypatch.setattr(torch.optim.Adam, "step", counting)
    monkeypatch.setattr(clustering, "train", noting)
    return counted


def test_with_few_labels_the_labelled_documents_alone_are_trained_on_for_as_many_steps_as_with_all(
    packages, steps
):
    found = {}
    for spec in [*grid("labels", "tiny", [42]), *grid("clustering", "tiny", [42])]:
        if spec.model in ("ae-d", "lc-d"):
            steps.clear()
            record = run(spec, "cpu")
            found[spec.model, spec.get("reading", "all")] = (
                record.n_train,
                steps["documents"],
                steps["steps"],
            )
    # Two epochs: of two steps, for 300 documents are one batch of 256 and a smaller one, or
    # of the one batch that 100 documents are.
    expected = {
        (model, reading): (size, size, 4)
        for model in ("ae-d", "lc-d")
        for reading, size in (("all", 300), ("100 labels", 100))
    }
    assert found == expected | {("ae-d", "100 labels, one pass an epoch"): (100, 100, 2)}


def test_fewer_labels_are_the_first_of_more(packages):
    few, more = (load_task("newsgroups4", "spacy", 42, n_train, 200) for n_train in (100, 300))
    assert np.array_equal(few.train_rows, more.train_rows[:100]) and np.array_equal(
        few.train_x, more.train_x[:100]
    )
    assert np.array_equal(few.test_rows, more.test_rows)


def test_a_point_of_the_curve_is_a_run_of_clustering_or_of_its_rivals(clouds, steps):
    assert run_labels(made_up("lda"), clouds, "cpu", None) == run_rival(
        made_up("lda"), clouds, "cpu", None
    )
    assert steps["steps"] == 0
    spec = made_up("ae-d", 100, steps_per_epoch=5)
    assert (
        run_labels(spec, clouds, "cpu", None).metrics
        == run_clustering(spec, clouds, "cpu", None).metrics
    )
    assert steps["steps"] == 2 * 2 * 5


def test_linear_discriminant_analysis_bears_fewer_documents_than_features():
    task = made_up_task(train=60, width=200, spread=0.3)
    assert accuracies(task, "lda")[0] > 0.9


# ---------------------------------------------------------------- words of the lexicon


def words_task(width=2, train=120, test=80):
    """Training words in two heaps, one a polarity; held-out words all in one: their polarity cannot
    be told.
    """
    random = np.random.default_rng(0)
    labels = random.permutation(np.arange(train + test) % 2)
    features = random.normal(size=(train + test, width))
    features[:train, 0] += 20 * labels[:train]
    rows = random.permutation(5000)
    features = features.astype(np.float32)
    return Task(
        features[:train],
        labels[:train],
        features[train:],
        labels[train:],
        2,
        0,
        0,
        rows[:train],
        rows[-test:],
    )


def test_words_are_scored_apart_those_trained_on_and_those_held_out():
    task = words_task()
    found = run_lexicon(made_up("original", shown=20), task, "cpu", None).metrics
    assert found.keys() == {"acc", "neighbours", "train_acc", "train_neighbours"}
    assert found["train_acc"] == found["train_neighbours"] == 1
    assert (
        found["neighbours"] == pytest.approx(nearest_share(task.test_x.astype(float), task.test_y))
        and found["neighbours"] < 0.65
        and found["acc"] < 0.65
    )


@pytest.mark.parametrize("model", ["original", "ae-d"])
def test_the_points_are_as_many_words_of_each_polarity_with_the_places_of_the_right_words(model):
    task = words_task()
    outcome = run_lexicon(made_up(model, 100, shown=20), task, "cpu", None)
    points = outcome.points
    assert list(points.columns) == ["row", "label", "held_out", "x", "y"] and points.groupby(
        ["held_out", "label"]
    ).size().to_dict() == dict.fromkeys(itertools.product((0, 1), repeat=2), 10)
    assert (outcome.curve is None) == (model == "original")
    for held_out, rows, labels, features in (
        (0, task.train_rows, task.train_y, task.train_x),
        (1, task.test_rows, task.test_y, task.test_x),
    ):
        part = points[points["held_out"] == held_out]
        place = [rows.tolist().index(row) for row in part["row"]]
        assert len(set(place)) == 20 and labels[place].tolist() == part["label"].tolist()
        if (
            model == "original"
        ):  # of two dimensions, so that the plane is they, turned: distances stay
            plane = part[["x", "y"]].to_numpy()
            before, after = (
                np.linalg.norm(values[:, None] - values[None], axis=2)
                for values in (features[place], plane)
            )
            np.testing.assert_allclose(after, before, atol=1e-4)
            assert plane[:, 0].var() >= plane[:, 1].var()


def test_held_out_words_are_not_trained_on(steps, monkeypatch):
    task, seen, train = words_task(), [], clustering.train
    monkeypatch.setattr(
        clustering,
        "train",
        lambda model, features, *args, **more: (
            seen.append(features) or train(model, features, *args, **more)
        ),
    )
    first = run_lexicon(made_up("ae-d", 100, shown=20), task, "cpu", None)
    assert len(seen) == 1 and np.array_equal(seen[0], scale_to_unit(task.train_x, task.test_x)[0])
    other = replace(
        task, test_x=np.random.default_rng(5).normal(size=task.test_x.shape).astype(np.float32)
    )
    again = run_lexicon(made_up("ae-d", 100, shown=20), other, "cpu", None)
    assert again.curve.equals(first.curve) and again.points.query("held_out == 0").equals(
        first.points.query("held_out == 0")
    )
    assert not again.points.query("held_out == 1").equals(first.points.query("held_out == 1"))


def test_other_seeds_show_other_words_and_all_models_of_a_seed_the_same():
    task, shown = words_task(), {}
    for seed, model in ((42, "original"), (42, "ae-d"), (73, "original")):
        shown[seed, model] = (
            run_lexicon(replace(made_up(model, 100, shown=20), seed=seed), task, "cpu", None)
            .points["row"]
            .tolist()
        )
    assert shown[42, "original"] == shown[42, "ae-d"] and set(shown[42, "original"]) != set(
        shown[73, "original"]
    )


def test_figure_1_shows_fifty_positive_and_fifty_negative_words_of_either_kind(packages):
    (spec,) = [
        spec for spec in specs("lexicon", "tiny", "newsgroups4", 42) if spec.model == "original"
    ]
    settings = {"kmeans_starts": 2, "shown": 100, "n_test": None}
    record = run(
        replace(spec, n_train=20_000, settings=tuple(sorted(settings.items()))), "cpu"
    )  # no training: in full size too it takes no time
    assert record.points.groupby(["held_out", "label"]).size().to_dict() == dict.fromkeys(
        itertools.product((0, 1), repeat=2), 50
    )
    corpus = experiments._load("opinion_lexicon")
    assert (record.n_train, record.n_test) == (1501, 359), "the words with a vector of their own"
    assert (
        record.n_train + record.metrics["empty_train"],
        record.n_test + record.metrics["empty_test"],
    ) == (len(corpus.train), len(corpus.test))
    for held_out, split in ((0, corpus.train), (1, corpus.test)):
        part = record.points[record.points["held_out"] == held_out]
        assert split.labels[part["row"]].tolist() == part["label"].tolist()
        words = [split.texts[row] for row in part["row"]]
        assert (
            len(set(words)) == 100
            and embeddings.has_words(embeddings.embed(words, "spacy-word")).all()
        )


# ---------------------------------------------------------------- t-SNE


def on_a_plane(model, alpha=0, **settings):
    return made_up(
        model,
        alpha,
        "tsne",
        **{"perplexity": 15, "learning_rate": 200, "iterations": 300} | settings,
    )


def test_the_map_keeps_classes_apart_and_is_scored_on_the_plane(clouds):
    outcome = run_tsne(on_a_plane("original"), clouds, "cpu", None)
    assert (
        outcome.metrics.keys() == {"kl", "neighbours"}
        and outcome.metrics["kl"] > 0
        and outcome.curve is None
        and outcome.status == "ok"
    )
    points = outcome.points
    assert list(points.columns) == ["row", "label", "x", "y"]
    assert (
        points["row"].tolist() == clouds.test_rows.tolist()
        and points["label"].tolist() == clouds.test_y.tolist()
    )
    assert outcome.metrics["neighbours"] > 0.98
    overlapping = made_up_task(spread=1.2)
    found = run_tsne(on_a_plane("original"), overlapping, "cpu", None)
    share, before = (
        nearest_share(np.asarray(x, dtype=float), overlapping.test_y)
        for x in (found.points[["x", "y"]], overlapping.test_x)
    )
    assert (
        found.metrics["neighbours"] == pytest.approx(share, abs=1e-3) and abs(share - before) > 0.02
    )
    mixed = replace(clouds, test_y=np.random.default_rng(0).permutation(clouds.test_y))
    again = run_tsne(on_a_plane("original"), mixed, "cpu", None)
    assert (
        again.points[["x", "y"]].equals(points[["x", "y"]]) and again.metrics["neighbours"] < 0.4
    ), "labels have no say in the map"


def test_a_collapsed_code_has_no_map_for_the_map_of_one_point_breaks_python_down(clouds):
    outcome = run_tsne(
        on_a_plane("original"),
        replace(clouds, test_x=np.full_like(clouds.test_x, 0.25)),
        "cpu",
        None,
    )
    assert outcome.status == "collapsed" and "have distinct codes" in outcome.reason
    assert outcome.metrics == {} and outcome.points is None


def test_settings_of_the_map_are_those_of_the_spec(clouds, monkeypatch):
    import sklearn.manifold

    seen, mapping = [], sklearn.manifold.TSNE

    def noting(**settings):
        seen.append(settings)
        return mapping(**settings)

    monkeypatch.setattr(sklearn.manifold, "TSNE", noting)
    run_tsne(
        on_a_plane("original", perplexity=7, learning_rate=123, iterations=251), clouds, "cpu", None
    )
    (settings,) = seen
    assert {
        name: settings[name] for name in ("perplexity", "learning_rate", "max_iter", "init")
    } == {"perplexity": 7, "learning_rate": 123, "max_iter": 251, "init": "pca"}


def test_documents_that_say_nothing_have_no_point_and_the_others_keep_their_row(
    own_cache, results_folder, monkeypatch
):
    words = [
        "rain",
        "sun",
        "dog",
        "cat",
        "river",
        "hill",
        "train",
        "money",
        "doctor",
        "music",
        "winter",
        "bread",
        "game",
        "law",
        "bank",
        "school",
        "church",
    ]
    words += ["army", "planet", "computer"]
    texts = [f"{word} {other}" for word in words for other in ("red", "old", "city")]
    silent = [0, 7, 8, 33, 59]
    for row in silent:
        texts[row] = "of the xyzzyplugh"
    labels = np.arange(60) % 4
    corpus = Dataset(
        "newsgroups4",
        Split(words, np.arange(20) % 4),
        Split(texts, labels),
        ("a", "b", "c", "d"),
        "",
        "",
        "0",
    )
    monkeypatch.setattr(experiments, "_load", lambda name: corpus)
    (spec,) = [
        spec for spec in specs("tsne", "tiny", "newsgroups4", 42) if spec.model == "original"
    ]
    settings = dict(spec.settings) | {"n_test": None, "perplexity": 5, "iterations": 250}
    record = run(replace(spec, settings=tuple(sorted(settings.items()))), "cpu")
    assert record.status == "ok" and record.metrics["empty_test"] == 5 and record.n_test == 55
    assert record.points["row"].tolist() == [row for row in range(60) if row not in silent]
    assert record.points["label"].tolist() == labels[record.points["row"]].tolist()
