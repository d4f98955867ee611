"""Claims by rule 3: declarations that are refused, and made-up records for each sentence of it."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import chain

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from snnl_book.__main__ import main
from snnl_book.experiments.cells import MORE_SEEDS, NEW_SEEDS, PAPER_SEEDS
from snnl_book.paper import Claim, ClaimError, Contrast, Reading, registered_claims
from snnl_book.report import claims, documents, judged_claims
from snnl_book.report.rows import Book, named_cells
from snnl_book.results import Record, write_record

TEXTS = {"experiment": "clustering", "dataset": "ag_news", "embedding": "spacy"}
AED, AE, PCA = (TEXTS | {"model": model} for model in ("ae-d", "ae", "pca"))
CORPORA = ("stackoverflow", "biomedical", "searchsnippets", "googlenews")
SHORT = {"experiment": "clusterbert", "clusterer": "kmeans", "n_train": 2000}
TUNED = SHORT | {"embedding": "minilm-cls", "model": "clusterbert"}
START = SHORT | {"embedding": "minilm-cls", "model": "plain"}
UP = (0.1, 0.11, 0.12, 0.13, 0.14)


def made(row, values, metric="nmi", dataset=None, seeds=MORE_SEEDS, broken=None, **changes):
    """Records of a row as ``select`` returns them: one run a value, for the seeds in turn.

    ``broken``: place -> status.
    """
    spec = named_cells(row, dataset)[0]
    *_, settings = spec.identity
    facts = {"experiment": spec.experiment, "profile": "full", "dataset": spec.dataset}
    facts |= {"embedding": spec.embedding, "model": spec.model, "alpha": float(spec.alpha)}
    facts |= {"temperature": str(spec.temperature), "settings": settings, "metric": metric}
    facts |= {"n_train": spec.n_train, "n_test": 10**9, "fingerprint": "ab-cd", "stale": False}
    rows = pd.DataFrame(list(zip(seeds, values, strict=False)), columns=["seed", "value"])
    keys = [f"{spec.dataset}-{spec.model}-s{seed}" for seed in rows["seed"]]
    states = [(broken or {}).get(place, "ok") for place in rows.index]
    return rows.assign(key=keys, status=states, **facts | changes)


def contrast(*cells, test="> 0", metric="nmi", **facts):
    return Contrast("a against b", test, metric, tuple(cells), **facts)


def claim(*contrasts, name="a-claim", **facts):
    words = dict.fromkeys(["chapter", "claim", "where", "reported", "quote", "changes"], "words")
    return Claim(name=name, **words, paper="text", contrasts=contrasts, **facts)


def judged(records, *contrasts, **facts):
    """The row of one claim that has these contrasts."""
    return claims.judge(pd.concat(records), claims=[claim(*contrasts, **facts)]).iloc[0]


pytestmark = pytest.mark.usefixtures("without_answers")


BEATS = contrast((1, AED), (-1, AE))
BASE = made(AE, [0.0] * 5)


# ---------------------------------------------------------------- one contrast, from records


def test_a_and_b_are_paired_by_seed():
    # The levels move by 0.5 from seed to seed, and A is 0.1 better on each.
    level = np.array([0, 0.1, 0.2, 0.3, 0.5])
    found = judged([made(AED, level + UP), made(AE, level)], BEATS)
    assert found["kind"] == "holds" and found["contrasts"][0]["mean"] == pytest.approx(0.12)
    shuffled = made(AE, level[::-1], seeds=PAPER_SEEDS[::-1])
    assert judged([made(AED, level + UP), shuffled], BEATS)["ours"] == found["ours"]
    mispaired = made(AE, level, seeds=PAPER_SEEDS[::-1])
    assert judged([made(AED, level + UP), mispaired], BEATS)["kind"] == "open"


def test_all_recorded_seeds_count_that_every_row_has():
    more = made(AED, [0.1, 0.11, 0.12, 0.13, 0.14, -9, -9])  # the rival has five
    assert judged([more, BASE], BEATS)["contrasts"][0]["units"] == 5
    both = [more, made(AE, [0.0] * 7)]
    assert judged(both, BEATS)["contrasts"][0]["units"] == 7


def test_deeper_gains_more_is_a_contrast_of_contrasts_by_weights():
    cells = [(1, AED), (-1, AE), (-1, PCA)]
    rows = [made(AED, [0.9, 0.9, 0.9]), made(AE, [0.3, 0.31, 0.3]), made(PCA, [0.4, 0.4, 0.41])]
    found = judged(rows, contrast(*cells))["contrasts"][0]
    assert found["mean"] == pytest.approx(0.9 - 0.91 / 3 - 1.21 / 3)
    halved = judged(rows, contrast((1, AED), (-0.5, AE), (-0.5, PCA)))["contrasts"][0]
    assert halved["mean"] == pytest.approx(0.9 - 1.06 / 3)


def test_two_points_lower_is_a_value_of_a_difference():
    rows = [made(AED, [0.5, 0.51, 0.5]), made(AE, [0.48, 0.49, 0.481])]
    two = contrast((1, AED), (-1, AE), test="= v", value=0.02)
    assert judged(rows, two)["kind"] == "holds"
    assert judged(rows, replace(two, value=0.2))["kind"] == "fails"


def test_a_value_of_a_score_where_lower_is_better_is_shown_as_it_is():
    rows = [made(AED, [0.4, 0.41, 0.42], "dbi")]
    level = contrast((1, AED), metric="dbi", test="= v", value=0.41)
    found = judged(rows, level)
    assert found["kind"] == "holds" and found["ours"] == "0.41 (dbi)"
    assert judged(rows, replace(level, test="at least v", value=0.6))["kind"] == "holds"


def test_against_a_quoted_number_is_a_one_sample_interval():
    quoted = contrast((1, AED), value=0.5)
    assert judged([made(AED, [0.6, 0.61, 0.62])], quoted)["kind"] == "holds"
    found = judged([made(AED, [0.4, 0.41, 0.42])], quoted)
    assert found["kind"] == "fails" and found["ours"] == "-0.090 (nmi)"


def test_best_of_n_with_exactly_n_seeds_is_undecided():
    best = contrast((1, AED), test="= v", value=0.62, best=4)
    values = [0.61, 0.62, 0.6, 0.624, 0.615]
    assert judged([made(AED, values)], best)["kind"] == "holds"
    exactly = judged([made(AED, values[:4])], best)
    assert exactly["kind"] == "open" and exactly["ours"] == "0.624 (nmi)"
    lower = contrast((1, AED), test="at least v", metric="dbi", value=0.7, best=2)
    found = judged([made(AED, [0.6, 0.61, 0.62, 0.9], "dbi")], lower)["contrasts"][0]
    # of the six pairs the lower: 0.6 three times, 0.61 twice, 0.62
    assert found["mean"] == pytest.approx(-(3 * 0.6 + 2 * 0.61 + 0.62) / 6)


def test_an_encoder_is_a_unit_with_the_mean_over_its_seeds():
    by_encoder = contrast((1, AED), (-1, AE), unit="encoder")
    one = [made(AED, UP, fingerprint="ab-random0"), made(AE, [0.0] * 5, fingerprint="ab-random0")]
    found = judged(one, by_encoder)
    assert found["kind"] == "open" and found["units"] == "1 encoder"
    drawn = [f"ab-random{number}" for number in (0, 0, 1, 1, 2)]
    several = [made(AED, UP, fingerprint=drawn), made(AE, [0.0] * 5, fingerprint=drawn)]
    found = judged(several, by_encoder)["contrasts"][0]
    assert found["units"] == 3 and found["mean"] == pytest.approx((0.105 + 0.125 + 0.14) / 3)


def over_corpora(gains, corpora=CORPORA):
    """Records of ClusterBERT and of its start: corpus -> gains of its seeds."""
    named = zip(corpora, gains, strict=False)
    pairs = [
        (made(TUNED, each, dataset=name), made(START, [0.0] * len(each), dataset=name))
        for name, each in named
    ]
    return [records for pair in pairs for records in pair]


BY_CORPUS = contrast((1, TUNED), (-1, START), unit="corpus", corpora=CORPORA)


def test_a_corpus_is_a_unit_with_the_mean_over_its_seeds():
    found = judged(over_corpora([[0.1, 0.3], [0.2], [0.2, 0.2, 0.2], [0.24, 0.26]]), BY_CORPUS)
    one = found["contrasts"][0]
    assert found["kind"] == "holds" and one["units"] == 4
    assert one["mean"] == pytest.approx((0.2 + 0.2 + 0.2 + 0.25) / 4)


def test_wins_for_each_corpus_are_printed():
    found = judged(over_corpora([[0.1], [-0.2], [0.2], [0.3]]), BY_CORPUS)
    assert found["contrasts"][0]["wins"] == 3 and "3 of 4 above 0" in claims.describe(found)
    assert found["contrasts"][0]["corpora"]["biomedical"] == pytest.approx(-0.2)
    none = judged(over_corpora([[0.1], [0.0], [0.2], [0.3]]), BY_CORPUS)
    assert none["contrasts"][0]["wins"] == 3  # no gain is no win


def test_a_spread_near_zero_is_no_evidence():
    equal = [made(AED, [0.3, 0.3, 0.3]), made(AE, [0.2, 0.2, 0.2])]
    found = judged(equal, BEATS)
    assert found["kind"] == "open" and found["contrasts"][0]["note"] == "the units hardly differ"


def test_a_score_of_a_curve_is_read_at_its_epoch(results_folder):
    cell = {"experiment": "annealing", "dataset": "gaussian"}
    rows = [cell | {"temperature": temperature} for temperature in ("annealed", "1.0")]
    for row in rows:
        (spec,) = named_cells(row)
        for place, seed in enumerate(MORE_SEEDS[:4]):
            gain = (row["temperature"] == "annealed") * (0.1 + 0.01 * place)
            curve = pd.DataFrame({"epoch": [0, 20, 50], "neighbours": [0.2, 0.5 + gain, 0.9]})
            facts = {"metrics": {"neighbours": 0.9}, "n_train": 300, "n_test": 0, "seconds": 1.0}
            facts |= {"device": "CPU", "curve": curve, "commit": "abc"}
            write_record(Record(replace(spec, seed=seed), "drawn", **facts))
    cells = ((1, rows[0]), (-1, rows[1]))
    declared = [claim(contrast(*cells, metric=f"neighbours@{epoch}")) for epoch in (20, 50)]
    table = claims.judge(claims=declared)
    assert table["kind"].tolist() == ["holds", "open"]
    assert table["contrasts"][0][0]["mean"] == pytest.approx(0.115)


def answered(monkeypatch, **changes):
    """Give each model's runs answers: the change of its score without each of four documents."""
    rows = np.arange(4)

    def of(experiment, key, metric, classes, profile):
        (model,) = [name for name in changes if f"-{name.replace('_', '-')}-s" in key]
        return rows, np.array(changes[model])

    monkeypatch.setattr(documents, "influences", of)


