"""Runs alone, in stacks and side by side: what they record, and how they end well or badly."""

import time
import warnings
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
import torch

from snnl_lib import data, experiments, metrics, results, training
from snnl_lib.cache import cached
from snnl_lib.data import DataError
from snnl_lib.experiments import (
    EXPERIMENTS,
    Task,
    images,
    load_task,
    plan,
    run,
    run_all,
    runner,
    specs,
    status,
)
from snnl_lib.experiments.codes import entanglement
from snnl_lib.experiments.runner import train_together
from snnl_lib.methods import deep_clustering
from snnl_lib.models import FeedForwardNet
from snnl_lib.results import Outcome
from snnl_lib.training import Diverged, Shared, Training, build, train_stack

# ---------------------------------------------------------------- runs


def tiny(experiment, model, alpha=None, seed=42):
    """The tiny spec of a model (the first one, or the one with this alpha) on the corpus that is
    always at hand.
    """
    return next(
        spec
        for spec in specs(experiment, "tiny", "newsgroups4", seed)
        if spec.model == model and alpha in (None, spec.alpha)
    )


OF = {"lexicon": ("opinion_lexicon", "spacy-word"), "annealing": ("gaussian", "points")}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_run_gives_every_metric_of_its_experiment_and_says_where_they_come_from(
    packages, experiment
):
    for spec in specs(experiment, "tiny", "newsgroups4", 42)[:2]:
        record = run(spec, "cpu")
        assert record.status == "ok" and record.reason == "" and record.spec == spec
        more = (
            {"snn"} if (experiment, spec.model) == ("labels", "ae-d") else set()
        )  # of codes, and linear discriminant analysis has none
        assert set(record.metrics) == {
            *EXPERIMENTS[experiment].metrics,
            "empty_train",
            "empty_test",
            *more,
        }
        chance = 0.5 if experiment == "lexicon" else 0.25
        score = record.metrics.get("acc", record.metrics.get("neighbours"))
        hopeless = (experiment, spec.model) == (
            "classification-rivals",
            "lda",
        )  # 300 documents of 300 features
        hopeless |= experiment == "annealing"  # three steps from chance
        assert chance + 0.05 < score <= 1 or hopeless, "no better than chance"
        assert 0 <= record.metrics.get("snn", 0) < np.log(4) + 0.2
        asked = 100 if experiment == "labels" else 300, 0 if experiment == "annealing" else 200
        assert (
            record.n_train + record.metrics["empty_train"],
            record.n_test + record.metrics["empty_test"],
        ) == asked
        assert record.fingerprint == experiments.fingerprint(
            *OF.get(experiment, ("newsgroups4", "spacy"))
        )
        assert record.seconds > 0 and record.device.startswith("CPU, one thread")
        assert (
            spec.get("epochs") is None
            if record.curve is None
            else record.curve["epoch"].tolist()
            == list(range(4 if experiment == "annealing" else 2))
        )
        assert (record.points is not None) == (experiment in ("lexicon", "tsne", "annealing"))
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("experiment", "model"),
    [
        ("classification", "ffn"),
        ("clustering", "pca"),
        ("clustering", "ae-d"),
        ("lexicon", "lc-d"),
        ("tsne", "original"),
    ],
)
def test_the_same_seed_gives_the_same_bits_whatever_ran_before_and_another_seed_another_result(
    packages, experiment, model
):
    spec = tiny(experiment, model)
    first = run(spec, "cpu")
    torch.manual_seed(999)  # global random states, which nothing may draw from
    np.random.seed(999)  # noqa: NPY002
    torch.rand(7)
    load_task.cache_clear()
    again = run(spec, "cpu")
    assert again.metrics == first.metrics
    if first.curve is not None:
        assert again.curve.equals(first.curve)
    if first.points is not None:
        assert again.points.equals(first.points)
    other = run(tiny(experiment, model, seed=73), "cpu")
    assert all(
        other.metrics[name] != first.metrics[name]
        for name in EXPERIMENTS[experiment].metrics
        if name in ("dbi", "chs", "snn", "kl")
    )
    assert first.points is None or not other.points.equals(first.points)


def test_a_run_leaves_the_global_random_states_alone(packages):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    run(tiny("clustering", "ae-d"), "cpu")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


@pytest.mark.parametrize(
    ("experiment", "models"),
    [
        ("classification", [("ffn", 0), ("ffn", 100), ("ffn", -100)]),
        ("clustering", [("ae", 0), ("lc-d", 100), ("ae-d", 100)]),
    ],
)
def test_baseline_and_method_share_documents_weights_and_order_for_a_seed(
    packages, monkeypatch, experiment, models
):
    started = []

    def noting(trainings, device, progress):
        started.extend(trainings)
        far_enough = RuntimeError("far enough: what training starts from has been noted")
        return [(None, far_enough)] * len(trainings)

    monkeypatch.setattr(runner, "train_together", noting)
    for model, alpha in models:
        assert run(tiny(experiment, model, alpha), "cpu").status == "failed"
    first = started[0]
    for other in started[1:]:
        weights = first.model.state_dict().values(), other.model.state_dict().values()
        assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
        assert torch.equal(first.features, other.features)
        assert torch.equal(first.labels, other.labels)
        assert other.seed == first.seed == 42 and other.epochs == first.epochs
    assert [asked.alpha for asked in started] == [alpha for _, alpha in models]


