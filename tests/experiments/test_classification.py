"""Text classification: what a reading changes, each rival against what it claims to be, and the run
of one spec on invented data.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_hand import carried_out, described, made_up_task, task_of, training_of

from snnl_book import results
from snnl_book.experiments import PROFILES, load_task, specs
from snnl_book.experiments.classification import reading_cells, run_network, run_rival, table_cells
from snnl_lib import losses, training


def test_a_reading_differs_from_the_main_setting_in_exactly_one_thing():
    main = [described(cell) for cell in table_cells(PROFILES["full"])]
    for cell in reading_cells(PROFILES["full"]):
        own = described(cell)
        reading = own.pop("reading")
        changed = min(
            (
                {name for name in own.keys() | setting.keys() if own.get(name) != setting.get(name)}
                for setting in main
            ),
            key=len,
        )
        if "halftime" in reading:
            step = {"rate_cut"} if "rate" in reading else {"restart"}
            assert changed - {"n_train", "loss_epochs"} == step
            assert own["alpha"] == 100 * ("loss" in reading) and own.get("restart", 15) == 15
        elif reading == "weight divided by the falling T":
            assert changed == {"temperature", "weight"}  # at T = 1
        elif "half only" in reading:
            assert changed - {"n_train", "steps_per_epoch"} == {"loss_epochs"}
            assert own["loss_epochs"] == ((0, 15) if "first" in reading else (15, 30))
            assert own.get("steps_per_epoch") == (79 if "as many steps" in reading else None)
        elif "as many steps" in reading:
            assert changed == {"n_train", "steps_per_epoch"} and own["steps_per_epoch"] == 79
        elif "documents, best epoch" in reading:
            assert changed == {"n_train", "held_out"}
        elif reading == "20,000 documents":
            assert (changed, own["alpha"]) == ({"n_train"}, 0)  # the baseline, on more seeds
        elif (
            reading == "8 filters, 256 positions"
        ):  # one choice in two numbers: as many values leave the convolution
            assert changed == {"filters", "positions"}
            assert own["filters"] * own["positions"] == 32 * 64
        else:
            assert len(changed) == 1, f"{reading}: {changed}"


# ---------------------------------------------------------------- readings


def test_each_reading_reaches_the_training_as_its_name_says(packages):
    seen, task = {}, load_task("newsgroups4", "spacy", 42, 300, 200)
    for spec in specs("classification-readings", "tiny", "newsgroups4", 42):
        few = "documents" in spec["reading"] and not spec["reading"].startswith("300 ")
        assert (spec.embedding, spec["n_test"]) == ("spacy", 200)
        assert spec.n_train == (100 if few else 300)
        assert spec.get("steps_per_epoch") == (2 if "as many steps" in spec["reading"] else None)
        name = f"{spec['reading']} {spec.alpha}"
        seen[name] = training_of(run_network, spec, task, "cpu", None)
    plain = seen["minimum over layers 100"]
    assert (plain.layers, plain.alpha, plain.temperature) == ("min", 100, "annealed")
    assert len(plain.features) == len(plain.labels) == 300
    assert seen["before the nonlinearity 100"].model.before_relu and not plain.model.before_relu
    assert [seen[f"alpha {alpha} {alpha}"].alpha for alpha in (1, 10, 1000)] == [1, 10, 1000]
    fixed = [seen[f"fixed temperature {number} 100"].temperature for number in ("1.0", "0.1")]
    assert fixed == [1.0, 0.1]
    for how, temperature, weight in (
        ("divided by", 1.0, "over T"),
        ("times", "annealed", "times T"),
    ):
        training = seen[f"weight {how} the falling T 100"]
        assert (training.temperature, training.weight) == (temperature, weight)
    for half, alphas in (("first", [100, 0]), ("second", [0, 100])):
        alpha = seen[f"100 documents, loss in the {half} half only 100"].alpha
        assert [alpha(0), alpha(1)] == alphas  # two epochs
    for divisor in (3, 10):
        reading = f"300 documents, learning rate divided by {divisor} at halftime 0"
        rate = seen[reading].learning_rate
        assert [rate(0), rate(1)] == [1e-3, 1e-3 / divisor] and seen[reading].alpha == 0
    deep = seen["five hidden layers -100"].model
    assert len(deep.hidden) == 5 and len(plain.model.hidden) == 2
    assert len(seen["best epoch on a held-out tenth 0"].features) == 270
    select = seen["output layer counted too 100"].select
    assert select({"hidden1": 1}, 2) == {"hidden1": 1, "output": 2} and plain.select is None
    pooled = seen["kernel 3, max pooling 0"].model
    narrow = seen["8 filters, 256 positions 0"].model
    assert pooled.conv.kernel_size == (3,) and pooled.conv.out_channels == 32
    assert narrow.conv.kernel_size == (45,) and narrow.conv.out_channels == 8


def test_adam_starts_anew_at_halftime_and_the_loss_stops(monkeypatch):
    trainings, train = [], training.train

    def recording(model, *args, **settings):
        before = [weight.detach().clone() for weight in model.parameters()]
        history = train(model, *args, **settings)
        after = [weight.detach().clone() for weight in model.parameters()]
        trainings.append((before, after, settings["alpha"], settings["epochs"]))
        return history

    monkeypatch.setattr(training, "train", recording)
    for alpha in (0, 100):
        trainings.clear()
        (spec,) = (
            spec
            for spec in specs("classification-readings", "tiny", "newsgroups4", 43)
            if "Adam restarted" in spec["reading"] and spec.alpha == alpha
        )
        outcome = run_network(spec, made_up_task(), "cpu", None)
        first, second = trainings
        assert first[2:] == (alpha, 1) and second[2:] == (0, 1)
        assert all(map(torch.equal, first[1], second[0]))  # the network goes on
        assert outcome.curve["epoch"].tolist() == [0, 1]


# ---------------------------------------------------------------- held-out documents


def overlapping(seed):
    """Four classes that overlap and many features, so that a network overfits and the accuracy goes
    up and down from epoch to epoch.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, 700)
    features = 0.6 * np.eye(4, 30)[labels] + 0.3 * random.normal(size=(700, 30))
    return task_of(features, labels, 500, np.arange(700))