def test_the_interval_covers_new_documents_once_the_answers_are_known(monkeypatch):
    rows = [made(AED, UP), BASE]
    seeds = judged(rows, BEATS)
    assert seeds["provisional"] and seeds["verdict"] == "holds; provisional"
    answered(monkeypatch, ae_d=[0.1, -0.1, 0.1, -0.1], ae=[0.0] * 4)
    found = judged(rows, BEATS)
    one, before = found["contrasts"][0], seeds["contrasts"][0]
    # The same documents for every seed: the mean moves as each score does.
    documents_alone = 1.959964 * np.sqrt(3 / 4 * 4 * 0.1**2)
    half = np.hypot((before["high"] - before["low"]) / 2, documents_alone)
    assert (one["high"] - one["low"]) / 2 == pytest.approx(half, rel=1e-6)
    assert found["verdict"] == "open" and not found["provisional"]
    # What both rows get wrong together does not count.
    answered(monkeypatch, ae_d=[0.1, -0.1, 0.1, -0.1], ae=[0.1, -0.1, 0.1, -0.1])
    assert judged(rows, BEATS)["contrasts"][0]["low"] == pytest.approx(before["low"])


def test_units_that_do_not_differ_are_decided_by_the_documents(monkeypatch):
    equal = [made(AED, [0.3, 0.3, 0.3]), made(AE, [0.2, 0.2, 0.2])]
    answered(monkeypatch, ae_d=[0.001, -0.001, 0.001, -0.001], ae=[0.0] * 4)
    assert judged(equal, BEATS)["verdict"] == "holds"


