"""The papers' claims as chapters and pages take them: all judged once, shown in parts."""

from pathlib import Path

import pandas as pd
import pytest

from snnl_book.experiments import PAPER_SEEDS
from snnl_book.paper import ClaimError, declared, registered_claims
from snnl_book.report import claims


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
    asked = []
    monkeypatch.setattr(claims, "judge", lambda seeds: asked.append(seeds) or judged)
    parts = [claims.of(chapter) for chapter in judged["chapter"].unique()]
    assert sum(map(len, parts)) == len(judged) and all(len(part) for part in parts)
    assert [list(part.index) for part in parts] == [list(range(len(part))) for part in parts]
    with pytest.raises(ClaimError, match="no claim is told in the chapter '16_more': choose one"):
        claims.of("16_more", (42, 73))
    assert asked[-1] == (42, 73) and {*asked[:-1]} == {None}


def test_a_table_of_claims_has_four_columns_and_what_verdicts_stand_on_is_another(judged):
    table, grounds = claims.verdicts(judged), claims.grounds(judged)
    assert [*table] == ["claim", "the paper", "ours", "verdict", "records"]
    for column, source in (("verdict", "verdict"), ("the paper", "reported")):
        assert table[column].tolist() == judged[source].tolist()
    assert table["records"].tolist() == grounds["records"].tolist() == judged["records"].tolist()
    assert grounds["by rule 1"].tolist() == judged["verdict_1"].tolist()
    assert grounds["claim"].tolist() == table["claim"].tolist()
    assert (grounds["fragile"] == "no").tolist() == (judged["fragile"] == "").tolist()


def test_our_number_on_a_claim_is_its_one_mean_and_interval_or_how_its_contrasts_came_out(judged):
    ours = dict(zip(judged["name"], claims.verdicts(judged)["ours"], strict=True))
    single = judged[(judged["contrasts"].map(len) == 1) & (judged["interval"] != "–")].iloc[0]
    assert ours[single["name"]] == f"{single['ours']}, {single['interval']}"
    several = judged[judged["contrasts"].map(len) > 1]
    assert all(ours[row["name"]].endswith(row["ours"]) for _, row in several.iterrows())


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


def test_what_rule_2_says_of_the_same_runs_is_as_kept(judged):
    path = Path(declared.__file__).with_name("claims") / "rule-2.csv"
    kept = pd.read_csv(path, keep_default_na=False).set_index("claim")
    same = 0
    for claim in judged[judged["name"].isin(kept.index)].itertuples():
        before = kept.loc[claim.name]
        intervals = "; ".join(each["interval"] for each in claim.contrasts)
        if (intervals, claim.units) == (before["interval"], before["units"]):  # the same runs
            assert claim.kind.split(" (")[0] == before["verdict"].split(" (")[0], claim.name
            same += 1
    assert same >= 5


def test_verdicts_by_setting_are_those_of_rule_2_where_margin_and_seeds_are_its_own(judged):
    some = [claim for claim in registered_claims() if claim.paper == "text"]
    moved = claims.by_setting(claims=some)
    settings = len(claims.POINTS) * len(claims.SEEDS)
    assert moved.groupby("name").size().eq(settings).all() and len(moved) == settings * len(some)
    usual = moved[(moved["margin"] == 1.5) & (moved["seeds"] == "all")].set_index("name")["verdict"]
    kinds = judged.set_index("name")["kind"]
    assert usual.to_dict() == kinds[usual.index].to_dict()
    # A number is matched by a wider margin, and nothing else hangs on it there.
    number = moved[(moved["name"] == "clustering-accuracy-88") & (moved["seeds"] == "all")]
    assert dict(zip(number["margin"], number["verdict"], strict=True))[3] != "differs"
    five = claims.judge(claims=some, seeds=PAPER_SEEDS).set_index("name")["kind"]
    chosen = moved[(moved["margin"] == 1.5) & (moved["seeds"] == claims.FIVE)].set_index("name")
    assert chosen["verdict"].to_dict() == five.to_dict()
