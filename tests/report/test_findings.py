"""The findings that are joined from several experiments."""

import json

import numpy as np
import pandas as pd
import pytest

from snnl_book import report, results
from snnl_book.report import claims, documents, findings


def test_effects_of_annealing_are_differences_of_the_recorded_conditions():
    rows = findings.annealing_effects().set_index(["setting", "label"])
    assert set(rows.index.get_level_values("label")) == set(findings.CHANGES)
    records = findings._conditions()["AG News, AE(D)"][0].query("metric == 'acc'")
    wide = records.pivot_table(index="seed", columns="label", values="value")
    by_hand = (wide[findings.ANNEALED] - wide[findings.FIXED]).mean()
    row = rows.loc[("AG News, AE(D)", "both: annealing")]
    assert row["mean"] == pytest.approx(by_hand) and row["seeds"] == 5
    assert row["low"] < row["mean"] < row["high"]


def test_points_are_compared_at_the_articles_epoch():
    records, metric = findings._conditions()[f"points, epoch {findings.EPOCH}"]
    one = records.iloc[0]
    path = results.results_dir("full") / "annealing" / f"{one['key']}.curve.csv"
    curve = pd.read_csv(path).set_index("epoch")
    assert one["value"] == pytest.approx(curve.loc[findings.EPOCH, metric])


@pytest.mark.parametrize("dataset", ["ag_news", "mnist"])
def test_every_use_of_labels_is_in_the_right_group_with_its_number_of_labels(dataset):
    runs = findings.uses_of_labels(dataset)
    assert not runs.duplicated(["experiment", "key"]).any()
    groups = runs.groupby("method")["group"].unique()
    assert list(groups["AE(D)"]) == [findings.LOSS]
    assert list(groups["support vector machine"]) == [findings.LABELS]
    assert (runs.loc[runs["group"] == findings.NONE, "labels"] == 0).all()
    assert (runs.loc[runs["group"] != findings.NONE, "labels"] >= 100).all()
    of_100 = runs.query("method == 'AE(D)' and labels == 100")
    assert of_100["key"].str.contains("-n100-").all()
    assert len(of_100) == of_100["seed"].nunique() >= 5


def test_an_unlabelled_clustering_keeps_the_name_of_its_vectors():
    methods = set(findings.uses_of_labels("ag_news").query("labels == 0")["method"])
    assert {"k-means on TF-IDF", "k-means on MiniLM, mean", "Gaussian mixture"} <= methods


def test_a_summary_puts_the_best_mean_first_and_has_the_interval_of_its_runs():
    runs = pd.DataFrame(
        {
            "labels": [100, 100, 100, 100],
            "method": ["a", "a", "b", "b"],
            "group": findings.LOSS,
            "value": [0.5, 0.6, 0.8, 0.8],
            "experiment": "labels",
            "key": ["k1", "k2", "k3", "k4"],
        }
    )
    table = findings.summed_up(runs)
    assert table["method"].tolist() == ["b", "a"]
    assert table["mean"].tolist() == pytest.approx([0.8, 0.55])
    half = 12.7062 * np.std([0.5, 0.6], ddof=1) / np.sqrt(2)  # t with one degree of freedom
    assert table.loc[1, "high"] - 0.55 == pytest.approx(half, rel=1e-4)
    assert table.loc[1, "records"] == "labels/k1 labels/k2"


def test_methods_are_compared_at_each_number_of_labels_by_the_seeds_of_both(monkeypatch):
    seeds = [1, 2, 1, 2, 1, 2, 1]
    runs = pd.DataFrame({"labels": [100] * 4 + [300] * 3, "seed": seeds, "metric": "acc"})
    runs["method"] = ["a", "a", "b", "b", "a", "a", "c"]
    runs = runs.assign(value=[0.9, 0.8, 0.6, 0.7, 0.9, 0.8, 0.1], status="ok", stale=False)
    runs = runs.assign(experiment="labels", key=[f"k{number}" for number in range(7)])
    monkeypatch.setattr(documents, "influences_on", lambda *run: None)  # no such runs are recorded
    rows = findings.differences_by_labels(runs, [("a", "b"), ("a", "c")])
    assert rows[["against", "labels"]].to_numpy().tolist() == [["b", 100], ["c", 300]]
    assert rows["mean"].tolist() == pytest.approx([0.2, 0.8]) and rows["seeds"].tolist() == [2, 1]
    assert findings.differences_by_labels(runs.head(0), [("a", "b")]).empty


@pytest.fixture
def run_with_answers():
    runs = findings.uses_of_labels("ag_news").query("labels == 10000")
    return runs[runs["method"] == "support vector machine"].head(1)


def test_the_share_of_right_answers_is_the_recorded_accuracy(run_with_answers):
    wrong = findings.wrong_answers(run_with_answers)
    assert len(wrong) == 7600 and wrong.index.names == ["row", "class"]
    assert 1 - wrong.iloc[:, 0].mean() == pytest.approx(run_with_answers["value"].item())


def test_without_runs_no_document_is_answered(run_with_answers):
    wrong = findings.wrong_answers(findings.answered(run_with_answers.head(0)))
    assert wrong.empty and wrong.index.names == ["row", "class"]


def test_clusters_are_matched_with_classes_before_errors_are_counted(monkeypatch):
    labels, clusters = np.array([0, 0, 1, 1, 1]), np.array([1, 1, 0, 0, 2])
    monkeypatch.setattr(results, "load_rows", lambda *_: (np.arange(5), labels))
    monkeypatch.setattr(results, "load_answers", lambda *_: {"": clusters})
    _, _, given = findings.answers_as_classes("any", "key")
    assert given.tolist() == [0, 0, 1, 1, -1]  # the third cluster is left without a class