def half_width(found):
    (one,) = found["contrasts"]
    return (one["high"] - one["low"]) / 2


def test_the_spread_between_corpora_includes_their_documents(monkeypatch):
    records = over_corpora([[0.1], [0.2], [0.2], [0.3]])
    without = judged(records, BY_CORPUS)
    assert not without["provisional"]
    answered(monkeypatch, clusterbert=[0.1, -0.1, 0.1, -0.1], plain=[0.0] * 4)
    assert half_width(judged(records, BY_CORPUS)) == pytest.approx(half_width(without))


def test_questions_that_all_corpora_rank_move_the_mean_together(monkeypatch):
    asked = {"experiment": "retrieval", "embedding": "minilm-cls", "task": "trecqa"}
    tuned = asked | {"model": "clusterbert", "reading": "with reconstruction, trecqa"}
    start = asked | {"model": "plain"}
    gains = zip(CORPORA, (0.1, 0.11, 0.12, 0.13), strict=True)
    pairs = [
        [made(row, [value], "map", name) for row, value in ((tuned, gain), (start, 0.0))]
        for name, gain in gains
    ]
    records = [each for pair in pairs for each in pair]
    by_corpus = contrast((1, tuned), (-1, start), unit="corpus", corpora=CORPORA, metric="map")
    without = judged(records, by_corpus)
    assert without["provisional"]
    answered(monkeypatch, clusterbert=[0.02, -0.02, 0.02, -0.02], plain=[0.0] * 4)
    found = judged(records, by_corpus)
    of_questions = 1.959964 * np.sqrt(3 / 4 * 4 * 0.02**2)  # not divided by the square root of 4
    expected = np.hypot(half_width(without), of_questions)
    assert half_width(found) == pytest.approx(expected) and not found["provisional"]


def test_a_score_that_counts_no_documents_is_not_provisional():
    rows = [made(AED, UP, "sil"), made(AE, [0.0] * 5, "sil")]
    assert "provisional" not in judged(rows, replace(BEATS, metric="sil"))["verdict"]


def test_corpora_without_runs_are_named():
    three = over_corpora([[0.1], [0.11], [0.12]])
    found = judged(three, BY_CORPUS)
    assert found["kind"] == "holds" and "; 3 of 4 corpora" in found["verdict"]


def test_the_size_is_compared_only_over_all_of_the_papers_corpora():
    printed = replace(BY_CORPUS, printed=0.115)
    four = over_corpora([[0.1], [0.11], [0.12], [0.13]])
    assert judged(four, printed)["size"] == "1 as reported"
    assert judged(four[:-2], printed)["size"] == ""  # two rows of the last corpus


def test_the_size_is_compared_where_the_paper_prints_one():
    rows = [made(AED, UP), BASE]
    sizes = [judged(rows, replace(BEATS, printed=v), runs=5)["size"] for v in (0.12, 0.5, -0.5)]
    assert sizes == ["1 as reported", "1 smaller", "1 opposite"]
    assert judged(rows, BEATS)["size"] == ""


def test_a_rival_far_below_its_published_score_is_not_fair():
    rows = [made(AED, UP), BASE]
    published = replace(BEATS, published=({}, {"ag_news": 0.031}))
    found = judged(rows, published)
    assert found["kind"] == "open" and "below its published score" in found["verdict"]
    assert judged(rows, replace(published, published=({}, {"ag_news": 0.03})))["kind"] == "holds"
    no_rival = judged([made(AED, UP)], published)  # a rival without runs is not tested, not weak
    assert no_rival["kind"] == "not tested"
    indices = [made(AED, UP, metric="chs"), made(AE, [0.0] * 5, metric="chs")]
    assert judged(indices, replace(published, metric="chs"))["kind"] == "holds"  # not in points


def test_internal_scores_of_different_codes_are_marked():
    rows = [made(AED, UP, metric="sil"), made(AE, [0.0] * 5, metric="sil")]
    verdict = judged(rows, contrast((1, AED), (-1, AE), metric="sil"))["verdict"]
    assert verdict == "holds; compares scores of different spaces"
    assert "spaces" not in judged([made(AED, UP), BASE], BEATS)["verdict"]


def test_a_reading_that_changes_the_verdict_is_named():
    rows = [made(AED, UP), BASE, made(PCA, [-value for value in UP])]
    other = Reading("other", "on PCA", ((AED, {"model": "pca"}), (AE, {})))
    none = Reading("none", "on LC(D)", ((AED, {"model": "lc-d"}), (AE, {})))
    found = judged(rows, BEATS, readings=(other, none))
    assert found["readings"] == {"on PCA": "fails"}  # the other one has no runs
    assert found["verdict"] == "holds; fails if judged on PCA; provisional"
    five = Reading("paper-seeds", "on the paper's own seeds alone", seeds="paper")
    more = [made(AED, [0.1, -0.1, 0.3, -0.1, 0.2, *[0.2] * 5]), made(AE, [0.0] * 10)]
    found = judged(more, BEATS, readings=(five,))
    assert found["verdict"] == "holds; open if judged on the paper's own seeds alone; provisional"


def test_collapsed_runs_are_left_out_in_a_reading():
    rows = [made(AED, [0.1, 0.11, 0.12, 0.13, 0.9], broken={4: "collapsed"}), BASE]
    found = judged(rows, BEATS)  # a wide interval with it, a clear one without
    assert found["kind"] == "open" and found["readings"] == {claims.COLLAPSED.says: "holds"}


