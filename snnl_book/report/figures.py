"""The look of the book's figures, and those that several chapters draw. Nothing here trains."""

import math

import numpy as np
import pandas as pd

from snnl_book import require
from snnl_book.paper.declared import LOWER_IS_BETTER
from snnl_book.report.statistics import by_unit, interval, within_range

# One palette for the whole book. A method has the colour of its role, and variants or rivals of the
# same role have another shade, marker or line. Colour-blind readers can distinguish the roles (of
# the Okabe-Ito palette) by colour, and all else by lightness and shape.
LOSS, LOSS_2 = "#E69F00", "#D55E00"  # trained with labels and the loss
LABELS, LABELS_2, LABELS_3 = "#009E73", "#5FC3A5", "#004D3A"  # labels, but not the loss
NONE, NONE_2 = "#0072B2", "#56B4E9"  # no labels
AGAINST = "#CC79A7"  # labels, and the loss with a negative weight
NEUTRAL = ["#444444", "#882E72", "#999999", "#CC79A7", "#8C6D31", "#000000"]  # no method
_ROLES = {"loss": (LOSS, "o"), "labels": (LABELS, "^"), "none": (NONE, "s")}
_LOOKS = {  # of rows in the tables of the papers
    "Baseline": (LABELS, "^"),
    "SNNL 100": (LOSS, "o"),
    "SNNL -100": (AGAINST, "D"),
    "Orig.": (NONE, "s"),
    "AE": (NONE, "P"),
    "LC(D)": (LOSS, "D"),
    "AE(D)": (LOSS, "o"),
}
PALETTE = {label: colour for label, (colour, _) in _LOOKS.items()}
MARKERS = {label: marker for label, (_, marker) in _LOOKS.items()}
_LOOKS_OF_GROUPS = list(zip(NEUTRAL, "osD^vP", strict=True))  # for groups that are no such rows
# The colours of classes, which have shapes too, in the order of the classes.
SHADES = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]
SHADES += ["#999933", "#000000", "#8C8C8C", "#661100"]


def class_look(number: int) -> dict[str, str]:
    """Return the colour and the marker of a class, the same in all figures.

    >>> class_look(1)
    {'color': '#E69F00', 'marker': 's'}
    """
    return {"color": SHADES[number % 10], "marker": "osD^vPX<>d"[number % 10]}


def style() -> None:
    """Set the look shared by all figures of the book."""
    require("seaborn")
    import seaborn as sns

    settings = {
        "figure.dpi": 110,
        "savefig.bbox": "tight",
        "axes.titlelocation": "left",
        "figure.constrained_layout.use": True,
    }
    sns.set_theme(context="notebook", style="whitegrid", palette="colorblind", rc=settings)


def seed_figure(panels: list[tuple[pd.DataFrame, pd.DataFrame, str, str]], title: str):
    """Draw every run as a point, with the 95 % interval of the mean and the paper's mean as a bar.

    One panel for each (records, rows of a ``paper_table``, metric, name of the vertical axis).
    """
    require("matplotlib")
    import matplotlib.pyplot as plt

    columns = 1 if len(panels) == 1 else 2
    rows = math.ceil(len(panels) / columns)
    size = (6.4, 2.6 * rows + 0.6)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        _draw_seeds(axis, *panel)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    run = {"color": "grey", "linestyle": "", "marker": "o"}
    ours = run | {"marker": "|", "markersize": 12, "markeredgewidth": 2.5}
    collapsed = any((records["status"] == "collapsed").any() for records, *_ in panels)
    looks = {
        "one of our runs" + " (a cross: collapsed)" * collapsed: run,
        "95 % interval for our mean": ours,
        "the paper's mean": {"color": "black", "linewidth": 1.6},
    }
    return _with_legend(figure, looks, title, 2)


