"""The papers' claims as chapters and pages take them: all judged once, shown in parts."""

import re
from pathlib import Path

import pandas as pd
import pytest

from snnl_book.paper import ClaimError, registered_claims
from snnl_book.report import claims

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def judged():
    return claims.judge()


def test_every_claim_names_its_paper_its_place_and_what_would_change_our_mind(judged):
    assert judged["name"].tolist() == [claim.name for claim in registered_claims()]
    assert len(judged) > 35 and set(judged["paper"]) == set(claims.PAPERS)
    assert not judged["claim"].duplicated().any()
    told = ["claim", "where", "reported", "changes", "chapter", "ours", "verdict", "kind", "grade"]
    assert (judged[told] != "").all(axis=None)


def test_a_chapter_judges_its_own_claims_as_the_page_of_all_does(judged):
    def without_p(rows):
        """Rows as text, without what depends on how many claims are judged: the adjusted p."""
        contrasts = [[{**each, "adjusted p": ""} for each in own] for own in rows["contrasts"]]
        rows = rows.drop(columns=["verdict", "remarks"])
        return rows.assign(contrasts=contrasts).reset_index(drop=True).astype(str)

    for chapter, rows in judged.groupby("chapter"):
        pd.testing.assert_frame_equal(without_p(claims.of(chapter)), without_p(rows))
    one_seed = claims.of("08_text_clustering", (42,))
    assert not one_seed["contrasts"].map(lambda own: any(each["units"] > 1 for each in own)).any()
    with pytest.raises(ClaimError, match="no claim belongs to the chapter '16_more': choose one"):
        claims.of("16_more")


def test_a_list_of_claims_has_a_line_for_each(judged):
    lines = claims.listed(judged).splitlines()
    assert len(lines) == len(judged) + 2 and "(claims.md#The-rule)" in lines[-1]
    page = (ROOT / "book" / "claims.md").read_text()
    rule = page.partition("\n## The rule\n")[2].partition("\n## ")[0].lower()
    missing = {claims.word(kind) for kind in judged["kind"] if claims.word(kind) not in rule}
    assert not missing, "the rule explains every verdict"
    for row, line in zip(judged.itertuples(), lines[:-2], strict=True):
        assert line.lower().startswith(f"- **[{claims.word(row.kind)}](") and row.claim[1:] in line
        heading = re.search(r"claims\.md#([\w-]+)", line)[1].replace("-", " ")
        assert f"\n## {heading}\n" in page
    by_claim = dict(zip(judged["name"], lines, strict=False))
    assert by_claim["entangling-classifies-worse"].endswith(
        "(accuracy, 95 % interval +0.026 to +0.052)."
    )
    assert by_claim["disentangling-classifies-better"].endswith(
        "Of five comparisons, two are open (the interval crosses the limit for *marginal*), two "
        "fail and one is unfair (our run of the rival scores below its published value)."
    )
    assert "too few runs for an interval around their best" in by_claim["accuracy-90"]
    annealing = next(line for line in lines if "Annealing improves the clustering." in line)
    assert annealing.endswith(
        "Of 12 comparisons, five are open (the interval contains 0), three hold and four are not "
        "tested (we could not download the files of EMNIST Balanced)."
    )
    scores = next(line for line in lines if "NMI and ARI of AE(D)" in line)
    assert scores.endswith(
        "eight hold and four are not tested (we could not download the files of EMNIST Balanced)."
    )
    untested = judged[judged["kind"] == "not tested"]
    after_seeing = {claim.name for claim in registered_claims() if claim.after_seeing}
    for name in untested["name"]:
        after = "only runs with new seeds can test it."
        reason = after if name in after_seeing else "No recorded run tests it"
        assert reason in by_claim[name], name
    assert by_claim["before-sccl"].endswith(
        "No recorded run tests it (a run on 2,000 texts takes about five hours on a CPU core)."
    )
    assert by_claim["stage-1-silhouette"].endswith(
        "Counted in the direction of the claim, our difference is +0.009 (silhouette, 95 % "
        "interval −0.023 to +0.041; the interval crosses the limit for *slim*)."
    )
    assert "unfair (our run of the rival scores below" in by_claim["before-dec-vade-n2d"]