def test_what_an_autoencoder_run_trains_on_and_is_scored_by(packages, monkeypatch):
    # Features scaled to [0, 1]; LC(D)'s loss sees units 1-100 of the code, k-means all 128;
    # the labels are the test documents'.
    seen, scores = {}, metrics.clustering_scores

    def noting_train(trainings, device, progress):
        (asked,) = trainings
        seen.update(low=asked.features.min(), high=asked.features.max(), select=asked.select)
        return train_together(trainings, device, progress)

    def noting_scores(codes, clusters, labels):
        seen.update(codes=codes, clusters=clusters, labels=labels)
        return scores(codes, clusters, labels)

    monkeypatch.setattr(runner, "train_together", noting_train)
    monkeypatch.setattr(metrics, "clustering_scores", noting_scores)
    spec = tiny("clustering", "lc-d")
    record = run(spec, "cpu")
    assert (seen["low"], seen["high"]) == (0, 1)
    hidden = {
        "encoder1": torch.zeros(2, 500),
        "code": torch.arange(128.0).repeat(2, 1),
        "decoder1": torch.zeros(2, 2000),
    }
    selected = seen["select"](hidden, None)
    assert list(selected) == ["code"] and torch.equal(selected["code"], hidden["code"][:, :100])
    assert seen["codes"].shape == (record.n_test, 128) and len(np.unique(seen["clusters"])) == 4
    assert np.array_equal(seen["labels"], load_task("newsgroups4", "spacy", 42, 300, 200).test_y)
    for model in ("ae", "ae-d"):
        run(tiny("clustering", model), "cpu")
        assert seen["select"] is None, "all hidden layers"
    run(tiny("clustering", "pca"), "cpu")
    assert seen["codes"].shape == (record.n_test, 128)


def test_the_scores_of_a_classifier_are_those_of_the_test_documents_at_the_last_epoch(packages):
    record = run(tiny("classification", "ffn"), "cpu")
    assert record.curve["test_acc"].iloc[-1] == record.metrics["acc"]
    assert (record.metrics["acc"] * record.n_test) % 1 == pytest.approx(
        0, abs=1e-9
    ) and record.n_test == 200


def test_entanglement_looks_at_the_first_2000_documents():
    generator = np.random.default_rng(0)
    features, labels = (
        generator.normal(size=(2100, 5)).astype(np.float32),
        generator.integers(0, 4, 2100),
    )
    assert entanglement(features, labels) == entanglement(features[:2000], labels[:2000])
    assert entanglement(features, labels) == pytest.approx(np.log(4), abs=0.1), (
        "labels drawn by chance"
    )
    assert entanglement(np.eye(4, 5, dtype=np.float32)[labels], labels) < 0.01, "classes apart"


# ---------------------------------------------------------------- runs that end badly


def carry_out(monkeypatch, experiment, function):
    """Carry the runs of an experiment out by another function."""
    changed = replace(plan.EXPERIMENTS[experiment], run=function)
    monkeypatch.setitem(plan.EXPERIMENTS, experiment, changed)


def constant_task(*args):
    """Documents that are all the same: nothing can be learned, and every code is one point."""
    labels, rows = np.arange(120) % 4, np.arange(120)
    return Task(
        np.ones((120, 30), np.float32),
        labels,
        np.ones((120, 30), np.float32),
        labels,
        4,
        0,
        0,
        rows,
        rows,
    )


@pytest.mark.parametrize(
    "case",
    [
        ("classification", "ffn", "every test document was given class"),
        ("clustering", "ae", "of the test documents have distinct codes"),
        ("labels", "ae-d", "of the test documents have distinct codes"),
        ("lexicon", "ae-d", "have distinct codes"),
        ("tsne", "ae", "of the test documents have distinct codes"),
    ],
)
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_a_collapsed_run_is_recorded_as_collapsed(packages, results_folder, monkeypatch, case):
    experiment, model, reason = case
    monkeypatch.setattr(runner, "load_task", constant_task)
    spec = tiny(experiment, model)
    (record,) = run_all([spec], "cpu")
    assert record.status == "collapsed" and reason in record.reason
    frame = results.load_results(experiment, "tiny")
    assert set(frame["status"]) == {"collapsed"} and reason in frame["reason"].iloc[0]
    assert results.judge([spec], {}) == {spec: "done"}


@pytest.mark.parametrize(
    ("experiment", "model"),
    [
        ("classification", "ffn"),
        ("clustering", "ae-d"),
        ("labels", "ae-d"),
        ("lexicon", "ae-d"),
        ("tsne", "lc-d"),
    ],
)
def test_a_diverged_run_is_recorded_as_diverged_with_its_curve(
    packages, results_folder, experiment, model
):
    spec = replace(tiny(experiment, model), alpha=1e39)  # beyond float32
    (record,) = run_all([spec], "cpu")
    assert record.status == "diverged" and "in epoch 0" in record.reason
    assert all(np.isnan(record.metrics[name]) for name in EXPERIMENTS[experiment].metrics)
    frame = results.load_results(experiment, "tiny")
    assert set(frame["status"]) == {"diverged"} and set(frame["reason"]) == {record.reason}
    assert results.load_curves(frame)["epoch"].tolist() == [0]
    assert results.load_curves(frame, kind="points").empty


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of\nmemory"),
        ValueError("a value"),
        MemoryError("no room"),
        FloatingPointError("overflow"),
    ],
)
def test_a_run_that_breaks_off_is_recorded_as_failed_with_the_reason(
    packages, results_folder, monkeypatch, error
):
    def broken(*args):
        raise error

    carry_out(monkeypatch, "clustering", broken)
    spec = tiny("clustering", "ae")
    (record,) = run_all([spec], "cpu")
    assert (
        record.status == "failed"
        and record.reason == f"{type(error).__name__}: {' '.join(str(error).split())}"
    )
    assert set(record.metrics) == {*EXPERIMENTS["clustering"].metrics, "empty_train", "empty_test"}
    assert results.judge([spec], {}) == {spec: "failed"}


