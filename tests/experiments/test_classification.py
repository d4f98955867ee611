"""The text paper's readings and rivals, each against what it claims to be, and the run of one spec
on data made up for it.
"""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import SupConLoss

from snnl_lib import experiments, results
from snnl_lib.experiments import Task, load_task, run, specs, text
from snnl_lib.experiments.text import (
    run_classification,
    run_rival,
    standardize,
    supervised_contrastive_loss,
)
from snnl_lib.losses import soft_nearest_neighbor_loss

# ---------------------------------------------------------------- supervised contrastive loss


def batch(seed=0, size=40, classes=4, width=7):
    random = np.random.default_rng(seed)
    features = torch.tensor(
        random.normal(size=(size, width)), dtype=torch.float64, requires_grad=True
    )
    return features, torch.tensor(random.integers(0, classes, size))


def supcon_by_hand(features, labels, temperature):
    """Khosla et al. (2020), their "out" form, one pair at a time."""
    unit = [row / np.sqrt((row**2).sum()) for row in features]
    losses = []
    for i, anchor in enumerate(unit):
        others = [k for k in range(len(unit)) if k != i]
        mates = [k for k in others if labels[k] == labels[i]]
        if mates:
            total = sum(np.exp(anchor @ unit[k] / temperature) for k in others)
            losses.append(
                -np.mean([np.log(np.exp(anchor @ unit[k] / temperature) / total) for k in mates])
            )
    return np.mean(losses) if losses else 0.0


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    "classes", [1, 4, 35]
)  # 35 classes of 40 points: many without a class mate
def test_the_rival_loss_is_that_of_khosla_and_others_one_pair_at_a_time(temperature, classes):
    features, labels = batch(classes=classes)
    expected = supcon_by_hand(features.detach().numpy(), labels.numpy(), temperature)
    assert supervised_contrastive_loss(features, labels, temperature).item() == pytest.approx(
        expected, rel=1e-12
    )


