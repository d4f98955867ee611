"""The papers' claims: declared as contrasts, judged by rule 2, and answered once by a chapter."""

import pandas as pd
import pytest
from test_report import runs

from snnl_lib import report
from snnl_lib.report import claims

CHAPTER = "12_images"
CLAIMED = claims.registered().query("chapter == @CHAPTER")["claim"].tolist()


def test_every_claim_names_its_paper_its_place_and_what_would_change_our_mind():
    table = claims.registered()
    assert len(table) > 35 and (table.drop(columns="headline") != "").all(axis=None)
    assert set(table["paper"]) == set(claims.PAPERS) and not table["claim"].duplicated().any()
    assert 5 <= (table["headline"] == "yes").sum() <= 12


def test_the_tests_of_a_sentence_become_one_answer():
    records = pd.concat(
        [runs("A", [0.8, 0.9, 0.85]), runs("B", [0.7, 0.79, 0.76]), runs("C", [0.9, 0.9, 0.9])]
    )
    table = report.claim_table(
        records,
        [
            ("one", "acc", "A", "B"),
            ("two", "acc", "A", "B"),
            ("two", "acc", "A", "C"),
            ("none", "nmi", "A", "B"),
        ],
    )
    one, two, none = claims.from_tests(table)
    assert (
        one["ours"] == "0.100 (acc)"
        and one["verdict"] == "reproduced"
        and one["records"].split() == [f"trial/{label}-{i}" for label in "AB" for i in range(3)]
    )
    assert (
        two["ours"] == "better in 1 of 2, mean +0.025 (acc)"
        and two["95 % interval"] == "above 0 in 1 of 2"
        and two["verdict"] == "partly"
    )
    assert len(two["records"].split()) == 9
    assert none == claims.answer("none", "not recorded", "–", "not attempted", "")


def test_a_chapter_answers_each_of_its_claims_once_and_with_a_verdict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answers = [claims.answer(claim, "0.9", "–", "not attempted: no time") for claim in CLAIMED]
    shown = claims.write(
        CHAPTER, [*answers, claims.answer("a sentence of our own", "1", "–", "reproduced")]
    )
    assert shown["claim"].tolist() == CLAIMED
    written = pd.read_csv(f"tables/claims-{CHAPTER}.csv", keep_default_na=False)
    assert (
        written["claim"].tolist() == CLAIMED
        and set(written["verdict"]) == {"not attempted: no time"}
        and "changes" in written
    )
    for odd in (answers[1:], [*answers, answers[0]]):
        with pytest.raises(ValueError, match="must answer once, and does not, the claim"):
            claims.write(CHAPTER, odd)
    with pytest.raises(ValueError, match="a verdict begins with one of"):
        claims.write(CHAPTER, [answers[0] | {"verdict": "perhaps"}, *answers[1:]])
