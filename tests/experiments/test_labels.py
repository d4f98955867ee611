"""Accuracy against the number of labels: the points of the curves, and what each is trained on."""

from collections import Counter

import numpy as np
import pytest
import torch
from by_hand import carried_out, described, grid, made_up, made_up_task

from snnl_book import results
from snnl_book.experiments import (
    PROFILES,
    labels,
    load_task,
    run,
    short_texts,
    specs,
    text_clustering,
)

# ---------------------------------------------------------------- cells


def test_labels_are_few_to_many_each_for_as_many_steps_as_all_and_for_one_pass():
    sizes = (100, 300, 1000, 3000, 10_000)
    found = grid("labels")
    others = [spec for spec in found if spec.model in labels.CLASSIFIERS]
    assert Counter((spec.model, spec.n_train, spec.get("steps_per_epoch")) for spec in others) == {
        **{(model, size, None): 5 for size in sizes for model in ("svm", "knn")},
        **{("ffn", size, 79): 5 for size in sizes},
        **{(model, 20_000, None): 15 for model in labels.CLASSIFIERS},
    }
    labelled = [spec for spec in found if spec["reading"] != "no labels" and spec not in others]
    assert Counter(
        (spec.embedding, spec.model, spec.n_train, spec.get("steps_per_epoch")) for spec in labelled
    ) == {
        **{
            ("spacy", "ae-d", size, 79): 5 for size in sizes
        },  # 20,000 documents are 78 batches of 256 and a smaller one
        **{("spacy", "ae-d", size, None): 5 for size in sizes},
        **{("spacy", "lc-d", size, 79): 3 for size in sizes},
        **{
            (embedding, "lda", size, None): 5 for size in sizes for embedding in ("spacy", "minilm")
        },
    }
    main = {
        cell.model: described(cell)
        for cell in text_clustering.table_cells(PROFILES["full"])
        if cell.embedding == "spacy"
    }
    for spec in labelled:
        if spec.model != "lda":
            own = dict(spec.settings) | {"alpha": spec.alpha, "temperature": spec.temperature}
            assert {name for name in own if own[name] != main[spec.model].get(name)} - {
                "n_test"
            } <= {"reading", "steps_per_epoch"}
    assert {spec["reading"] for spec in labelled if spec.n_train == 1000} == {
        "1,000 labels",
        "1,000 labels, one pass an epoch",
    }


def test_without_labels_words_are_counted_in_all_documents_and_clusterbert_is_trained_on_some():
    found = [spec for spec in grid("labels") if spec["reading"] == "no labels"]
    assert Counter((spec.embedding, spec.model, spec.n_train) for spec in found) == {
        **{(embedding, "kmeans", 20_000): 5 for embedding in ("tfidf", "sif", "sif-corpus")},
        **{
            (embedding, "kmeans", 100): 5 for embedding in ("minilm", "minilm-cls")
        },  # which are as published, and see no training document
        ("minilm-cls", "clusterbert", 2000): 2,
    }
    like = ("clusterbert", "kmeans", "")
    (main,) = [
        spec
        for spec in specs("clusterbert", "full", "bbc_sentences", 42)
        if (spec.model, spec["clusterer"], spec.needs) == like
    ]
    (ours,) = [spec for spec in found if spec.model == "clusterbert" and spec.seed == 42]
    assert (
        dict(ours.settings) == dict(main.settings) | {"reading": "no labels"}
        and ours.n_train == main.n_train
    )
    said = text_clustering.CHOICES["no labels"]
    assert f"{PROFILES['full']['short_documents']:,} training documents" in said


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
    assert found == expected | {("ae-d", "100 labels, one pass an epoch"): (100, 100, 2)}


def test_fewer_labels_are_the_first_of_more(packages):
    few, more = (load_task("newsgroups4", "spacy", 42, n_train, 200) for n_train in (100, 300))
    assert np.array_equal(few.train_rows, more.train_rows[:100]) and np.array_equal(
        few.train_x, more.train_x[:100]
    )
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


def test_linear_discriminant_analysis_bears_fewer_documents_than_features():
    task = made_up_task(train=60, width=200, spread=0.3)
    found = carried_out(labels.run, made_up("lda"), task)
    assert found.metrics["acc"] > 0.9
