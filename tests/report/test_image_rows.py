"""The records of the chapters on images, with what each method knows."""

import pandas as pd
import pytest

from snnl_book import report
from snnl_book.report import image_rows


@pytest.fixture(scope="module")
def by_labels():
    return image_rows.by_labels("mnist")


def test_methods_are_sorted_by_what_they_know_and_have_the_papers_accuracy():
    runs = image_rows.methods("mnist")
    kinds = runs.groupby("label")["kind"].unique().str[0]
    assert kinds["AE(D), alpha 1"] == "loss"
    of_labels = {"SupCon", "AE with a classifier on its code"}
    assert {*kinds.index[kinds == "labels"]} == of_labels
    assert set(kinds.drop([*of_labels, *kinds[kinds == "loss"].index])) == {"none"}
    assert not runs["label"].str.contains("fixed temperature").any()
    quoted = report.literature().query("dataset == 'mnist' and metric == 'acc'")
    quoted = quoted.set_index("method")["value"]
    printed = runs.groupby("label")["paper"].first()
    assert printed["DEC"] == quoted["DEC"] and printed["AE(D), alpha 100"] == quoted["AE(D)"]
    assert pd.isna(printed["pixels"])


def test_the_uses_of_the_labels_are_those_of_both_experiments(by_labels):
    whole = report.recorded("images", "mnist", "pixels").query("metric == 'acc'")
    whole = whole[whole["label"] == image_rows.BASE]["value"]
    ours = by_labels.query("method == 'AE(D), then k-means' and labels == 10_000")["value"]
    assert sorted(ours) == sorted(whole)
    few = report.recorded("labels", "mnist", "pixels").query("metric == 'kmeans_acc'")
    few = few[few["label"] == "support vector machine, 300 labels"]["value"]
    machine = by_labels[by_labels["method"] == "support vector machine, then k-means"]
    assert sorted(machine[machine["labels"] == 300]["value"]) == sorted(few)
    networks = report.recorded("labels", "mnist", "pixels").query("model == 'ffn-hidden'")
    plain = networks["label"].str.startswith("each hidden layer of a plain network")
    layers = networks[plain].query("metric == 'hidden2_normalized_acc'")
    clustered = by_labels[by_labels["method"] == image_rows.HIDDEN["hidden2_normalized_acc"]]
    assert sorted(clustered["value"]) == sorted(layers["value"])
    assert (layers.groupby("n_train")["seed"].nunique() == 5).all()
    encoder = networks[~plain & (networks["alpha"] == 0)].query("metric == 'predictions_acc'")
    is_short = encoder["label"].str.contains("one pass an epoch")
    for method, runs in (
        (image_rows.ENCODER, encoder[~is_short]),
        (f"{image_rows.ENCODER}, short training", encoder[is_short]),
    ):
        classes = by_labels[by_labels["method"] == method]
        assert sorted(classes["value"]) == sorted(runs["value"]) and len(runs) >= 5
    with_loss = by_labels["method"].str.contains("with the loss")
    assert set(by_labels[with_loss]["group"]) == {"trained with the loss"}
    assert by_labels["method"].notna().all() and by_labels["value"].between(0, 1).all()


def test_without_labels_no_method_has_seen_one_and_the_best_is_first():
    means = image_rows.without_labels("mnist")
    assert means.is_monotonic_decreasing
    assert not means.index.str.contains("AE(D)", regex=False).any() and "SupCon" not in means


def test_a_data_set_without_records_has_no_rows():
    assert image_rows.by_labels("mnist", seeds=[]).empty
    assert image_rows.without_labels("emnist_balanced").empty