def test_p_values_are_corrected_over_all_comparisons_above_0():
    weak = [made(AED, [0.1, 0.2, 0.25, 0.0, 0.2]), BASE]
    none = made(PCA, [0.1, -0.1, 0.12, -0.13, 0.01])
    other = claim(contrast((1, PCA), (-1, AE)), name="other")
    both = claims.judge(pd.concat([*weak, none]), claims=[claim(BEATS), other])
    p = [own[0]["p"] for own in both["contrasts"]]
    assert p == pytest.approx([0.0285, 1.0], abs=0.002)
    adjusted = [own[0]["adjusted p"] for own in both["contrasts"]]
    assert adjusted == [f"{2 * p[0]:.3f}", f"{p[1]:.3f}"]


# ---------------------------------------------------------------- what went wrong in runs


def test_all_runs_count_the_collapsed_ones_too():
    found = judged([made(AED, UP, broken={4: "collapsed"}), BASE], BEATS)
    assert found["kind"] == "holds" and found["contrasts"][0]["units"] == 5


@pytest.mark.parametrize("place", [0, 1])
def test_a_row_most_of_whose_runs_collapsed_is_no_fair_test_neither_winner_nor_rival(place):
    def with_collapsed(count):
        states = [None, None]
        states[place] = dict.fromkeys(range(count), "collapsed")
        rows = [made(AED, UP, broken=states[0]), made(AE, [0.0] * 5, broken=states[1])]
        return judged(rows, BEATS)

    found = with_collapsed(3)
    assert found["kind"] == "open" and found["seeds"] == "–"
    (unfair,) = found["contrasts"]  # it is shown with its runs, and decides nothing
    assert (unfair["direction"], unfair["size"], unfair["units"]) == ("unfair", "", 5)
    assert with_collapsed(2)["kind"] == "holds"


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_diverged_or_failed_winner_is_a_loss_never_a_dropped_pair(status):
    values = np.array([0.6, 0.61, 0.62, 0.63, np.nan])
    rows = [made(AED, values, broken={4: status}), made(AE, [0.5] * 5)]
    found = judged(rows, BEATS)
    assert found["kind"] == "open" and found["contrasts"][0]["units"] == 5
    assert found["contrasts"][0]["mean"] == pytest.approx((0.1 + 0.11 + 0.12 + 0.13 - 0.5) / 5)
    lost = dict.fromkeys(range(5), status)
    rows = [made(AED, [np.nan] * 5, broken=lost), made(AE, [0.5] * 5)]
    assert judged(rows, BEATS)["kind"] == "fails"


def test_where_lower_is_better_the_sign_is_turned_and_a_failed_winner_is_a_loss_too():
    rows = [made(AED, [1, 1.1, 1.2], "dbi"), made(AE, [2, 2, 2, 2], "dbi")]
    lower = contrast((1, AED), (-1, AE), metric="dbi")
    found = judged(rows, lower)
    assert found["kind"] == "holds" and found["contrasts"][0]["mean"] > 0
    rows[0] = made(AED, [1, 1.1, 1.2, np.nan], "dbi", broken={3: "failed"})
    assert judged(rows, lower)["kind"] == "open"


def test_a_failed_run_is_never_the_best_score_where_a_level_is_asked():
    rows = [made(AED, [1, 1.1, 1.2, np.nan], "dbi", broken={3: "failed"})]
    level = contrast((1, AED), metric="dbi", test="= v", value=1.0)
    assert judged(rows, level)["contrasts"][0]["mean"] == pytest.approx((1 + 1.1 + 1.2 + 2) / 4)


def test_a_failed_rival_is_no_win():
    rows = [made(AED, UP), made(AE, [0, 0, 0, 0, np.nan], broken={4: "failed"})]
    assert judged(rows, BEATS)["contrasts"][0]["units"] == 4
    rows = [made(AED, UP), made(AE, [np.nan] * 5, broken=dict.fromkeys(range(5), "failed"))]
    assert judged(rows, BEATS)["kind"] == "open"


# ---------------------------------------------------------------- ranks, halves, several contrasts


def test_a_rank_takes_every_rival_and_leaves_out_who_collapsed():
    best = contrast((1, AED), (-1, AE), (-1, PCA), test="rank")
    rows = [made(AED, UP), made(AE, [0.0] * 5), made(PCA, [0.05] * 5)]
    assert judged(rows, best)["kind"] == "holds"
    above = [made(AED, UP), made(AE, [0.0] * 5), made(PCA, [0.5] * 5)]
    assert judged(above, best)["kind"] == "fails"
    assert judged(above, replace(best, rank=2))["kind"] == "holds"
    gone = dict.fromkeys(range(5), "collapsed")
    rows = [made(AED, UP), made(AE, [0.0] * 5), made(PCA, [0.5] * 5, broken=gone)]
    assert judged(rows, best)["kind"] == "holds"


def test_a_rank_of_which_all_rivals_are_unfair_stays_open():
    states = dict.fromkeys(range(4), "collapsed")
    first = contrast((1, AED), (-1, AE), test="rank")
    found = judged([made(AED, UP), made(AE, [0.9] * 5, broken=states)], first)
    assert found["kind"] == "open" and "most runs of AE collapsed" in found["verdict"]


def test_a_rank_uses_the_published_score_of_each_rival():
    first = contrast((1, AED), (-1, AE), (-1, PCA), test="rank")
    first = replace(first, published=({}, {"ag_news": 0.9}, {}))
    rows = [made(AED, UP), made(AE, [0.5] * 5), made(PCA, [0.0] * 5)]
    assert judged(rows, first)["kind"] == "holds"  # AE, which is ahead, is too far below 0.9
    assert judged(rows, replace(first, published=({}, {}, {})))["kind"] == "fails"


def test_a_rival_that_is_not_recorded_leaves_a_rank_undecided():
    best = contrast((1, AED), (-1, AE), (-1, PCA), test="rank")
    assert judged([made(AED, UP), BASE], best)["kind"] == "open"
    assert judged([made(AED, UP), made(AE, [0.5] * 5)], best)["kind"] == "fails"