def test_agreement_is_the_share_of_errors_in_common():
    wrong = pd.DataFrame({"a": [1, 1, 0, 0], "b": [1, 0, 1, 0], "c": [0, 0, 0, 0]}, dtype=bool)
    table = findings.agreement(wrong)
    assert table.loc["a", "b"] == pytest.approx(1 / 3) and table.loc["a", "a"] == 1
    assert table.loc["a", "c"] == 0


def test_a_repeated_run_moved_by_its_score_minus_the_score_it_replaced():
    changes = findings.changes_when_repeated("labels", "ag_news", "spacy", "ae-d")
    replaced = pd.read_csv(results.results_dir("full") / "replaced.csv")
    key = "ag_news-spacy-ae-d-a100-tannealed-s42-n100-0a036dc8"
    earlier = json.loads(replaced[replaced["key"] == key]["scores"].iloc[-1])["acc"]
    record = results.read_record(results.results_dir("full") / "labels" / f"{key}.csv")
    assert changes[key] == record.set_index("metric").loc["acc", "value"] - earlier
    assert len(changes) >= 25 and changes.index.is_unique and changes.notna().all()


def test_where_nothing_was_replaced_no_run_has_moved(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "results_dir", lambda profile: tmp_path)
    assert findings.changes_when_repeated("labels", "ag_news", "spacy", "ae-d").empty


def test_a_difference_allows_for_the_choice_of_test_documents_as_claims_do(monkeypatch):
    runs = report.recorded("classification", "ag_news", "spacy", model="ffn", seeds="all")
    pairs = [("SNNL 100", "Baseline"), ("SNNL 100", "no such row")]
    found, none = report.differences(runs, pairs).to_dict("records")
    (claimed,) = claims.differences("disentangling-classifies-better").head(1).to_dict("records")
    assert found["seeds"] == claimed["units"] and found["documents"]
    for end in ("mean", "low", "high"):
        assert found[end] == pytest.approx(claimed[end])
    assert np.isnan(none["mean"]) and none["seeds"] == 0 and not none["documents"]
    monkeypatch.setattr(documents, "influences_on", lambda *run: None)
    (over_seeds,) = report.differences(runs, pairs[:1]).to_dict("records")
    assert not over_seeds["documents"]
    assert found["high"] - found["low"] > over_seeds["high"] - over_seeds["low"]


def test_one_run_without_answers_leaves_the_interval_over_seeds(monkeypatch):
    runs = report.recorded("classification", "ag_news", "spacy", model="ffn", seeds="all")
    lacking = runs[runs["label"] == "Baseline"]["key"].iloc[0]
    found = documents.influences_on

    def influences_on(value, experiment, key, *how):
        return None if key == lacking else found(value, experiment, key, *how)

    monkeypatch.setattr(documents, "influences_on", influences_on)
    row = report.differences(runs, [("SNNL 100", "Baseline")]).iloc[0]
    assert not row["documents"]


@pytest.fixture
def asked(monkeypatch):
    """What ``half_width`` is asked for made-up runs: for each unit the weights of its runs."""
    made_up = np.arange(4), np.array([0.1, -0.1, 0.0, 0.0])
    monkeypatch.setattr(documents, "influences_on", lambda *run: made_up)
    found = []

    def half_width(units):
        found.append([[round(weight, 3) for weight, _ in unit] for unit in units])
        return 0.0

    monkeypatch.setattr(documents, "half_width", half_width)
    return found


def made_up_runs(scores):
    """Runs of (label, seed, value) on accuracy."""
    runs = pd.DataFrame(scores, columns=["label", "seed", "value"])
    return runs.assign(metric="acc", experiment="trial", key=[f"k{row}" for row in runs.index])


def test_seeds_on_one_draw_of_an_encoder_weigh_as_one_unit(asked):
    runs = made_up_runs([(label, seed, 0.5) for label in "AB" for seed in range(3)])
    runs["fingerprint"] = ["x-random0", "x-random0", "x-random1"] * 2
    report.differences(runs, [("A", "B")])
    assert asked == [[[0.25, 0.25, -0.25, -0.25], [0.5, -0.5]]]


def test_two_runs_of_a_seed_weigh_as_one_and_a_run_without_a_score_not_at_all(asked):
    scores = [("A", 1, 0.5), ("A", 1, 0.6), ("A", 2, 0.5), ("A", 2, np.nan), ("A", 3, 0.5)]
    runs = made_up_runs([*scores, *(("B", seed, 0.4) for seed in (1, 2, 3, 4))])
    report.differences(runs, [("A", "B")])
    assert asked == [[[0.167, 0.167, -0.333], [0.333, -0.333], [0.333, -0.333]]]


def test_row_numbers_of_several_data_sets_are_not_taken_for_the_same_documents(asked):
    runs = made_up_runs([(label, seed, 0.5) for label in "AB" for seed in (1, 2)])
    found = report.differences(runs.assign(dataset=["a", "b"] * 2), [("A", "B")])
    assert not found["documents"].any() and not asked


def test_a_score_under_another_name_is_looked_up_by_its_own():
    runs = report.recorded("clustering-rivals", "ag_news", "spacy", model="ffn-hidden")
    pair = [tuple(runs["label"].unique()[:2])]
    metric = "hidden1_normalized_acc"
    wanted = report.differences(runs, pair, metric)
    assert wanted["documents"].all()
    renamed = runs[runs["metric"] == metric].assign(metric="acc")
    with pytest.raises(ValueError, match="recorded_as"):
        report.differences(renamed, pair)
    found = report.differences(renamed.assign(recorded_as=metric), pair)
    pd.testing.assert_frame_equal(found, wanted)
