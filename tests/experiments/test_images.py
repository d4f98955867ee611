"""The experiments of the image paper: points on which the loss alone is minimised, and what each
run on images does.
"""

import functools
import importlib.util
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import sklearn.cluster
import sklearn.metrics
import torch
from by_hand import training_of
from conftest import forget_tasks, nearest_share
from sklearn.cluster import KMeans

from snnl_book import data, experiments, methods, results
from snnl_book.data import Dataset
from snnl_book.data.readers import Images
from snnl_book.experiments import (
    EXPERIMENTS,
    ExperimentError,
    codes,
    images,
    load_task,
    parameters,
    runner,
    specs,
    tasks,
    unmet,
)
from snnl_book.experiments.codes import entanglement
from snnl_book.experiments.images import (
    build_projector,
    contrastive,
    pretrained,
    run_annealing,
    run_deep,
    run_images,
)
from snnl_book.experiments.maps import run_tsne
from snnl_book.methods import deep_clustering
from snnl_lib import metrics
from snnl_lib.checkpoint import CacheError
from snnl_lib.losses import supervised_contrastive_loss
from snnl_lib.models import Autoencoder
from snnl_lib.training import (
    Diverged,
    binary_cross_entropy,
    build,
    forward,
    named_seed,
    squared_error,
)

DEEP = ("ae-10", "dec", "idec", "vade", "n2d")

# ---------------------------------------------------------------- which runs a data set means


GOOD = {"profile": "tiny", "seeds": [42], "dataset": "mnist", "device": "cpu"}


def test_a_chapter_on_images_takes_sets_of_images_alone(monkeypatch):
    assert parameters(GOOD, "images").dataset == "mnist"
    refused = "holds texts, but this chapter is about images: choose auto or one of mnist, "
    with pytest.raises(ExperimentError, match=refused + "fashion_mnist, emnist_balanced, digits$"):
        parameters(GOOD | {"dataset": "newsgroups4"}, "images")
    with pytest.raises(ExperimentError, match=r"'mnist' holds images, .* chapter is about texts"):
        parameters(GOOD)
    for at_hand, expected in (
        ({"mnist", "fashion_mnist"}, "fashion_mnist"),
        ({"mnist", "emnist_balanced", "digits"}, "mnist"),
        ({"emnist_balanced", "digits"}, "emnist_balanced"),
        ({"digits"}, "digits"),
    ):
        monkeypatch.setattr(data, "locate", lambda name, there=at_hand: name in there or None)
        assert parameters(GOOD | {"dataset": "auto"}, "images").dataset == expected


# ---------------------------------------------------------------- what is at hand


def test_without_umap_what_needs_it_is_left_out(monkeypatch):
    find = importlib.util.find_spec
    without = lambda name: None if name == "umap" else find(name)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", without)
    said = {spec.model: unmet(spec, "cpu") for spec in specs("images", "tiny", "digits", 42)}
    lacking = {model for model, why in said.items() if "umap-learn is not installed: " in why}
    assert lacking == {"umap", "n2d"} and {said[model] for model in said.keys() - lacking} == {""}


# ---------------------------------------------------------------- the images of a run

NAMES = ("a", "b", "c", "d")


def invented(train=500, test=260):
    """Four noisy patterns of 784 pixels: what is looked at below is what is done with images, not
    how well.
    """
    random = np.random.default_rng(0)
    labels = random.permutation(np.arange(train + test) % 4)
    ink = (random.random((4, 784)) < 0.3)[labels] ^ (random.random((train + test, 784)) < 0.1)
    black, white = random.integers(150, 256, ink.shape), random.integers(0, 30, ink.shape)
    pixels = np.where(ink, black, white).astype(np.uint8)
    return Images(pixels[:train], labels[:train]), Images(pixels[train:], labels[train:])


@pytest.fixture(scope="module")
def pictures():
    return Dataset("invented", *invented(), NAMES, "", "", "0")


