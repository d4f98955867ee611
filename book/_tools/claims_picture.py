"""The picture of all claims: the result of each comparison, as an SVG with links to chapters."""

import io
import re
import textwrap

import matplotlib as mpl
import numpy as np
import pandas as pd

from snnl_book.report import claims, figures
from snnl_book.report.contrasts import FRACTIONS, base

PAPERS = {"text": "text paper", "image": "image paper", "ClusterBERT": "ClusterBERT"}
_SIGNS = {"holds": ("#0072B2", "o"), "fails": ("#D55E00", "X"), "open": ("#767676", "|")}
_SPAN = 45  # points to either side that the picture of all claims shows


def figure_of(judged: pd.DataFrame, links: dict[str, str]):
    """Draw claims: a line for each, with its comparisons and the verdict.

    ``judged`` are rows of ``claims.judge``. Comparisons of fractions are drawn with mean and 95 %
    interval in points, or with their distance from the paper's number. Colour and mark are those of
    the comparison's verdict; a triangle is beyond the edge. ``links`` are addresses by chapter, for
    the names of claims in an SVG.
    """
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(9, 0.37 * len(judged) + 1.8))
    axis.axvline(0, color="black", linewidth=1)
    for y, claim in enumerate(judged.itertuples()):
        _draw_contrasts(axis, y, claim.contrasts)
        axis.text(_SPAN + 3, y, claim.kind, va="center", fontsize=10)
    for paper, is_first in (~judged["paper"].duplicated()).groupby(judged["paper"]):
        y = is_first.to_numpy().argmax() + judged.index.get_loc(is_first.index[0])
        axis.axhline(y - 0.5, color="black", linewidth=0.8)
        axis.text(1 - _SPAN, y - 0.15, PAPERS[paper], fontsize=10, weight="bold", va="center")
    names = [textwrap.fill(claim, 50, break_on_hyphens=False) for claim in judged["claim"]]
    axis.set_yticks(range(len(judged)), names, fontsize=10, linespacing=0.95, ha="left")
    axis.tick_params(axis="y", pad=240)
    for tick, chapter in zip(axis.get_yticklabels(), judged["chapter"], strict=True):
        tick.set_url(links.get(chapter))
    axis.set(xlim=(-_SPAN - 1, _SPAN + 1), ylim=(len(judged) - 0.4, -0.6))
    below = "points: right of 0 as claimed; for a number, the distance from the paper's"
    axis.set_xlabel(below, fontsize=10)
    axis.text(_SPAN + 3, -1.1, "verdict", fontsize=10, weight="bold")
    handles = [
        plt.Line2D([], [], color=colour, marker=mark, label=label)
        for label, (colour, mark) in _SIGNS.items()
    ]
    below = (0, -2 / len(judged))  # the axis' label takes two lines of claims
    axis.legend(handles=handles, loc="upper left", bbox_to_anchor=below, ncols=3, fontsize=10)
    return figure


def _draw_contrasts(axis, y, contrasts):
    """Draw the comparisons of a claim that are differences of fractions, close to the height y."""
    drawn = [
        contrast
        for contrast in contrasts
        if base(contrast["metric"]) in FRACTIONS
        and contrast["units"]
        and contrast["direction"] in _SIGNS
    ]
    for number, contrast in enumerate(drawn):
        colour, mark = _SIGNS[contrast["direction"]]
        level = contrast["value"] if contrast["test"].startswith(("= v", "at least v")) else 0
        mean, low, high = (100 * (contrast[name] - level) for name in ("mean", "low", "high"))
        height = y + 0.5 * (number + 0.5) / len(drawn) - 0.25
        axis.hlines(height, max(low, -_SPAN), min(high, _SPAN), color=colour, linewidth=1.4)
        if abs(mean) > _SPAN:
            mark = ">" if mean > 0 else "<"
        axis.plot(np.clip(mean, -_SPAN, _SPAN), height, mark, color=colour, markersize=4.5)


def svg_of(judged: pd.DataFrame, links: dict[str, str]) -> str:
    """Return the picture as an SVG element as wide as its page, with an alternative text."""
    import matplotlib.pyplot as plt

    verdicts = claims.in_short(judged)
    alt = f"All {len(judged)} claims with the differences found and their intervals: {verdicts}."
    file = io.StringIO()
    with mpl.rc_context():
        figures.style()
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "claims"})
        drawn = figure_of(judged, links)
        drawn.savefig(file, format="svg", metadata={"Date": None})
        plt.close(drawn)
    svg = file.getvalue()[file.getvalue().index("<svg") :]
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace(' target="_blank"', "")  # a link within the book
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg", '<svg role="group"', 1)
    title = re.search(r"<svg[^>]*>", svg)[0]
    svg = svg.replace(title, f"{title}<title>{alt}</title>", 1)
    scrolls = 'tabindex="0" role="region" aria-label="Picture of all claims"'  # on a phone
    return f'<div class="claims-picture" {scrolls}>{svg}</div>'