def test_a_mistake_in_the_code_is_no_failed_run_but_an_error(packages, results_folder, monkeypatch):
    def mistaken(*args):
        raise KeyError("epochs")

    carry_out(monkeypatch, "clustering", mistaken)
    with pytest.raises(KeyError):
        list(run_all([tiny("clustering", "ae")], "cpu"))
    assert not list(results_folder.rglob("*.csv"))


def test_data_out_of_reach_is_no_failed_run_but_an_error(empty_cache, no_network, results_folder):
    with pytest.raises(DataError, match="'newsgroups4' is out of reach"):
        list(run_all([tiny("clustering", "pca")], "cpu"))
    assert not list(results_folder.rglob("*.csv"))


# ---------------------------------------------------------------- many runs


def test_each_record_is_written_before_the_next_run_starts(packages, results_folder):
    wanted = specs("clustering", "tiny", "newsgroups4", 42)
    runs = run_all(wanted, "cpu")
    for done, record in enumerate(runs, start=1):
        assert record.spec == wanted[done - 1]
        verdicts = results.judge(wanted, dict.fromkeys(wanted, record.fingerprint))
        assert list(verdicts.values()) == ["done"] * done + ["missing"] * (4 - done)


def test_a_stack_gives_the_scores_of_its_runs_one_by_one_and_says_its_size(
    packages, results_folder
):
    wanted = [
        spec
        for spec in specs("classification", "tiny", "newsgroups4", [42, 73])
        if spec.model == "ffn"
    ]
    alone = {record.spec: record for record in run_all(wanted, "cpu")}
    stacked = {record.spec: record for record in run_all(wanted, "cpu", stack=6)}
    assert set(stacked) == set(alone) == set(wanted) and results.judge(wanted, {}) == dict.fromkeys(
        wanted, "done"
    )
    for spec, record in stacked.items():
        assert record.device == f"{alone[spec].device}, in a stack of 6" and 0 < record.seconds < 60
        for name, value in alone[spec].metrics.items():
            assert record.metrics[name] == pytest.approx(value, abs=0.02), (
                str(spec),
                name,
            )  # training makes more of a last bit
        assert record.curve["loss"].tolist() == pytest.approx(
            alone[spec].curve["loss"].tolist(), rel=1e-3
        )


# ---------------------------------------------------------------- stacks


