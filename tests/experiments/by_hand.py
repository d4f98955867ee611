"""What the tests of several families share: made-up documents and runs on them, and real grids."""

import numpy as np
import pytest
from conftest import arguments_of

from snnl_book import results
from snnl_book.experiments import Task, specs
from snnl_lib import training


def grid(experiment, profile="full", seeds=None):
    """The runs of an experiment on texts."""
    return specs(experiment, profile, "newsgroups4", *([seeds] if seeds else []))


def described(cell):
    """Everything that can move a cell's numbers."""
    return {
        "embedding": cell.embedding,
        "model": cell.model,
        "alpha": cell.alpha,
        "temperature": cell.temperature,
        "n_train": cell.n_train,
        **cell.settings,
    }


def carried_out(run, spec, task):
    """Carry out a run on a task."""
    return run(spec, task, "cpu", None)


def training_of(run, *args):
    """The arguments with which a function starts a training, which is not carried out."""

    class StartedError(Exception):
        pass

    train = training.train

    def start(*args, **settings):
        raise StartedError(arguments_of(train, args, settings))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train", start)
        with pytest.raises(StartedError) as caught:
            run(*args)
    return caught.value.args[0]


def made_up_task(train=300, test=200, width=20, spread=0.2, seed=0):
    """Four classes, each around a direction of its own; documents from anywhere in a corpus."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(train + test) % 4)
    centres = 2 * np.eye(4, width)[labels]
    features = centres + spread * random.normal(size=(train + test, width))
    return task_of(features, labels, train, random.permutation(10_000))


def task_of(features, labels, train, rows):
    """The task of which the first so many points are trained on; ``rows`` has at least as many."""
    features, test = features.astype(np.float32), len(labels) - train
    parts = features[:train], labels[:train], features[train:], labels[train:]
    return Task(*parts, len(set(labels)), 0, 0, rows[:train], rows[-test:])


def made_up(model, alpha=0, experiment="clustering", **settings):
    """The spec of a run that clusters made-up documents."""
    usual = {"kmeans_starts": 3, "components": 128, "epochs": 2, "scaling": "feature"}
    settings = usual | {"n_test": None} | settings
    temperature = "annealed" if alpha else "none"
    names = experiment, "tiny", "made-up", "spacy", model, alpha, temperature, 42, 300, 1
    return results.Spec(*names, tuple(sorted(settings.items())))