@pytest.mark.parametrize("temperature", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("classes", [2, 4, 35])  # the other one gives 0 for a batch of one class
def test_the_rival_loss_and_its_gradient_are_those_of_a_second_implementation(temperature, classes):
    features, labels = batch(seed=1, classes=classes)
    ours, theirs = (
        supervised_contrastive_loss(features, labels, temperature),
        SupConLoss(temperature)(features, labels),
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    gradients = [torch.autograd.grad(loss, features)[0] for loss in (ours, theirs)]
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("labels", [[0], [0, 1, 2]])
def test_without_a_pair_of_one_class_the_rival_loss_is_zero_and_so_is_its_gradient(labels):
    features = torch.randn(len(labels), 5, requires_grad=True)
    loss = supervised_contrastive_loss(features, torch.tensor(labels), 0.1)
    loss.backward()
    assert loss.item() == 0 and not features.grad.any()


@pytest.mark.parametrize("temperature", [1.0, 0.01])
def test_the_rival_loss_is_finite_in_float32_for_points_that_coincide(temperature):
    features = torch.cat([torch.ones(6, 5), -torch.ones(6, 5)]).requires_grad_()
    loss = supervised_contrastive_loss(features, torch.arange(12) % 2, temperature)
    loss.backward()
    assert loss.isfinite() and features.grad.isfinite().all()


def test_one_near_class_mate_satisfies_equation_4_and_not_its_rival():
    # What tells the two apart: the mean over the class mates inside the logarithm, or outside.
    angles = torch.tensor(
        [0.0, 0.05, 3.0, 1.5, 1.55, 4.5], dtype=torch.float64
    )  # each class: two points together, one far away
    points, labels = (
        torch.stack([angles.cos(), angles.sin()], dim=1),
        torch.tensor([0, 0, 0, 1, 1, 1]),
    )
    near = torch.tensor([0, 1, 3, 4])
    ours = soft_nearest_neighbor_loss(points, labels, 0.1, reduction="none")[near]
    assert ours.max() < 0.1 and supervised_contrastive_loss(points, labels, 0.1) > 5


# ---------------------------------------------------------------- standardising


def test_features_are_standardised_by_the_training_mean_and_deviation():
    random = np.random.default_rng(0)
    train = (random.normal(size=(500, 6)) * [1, 5, 0.1, 1, 100, 1] + [0, 3, -7, 50, 0, 1]).astype(
        np.float32
    )
    test = (random.normal(size=(50, 6)) + 2).astype(np.float32)
    scaled_train, scaled_test = standardize(train, test)
    assert scaled_train.dtype == scaled_test.dtype == np.float32
    np.testing.assert_allclose(scaled_train.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(scaled_train.std(axis=0), 1, atol=1e-4)
    expected = (test - train.astype(float).mean(axis=0)) / train.astype(float).std(axis=0)
    np.testing.assert_allclose(scaled_test, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [0.0, 0.1, -1 / 3, 123.4])
@pytest.mark.parametrize("count", [7, 1000, 20_000])
def test_a_feature_that_never_changes_stays_small_in_the_test_documents_too(value, count):
    # Rounding leaves its deviation a little above 0 for most values and numbers of documents:
    # dividing by that would blow up the test value.
    train, test = np.full((count, 1), value, np.float32), np.full((2, 1), value + 0.25, np.float32)
    scaled_train, scaled_test = standardize(train, test)
    np.testing.assert_allclose(scaled_train, 0, atol=1e-3)
    np.testing.assert_allclose(scaled_test, 0.25, atol=1e-3)


# ---------------------------------------------------------------- the grid of readings


def test_each_reading_reaches_the_training_as_its_name_says(packages, monkeypatch):
    seen = {}

    def noting(model, features, labels, primary, **settings):
        seen[reading] = model, settings, len(features)
        raise RuntimeError("far enough: what training starts from has been noted")

    monkeypatch.setattr(text, "train", noting)
    for spec in specs("classification-readings", "tiny", "newsgroups4", 42):
        reading = f"{spec['reading']} {spec.alpha}"
        assert run(spec, "cpu").status == "failed"
    model, settings, count = seen["minimum over layers 100"]
    assert (settings["layers"], settings["alpha"], settings["temperature"], count) == (
        "min",
        100,
        "annealed",
        300,
    )
    assert seen["before the nonlinearity 100"][0].before_relu and not model.before_relu
    assert [seen[f"alpha {alpha} {alpha}"][1]["alpha"] for alpha in (1, 10, 1000)] == [1, 10, 1000]
    assert [seen[f"fixed temperature {t} 100"][1]["temperature"] for t in ("1.0", "0.1")] == [
        1.0,
        0.1,
    ]
    assert len(seen["five hidden layers -100"][0].hidden) == 5 and len(model.hidden) == 2
    assert seen["best epoch on a held-out tenth 0"][2] == 270
    select = seen["output layer counted too 100"][1]["select"]
    assert select({"hidden1": 1}, 2) == {"hidden1": 1, "output": 2} and settings["select"] is None
    pooled, narrow = seen["kernel 3, max pooling 0"][0], seen["8 filters, 256 positions 0"][0]
    assert pooled.conv.kernel_size == (3,) and pooled.conv.out_channels == 32
    assert narrow.conv.kernel_size == (45,) and narrow.conv.out_channels == 8


# ---------------------------------------------------------------- the best epoch on held-out
# documents


def overlapping(seed):
    """Four classes that overlap and many features, so that a network overfits and the accuracy goes
    up and down from epoch to epoch.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, 700)
    features = (0.6 * np.eye(4, 30)[labels] + 0.3 * random.normal(size=(700, 30))).astype(
        np.float32
    )
    return Task(features[:500], labels[:500], features[500:], labels[500:], 4, 0, 0)


@pytest.fixture(scope="module")
def blobs():
    return overlapping(0)


def made_up(model, alpha=0, temperature="annealed", **settings):
    settings = {"epochs": 12, "hidden_sizes": (40,), "layers": "sum", "n_test": None} | settings
    return results.Spec(
        "classification",
        "tiny",
        "made-up",
        "spacy",
        model,
        alpha,
        temperature,
        42,
        500,
        1,
        tuple(sorted(settings.items())),
    )


HELD_OUT = made_up("ffn", held_out=0.2)


@pytest.fixture(scope="module")
def held_out():
    """A task and its run in which the epoch that is best on held-out documents is neither the last
    nor the one that is best on the test documents.
    """
    for seed in range(20):
        task = overlapping(seed)
        scores, curve, status, _, _ = run_classification(HELD_OUT, task, "cpu", None)
        best = curve["held_acc"].argmax()  # the first of equals
        if 0 < best < 11 and curve["test_acc"][best] not in (
            curve["test_acc"][11],
            curve["test_acc"].max(),
        ):
            return task, scores, curve, status, best
    pytest.fail("none of the tasks is the one meant")


def test_with_held_out_documents_the_epoch_that_is_best_on_them_is_reported(held_out):
    _, scores, curve, status, best = held_out
    assert status == "ok" and scores["acc"] == curve["test_acc"][best]
    assert (curve["held_acc"] * 100).tolist() == pytest.approx(
        (curve["held_acc"] * 100).round().tolist()
    ), "100 documents are held out"


def test_held_out_documents_are_not_trained_on(held_out, monkeypatch):
    task, _, curve, _, _ = held_out
    seen, train = {}, text.train

    def noting(model, features, labels, *args, **settings):
        seen.update(features=features, labels=labels)
        return train(model, features, labels, *args, **settings)

    monkeypatch.setattr(text, "train", noting)
    # Other labels for the held-out documents: the losses of training must not know of it, the
    # choice must.
    other = replace(
        task, train_y=np.concatenate([(task.train_y[:100] + 1) % 4, task.train_y[100:]])
    )
    _, again, _, _, _ = run_classification(HELD_OUT, other, "cpu", None)
    assert np.array_equal(seen["features"], task.train_x[100:]) and np.array_equal(
        seen["labels"], task.train_y[100:]
    )
    assert again["loss"].equals(curve["loss"]) and not again["held_acc"].equals(curve["held_acc"])


def test_test_documents_have_no_say_in_which_epoch_is_chosen(held_out):
    task, _, curve, _, best = held_out
    would_have_chosen = set()
    for seed in range(4):
        other = replace(task, test_y=np.random.default_rng(seed).permutation(task.test_y))
        scores, again, _, _, _ = run_classification(HELD_OUT, other, "cpu", None)
        assert again["held_acc"].equals(curve["held_acc"]) and not again["test_acc"].equals(
            curve["test_acc"]
        )
        assert scores["acc"] == again["test_acc"][best]
        would_have_chosen.add(again["test_acc"].argmax())
    assert would_have_chosen - {best}, "the test documents would have chosen otherwise"


def test_without_held_out_documents_all_are_trained_on_and_the_last_epoch_is_reported(
    blobs, monkeypatch
):
    seen, train = [], text.train
    monkeypatch.setattr(
        text,
        "train",
        lambda model, features, *args, **settings: (
            seen.append(len(features)) or train(model, features, *args, **settings)
        ),
    )
    scores, curve, _, _, _ = run_classification(made_up("ffn"), blobs, "cpu", None)
    assert seen == [500] and "held_acc" not in curve and scores["acc"] == curve["test_acc"].iloc[-1]


# ---------------------------------------------------------------- one large common direction


def common_direction(width, seed):
    """Four classes, easily told apart, on top of one long vector that all documents share, as
    max-pooled states have it.
    """
    random = np.random.default_rng(seed)
    labels = np.arange(600) % 4
    features = (
        3 * random.normal(size=width)
        + 0.1 * random.normal(size=(4, width))[labels]
        + 0.1 * random.normal(size=(600, width))
    )
    features = features.astype(np.float32)
    return Task(features[:400], labels[:400], features[400:], labels[400:], 4, 0, 0)


def accuracy(task, alpha, epochs, **settings):
    return run_classification(
        made_up("ffn", alpha, epochs=epochs, hidden_sizes=(500,), **settings), task, "cpu", None
    )[0]["acc"]


def test_one_large_common_direction_leaves_the_loss_at_chance_unless_features_are_standardised():
    task = common_direction(4096, seed=0)
    unit = task.train_x[:20] / np.linalg.norm(task.train_x[:20], axis=1, keepdims=True)
    assert (unit @ unit.T).min() > 0.99, (
        "the case is the one meant: to the cosine all documents are alike"
    )
    assert accuracy(task, 100, 5) < 0.4, "one of four by chance"
    assert accuracy(task, 100, 5, standardize=True) > 0.95


def test_with_a_large_common_direction_it_is_the_loss_that_keeps_the_classifier_from_learning():
    task = common_direction(1024, seed=0)
    assert accuracy(task, 0, 30) > 0.9 > 0.7 > accuracy(task, 100, 30)


# ---------------------------------------------------------------- rivals


@pytest.mark.parametrize("spec", specs("classification-rivals", "tiny", "newsgroups4", 42), ids=str)
def test_every_rival_beats_chance_on_real_documents(newsgroups4, monkeypatch, spec):
    monkeypatch.setattr(experiments, "_load", lambda name: newsgroups4)
    # 300 documents of 300 features are the one number with which linear discriminant analysis
    # is at chance: its covariance cannot be inverted.
    task = load_task.__wrapped__(
        "newsgroups4", "spacy", 42, 2000 if spec.model == "lda" else 300, 200
    )
    scores, curve, status, _, _ = run_rival(spec, task, "cpu", None)
    largest_class = np.bincount(task.test_y).max() / len(task.test_y)
    assert largest_class < 0.3 and scores["acc"] > 0.45 and status == "ok"
    assert (curve is None) == (spec.model in ("lda", "logreg", "knn"))
    assert {"acc", "f1_micro", "f1_macro"} <= scores.keys()


def test_neighbours_are_looked_for_in_the_last_hidden_layer(blobs):
    from sklearn.neighbors import KNeighborsClassifier

    spec = made_up("ffn-knn", 100, neighbours=5, hidden_sizes=(40, 30), epochs=3)
    scores, curve, _, _, _ = run_rival(spec, blobs, "cpu", None)
    model, _ = text._train_classifier(
        replace(spec, model="ffn"), blobs.train_x, blobs.train_y, blobs, "cpu"
    )
    with torch.no_grad():
        train, test = (
            model(torch.as_tensor(x))[1]["hidden2"].numpy() for x in (blobs.train_x, blobs.test_x)
        )
    assert scores["acc"] == KNeighborsClassifier(5).fit(train, blobs.train_y).score(
        test, blobs.test_y
    )
    assert curve["epoch"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("model", ["knn", "ffn-knn"])
def test_the_number_of_neighbours_is_that_of_the_spec(blobs, model):
    found = {
        neighbours: run_rival(made_up(model, neighbours=neighbours, epochs=1), blobs, "cpu", None)[
            0
        ]["acc"]
        for neighbours in (1, 10)
    }
    assert found[1] != found[10]


def test_rivals_are_standardised_where_the_spec_says_so(blobs):
    stretched = replace(
        blobs,
        train_x=blobs.train_x * np.array([1] * 29 + [1000], np.float32),
        test_x=blobs.test_x * np.array([1] * 29 + [1000], np.float32),
    )
    as_it_is, standardised = (
        run_rival(made_up("knn", neighbours=10, standardize=flag), stretched, "cpu", None)[0]["acc"]
        for flag in (False, True)
    )
    assert as_it_is < 0.4 < 0.6 < standardised, "the one feature that was stretched says nothing"


def test_supcon_trains_on_its_own_loss_in_every_hidden_layer(blobs, monkeypatch):
    calls, loss = [], text.supervised_contrastive_loss

    @functools.wraps(loss)
    def noting(features, labels, temperature):
        calls.append((features.shape[1], temperature))
        return loss(features, labels, temperature)

    monkeypatch.setattr(text, "supervised_contrastive_loss", noting)
    run_rival(made_up("supcon", 100, hidden_sizes=(40, 30), epochs=2), blobs, "cpu", None)
    assert (
        calls == [(40, 1.0), (30, 1.0)] * 2 + [(40, 2**-0.55), (30, 2**-0.55)] * 2
    )  # two batches an epoch


def test_a_rival_that_diverges_says_so(blobs):
    for model in ("supcon", "ffn-knn"):
        scores, curve, status, reason, _ = run_rival(
            made_up(model, 1e39, neighbours=10), blobs, "cpu", None
        )
        assert (scores, status) == ({}, "diverged") and "in epoch 0" in reason and len(curve) == 1


# ---------------------------------------------------------------- the convolutional network


def test_a_convolutional_classifier_learns_real_documents_and_each_of_its_layers_is_measured(
    newsgroups4, monkeypatch
):
    monkeypatch.setattr(experiments, "_load", lambda name: newsgroups4)
    task = load_task.__wrapped__("newsgroups4", "spacy", 42, 600, 200)
    measured, entanglement = [], text.entanglement
    monkeypatch.setattr(
        text,
        "entanglement",
        lambda features, labels: (
            measured.append(features.shape[1]) or entanglement(features, labels)
        ),
    )
    (spec,) = [
        spec
        for spec in specs("classification", "tiny", "newsgroups4", 42)
        if spec.model == "cnn" and spec.alpha == 0
    ]
    spec = replace(spec, settings=tuple(sorted((dict(spec.settings) | {"epochs": 4}).items())))
    scores, _, status, _, _ = run_classification(spec, task, "cpu", None)
    assert status == "ok" and scores["acc"] > 0.5
    assert measured == [2048, 2048, 1024, 512]
