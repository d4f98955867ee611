"""What documents add to an interval, compared with leaving each of them out."""

import numpy as np
import pytest
from sklearn import metrics

from snnl_book import results
from snnl_book.report import documents
from snnl_lib.metrics import clustering_accuracy


def f1(average):
    return lambda labels, given: metrics.f1_score(labels, given, average=average, zero_division=0)


def nmi(average):
    def score(labels, given):
        return metrics.normalized_mutual_info_score(labels, given, average_method=average)

    return score


OF_CLUSTERS = {
    "acc": clustering_accuracy,
    "nmi": nmi("arithmetic"),
    "nmi_geometric": nmi("geometric"),
    "ari": metrics.adjusted_rand_score,
}
OF_CLASSES = {"acc": metrics.accuracy_score, "f1_micro": f1("micro"), "f1_macro": f1("macro")}


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize(("n_classes", "n_clusters"), [(4, 4), (3, 7), (6, 2)])
def test_changes_are_those_of_the_score_without_each_document(n_classes, n_clusters, classes):
    rng = np.random.default_rng(n_classes)
    labels = rng.integers(0, n_classes, 60)
    random = rng.integers(0, n_clusters, 60)
    given = np.where(rng.random(60) < 0.5, labels % n_clusters, random)
    for name, score in (OF_CLASSES if classes else OF_CLUSTERS).items():
        wanted = [
            score(np.delete(labels, place), np.delete(given, place)) - score(labels, given)
            for place in range(60)
        ]
        found = documents.changes(labels, given, name, classes)
        np.testing.assert_allclose(found, wanted, atol=1e-12, err_msg=name)


def test_a_class_of_a_single_document_counts_in_macro_f1_until_that_document_is_left_out():
    labels, predictions = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 0])
    score = OF_CLASSES["f1_macro"]
    wanted = [
        score(np.delete(labels, row), np.delete(predictions, row)) - score(labels, predictions)
        for row in range(5)
    ]
    found = documents.changes(labels, predictions, "f1_macro", classes=True)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_the_matching_of_accuracy_is_made_again_without_a_document():
    # Two matchings are equally good, so that leaving out one matched document costs nothing.
    labels, given = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    found = documents.changes(labels, given, "acc")
    np.testing.assert_allclose(found, [2 / 3 - 1 / 2] * 4)


def test_units_with_the_same_documents_move_together():
    rows, change = np.arange(4), np.array([0.1, -0.1, 0.1, -0.1])
    one = documents.half_width([[(1.0, (rows, change))]])
    assert one == pytest.approx(1.959964 * np.sqrt(3 / 4 * 4 * 0.01))
    both = [[(0.5, (rows, change))], [(0.5, (rows, change))]]
    assert documents.half_width(both) == pytest.approx(one)
    against = [[(0.5, (rows, change))], [(0.5, (rows, -change))]]
    assert documents.half_width(against) == 0
    rival = [[(1.0, (rows, change)), (-1.0, (rows, change))]]
    assert documents.half_width(rival) == 0


def test_units_that_share_at_most_half_of_their_documents_have_them_in_their_spread():
    change = np.array([0.3, -0.1, 0.1, -0.1])
    first, half, most = np.arange(4), np.arange(2, 6), np.arange(1, 5)
    assert documents.half_width([[(0.5, (first, change))], [(0.5, (half, change))]]) == 0
    found = documents.half_width([[(1.0, (first, change))], [(0.5, (most, -change))]])
    total = np.array([0.3, -0.1 - 0.15, 0.1 + 0.05, -0.1 - 0.05, 0.05])
    wanted = 1.959964 * np.sqrt(4 / 5 * np.square(total - total.mean()).sum())
    assert found == pytest.approx(wanted)


def test_one_unit_with_other_documents_does_not_hide_those_that_the_others_share():
    same, other, change = np.arange(4), np.arange(4, 8), np.array([0.3, -0.1, -0.1, -0.1])
    units = [[(1 / 3, (rows, change))] for rows in (same, same, other)]
    total = np.concatenate([2 * change, change]) / 3
    assert documents.half_width(units) == pytest.approx(
        1.959964 * np.sqrt(7 / 8 * np.square(total - total.mean()).sum())
    )


def test_a_recorded_run_has_the_influences_of_its_test_documents():
    runs = results.load_results("classification").query("embedding == 'spacy' and model == 'ffn'")
    key = runs["key"].iloc[0]
    rows, change = documents.influences("classification", key, "acc", classes=True)
    assert len(rows) == len(change) == 7600 and (np.diff(rows) > 0).all()
    accuracy = results.rescored("classification", key)["acc"]
    # A right document counts (1 - accuracy), a wrong one -accuracy, of 7,599 others.
    wanted = {round(-(1 - accuracy) / 7599, 12), round(accuracy / 7599, 12)}
    assert {*change.round(12)} == wanted
    assert documents.influences("classification", key, "head_acc", classes=True) is None


def test_the_influence_of_a_query_is_the_change_of_the_mean_without_it(monkeypatch):
    values = np.array([0.2, 0.5, 1.0])
    monkeypatch.setattr(results, "load_answers", lambda *run: {"map": values})
    rows, change = documents.influences("retrieval", "made up", "map", classes=False)
    wanted = [np.delete(values, query).mean() - values.mean() for query in range(3)]
    assert rows.tolist() == [0, 1, 2] and change == pytest.approx(wanted)
    assert documents.influences("retrieval", "made up", "mrr", classes=False) is None
