"""Figures that several chapters draw: where the marks are, and what is refused."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import same_color

from snnl_lib.report import figures

NAN = float("nan")
COLUMNS = ["label", "mean", "low", "high", "group", "paper"]
ROWS = pd.DataFrame(
    [
        ("first", 0.02, 0.01, 0.03, "AE(D)", 0.05),
        ("second", -0.01, NAN, NAN, "other", NAN),
        ("third", 0.04, -0.01, 0.09, "other", NAN),
        ("not recorded", NAN, NAN, NAN, "other", NAN),
    ],
    columns=COLUMNS,
    index=[3, 3, 1, 0],  # as of tables put together
)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def drawn(axis):
    """The marks of a forest plot, as (x, line, marker, colour, colour of its face)."""
    lines = [line for line in axis.lines if line.get_linestyle() == "None"]
    marks = [(*line.get_xdata(), *line.get_ydata(), line) for line in lines]
    return {
        (round(x, 3), int(y), line.get_marker()): (line.get_color(), line.get_markerfacecolor())
        for x, y, line in marks
        if x == x
    }


def test_a_forest_has_a_line_a_row_with_mean_interval_and_the_papers_value():
    axis = figures.forest(ROWS, "A title", "accuracy").axes[0]
    assert [text.get_text() for text in axis.get_yticklabels()] == ROWS["label"].tolist()
    top, bottom = axis.get_ylim()[::-1]
    assert top < 0 and bottom > 3  # the first row is on top
    bars = [line for line in axis.collections if isinstance(line, LineCollection)]
    ends = [segment.tolist() for bar in bars for segment in bar.get_segments() if len(segment)]
    assert ends == [[[0.01, 0], [0.03, 0]], [[-0.01, 2], [0.09, 2]]]
    zero = [line.get_xdata() for line in axis.lines if line.get_linestyle() == "-"]
    assert zero == [[0, 0]] and axis.get_xlabel() == "accuracy"

    marks, colour = drawn(axis), figures.PALETTE["AE(D)"]
    assert marks.keys() == {(0.02, 0, "^"), (0.05, 0, "|"), (-0.01, 1, "s"), (0.04, 2, "s")}
    assert marks[0.02, 0, "^"] == (colour, colour)  # as in the figures of the paper's rows
    assert same_color(marks[-0.01, 1, "s"][1], "white") and marks[-0.01, 1, "s"][0] != "white"
    assert marks[0.04, 2, "s"][0] == marks[0.04, 2, "s"][1]


def words(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_legend_of_a_forest_names_what_is_in_it():
    assert words(figures.forest(ROWS, "")) == ["AE(D)", "other", "no interval", "the paper"]
    told = figures.forest(ROWS[2:].drop(columns="paper"), "", groups={"other": "other codes"})
    assert words(told) == ["other codes"]
    assert words(figures.forest(ROWS[["label", "mean", "low", "high"]][:1], "")) == []
    assert words(figures.forest(ROWS[:0], "nothing is recorded")) == []


@pytest.mark.parametrize(
    "rows, groups, message",
    [
        (ROWS.drop(columns=["low", "mean"]), None, "a forest plot needs the columns mean, low"),
        (ROWS.assign(high=0.015), None, "the mean of 'first' is not within its interval"),
        (ROWS.assign(high=NAN), None, "the mean of 'first' is not within its interval"),
        (ROWS.assign(low=0, high=0.1), None, "the mean of 'second' is not within its interval"),
        (ROWS, {"AE(D)": "ours"}, "no words or no colour for the group 'other'"),
        (ROWS, dict.fromkeys("abcdef", "") | {"AE(D)": ""}, "no words or no colour for the group"),
    ],
)
def test_a_forest_refuses(rows, groups, message):
    with pytest.raises(ValueError, match=message):
        figures.forest(rows, "", groups=groups)