def _draw_seeds(axis, records, paper, metric, name):
    """Draw a panel of ``seed_figure``."""
    records = records[records["metric"] == metric].dropna(subset="value")
    paper = paper[(paper["metric"] == metric) & (paper["statistic"] == "mean")]
    labels = list(dict.fromkeys(paper["label"]))
    for x, label in enumerate(labels):
        ours = records[records["label"] == label]
        colour = PALETTE[label]
        runs = ours.assign(x=x + np.linspace(-0.16, 0.16, len(ours)))
        for ok, marker in ((True, MARKERS[label]), (False, "x")):
            drawn = runs[(runs["status"] == "ok") == ok]
            axis.scatter(drawn["x"], drawn["value"], color=colour, marker=marker, s=34, alpha=0.8)
        ends = within_range(*interval(by_unit(ours)), metric)
        axis.vlines(x + 0.3, *ends, color=colour, linewidth=2.5)
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
    """Draw differences as a forest plot: one line each, the first on top, and a line at zero.

    Args:
        rows: a frame with the columns ``label``, ``mean``, ``low`` and ``high``, such as that of
            ``report.differences``. Both bounds are nan where there is no interval (a hollow mark),
            and a mean of nan leaves a line empty: a heading, if its label ends with a colon. The
            column ``group`` sets colour and marker, and ``paper`` is the paper's own value (nan:
            none); both may be missing.
        title: by default it is the number of intervals that leave out zero.
        groups: the words of each group in the legend, in its order (default: the groups' names).
            The group "" has no entry in the legend.

    Raises ValueError if a column is missing, a mean is not within its interval, or a group has no
    words or no colour.
    """
    require("matplotlib")
    import matplotlib.pyplot as plt

    rows, has_interval = _checked_differences(rows)
    groups = {name: name for name in rows["group"]} if groups is None else groups
    looks = _looks_of(groups)
    if unknown := [name for name in rows["group"] if name not in looks]:
        problem = f"the group {unknown[0]!r} has no words or no colour"
        raise ValueError(f"{problem}: name it in groups (at most {len(_LOOKS_OF_GROUPS)})")
    hollow = {"markerfacecolor": "white"}
    look_of_paper = _MARK | {"color": "black", "marker": "|"}
    figure, axis = plt.subplots(figsize=(6, 0.31 * len(rows) + 1.7), layout="constrained")
    axis.axvline(0, color="black", linewidth=1.2, zorder=1)
    for y, row in enumerate(rows.itertuples()):
        axis.hlines(y, row.low, row.high, color=looks[row.group]["color"], linewidth=2.4)
        axis.plot(row.mean, y, **looks[row.group] | ({} if has_interval.iloc[y] else hollow))
        axis.plot(row.paper, y, **look_of_paper | {"markersize": 13})
    axis.set_yticks(range(len(rows)), rows["label"], fontsize=10.5)
    for words in axis.get_yticklabels():
        words.set_weight("bold" if words.get_text().endswith(":") else "normal")
    axis.set(ylim=(len(rows) - 0.4, -0.6))
    axis.set_xlabel(xlabel, fontsize=11)
    legend = {groups[name]: look for name, look in looks.items() if name}
    if (rows["mean"].notna() & ~has_interval).any():
        legend["no interval"] = _MARK | hollow | {"color": "grey", "marker": "o"}
    if rows["paper"].notna().any():
        legend["the paper"] = look_of_paper
    if title is None:
        clear = ((rows["low"] > 0) | (rows["high"] < 0)).sum()
        title = f"The intervals of {clear} of {len(rows)} differences leave out zero"
    return _with_legend(figure, legend, title, 2)


_MARK = {"linestyle": "", "markersize": 7, "markeredgewidth": 1.6}


def _checked_differences(rows):
    """Return the rows of a forest plot with all columns, and which have an interval, bool [N]."""
    if missing := [name for name in ("label", "mean", "low", "high") if name not in rows]:
        raise ValueError(f"a forest plot needs the columns {', '.join(missing)}: add them to rows")
    rows = pd.DataFrame({"group": "", "paper": np.nan}, index=rows.index).assign(**rows)
    is_within = rows["mean"].between(rows["low"] - 1e-9, rows["high"] + 1e-9)  # apart from rounding
    wrong = rows[~is_within & rows[["low", "high"]].notna().any(axis=1)]
    if len(wrong):
        row = wrong.iloc[0]
        interval_text = f"{row['low']} to {row['high']}"
        problem = f"the mean of {row['label']!r} is not within its interval ({interval_text})"
        raise ValueError(f"{problem}, got {row['mean']}")
    return rows, is_within