def test_a_rank_among_reported_numbers():
    first = contrast((1, AED), test="rank", reported=(0.05, 0.01))
    assert judged([made(AED, UP)], first)["kind"] == "holds"
    assert judged([made(AED, UP)], replace(first, reported=(0.05, 0.5)))["kind"] == "fails"


def test_more_than_half_counts_named_cells_that_are_not_recorded():
    pairs = [((1, row), (-1, AE)) for row in (AED, PCA, TEXTS | {"model": "lc-d"})]
    half = contrast(*(cell for pair in pairs for cell in pair), test="more than half")
    two = [made(AED, UP), made(PCA, UP), BASE]
    found = judged(two, half)
    assert found["kind"] == "holds" and found["contrasts"][0]["note"] == "above 0 in 2 of 3"
    assert judged([made(AED, UP), BASE], half)["kind"] == "open"


def test_several_contrasts_are_combined():
    other = contrast((1, PCA), (-1, AE))
    assert judged([made(AED, UP), BASE], BEATS, other)["kind"] == "holds in part (1 of 2)"
    rows = [made(AED, UP), BASE, made(PCA, [-value for value in UP])]
    found = judged(rows, BEATS, other)
    assert found["kind"] == "mixed" and found["ours"] == "1 holds, 1 fails"


def test_what_no_run_can_test_says_why():
    assert judged([BASE], not_attempted="no ClusterGAN")["verdict"] == "not tested; no ClusterGAN"
    assert judged([BASE], not_attempted="no ClusterGAN")["ours"] == "–"
    untested = contrast(not_attempted="no weights")
    assert judged([BASE], untested)["verdict"] == "not tested; no weights"
    assert judged([made(AED, UP), BASE], BEATS, untested)["kind"] == "holds in part (1 of 2)"
    waiting = replace(BEATS, not_attempted="its files could not be downloaded")
    assert judged([BASE], waiting)["verdict"] == "not tested; its files could not be downloaded"
    assert judged([made(AED, UP), BASE], waiting)["kind"] == "holds"  # once there are runs
    assert judged([BASE], BEATS)["verdict"] == "not tested; no run is recorded"


def test_a_comparison_that_would_not_hold_after_correction_is_counted():
    barely = made(AED, [0.004, 0.02, 0.03, 0.004, 0.028])
    found = judged([barely, BASE], BEATS)
    assert (found["kind"], found["remarks"]) == ("holds", "")
    many = [made(PCA, [-0.01, 0.02, 0.0, -0.02, 0.015], metric) for metric in ("ari", "acc")]
    many += [made(AE, [0.0] * 5, metric) for metric in ("ari", "acc")]
    others = [contrast((1, PCA), (-1, AE), metric=metric) for metric in ("ari", "acc")]
    found = judged([barely, BASE, *many], BEATS, *others)
    told = "1 of 3 comparisons would not hold after correction for multiple tests"
    assert found["kind"] == "holds in part (1 of 3)" and found["remarks"] == told
    assert told in found["verdict"]


# ---------------------------------------------------------------- grade, staleness, fragility


def test_a_claim_declared_after_seeing_is_judged_on_the_new_seeds_alone():
    seen = {"after_seeing": "the first five seeds showed it", "seeds": "new"}
    old = [made(AED, UP, seeds=PAPER_SEEDS), made(AE, [0.0] * 5, seeds=PAPER_SEEDS)]
    assert judged(old, BEATS, **seen)["kind"] == "not tested"
    new = [made(AED, [-value for value in UP], seeds=NEW_SEEDS)]
    new += [made(AE, [0.0] * 5, seeds=NEW_SEEDS)]
    found = judged(old + new, BEATS, **seen)
    assert found["kind"] == "fails" and found["units"] == "5 seeds"
    assert "; declared after seeing" in found["verdict"]
    # All seeds stand beside.
    assert found["readings"] == {claims.ALL_SEEDS.says: "open"}


def test_the_grade_is_the_lowest_of_its_rows_and_printed_with_the_verdict():
    found = judged([made(AED, UP), BASE], BEATS)
    assert found["grade"].startswith("close (spaCy's vectors of 2023 instead of GloVe; ")
    images = {"experiment": "images", "dataset": "mnist"}
    a = images | {"model": "ae-d", "alpha": 1, "reading": "alpha 1"}
    b = images | {"model": "original"}
    found = judged([made(a, UP), made(b, [0.0] * 5)], contrast((1, a), (-1, b)))
    assert found["grade"].endswith("our choice (10,000 training images, 17 % of the data)")
    found = judged([made(b, UP)], contrast((1, b), value=0.01))
    assert (found["grade"], found["kind"]) == ("as published", "holds")


def test_the_grade_is_that_of_the_rows_with_runs_or_of_all_where_there_are_none():
    original = {"experiment": "images", "dataset": "mnist", "model": "original"}
    level = contrast((1, original), value=0.01)
    found = judged([made(original, UP)], level, BEATS)
    assert found["grade"] == "as published" and found["corpora"] == "mnist"
    both = judged([made(original, UP), made(AED, UP), BASE], level, BEATS)
    assert both["grade"].startswith("close") and both["corpora"] == "ag_news, mnist"
    none = judged([BASE], BEATS)
    assert none["grade"] == "–"
    assert (none["corpora"], none["records"], none["seeds"]) == ("", "", "–")


def test_a_stale_run_is_not_compared_with_one_that_is_not():
    found = judged([made(AED, UP, stale=True), BASE], BEATS)
    assert found["verdict"].startswith("not tested; one run of each pair was made by an earlier")
    assert found["records"] == ""
    old = made(AED, UP)
    old["stale"] = old["seed"] == old["seed"].iloc[0]  # one pair of them
    assert judged([made(AED, UP), BASE], BEATS)["seeds"] == "5"
    found = judged([old, BASE], BEATS)
    assert (found["kind"], found["seeds"]) == ("holds", "4")
    assert "stale" not in found["verdict"]


