"""The look of the book's figures, and those that several chapters draw. Nothing here trains."""

import numpy as np
import pandas as pd

from snnl_book import require
from snnl_book.report.statistics import LOWER_IS_BETTER, by_unit, interval

# Colours from the Okabe-Ito palette, safe for colour-blind readers, always with a marker of their
# own; rows of different tables share them.
_LOOKS = {
    "Baseline": ("#0072B2", "o"),
    "SNNL 100": ("#E69F00", "s"),
    "SNNL -100": ("#CC79A7", "D"),
    "Orig.": ("#0072B2", "o"),
    "AE": ("#009E73", "s"),
    "LC(D)": ("#E69F00", "D"),
    "AE(D)": ("#CC79A7", "^"),
}
PALETTE = {label: colour for label, (colour, _) in _LOOKS.items()}
MARKERS = {label: marker for label, (_, marker) in _LOOKS.items()}
_OTHERS = [("#0072B2", "o"), ("#E69F00", "s"), ("#009E73", "D"), ("#CC79A7", "^")]
_OTHERS += [("#D55E00", "v"), ("#56B4E9", "P")]  # in turn, of groups that are no rows of a table


def style() -> None:
    """Set the look shared by all figures of the book."""
    require("seaborn")
    import seaborn as sns

    own = {"figure.dpi": 110, "savefig.bbox": "tight", "axes.titlelocation": "left"}
    own["figure.constrained_layout.use"] = True
    sns.set_theme(context="notebook", style="whitegrid", palette="colorblind", rc=own)


def seed_figure(panels: list[tuple[pd.DataFrame, pd.DataFrame, str, str]], title: str):
    """Draw every run as a point, with the 95 % interval of the mean and the paper's mean as a bar.

    One panel for each (records, rows of a ``paper_table``, metric, name of the vertical axis).
    """
    require("matplotlib")
    import matplotlib.pyplot as plt

    columns = {4: 2, 6: 3}.get(len(panels), len(panels))
    rows = len(panels) // columns
    size = (10.2 if columns == 3 else 8.2, 3.4 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=True):
        _draw_seeds(axis, *panel)
    run = {"color": "grey", "linestyle": "", "marker": "o"}
    ours = run | {"marker": "|", "markersize": 12, "markeredgewidth": 2.5}
    looks = {"one of our runs (a cross: collapsed)": run, "95 % interval of our mean": ours}
    looks["the paper's mean"] = {"color": "black", "linewidth": 1.6}
    return _signed(figure, looks, title, 3)


def _draw_seeds(axis, records, paper, metric, name):
    """Draw a panel of ``seed_figure``."""
    records = records[records["metric"] == metric].dropna(subset="value")
    paper = paper[(paper["metric"] == metric) & (paper["statistic"] == "mean")]
    labels = list(dict.fromkeys(paper["label"]))
    for x, label in enumerate(labels):
        ours = records[records["label"] == label]
        colour, runs = PALETTE[label], ours.assign(x=x + np.linspace(-0.16, 0.16, len(ours)))
        for ok, marker in ((True, MARKERS[label]), (False, "x")):
            drawn = runs[(runs["status"] == "ok") == ok]
            axis.scatter(drawn["x"], drawn["value"], color=colour, marker=marker, s=34, alpha=0.8)
        axis.vlines(x + 0.3, *interval(by_unit(ours)), color=colour, linewidth=2.5)
        mean = paper.loc[paper["label"] == label, "value"]
        axis.hlines(mean, x - 0.38, x + 0.38, color="black", linewidth=1.6)
    axis.set_xticks(range(len(labels)), labels, fontsize=11 if len(labels) < 4 else None)
    axis.set_xlim(-0.6, len(labels) - 0.4)
    axis.set_ylabel(name + (" (lower is better)" if metric in LOWER_IS_BETTER else ""))
    if metric == "chs":
        axis.set_yscale("log")


def forest(
    rows: pd.DataFrame, title: str | None = None, xlabel="difference", groups: dict | None = None
):
    """Draw differences as a forest plot: one line each, the first on top, beside a line at zero.

    ``rows`` has the columns ``label``, ``mean``, ``low`` and ``high``, both bounds nan where there
    is no interval (a hollow mark), and may have ``group``, by which colour and marker go, and
    ``paper``, the paper's own value (nan: none): those of ``report.differences``, for instance. A
    mean of nan leaves a line empty. Without a ``title`` it says how many intervals leave out zero.
    ``groups`` maps the groups to their words in the legend, in its order (default: their names; ""
    is left out).
    Raises ValueError if a column is missing, a mean is not within its interval, or a group has no
    words or no colour is left for it.
    """
    require("matplotlib")
    import matplotlib.pyplot as plt

    if lacking := [name for name in ("label", "mean", "low", "high") if name not in rows]:
        raise ValueError(f"a forest plot needs the columns {', '.join(lacking)}")
    rows = pd.DataFrame({"group": "", "paper": np.nan}, index=rows.index).assign(**rows)
    within = rows["mean"].between(rows["low"] - 1e-9, rows["high"] + 1e-9)  # but for rounding
    if len(odd := rows[~within & rows[["low", "high"]].notna().any(axis=1)]):
        raise ValueError(f"the mean of {odd['label'].iloc[0]!r} is not within its interval")
    groups = {name: name for name in rows["group"]} if groups is None else groups
    mark, looks = {"linestyle": "", "markersize": 7, "markeredgewidth": 1.6}, {}
    for name, own in zip(groups, _OTHERS, strict=False):
        looks[name] = mark | dict(zip(("color", "marker"), _LOOKS.get(name, own), strict=True))
    if unknown := [name for name in rows["group"] if name not in looks]:
        raise ValueError(f"no words or no colour for the group {unknown[0]!r}")
    hollow, theirs = {"markerfacecolor": "white"}, mark | {"color": "black", "marker": "|"}
    figure, axis = plt.subplots(figsize=(8.2, 0.27 * len(rows) + 1.5), layout="constrained")
    axis.axvline(0, color="black", linewidth=1.2, zorder=1)
    for y, row in enumerate(rows.itertuples()):
        axis.hlines(y, row.low, row.high, color=looks[row.group]["color"], linewidth=2.4)
        axis.plot(row.mean, y, **looks[row.group] | ({} if within.iloc[y] else hollow))
        axis.plot(row.paper, y, **theirs | {"markersize": 13})
    axis.set_yticks(range(len(rows)), rows["label"], fontsize=9)
    axis.set(xlabel=xlabel, ylim=(len(rows) - 0.4, -0.6))
    signs = {groups[name]: look for name, look in looks.items() if name}
    if (rows["mean"].notna() & ~within).any():
        signs["no interval"] = mark | hollow | {"color": "grey", "marker": "o"}
    signs |= {"the paper": theirs} if rows["paper"].notna().any() else {}
    clear = ((rows["low"] > 0) | (rows["high"] < 0)).sum()
    said = f"The intervals of {clear} of {len(rows)} differences leave out zero"
    return _signed(figure, signs, said if title is None else title)