def _looks_of(groups):
    """Return the look of each group: that of its row in a table, or the next free one."""
    looks = {}
    for name, next_look in zip(groups, _LOOKS_OF_GROUPS, strict=False):
        colour, marker = _LOOKS.get(name, next_look)
        looks[name] = _MARK | {"color": colour, "marker": marker}
    return looks


def method_figure(panels: dict[str, pd.DataFrame], kinds: dict[str, str], title: str):
    """Draw the clustering accuracy of methods: the best mean on top, every run a point.

    ``panels`` are records of that metric by the title of their panel. Their column ``kind`` is the
    role of a method ("loss", "labels" or "none") and sets colour and marker, ``kinds`` has the
    words of each role in the legend, and the column ``paper``, which may be missing, is the
    reported value. Mean and 95 % interval, drawn above the points, are
    those of units (``statistics.by_unit``), as in the tables.
    """
    require("matplotlib")
    import matplotlib.pyplot as plt

    looks = {kind: _ROLES[kind] for kind in kinds}
    lines = max((runs["label"].nunique() for runs in panels.values()), default=0)
    single = len(panels) == 1  # narrow and with large letters, so that a phone shows it
    size = (6.4, 0.33 * lines + 1.5) if single else (9.8, 0.26 * lines + 1.9)
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False)
    for axis, (name, runs) in zip(axes.flat, panels.items(), strict=True):
        means = {label: by_unit(of_label).mean() for label, of_label in runs.groupby("label")}
        order = sorted(means, key=means.get)
        for y, label in enumerate(order):
            row = runs[runs["label"] == label]
            colour, marker = looks[row["kind"].iloc[0]]
            axis.scatter(row["value"], [y] * len(row), color=colour, marker=marker, alpha=0.7, s=26)
            axis.hlines(y + 0.28, *interval(by_unit(row)), color=colour, linewidth=2)
            if "paper" in row:
                axis.plot(row["paper"].iloc[0], y, "|k", markersize=13, markeredgewidth=2)
        axis.set_yticks(range(len(order)), order, fontsize=11 if single else 8.5)
        axis.set(xlabel="clustering accuracy", title=name)
    signs = {kinds[kind]: look for kind, look in looks.items()}
    if any("paper" in runs for runs in panels.values()):
        signs["reported"] = ("black", "|")
    legend = {
        words: {"color": colour, "marker": marker, "linestyle": ""}
        for words, (colour, marker) in signs.items()
    }
    return _with_legend(figure, legend, title)


def _with_legend(figure, legend, title, columns=4):
    """Return a figure with a title above it, and below it a legend: words -> their look."""
    import matplotlib.pyplot as plt

    handles = [plt.Line2D([], [], **look, label=label) for label, look in legend.items()]
    below = {"loc": "outside lower center", "ncols": columns, "fontsize": 9, "frameon": False}
    figure.legend(handles=handles, **below)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def draw_means(axis, runs: pd.DataFrame, by: str, **look) -> None:
    """Draw the mean of runs over their column ``by``, with a band for its 95 % interval."""
    grouped = runs.groupby(by)["value"]
    axis.plot(grouped.mean(), **look)
    ends = np.array([interval(values) for _, values in grouped]).reshape(-1, 2)
    axis.fill_between(grouped.mean().index, *ends.T, color=look["color"], alpha=0.18, linewidth=0)


