"""Differences as sentences say them."""

import numpy as np
import pytest

from snnl_book.report import SIZES, apart, contrasts, distance, spread


@pytest.mark.parametrize(
    ("low", "high", "metric", "words"),
    [
        (0.026, 0.052, "acc", "0.026 to 0.052 above"),
        (-0.0004, 0.02, "acc", "0 to 0.020 above"),
        (-0.0004, 0.0003, "acc", "0 to 0"),
        (-2000.0, -1000.0, "chs", "1,000 to 2,000 below"),
        (-1.25, 0.5, "dbi", "1.25 below to 0.50 above"),
    ],
)
def test_the_ends_of_an_interval_are_above_or_below(low, high, metric, words):
    assert spread(low, high, metric) == words


def test_a_difference_names_the_rival_and_leaves_out_what_is_not_known():
    row = {"mean": 0.0, "low": np.nan, "high": np.nan}
    assert apart(row, "LDA") == "level with LDA"
    assert apart(row | {"mean": -0.1}, "LDA") == "0.100 below LDA"
    no_runs = "at an unknown distance from LDA (no recorded runs of both)"
    assert apart(row | {"mean": np.nan}, "LDA") == no_runs
    assert distance(-1234.0, "chs") == "1,234 below"


@pytest.mark.parametrize("metric", ["acc", "chs"])
@pytest.mark.parametrize("missing", [np.nan, np.inf, -np.inf])
def test_a_missing_value_is_at_an_unknown_distance(missing, metric):
    assert distance(missing, metric) == "at an unknown distance from"


def test_every_size_of_rule_3_has_words():
    exact = contrasts.estimate([0.011, 0.012, 0.013])
    sizes = {contrasts.size(exact, reported, 5) for reported in (0, 0.012, 0.05, -0.05, 0.001)}
    wide = contrasts.estimate([-0.1, 0.01, 0.12])
    sizes.add(contrasts.size(wide, 0.02, 5))
    assert sizes == {*SIZES}