def test_stale_records_are_used_and_named():
    found = judged([made(AED, UP, stale=True), BASE.assign(stale=True)], BEATS)
    assert found["kind"] == "holds" and "; from stale records" in found["verdict"]


# ---------------------------------------------------------------- what tables show


def test_means_of_one_metric_are_shown_by_their_ends_and_others_by_their_verdicts_alone():
    rows = pd.concat([made(AED, UP), BASE, made(PCA, [-value for value in UP])])
    rows = pd.concat([rows, made(AED, UP, "ari"), made(AE, [0.0] * 5, "ari")])
    down, ari = contrast((1, PCA), (-1, AE)), replace(BEATS, metric="ari")
    unrecorded = contrast((1, TEXTS | {"model": "lc-d"}), (-1, AE))
    is_value = contrast((1, AED), test="= v", value=0.12)
    told = {
        "+0.120 (nmi), +0.100 to +0.140": [BEATS],
        "from -0.120 to +0.120 (nmi): 1 holds, 1 fails": [BEATS, down],
        "+0.120 (nmi): 1 holds, 1 not tested": [BEATS, unrecorded],
        "0.120 and +0.120 (nmi): 2 hold": [is_value, BEATS],  # a score and a difference
        "2 hold": [BEATS, ari],
        "not recorded": [unrecorded],
        "2 not tested": [unrecorded, unrecorded],
    }
    declared = [claim(*each, name=f"claim-{i}") for i, each in enumerate(told.values())]
    table = claims.verdicts(claims.judge(rows, claims=declared))
    assert table["ours"].tolist() == [*told]
    one = judged([made(AED, [0.1]), made(AE, [0.0])], BEATS)  # no interval of one seed
    assert (one["ours"], one["interval"], one["units"]) == ("+0.100 (nmi)", "–", "1 seed")
    assert claims.verdicts(one.to_frame().T)["ours"].tolist() == ["+0.100 (nmi)"]
    two = judged([made(AED, [0.1, 0.2]), made(AE, [0.0] * 2)], BEATS)
    assert (two["interval"], two["units"]) == ("-0.485 to +0.785", "2 seeds")
    few = judged([made(AED, UP)], contrast((1, AED), test="= v", value=0.1, best=9))
    assert few["ours"] == "too few runs"


def test_a_row_of_a_contrast_has_its_test_numbers_units_verdict_and_runs():
    rows = [made(AED, UP), BASE, made(PCA, [0.5, 0.6, 0.7], "chs")]
    sharply = replace(BEATS, words="sharply", says="by a wide margin")
    level = contrast((1, PCA), metric="chs", test="at least v", value=1000)
    table = claims.tested(claims.judge(pd.concat(rows), claims=[claim(sharply, level)]))
    first, second = table.drop(columns="records").to_dict("records")
    same = {"claim": "words", "size": ""}
    told = {"comparison": "by a wide margin", "test": "> 0 sharply", "ours": "+0.120 (nmi)"}
    told |= {"95 % interval": "+0.100 to +0.140", "the paper": "–", "over": "5 seeds"}
    assert first == same | told | {"direction": "holds", "adjusted p": "0.000"}
    # No fraction: two digits.
    told = {"comparison": "a against b", "test": "at least v", "ours": "0.60 (chs)"}
    told |= {"95 % interval": "0.35 to 0.85", "the paper": "1,000.00", "over": "3 seeds"}
    assert second == same | told | {"direction": "fails", "adjusted p": "–"}
    records = table["records"][1].split()
    assert records == [f"clustering/ag_news-pca-s{seed}" for seed in PAPER_SEEDS[:3]]
    assert [*table.columns][-1] == "records" and len(table["records"][0].split()) == 10


def test_seeds_can_be_chosen():
    rows = pd.concat([made(AED, UP), BASE])
    found = claims.judge(rows, seeds=PAPER_SEEDS[:3], claims=[claim(BEATS)]).iloc[0]
    assert found["seeds"] == "3" and len(found["records"].split()) == 6
    found = claims.judge(rows, seeds=[*PAPER_SEEDS[2:], 7], claims=[claim(BEATS)]).iloc[0]
    assert found["seeds"] == "3"


# ---------------------------------------------------------------- rows of the plan


def test_a_row_names_one_cell_of_the_plan_whatever_is_recorded():
    assert {spec.label for spec in named_cells(AED)} == {"AE(D)"}
    (some,) = named_cells(TUNED, "biomedical")
    assert some.n_train == 2000 and some["clusterer"] == "kmeans"
    umap = named_cells(START | {"clusterer": "umap"}, "biomedical")
    assert [spec.get("reading") for spec in umap] == ["UMAP + k-means"]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (TEXTS | {"model": "ae-e"}, "no cell"),
        (TEXTS | {"model": "ae-d", "reading": "none such"}, "no cell"),
        (TEXTS, "4 cells (Orig., AE, LC(D), AE(D))"),
        (AED | {"experiment": "clusterin"}, "there is no experiment 'clusterin'"),
        (AED | {"dataset": "agnews"}, "there is no data set 'agnews'"),
    ],
)
def test_a_row_that_names_no_cell_or_several_is_refused(row, told):
    with pytest.raises(ClaimError) as refused:
        judged([BASE], contrast((1, row), (-1, AE)))
    assert told in str(refused.value) and "a-claim, 'a against b'" in str(refused.value)


def test_a_metric_that_the_experiment_does_not_have_is_refused():
    with pytest.raises(ClaimError, match="clustering has no metric 'accuracy'"):
        judged([BASE], contrast((1, AED), (-1, AE), metric="accuracy"))


def test_rows_that_are_compared_are_taken_on_the_same_number_of_documents():
    start = {name: value for name, value in START.items() if name != "n_train"}
    tuned = {name: value for name, value in TUNED.items() if name != "n_train"}
    pair = contrast((1, tuned), (-1, start), unit="corpus", corpora=("biomedical",))
    every = made(start | {"n_train": 50_000}, [9.0] * 5, dataset="biomedical")
    rows = [every, *over_corpora([[0.1, 0.2]], ["biomedical"])]
    found = judged(rows, pair)["contrasts"][0]
    assert found["mean"] == pytest.approx(0.15)
    found = judged([every, made(TUNED, [0.1], dataset="biomedical")], pair)["contrasts"][0]
    assert found["mean"] == pytest.approx(-8.9)  # there is no number that both have


