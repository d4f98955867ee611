"""Differences in words: "0.015 below LDA (95 % interval 0.035 below to 0.004 above)"."""

from collections.abc import Sequence

import numpy as np

from snnl_book.report.tables import show_number

_COUNTS = "none one two three four five six seven eight nine".split()
SIZES = {
    "as reported": "an effect that agrees with the paper's, if its runs vary as much as ours",
    "smaller": "so an effect as large as the paper's is ruled out",
    "larger": "a larger effect than the paper reports",
    "opposite": "the opposite of what the paper reports",
    "not resolved": "but the interval is too wide to confirm or exclude the paper's effect",
    "": "and the paper reports no number for it",
}
"""What the size of a comparison under rule 3 means, as the end of a sentence."""


def in_words(count: int) -> str:
    """Spell a count as sentences do: "none", "one" to "nine", then digits.

    >>> in_words(0), in_words(3), in_words(12)
    ('none', 'three', '12')
    """
    return _COUNTS[count] if count < len(_COUNTS) else f"{count:,}"


def seeds_in_words(counts: Sequence[int]) -> str:
    """Return how many seeds there are, for captions.

    >>> seeds_in_words([2, 2]), seeds_in_words([1]), seeds_in_words([3, 5])
    ('two seeds', 'one seed', '3 to 5 seeds')
    """
    ends = sorted({int(count) for count in counts}) or [0]
    several = f"{ends[0]} to {ends[-1]} seeds"
    return several if len(ends) > 1 else f"{in_words(ends[0])} seed{'s' * (ends[0] != 1)}"


def listing(words: Sequence[str], conjunction: str = "and") -> str:
    """Join words as a sentence does.

    >>> listing(["red"]), listing(["red", "blue", "green"])
    ('red', 'red, blue and green')
    """
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def distance(value: float, metric: str = "acc") -> str:
    """Say how far above or below something a score is; a missing value is not known.

    >>> distance(-0.0151), distance(0.2), distance(0.0001)
    ('0.015 below', '0.200 above', 'level with')
    >>> distance(float("nan"))
    'at an unknown distance from'
    """
    if not np.isfinite(value):
        return "at an unknown distance from"
    side = _side(value, metric)
    return f"{show_number(abs(value), metric)} {side}" if side else "level with"


def spread(low: float, high: float, metric: str = "acc") -> str:
    """Say from where to where the interval of a difference goes.

    >>> spread(-0.035, 0.004), spread(-0.052, -0.026), spread(-0.01, 0.0)
    ('0.035 below to 0.004 above', '0.026 to 0.052 below', '0.010 below to 0')
    >>> spread(float("nan"), float("nan"))
    'unknown'
    """
    if not np.isfinite([low, high]).all():
        return "unknown"
    if _side(low, metric) == _side(high, metric) != "":
        near, far = sorted([abs(low), abs(high)])
        return f"{show_number(near, metric)} to {distance(low if low < 0 else far, metric)}"
    ends = [distance(end, metric).replace("level with", "0") for end in (low, high)]
    return " to ".join(ends)


def apart(row, rival: str, metric: str = "acc") -> str:
    """Say how far above or below a rival something scores, with the 95 % interval.

    ``row`` has ``mean``, ``low`` and ``high``, as rows of ``report.differences`` do; a mean of nan
    means that no run of both is recorded.

    >>> apart({"mean": -0.015, "low": -0.035, "high": 0.004}, "LDA")
    '0.015 below LDA (95 % interval 0.035 below to 0.004 above)'
    """
    if not np.isfinite(row["mean"]):
        return f"{distance(row['mean'], metric)} {rival} (no recorded runs of both)"
    interval = ""
    if np.isfinite(row["low"]):
        interval = f" (95 % interval {spread(row['low'], row['high'], metric)})"
    return f"{distance(row['mean'], metric)} {rival}{interval}"


def _side(value, metric):
    """Return "above" or "below" zero, or nothing for what is shown as zero."""
    shown = float(show_number(abs(value), metric).replace(",", ""))
    return ("above" if value > 0 else "below") if shown else ""


def over_seeds_alone(rows) -> str:
    """Say in a caption which intervals of ``report.differences`` ignore the choice of test data.

    Empty if none does. ``rows`` has the columns ``low`` and ``documents``.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"low": [0.1, 0.2, None], "documents": [True, False, False]})
    >>> over_seeds_alone(rows)
    ' One of the two intervals covers the choice of seeds, but not of test data.'
    >>> over_seeds_alone(rows.tail(2))
    ' The intervals cover the choice of seeds, but not of test data.'
    """
    rows = rows[rows["low"].notna()]
    alone = len(rows) - int(rows["documents"].sum())
    if not alone:
        return ""
    of_all = f"{in_words(alone)} of the {in_words(len(rows))} intervals cover{'s' * (alone == 1)}"
    which = "the intervals cover" if alone == len(rows) else of_all
    return f" {which[0].upper()}{which[1:]} the choice of seeds, but not of test data."
