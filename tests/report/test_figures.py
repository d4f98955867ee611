"""Figures that several chapters draw: where the marks are, and what is refused."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import same_color

from snnl_book.report import figures
from snnl_book.report.statistics import interval

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
    assert marks.keys() == {(0.02, 0, "o"), (0.05, 0, "|"), (-0.01, 1, "s"), (0.04, 2, "s")}
    assert marks[0.02, 0, "o"] == (colour, colour)  # as in the figures of the paper's rows
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


def test_a_forest_refuses_rows_that_it_cannot_draw():
    for rows, groups, message in (
        (ROWS.drop(columns=["low", "mean"]), None, "a forest plot needs the columns mean, low"),
        (ROWS.assign(high=0.015), None, "the mean of 'first' is not within its interval"),
        (ROWS.assign(high=NAN), None, "the mean of 'first' is not within its interval"),
        (ROWS.assign(low=0, high=0.1), None, "the mean of 'second' is not within its interval"),
        (ROWS, {"AE(D)": "ours"}, "the group 'other' has no words or no colour"),
        (ROWS, dict.fromkeys("abcdef", "") | {"AE(D)": ""}, "has no words or no colour"),
    ):
        with pytest.raises(ValueError, match=message):
            figures.forest(rows, "", groups=groups)


def test_without_a_title_a_forest_counts_the_intervals_that_leave_out_zero():
    told = figures.forest(ROWS).get_suptitle()
    assert told == "The intervals of 1 of 4 differences leave out zero"


KINDS = {"loss": "with our loss", "none": "no labels"}


def runs(**values):
    """Records of methods: the name of each and its accuracies; A is ours."""
    rows = [(name, value) for name, found in values.items() for value in found]
    found = pd.DataFrame(rows, columns=["label", "value"])
    found = found.assign(key=[f"run {place}" for place in range(len(rows))], fingerprint="data")
    return found.assign(kind=found["label"].map({"A": "loss"}).fillna("none"))


def test_methods_are_lines_with_every_run_the_best_on_top():
    panels = {"one": runs(B=[0.5, 0.7], A=[0.9, 0.8]), "two": runs(A=[0.1], C=[0.3])}
    figure = figures.method_figure(panels, KINDS, "A title")
    first, second = figure.axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["B", "A"]  # from below
    assert [text.get_text() for text in second.get_yticklabels()] == ["A", "C"]
    points = [p for p in first.collections if isinstance(p, PathCollection)]
    assert [p.get_offsets().tolist() for p in points] == [
        [[0.5, 0], [0.7, 0]],
        [[0.9, 1], [0.8, 1]],
    ]
    colours = [p.get_facecolor()[0, :3].tolist() for p in points]
    assert colours[0] != colours[1]  # by the kind of a method
    other = [p for p in second.collections if isinstance(p, PathCollection)]
    assert other[0].get_facecolor()[0, :3].tolist() == colours[1]
    bars = [b for b in first.collections if isinstance(b, LineCollection)]
    low, high = interval([0.5, 0.7])
    assert bars[0].get_segments()[0][:, 0].tolist() == [low, high]
    assert words(figure) == ["with our loss", "no labels"]


def test_runs_on_one_draw_of_a_random_encoder_are_one_unit_of_an_interval_and_of_the_order():
    panel = runs(A=[0.5, 0.5, 0.5, 0.9, 0.8], B=[0.7, 0.6])  # A: 0.67 over draws, 0.64 over runs
    panel["fingerprint"] = [*["x-random0"] * 3, "x-random1", "x-random2", "data", "data"]
    figure = figures.method_figure({"one": panel}, KINDS, "A title")
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["B", "A"]
    bars = [b for b in axis.collections if isinstance(b, LineCollection)]
    assert bars[1].get_segments()[0][:, 0].tolist() == list(interval([0.5, 0.9, 0.8]))
    seeds = panel.assign(
        metric="acc", status="ok", label=panel["label"].map({"A": "AE", "B": "AE(D)"})
    )
    paper = pd.DataFrame(
        {"label": ["AE", "AE(D)"], "metric": "acc", "statistic": "mean", "value": 0.7}
    )
    drawn = figures.seed_figure([(seeds, paper, "acc", "accuracy")], "A title").axes[0]
    bars = [
        b.get_segments()[0][:, 1].tolist()
        for b in drawn.collections
        if isinstance(b, LineCollection)
    ]
    ends = [[interval(values)[0], 1.0] for values in ([0.5, 0.9, 0.8], panel["value"][:5])]
    assert ends[0] in bars and ends[1] not in bars  # an accuracy ends at 1


def test_methods_stand_beside_what_is_reported_where_it_is():
    panel = runs(A=[0.8, 0.9], B=[0.5]).assign(paper=[0.85, 0.85, NAN])
    figure = figures.method_figure({"one": panel}, KINDS, "A title")
    marks = [(line.get_xdata()[0], line.get_ydata()[0]) for line in figure.axes[0].lines]
    assert (0.85, 1) in marks and words(figure)[-1] == "reported"
    assert figures.method_figure({"none": runs()}, KINDS, "").axes  # nothing is recorded


def test_means_over_a_column_have_their_interval_as_a_band():
    found = pd.DataFrame({"labels": [10, 10, 20, 20], "value": [0.1, 0.3, 0.5, 0.6]})
    _, axis = plt.subplots()
    figures.draw_means(axis, found, "labels", color="black", label="a line")
    assert axis.lines[0].get_xydata().round(2).tolist() == [[10, 0.2], [20, 0.55]]
    ends = axis.collections[0].get_paths()[0].vertices
    assert {*ends[ends[:, 0] == 10, 1]} == {*interval([0.1, 0.3])}
    figures.draw_means(axis, found[:0], "labels", color="black")  # nothing is recorded


def test_a_map_has_a_colour_and_a_shape_for_each_class():
    points = pd.DataFrame({"x": [0, 1, 2], "y": [0, 1, 2], "label": [1, 0, 1]})
    _, axis = plt.subplots()
    figures.draw_map(axis, points, ["cats", "dogs"])
    cats, dogs = axis.collections
    assert [cats.get_label(), dogs.get_label()] == ["cats", "dogs"]
    assert dogs.get_offsets().tolist() == [[0, 0], [2, 2]]
    assert same_color(cats.get_facecolor()[0][:3], figures.SHADES[0])
    assert cats.get_paths()[0].vertices.shape != dogs.get_paths()[0].vertices.shape


def test_dots_have_a_diamond_at_their_mean():
    _, axis = plt.subplots()
    groups = {"first": pd.Series([0.1, 0.3]), "second": pd.Series([0.5])}
    figures.draw_dots(axis, groups, {"first": figures.LOSS, "second": figures.LABELS})
    marks = [marks.get_offsets().tolist() for marks in axis.collections]
    assert marks == [[[0.5, 0]], [[0.5, 0.22]], [[0.1, 1], [0.3, 1]], [[0.2, 1.22]]]
    colours = [marks.get_facecolor()[0, :3] for marks in axis.collections]
    assert same_color(colours[1], figures.LABELS) and same_color(colours[3], figures.LOSS)
    assert [text.get_text() for text in axis.get_yticklabels()] == ["second", "first"]


def test_rows_of_the_papers_have_the_colour_of_their_role():
    labelled = {figures.PALETTE[name] for name in ("AE(D)", "LC(D)", "SNNL 100")}
    assert labelled == {figures.LOSS}
    assert {figures.PALETTE[name] for name in ("Orig.", "AE")} == {figures.NONE}
    for rows in (("Orig.", "AE", "LC(D)", "AE(D)"), ("Baseline", "SNNL 100", "SNNL -100")):
        assert len({figures.MARKERS[name] for name in rows}) == len(rows)


def test_a_class_keeps_its_look_if_others_are_left_out():
    points = pd.DataFrame({"x": [0], "y": [0], "label": [1]})
    _, axis = plt.subplots()
    figures.draw_map(axis, points, ["cats", "dogs"])
    assert same_color(axis.collections[0].get_facecolor()[0][:3], figures.SHADES[1])