def test_every_verdict_is_one_of_seven(judged):
    assert {*judged["kind"].map(claims.word)} <= {*claims.VERDICTS}
    assert all(row.verdict.startswith(row.kind) for row in judged.itertuples())


def test_an_unfair_comparison_is_named_with_its_images_or_vectors(judged):
    verdicts = judged.set_index("name")["verdict"]
    assert "our DEC is below its published score (ACC 0." in verdicts["before-dec-vade-n2d"]
    assert " on MNIST, published 0.843)" in verdicts["before-dec-vade-n2d"]
    assert "most runs of AE collapsed on InferSent;" in verdicts["encoding-improves-quality"]
    # All comparisons of this claim are on InferSent.
    assert "most runs of AE collapsed;" in verdicts["slim-loss-in-sil-infersent"]


def test_earlier_verdicts_are_kept(judged):
    kept = judged.loc[judged["rule 1"] != "–"].set_index("claim")["rule 1"]
    assert kept.to_dict() == claims.earlier("rule 1") and len(kept) == 42
    for rule in ("rule 2", "rule 3 before"):
        found = judged.loc[judged[rule] != "–"].set_index("name")[rule].to_dict()
        kept = claims.earlier(rule)
        kept.pop("lost-in-chs", None)  # declared anew as chs-without-the-collapsed-run
        assert found == kept and len(found) > 40
    assert {claims.word(kind) for kind in claims.earlier("rule 3 before").values()} <= {
        *claims.VERDICTS
    }


def test_the_comparisons_of_a_claim_are_numbers_under_each_of_its_readings(judged):
    name = "entangling-classifies-worse"
    (row,) = claims.differences(name).to_dict("records")
    (told,) = judged.set_index("name").loc[name, "contrasts"]
    assert (row["mean"], row["low"], row["high"]) == (told["mean"], told["low"], told["high"])
    assert f"{row['paper']:+.3f}" == told["the paper"] and row["units"] == told["units"]
    five = claims.differences(name, seeds=(42, 73, 1024, 1234, 31415926)).iloc[0]
    assert five["units"] == 5 < row["units"] and row["mean"] != five["mean"]
    stated = claims.differences("before-lda")
    squared = claims.differences("before-lda", "squared-error")
    assert stated["label"].tolist() == squared["label"].tolist()
    assert (stated["mean"] != squared["mean"]).all() and stated["paper"].isna().all()
    assert claims.differences("before-lda", seeds=())["mean"].isna().all()
    for wrong in (("before-all",), ("before-lda", "cubed-error")):
        with pytest.raises(ClaimError, match=wrong[-1]):
            claims.differences(*wrong)


def test_a_verdict_that_moved_names_the_rule_or_the_runs():
    row = {"rule 2": "contradicted (1 of 4)", "rule 3 before": "fails in part (3 of 5)"}
    row |= {"kind": "fails in part (3 of 5)"}
    for changes, expected in (
        ({}, "nothing"),
        ({"kind": "fails in part (4 of 5)"}, "nothing"),  # a count alone is not named
        ({"kind": "mixed"}, "the runs"),
        ({"rule 2": "contradicted"}, "the rule"),
        ({"rule 2": "undecided", "kind": "open"}, "the rule, then the runs"),
        ({"rule 2": "–"}, "a new claim"),
    ):
        assert claims.moved_by(pd.Series(row | changes)) == expected


def test_a_reading_that_changes_some_comparisons_is_judged_by_these_alone(judged):
    (readings,) = judged.loc[judged["name"] == "mnist-96", "readings"]
    few = readings["with 100 labels instead of 10,000 (loss weight 1)"]
    assert few == "fails (judged on 1 of 2 comparisons)"  # alpha 100 has no runs with 100 labels
