"""Codes: what autoencoders see, and when a code has collapsed."""

import itertools

import numpy as np
import pytest
import torch
from by_hand import carried_out, made_up, made_up_task

from snnl_book.experiments import codes, text_clustering
from snnl_book.experiments.codes import collapse, scale_to_unit, standardize
from snnl_lib.training import squared_error

# ---------------------------------------------------------------- standardising


def test_features_are_standardised_by_the_training_mean_and_deviation():
    random = np.random.default_rng(0)
    train = (random.normal(size=(500, 6)) * [1, 5, 0.1, 1, 100, 1] + [0, 3, -7, 50, 0, 1]).astype(
        np.float32
    )
    test = (random.normal(size=(50, 6)) + 2).astype(np.float32)
    scaled_train, scaled_test = standardize(train, test)
    assert scaled_train.dtype == scaled_test.dtype == np.float32
    np.testing.assert_allclose(scaled_train.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(scaled_train.std(axis=0), 1, atol=1e-4)
    expected = (test - train.astype(float).mean(axis=0)) / train.astype(float).std(axis=0)
    np.testing.assert_allclose(scaled_test, expected, rtol=1e-3, atol=1e-3)


def test_a_feature_that_never_changes_stays_small_in_the_test_documents_too():
    # Rounding leaves its deviation a little above 0 for most values and numbers of documents:
    # dividing by that would blow up the test value.
    for value, count in itertools.product((0.0, 0.1, -1 / 3, 123.4), (7, 1000, 20_000)):
        train = np.full((count, 1), value, np.float32)
        scaled_train, scaled_test = standardize(train, train[:2] + np.float32(0.25))
        np.testing.assert_allclose(scaled_train, 0, atol=1e-3)
        np.testing.assert_allclose(scaled_test, 0.25, atol=1e-3)


# ---------------------------------------------------------------- inputs and losses

TRAIN = np.array([[0, 5, -1], [10, 5, 1], [5, 5, 0]], dtype=np.float32)
TEST = np.array([[2.5, 5, 0.5], [20, 7, -3]], dtype=np.float32)


def test_features_are_scaled_by_the_training_minimum_and_maximum_of_each():
    for scaling in ((), ("feature",)):
        scaled_train, scaled_test = scale_to_unit(TRAIN, TEST, *scaling)
        np.testing.assert_array_equal(scaled_train, [[0, 0, 0], [1, 0, 1], [0.5, 0, 0.5]])
        # Beyond the training range: clipped.
        np.testing.assert_array_equal(scaled_test, [[0.25, 0, 0.75], [1, 1, 0]])
        assert scaled_train.dtype == scaled_test.dtype == np.float32


def test_one_scale_for_all_features_keeps_their_proportions():
    scaled_train, scaled_test = scale_to_unit(TRAIN, TEST, "global")  # from -1 to 10
    expected = [[3.5 / 11, 6 / 11, 1.5 / 11], [1, 8 / 11, 0]]
    np.testing.assert_allclose(scaled_train, (TRAIN + 1) / 11, rtol=1e-6)
    np.testing.assert_allclose(scaled_test, expected, rtol=1e-6)
    assert scaled_train.dtype == scaled_test.dtype == np.float32


def test_not_scaled_means_as_they_are():
    for found, same in zip(scale_to_unit(TRAIN, TEST, "none"), (TRAIN, TEST), strict=True):
        assert np.array_equal(found, same) and found.dtype == np.float32


def test_documents_that_are_all_the_same_scale_to_finite_numbers():
    same = np.full((3, 2), 7, np.float32)
    for scaling in ("feature", "global"):
        assert all((values == 0).all() for values in scale_to_unit(same, same[:1], scaling))


def test_the_squared_error_is_the_mean_over_documents_and_features():
    random = np.random.default_rng(0)
    output, features = random.normal(size=(4, 5)), random.random((4, 5))
    found = squared_error(torch.tensor(output), torch.tensor(features), torch.zeros(4))
    assert found.item() == pytest.approx(((output - features) ** 2).mean(), rel=1e-12)


# ---------------------------------------------------------------- codes that have collapsed


def test_codes_have_collapsed_below_one_distinct_code_in_a_hundred():
    for documents, distinct, share in (
        (200, 2, ""),
        (200, 1, "0.50%"),
        (201, 2, "1.00%"),
        (300, 3, ""),
        (300, 2, "0.67%"),
        (7, 1, ""),
    ):
        codes = np.tile([[0.25, 0.5]], (documents, 1))
        codes[:, 1] += np.arange(documents) % distinct
        status, reason = collapse(codes)
        assert status == ("collapsed" if share else "ok")
        assert share in reason and bool(reason) == bool(share)


def test_codes_are_distinct_when_they_differ_in_the_third_decimal():
    steps = np.linspace(-0.5, 0.5, 200)
    # At 0 some of the values round to 0 and others to -0: they are the same.
    for centre, (width, expected) in itertools.product(
        (0.5, 0.0, -3.0), ((0.0009, True), (0.003, False))
    ):
        codes = np.full((200, 3), centre, dtype=np.float32)
        codes[:, 1] += width * steps
        assert (collapse(codes)[0] == "collapsed") == expected


def test_a_run_whose_codes_collapse_says_so_with_its_scores(monkeypatch):
    clouds = made_up_task()
    spec = made_up("ae", epochs=1)
    monkeypatch.setattr(codes, "COLLAPSED_SHARE", 1.01)
    outcome = carried_out(text_clustering.run_codes, spec, clouds)
    assert outcome.status == "collapsed"
    assert "have distinct codes" in outcome.reason
    assert np.isfinite(outcome.metrics["acc"])
    monkeypatch.setattr(codes, "COLLAPSED_SHARE", 0)
    assert carried_out(text_clustering.run_codes, spec, clouds)[2:4] == ("ok", "")
