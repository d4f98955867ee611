"""Rule 3 for one comparison, sentence by sentence, on numbers worked out by hand."""

from itertools import combinations
from math import nan

import numpy as np
import pytest

from snnl_book.report.contrasts import (
    Estimate,
    base,
    best_of,
    best_weights,
    combine,
    direction,
    estimate,
    more_than_half,
    rank,
    size,
)


def spread(low, high, units=5):
    """An estimate with this interval."""
    return Estimate((low + high) / 2, low, high, units, nan)


def verdicts(test, *intervals, **facts):
    return [direction(spread(*bounds), test, **facts) for bounds in intervals]


def test_the_interval_is_a_95_percent_t_interval_over_units():
    found = estimate([1, 2, 3, 4, 5])  # standard deviation sqrt(2.5), t(0.975, 4) = 2.776445
    half = 2.776445 * np.sqrt(2.5 / 5)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), abs=1e-5)
    assert found.mean == 3 and found.units == 5 and not found.flat


def test_its_p_value_says_what_the_interval_says():
    edge = np.array([-1, 0, 1]) + 4.302653 / np.sqrt(3)  # t(0.975, 2); the lower bound is 0
    found = estimate(edge)
    assert found.low == pytest.approx(0, abs=1e-6) and found.p == pytest.approx(0.05, abs=1e-6)
    units = estimate([0.1, 0.11, 0.12])
    documents = np.sqrt(0.11**2 - units.half**2)  # the whole half-width is the mean
    assert estimate([0.1, 0.11, 0.12], documents).p == pytest.approx(0.05, abs=1e-6)


def test_a_beats_b_holds_wholly_above_0_fails_wholly_below_and_is_open_otherwise():
    found = verdicts("> 0", (0.001, 0.1), (-0.1, -0.001), (-0.001, 0.1), (0, 0.1))
    assert found == ["holds", "fails", "open", "open"]


def test_a_is_as_b_within_a_point_and_a_half():
    bounds = (-0.014, 0.014), (0.016, 0.02), (-0.02, -0.016), (-0.016, 0.01), (0.01, 0.02)
    found = verdicts("within", *bounds)
    assert found == ["holds", "fails", "fails", "open", "open"]


def test_a_is_as_b_within_10_percent_of_scores_that_are_not_fractions():
    bounds, facts = ((-0.09, 0.09), (0.11, 0.2), (0.05, 0.11)), {"fraction": False, "scale": 1}
    assert verdicts("within", *bounds, **facts) == ["holds", "fails", "open"]


@pytest.mark.parametrize("words", ["marginal", "slim"])
def test_marginal_and_slim_are_wholly_above_0_and_wholly_within_3_points(words):
    bounds = (0.001, 0.029), (0.031, 0.05), (-0.05, -0.001), (-0.001, 0.02), (0.02, 0.031)
    found = verdicts("> 0", *bounds, words=words)
    assert found == ["holds", "fails", "fails", "open", "open"]


@pytest.mark.parametrize("words", ["sharply", "by a wide margin"])
def test_sharply_has_a_lower_bound_of_5_points_or_20_percent_of_the_baseline(words):
    bounds = (0.051, 0.1), (0.01, 0.049), (0.03, 0.06), (0.021, 0.03)
    high = verdicts("> 0", *bounds, words=words, scale=0.6)
    assert high == ["holds", "fails", "open", "fails"]
    low = verdicts("> 0", *bounds, words=words, scale=0.1)
    assert low == ["holds", "open", "holds", "holds"]
    assert verdicts("> 0", (0.06, 0.1), words=words, scale=1, fraction=False) == ["fails"]


def test_a_value_matches_within_a_point_and_a_half_with_a_half_width_of_3_points():
    bounds = (0.885, 0.9), (0.866, 0.924), (0.84, 0.92), (0.78, 0.85), (0.8, 0.95)
    found = verdicts("= v", *bounds, value=0.89)
    assert found == ["holds", "holds", "open", "fails", "open"]


def test_a_value_differs_outside_of_the_interval_and_more_than_a_point_and_a_half_away():
    assert verdicts("= v", (0.90, 0.908), value=0.89) == ["holds"]  # outside, and near
    assert verdicts("= v", (0.89, 0.93), value=0.88) == ["fails"]
    assert verdicts("= v", (0.87, 0.93), value=0.88) == ["open"]  # 2 points away, and inside


def test_a_value_that_is_no_fraction_has_10_percent_and_a_half_width_of_20():
    facts = {"value": 10, "scale": 10, "fraction": False}
    bounds = (9, 12.8), (8.95, 12.9), (11.1, 12), (7.9, 12.1)
    found = verdicts("= v", *bounds, **facts)
    assert found == ["holds", "holds", "fails", "open"]


def test_at_least_a_value_and_on_par_with_it():
    bounds = (0.9, 0.95), (0.8, 0.89), (0.89, 0.91)
    found = verdicts("at least v", *bounds, value=0.9)
    assert found == ["holds", "fails", "open"]
    found = verdicts("at least v", *bounds, value=0.9, words="on par")
    assert found == ["holds", "open", "holds"]


def test_sil_and_ari_count_as_fractions_of_every_stage_part_and_epoch():
    names = "sil_3", "head_acc", "train_acc", "neighbours@20", "f1_micro", "nmi_geometric_0"
    wanted = "sil", "acc", "acc", "neighbours", "f1_micro", "nmi_geometric"
    assert tuple(map(base, names)) == wanted


