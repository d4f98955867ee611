"""The reading nearest to the paper's numbers, on rows worked out by hand."""

import pandas as pd
import pytest
from test_report import runs

from snnl_book import report
from snnl_book.report.readings import METRICS, _gap

pytestmark = pytest.mark.usefixtures("without_answers")

PAPER = {"dbi": 0.38, "sil": 0.76, "chs": 24172.28, "nmi": 0.68, "ari": 0.72, "acc": 0.88}  # AE(D)


def row(label, factors, spread=0.0):
    """Three runs of a label, each score so many times the paper's."""
    scores = zip(METRICS, factors, strict=True)
    values = {name: PAPER[name] * factor for name, factor in scores}
    return pd.concat(
        runs(label, [value * (1 - spread), value, value * (1 + spread)], metric)
        for metric, value in values.items()
    )


def test_a_distance_is_a_share_of_the_larger_score():
    assert _gap(2.0, 1.0) == _gap(1.0, 2.0) == 0.5
    assert _gap(0.0, 0.0) == 0 and _gap(-1.0, 1.0) == 1
    assert _gap(3.5e12, 2e5) == pytest.approx(1, abs=1e-6)


def test_the_nearest_reading_stands_first_with_what_it_matches_and_where_it_is_nearest():
    near = (1.0, 1.0, 1.0, 1.0, 1.0, 0.5)
    main = (0.5, 0.5, 0.5, 0.5, 0.5, 1.0)
    wide = row("AE(D), wide", (1.0,) * 6, spread=0.5)
    records = pd.concat([row("AE(D)", main, 0.001), row("AE(D), near", near, 0.001), wide])
    table = report.nearest_reading(records).set_index("reading")
    assert list(table.index) == ["wide", "near", "main setting"]
    assert set(table["model"]) == {"AE(D)"}
    assert table["distance"].round(3).tolist() == [0.0, 0.083, 0.417]
    assert table.loc["near", ["internal", "external"]].round(3).tolist() == [0.0, 0.167]
    assert table["matches"].tolist() == [0, 5, 1]  # a wide interval matches nothing
    assert table["nearest"].sum() == len(METRICS)
    assert table.loc["near", ["acc", "dbi", "chs"]].tolist() == ["0.440", "0.38", "24,172"]
    assert table.loc["near", "records"].count("trial/") == 3


def test_the_means_of_a_random_encoder_are_over_its_draws():
    records = row("AE(D)", (1.0,) * 6, spread=0.5).reset_index(drop=True)
    prints = [f"x-random{place}" for place in (0, 0, 1)] * len(METRICS)
    table = report.nearest_reading(records.assign(fingerprint=prints))
    assert table["acc"].tolist() == [f"{(0.75 + 1.5) / 2 * PAPER['acc']:.3f}"]


def test_nothing_recorded_is_an_empty_table():
    table = report.nearest_reading(row("AE(D)", (1.0,) * 6).iloc[:0])
    assert table.empty and {"reading", "distance", "records"} < set(table.columns)


def test_what_a_row_has_more_than_the_paper_has_the_interval_of_its_runs():
    records = pd.concat([row("AE(D), near", (1.1,) * 6, 0.1), row("AE(D)", (1.0,) * 6)])
    (acc, dbi) = report.minus_paper(records, "AE(D), near", ["acc", "dbi"]).itertuples()
    assert (acc.label, dbi.label) == ("acc", "dbi")
    assert acc.mean == pytest.approx(0.088) and dbi.mean == pytest.approx(0.038)
    assert acc.high - acc.mean == pytest.approx(4.302653 * 0.0968 / 3**0.5, abs=1e-5)
    assert acc.records.count("trial/") == 3
    nothing = report.minus_paper(records, "AE", ["acc"])
    assert nothing["mean"].isna().all() and nothing["records"].tolist() == [""]