def test_of_several_numbers_of_documents_the_most_recorded_and_then_the_largest():
    row = {name: value for name, value in START.items() if name != "n_train"}
    small, large = sorted(named_cells(row, "biomedical"), key=lambda spec: spec.n_train)
    both = [
        made(row | {"n_train": spec.n_train}, [0.1] * seeds, dataset="biomedical")
        for spec, seeds in ((small, 5), (large, 3))
    ]
    assert Book(pd.concat(both)).runs(row, "biomedical", "nmi")[0] == small
    both[0] = both[0].head(3)
    assert Book(pd.concat(both)).runs(row, "biomedical", "nmi")[0] == large


# ---------------------------------------------------------------- declarations

HEAD = """
[[claim]]
name = "a-claim"
chapter = "08_text_clustering"
claim = "a beats b"
where = "Sec. 1"
reported = "0.1"
quote = "a beats b"
changes = "more seeds"
"""
ONE = """
  [[claim.contrast]]
  says = "{metric}, {rival}: AE(D) against it"
  test = "> 0"
  metric = "nmi"
  each = { rival = ["pca", "ae"], metric = ["nmi", "dbi"], n = [2, 3] }
  common = { experiment = "clustering", dataset = "ag_news", embedding = "spacy" }
  cells = [[1, { model = "ae-d", n_train = "{n}" }], [-1, { model = "{rival}" }]]
"""
VALUE = """
  [[claim.contrast]]
  says = "the paper's {label}"
  test = "= v"
  metric = "acc"
  each = { label = ["AE(D)"] }
  value = { table = 4, label = "{label}", embedding = "spacy", statistic = "mean" }
  cells = [[1, { model = "ae-d", experiment = "clustering", dataset = "ag_news" }]]
"""


def read(tmp_path, text):
    (tmp_path / "text.toml").write_text(text)
    return registered_claims(tmp_path)


def test_each_makes_one_contrast_for_each_combination(tmp_path):
    (found,) = read(tmp_path, HEAD + ONE)
    assert found.paper == "text" and len(found.contrasts) == 8
    last = found.contrasts[-1]
    assert (last.says, last.metric) == ("dbi, ae: AE(D) against it", "dbi")
    assert [weight for weight, _ in last.cells] == [1, -1]
    assert last.cells[0][1] == TEXTS | {"model": "ae-d", "n_train": 3}  # a number stays one
    assert last.cells[1][1] == AE


def test_over_repeats_the_cells(tmp_path):
    over = ONE.replace("  each =", "  over = [{ n_train = 1 }, { n_train = 2 }]\n  each =")
    over = over.replace('test = "> 0"', 'test = "more than half"').replace(', n_train = "{n}"', "")
    over = over.replace(", n = [2, 3]", "")
    first = read(tmp_path, HEAD + over)[0].contrasts[0]
    assert [row["n_train"] for _, row in first.cells] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ('{ table = 4, label = "AE(D)", embedding = "spacy", statistic = "mean" }', 0.88),
        ('{ literature = "images", method = "VaDE", dataset = "mnist" }', 0.945),
        ('{ short_texts = true, label = "SIF+idec", dataset = "stackoverflow" }', 0.297),
        ('{ stated = "Sec. 4.4", number = 0.02 }', 0.02),
    ],
)
def test_a_value_is_looked_up_where_the_paper_has_it(tmp_path, value, wanted):
    text = HEAD + VALUE.replace(VALUE.split("value = ")[1].split("\n")[0], value)
    assert read(tmp_path, text)[0].contrasts[0].value == wanted


def test_the_numbers_that_others_report_are_rivals_of_a_rank(tmp_path):
    value = '{ literature = "short-texts", dataset = "biomedical", metric = "nmi" }'
    text = HEAD + VALUE.replace(VALUE.split("value = ")[1].split("\n")[0], value)
    text = text.replace('"= v"', '"rank"\n  rank = 2')
    first = read(tmp_path, text)[0].contrasts[0]
    assert first.rank == 2 and first.reported == (0.254, 0.301, 0.471, 0.415)


@pytest.mark.parametrize(
    ("metric", "printed", "wanted"),
    [
        ("acc", "{ table = 4 }", 0.1),  # 0.88 against 0.78
        ("dbi", "{ table = 3 }", 2.34),  # 0.38 against 2.72: lower is better
        ("sil", '{ table = 3, embedding = "infersent" }', 0.578),  # 0.67 against 0.092
        ("acc", '{ table = 4, statistic = "best" }', 0.1),  # 0.89 against 0.79
        ("acc", '[{ table = 4, label = "LC(D)", embedding = "spacy" }, { table = 4 }]', 0.1),
        ("acc", '[{ table = 4 }, { stated = "Sec. 4.2", number = 0.48 }]', 0.4),
    ],
)
def test_the_papers_value_of_a_comparison_is_added_up_as_ours_is(tmp_path, metric, printed, wanted):
    text = ONE.replace('["nmi", "dbi"], n = [2, 3]', f'["{metric}"]')
    text = text.replace(', n_train = "{n}"', "").replace('  metric = "nmi"\n', "")
    (first, _) = read(tmp_path, HEAD + text + f"  printed = {printed}\n")[0].contrasts
    assert first.printed == pytest.approx(wanted)