@pytest.fixture(scope="module")
def blobs():
    return overlapping(0)


def made_up(model, alpha=0, temperature="annealed", **settings):
    settings = {"epochs": 12, "hidden_sizes": (40,), "layers": "sum", "n_test": None} | settings
    names = "classification", "tiny", "made-up", "spacy", model, alpha, temperature, 42, 500, 1
    return results.Spec(*names, tuple(sorted(settings.items())))


HELD_OUT = made_up("ffn", held_out=0.2)


@pytest.fixture(scope="module")
def held_out():
    """A task and its run in which the epoch that is best on held-out documents is neither the last
    nor the one that is best on the test documents.
    """
    for seed in range(20):
        task = overlapping(seed)
        scores, curve, status, *_ = carried_out(run_network, HELD_OUT, task)
        best, tested = curve["held_acc"].argmax(), curve["test_acc"]  # the first of equals
        if 0 < best < 11 and tested[best] not in (tested[11], tested.max()):
            return task, scores, curve, status, best
    pytest.fail("none of the tasks is the one meant")


def test_with_held_out_documents_the_epoch_that_is_best_on_them_is_reported(held_out):
    _, scores, curve, status, best = held_out
    assert status == "ok" and scores["acc"] == curve["test_acc"][best]
    right = 100 * curve["held_acc"]  # of the 100 documents that are held out
    assert right.tolist() == pytest.approx(right.round().tolist())


def test_held_out_documents_are_not_trained_on(held_out, trainings):
    task, _, curve, _, _ = held_out
    # Other labels for the held-out documents: the losses of training must not know of it, the
    # choice must.
    other_y = np.concatenate([(task.train_y[:100] + 1) % 4, task.train_y[100:]])
    again = carried_out(run_network, HELD_OUT, replace(task, train_y=other_y)).curve
    (training,) = trainings
    assert np.array_equal(training.features, task.train_x[100:])
    assert np.array_equal(training.labels, task.train_y[100:])
    assert again["loss"].equals(curve["loss"]) and not again["held_acc"].equals(curve["held_acc"])


