"""A small run of each experiment and model on a pretend accelerator gives the CPU's results."""

from dataclasses import replace

import numpy as np
import pretend
import pytest

from snnl_book.embeddings import backbones
from snnl_book.experiments import EXPERIMENTS, check_device, devices, specs
from snnl_book.experiments.short_texts import TRAINED
from snnl_book.experiments.tasks import Task
from snnl_book.methods import deep_clustering
from snnl_book.methods.deep_clustering import n2d

SMALLER = {"kmeans_starts": 2, "epochs": 1, "pretrain_epochs": 1, "max_steps": 2, "n_test": 30}
SMALLER |= {"perplexity": 5, "iterations": 250, "steps": 1, "shown": 10, "neighbours": 3}
CLASSES, FEATURES = 3, 64


def planned():
    """Return the first tiny run of each experiment and model that computes on the device."""
    chosen = {}
    for name in EXPERIMENTS:
        for spec in (*specs(name, "tiny", "newsgroups4", 42), *specs(name, "tiny", "auto", 42)):
            is_idec = spec.get("clusterer") == "idec"
            if devices.trains_on(spec, "cuda") == "cuda" and (spec.model != "plain" or is_idec):
                chosen.setdefault((name, spec.model), spec)
    return chosen


RUNS = planned()


def task_of(spec):
    """Return points in three clouds, or short texts about three subjects."""
    random = np.random.default_rng(0)
    labels = np.arange(36) % CLASSES
    points = 0.2 + 0.25 * labels[:, None] + 0.05 * random.random((36, FEATURES))
    points = points.astype(np.float32)
    if spec.model in TRAINED or spec.experiment == "retrieval":
        subjects = ("sort a list of", "read the file", "draw a plot in")
        texts = [f"{subjects[label]} {row} line" for row, label in enumerate(labels)]
        points = np.array(texts, dtype=object)
    train, test = slice(0, 24), slice(24, None)
    if spec.experiment not in ("clusterbert", "clusterbert-ablation", "retrieval"):
        parts = points[train], labels[train], points[test], labels[test]
    else:  # short texts are their own test set
        parts = points, labels, points, labels
    rows = [np.arange(len(part)) for part in (parts[0], parts[2])]
    return Task(*parts, CLASSES, 0, 0, *rows)


@pytest.fixture
def small_world(small_roberta, tmp_path, monkeypatch):
    """A cache of our own, a small transformer in place of MiniLM, and no UMAP."""

    def first_units(vectors, seed, n_components, **settings):
        return None, vectors[:, :n_components]

    for module in (n2d, deep_clustering):
        monkeypatch.setattr(module, "fit_umap", first_units)
    data, folder = tmp_path / "data", small_roberta / "backbones" / "roberta-base"
    (data / "backbones").mkdir(parents=True)
    (data / "backbones" / "minilm-float16").symlink_to(folder, target_is_directory=True)
    monkeypatch.setenv("SNNL_DATA", str(data))
    monkeypatch.setenv("SNNL_CACHE", str(tmp_path / "cache"))
    backbones._tokenizer.cache_clear()
    yield
    backbones._tokenizer.cache_clear()


STAGES_AGAIN = {run for run in RUNS if run[1] in ("tsdae", "clusterbert")}
STAGES_AGAIN -= {("clusterbert", "clusterbert")}  # whose stages the others only carry out again


@pytest.mark.parametrize(
    ("experiment", "model"),
    [pytest.param(*run, marks=[pytest.mark.slow] * (run in STAGES_AGAIN)) for run in RUNS],
)
def test_a_run_of(experiment, model, small_world, on_both):
    spec = RUNS[experiment, model]
    settings = {name: SMALLER.get(name, value) for name, value in spec.settings}
    settings |= {"task": "denoise"} if experiment == "retrieval" else {}
    spec = replace(spec, settings=tuple(sorted(settings.items())))

    def compute(device):
        outcome = EXPERIMENTS[experiment].run(spec, task_of(spec), device, None)
        assert outcome.status in ("ok", "collapsed")
        losses = [] if outcome.curve is None else outcome.curve.filter(like="loss").to_numpy()
        not_scores = ("kl",)  # t-SNE enlarges rounding errors
        scores = {name: v for name, v in outcome.metrics.items() if name not in not_scores}
        return [scores, losses]

    on_both(compute, rtol=0.05, atol=0.05)


def test_auto_takes_the_accelerator_and_records_name_it():
    trained, rival = RUNS["clustering", "ae-d"], specs("clustering-rivals", "tiny", "newsgroups4")
    (lda,) = (spec for spec in rival if spec.model == "lda" and spec.seed == 42)
    with pretend.accelerator() as device:
        assert check_device("auto") == check_device(device) == device
        assert devices.device_type(trained, device) == device
        assert devices.device_names(trained, device) == device
        assert devices.device_type(lda, device) == "cpu"


def test_all_models_that_train_are_rehearsed():
    models = {spec.model for name in EXPERIMENTS for spec in specs(name, "tiny", "auto", 42)}
    assert models - {model for _, model in RUNS} <= devices.ON_CPU
