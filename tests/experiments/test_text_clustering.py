"""Text clustering: what a reading changes, what one run does on invented data, and rivals."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import sklearn.cluster
import torch
from by_hand import carried_out, grid, made_up, made_up_task, training_of
from sklearn import metrics as sk
from sklearn.decomposition import PCA

from snnl_book.experiments import PROFILES, Task, codes, load_task, text_clustering
from snnl_book.experiments.codes import scale_to_unit, trained_autoencoder
from snnl_book.experiments.text_clustering import (
    CLASSIFIERS,
    RIVALS,
    reading_cells,
    run_codes,
    run_rival,
    shared_directions,
    spherical_kmeans,
)
from snnl_lib import metrics
from snnl_lib.losses import supervised_contrastive_loss
from snnl_lib.seeds import named_seed
from snnl_lib.training import (
    binary_cross_entropy,
    forward,
    squared_error,
    squared_error_of_logistic,
)

# ---------------------------------------------------------------- cells


def test_readings_on_vectors_of_the_encoder_trained_here_say_what_they_cost():
    for cell in reading_cells(PROFILES["full"]):
        assert (cell.embedding == "infersent-nli") == bool(cell.needs)


def test_codes_are_normalised_before_k_means_only_where_the_reading_says_so(monkeypatch):
    made = np.random.default_rng(0).random((40, 3)) + 1
    monkeypatch.setattr(codes, "make_codes", lambda *_: (made, made, None))
    monkeypatch.setattr(codes, "score_codes", lambda spec, task, clustered, *_: clustered)
    readings = {spec.get("reading"): spec for spec in grid("clustering-readings") if spec.alpha}
    for reading, spec in readings.items():
        if spec.get("directions_of_lda"):
            continue
        lengths = np.linalg.norm(run_codes(spec, None, "cpu", None), axis=1)
        assert np.allclose(lengths, 1) == ("normalised codes" in reading), reading


def test_as_many_directions_as_lda_are_principal_components_of_the_codes(clouds, monkeypatch):
    far = np.eye(4)[[0, 1, 2, 3]] * 5  # four means, which differ in three directions
    random, labels = np.random.default_rng(0), np.arange(400) % 4
    made = np.hstack([far[labels], np.zeros((400, 4))]) + random.normal(0, 0.1, (400, 8))
    monkeypatch.setattr(codes, "make_codes", lambda *_: (made, made, None))
    spec = next(
        spec for spec in grid("clustering-readings") if spec.get("directions_of_lda") and spec.alpha
    )
    task = replace(clouds, test_y=labels)
    scores = run_codes(spec, task, "cpu", None).metrics
    assert scores["acc"] == 1 and scores["variance"] > 0.98 and scores["class_directions"] > 0.99
    made[:, 4:7] *= 200  # now other directions vary more than the means
    scores = run_codes(spec, task, "cpu", None).metrics
    assert scores["acc"] < 0.5 and scores["variance"] > 0.9 and scores["class_directions"] < 0.7


def test_shared_directions_are_the_share_of_the_means_that_they_span():
    points, labels = np.diag([2.0, 0.0, 0.0]), np.array([0, 1, 1])  # means differ along the first
    first, second = np.eye(3)[:1], np.eye(3)[1:2]
    assert shared_directions(first, points, labels) == pytest.approx(1)
    assert shared_directions(second, points, labels) == pytest.approx(0)
    between = (first + second) / np.sqrt(2)
    assert shared_directions(between, points, labels) == pytest.approx(0.5)


def test_a_mixture_clusters_the_codes_only_where_the_reading_says_so(clouds, monkeypatch):
    from sklearn.mixture import GaussianMixture

    made = clouds.test_x
    monkeypatch.setattr(codes, "make_codes", lambda *_: (made, made, None))
    monkeypatch.setattr(codes, "kmeans", lambda *_: pytest.fail("k-means"))
    readings = [spec for spec in grid("clustering-readings", seeds=[42]) if spec.model == "ae-d"]
    mixtures = [spec for spec in readings if "Gaussian mixture" in spec["reading"]]
    assert len(mixtures) == 2
    for spec in readings:
        if spec not in mixtures:
            with pytest.raises(pytest.fail.Exception, match="k-means"):
                run_codes(spec, clouds, "cpu", None)
            continue
        settings = {"n_init": spec["kmeans_starts"], "random_state": named_seed(42, "kmeans")}
        expected = GaussianMixture(4, **settings).fit_predict(made)
        assert np.array_equal(run_codes(spec, clouds, "cpu", None).answers[""], expected)


def test_rivals_with_the_same_network_are_trained_as_its_rows_are_but_for_the_loss():
    found = {spec.model: spec for spec in grid("clustering-rivals") if spec.alpha}
    own = {spec.model: spec for spec in grid("clustering") if spec.embedding == "spacy"}
    (classifier,) = {
        spec.settings
        for spec in grid("classification")
        if (spec.embedding, spec.model) == ("spacy", "ffn")
    }
    assert found["ae-supcon"].settings == own["ae-d"].settings
    assert dict(found["ffn-layer"].settings) == dict(classifier) | {"kmeans_starts": 10}
    layers = dict(found["ffn-layer"].settings) | {"neighbours": 10}
    of_network, of_encoder = (
        next(spec for spec in grid("clustering-rivals") if spec.alpha and spec.label == label)
        for label in (
            text_clustering.SAME_NETWORK["ffn-hidden", 100],
            f"{text_clustering.ENCODER} with the loss",
        )
    )
    assert dict(of_network.settings) == layers
    encoder = {"hidden_sizes": tuple(text_clustering.ENCODER_SIZES), "reading": "encoder"}
    assert dict(of_encoder.settings) == layers | encoder
    for model, regularizer in (("ae-supcon", supervised_contrastive_loss), ("ae-d", None)):
        spec = replace(found["ae-supcon"], model=model)
        training = training_of(run_codes, spec, made_up_task(), "cpu", None)
        assert training.regularizer is regularizer


def test_the_autoencoder_with_a_classifier_is_ae_d_with_a_cross_entropy_on_the_code():
    task = made_up_task()
    of_ae_d = {
        spec.get("reading", "main"): spec
        for name in ("clustering", "clustering-readings")
        for spec in grid(name, "tiny", [42])
        if (spec.model, spec.embedding) == ("ae-d", "spacy")
    }
    found = [spec for spec in grid("clustering-rivals", "tiny", [42]) if "classifier" in spec.model]
    assert [spec.get("reading", "main") for spec in found] == [
        "main",
        "squared error, inputs not scaled",
    ]
    for spec in found:
        ours = training_of(text_clustering.run_rival, spec, task, "cpu", None)
        theirs = training_of(run_codes, of_ae_d[spec.get("reading", "main")], task, "cpu", None)
        for name in ("primary", "epochs", "alpha", "seed"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert np.array_equal(ours.features, theirs.features)
        weights = dict(ours.model.named_parameters())
        head = {name for name in weights if name.startswith("head.")}
        theirs_by_name = dict(theirs.model.named_parameters())
        assert head and {*weights} - head == {*theirs_by_name}
        assert all(torch.equal(weights[name], value) for name, value in theirs_by_name.items())
        hidden = ours.model(torch.as_tensor(ours.features))[1]
        ((name, code),) = ours.select(hidden, None).items()
        expected = torch.nn.functional.cross_entropy(
            ours.model.head(code), torch.as_tensor(ours.labels)
        )
        assert name == "code" and torch.equal(code, hidden["code"])
        assert ours.regularizer(code, torch.as_tensor(ours.labels), 0.5) == expected
    outcome = text_clustering.run_rival(found[0], task, "cpu", None)
    assert outcome.metrics["predictions_acc"] > 0.95
    assert outcome.metrics["predictions_acc"] == pytest.approx(
        (outcome.answers["predictions_"] == task.test_y).mean()
    )


# ---------------------------------------------------------------- readings


def test_each_reading_reaches_the_training_as_its_name_says(packages, trainings):
    seen, task = {}, load_task("newsgroups4", "spacy", 42, 300, 200)
    for spec in [*grid("clustering", "tiny", [42]), *grid("clustering-readings", "tiny", [42])]:
        assert (spec.embedding, spec.n_train, spec["n_test"]) == ("spacy", 300, 200)
        if spec.model == "pca":
            assert carried_out(run_codes, spec, task).status == "ok" and not trainings
        else:
            reading = f"{spec.get('reading', 'main')} {spec.model}"
            seen[reading] = training_of(run_codes, spec, task, "cpu", None)
    unscaled = task.train_x
    width = unscaled.max() - unscaled.min()
    for reading, training in seen.items():
        features, model = training.features, training.model
        if "not scaled" in reading:
            assert np.array_equal(features, unscaled)
        elif "one scale" in reading:
            np.testing.assert_allclose(features, (unscaled - unscaled.min()) / width, atol=1e-6)
        else:
            assert (features.min(axis=0) == 0).all() and (features.max(axis=0) == 1).all()
        assert np.array_equal(training.labels, task.train_y)
        primary = squared_error if "squared error" in reading else binary_cross_entropy
        primary = squared_error_of_logistic if "logistic output" in reading else primary
        assert training.primary is primary
        weights = {"weight divided": "over T", "weight times": "times T"}
        assert training.weight == weights.get(" ".join(reading.split()[:2]))
        assert model.linear_code == ("linear code" in reading)
        assert model.before_nonlinearity == ("before the nonlinearity" in reading)
        alpha = int(reading.split()[1]) if reading.startswith("alpha") else 100
        alpha = 0 if reading.endswith(" ae") else alpha
        temperature = "annealed" if alpha else 1.0
        if reading.startswith("fixed temperature"):
            temperature = float(reading.split()[2])
        if reading.startswith("weight divided"):
            temperature = 1.0
        if "half only" in reading:  # of two epochs
            alphas = [training.alpha(epoch) for epoch in range(2)]
            assert alphas == ([100, 0] if "first" in reading else [0, 100])
        else:
            assert training.alpha == alpha
        assert training.temperature == temperature
        assert (training.epochs, training.steps_per_epoch, len(features)) == (2, None, 300)
        hidden = {"encoder1": torch.zeros(1, 3), "code": torch.arange(128.0)[None]}
        selected = training.select(hidden, None) if training.select else hidden
        shapes = [(1, 100)] if reading.endswith("lc-d") else [(1, 3), (1, 128)]
        shapes = shapes[1:] if "code only" in reading else shapes
        assert [tuple(values.shape) for values in selected.values()] == shapes
    assert len(seen) == 3 + 39


# ---------------------------------------------------------------- one run, on data made up for it


@pytest.fixture(scope="module")
def clouds():
    return made_up_task()


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
    model, _ = trained_autoencoder(spec, train_x, task.train_y, "cpu")
    return forward(model, test_x, layer="code")


def with_other_labels(task, part):
    """A task whose labels of one part, ``train_y`` or ``test_y``, are in another order."""
    return replace(task, **{part: np.random.default_rng(0).permutation(getattr(task, part))})


def test_a_linear_code_is_clustered_as_it_is(clouds, scored, fitted):
    spec = made_up("ae", linear_code=True)
    carried_out(run_codes, spec, clouds)
    ((codes, _, _),) = scored
    assert codes.min() < 0
    assert np.array_equal(codes, codes_of(spec, clouds))
    assert np.array_equal(fitted[0], codes)


def test_k_means_sees_all_units_of_the_code_or_the_first_ones_if_so_asked(clouds, scored, fitted):
    for clustered in ({}, {"clustered": 100}):
        carried_out(run_codes, made_up("lc-d", 100, **clustered), clouds)
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
    own = carried_out(run_codes, made_up("pca"), task).metrics
    carried = carried_out(run_codes, made_up("pca", fitted_on="train"), task).metrics
    assert own["acc"] == 1 and own["dbi"] < 0.2
    assert carried["acc"] == 0.5 and np.isnan(carried["dbi"]), "all fall to one cluster"


@pytest.mark.parametrize("model", ["pca", "ae-d"])
def test_labels_of_test_documents_say_nothing_but_the_score(clouds, scored, model):
    spec = made_up(model, 100 if model.endswith("d") else 0)
    for task in (clouds, with_other_labels(clouds, "test_y")):
        carried_out(run_codes, spec, task)
    (codes, clusters, labels), (same, again, other) = scored
    assert np.array_equal(codes, same)
    assert np.array_equal(clusters, again)
    assert not np.array_equal(labels, other)


def test_training_labels_reach_the_codes_through_the_loss_alone(clouds, scored):
    for model, alpha in (("ae", 0), ("lc-d", 100), ("ae-d", 100)):
        del scored[:]
        for task in (clouds, with_other_labels(clouds, "train_y")):
            carried_out(run_codes, made_up(model, alpha), task)
        assert np.array_equal(scored[0][0], scored[1][0]) == (alpha == 0)


# ---------------------------------------------------------------- spherical k-means


def unit_rows(points):
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def spherical_objective(points, clusters):
    """The sum of the cosines to the mean direction of the own cluster: the length of the sum of
    each cluster's directions.
    """
    return sum(np.linalg.norm(unit_rows(points)[clusters == k].sum(axis=0)) for k in set(clusters))


@pytest.mark.parametrize(("seed", "k"), [(0, 2), (1, 2), (1, 3)])
def test_the_best_of_all_clusterings_is_found_on_a_small_case(seed, k):
    lengths = np.random.default_rng(seed + 100).uniform(0.1, 10, size=(8, 1))
    points = np.random.default_rng(seed).normal(size=(8, 3)) * lengths
    every = map(np.array, itertools.product(range(k), repeat=8))
    best = max(every, key=lambda clusters: spherical_objective(points, clusters))
    found = spherical_kmeans(points, k, starts=50, seed=seed)
    highest = spherical_objective(points, best)
    assert spherical_objective(points, found) == pytest.approx(highest, rel=1e-12)
    assert metrics.clustering_accuracy(best, found) == 1


def test_directions_are_all_that_counts():
    points = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    powers = np.random.default_rng(1).integers(-20, 20, size=(200, 1))
    other = (points * 2.0**powers).astype(np.float32)  # powers of two change no digit
    assert np.array_equal(spherical_kmeans(points, 4), spherical_kmeans(other, 4))


@pytest.mark.filterwarnings("error")
def test_rows_of_zeros_and_fewer_directions_than_clusters_do_no_harm(clouds):
    points = clouds.test_x.copy()
    points[::10] = 0
    said = np.arange(len(points)) % 10 > 0
    found = spherical_kmeans(points, 4)
    assert found.shape == (200,) and set(found) <= {0, 1, 2, 3}
    assert np.issubdtype(found.dtype, np.integer)
    assert metrics.clustering_accuracy(clouds.test_y[said], found[said]) == 1
    assert len(set(spherical_kmeans(np.array([[1.0, 0], [2, 0], [0, 1], [0, 3]]), 3))) == 2
    assert set(spherical_kmeans(np.zeros((5, 2)), 2)) == {0}


# ---------------------------------------------------------------- rivals

WITH_LABELS, WITHOUT = (CLASSIFIERS, ("kmeans", "spherical-kmeans", "umap", "gmm"))
# umap compiles itself for half a minute.
EACH = [pytest.param(model, marks=[pytest.mark.slow] * (model == "umap")) for model in RIVALS]


@pytest.mark.parametrize("model", EACH)
def test_every_rival_finds_classes_that_lie_apart_and_labels_of_test_documents_only_score_it(
    clouds, scored, model
):
    spec = made_up(model, experiment="clustering-rivals")
    outcome = carried_out(run_rival, spec, clouds)
    assert outcome.metrics.keys() == {"dbi", "sil", "chs", "nmi", "ari", "acc"}
    assert outcome.metrics["acc"] > 0.98
    assert (outcome.status, outcome.reason, outcome.curve, outcome.points) == ("ok", "", None, None)
    assert outcome.metrics["sil"] > 0.4
    carried_out(run_rival, spec, with_other_labels(clouds, "test_y"))
    (codes, clusters, labels), (same, again, other) = scored
    assert np.array_equal(codes, same) and np.array_equal(clusters, again), "the same seed"
    assert np.array_equal(labels, clouds.test_y) and not np.array_equal(labels, other)


@pytest.mark.parametrize("model", [own for own in EACH if own.values[0] in WITHOUT])
def test_rivals_without_labels_do_not_see_the_training_labels_nor_the_training_documents(
    clouds, model
):
    expected = carried_out(run_rival, made_up(model), clouds).metrics
    others = [with_other_labels(clouds, "train_y")]
    # Its principal components are those of the training documents, as in the row beside it.
    if model != "gmm":
        drawn = np.random.default_rng(0).normal(size=clouds.train_x.shape)
        others.append(replace(clouds, train_x=drawn.astype(np.float32)))
    for task in others:
        assert carried_out(run_rival, made_up(model), task).metrics == expected


@pytest.mark.parametrize("model", WITH_LABELS)
def test_rivals_with_labels_learn_from_the_training_documents_alone(clouds, scored, model):
    few = replace(clouds, test_x=np.concatenate([clouds.test_x[:50], -clouds.test_x[50:]]))
    for task in (clouds, few, with_other_labels(clouds, "train_y")):
        carried_out(run_rival, made_up(model), task)
    first, of_few, of_others = (codes[:50] for codes, *_ in scored)
    np.testing.assert_allclose(first, of_few, rtol=1e-6, err_msg="other test documents matter")
    assert np.abs(first - of_others).max() > 0.3, "and the labels do"


@pytest.mark.parametrize("model", EACH)
def test_what_was_clustered_is_what_the_scores_are_computed_on(clouds, scored, fitted, model):
    found = carried_out(run_rival, made_up(model), clouds).metrics
    ((codes, clusters, _),) = scored
    assert found["dbi"] == pytest.approx(sk.davies_bouldin_score(codes, clusters), rel=1e-5)
    assert found["sil"] == pytest.approx(sk.silhouette_score(codes, clusters))
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
        assert codes.shape == (200, 3 if model.startswith("lda") else 4)
    if model.startswith("logreg"):
        np.testing.assert_allclose(codes.sum(axis=1), 1, rtol=1e-6)
    if model == "logreg-predictions":
        assert np.array_equal(clusters, codes.argmax(axis=1))
    if model == "lda-predictions":
        assert (clusters == clouds.test_y).mean() > 0.95, "numbered as classes"


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
            carried_out(run_rival, made_up(model), clouds)
        assert isinstance(seen[model][1].pop("random_state"), int)
    settings = {"n_components": 4, "n_neighbors": 20, "min_dist": 0, "metric": "cosine"}
    assert seen["umap"][1] == settings | {"n_jobs": 1}
    (classes,), settings = seen["gmm"]
    assert (classes, settings["n_init"], settings.get("covariance_type", "full")) == (4, 3, "full")


def test_rivals_are_standardised_where_the_spec_says_so(clouds):
    loud = np.array([1] * 19 + [60], np.float32)
    task = replace(clouds, train_x=clouds.train_x * loud, test_x=clouds.test_x * loud)
    as_it_is, standardised = (
        carried_out(run_rival, made_up("spherical-kmeans", standardize=flag), task).metrics["acc"]
        for flag in (False, True)
    )
    assert as_it_is < 0.6 < 0.9 < standardised


# ---------------------------------------------------------------- hidden layers


@pytest.mark.parametrize("alpha", [0, 100])
def test_hidden_layers_are_clustered_as_they_are_and_at_unit_length_and_searched(clouds, alpha):
    settings = {"hidden_sizes": (30, 20), "layers": "sum", "neighbours": 10, "epochs": 40}
    spec = made_up("ffn-hidden", alpha, experiment="clustering-rivals", **settings)
    found = carried_out(run_rival, spec, clouds)
    scores, answers = found.metrics, found.answers
    last = carried_out(run_rival, replace(spec, model="ffn-layer"), clouds)
    assert {name: scores[name] for name in last.metrics} == last.metrics
    assert np.array_equal(answers[""], last.answers[""])
    names = [f"hidden{n}_{how}" for n in (1, 2) for how in ("", "normalized_", "neighbours_")]
    assert set(answers) == {"", "predictions_", *names}
    for name in names:
        if name.endswith("neighbours_"):
            share = (answers[name] == clouds.test_y).mean()
            assert scores[f"{name}acc"] == pytest.approx(share) and share > 0.95
        else:
            own = metrics.external_scores(answers[name], clouds.test_y)
            assert {f"{name}{metric}": value for metric, value in own.items()}.items() <= (
                scores.items()
            )
    assert scores["predictions_acc"] > 0.8
    assert scores["hidden1_normalized_acc"] > 0.8
