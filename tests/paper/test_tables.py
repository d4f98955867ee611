"""What is typed in of other works: each number with the source that it was read in."""

import re
from pathlib import Path

import pytest

from snnl_book import paper
from snnl_book.paper.tables import later_results

ROOT = Path(__file__).resolve().parents[2]
TOLD = ["year", "texts", "backbone", "labels", "protocol", "source", "cite", "address", "read"]


@pytest.fixture(scope="module")
def later():
    return later_results()


def test_each_number_of_another_work_has_its_source_and_its_protocol(later):
    found = later[later["corpus"] != ""]
    assert len(found) > 30 and (found[TOLD] != "").all(axis=None)
    assert set(found["corpus"]) == set(paper.paper_short_texts()["dataset"])
    assert found["year"].str.fullmatch(r"20\d\d").all()
    assert found["address"].str.match(r"https://\S+$").all()
    assert not found.duplicated(["method", "labels", "address", "corpus"]).any()


def test_scores_are_shares_and_no_row_is_without_one(later):
    scores = later.loc[later["corpus"] != "", ["acc", "nmi"]]
    assert scores.notna().any(axis=1).all()
    assert scores.stack().dropna().between(0, 1, inclusive="neither").all()


def test_what_was_looked_for_in_vain_has_no_number_and_says_what_was_opened(later):
    missed = later[later["corpus"] == ""]
    assert len(missed) and missed[["acc", "nmi"]].isna().all(axis=None)
    assert (missed["read"] != "").all() and missed["address"].str.match(r"https://\S+$").all()
    assert missed["method"].is_unique


def test_each_source_is_of_a_work_in_the_bibliography_that_leads_to_it(later):
    entries = (ROOT / "book" / "references.bib").read_text().split("\n@")
    leads = {
        re.match(r"@?\w+\{([^,]+),", entry)[1]: re.search(r"^\s*(doi|url|eprint) =", entry, re.M)
        for entry in entries
        if entry.strip()
    }
    cited = set(later["cite"]) - {""}
    assert cited <= set(leads) and all(leads[name] for name in cited)