def method_figure(panels: dict[str, pd.DataFrame], kinds: dict[str, str], title: str):
    """Draw the clustering accuracy of methods: the best mean on top, every run a point.

    ``panels`` are records of that metric by the title of their panel, with a column ``kind``, one
    of ``kinds`` (with its words in the legend), by which colour and marker go, and maybe ``paper``,
    the value reported. The mean and its 95 % interval, which stands above the points, are those of
    units (``statistics.by_unit``), as in the tables.
    """
    require("matplotlib")
    import matplotlib.pyplot as plt

    looks = dict(zip(kinds, [("#E69F00", "o"), ("#0072B2", "s"), ("#009E73", "^")], strict=False))
    lines = max((runs["label"].nunique() for runs in panels.values()), default=0)
    figure, axes = plt.subplots(1, len(panels), figsize=(9.8, 0.26 * lines + 1.9), squeeze=False)
    for axis, (name, runs) in zip(axes.flat, panels.items(), strict=True):
        centres = {label: by_unit(own).mean() for label, own in runs.groupby("label")}
        order = sorted(centres, key=centres.get)
        for y, label in enumerate(order):
            own = runs[runs["label"] == label]
            colour, marker = looks[own["kind"].iloc[0]]
            axis.scatter(own["value"], [y] * len(own), color=colour, marker=marker, alpha=0.7, s=26)
            axis.hlines(y + 0.28, *interval(by_unit(own)), color=colour, linewidth=2)
            if "paper" in own:
                axis.plot(own["paper"].iloc[0], y, "|k", markersize=13, markeredgewidth=2)
        axis.set_yticks(range(len(order)), order, fontsize=8.5)
        axis.set(xlabel="clustering accuracy", title=name)
    signs = {kinds[kind]: look for kind, look in looks.items()}
    if any("paper" in runs for runs in panels.values()):
        signs["reported"] = ("black", "|")
    signs = {said: {"color": c, "marker": m, "linestyle": ""} for said, (c, m) in signs.items()}
    return _signed(figure, signs, title)


def _signed(figure, signs, title, columns=4):
    """Set a title above a figure, and below it the words of its legend with their looks."""
    import matplotlib.pyplot as plt

    handles = [plt.Line2D([], [], **look, label=label) for label, look in signs.items()]
    below = {"loc": "outside lower center", "ncols": columns, "fontsize": 9, "frameon": False}
    figure.legend(handles=handles, **below)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def draw_means(axis, runs: pd.DataFrame, by: str, **look) -> None:
    """Draw the mean of runs over a column of theirs, with a band for its 95 % interval."""
    grouped = runs.groupby(by)["value"]
    axis.plot(grouped.mean(), **look)
    ends = np.array([interval(values) for _, values in grouped]).reshape(-1, 2)
    axis.fill_between(grouped.mean().index, *ends.T, color=look["color"], alpha=0.18, linewidth=0)


def draw_label_curves(axis, runs: pd.DataFrame, lines: dict[str, tuple], title: str) -> None:
    """Draw accuracy against the number of labels, and the best mean without any as a dotted line.

    Args:
        runs: those of ``findings.uses_of_labels``.
        lines: method -> (words in the legend, colour, marker, line style).
    """
    for method, (words, colour, marker, style) in lines.items():
        drawn = runs[(runs["method"] == method) & (runs["labels"] > 0)]
        look = {"color": colour, "marker": marker, "linestyle": style}
        draw_means(axis, drawn, "labels", label=words, **look)
    unlabelled = runs[runs["labels"] == 0].groupby("method")["value"].mean()
    axis.axhline(unlabelled.max(), color="black", linestyle=":", label="the best without labels")
    sizes = sorted(set(runs["labels"]) - {0})
    axis.set(xscale="log", xlabel="labels", ylabel="accuracy", title=title)
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8, rotation=30)
    axis.minorticks_off()


SHADES = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]
SHADES += ["#999933", "#000000", "#8C8C8C", "#661100"]


def draw_map(axis, points: pd.DataFrame, classes: list[str], size: float = 7) -> None:
    """Draw points (``x``, ``y``, ``label``) by class, each with a colour and shape of its own."""
    for place, (label, own) in enumerate(points.groupby("label")):
        look = {"color": SHADES[place % 10], "marker": "osD^vPX<>d"[place % 10], "s": size}
        axis.scatter(own["x"], own["y"], label=classes[label], linewidth=0, alpha=0.75, **look)
    axis.set(xticks=[], yticks=[])