def draw_dots(axis, groups: dict[str, pd.Series], colours: str | dict[str, str] = NONE) -> None:
    """Draw one line per group, the first on top: its values as dots, their mean a diamond above.

    ``colours`` is one colour for all groups, or that of each group.

    >>> import matplotlib.pyplot as plt
    >>> axis = plt.figure().add_subplot()
    >>> draw_dots(axis, {"a": pd.Series([1.0, 3.0]), "b": pd.Series([2.0])})
    >>> [label.get_text() for label in axis.get_yticklabels()]
    ['b', 'a']
    """
    names = [*reversed(groups)]
    for y, name in enumerate(names):
        colour = colours if isinstance(colours, str) else colours[name]
        axis.scatter(groups[name], [y] * len(groups[name]), color=colour, s=20, alpha=0.6)
        look = {"color": colour, "edgecolor": "black", "marker": "D", "s": 46, "zorder": 3}
        axis.scatter(groups[name].mean(), y + 0.22, **look)
    axis.set_yticks(range(len(names)), names, fontsize=11)
    axis.set_ylim(-0.5, len(names) - 0.5)


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
    axis.axhline(
        unlabelled.max(), color="black", linestyle=":", label="best without labels, same inputs"
    )
    sizes = sorted(set(runs["labels"]) - {0})
    axis.set(xscale="log", xlabel="labels", ylabel="accuracy", title=title)
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8, rotation=30)
    axis.minorticks_off()


def error_figure(count: pd.Series, shared: pd.DataFrame, title: str):
    """Draw how many methods are wrong about a document, and how far their errors agree.

    ``count`` has one number of methods per document, and ``shared`` is what ``findings.agreement``
    returned.
    """
    require("matplotlib")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 1, figsize=(6.4, 7.6), height_ratios=[1, 2])
    numbers, documents = np.unique(count, return_counts=True)
    axes[0].plot(numbers, documents, "o", color=NEUTRAL[0], markersize=8)
    axes[0].set(xlabel="methods that are wrong", ylabel="test documents", yscale="log")
    axes[0].set_xticks(range(len(shared) + 1))
    axes[0].set_yticks([100, 1000, 5000], ["100", "1,000", "5,000"])
    axes[0].minorticks_off()
    drawn = axes[1].imshow(shared, cmap="Blues", vmin=0, vmax=1)
    names = [f"{name} ({number})" for number, name in enumerate(shared, start=1)]
    axes[1].set_yticks(range(len(names)), names, fontsize=11)
    axes[1].set_xticks(range(len(names)), range(1, len(names) + 1), fontsize=11)
    axes[1].grid(visible=False)
    bar = {"location": "bottom", "aspect": 40, "label": "share of errors in common"}
    figure.colorbar(drawn, ax=axes[1], **bar)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def draw_map(axis, points: pd.DataFrame, classes: list[str], size: float = 7) -> None:
    """Draw points (``x``, ``y``, ``label``), with one colour and shape for each class."""
    for label, group in points.groupby("label"):
        look = class_look(int(label)) | {"s": size, "linewidth": 0, "alpha": 0.75}
        axis.scatter(group["x"], group["y"], label=classes[label], **look)
    axis.set(xticks=[], yticks=[])


def draw_words(axis, points: pd.DataFrame, texts: list[str]) -> None:
    """Draw words (``x``, ``y``, ``label``: 1 if positive, ``row``) as dots, a few of them by name.

    ``texts`` has the word of each row, empty if it is not to be printed; the first three words
    of each polarity that have one are written, away from the dots.
    """
    require("adjustText")
    from adjustText import adjust_text
    from matplotlib import patheffects

    outline = patheffects.withStroke(linewidth=2, foreground="white")
    labels = []
    for label, own in points.groupby("label"):
        polarity, dot = ("positive", "o") if label else ("negative", "^")
        colour = NEUTRAL[0] if label else NEUTRAL[1]
        axis.scatter(own["x"], own["y"], s=16, color=colour, marker=dot, label=polarity)
        shown = [word for word in own.itertuples() if texts[word.row]][:3]
        look = {"fontsize": 10, "color": colour, "path_effects": [outline]}
        labels += [axis.text(word.x, word.y, texts[word.row], **look) for word in shown]
    axis.margins(x=0.55, y=0.12)  # room for the words
    if labels:
        axis.figure.draw_without_rendering()  # gives the axes their size
        adjust_text(
            labels,
            points["x"].to_numpy(),
            points["y"].to_numpy(),
            ax=axis,
            expand=(1.5, 1.8),
            force_static=(0.4, 0.5),
            force_text=(0.8, 1.0),
            force_explode=(0.3, 0.5),
            max_move=60,
            iter_lim=500,
            arrowprops={"arrowstyle": "-", "color": "0.4"},
        )
    axis.set(xticks=[], yticks=[])
