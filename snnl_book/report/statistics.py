"""Intervals, and differences paired by seed. Nothing here formats, and nothing judges a claim."""

import numpy as np
import pandas as pd

from snnl_book.paper.declared import LOWER_IS_BETTER
from snnl_book.report import documents
from snnl_book.report.contrasts import FRACTIONS, base, estimate


def interval(values) -> tuple[float, float]:
    """Return the 95 % t-interval of the mean of some numbers; (nan, nan) for fewer than two.

    ``values`` are numbers of independent runs, one a seed.

    >>> low, high = interval([0.91, 0.92, 0.94])
    >>> round(low, 3), round(high, 3)
    (0.885, 0.961)
    """
    ours = estimate(values)
    return ours.low, ours.high


def within_range(low: float, high: float, metric: str) -> tuple[float, float]:
    """Cut an interval of a score, ``low`` to ``high``, to the values that its ``metric`` can take.

    >>> within_range(0.7, 1.3, "sil"), within_range(-0.4, 1.0, "dbi")
    ((0.7, 1.0), (0.0, 1.0))
    """
    name = base(metric)
    least = -1.0 if name in ("sil", "ari") else 0.0
    most = 1.0 if name in FRACTIONS else np.inf
    return max(low, least), min(high, most)


def by_unit(records: pd.DataFrame) -> pd.Series:
    """Return the value of each unit in a row's runs.

    A unit is a run. All runs on one draw of a random encoder share its weights, so they are one
    unit, with their mean. ``records`` hold one metric, with columns ``value``, ``key`` and
    ``fingerprint``.

    >>> columns = {"value": [0.8, 0.9, 0.5], "key": ["a", "b", "c"]}
    >>> prints = ["x-random0", "x-random0", "x-random1"]
    >>> by_unit(pd.DataFrame(columns | {"fingerprint": prints})).round(2).tolist()
    [0.85, 0.5]
    """
    units = records["value"].groupby(_drawn(records).fillna(records["key"]), sort=False)
    return units.mean().dropna()


def _drawn(records):
    """Return the name of the random encoder behind each row of records; missing without one."""
    return records["fingerprint"].str.extract(r"-(random\d+)", expand=False)


def over_corpora(records: pd.DataFrame, corpora: list[str]) -> float:
    """Return the mean over corpora of the mean of each corpus's runs.

    It is nan if a corpus has no run, because the other corpora may be easier or harder. ``records``
    hold one metric of one row, with columns ``dataset`` and ``value``.

    >>> over_corpora(pd.DataFrame({"dataset": ["a", "a", "b"], "value": [1, 3, 6]}), ["a", "b"])
    4.0
    """
    return float(records.groupby("dataset")["value"].mean().reindex(corpora).mean(skipna=False))


def paired(records: pd.DataFrame, metric: str, winner: str, loser: str) -> dict:
    """Compare two rows on a metric, by differences paired by seed.

    A stale run is only compared with another stale run, because otherwise the code might make the
    difference.

    Args:
        records: a frame with columns ``label``, ``seed``, ``metric`` and ``value``. Where encoders
            may be random it also has ``fingerprint``, and all seeds on one draw of an encoder are a
            single unit (``by_unit``).
        metric: the metric to compare.
        winner, loser: labels of rows.

    Returns ``difference``, the mean over units (above 0 if the winner is better), ``low`` and
    ``high``, its 95 % interval, ``documents``, and the numbers of ``seeds`` and ``units``.
    ``documents`` says whether the interval allows for the choice of test documents, as it does for
    claims. This needs the answers of all runs, which are looked up by ``experiment`` and ``key``
    (and ``recorded_as``, where ``metric`` is not the score's name in the records).

    >>> scores = {("AE(D)", 42): 0.9, ("AE(D)", 73): 0.91, ("AE", 42): 0.7, ("AE", 73): 0.72}
    >>> rows = [(*row, "acc", value) for row, value in scores.items()]
    >>> records = pd.DataFrame(rows, columns=["label", "seed", "metric", "value"])
    >>> judged = paired(records, "acc", "AE(D)", "AE")
    >>> round(float(judged["difference"]), 3), judged["seeds"]
    (0.195, 2)
    """
    runs = records[(records["metric"] == metric) & records["label"].isin([winner, loser])]
    if "stale" in runs:
        runs = runs[runs.groupby("seed")["stale"].transform("nunique") == 1]
    scores = runs.pivot_table(index="seed", columns="label", values="value")
    pairs = scores.reindex(columns=[winner, loser]).dropna()
    sign = -1 if metric in LOWER_IS_BETTER else 1
    difference = sign * (pairs[winner] - pairs[loser])
    unit_of = pairs.index.to_series().astype(str)
    if "fingerprint" in runs:
        unit_of = _drawn(runs).groupby(runs["seed"]).first().reindex(pairs.index).fillna(unit_of)
    units = difference.groupby(unit_of).mean()
    of_documents = None
    runs = runs[runs["seed"].isin(pairs.index)].dropna(subset="value")
    is_one_set = "dataset" not in runs or len({*runs["dataset"]}) == 1  # rows are numbered in it
    if len(runs) and is_one_set and {"experiment", "key"} <= {*runs}:
        signs = runs["label"].map({winner: sign, loser: -sign})
        of_documents = _document_half_width(runs, signs, unit_of)
    found = estimate(units, of_documents or 0.0)
    return {
        "difference": found.mean,
        "low": found.low,
        "high": found.high,
        "documents": of_documents is not None,
        "seeds": len(difference),
        "units": len(units),
    }


def _document_half_width(runs, signs, unit_of):
    """Return the half-width that the documents alone give a difference; None without answers.

    ``runs`` are the rows of records that it compares, each with its sign; ``unit_of`` maps seeds to
    units. A seed's runs of a label count with their mean, as a unit's seeds do.
    """
    weighted = {unit: [] for unit in unit_of}
    shares = signs / runs.groupby(["seed", "label"])["value"].transform("size")
    shares /= runs["seed"].map(unit_of.map(unit_of.value_counts())) * len(weighted)
    optional = runs.reindex(columns=["recorded_as", "profile"]).astype(object)
    names, profiles = optional["recorded_as"].fillna(runs["metric"]), optional["profile"]
    profiles = profiles.fillna("full")
    for run, name, profile, share in zip(runs.itertuples(), names, profiles, shares, strict=True):
        if base(name) not in documents.COUNTED:
            return None
        found = documents.influences_on(run.value, run.experiment, run.key, name, profile)
        if found is None:
            return None
        weighted[unit_of[run.seed]].append((share, found))
    return documents.half_width([*weighted.values()])