def digits(seed=0, train=90, test=60):
    """Made-up images of four classes, as a task."""
    random = np.random.default_rng(seed)
    labels = np.arange(train + test) % 4
    pixels = np.clip(np.eye(4, 70)[labels] + 0.2 * random.random((train + test, 70)), 0, 1)
    pixels, rows = pixels.astype(np.float32), np.arange(train + test)
    parts = pixels[:train], labels[:train], pixels[train:], labels[train:]
    return Task(*parts, 4, 0, 0, rows[:train], rows[train:])


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Every task is one of made-up images, other ones for each seed; the cache is a new folder."""
    made = {}
    monkeypatch.setattr(
        runner, "load_task", lambda d, e, seed, *rest: made.setdefault(seed, digits(seed))
    )
    monkeypatch.setenv("SNNL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def stacks(monkeypatch):
    """The sizes of the stacks that are trained, in their order."""
    sizes, train = [], training.train_stack

    def noting(trainings, *rest):
        sizes.append(len(trainings))
        return train(trainings, *rest)

    monkeypatch.setattr(training, "train_stack", noting)
    return sizes


@pytest.fixture
def clock(monkeypatch):
    """Let seconds pass without waiting for them: (seconds) -> None."""
    real, passed = time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: real() + passed[0])

    def let_pass(seconds):
        passed[0] += seconds

    return let_pass


def of_images(*models, seeds=(42,)):
    """The first tiny spec of each model on MNIST, seed by seed."""
    return [
        next(spec for spec in specs("images", "tiny", "mnist", seed) if spec.model == model)
        for seed in seeds
        for model in models
    ]


def asked(seed, alpha=0.0, hidden_sizes=(8, 6), **settings):
    """Ask for the training of a small classifier."""
    task = digits()
    model = build(FeedForwardNet, 70, 4, hidden_sizes, seed=seed)
    settings = {"epochs": 2, "batch_size": 32, "alpha": alpha} | settings
    given = task.train_x, task.train_y, training.cross_entropy
    return Training(model, *given, seed=seed, **settings)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_runs_of_different_kinds_in_one_group_go_their_way_and_record_what_they_do_alone(
    packages, results_folder, stacks
):
    wanted = [
        *specs("clustering", "tiny", "newsgroups4", [42, 73]),
        tiny("clustering-rivals", "kmeans"),
        tiny("classification", "ffn", 100),
        tiny("classification", "ffn", -100),
        tiny("classification-rivals", "supcon"),
        tiny("tsne", "original"),
    ]
    alone = {spec: run(spec, "cpu") for spec in wanted}
    del stacks[:]
    together = {record.spec: record for record in runner._carry_out(wanted, "cpu", None)}
    assert sorted(stacks) == [1, 2, 2, 4] and set(together) == set(wanted)
    sizes = {"ae": 4, "ae-d": 4, "lc-d": 2, "ffn": 2}
    for spec, expected in alone.items():
        record, size = together[spec], sizes.get(spec.model, 1)
        in_a_stack = f", in a stack of {size}" if size > 1 else ""
        assert record.device == f"{expected.device}{in_a_stack}"
        assert (record.status, record.fingerprint) == ("ok", expected.fingerprint)
        assert (record.n_train, record.n_test) == (expected.n_train, expected.n_test)
        assert record.metrics.keys() == expected.metrics.keys()
        if size == 1:  # the same bits: nothing of it was computed beside others
            assert record.metrics == expected.metrics
            assert (record.curve is None) == (expected.curve is None)
        else:
            assert record.curve["loss"].tolist() == pytest.approx(
                expected.curve["loss"].tolist(), rel=1e-3
            )
            for name in {"acc", "nmi"} & record.metrics.keys():
                assert record.metrics[name] == pytest.approx(expected.metrics[name], abs=0.05)
        assert expected.points is None or record.points.equals(expected.points)


@pytest.mark.slow  # stacks alone and workers alone have tests of their own
def test_groups_spread_over_processes_give_the_same_records(packages, results_folder, monkeypatch):
    wanted = [spec for spec in specs("classification", "tiny", "newsgroups4", [42, 73])] + specs(
        "clustering", "tiny", "newsgroups4", 42
    )
    one_by_one = {record.spec: record for record in run_all(wanted, "cpu", stack=3)}
    monkeypatch.setenv("SNNL_RESULTS", f"{results_folder}-2")
    spread = {record.spec: record for record in run_all(wanted, "cpu", jobs=2, stack=3)}
    assert set(spread) == set(one_by_one) == set(wanted)
    for spec, record in spread.items():
        expected = one_by_one[spec]
        assert (record.metrics, record.device) == (expected.metrics, expected.device)
        assert record.curve is None or record.curve.equals(expected.curve)
    assert {record.device.rpartition(" ")[2] for record in spread.values()} >= {"3", "2"}
    assert results.judge(wanted, {}) == dict.fromkeys(wanted, "done")


def test_a_run_is_sent_what_it_asks_for_in_its_turn(packages, monkeypatch):
    said = []

    def steps(spec, task, device, progress):
        said.append((yield lambda: f"made for {spec.seed}"))
        first = asked(spec.seed)
        history = yield first
        said.append((history.stack, len(history.curve)))
        # Only the run of one seed asks for another training.
        if spec.seed == 73:
            second = yield asked(1, hidden_sizes=(5,), epochs=1)
            said.append((second.stack, len(second.curve)))
        scores = {"acc": float(weights(first.model).sum())}
        return Outcome(scores, history.curve)

    carry_out(monkeypatch, "clustering", steps)
    wanted = [tiny("clustering", "pca", seed=seed) for seed in (42, 73)]
    records = list(runner._carry_out(wanted, "cpu", None))
    assert said == ["made for 42", "made for 73", (2, 2), (2, 2), (1, 1)]
    expected = [asked(seed) for seed in (42, 73)]
    train_stack(expected)
    for record, own in zip(records, expected, strict=True):
        assert record.metrics["acc"] == float(weights(own.model).sum())
    assert records[0].device.endswith(", in a stack of 2")


@pytest.mark.parametrize("where", ["before", "made", "after"])
def test_a_run_that_breaks_off_in_a_stack_is_recorded_and_the_others_go_on(
    packages, monkeypatch, where
):
    def broken(place, spec):
        if place == where and spec.seed == 42:
            raise ValueError(f"{place}\nthe training")

    def steps(spec, task, device, progress):
        broken("before", spec)
        yield lambda: broken("made", spec)
        history = yield asked(spec.seed)
        broken("after", spec)
        return Outcome({"acc": 0.5}, history.curve)

    carry_out(monkeypatch, "clustering", steps)
    wanted = [tiny("clustering", "pca", seed=seed) for seed in (42, 73, 1024)]
    found = {record.spec.seed: record for record in runner._carry_out(wanted, "cpu", None)}
    assert (found[42].status, found[42].reason) == ("failed", f"ValueError: {where} the training")
    assert np.isnan(found[42].metrics["acc"]) and found[42].curve is None
    for seed in (73, 1024):
        assert (found[seed].status, found[seed].metrics["acc"]) == ("ok", 0.5)
        size = 3 if where == "after" else 2
        assert found[seed].device.endswith(f", in a stack of {size}")


def test_a_mistake_in_what_is_made_for_runs_or_in_a_training_is_an_error(packages, monkeypatch):
    def mistaken(*args):
        raise KeyError("mistake")

    def steps(spec, task, device, progress):
        yield mistaken

    carry_out(monkeypatch, "clustering", steps)
    with pytest.raises(KeyError, match="mistake"):
        run(tiny("clustering", "pca"), "cpu")

    def mistaken_training(spec, task, device, progress):
        yield asked(spec.seed, alpha=1.0, select=mistaken)

    carry_out(monkeypatch, "clustering", mistaken_training)
    with pytest.raises(KeyError, match="mistake"):
        run(tiny("clustering", "pca"), "cpu")


def test_an_error_in_a_stack_is_that_of_each_of_its_runs(packages, monkeypatch, stacks):
    def steps(spec, task, device, progress):
        yield asked(spec.seed, alpha=1.0, layers=["hidden9"])

    carry_out(monkeypatch, "clustering", steps)
    wanted = [tiny("clustering", "pca", seed=seed) for seed in (42, 73)]
    for record in runner._carry_out(wanted, "cpu", None):
        assert record.status == "failed" and "hidden9" in record.reason
    assert stacks == [2], "such a stack is not tried again"


# ---------------------------------------------------------------- trainings that diverge

TRAINED = {
    "classification": {"ffn", "cnn"},
    "classification-readings": {"ffn"},
    "classification-rivals": {"supcon", "ffn-knn"},
    "clustering": {"ae", "lc-d", "ae-d"},
    "clustering-readings": {"ae", "lc-d", "ae-d"},
    "labels": {"ae-d"},
    "lexicon": {"ae", "lc-d", "ae-d"},
    "tsne": {"ae", "lc-d", "ae-d"},
    "images": {"ae", "ae-d", "supcon", "ae-10", "dec", "idec", "vade", "n2d"},
    "clusterbert": {"plain"},
}


@pytest.mark.parametrize("experiment", TRAINED)
def test_what_diverged_is_thrown_in_where_a_run_waits_and_recorded_with_its_curve(
    pictures, monkeypatch, experiment
):
    curve, waited = pd.DataFrame({"epoch": [0], "loss": [np.inf]}), []

    def diverging(trainings, device, progress):
        waited.extend(trainings)
        return [(None, Diverged("the loss was inf in epoch 0", curve)) for _ in trainings]

    monkeypatch.setattr(runner, "train_together", diverging)
    wanted = {}
    for spec in specs(experiment, "tiny", seeds=[42]):
        if spec.model in TRAINED[experiment] and spec.get("clusterer") in (None, "idec"):
            wanted.setdefault(spec.model, spec)
    assert set(wanted) == TRAINED[experiment]
    for model, spec in wanted.items():
        record = run(spec, "cpu")
        pretrained = "pretraining: " if model in images.DEEP else ""
        assert record.status == "diverged", (model, record.reason)
        assert record.reason == f"{pretrained}the loss was inf in epoch 0"
        assert record.curve is curve and record.points is None
        assert np.isnan([record.metrics[name] for name in EXPERIMENTS[experiment].metrics]).all()
    assert len(waited) == len(wanted) and not list(pictures.rglob("*.bin"))


def test_a_run_that_diverges_in_a_stack_is_recorded_so_and_the_others_are_ok(pictures):
    baseline, method = of_images("ae", "ae-d", seeds=[42])
    wanted = [baseline, method, replace(method, alpha=1e39)]
    first, second, broken = sorted(
        runner._carry_out(wanted, "cpu", None), key=lambda record: record.spec.alpha
    )
    assert (first.status, second.status, broken.status) == ("ok", "ok", "diverged")
    assert "in epoch 0" in broken.reason and broken.curve["epoch"].tolist() == [0]
    assert broken.device == second.device and broken.device.endswith(", in a stack of 3")
    for record, spec in ((first, baseline), (second, method)):
        assert record.curve["loss"].tolist() == pytest.approx(
            run(spec, "cpu").curve["loss"].tolist(), rel=1e-3
        )


def test_a_pretraining_that_diverges_ends_all_runs_that_wait_for_it_and_no_others(
    pictures, monkeypatch
):
    good = digits(42)
    monkeypatch.setattr(runner, "load_task", lambda d, e, seed, *rest: good)
    pretraining = deep_clustering.pretraining

    def spoiling(images, code_size, *, seed, **settings):
        asked = pretraining(images, code_size, seed=seed, **settings)
        if seed == 73:
            with torch.no_grad():
                asked.model.output.bias.fill_(np.nan)
        return asked

    monkeypatch.setattr(deep_clustering, "pretraining", spoiling)
    wanted = of_images("ae-10", "dec", "idec", seeds=[42, 73])
    for record in runner._carry_out(wanted, "cpu", None):
        if record.spec.seed == 42:
            assert record.status == "ok"
        else:
            assert record.reason == "pretraining: the loss was nan in epoch 0"
            assert record.status == "diverged" and record.curve["epoch"].tolist() == [0]
    assert len(list(pictures.rglob("*.bin"))) == 2, "what diverged is not kept"


# ---------------------------------------------------------------- no room


def no_room_above(monkeypatch, most, error):
    """Let stacks of more than so many runs end in an error, after they have moved the weights."""
    sizes, train = [], training.train_stack

    def limited(trainings, *rest):
        sizes.append(len(trainings))
        histories = train(trainings, *rest)
        if len(trainings) > most:
            raise error
        return histories

    monkeypatch.setattr(training, "train_stack", limited)
    return sizes


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError("no room"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_a_stack_without_room_is_halved_and_starts_again_from_the_initial_weights(
    monkeypatch, error
):
    def trainings():
        return [asked(seed, alpha=float(seed)) for seed in range(5)]

    expected = trainings()
    curves = [
        history.curve
        for part in (expected[:2], expected[2:3], expected[3:])
        for history in train_stack(part)
    ]
    found, sizes = trainings(), no_room_above(monkeypatch, 2, error)
    answers = train_together(found, "cpu")
    assert sizes == [5, 2, 3, 1, 2]
    assert [history.stack for history, _ in answers] == [2, 2, 1, 2, 2]
    assert [error for _, error in answers] == [None] * 5
    for own, other, curve, (history, _) in zip(found, expected, curves, answers, strict=True):
        assert torch.equal(weights(own.model), weights(other.model))
        pd.testing.assert_frame_equal(history.curve, curve, check_exact=True)


def test_records_of_a_stack_without_room_are_those_of_smaller_stacks(
    packages, results_folder, monkeypatch
):
    wanted = [
        spec
        for spec in specs("classification", "tiny", "newsgroups4", [42, 73])
        if spec.model == "ffn"
    ]
    smaller = {record.spec: record for record in run_all(wanted, "cpu", stack=3)}
    sizes = no_room_above(monkeypatch, 3, torch.OutOfMemoryError("CUDA out of memory"))
    halved = {record.spec: record for record in run_all(wanted, "cpu", stack=6)}
    assert sizes == [6, 3, 3] and set(halved) == set(smaller) == set(wanted)
    for spec, record in halved.items():
        assert record.metrics == smaller[spec].metrics and record.status == "ok"
        assert record.curve.equals(smaller[spec].curve)
        assert record.device == smaller[spec].device and "in a stack of 3" in record.device


def test_a_single_run_without_room_is_recorded_as_failed_with_the_reason(
    packages, results_folder, monkeypatch
):
    no_room_above(monkeypatch, 0, torch.OutOfMemoryError("CUDA out of memory"))
    wanted = [tiny("clustering", model) for model in ("ae", "ae-d")]
    records = list(run_all(wanted, "cpu", stack=2))
    assert [record.status for record in records] == ["failed"] * 2
    for record in records:
        assert record.reason == "OutOfMemoryError: CUDA out of memory"
        assert "stack" not in record.device
    assert results.judge(wanted, {}) == dict.fromkeys(wanted, "failed")


def test_another_error_halves_no_stack(monkeypatch):
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    sizes = no_room_above(monkeypatch, 0, error)
    assert train_together([asked(1), asked(2)], "cpu") == [(None, error)] * 2 and sizes == [2]


# ---------------------------------------------------------------- what runs share


def test_an_autoencoder_is_pretrained_once_for_the_methods_of_a_seed_those_of_seeds_as_a_stack(
    pictures, monkeypatch, stacks, clock
):
    train = runner.train_together

    def slow(trainings, device, progress):
        if trainings[0].checkpoint is not None:  # those that are kept for other runs
            clock(1000)
        return train(trainings, device, progress)

    monkeypatch.setattr(runner, "train_together", slow)
    wanted = of_images("ae-10", "dec", "idec", "n2d", seeds=[42, 73])
    records = list(runner._carry_out(wanted, "cpu", None))
    assert stacks == [2, 2] and len(list((pictures / "pretrained").iterdir())) == 4
    assert {record.status for record in records} == {"ok"} and len(records) == len(wanted)
    for record in records:
        assert record.metrics["shared_seconds"] == pytest.approx(500, abs=60)
        assert 0 < record.seconds < 400, "its own seconds alone"
        assert "stack" not in record.device
    of_seed = {
        (seed, normalized): {
            record.metrics["shared_seconds"]
            for record in records
            if record.spec.seed == seed and (record.spec.model in images.NORMALIZED) == normalized
        }
        for seed in (42, 73)
        for normalized in (True, False)
    }
    assert all(len(seconds) == 1 for seconds in of_seed.values()), "each says the same"
    # And so does a run that comes later and finds it in the cache.
    later = run(of_images("dec", seeds=[73])[0], "cpu")
    assert {later.metrics["shared_seconds"]} == of_seed[73, True] and later.seconds < 400
    assert stacks == [2, 2]
    frame = later.frame().set_index("metric")["value"]
    assert frame["shared_seconds"] == later.metrics["shared_seconds"]


def test_pretrained_in_a_stack_is_pretrained_alone_but_for_rounding(pictures):
    wanted = of_images("ae-10", seeds=[42, 73])
    together = list(runner._carry_out(wanted, "cpu", None))
    for path in (pictures / "pretrained").iterdir():
        path.unlink()
    for record, spec in zip(together, wanted, strict=True):
        alone = run(spec, "cpu")
        assert record.spec == spec
        assert record.curve["loss"].tolist() == pytest.approx(
            alone.curve["loss"].tolist(), rel=1e-4
        )
        assert record.metrics["snn"] == pytest.approx(alone.metrics["snn"], rel=1e-2)


def test_what_is_shared_is_kept_with_its_seconds_and_its_checkpoint_goes(tmp_path, clock):
    def request(name, seed):
        own = asked(seed, checkpoint=tmp_path / f"{name}.under-way.pt")
        own.checkpoint.write_text("of an earlier training") if name == "none" else None

        def keep(history):
            return {"weights": own.model.state_dict(), "epochs": len(history.curve)}

        return Shared(tmp_path / f"{name}.npz", own, keep)

    runs = [
        runner._Run(None, None, None, request=request(name, seed))
        for name, seed in (("first", 1), ("second", 2), ("first", 1))
    ]
    answers = list(runner._shared_answers(runs, "cpu", None))
    assert [run for run, *_ in answers] == runs and {error for *_, error in answers} == {None}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.npz", "second.npz"]
    (value, seconds), (other, _), (again, same) = (answer for _, answer, _ in answers)
    assert seconds == same > 0 and value["epochs"] == 2
    assert torch.equal(value["weights"]["output.weight"], again["weights"]["output.weight"])
    assert not torch.equal(value["weights"]["output.weight"], other["weights"]["output.weight"])
    assert cached(tmp_path / "first.npz", None).seconds == seconds


def test_the_checkpoint_of_a_stack_goes_once_all_that_it_trained_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("snnl_lib.cache.SECONDS_BETWEEN", 0.0)
    saved = []

    def keep(history):
        saved.append([path.name for path in tmp_path.glob("*.pt")])
        return {"epochs": len(history.curve)}

    runs = []
    for seed in (1, 2):
        own = asked(seed, checkpoint=tmp_path / f"{seed}.under-way.pt")
        request = Shared(tmp_path / f"{seed}.npz", own, keep)
        runs.append(runner._Run(None, None, None, request=request))
    assert {error for *_, error in runner._shared_answers(runs, "cpu", None)} == {None}
    (first, second) = saved
    assert first == second and first[0].startswith("stack-2-")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.npz", "2.npz"]


def test_a_runs_seconds_are_its_own_and_its_share_of_a_stack(packages, monkeypatch, clock):
    train = runner.train_together

    def slow(trainings, device, progress):
        clock(100)
        return train(trainings, device, progress)

    def steps(spec, task, device, progress):
        clock(1000 * spec.seed)
        yield lambda: clock(100_000)
        history = yield asked(spec.seed)
        clock(20_000)
        return Outcome({"acc": 0.5}, history.curve, shared_seconds=7.125)

    monkeypatch.setattr(runner, "train_together", slow)
    carry_out(monkeypatch, "clustering", steps)
    wanted = [tiny("clustering", "pca", seed=seed) for seed in (1, 2)]
    for record in runner._carry_out(wanted, "cpu", None):
        expected = 1000 * record.spec.seed + 100 / 2 + 20_000
        assert record.seconds == pytest.approx(expected, abs=20)
        assert record.metrics["shared_seconds"] == 7.12


def test_runs_that_share_nothing_have_no_shared_seconds(packages):
    assert "shared_seconds" not in run(tiny("clustering", "pca"), "cpu").metrics


# ---------------------------------------------------------------- which runs are to be made


def test_the_seconds_of_a_run_are_those_of_recorded_runs_alike(monkeypatch):
    wanted = [
        tiny("classification", "ffn", 0),
        tiny("classification", "ffn", 100),
        tiny("clustering", "pca"),
        tiny("tsne", "original"),
    ]
    took = [(wanted[0], 20.0), (wanted[1], 40.0), (wanted[1], 30.0), (wanted[2], 15.0)]
    for elsewhere in (
        replace(wanted[0], n_train=7),
        replace(wanted[0], profile="quick"),
    ):  # with other documents it is no run alike
        took.append((elsewhere, 1000.0))
    monkeypatch.setattr(
        results,
        "runs",
        lambda experiment, profile, by_chapters: [
            results.Run(s.identity, 1, "", "ok", t)
            for s, t in took
            if (s.experiment, s.profile) == (experiment, profile)
        ],
    )
    expected = pytest.approx([30, 30, 15, np.nan], nan_ok=True)
    assert plan._typical_seconds(wanted, results.made(wanted)) == expected
    first = experiments.status("clustering", "tiny", "newsgroups4", 42)[0]
    assert first.spec.model == "pca" and first.seconds == 15
    elsewhere = replace(wanted[0], dataset="ag_news", embedding="other")
    assert plan._typical_seconds([elsewhere], results.made([elsewhere])) == [30]
    took.clear()
    assert np.isnan(plan._typical_seconds(wanted, results.made(wanted))).all()


def test_workers_that_are_stopped_early_are_no_warning(packages, monkeypatch):
    # Ctrl-C between two runs: what joblib says of the runs that it cancels would stand before
    # the one sentence that is meant.
    monkeypatch.setattr(
        runner, "_carry_out_and_write", lambda specs, *args: time.sleep(0.05) or specs
    )
    wanted = specs("clustering", "tiny", "newsgroups4", range(3))
    with joblib.parallel_config(backend="threading"), warnings.catch_warnings():
        warnings.simplefilter("error")
        runs = run_all(wanted, "cpu", jobs=2)
        assert next(runs) in wanted
        runs.close()


def test_a_data_set_that_is_not_here_is_fetched_before_the_runs_are_chosen(
    empty_cache, results_folder, monkeypatch
):
    fetched = []
    monkeypatch.setattr(data, "fetch", fetched.append)
    wanted = specs("clustering", "tiny", "newsgroups4", 42)
    assert experiments.runnable(wanted) == []  # this fetch brings nothing
    assert fetched == ["newsgroups4"]


def test_the_status_follows_the_records(packages, results_folder):
    arguments = ("clustering", "tiny", "newsgroups4", 42)
    wanted = specs(*arguments)
    found = status(*arguments)
    assert [row[:3] for row in found] == [(spec, "missing", "") for spec in wanted]
    assert np.isnan([row.seconds for row in found]).all()
    list(run_all([wanted[0]], "cpu"))
    found = status(*arguments)
    assert [row.verdict for row in found] == ["done", "missing", "missing", "missing"]
    assert found[0].seconds > 0


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_what_runs_need_is_the_same_looked_up_together_or_one_by_one(
    results_folder, monkeypatch, experiment
):
    monkeypatch.setattr(data, "fetch", lambda name: None)
    found = status(experiment, seeds=42)
    wanted = [row.spec for row in found]
    assert found and [row.unmet for row in found] == [experiments.unmet(spec) for spec in wanted]
    here = [spec for spec in wanted if not experiments.unmet(spec, "cpu")]
    assert experiments.runnable(wanted, "cpu") == here
    found = status(experiment, seeds=42, device="cpu")
    assert [row.unmet for row in found] == [experiments.unmet(s, "cpu") for s in wanted]


def test_what_is_not_at_hand_is_said(empty_cache, results_folder):
    assert experiments.fingerprint("newsgroups4", "spacy") is None
    for _, verdict, needs, _ in status("clustering", "tiny", "newsgroups4", 42):
        assert (verdict, needs) == ("missing", "the data set newsgroups4 is not on this machine")


def test_the_fingerprint_tells_apart_data_sets_and_embeddings(packages):
    found = {
        experiments.fingerprint(name, method)
        for name in ("newsgroups4", "newsgroups20")
        for method in ("spacy", "tfidf", "sif-corpus")
    }
    assert len(found) == 6 and None not in found
    assert (
        experiments.fingerprint("newsgroups4", "spacy")
        == f"{data.describe('newsgroups4').forms[0].fingerprint}-c2b55dcb"
    )


@pytest.mark.slow
def test_the_recorded_orig_row_comes_out_again():
    # The check on the whole way from the corpus to the score: no training, so nothing but the
    # pipeline can move it.
    if data.locate("ag_news") is None:
        pytest.skip("AG News is not at hand")
    (spec,) = [
        spec
        for spec in specs("clustering", "full", "ag_news", 42)
        if (spec.model, spec.embedding) == ("pca", "spacy")
    ]
    recorded = results.load_results("clustering").set_index("key").loc[experiments.key(spec)]
    recorded = recorded.set_index("metric")["value"]
    found = run(spec, "cpu").metrics
    assert found == pytest.approx(recorded.to_dict(), rel=1e-3)
    assert (
        found["acc"] == pytest.approx(0.78, abs=0.015)
        and found["sil"] == pytest.approx(0.10, abs=0.015)
        and found["dbi"] == pytest.approx(2.72, abs=0.1)
    )


# ---------------------------------------------------------------- what chapters make


@pytest.fixture
def two_folders(tmp_path, monkeypatch):
    """A folder of committed records and one of those that chapters make; both are empty."""
    committed, made = tmp_path / "committed", tmp_path / "made"
    monkeypatch.setattr(results, "results_dir", lambda profile="full": committed)
    monkeypatch.setattr(results, "chapters_dir", lambda profile="full": made)
    return committed, made


def test_what_a_chapter_makes_is_kept_apart_and_made_once(two_folders, capsys):
    committed, made = two_folders
    asked = experiments.Parameters("tiny", (5, 6), "newsgroups4", "cpu")

    def main_setting(spec):
        return not spec.get("reading")

    wanted = [spec for spec in specs("annealing", "tiny", "auto", (5, 6)) if main_setting(spec)]
    experiments.make_missing(asked, "annealing", dataset="auto", only=main_setting)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(wanted) > 2 and all(": ok, " in line for line in said)
    assert not committed.exists() and len(list(made.glob("annealing/*.csv"))) >= len(wanted)
    experiments.make_missing(asked, "annealing", dataset="auto", only=main_setting)
    assert capsys.readouterr().out == ""
    assert results.load_results("annealing", "tiny").empty
    both = results.load_results("annealing", "tiny", by_chapters=True)
    assert {*both["seed"]} == {5, 6} and both["key"].nunique() == len(wanted)
    assert len(results.load_curves(both)) > len(wanted)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("fault", [{"revision": 0}, {"status": "failed", "reason": "broke"}])
def test_a_chapter_makes_what_is_stale_or_failed_again_and_shows_it(
    two_folders, capsys, monkeypatch, apart, fault
):
    committed, made = two_folders
    if not apart:
        monkeypatch.setattr(results, "chapters_dir", lambda profile="full": committed)
    asked = experiments.Parameters("tiny", (5,), "newsgroups4", "cpu")
    spec = specs("annealing", "tiny", "auto", (5,))[0]
    record = run(spec, "cpu")
    spoilt = {name: -1.0 for name in record.metrics}
    of_spec = {"spec": replace(spec, revision=0)} if "revision" in fault else fault
    results.write_record(replace(record, metrics=spoilt, **of_spec), committed)
    for said in (": ok, ", ""):
        experiments.make_missing(asked, "annealing", dataset="auto", only=lambda it: it == spec)
        assert said in capsys.readouterr().out.strip()
    (shown,) = results.load_results("annealing", "tiny", by_chapters=True).groupby("key")
    assert set(shown[1]["status"]) == {"ok"} and shown[1]["value"].min() > -1
    assert len(results.load_curves(shown[1])) > 1
    assert (made / "annealing").exists() == apart


def test_what_cannot_be_made_for_a_chapter_is_counted_with_its_reason(
    two_folders, capsys, monkeypatch
):
    some = specs("annealing", "tiny", "auto", (5, 6))[:3]
    verdicts = (("missing", "no room"), ("stale", "no room"), ("done", ""))
    pairs = zip(some, verdicts, strict=True)
    rows = [experiments.Planned(spec, *verdict, np.nan) for spec, verdict in pairs]
    given = []
    monkeypatch.setattr(plan, "status", lambda *asked, **more: given.append((*asked, more)) or rows)
    monkeypatch.setattr(plan, "runnable", lambda *asked: [])
    asked = experiments.Parameters("tiny", (5, 6), "newsgroups4", "cpu")
    experiments.make_missing(asked, "annealing")
    more = {"by_chapters": True}
    assert given == [("annealing", "tiny", "newsgroups4", (5, 6), "cpu", more)], (
        "what it costs there"
    )
    assert capsys.readouterr().out == ("annealing: 2 of these seeds' runs are not made: no room\n")
