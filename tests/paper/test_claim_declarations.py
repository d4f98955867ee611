"""The declarations of the claims: verbatim quotes, every rival that a sentence names, and rows of
the plan.
"""

import csv
import os
import re
from pathlib import Path

import pytest

from snnl_book import paper
from snnl_book.paper import registered_claims
from snnl_book.paper.declared import ROW, WORDS
from snnl_book.report.rows import named_cells

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(paper.__file__).with_name("claims")
TEXTS = {"text": ("000",), "image": ("001", "002"), "ClusterBERT": ("004",)}
"""How the stored text's files of each paper begin."""
CLAIMS = registered_claims()
TESTS = ("> 0", "within", "= v", "at least v", "rank", "more than half")
every_claim = pytest.mark.parametrize("claim", CLAIMS, ids=[claim.name for claim in CLAIMS])


def same(text):
    """Lay line breaks, hyphens at their ends and marks of emphasis aside."""
    return re.sub(r"[\s*\-–]", "", text)


def quoted(rival):
    """The numbers that the papers print for a method."""
    tables = [paper.literature("images"), paper.literature("short-texts")]
    columns = [table.loc[table["method"] == rival, "value"] for table in tables]
    table = paper.paper_short_texts()
    columns.append(table.loc[table["label"] == rival, "value"])
    return {number for numbers in columns for number in numbers.dropna()}


def test_the_verdicts_of_earlier_rules_are_kept_and_their_claims_still_declared():
    with (FOLDER / "rule-1.csv").open(encoding="utf-8", newline="") as file:
        first = list(csv.DictReader(file))
    assert list(first[0]) == ["claim", "ours", "interval", "verdict"] and len(first) == 42
    sentences = [claim.claim for claim in CLAIMS]
    assert {row["claim"] for row in first} < set(sentences)
    assert len(set(sentences)) == len(sentences)
    with (FOLDER / "rule-2.csv").open(encoding="utf-8", newline="") as file:
        second = list(csv.DictReader(file))
    assert list(second[0]) == ["claim", "verdict", "interval", "units", "reason"]
    names = [row["claim"] for row in second]
    assert len(set(names)) == len(names) == 50
    # One was replaced by the number without the collapsed run.
    assert {*names} - {claim.name for claim in CLAIMS} == {"lost-in-chs"}
    assert all(cell.strip() for row in second for cell in row.values())


@every_claim
def test_a_claim_says_where_it_stands_and_what_it_is_tested_by(claim):
    for field in ("claim", "where", "reported", "quote", "changes"):
        assert getattr(claim, field).strip(), field
    assert (ROOT / "book" / f"{claim.chapter}.ipynb").exists()
    compared = [(contrast.says, contrast.metric) for contrast in claim.contrasts]
    assert len(set(compared)) == len(compared)


@every_claim
def test_the_parts_of_a_claim_go_together(claim):
    assert bool(claim.contrasts) != bool(claim.not_attempted)
    assert claim.seeds in ("", "paper", "new") and (not claim.after_seeing or claim.seeds == "new")
    for reading in claim.readings:
        assert bool(reading.rows) != bool(reading.seeds)
        changed = [each for each in claim.contrasts if reading.applied(each) is not each]
        assert changed or reading.seeds
    for contrast in claim.contrasts:
        assert contrast.test in TESTS and contrast.words in ("", *WORDS)
        winners = sum(weight > 0 for weight, _ in contrast.cells)
        assert winners == 1 if contrast.test == "rank" else winners or contrast.not_attempted
        assert contrast.value is not None or contrast.test not in ("= v", "at least v")
        assert contrast.words != "on par" or contrast.test == "at least v"
        assert (contrast.unit == "corpus") == bool(contrast.corpora)
        for _, row in contrast.cells:
            assert row.keys() <= ROW and ("dataset" in row) != bool(contrast.corpora)


@every_claim
def test_a_quote_stands_in_the_paper(claim):
    folder = Path(os.environ.get("SNNL_DATA", "nowhere")).parent / "papers"
    files = [path for start in TEXTS[claim.paper] for path in folder.glob(f"{start}_*.txt")]
    if not files:
        pytest.skip("the papers' texts are not beside the data (SNNL_DATA)")
    texts = [same(path.read_text("utf-8")) for path in files]
    for part in claim.quote.split(" […] "):
        assert any(same(part) in text for text in texts), part


@every_claim
def test_every_rival_that_the_sentence_names_is_one_of_the_contrasts(claim):
    against, numbers = set(), set()
    without_runs = [each.says for each in claim.contrasts if each.not_attempted and not each.cells]
    for contrast in claim.contrasts:
        numbers |= {contrast.value, *contrast.reported}
        for weight, row in contrast.cells:
            assert "infersent-random" not in str(row.get("embedding")) or contrast.unit == "encoder"
            for corpus in contrast.corpora or (None,):
                labels = {spec.label for spec in named_cells(row, corpus)}
                against |= (
                    {row.get("model"), row.get("embedding"), *labels} if weight < 0 else {None}
                )
    for words, rivals in claim.named.items():
        assert same(words) in same(claim.quote) and rivals
        for rival in {*rivals} - against:
            told = claim.not_attempted or any(words in says for says in without_runs)
            assert told or quoted(rival) & numbers, (words, rival)
