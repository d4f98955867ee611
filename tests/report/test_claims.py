"""The papers' claims as chapters and pages take them: all judged once, shown in parts."""

import pandas as pd
import pytest

from snnl_lib.paper import ClaimError, registered_claims
from snnl_lib.report import claims


@pytest.fixture(scope="module")
def judged():
    return claims.judge()


def test_every_claim_names_its_paper_its_place_and_what_would_change_our_mind(judged):
    assert judged["name"].tolist() == [claim.name for claim in registered_claims()]
    assert len(judged) > 35 and set(judged["paper"]) == set(claims.PAPERS)
    assert not judged["claim"].duplicated().any()
    told = ["claim", "where", "reported", "changes", "chapter", "ours", "verdict", "kind", "grade"]
    assert (judged[told] != "").all(axis=None)
    assert 5 <= judged["headline"].sum() <= 12


def test_a_chapter_takes_the_claims_that_it_tells(judged, monkeypatch):
    monkeypatch.setattr(claims, "judge", lambda: judged)
    parts = [claims.of(chapter) for chapter in judged["chapter"].unique()]
    assert sum(map(len, parts)) == len(judged) and all(len(part) for part in parts)
    assert [list(part.index) for part in parts] == [list(range(len(part))) for part in parts]
    with pytest.raises(ClaimError, match="no claim is told in the chapter '16_more': choose one"):
        claims.of("16_more")


def test_a_table_of_claims_has_both_verdicts_and_their_records(judged):
    table = claims.verdicts(judged)
    assert table["verdict"].tolist() == judged["verdict"].tolist()
    assert table["by rule 1"].tolist() == judged["verdict_1"].tolist()
    assert table["records"].tolist() == judged["records"].tolist()


def test_a_table_of_contrasts_has_a_row_for_each(judged):
    table = claims.tested(judged)
    assert table.groupby("claim").size().sum() == judged["contrasts"].map(len).sum() == len(table)
    told = pd.concat([pd.DataFrame(rows) for rows in judged["contrasts"] if rows])
    assert table["verdict"].tolist() == told["verdict"].tolist()
    assert table["over"].tolist() == told["counted"].tolist()


def test_every_verdict_of_rule_1_is_that_of_a_claim(judged):
    frozen = claims.rule_1()
    found = judged.loc[judged["verdict_1"] != "–"].set_index("claim")["verdict_1"]
    assert found.to_dict() == frozen and len(frozen) == 42
