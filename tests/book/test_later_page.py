"""The page of later results: our rows follow from records, others are quoted with their source."""

import re
from pathlib import Path

import later_page
import pages
import pytest

from snnl_book import report
from snnl_book.paper.tables import later_results

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "later_results.md").read_text()


@pytest.fixture(scope="module")
def made():
    return pages.MADE["later_results"](None, [], None)


def numbers(cell):
    """ACC and NMI of a cell, each None where there is none."""
    found = re.match(r"(–|[\d.]+) / (–|[\d.]+)", cell)
    return [None if part == "–" else float(part) for part in found.groups()] if found else None


def score(scores, start, corpus):
    """ACC and NMI of the row whose name starts so."""
    (cell,) = scores.loc[scores["method"].str.startswith(start), corpus]
    return numbers(cell)


def test_the_page_shows_every_table_and_no_other(made):
    assert set(re.findall(r"\{run-table\} (\S+)", PAGE)) == set(made)
    assert all(table.columns[-1] == "records" and len(table) for table in made.values())


def test_our_rows_are_means_of_the_records_on_all_texts(made):
    scores = made["later-scores"]
    ours = scores[scores["method"].str.startswith("**ours")]
    assert len(ours) == len(later_page.OURS) + 1 and (ours.index < len(ours)).all()
    runs = report.short_texts("clusterbert")
    own = runs[(runs["method"] == "MiniLM, mean") & (runs["clusterer"] == "kmeans")]
    own = own[(own["dataset"] == "biomedical") & (own["n_train"] > 2000)]
    means = 100 * own.groupby("metric")["value"].mean()
    shown = score(scores, "**ours: MiniLM, mean, k-means, all texts**", "Biomedical")
    assert shown == pytest.approx([means["acc"], means["nmi_geometric"]], abs=0.051)
    names = {f"clusterbert/{key}" for key in own["key"]}
    (row,) = ours[ours["method"].str.contains("MiniLM, mean, k-means")].itertuples()
    assert names <= set(row.records.split())
    whole, few = ours[ours["method"].str.contains("ClusterBERT")].to_dict("records")
    assert "all texts" in whole["method"] and "2,000 texts" in few["method"]
    titles = list(later_page.CORPORA.values())
    assert [title for title in titles if whole[title] != "–"] == ["GoogleNews"]
    assert all(few[title] != "–" for title in titles) and whole["GoogleNews"] != few["GoogleNews"]
    assert "all texts of GoogleNews with one seed" in PAGE and "2,000 texts of each only" in PAGE


def test_every_number_of_another_work_is_shown_with_a_link_to_its_source(made):
    later, scores = later_results(), made["later-scores"]
    found = later[later["corpus"] != ""]
    others = scores[scores["method"].str.startswith("[") & scores["method"].str.endswith(")")]
    others = others[~others["method"].str.contains("openreview")]
    corpora = list(later_page.CORPORA.values())
    cells = [numbers(cell) for cell in others[corpora].to_numpy().ravel() if cell != "–"]
    shown = sorted(value for cell in cells for value in cell if value is not None)
    typed = sorted(100 * found[["acc", "nmi"]].stack().dropna())
    assert shown == pytest.approx(typed, abs=0.051)
    assert int(made["later-counts"]["how many"].iloc[0]) == len(typed)
    for address in found["address"]:
        assert others["method"].str.contains(f"]({address})", regex=False).any()
    assert (others["records"] == report.QUOTED).all()
    assert len(made["later-looked"]) == (later["corpus"] == "").sum()


def test_rows_with_labels_say_so_and_have_their_protocol_beside_the_others(made):
    scores, told = made["later-scores"], made["later-protocols"]
    assert told["method"].tolist() == scores["method"].tolist()
    known = told["labels"].str.contains("of the classes")
    assert known.any() and (told["method"].str.contains("% of the classes known") == known).all()
    assert (told.drop(columns="records") != "").all(axis=None)
