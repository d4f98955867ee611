"""Accuracy against the number of labels: what each point of the curves is trained on."""

from collections import Counter

import numpy as np
import pytest
import torch
from by_hand import carried_out, grid, made_up, made_up_task

from snnl_book import results
from snnl_book.experiments import images, labels, load_task, run, short_texts, text_clustering
from snnl_book.experiments.cells import PROFILES
from snnl_book.experiments.plan import specs
from snnl_lib.models import Autoencoder

# ---------------------------------------------------------------- runs


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


@pytest.fixture(scope="module")
def clouds():
    return made_up_task()


@pytest.fixture
def steps(monkeypatch):
    """A counter of the optimiser's steps."""
    counted, step = Counter(), torch.optim.Adam.step

    def counting(self, *args, **kwargs):
        counted["steps"] += 1
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.Adam, "step", counting)
    return counted


def test_with_few_labels_the_labelled_documents_alone_are_trained_on_for_as_many_steps_as_with_all(
    packages, steps, trainings
):
    found = {}
    for spec in [*grid("labels", "tiny", [42]), *grid("clustering", "tiny", [42])]:
        if spec.model in ("ae-d", "lc-d"):
            steps.clear()
            trainings.clear()
            record = run(spec, "cpu")
            found[spec.model, spec.get("reading", "all")] = (
                record.n_train,
                sum(len(training.features) for training in trainings),
                steps["steps"],
            )
    # Two epochs: of two steps, for 300 documents are one batch of 256 and a smaller one, or
    # of the one batch that 100 documents are.
    expected = {
        (model, reading): (size, size, 4)
        for model in ("ae-d", "lc-d")
        for reading, size in (("all", 300), ("100 labels", 100))
    }
    raw = "squared error, inputs not scaled, 100 labels"
    expected["ae-d", raw] = (100, 100, 4)
    for reading in ("100 labels", raw):
        expected["ae-d", f"{reading}, one pass an epoch"] = (100, 100, 2)
    all_labels = "squared error, inputs not scaled, 300 labels, one pass an epoch"  # on MiniLM's
    expected["ae-d", all_labels] = (300, 300, 4)
    assert found == expected


def test_short_training_on_images_is_the_long_one_without_its_number_of_steps():
    found = [spec for spec in specs("labels", "full", "mnist", seeds=[42]) if spec.model == "ae-d"]
    short = [spec for spec in found if "one pass" in spec.label]
    long = [spec for spec in found if spec not in short]
    assert [spec.n_train for spec in short] == [100, 300, 1000, 3000]
    for one, other in zip(long, short, strict=True):
        for name in ("n_train", "alpha", "temperature"):
            assert getattr(one, name) == getattr(other, name)
        ours, theirs = dict(one.settings), dict(other.settings)
        assert ours.pop("steps_per_epoch") == 40
        assert ours | {"reading": theirs["reading"]} == theirs


def test_fewer_labels_are_the_first_of_more(packages):
    few, more = (load_task("newsgroups4", "spacy", 42, n_train, 200) for n_train in (100, 300))
    assert np.array_equal(few.train_rows, more.train_rows[:100])
    assert np.array_equal(few.train_x, more.train_x[:100])
    assert np.array_equal(few.test_rows, more.test_rows)


@pytest.mark.parametrize("model", ["svm", "knn", "ffn"])
def test_a_classifiers_own_classes_are_clusters_and_k_means_sees_what_it_computes(clouds, model):
    own = {
        "svm": {"candidates": (1, 10), "folds": 5, "chosen_on": 100},
        "knn": {"neighbours": 5},
        "ffn": {"hidden_sizes": (50,), "layers": "sum", "epochs": 40},
    }[model]
    spec = made_up(model, experiment="labels", **own)
    found = carried_out(labels.run, spec, clouds)
    scores, answers = found.metrics, found.answers
    assert scores["acc"] > 0.95
    assert scores["acc"] == pytest.approx((answers[""] == clouds.test_y).mean())
    if model == "knn":
        assert set(answers) == {""} and "kmeans_acc" not in scores
    else:
        assert set(answers) == {"", "kmeans_"} and scores["kmeans_acc"] > 0.9


def test_the_c_of_a_support_vector_machine_is_chosen_on_the_first_labels_alone(clouds):
    settings = {"candidates": (1e-6, 10), "folds": 5, "chosen_on": 100}
    spec = made_up("svm", experiment="labels", **settings)
    chosen = labels.fitted_svm(spec, clouds.train_x, clouds.train_y)
    assert chosen.C == 10 and chosen.shape_fit_ == clouds.train_x.shape
    shuffled = clouds.train_y.copy()
    shuffled[100:] = 0
    assert labels.fitted_svm(spec, clouds.train_x, shuffled).C == 10


def test_a_point_of_the_curve_is_a_run_of_clustering_or_of_its_rivals(clouds, steps):
    rival, spec = made_up("lda"), made_up("ae-d", 100, steps_per_epoch=5)
    found = carried_out(labels.run, rival, clouds).metrics
    assert found == carried_out(text_clustering.run_rival, rival, clouds).metrics
    assert steps["steps"] == 0
    found = carried_out(labels.run, spec, clouds).metrics
    assert found == carried_out(text_clustering.run_codes, spec, clouds).metrics
    assert steps["steps"] == 2 * 2 * 5
    steps.clear()
    (spec,) = pictured("supcon")
    found = carried_out(labels.run, spec, clouds).metrics
    assert found == carried_out(images.run_images, spec, clouds).metrics
    assert steps["steps"] == 2 * spec["epochs"] * spec["steps_per_epoch"] and len(found) > 5


def pictured(model):
    """Return the runs of a model with few labels on the embedded digits, with seed 42."""
    found = specs("labels", "tiny", images.EMBEDDED, seeds=[42])
    return [spec for spec in found if spec.model == model and spec.get("steps_per_epoch")]


def test_the_hidden_layers_of_a_plain_network_are_those_of_the_network_of_its_row(clouds):
    (plain,) = pictured("ffn")
    hidden = next(spec for spec in pictured("ffn-hidden") if "plain network" in spec.label)
    assert dict(hidden.settings) == dict(plain.settings) | {"neighbours": 10}
    layers = carried_out(labels.run, hidden, clouds)
    network = carried_out(labels.run, plain, clouds)
    assert layers.metrics["predictions_acc"] == network.metrics["acc"]
    assert np.array_equal(layers.answers["predictions_"], network.answers[""])
    assert {"hidden2_normalized_acc", "hidden2_acc"} <= set(layers.metrics)


def test_the_encoder_as_a_classifier_has_the_layers_of_the_autoencoders_encoder():
    whole = PROFILES["full"]
    cells = [cell for cell in labels.cells(whole) if cell.label.startswith(labels.ENCODERS[0])]
    found = {(cell.dataset, cell.alpha, cell.n_train, cell.seeds) for cell in cells}
    assert found == {
        (dataset, alpha, n_train, 5)
        for dataset in ("mnist", "fashion_mnist", "digits")
        for alpha in (0, 1)
        for n_train in (*whole["image_labels"], whole["image_train"])
    } | {("", 0, n_train, None) for n_train in (*whole["label_sizes"], whole["n_train"])}
    (sizes,) = {tuple(cell.settings["hidden_sizes"]) for cell in cells}
    _, hidden = Autoencoder(784)(torch.zeros(1, 784))
    encoder = ("encoder1", "encoder2", "encoder3", "code")
    assert sizes == tuple(hidden[name].shape[1] for name in encoder)
