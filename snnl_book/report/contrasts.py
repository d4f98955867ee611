"""Rule 3 for one comparison, in plain numbers: an interval, a direction, a size.

The book's page of claims prints the rule; the words here are its words.
"""

import math
import re
from typing import NamedTuple

import numpy as np
from scipy import stats

POINTS = 0.015  # the margin of "as": 1.5 points of a fraction
SHARE = 0.10  # the same of scores that are not fractions: 10 %
SLIM = (0.03, 0.20)  # the most of "marginal": in points, or as a share
WIDE = (0.05, 0.20)  # the least of "sharply": in points, or as a share
HALF_WIDTH = (0.03, 0.20)  # the widest interval with which a number holds
FEWEST = 3  # units that decide something
FLAT = 1e-6  # a spread below which, relative to numbers of size 1, nothing varies
INTERNAL = {"sil", "dbi", "chs", "dunn"}
"""Scores of points and clusters without classes: they compare clusterings of the same points."""
FRACTIONS = {*"acc f1_micro f1_macro nmi nmi_geometric ari sil map mrr neighbours".split()}


def base(metric: str) -> str:
    """Return the score that a metric is one of: without epoch, stage and part.

    >>> base("nmi_geometric_3"), base("neighbours@20"), base("hidden1_normalized_acc")
    ('nmi_geometric', 'neighbours', 'acc')
    >>> base("hidden1_normalized_nmi"), base("hidden2_neighbours_acc"), base("kmeans_ari")
    ('nmi', 'acc', 'ari')
    """
    part = r"head|train|test|held|pretrained|predictions|kmeans"
    part += r"|hidden\d(_normalized)?(_neighbours)?"
    return re.sub(rf"^({part})_|(_\d|@\d+)$", "", metric)


class Estimate(NamedTuple):
    """The mean of some units and its 95 % interval, nan where there is none.

    ``p`` is the two-sided p-value of a mean of 0 that belongs to the interval. ``spread`` is the
    standard deviation between units. ``flat`` is True if nothing varies, so that the interval is no
    evidence.
    """

    mean: float
    low: float
    high: float
    units: int
    p: float
    spread: float = math.nan
    flat: bool = False

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def estimate(values, documents: float = 0.0) -> Estimate:
    """Estimate a mean with its 95 % interval over new units and new documents.

    Args:
        values: the values of the units.
        documents: the half-width that the documents alone give (``documents.half_width``).

    >>> ours = estimate([0.1, 0.2, 0.3])
    >>> round(ours.low, 3), round(ours.high, 3), round(ours.p, 3)
    (-0.048, 0.448, 0.074)
    >>> round(estimate([0.1, 0.2, 0.3], documents=0.1).high, 3)
    0.468
    """
    values = np.asarray(values, dtype=float)
    count = len(values)
    mean = float(values.mean()) if count else math.nan
    if count < 2:
        return Estimate(mean, math.nan, math.nan, count, math.nan)
    spread = float(values.std(ddof=1))
    t = float(stats.t.ppf(0.975, count - 1))
    half = math.hypot(t * spread / math.sqrt(count), documents)
    flat = spread < FLAT * max(1.0, abs(mean)) and not documents
    p = float(2 * stats.t.sf(abs(mean) * t / half, count - 1)) if half else math.nan
    return Estimate(mean, mean - half, mean + half, count, p, spread, flat)


NOTHING = estimate([])


def best_of(values, n: int) -> np.ndarray:
    """Turn runs into jackknife pseudo-values of the mean best over all subsets of ``n`` of them.

    Their mean is that mean best, and their spread its uncertainty. Of exactly ``n`` runs only the
    best is returned, because it has no spread. Of fewer runs an empty array is returned.

    >>> best_of([0.1, 0.2, 0.3], 2).mean().round(4)  # of 0.2, 0.3 and 0.3
    np.float64(0.2667)
    """
    values = np.asarray(values, dtype=float)
    count = len(values)
    if count <= n:
        return np.array([values.max()] if count == n else [])
    without = [_mean_best(np.delete(values, run), n) for run in range(count)]
    return count * _mean_best(values, n) - (count - 1) * np.array(without)


def best_weights(values, n: int) -> np.ndarray:
    """Return the weight of each run in the mean best over all subsets of ``n`` of them.

    >>> best_weights([0.3, 0.1, 0.2], 2).round(4)
    array([0.6667, 0.    , 0.3333])
    """
    values = np.asarray(values, dtype=float)
    # The run with r lower ones is the best of as many subsets as n - 1 of these r can form.
    subsets = [math.comb(lower, n - 1) for lower in range(len(values))]
    weights = np.empty(len(values))
    weights[np.argsort(values, kind="stable")] = subsets
    return weights / math.comb(len(values), n)


def _mean_best(values, n):
    return float(np.dot(best_weights(values, n), values))


