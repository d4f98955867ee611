"""Rule 2 for one contrast: an interval over units, and the verdict on it. Plain numbers only.

Rule 2 is printed on the book's page of claims; the words here are its words.
"""

import math
import re
from typing import NamedTuple

import numpy as np
from scipy import stats

from snnl_book.paper.declared import LOWER_IS_BETTER  # noqa: F401 - used with the tests here

POINTS, SHARE = 0.015, 0.10  # within: 1.5 points, and 10 % of scores that are no fractions
SLIM, WIDE = (0.03, 0.20), (0.05, 0.20)  # marginal, sharply: so many points, such a share
HALF_WIDTH = (0.03, 0.20)  # the widest interval of a value that matches
FEWEST = 3  # units
FLAT = 1e-6  # a spread, beside numbers of size 1, that says nothing
FRACTIONS = {*"acc f1_micro f1_macro nmi nmi_geometric ari sil map mrr neighbours".split()}
DOCUMENTS = {"acc", "f1_micro", "f1_macro", "map", "mrr"}
"""Scores that are shares, or means of shares, of documents that all seeds have in common."""


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

    ``p`` is the two-sided p-value of a mean of 0, of the same interval; ``flat`` says that the
    units hardly differ, so that their spread is no evidence.
    """

    mean: float
    low: float
    high: float
    units: int
    p: float
    flat: bool = False


def estimate(values, floor: float = 0.0) -> Estimate:
    """Estimate a mean with its 95 % t-interval over units, at least ``floor`` to either side.

    >>> found = estimate([0.1, 0.2, 0.3])
    >>> round(found.low, 3), round(found.high, 3), round(found.p, 3)
    (-0.048, 0.448, 0.074)
    """
    values = np.asarray(values, dtype=float)
    count = len(values)
    mean = float(values.mean()) if count else math.nan
    if count < 2:
        return Estimate(mean, math.nan, math.nan, count, math.nan)
    spread = float(values.std(ddof=1))
    t = float(stats.t.ppf(0.975, count - 1))
    half = max(t * spread / math.sqrt(count), floor)
    flat = spread < FLAT * max(1.0, abs(mean)) and not floor
    # The p-value that belongs to the interval, so that both say the same.
    p = float(2 * stats.t.sf(abs(mean) * t / half, count - 1)) if half else math.nan
    return Estimate(mean, mean - half, mean + half, count, p, flat)


NOTHING = estimate([])


def floor(weights, means, documents) -> float:
    """Return the half-width that the documents alone give a weighted sum of shares of them.

    That of independent documents, 1.96 binomial standard errors: records hold no answers to each
    document, and a paired bootstrap over these would be narrower. All three are lists, one entry a
    row: weight, mean share in [0, 1], number of documents.
    """
    shares = np.clip(means, 0, 1)
    variances = np.square(weights) * shares * (1 - shares) / np.asarray(documents, dtype=float)
    return float(stats.norm.ppf(0.975) * math.sqrt(variances.sum()))


def best_of(values, n: int) -> np.ndarray:
    """Turn runs into jackknife pseudo-values of the mean best over all subsets of ``n`` of them.

    Their mean is that mean best, and their spread its uncertainty. Of just ``n`` runs there is no
    spread, and their best alone is returned; of fewer nothing is.

    >>> best_of([0.1, 0.2, 0.3], 2).mean().round(4)  # of 0.2, 0.3 and 0.3
    np.float64(0.2667)
    """
    values = np.asarray(values, dtype=float)
    count = len(values)
    if count <= n:
        return np.array([values.max()] if count == n else [])
    without = [_mean_best(np.delete(values, place), n) for place in range(count)]
    return count * _mean_best(values, n) - (count - 1) * np.array(without)


def _mean_best(values, n):
    ordered = np.sort(values)
    subsets = [math.comb(place, n - 1) for place in range(len(ordered))]  # whose best it is
    return float(np.dot(ordered, subsets) / math.comb(len(ordered), n))


def judge(
    found: Estimate,
    test: str,
    words: str = "",
    fraction: bool = True,
    scale: float = math.nan,
    value: float = 0.0,
    points: float = POINTS,
) -> str:
    """Judge an estimate by a test: ``reproduced``, ``contradicted`` or ``undecided``; of a value
    ``matches``, ``differs`` or ``undecided``.

    Args:
        test, words: as declared: "> 0", "within", "= v" or "at least v".
        fraction: whether the score is a fraction, so that points mean something.
        scale: what a share is one of: the mean of the baselines, or the value.
        value: of "= v" and "at least v".
        points: the margin of "within" and "= v".

    >>> judge(estimate([0.1, 0.11, 0.12]), "> 0", "sharply")
    'reproduced'
    """
    if found.units < FEWEST or found.flat or math.isnan(found.low):
        return "undecided"

    def size(points, share):
        return points if fraction else share * abs(scale)

    low, high = found.low - value, found.high - value
    if test == "= v":
        margin, half = size(points, SHARE), (found.high - found.low) / 2
        near = abs(found.mean - value) <= margin
        if near and half <= size(*HALF_WIDTH):
            return "matches"
        return "differs" if not near and (low > 0 or high < 0) else "undecided"
    if words == "on par":  # at least the value, but for the margin
        margin = size(points, SHARE)
        inside, outside = low >= -margin, high < -margin
    elif words in ("marginal", "slim"):
        inside, outside = low > 0 and high < size(*SLIM), high < 0 or low > size(*SLIM)
    elif words:  # sharply, by a wide margin: whichever is easier, of fractions
        least = WIDE[1] * abs(scale)
        least = np.nanmin([WIDE[0], least]) if fraction else least
        inside, outside = low >= least, high < least
    elif test == "within":
        margin = size(points, SHARE)
        inside, outside = -margin < low and high < margin, low > margin or high < -margin
    elif test == "at least v":
        inside, outside = low >= 0, high < 0
    else:
        inside, outside = low > 0, high < 0
    return "reproduced" if inside else "contradicted" if outside else "undecided"


def rank(verdicts: list[str], place: int = 1) -> str:
    """Judge "the winner has this place" from its comparisons with each rival (``> 0``).

    Reproduced when exactly ``place - 1`` rivals are wholly above it and all others wholly below,
    contradicted when too many are above it, or below.
    """
    above, below = verdicts.count("contradicted"), verdicts.count("reproduced")
    rivals = len(verdicts)
    if above > place - 1 or below > rivals - place + 1:
        return "contradicted"
    decided = above == place - 1 and below == rivals - place + 1
    return "reproduced" if decided else "undecided"


def more_than_half(verdicts: list[str]) -> str:
    """Judge "in more than half of these cells" from the verdicts on each (``> 0``)."""
    half = len(verdicts) / 2
    if verdicts.count("reproduced") > half:
        return "reproduced"
    return "contradicted" if verdicts.count("contradicted") >= half else "undecided"


SIGNS = {"reproduced": 1, "matches": 1, "contradicted": -1, "differs": -1, "undecided": 0}
"""What a verdict is for or against; those that are missing here test nothing."""


def combine(verdicts: list[str]) -> str:
    """Combine the verdicts on a claim's contrasts.

    >>> combine(["reproduced", "reproduced", "undecided"])
    'partly (2 of 3)'
    >>> combine(["reproduced", "contradicted", "undecided"])
    'mixed'
    """
    if len(set(verdicts)) == 1:
        return verdicts[0]
    signs = [SIGNS.get(verdict) for verdict in verdicts]
    won, lost, count = signs.count(1), signs.count(-1), len(signs)
    if won and lost:
        return "mixed"
    if won == count or lost == count:
        return "reproduced" if won else "contradicted"
    if won or lost:
        return f"{'partly' if won else 'contradicted'} ({won or lost} of {count})"
    tested = {"undecided", "no fair test"} & {*verdicts}
    return "undecided" if "undecided" in tested else max(tested, default=verdicts[0])
