"""The tables of later results: our rows are the records', the others are quoted with a source."""

import re

import pytest

from snnl_book import report
from snnl_book.paper.tables import later_results
from snnl_book.report import later

TITLES = list(later.CORPORA.values())


@pytest.fixture(scope="module")
def scores():
    return later.scores()


def numbers(cell):
    """ACC and NMI of a cell, each None where there is none."""
    found = re.match(r"(–|[\d.]+) / (–|[\d.]+)", cell)
    return [None if part == "–" else float(part) for part in found.groups()] if found else None


def test_our_rows_are_means_of_the_records_on_all_texts(scores):
    ours = scores[scores["method"].str.startswith("ours")]
    assert len(ours) == len(later.OURS) + 1 and (ours.index < len(ours)).all()
    runs = report.short_texts("clusterbert")
    runs = runs[(runs["method"] == "MiniLM, mean") & (runs["clusterer"] == "kmeans")]
    biomedical = runs[(runs["dataset"] == "biomedical") & (runs["n_train"] > 2000)]
    means = 100 * biomedical.groupby("metric")["value"].mean()
    (row,) = ours[ours["method"] == "ours: MiniLM, mean, k-means, all texts"].to_dict("records")
    expected = [means["acc"], means["nmi_geometric"]]
    assert numbers(row["Biomedical"]) == pytest.approx(expected, abs=0.051)
    assert {f"clusterbert/{key}" for key in biomedical["key"]} <= set(row["records"].split())


def test_clusterbert_has_a_row_on_all_texts_and_one_on_fewer(scores):
    ours = scores[scores["method"].str.startswith("ours: ClusterBERT")]
    whole, few = ours.to_dict("records")
    assert "all texts" in whole["method"] and "2,000 texts" in few["method"]
    assert [title for title in TITLES if whole[title] != "–"] == ["GoogleNews"]
    assert all(few[title] != "–" for title in TITLES) and whole["GoogleNews"] != few["GoogleNews"]


def test_every_number_of_another_work_is_shown_with_its_source(scores):
    typed = later_results()
    typed = typed[typed["corpus"] != ""]
    others = scores[scores["address"].isin(typed["address"])]
    cells = [numbers(cell) for cell in others[TITLES].to_numpy().ravel() if cell != "–"]
    shown = sorted(value for cell in cells for value in cell if value is not None)
    expected = sorted(100 * typed[["acc", "nmi"]].stack().dropna())
    assert shown == pytest.approx(expected, abs=0.051)
    assert set(others["address"]) == set(typed["address"])
    assert (others["records"] == report.QUOTED).all()


def test_a_row_with_labels_says_how_many_classes_it_knows(scores):
    known = scores["labels"].str.contains("of the classes")
    assert known.any() and (scores["method"].str.contains("% of the classes known") == known).all()
    assert (scores.drop(columns="records") != "").all(axis=None)


def test_what_was_looked_for_in_vain_is_listed():
    looked = later.looked_for()
    assert len(looked) == (later_results()["corpus"] == "").sum()
    assert (looked["what we read"] != "").all()
