"""Pictures: opinion words on a plane, and codes laid out by t-SNE."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from by_hand import carried_out, made_up, made_up_task, task_of
from conftest import nearest_share

from snnl_book.experiments.codes import scale_to_unit
from snnl_book.experiments.maps import run_lexicon, run_tsne


@pytest.fixture(scope="module")
def clouds():
    return made_up_task()


# ---------------------------------------------------------------- words of the lexicon


def words_task(width=2, train=120, test=80):
    """Training words in two heaps, one a polarity; held-out words all in one: their polarity cannot
    be told.
    """
    random = np.random.default_rng(0)
    labels = random.permutation(np.arange(train + test) % 2)
    features = random.normal(size=(train + test, width))
    features[:train, 0] += 20 * labels[:train]
    return task_of(features, labels, train, random.permutation(5000))


def test_words_are_scored_apart_those_trained_on_and_those_held_out():
    task = words_task()
    found = carried_out(run_lexicon, made_up("original", shown=20), task).metrics
    assert found.keys() == {"acc", "neighbours", "train_acc", "train_neighbours"}
    assert found["train_acc"] == found["train_neighbours"] == 1
    assert found["neighbours"] == pytest.approx(
        nearest_share(task.test_x.astype(float), task.test_y)
    )
    assert found["neighbours"] < 0.65
    assert found["acc"] < 0.65


@pytest.mark.parametrize("model", ["original", "ae-d"])
def test_the_points_are_as_many_words_of_each_polarity_with_the_places_of_the_right_words(model):
    task = words_task()
    outcome = carried_out(run_lexicon, made_up(model, 100, shown=20), task)
    points = outcome.points
    assert list(points.columns) == ["row", "label", "held_out", "x", "y"]
    assert points.groupby(["held_out", "label"]).size().to_dict() == dict.fromkeys(
        itertools.product((0, 1), repeat=2), 10
    )
    assert (outcome.curve is None) == (model == "original")
    for held_out, rows, labels, features in (
        (0, task.train_rows, task.train_y, task.train_x),
        (1, task.test_rows, task.test_y, task.test_x),
    ):
        part = points[points["held_out"] == held_out]
        place = [rows.tolist().index(row) for row in part["row"]]
        assert len(set(place)) == 20 and labels[place].tolist() == part["label"].tolist()
        if (
            model == "original"
        ):  # of two dimensions, so that the plane is they, turned: distances stay
            plane = part[["x", "y"]].to_numpy()
            before, after = (
                np.linalg.norm(values[:, None] - values[None], axis=2)
                for values in (features[place], plane)
            )
            np.testing.assert_allclose(after, before, atol=1e-4)
            assert plane[:, 0].var() >= plane[:, 1].var()


def test_linear_discriminant_analysis_learns_the_words_that_are_trained_on_alone():
    task = words_task(width=3)
    outcome = carried_out(run_lexicon, made_up("lda", shown=20), task)
    assert outcome.metrics["train_acc"] == outcome.metrics["train_neighbours"] == 1
    assert outcome.metrics["acc"] < 0.65 and outcome.curve is None
    assert (outcome.points["y"].abs() < 1e-9).all() and outcome.points["x"].nunique() > 30
    swapped = replace(task, test_y=1 - task.test_y)
    assert carried_out(run_lexicon, made_up("lda", shown=20), swapped).metrics == pytest.approx(
        outcome.metrics
    )


def test_held_out_words_are_not_trained_on(trainings):
    task = words_task()
    first = carried_out(run_lexicon, made_up("ae-d", 100, shown=20), task)
    (training,) = trainings
    assert np.array_equal(training.features, scale_to_unit(task.train_x, task.test_x)[0])
    other = np.random.default_rng(5).normal(size=task.test_x.shape).astype(np.float32)
    spec = made_up("ae-d", 100, shown=20)
    again = carried_out(run_lexicon, spec, replace(task, test_x=other))
    assert again.curve.equals(first.curve)
    trained, held_out = (f"held_out == {number}" for number in (0, 1))
    assert again.points.query(trained).equals(first.points.query(trained))
    assert not again.points.query(held_out).equals(first.points.query(held_out))


def test_other_seeds_show_other_words_and_all_models_of_a_seed_the_same():
    task, shown = words_task(), []
    for seed, model in ((42, "original"), (42, "ae-d"), (73, "original")):
        spec = replace(made_up(model, 100, shown=20), seed=seed)
        shown.append(carried_out(run_lexicon, spec, task).points["row"].tolist())
    first, same, other = shown
    assert first == same and set(first) != set(other)


# ---------------------------------------------------------------- t-SNE


def on_a_plane(model, alpha=0, **settings):
    usual = {"perplexity": 15, "learning_rate": 200, "iterations": 300}
    return made_up(model, alpha, "tsne", **usual | settings)


def test_the_map_keeps_classes_apart_and_is_scored_on_the_plane(clouds):
    outcome = carried_out(run_tsne, on_a_plane("original"), clouds)
    assert outcome.metrics.keys() == {"kl", "neighbours"}
    assert outcome.metrics["kl"] > 0
    assert outcome.curve is None
    assert outcome.status == "ok"
    points = outcome.points
    assert list(points.columns) == ["row", "label", "x", "y"]
    assert points["row"].tolist() == clouds.test_rows.tolist()
    assert points["label"].tolist() == clouds.test_y.tolist()
    assert outcome.metrics["neighbours"] > 0.98
    overlapping = made_up_task(spread=1.2)
    found = carried_out(run_tsne, on_a_plane("original"), overlapping)
    share, before = (
        nearest_share(np.asarray(x, dtype=float), overlapping.test_y)
        for x in (found.points[["x", "y"]], overlapping.test_x)
    )
    assert found.metrics["neighbours"] == pytest.approx(share, abs=1e-3)
    assert abs(share - before) > 0.02
    mixed = replace(clouds, test_y=np.random.default_rng(0).permutation(clouds.test_y))
    again = carried_out(run_tsne, on_a_plane("original"), mixed)
    assert again.points[["x", "y"]].equals(points[["x", "y"]])
    assert again.metrics["neighbours"] < 0.4, "labels have no say in the map"


def test_a_collapsed_code_has_no_map_for_the_map_of_one_point_breaks_python_down(clouds):
    one_point = replace(clouds, test_x=np.full_like(clouds.test_x, 0.25))
    outcome = carried_out(run_tsne, on_a_plane("original"), one_point)
    assert outcome.status == "collapsed" and "have distinct codes" in outcome.reason
    assert outcome.metrics == {} and outcome.points is None


def test_settings_of_the_map_are_those_of_the_spec(clouds, monkeypatch):
    import sklearn.manifold

    seen, mapping = {}, sklearn.manifold.TSNE

    def noting(**settings):
        seen.update(settings)
        return mapping(**settings)

    monkeypatch.setattr(sklearn.manifold, "TSNE", noting)
    spec = on_a_plane("original", perplexity=7, learning_rate=123, iterations=251)
    carried_out(run_tsne, spec, clouds)
    expected = {"perplexity": 7, "learning_rate": 123, "max_iter": 251, "init": "pca"}
    assert expected.items() <= seen.items()