def direction(
    ours: Estimate,
    test: str,
    words: str = "",
    fraction: bool = True,
    scale: float = math.nan,
    value: float = 0.0,
) -> str:
    """Return whether a comparison ``holds``, ``fails`` or is ``open``.

    Args:
        ours: the mean over units and its interval.
        test, words: as declared: "> 0", "within", "= v" or "at least v".
        fraction: whether the score is a fraction, so that points mean something.
        scale: what a share is taken of: the mean of the rivals, or the value.
        value: the number of "= v" and "at least v".

    >>> direction(estimate([0.1, 0.11, 0.12]), "> 0", "sharply")
    'holds'
    """
    if ours.units < FEWEST or ours.flat or math.isnan(ours.low):
        return "open"

    def limit(points, share):
        return points if fraction else share * abs(scale)

    low, high = ours.low - value, ours.high - value
    margin = limit(POINTS, SHARE)
    if test == "= v":
        is_near = abs(ours.mean - value) <= margin
        holds = is_near and ours.half <= limit(*HALF_WIDTH)
        fails = not is_near and (low > 0 or high < 0)
    elif words == "on par":  # at least the value, apart from the margin
        holds, fails = low >= -margin, high < -margin
    elif words in ("marginal", "slim"):
        most = limit(*SLIM)
        holds, fails = low > 0 and high < most, high < 0 or low > most
    elif words:  # sharply, by a wide margin
        least = WIDE[1] * abs(scale)
        if fraction:  # whichever is easier
            least = np.nanmin([WIDE[0], least])
        holds, fails = low >= least, high < least
    elif test == "within":
        holds, fails = -margin < low and high < margin, low > margin or high < -margin
    elif test == "at least v":
        holds, fails = low >= 0, high < 0
    else:
        holds, fails = low > 0, high < 0
    return "holds" if holds else "fails" if fails else "open"


def size(ours: Estimate, reported: float, runs: int) -> str:
    """Compare the size of a difference with the one that a paper reports.

    The paper's number is noisy too. We take its noise from its number of runs, and from our own
    deviation between units. Returns ``as reported``, ``not resolved`` (our interval reaches the
    paper's number, and is too wide to distinguish that from 0), ``opposite``, ``smaller`` or
    ``larger``. Returns an empty text if there are too few units, or the paper reports no
    difference.

    Args:
        ours: our difference.
        reported: the paper's difference, with the same sign convention.
        runs: how many runs the paper's number is a mean of.

    >>> ours = estimate([0.011, 0.012, 0.013])
    >>> size(ours, 0.012, runs=5), size(ours, 0.05, runs=5), size(ours, -0.05, runs=5)
    ('as reported', 'smaller', 'opposite')
    """
    if ours.units < FEWEST or ours.flat or math.isnan(ours.low) or not reported:
        return ""
    mean = math.copysign(1, reported) * ours.mean
    reported = abs(reported)
    half_of_paper = stats.t.ppf(0.975, ours.units - 1) * ours.spread / math.sqrt(runs)
    half = math.hypot(ours.half, half_of_paper)
    if abs(mean - reported) <= half:
        return "as reported" if half < reported / 2 else "not resolved"
    if mean + half < 0:
        return "opposite"
    return "smaller" if mean < reported else "larger"


def rank(directions: list[str], claimed: int = 1) -> str:
    """Judge that the winner has the ``claimed`` rank, by its comparisons with each rival (``> 0``).

    The claim holds if exactly ``claimed - 1`` rivals are wholly above the winner and all others
    wholly below it. It fails if too many are above it, or too many below.
    """
    above, below = directions.count("fails"), directions.count("holds")
    claimed_above = claimed - 1
    claimed_below = len(directions) - claimed_above
    if above > claimed_above or below > claimed_below:
        return "fails"
    return "holds" if above == claimed_above and below == claimed_below else "open"


def more_than_half(directions: list[str]) -> str:
    """Judge "in more than half of these cells" from the comparisons of each (``> 0``)."""
    half = len(directions) / 2
    if directions.count("holds") > half:
        return "holds"
    return "fails" if directions.count("fails") >= half else "open"


def combine(directions: list[str]) -> str:
    """Combine the comparisons of a claim into its verdict, one of seven.

    Comparisons that are ``not tested`` or ``unfair`` count as open, unless all are not tested.

    >>> combine(["holds", "holds", "open"]), combine(["fails", "unfair"])
    ('holds in part (2 of 3)', 'fails in part (1 of 2)')
    >>> combine(["holds", "fails"]), combine(["open", "not tested"]), combine(["not tested"])
    ('mixed', 'open', 'not tested')
    """
    count = len(directions)
    held = directions.count("holds")
    failed = directions.count("fails")
    if held and failed:
        return "mixed"
    if held or failed:
        word, number = ("holds", held) if held else ("fails", failed)
        return word if number == count else f"{word} in part ({number} of {count})"
    return "not tested" if {*directions} <= {"not tested"} else "open"
