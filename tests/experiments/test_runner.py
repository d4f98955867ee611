"""Runs one by one and side by side: what they record, and how they end well or badly."""

import time
import warnings
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from by_hand import training_of

from snnl_book import data, experiments, results
from snnl_book.data import DataError
from snnl_book.experiments import (
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
from snnl_book.experiments.codes import entanglement
from snnl_book.results import Outcome
from snnl_lib import training
from snnl_lib.training import History

# ---------------------------------------------------------------- runs


def tiny(experiment, model, alpha=None, seed=42):
    """The first tiny spec of a model on the corpus of the tests, or the first with this alpha."""
    return next(
        spec
        for spec in specs(experiment, "tiny", "newsgroups4", seed)
        if spec.model == model and alpha in (None, spec.alpha)
    )


def verdicts(experiment):
    """The verdict on each tiny run of the first seed."""
    rows = plan.status(experiment, "tiny", "newsgroups4", 42, "cpu")
    return {row.spec: row.verdict for row in rows}


AT_CHANCE = {("classification-rivals", "lda"), ("annealing", "points")}
"""LDA of 300 documents of 300 features, and points after three steps from chance."""


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_run_gives_every_metric_of_its_experiment_and_its_provenance(packages, experiment):
    data_of = {"lexicon": ("opinion_lexicon", "spacy-word"), "annealing": ("gaussian", "points")}
    of = data_of.get(experiment, ("newsgroups4", "spacy"))
    n_train = 100 if experiment == "labels" else 300
    n_test = 0 if experiment == "annealing" else 200
    epochs = 4 if experiment == "annealing" else 2
    for spec in specs(experiment, "tiny", "newsgroups4", 42)[:1]:
        record = run(spec, "cpu")
        assert (record.status, record.reason, record.spec) == ("ok", "", spec)
        more = {"empty_train", "empty_test"}
        if (experiment, spec.model) == ("labels", "ae-d"):
            more.add("snn")  # of codes, which linear discriminant analysis does not have
        assert set(record.metrics) == {*EXPERIMENTS[experiment].metrics, *more}
        chance = 0.5 if experiment == "lexicon" else 0.25
        score = record.metrics.get("acc", record.metrics.get("neighbours"))
        assert chance + 0.05 < score <= 1 or (experiment, spec.model) in AT_CHANCE
        assert 0 <= record.metrics.get("snn", 0) < np.log(4) + 0.2
        if experiment == "unseen":  # the documents of half of the classes
            assert 0 < record.n_train < n_train and 0 < record.n_test < n_test
        else:
            assert record.n_train + record.metrics["empty_train"] == n_train
            assert record.n_test + record.metrics["empty_test"] == n_test
        assert record.fingerprint == experiments.fingerprint(*of)
        assert record.seconds > 0 and record.device.startswith("CPU, one thread")
        if record.curve is None:
            assert spec.get("epochs") is None
        else:
            assert record.curve["epoch"].tolist() == list(range(epochs))
        assert (record.points is not None) == (experiment in ("lexicon", "tsne", "annealing"))
    assert torch.get_num_threads() == 1


def test_the_same_seed_gives_the_same_bits_whatever_ran_before_and_another_seed_another_result(
    packages, capsys
):
    for experiment, model in (
        ("classification", "ffn"),
        ("clustering", "pca"),
        ("clustering", "ae-d"),
        ("lexicon", "lc-d"),
        ("tsne", "original"),
    ):
        spec = tiny(experiment, model)
        first = run(spec, "cpu")
        assert capsys.readouterr().err == ""
        torch.manual_seed(999)  # global random states, which nothing may draw from
        np.random.seed(999)  # noqa: NPY002
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        load_task.cache_clear()
        again = run(spec, "cpu", progress=True)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
        assert again.metrics == first.metrics
        other = run(tiny(experiment, model, seed=73), "cpu")
        for name in {"dbi", "chs", "snn", "kl"} & first.metrics.keys():
            assert other.metrics[name] != first.metrics[name]
        if first.curve is not None:
            assert again.curve.equals(first.curve)
            assert str(spec) in capsys.readouterr().err, "the title of the progress bar"
        if first.points is not None:
            assert again.points.equals(first.points) and not other.points.equals(first.points)


def test_baseline_and_method_share_documents_weights_and_order_for_a_seed(packages):
    for experiment, models in (
        ("classification", [("ffn", 0), ("ffn", 100), ("ffn", -100)]),
        ("clustering", [("ae", 0), ("lc-d", 100), ("ae-d", 100)]),
    ):
        started = [training_of(run, tiny(experiment, *model), "cpu") for model in models]
        assert [asked.alpha for asked in started] == [alpha for _, alpha in models]
        first = started[0]
        for other in started[1:]:
            weights = first.model.state_dict().values(), other.model.state_dict().values()
            assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
            assert np.array_equal(first.features, other.features)
            assert np.array_equal(first.labels, other.labels)
            for name in ("seed", "epochs", "batch_size", "learning_rate", "steps_per_epoch"):
                assert getattr(other, name) == getattr(first, name), name
            assert first.seed == 42


def test_the_scores_of_a_classifier_are_those_of_the_test_documents_at_the_last_epoch(packages):
    record = run(tiny("classification", "ffn"), "cpu")
    assert record.curve["test_acc"].iloc[-1] == record.metrics["acc"]
    correct = record.metrics["acc"] * 200
    assert record.n_test == 200 and correct == pytest.approx(round(correct), abs=1e-9)


def test_entanglement_looks_at_the_first_2000_documents():
    generator = np.random.default_rng(0)
    features = generator.normal(size=(2100, 5)).astype(np.float32)
    labels = generator.integers(0, 4, 2100)
    found = entanglement(features, labels)
    assert found == entanglement(features[:2000], labels[:2000])
    assert found == pytest.approx(np.log(4), abs=0.1), "labels drawn by chance"
    assert entanglement(np.eye(4, 5, dtype=np.float32)[labels], labels) < 0.01, "classes apart"


# ---------------------------------------------------------------- runs that end badly


def carry_out(monkeypatch, experiment, function):
    """Carry the runs of an experiment out by another function."""
    changed = replace(plan.EXPERIMENTS[experiment], run=function)
    monkeypatch.setitem(plan.EXPERIMENTS, experiment, changed)


def constant_task(*args):
    """Documents that are all the same: nothing can be learned, and every code is one point."""
    features, labels, rows = np.ones((120, 30), np.float32), np.arange(120) % 4, np.arange(120)
    return Task(features, labels, features, labels, 4, 0, 0, rows, rows)


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_a_collapsed_run_is_recorded_as_collapsed(packages, results_folder, monkeypatch):
    monkeypatch.setattr(runner, "load_task", constant_task)
    for experiment, model, reason in (
        ("classification", "ffn", "was given class"),
        ("clustering", "ae", "distinct codes"),
        ("labels", "ae-d", "distinct codes"),
        ("tsne", "ae", "distinct codes"),
    ):
        spec = tiny(experiment, model)
        (record,) = run_all([spec], "cpu")
        assert record.status == "collapsed" and reason in record.reason
        frame = results.load_results(experiment, "tiny")
        assert set(frame["status"]) == {"collapsed"} and set(frame["reason"]) == {record.reason}
        assert verdicts(experiment)[spec] == "done"


def test_a_diverged_run_is_recorded_as_diverged_with_its_curve(packages, results_folder):
    for experiment, model in (("classification", "ffn"), ("clustering", "ae-d"), ("tsne", "lc-d")):
        spec = replace(tiny(experiment, model), alpha=1e39)  # beyond float32
        (record,) = run_all([spec], "cpu")
        assert record.status == "diverged" and "epoch 0" in record.reason
        assert np.isnan([record.metrics[name] for name in EXPERIMENTS[experiment].metrics]).all()
        frame = results.load_results(experiment, "tiny")
        assert set(frame["status"]) == {"diverged"} and set(frame["reason"]) == {record.reason}
        assert results.load_curves(frame)["epoch"].tolist() == [0]
        assert results.load_curves(frame, kind="points").empty


def digits(seed=0, train=90, test=60):
    """Made-up images of four classes, as a task."""
    random = np.random.default_rng(seed)
    labels, rows = np.arange(train + test) % 4, np.arange(train + test)
    pixels = np.clip(np.eye(4, 70)[labels] + 0.2 * random.random((train + test, 70)), 0, 1)
    pixels = pixels.astype(np.float32)
    parts = pixels[:train], labels[:train], pixels[train:], labels[train:]
    return Task(*parts, 4, 0, 0, rows[:train], rows[train:])


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Every task is one of made-up images, other ones for each seed; the cache is a new folder."""
    made = {seed: digits(seed) for seed in (42, 73)}
    monkeypatch.setattr(runner, "load_task", lambda dataset, method, seed, *rest: made[seed])
    monkeypatch.setenv("SNNL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


TRAINED = {
    "classification": {"ffn", "cnn"},
    "classification-readings": {"ffn"},
    "classification-rivals": {"supcon", "ffn-knn"},
    "clustering": {"ae", "lc-d", "ae-d"},
    "clustering-readings": {"ae", "lc-d", "ae-d"},
    "clustering-rivals": {"ffn-layer", "ae-supcon", "ae-classifier"},
    "labels": {"ae-d"},
    "lexicon": {"ae", "lc-d", "ae-d"},
    "tsne": {"ae", "lc-d", "ae-d"},
    "images": {"ae", "ae-d", "supcon", "ae-classifier", "ae-10", "dec", "idec", "vade", "n2d"},
    "clusterbert": {"plain"},
}


def test_a_training_that_diverges_ends_the_run_of_every_model(pictures, monkeypatch):
    curve = pd.DataFrame({"epoch": [0], "loss": [np.inf]})
    reason = "the loss was inf in epoch 0"
    monkeypatch.setattr(training, "train", lambda *args, **settings: History(curve, reason))
    for experiment, models in TRAINED.items():
        wanted = {}
        for spec in specs(experiment, "tiny", seeds=[42]):
            if spec.model in models and spec.get("clusterer") in (None, "idec"):
                wanted.setdefault(spec.model, spec)
        assert set(wanted) == models
        for model, spec in wanted.items():
            record = run(spec, "cpu")
            stage = "pretraining: " if model in images.DEEP else ""
            assert (record.status, record.reason) == ("diverged", f"{stage}{reason}"), str(spec)
            assert record.curve is curve and record.points is None
            scores = [record.metrics[name] for name in EXPERIMENTS[experiment].metrics]
            assert np.isnan(scores).all()
    assert not list(pictures.rglob("*.bin")), "what diverged is not kept"


def test_a_run_that_breaks_off_is_recorded_as_failed_with_the_reason(
    packages, results_folder, monkeypatch
):
    spec, others = tiny("clustering", "ae"), [tiny("clustering", "pca")]
    expected = {*EXPERIMENTS["clustering"].metrics, "empty_train", "empty_test"}
    plain = plan.EXPERIMENTS["clustering"].run
    for error, reason in (
        (RuntimeError("CUDA out of\nmemory"), "RuntimeError: CUDA out of memory"),
        (MemoryError("no room"), "MemoryError: no room"),
    ):

        def broken(spec, *args, error=error):
            if spec.model == "ae":
                raise error
            return plain(spec, *args)

        carry_out(monkeypatch, "clustering", broken)
        record, other = run_all([spec, *others], "cpu")
        assert (record.status, record.reason) == ("failed", reason)
        assert set(record.metrics) == expected and record.curve is None
        assert verdicts("clustering")[spec] == "failed"
        assert other.status == "ok", "the runs after it are made"


def test_data_out_of_reach_is_no_failed_run_but_an_error(empty_cache, no_network, results_folder):
    with pytest.raises(DataError, match="'newsgroups4' is unavailable"):
        list(run_all([tiny("clustering", "pca")], "cpu"))
    assert not list(results_folder.rglob("*.csv"))


def test_what_a_run_cannot_find_when_it_is_under_way_is_no_failed_run_either(
    packages, results_folder, monkeypatch
):
    def without_weights(*_):
        raise DataError("the weights are not on this machine")

    carry_out(monkeypatch, "clustering", without_weights)
    with pytest.raises(DataError, match="the weights are not on this machine"):
        list(run_all([tiny("clustering", "pca")], "cpu"))
    assert not list(results_folder.rglob("*.csv"))


# ---------------------------------------------------------------- many runs


def test_each_record_is_written_before_the_next_run_starts(packages, results_folder):
    wanted = specs("clustering", "tiny", "newsgroups4", 42)
    runs = run_all(wanted, "cpu")
    for done, record in enumerate(runs, start=1):
        assert record.spec == wanted[done - 1]
        assert [*verdicts("clustering").values()] == ["done"] * done + ["missing"] * (4 - done)


def test_workers_that_are_stopped_early_are_no_warning(packages, monkeypatch):
    # After Ctrl-C joblib warns of the runs that it cancels, before our own message.
    monkeypatch.setattr(runner, "_run_and_write", lambda spec, *args: time.sleep(0.05) or spec)
    wanted = specs("clustering", "tiny", "newsgroups4", range(3))
    with joblib.parallel_config(backend="threading"), warnings.catch_warnings():
        warnings.simplefilter("error")
        runs = run_all(wanted, "cpu", jobs=2)
        assert next(runs) in wanted
        runs.close()


# ---------------------------------------------------------------- what runs share


@pytest.fixture
def clock(monkeypatch):
    """Let seconds pass without waiting for them: (seconds) -> None."""
    real, passed = time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: real() + passed[0])

    def let_pass(seconds):
        passed[0] += seconds

    return let_pass


def test_a_runs_seconds_leave_out_those_it_waited_for_what_runs_share(packages, monkeypatch, clock):
    def waiting(spec, task, device, progress):
        clock(1000)
        clock(100_000)
        return Outcome({"acc": 0.5}, shared_seconds=7.125, waited=100_000)

    spec = tiny("clustering", "pca")
    assert "shared_seconds" not in run(spec, "cpu").metrics
    carry_out(monkeypatch, "clustering", waiting)
    record = run(spec, "cpu")
    assert record.seconds == pytest.approx(1000, abs=60)
    assert record.metrics["shared_seconds"] == 7.12


# ---------------------------------------------------------------- which runs are to be made


def test_what_runs_need_is_the_same_looked_up_together_or_one_by_one(results_folder, monkeypatch):
    monkeypatch.setattr(data, "fetch", lambda name: None)
    for experiment in EXPERIMENTS:
        for device in ("auto", "cpu"):
            found = status(experiment, seeds=42, device=device)
            wanted = [row.spec for row in found]
            unmet = [experiments.unmet(spec, device) for spec in wanted]
            assert found and [row.unmet for row in found] == unmet
            here = [spec for spec, why in zip(wanted, unmet, strict=True) if not why]
            assert experiments.runnable(wanted, device) == here


def test_the_fingerprint_tells_apart_data_sets_and_embeddings(packages):
    found = {
        experiments.fingerprint(name, method)
        for name in ("newsgroups4", "newsgroups20")
        for method in ("spacy", "tfidf", "sif-corpus")
    }
    assert len(found) == 6 and None not in found
    corpus = data.describe("newsgroups4").forms[0].fingerprint
    assert experiments.fingerprint("newsgroups4", "spacy") == f"{corpus}-c2b55dcb"


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
    assert found["acc"] == pytest.approx(0.78, abs=0.015)
    assert found["sil"] == pytest.approx(0.10, abs=0.015)
    assert found["dbi"] == pytest.approx(2.72, abs=0.1)


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


@pytest.mark.parametrize(
    ("fault", "apart"), [({"revision": 0}, True), ({"status": "failed", "reason": "broke"}, False)]
)
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
    # What it costs there.
    assert given == [("annealing", "tiny", "newsgroups4", (5, 6), "cpu", {"by_chapters": True})]
    said = "annealing: 2 runs with these seeds cannot be carried out here: no room\n"
    assert capsys.readouterr().out == said