def test_the_papers_value_over_corpora_and_against_a_published_number(tmp_path):
    corpora = """
  [[claim.contrast]]
  says = "against RoBERTa"
  test = "> 0"
  unit = "corpus"
  corpora = ["stackoverflow", "biomedical"]
  metric = "nmi_geometric"
  printed = [{ short_texts = true }, { short_texts = true, label = "RoBerta+kmeans" }]
  published = { literature = "short-texts", method = "SCCL" }
  common = { experiment = "clusterbert", embedding = "minilm-cls", clusterer = "kmeans" }
  cells = [[1, { model = "clusterbert" }], [-1, { model = "plain" }]]

  [[claim.contrast]]
  says = "against the published DEC"
  test = "> 0"
  metric = "acc"
  printed = { literature = "images", method = "AE(D)" }
  value = { literature = "images", method = "DEC" }
  cells = [[1, { experiment = "images", dataset = "mnist", model = "ae-d" }]]

  [[claim.contrast]]
  says = "{dataset}: against our DEC"
  test = "> 0"
  metric = "acc"
  each = { dataset = ["mnist", "fashion_mnist"] }
  published = { literature = "images", method = "DEC" }
  common = { experiment = "images" }
  cells = [[1, { model = "ae-d" }], [-1, { model = "dec" }]]
"""
    start, dec, mnist, fashion = read(tmp_path, HEAD + corpora)[0].contrasts
    assert start.printed == pytest.approx((0.756 + 0.434 - 0.095 - 0.16) / 2)
    # The rival's own row has 0.095 and 0.16: of several published scores, the highest counts.
    assert start.published == ({}, {"stackoverflow": 0.745, "biomedical": 0.415})
    assert dec.printed == pytest.approx(0.962 - 0.843)
    assert mnist.published == ({}, {"mnist": 0.843})
    assert fashion.published == ({}, {})  # none was found


def test_the_papers_own_row_is_a_published_score_of_a_rival(tmp_path):
    only_nmi = ONE.replace('["nmi", "dbi"]', '["nmi"]') + "  printed = { table = 4 }\n"
    against_orig, _, against_ae, _ = read(tmp_path, HEAD + only_nmi)[0].contrasts
    assert against_orig.published == ({}, {"ag_news": 0.51})
    assert against_ae.published == ({}, {"ag_news": 0.44})
    without_printed = only_nmi.replace("printed", "published")
    against_orig, _, against_ae, _ = read(tmp_path, HEAD + without_printed)[0].contrasts
    assert against_orig.published == ({}, {"ag_news": 0.51}) and against_orig.printed is None
    assert against_ae.published == ({}, {"ag_news": 0.44})


READING = """
[readings.unscaled]
says = "on vectors as they are"
rows = [
  [{ model = "ae-d" }, { experiment = "clustering-readings", reading = "inputs not scaled" }],
  [{ model = "pca" }, {}],
]
"""
USED = HEAD.replace('where = "', 'readings = ["unscaled"]\nwhere = "')


def test_a_reading_changes_comparisons_whose_rows_it_lists_and_no_others(tmp_path):
    (found,) = read(tmp_path, "runs = 5\n" + READING + USED + ONE)
    (reading,) = found.readings
    assert found.runs == 5 and reading.says == "on vectors as they are"
    for each in found.contrasts:
        new, old = reading.applied(each), dict(each.cells)
        if old[-1]["model"] == "ae":  # which the reading does not list
            assert new is each
        else:
            (_, winner), (_, rival) = new.cells
            assert winner["reading"] == "inputs not scaled" and rival == old[-1]


AFTER = 'after_seeing = "the first five seeds showed it"\n'


def test_a_claim_says_what_was_seen_before(tmp_path):
    (found,) = read(tmp_path, HEAD + AFTER + 'seeds = "new"\n' + ONE)
    assert (found.after_seeing, found.seeds) == ("the first five seeds showed it", "new")
    (plain,) = read(tmp_path, HEAD + ONE)
    assert (plain.after_seeing, plain.seeds, plain.runs) == ("", "", None)


def test_every_declared_row_and_every_row_of_a_reading_names_one_cell_of_the_plan():
    for each in registered_claims():
        of_readings = (map(reading.applied, each.contrasts) for reading in each.readings)
        for one in chain(each.contrasts, *of_readings):
            for corpus in one.corpora or (None,):
                assert corpus != "newsgroups20_openings"
                for _, row in one.cells:
                    named_cells(row, corpus)


# ---------------------------------------------------------------- the command


@pytest.fixture
def two_claims(monkeypatch):
    """Two claims and their records in place of the papers'."""
    other = replace(claim(contrast((1, PCA), (-1, AE)), name="other"), paper="image")
    monkeypatch.setattr(judged_claims, "registered_claims", lambda: (claim(BEATS), other))
    records = pd.concat([made(AED, UP), BASE])
    monkeypatch.setattr(judged_claims, "select", lambda experiment, seeds: records)
    monkeypatch.setattr(judged_claims, "earlier", lambda rule: {"words": "partly"})


def test_the_command_prints_contrasts_seeds_corpora_grade_and_both_verdicts(two_claims, capsys):
    assert main(["claims"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("\nin all: 1 holds, 1 not tested\n")
    first, other = said.split("other: words\n")
    for line in (
        "a-claim: words\n  text, words\n  - a against b [> 0]\n",
        "    +0.120 (nmi), +0.100 to +0.140; 5 seeds: holds\n",
        "  seeds: 5\n  corpora: ag_news\n  grade: close (spaCy's vectors",
        "  rule 1: partly\n  rule 2: partly\n",
        "  rule 3: holds; provisional\n",
    ):
        assert line in first
    assert "rule 3: not tested; no run is recorded" in other


def test_the_command_takes_names_and_a_paper(two_claims, capsys):
    assert main(["claims", "other"]) == 0 and "a-claim" not in capsys.readouterr().out
    assert main(["claims", "--paper", "text"]) == 0 and "other" not in capsys.readouterr().out
    assert main(["claims", "others"]) == 2
    assert "no name 'others': choose one of a-claim, other" in capsys.readouterr().err
    assert main(["claims", "--paper", "texts"]) == 2
    assert "no paper 'texts': choose one of text, image" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_traceback():
    piped = [sys.executable, "-m", "snnl_book", "list"]
    # Of a buffered output the pipe is found broken at the very end.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": buffered}
    process = subprocess.Popen(piped, cwd=ROOT, **pipes)
    process.stdout.close()  # before a line is written, as by `head -0`
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait() == 0