def test_test_documents_have_no_say_in_which_epoch_is_chosen(held_out):
    task, _, curve, _, best = held_out
    would_have_chosen = set()
    for seed in range(4):
        other = replace(task, test_y=np.random.default_rng(seed).permutation(task.test_y))
        scores, again, *_ = carried_out(run_network, HELD_OUT, other)
        assert again["held_acc"].equals(curve["held_acc"])
        assert not again["test_acc"].equals(curve["test_acc"])
        assert scores["acc"] == again["test_acc"][best]
        would_have_chosen.add(again["test_acc"].argmax())
    assert would_have_chosen - {best}, "the test documents would have chosen otherwise"


def test_without_held_out_documents_all_are_trained_on_and_the_last_epoch_is_reported(
    blobs, trainings
):
    scores, curve, *_ = carried_out(run_network, made_up("ffn"), blobs)
    assert [len(training.features) for training in trainings] == [500]
    assert "held_acc" not in curve and scores["acc"] == curve["test_acc"].iloc[-1]


# ---------------------------------------------------------------- one large common direction


def common_direction(width, seed):
    """Four classes, easily told apart, on top of one long vector that all documents share, as
    max-pooled states have it.
    """
    random = np.random.default_rng(seed)
    labels, shared = np.arange(600) % 4, 3 * random.normal(size=width)
    means, noise = random.normal(size=(4, width)), random.normal(size=(600, width))
    return task_of(shared + 0.1 * means[labels] + 0.1 * noise, labels, 400, np.arange(600))


def accuracy(task, alpha, epochs, **settings):
    spec = made_up("ffn", alpha, epochs=epochs, hidden_sizes=(500,), **settings)
    return carried_out(run_network, spec, task).metrics["acc"]


def test_one_large_common_direction_leaves_the_loss_at_chance_unless_features_are_standardised():
    task = common_direction(4096, seed=0)
    unit = task.train_x[:20] / np.linalg.norm(task.train_x[:20], axis=1, keepdims=True)
    assert (unit @ unit.T).min() > 0.99, "to the cosine all documents are alike"
    assert accuracy(task, 100, 5) < 0.4, "one of four by chance"
    assert accuracy(task, 100, 5, standardize=True) > 0.95


# ---------------------------------------------------------------- rivals


def test_neighbours_are_looked_for_in_the_last_hidden_layer(blobs, trainings):
    from sklearn.neighbors import KNeighborsClassifier

    spec = made_up("ffn-knn", 100, neighbours=5, hidden_sizes=(40, 30), epochs=3)
    scores, curve, *_ = carried_out(run_rival, spec, blobs)
    (training,) = trainings
    with torch.no_grad():
        train, test = (
            training.model(torch.as_tensor(x))[1]["hidden2"].numpy()
            for x in (blobs.train_x, blobs.test_x)
        )
    neighbours = KNeighborsClassifier(5).fit(train, blobs.train_y)
    assert scores["acc"] == neighbours.score(test, blobs.test_y)
    assert curve["epoch"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("model", ["knn", "ffn-knn"])
def test_the_number_of_neighbours_is_that_of_the_spec(blobs, model):
    one, ten = (
        carried_out(run_rival, made_up(model, neighbours=neighbours, epochs=1), blobs)
        for neighbours in (1, 10)
    )
    assert one.metrics["acc"] != ten.metrics["acc"]


def test_rivals_are_standardised_where_the_spec_says_so(blobs):
    stretch = np.array([1] * 29 + [1000], np.float32)
    task = replace(blobs, train_x=blobs.train_x * stretch, test_x=blobs.test_x * stretch)
    as_it_is, standardised = (
        carried_out(run_rival, made_up("knn", neighbours=10, standardize=flag), task).metrics["acc"]
        for flag in (False, True)
    )
    assert as_it_is < 0.4 < 0.6 < standardised, "the one feature that was stretched says nothing"


def test_supcon_trains_on_its_own_loss_in_every_hidden_layer(blobs, monkeypatch):
    calls, loss = [], losses.supervised_contrastive_loss

    def noting(features, labels, temperature):
        calls.append((features.shape[1], temperature))
        return loss(features, labels, temperature)

    monkeypatch.setattr(losses, "supervised_contrastive_loss", noting)
    carried_out(run_rival, made_up("supcon", 100, hidden_sizes=(40, 30), epochs=2), blobs)
    # Two batches an epoch.
    assert calls == [(40, 1.0), (30, 1.0)] * 2 + [(40, 2**-0.55), (30, 2**-0.55)] * 2