@pytest.mark.parametrize("test", ["> 0", "within", "= v", "at least v"])
def test_fewer_than_three_units_are_open_and_for_two_the_numbers_are_shown(test):
    two, one, none = estimate([0.1, 0.1001]), estimate([0.1]), estimate([])
    assert {direction(found, test, value=0.1) for found in (two, one, none)} == {"open"}
    assert two.mean == pytest.approx(0.10005) and two.low < two.mean < two.high
    assert one.mean == 0.1 and np.isnan(one.low) and np.isnan(none.mean)


def test_a_spread_near_zero_is_no_evidence():
    found = estimate([0.1, 0.1, 0.1 + 1e-8])
    assert found.flat and direction(found, "> 0") == "open"
    assert direction(estimate([0.1, 0.1, 0.1001]), "> 0") == "holds"
    assert estimate([5000.0, 5000.0, 5000.001]).flat  # beside its size


def test_documents_widen_an_interval():
    found = estimate([0.02, 0.02, 0.02], documents=0.03)
    assert (found.low, found.high) == pytest.approx((-0.01, 0.05)) and not found.flat
    seeds = estimate([0.0, 0.1, 0.2])
    assert estimate([0.0, 0.1, 0.2], 0.2).half == pytest.approx(np.hypot(seeds.half, 0.2))


def test_the_size_counts_the_papers_own_noise():
    found = estimate([0.01, 0.02, 0.03, 0.04])  # half-width 0.0205, and the paper's 0.041 / sqrt(n)
    own = found.half
    assert size(found, 0.025 + 1.4 * own, runs=4) != "smaller"
    assert size(found, 0.025 + 1.5 * own, runs=4) == "smaller"
    assert size(found, 0.025 + 1.4 * own, runs=10**6) == "smaller"
    assert size(found, 0.001, runs=10**6) == "larger"
    assert size(found, 0.025, runs=4) == "not resolved"  # too wide to tell it from nothing
    narrow = estimate([0.024, 0.025, 0.026, 0.025])
    assert size(narrow, 0.025, runs=4) == "as reported"
    assert size(narrow, -0.025, runs=4) == "opposite"
    down = estimate([-0.024, -0.025, -0.026, -0.025])  # the sign is the paper's
    assert size(down, -0.025, runs=4) == "as reported" and size(down, 0.025, runs=4) == "opposite"
    assert {size(each, 0.1, 5) for each in (estimate([0.1, 0.1]), estimate([0.1] * 3))} == {""}
    assert size(found, 0.0, 5) == ""


def test_best_of_n_is_the_mean_best_over_all_n_subsets_of_our_seeds():
    values = [0.3, 0.9, 0.5, 0.2, 0.7, 0.65]
    wanted = np.mean([max(subset) for subset in combinations(values, 4)])
    assert best_of(values, 4).mean() == pytest.approx(wanted) and len(best_of(values, 4)) == 6


def test_the_weights_of_a_best_give_that_best():
    values = np.array([0.3, 0.9, 0.5, 0.2, 0.7, 0.65])
    assert best_weights(values, 4) @ values == pytest.approx(best_of(values, 4).mean())
    moved = values + np.array([0, 1e-6, 0, 0, 0, 0])
    slope = (best_of(moved, 4).mean() - best_of(values, 4).mean()) / 1e-6
    assert best_weights(values, 4)[1] == pytest.approx(slope, rel=1e-6)


def test_best_of_n_with_exactly_n_seeds_is_open_and_shown():
    assert best_of([0.1, 0.3, 0.2], 3).tolist() == [0.3]
    assert direction(estimate(best_of([0.1, 0.3, 0.2], 3)), "= v", value=0.3) == "open"
    assert not len(best_of([0.1, 0.3], 3))


def test_a_rank_is_decided_by_the_comparisons_with_each_rival():
    won, lost, open_ = "holds", "fails", "open"
    assert rank([won, won, won]) == won and rank([won, open_]) == open_
    assert rank([won, lost, open_]) == lost
    assert rank([lost, won, won], 2) == won and rank([won, won], 2) == lost
    assert rank([lost, open_], 2) == open_ and rank([lost, lost], 2) == lost


def test_more_than_half_of_the_named_cells_recorded_or_not():
    won, lost, open_ = "holds", "fails", "not tested"
    assert more_than_half([won, won, open_]) == won
    assert more_than_half([won, open_, lost]) == "open"
    assert more_than_half([won, won, open_, lost]) == "open"  # half is not more than half
    assert more_than_half([won, won, lost, lost]) == lost


@pytest.mark.parametrize(
    ("directions", "verdict"),
    [
        (["holds", "holds"], "holds"),
        (["fails", "fails"], "fails"),
        (["holds", "fails", "open", "unfair"], "mixed"),
        (["holds", "open", "unfair"], "holds in part (1 of 3)"),
        (["holds", "holds", "not tested"], "holds in part (2 of 3)"),
        (["fails", "open", "not tested"], "fails in part (1 of 3)"),
        (["open", "not tested", "unfair"], "open"),
        (["not tested", "unfair"], "open"),
        (["not tested", "not tested"], "not tested"),
    ],
)
def test_the_seven_verdicts(directions, verdict):
    assert combine(directions) == verdict