@pytest.fixture
def loaded(pictures, tmp_path, monkeypatch):
    """Every set of images is the invented one, and the cache an empty folder."""
    monkeypatch.setattr(tasks, "_load", lambda name: pictures)
    forget_tasks(monkeypatch)
    monkeypatch.setenv("SNNL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def task(loaded):
    return experiments.load_task("mnist", "pixels", 42, 300, 200)


def tiny(model, experiment="images", dataset="mnist", seed=42, **changes):
    """The tiny spec of a model on images (the first one that the changes to its own fields and
    settings leave).
    """
    spec = next(spec for spec in specs(experiment, "tiny", dataset, seed) if spec.model == model)
    own = {name: changes.pop(name) for name in list(changes) if hasattr(spec, name)}
    return replace(spec, **own, settings=tuple(sorted((dict(spec.settings) | changes).items())))


def test_pixels_are_divided_by_255_and_keep_their_row_and_their_label(task, pictures):
    for x, y, rows, split, size in (
        (task.train_x, task.train_y, task.train_rows, pictures.train, 300),
        (task.test_x, task.test_y, task.test_rows, pictures.test, 200),
    ):
        assert x.shape == (size, 784) and x.dtype == np.float32 and len(set(rows)) == size
        np.testing.assert_allclose(x, split.pixels[rows].astype(np.float64) / 255, rtol=1e-6)
        assert np.array_equal(y, split.labels[rows])
    assert (task.classes, task.empty_train, task.empty_test) == (4, 0, 0)
    assert task.train_x.max() == 1


def test_images_are_drawn_by_the_seed_and_fewer_are_the_first_of_more(task):
    other, few, more = (
        experiments.load_task("mnist", "pixels", *arguments)
        for arguments in ((73, 300, 200), (42, 100, None), (42, 1_000_000, None))
    )
    assert set(task.train_rows) != set(other.train_rows)
    assert set(task.test_rows) != set(other.test_rows)
    assert np.array_equal(few.train_x, task.train_x[:100])
    assert np.array_equal(few.train_rows, task.train_rows[:100])
    assert np.array_equal(few.test_rows, np.arange(260)), "all test images, in their order"
    assert len(more.train_x) == 500, "more than there are means all"


def test_more_digits_than_there_are_means_all_of_them():
    found = load_task.__wrapped__("digits", "pixels", 42, 2000, 1000)
    assert found.train_x.shape == (1287, 64) and found.test_x.shape == (510, 64)
    assert found.train_x.dtype == np.float32 and found.classes == 10
    assert 0 == found.train_x.min() < found.train_x.max() == 1


def test_small_pictures_are_clustered_without_anything_at_hand(
    empty_cache, no_network, monkeypatch
):
    monkeypatch.setattr(tasks, "_load", data.load_dataset)
    spec = tiny("ae-d", dataset="digits")
    assert unmet(spec, "cpu") == ""
    record = experiments.run(spec, "cpu")
    assert record.status == "ok", record.reason
    assert record.metrics["acc"] > 0.4


# ---------------------------------------------------------------- points: the loss alone


def moving(temperature="annealed", reading=None, seed=42, **settings):
    """A run of points: its spec and its outcome."""
    (spec,) = [
        spec
        for spec in specs("annealing", "full", "auto", seed)
        if (spec.temperature, spec.get("reading")) == (temperature, reading)
    ]
    spec = replace(spec, settings=tuple(sorted((dict(spec.settings) | settings).items())))
    task = load_task(spec.dataset, spec.embedding, seed, spec.n_train, None)
    return run_annealing(spec, task, "cpu", None)


def shown(outcome, epoch):
    frame = outcome.points[outcome.points["epoch"] == epoch]
    return frame[["x", "y"]].to_numpy(), frame["label"].to_numpy()


def equation_4(points, labels, temperature, distance="sqeuclidean"):
    """The mean loss of points [N, 2] spelt out, in float64, and its gradient."""
    points = torch.tensor(np.asarray(points, dtype=np.float64), requires_grad=True)
    same = torch.as_tensor(labels[:, None] == labels[None])
    if distance == "cosine":
        unit = points / points.norm(dim=1, keepdim=True)
        apart = 1 - unit @ unit.T
    else:
        apart = (points[:, None] - points[None]).square().sum(dim=2)
    near = (-apart / temperature).exp() * (1 - torch.eye(len(points)))
    loss = -((near * same).sum(dim=1) / near.sum(dim=1)).log().mean()
    loss.backward()
    return loss.item(), points.grad.numpy()


@pytest.fixture
def every_epoch(monkeypatch):
    monkeypatch.setattr(images, "SHOWN_EPOCHS", range(60))


def test_points_and_labels_of_a_seed_are_the_same_at_every_temperature_of_another_seed_others():
    started = [
        shown(moving(temperature, epochs=0), 0) for temperature in ("annealed", "1.0", "0.5", "0.1")
    ]
    task = load_task("gaussian", "points", 42, 300, None)
    labels = np.random.default_rng(named_seed(42, "labels")).integers(4, size=300)
    for places, classes in started:
        assert np.array_equal(places, task.train_x) and np.array_equal(classes, labels)
    assert np.bincount(labels).min() > 50, "equal chances"
    other, classes = shown(moving(seed=73, epochs=0), 0)
    assert not np.array_equal(other, started[0][0]) and not np.array_equal(classes, labels)


@pytest.mark.parametrize(("temperature", "number"), [("annealed", 1.0), ("0.5", 0.5)])
def test_a_step_is_ten_times_the_gradient_of_the_mean_loss(every_epoch, temperature, number):
    outcome = moving(temperature, epochs=2)
    (before, labels), (after, _), (last, _) = (shown(outcome, epoch) for epoch in range(3))
    second = 2**-0.55 if temperature == "annealed" else number
    for x, y, now in ((before, after, number), (after, last, second)):
        np.testing.assert_allclose(y, x - 10 * equation_4(x, labels, now)[1], atol=1e-5)
    assert np.abs(after - before).max() > 0.03


def test_readings_take_the_steps_that_they_name(monkeypatch):
    # Of Adam and for the cosine too; a reading's points are not recorded, and here they are
    # looked at.
    seen, neighbours = [], codes.neighbour_share

    def noting(places, labels):
        seen.append((places, labels))
        return neighbours(places, labels)

    def adam(x, y):
        slope = equation_4(x, y, 1.0)[1]
        return x - 0.1 * slope / (np.abs(slope) + 1e-8)

    monkeypatch.setattr(codes, "neighbour_share", noting)
    for reading, step in (
        ("step 1", lambda x, y: x - equation_4(x, y, 1.0)[1]),
        ("cosine distance", lambda x, y: x - 10 * equation_4(x, y, 1.0, "cosine")[1]),
        ("Adam, step 0.1", adam),
    ):
        seen.clear()
        outcome = moving("1.0", reading, epochs=1)
        (before, labels), (after, _) = seen
        np.testing.assert_allclose(after, step(before, labels), atol=1e-4, err_msg=reading)
        assert outcome.points is None
    for temperature, reading, power in (
        ("1.0", "step divided by the falling T", -1),
        ("annealed", "step times the falling T", 1),
    ):
        seen.clear()
        moving(temperature, reading, epochs=2)
        for epoch, ((before, labels), (after, _)) in enumerate(pairwise(seen)):
            falling = (1 + epoch) ** -0.55
            slope = equation_4(before, labels, falling if temperature == "annealed" else 1.0)[1]
            step = before - 10 * falling**power * slope
            np.testing.assert_allclose(after, step, atol=1e-5, err_msg=reading)
    ten, four = (
        moving("1.0", reading, epochs=0).curve["loss"][0] for reading in ("10 classes", None)
    )
    assert ten > four + 0.5, "more classes, fewer classmates"


@pytest.mark.parametrize("temperature", ["annealed", "0.5"])
def test_the_loss_is_at_the_runs_own_temperature_and_beside_it_at_1(every_epoch, temperature):
    outcome = moving(temperature, epochs=4)
    columns = ["epoch", "temperature", "loss", "common", "neighbours", "sil"]
    assert list(outcome.curve.columns) == columns and len(outcome.curve) == 5
    for epoch, row in outcome.curve.iterrows():
        own = (1 + epoch) ** -0.55 if temperature == "annealed" else 0.5
        assert row["epoch"] == epoch and row["temperature"] == pytest.approx(own)
        places, labels = shown(outcome, epoch)
        assert row["loss"] == pytest.approx(equation_4(places, labels, own)[0], rel=1e-4)
        assert row["common"] == pytest.approx(equation_4(places, labels, 1.0)[0], rel=1e-4)
        assert row["neighbours"] == pytest.approx(nearest_share(places, labels), abs=2e-3)
        silhouette = sklearn.metrics.silhouette_score(places, labels)
        assert row["sil"] == pytest.approx(silhouette, abs=1e-5)


def test_the_first_epoch_of_pure_neighbourhoods_is_found_and_scores_are_those_of_the_last():
    outcome = moving("1.0")
    curve = outcome.curve
    assert len(curve) == 51 and outcome.status == "ok"
    reached = curve["epoch"][curve["neighbours"] >= 0.9].iloc[0]
    assert 0 < reached == outcome.metrics["epochs_to_pure"] < 50
    assert outcome.metrics.keys() == set(EXPERIMENTS["annealing"].metrics)
    for name in ("loss", "common", "neighbours", "sil"):
        assert outcome.metrics[name] == curve[name].iloc[-1]
    assert curve["common"].iloc[-1] < 0.6 * curve["common"].iloc[0]
    assert curve["sil"].iloc[-1] > curve["sil"].iloc[0]
    assert math.isnan(moving(epochs=1).metrics["epochs_to_pure"]), "never reached"


def test_points_are_recorded_in_four_epochs_as_they_then_are():
    outcome = moving()
    points = outcome.points
    assert list(points.columns) == ["row", "label", "epoch", "x", "y"]
    assert points.groupby("epoch").size().to_dict() == dict.fromkeys((0, 10, 20, 50), 300)
    for epoch in (0, 10, 20, 50):
        assert points.loc[points["epoch"] == epoch, "row"].tolist() == list(range(300))
        places, labels = shown(outcome, epoch)
        assert np.array_equal(labels, shown(outcome, 0)[1])
        share = outcome.curve["neighbours"].iloc[epoch]
        assert nearest_share(places, labels) == pytest.approx(share, abs=2e-3)
    shorter = moving(epochs=10)
    assert sorted(set(shorter.points["epoch"])) == [0, 10]
    assert np.array_equal(shown(shorter, 10)[0], shown(outcome, 10)[0])


@pytest.mark.filterwarnings("ignore:overflow|invalid value:RuntimeWarning")
def test_points_that_run_away_are_reported_as_diverged():
    spec = specs("annealing", "tiny", "auto", 42)[0]
    settings = dict(spec.settings) | {"learning_rate": 1e38}
    record = experiments.run(replace(spec, settings=tuple(sorted(settings.items()))), "cpu")
    reason = f"a point was not finite in epoch {len(record.curve)}"
    assert (record.status, record.reason) == ("diverged", reason) and len(record.curve) < 3


# ---------------------------------------------------------------- every cell and its run


@pytest.mark.parametrize(
    ("experiment", "dataset"),
    [
        *((name, "mnist") for name in ("images", "unseen", "labels", "tsne")),
        ("tsne", "emnist_balanced"),
        ("annealing", "auto"),
    ],
)
def test_every_cell_is_carried_out_and_every_setting_of_it_looked_at(
    loaded, monkeypatch, experiment, dataset
):
    # One that no run reads would be a claim without effect. "layers" only says what the
    # model's name already means; all of a grid have "kmeans_starts".
    asked, get, item = set(), results.Spec.get, results.Spec.__getitem__
    noting = lambda self, name, *default: asked.add(name) or get(self, name, *default)  # noqa: E731
    monkeypatch.setattr(results.Spec, "get", noting)
    noting = lambda self, name: asked.add(name) or item(self, name)  # noqa: E731
    monkeypatch.setattr(results.Spec, "__getitem__", noting)
    expected = set(EXPERIMENTS[experiment].metrics)
    for spec in specs(experiment, "tiny", dataset, 42):
        if spec.model == "n2d":
            continue  # UMAP compiles itself for half a minute
        asked.clear()
        record = experiments.run(spec, "cpu")
        assert record.status == "ok", (str(spec), record.reason)
        unread = set(dict(spec.settings)) - asked - {"layers", "reading", "kmeans_starts"}
        assert unread <= ({"hidden_sizes"} if spec.model == "ffn" else set()), str(spec)
        if experiment == "images" and spec.model in ("original", "pca", "ae", "supcon", "ae-10"):
            assert "kmeans_starts" in asked
        assert expected <= set(record.metrics)
        used = record.metrics.get("clusters_used", 4)
        undefined = {name for name in expected if not np.isfinite(record.metrics[name])}
        assert undefined <= {"epochs_to_pure", *(("dbi", "sil", "chs") if used == 1 else ())}
        assert ("clusters_used" in record.metrics) == (spec.model in ("dec", "idec", "vade"))
        assert used in range(1, 5)
        has_points = experiment == "tsne" or (experiment == "annealing" and not spec.get("reading"))
        assert (record.points is not None) == has_points
        drawn = (spec.n_train, 0 if experiment == "annealing" else 200)
        if spec.get("unseen"):
            assert 0 < record.n_train < drawn[0] and 0 < record.n_test < drawn[1]
        else:
            assert (record.n_train, record.n_test) == drawn
        if experiment in ("images", "labels") and spec.model not in DEEP:
            assert record.metrics["acc"] > 0.5, (str(spec), "patterns that lie apart")


# ---------------------------------------------------------------- the contrastive rival


def test_the_projector_has_the_encoder_of_the_autoencoder_of_its_seed_and_no_decoder():
    model, autoencoder = build_projector(784, 42), build(Autoencoder, 784, seed=42)
    for part in ("encoder", "code"):
        ours, theirs = (getattr(network, part).state_dict() for network in (model, autoencoder))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert {name.split(".")[0] for name in model.state_dict()} == {"encoder", "code", "output"}
    assert not torch.equal(model.code.weight, build_projector(784, 73).code.weight)
    output, hidden = model(torch.rand(5, 784))
    assert output.shape == (5, 128) and list(hidden) == ["encoder1", "encoder2", "encoder3", "code"]
    assert 0 < hidden["code"].min() < hidden["code"].max() < 1
    torch.testing.assert_close(output, hidden["code"] @ model.output.weight.T + model.output.bias)


def test_the_contrastive_loss_is_that_of_the_projections_at_a_tenth():
    random = torch.Generator().manual_seed(0)
    output, labels = torch.randn(30, 128, generator=random), torch.arange(30) % 4
    found = contrastive(output, torch.rand(30, 784), labels)
    assert found == supervised_contrastive_loss(output, labels, 0.1)


def test_the_contrastive_rival_clusters_the_code_and_throws_the_projection_away(
    task, scored, trainings
):
    outcome = run_images(tiny("supcon"), task, "cpu", None)
    (training,) = trainings
    assert training.features is task.train_x and training.labels is task.train_y
    assert training.primary is contrastive
    assert (training.epochs, training.seed, training.alpha) == (2, 42, 0), (
        "no loss of hidden layers beside it"
    )
    found = scored[0][0]
    assert found.shape == (200, 128)
    assert np.array_equal(found, forward(training.model, task.test_x, layer="code"))
    assert outcome.curve["epoch"].tolist() == [0, 1]
    assert outcome.curve["loss"].is_monotonic_decreasing


@pytest.mark.parametrize("model", ["ae", "ae-d", "supcon"])
def test_labels_reach_the_codes_of_test_images_in_training_alone_and_those_of_test_images_never(
    task, scored, model
):
    mixed = np.random.default_rng(0).permutation
    others = replace(task, test_y=mixed(task.test_y)), replace(task, train_y=mixed(task.train_y))
    for own in (task, *others):
        run_images(tiny(model), own, "cpu", None)
    (found, clusters, labels), (same, again, other), (retrained, _, _) = scored
    assert np.array_equal(found, same)
    assert np.array_equal(clusters, again)
    assert not np.array_equal(labels, other)
    assert np.array_equal(found, retrained) == (model == "ae")


def test_an_autoencoder_of_images_is_shown_the_pixels_as_they_are(task):
    for model, alpha in (("ae", 0), ("ae-d", 1)):
        training = training_of(run_images, tiny(model), task, "cpu", None)
        assert training.features is task.train_x
        assert training.primary is binary_cross_entropy
        assert training.alpha == alpha and training.select is None, "all hidden layers"


# ---------------------------------------------------------------- the autoencoder that deep
# clustering shares


def kept(cache):
    return sorted(path for path in cache.rglob("*") if path.is_file())


def shared(spec, task):
    """The autoencoder that a run starts from, its curve and the seconds of its training."""
    return pretrained(spec, task, "cpu")


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("models", [("ae-10", "vade", "n2d"), ("dec", "idec")])
def test_the_second_run_takes_the_autoencoder_of_the_first_from_the_cache(
    task, loaded, monkeypatch, models
):
    normalize = "dec" in models
    first, curve, seconds = shared(tiny(models[0]), task)
    (path,) = kept(loaded)
    assert path.parent == loaded / "pretrained"
    assert path.name.startswith("mnist-") and path.suffix == ".bin"
    settings = {"epochs": 2, "seed": 42, "normalize": normalize}
    trained, again = deep_clustering.pretrain(task.train_x, 10, **settings)
    assert torch.equal(weights(first), weights(trained)) and curve.equals(again.curve)
    assert first.unit_range is trained.unit_range is not normalize
    assert first.scale == trained.scale and (first.scale is not None) == normalize
    monkeypatch.setattr("snnl_lib.training.train", None)  # what would train again
    for model in models:  # whichever method asks
        second, other, took = shared(tiny(model), task)
        assert torch.equal(weights(first), weights(second)) and not second.training
        assert (second.unit_range, second.scale) == (first.unit_range, first.scale)
        assert other.equals(curve) and took == seconds > 0
    assert np.array_equal(forward(second, task.test_x), forward(first, task.test_x))
    assert kept(loaded) == [path]


def test_features_beyond_0_to_1_keep_their_kind_of_reconstruction_in_the_cache(task):
    wider = replace(task, train_x=task.train_x * 2 - 1)
    assert [shared(tiny("vade"), wider)[0].unit_range for _ in range(2)] == [False, False]


def test_normalised_pixels_are_those_of_dec_and_idec_alone(task, loaded):
    scales = {model: shared(tiny(model), task)[0].scale for model in DEEP}
    assert {model for model, scale in scales.items() if scale} == {"dec", "idec"}
    assert scales["dec"] == pytest.approx(np.square(task.train_x.astype(float)).mean() ** -0.5)
    assert len(kept(loaded)) == 2, "each kind is trained once"


def test_another_seed_other_images_and_another_length_are_other_autoencoders(task, loaded):
    fewer = replace(task, train_x=task.train_x[:-1])
    darker = replace(task, train_x=task.train_x * np.float32(0.5))
    asked = [(tiny("dec"), own) for own in (task, fewer, darker)]
    asked += [(tiny("dec", **change), task) for change in ({"seed": 73}, {"pretrain_epochs": 1})]
    found = {weights(shared(*each)[0]).sum().item() for each in asked}
    # Darker images are the same ones when normalised, but for rounding, and another file.
    assert len(kept(loaded)) == 5 and len(found) >= 4
    shared(tiny("dec"), replace(task, test_x=task.test_x[:5], train_y=task.train_y[::-1]))
    assert len(kept(loaded)) == 5, "neither test images nor labels have a say"


def test_a_pretraining_that_was_killed_goes_on_and_keeps_no_checkpoint(task, loaded, monkeypatch):
    expected, curve, _ = shared(tiny("dec"), task)
    (path,) = kept(loaded)
    path.unlink()
    monkeypatch.setattr("snnl_lib.checkpoint.SECONDS_BETWEEN", 0)
    batches = []

    @functools.wraps(squared_error)  # a checkpoint is that of a loss of this name
    def killed(output, features, labels):
        batches.append(len(features))
        if len(batches) == 3:  # the first of the second epoch
            raise KeyboardInterrupt
        return squared_error(output, features, labels)

    with monkeypatch.context() as patch:
        patch.setattr("snnl_lib.training.squared_error", killed)
        with pytest.raises(KeyboardInterrupt):
            shared(tiny("dec"), task)
    assert kept(loaded) == [path.with_suffix(".under-way.pt")]
    again, other, _ = shared(tiny("dec"), task)
    assert torch.equal(weights(again), weights(expected)) and other.equals(curve)
    assert kept(loaded) == [path]
    path.with_suffix(".under-way.pt").write_text("no checkpoint")
    path.unlink()
    with pytest.raises(CacheError, match="remove it"):
        shared(tiny("dec"), task)


# ---------------------------------------------------------------- deep clustering of images


def test_where_deep_clustering_starts_is_k_means_on_the_shared_autoencoder(task, scored):
    outcome = run_deep(tiny("ae-10"), task, "cpu", None)
    model, curve, seconds = shared(tiny("vade"), task)
    expected = forward(model, task.test_x, layer="code")
    ((found, clusters, labels),) = scored
    assert expected.shape == (200, 10)
    assert np.array_equal(found, expected)
    assert np.array_equal(labels, task.test_y)
    kmeans = KMeans(4, n_init=2, random_state=named_seed(42, "kmeans"))
    assert np.array_equal(clusters, kmeans.fit_predict(expected))
    assert outcome.curve.equals(curve) and outcome.shared_seconds == seconds
    assert outcome.metrics["snn"] == entanglement(expected, task.test_y)


@pytest.mark.parametrize(("model", "kind"), [("dec", "DEC"), ("idec", "IDEC"), ("vade", "VaDE")])
def test_a_method_is_fitted_to_the_training_images_without_labels_and_scored_on_the_test_images(
    task, scored, monkeypatch, model, kind
):
    fitted, fit = [], getattr(deep_clustering, kind).fit

    def noting(self, features, *, autoencoder):
        fitted.append((self, features, autoencoder))
        return fit(self, features, autoencoder=autoencoder)

    monkeypatch.setattr(getattr(deep_clustering, kind), "fit", noting)
    outcome = run_deep(tiny(model), task, "cpu", None)
    assert len(fitted) == (1 if model == "vade" else 2), "and where DEC and IDEC start"
    method, features, start = fitted[0]
    assert features is task.train_x
    assert torch.equal(weights(start), weights(shared(tiny(model), task)[0])), "left as it was"
    assert (method.k, method.seed) == (4, 42)
    assert (method.epochs if model == "vade" else method.max_steps) == {"vade": 2}.get(model, 4)
    ((found, clusters, labels),) = scored
    assert np.array_equal(found, method.transform(task.test_x))
    assert np.array_equal(clusters, method.predict(task.test_x))
    assert labels is task.test_y
    assert outcome.curve.equals(method.curve)
    assert outcome.metrics["clusters_used"] == len(set(clusters))
    assert outcome.metrics["snn"] == entanglement(found, task.test_y)
    assert outcome.shared_seconds == shared(tiny(model), task)[2]
    pretrained_scores = {"pretrained_acc", "pretrained_nmi"} & set(outcome.metrics)
    assert len(pretrained_scores) == (0 if model == "vade" else 2)
    mixed = replace(task, train_y=np.random.default_rng(0).permutation(task.train_y))
    again = run_deep(tiny(model), mixed, "cpu", None)
    assert again.metrics == pytest.approx(outcome.metrics, nan_ok=True, rel=0, abs=0), "no label"


def test_where_dec_and_idec_start_is_k_means_on_the_pretrained_codes_of_training_images(task):
    found = run_deep(tiny("idec"), task, "cpu", None).metrics
    start, _, _ = shared(tiny("idec"), task)
    train, test = (
        forward(start, x * np.float32(start.scale), layer="code")
        for x in (task.train_x, task.test_x)
    )
    kmeans = KMeans(4, n_init=20, random_state=named_seed(42, "centroids")).fit(train)
    expected = metrics.external_scores(kmeans.predict(test), task.test_y)
    assert found["pretrained_acc"] == expected["acc"]
    assert found["pretrained_nmi"] == pytest.approx(expected["nmi"])


def test_idec_with_the_mean_over_pixels_weighs_the_clusters_by_their_number(task, monkeypatch):
    asked, fit = [], methods.IDEC.fit
    monkeypatch.setattr(
        methods.IDEC,
        "fit",
        lambda self, *x, **how: asked.append(self.gamma) or fit(self, *x, **how),
    )
    for spec in specs("images", "tiny", "mnist", 42):
        if spec.model == "idec":
            run_deep(spec, task, "cpu", None)
    assert asked == pytest.approx([0.1, 0.1, 78.4, 78.4])


def test_deep_clustering_alone_has_a_revision_of_its_own():
    revisions = {}
    for spec in specs("images", "full", "mnist", 42):
        revisions.setdefault(spec.revision, set()).add(spec.model)
    assert revisions[2] == {"dec", "idec", "n2d", "vade"} and not revisions[1] & revisions[2]


def test_n2d_maps_and_clusters_the_codes_of_the_test_images(task, scored, monkeypatch):
    fitted = []

    class StandIn:  # for UMAP takes long, and what it is given is what is looked at
        def __init__(self, k, **settings):
            self.own = k, settings["seed"], settings["device"]

        def fit(self, features, *, autoencoder):
            fitted.append((self.own, features, weights(autoencoder)))
            self.manifold, self.curve = features[:, :4], pd.DataFrame()
            self.labels_ = np.arange(len(features)) % 3

    monkeypatch.setattr(methods, "N2D", StandIn)
    outcome = run_deep(tiny("n2d"), task, "cpu", None)
    ((own, features, start),) = fitted
    assert own == (4, 42, "cpu") and features is task.test_x
    assert torch.equal(start, weights(shared(tiny("n2d"), task)[0]))
    ((found, clusters, labels),) = scored
    assert found.shape == (200, 4) and clusters[:4].tolist() == [0, 1, 2, 0]
    assert labels is task.test_y
    assert outcome.metrics["clusters_used"] == 3 and outcome.curve is None


def test_a_method_that_diverges_says_so_with_its_curve(task, monkeypatch):
    monkeypatch.setattr(
        deep_clustering.VaDE, "_loss", lambda self, x, *_: self.autoencoder(x)[0].mean() * math.nan
    )
    few = replace(task, train_x=task.train_x[:8])
    with pytest.raises(Diverged, match="the loss was nan in epoch 0") as caught:
        run_deep(tiny("vade"), few, "cpu", None)
    assert math.isnan(caught.value.curve["loss"].iloc[-1])
    monkeypatch.setattr(runner, "load_task", lambda *args: few)
    record = experiments.run(tiny("vade"), "cpu")
    assert (record.status, record.reason) == ("diverged", str(caught.value))
    assert record.curve.equals(caught.value.curve)
    assert all(np.isnan(record.metrics[name]) for name in EXPERIMENTS["images"].metrics)


# ---------------------------------------------------------------- t-SNE


def mapped(task, model="original", **settings):
    spec = tiny(model, "tsne", **({"perplexity": 10, "points": 120} | settings))
    return run_tsne(spec, task, "cpu", None)


def test_a_map_counts_neighbourhoods_in_as_many_coordinates_as_it_has_dimensions(task):
    outcome = mapped(task, dimensions=3)
    points = outcome.points
    assert list(points.columns) == ["row", "label", *"xyz"]
    share = nearest_share(points[[*"xyz"]].to_numpy().astype(float), points["label"].to_numpy())
    assert outcome.metrics["neighbours"] == pytest.approx(share, abs=5e-3)
    assert outcome.metrics["kl"] > 0
    labels = dict(zip(task.test_rows, task.test_y, strict=True))
    assert points["label"].tolist() == [labels[row] for row in points["row"]]


def test_a_map_shows_so_many_test_images_the_same_for_every_model_and_number_of_dimensions(task):
    first, *others = (
        mapped(task, model, dimensions=dimensions).points["row"].tolist()
        for model, dimensions in (("original", 2), ("original", 3), ("ae-d", 2))
    )
    assert len(set(first)) == 120
    assert all(rows == first for rows in others)
    assert set(first) <= set(task.test_rows)
    assert first[:3] != task.test_rows[:3].tolist(), "drawn, not the first"
    assert mapped(task, seed=73).points["row"].tolist() != first
    assert len(mapped(task, points=2000).points) == 200, "more than there are means all"
    assert mapped(task, points=None).points["row"].tolist() == task.test_rows.tolist()


def test_a_map_shows_images_of_so_many_classes_that_the_seed_draws(task):
    found = {
        seed: frozenset(mapped(task, seed=seed, shown_classes=2, points=60).points["label"])
        for seed in (42, 73, 1, 2, 3)
    }
    assert {len(classes) for classes in found.values()} == {2} and len({*found.values()}) > 1
    points = mapped(task, shown_classes=2, points=2000).points
    assert set(points["label"]) == found[42]
    assert len(points) == np.isin(task.test_y, list(found[42])).sum(), "all images of theirs"
