"""What the documents of a test set add to an interval, by the delete-one jackknife."""

import math
from collections.abc import Container
from functools import cache

import numpy as np
from scipy.optimize import linear_sum_assignment

from snnl_book import answers, results
from snnl_book.report.contrasts import base

COUNTED = {*answers.COUNTED, *answers.OF_QUERIES}
"""Scores that count documents or queries, so that other documents would give another score."""
NORMAL = 1.959964  # 95 % of a normal distribution lie within so many standard errors


@cache
def influences(
    experiment: str, key: str, metric: str, classes: bool, profile: str = "full"
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return by how much a run's score changes when one document is left out.

    Args:
        experiment, key, profile: name the run, as records do.
        metric: one of its scores that count documents.
        classes: whether the answers are classes and not clusters.

    Returns (rows, changes): the row numbers of the documents, int [N] in ascending order, and the
    change of the score without each, float [N]. None if the run has no answers for this score.
    """
    answers_of_run = results.load_answers(experiment, key, profile)
    if base(metric) in answers.OF_QUERIES:
        if metric not in answers_of_run:
            return None
        values = answers_of_run[metric]
        return np.arange(len(values)), (values.mean() - values) / (len(values) - 1)
    name = set_of(metric)
    if name not in answers_of_run:
        return None
    rows, labels = results.load_rows(experiment, key, profile, name)
    return rows, changes(labels, answers_of_run[name], base(metric), classes)


def influences_on(
    value: float, experiment: str, key: str, metric: str, profile: str = "full"
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the ``influences`` on a run's score, which is ``value``; None without answers.

    Raises ValueError if the run's answers give another score, as they do if ``metric`` is not the
    name that the score has in the records.
    """
    scores = _rescored(experiment, key, profile)
    if metric not in scores:
        return None
    if abs(scores[metric] - value) > 1e-6:
        problem = f"the answers of {key} give {metric} {scores[metric]}, not {value}"
        raise ValueError(f"{problem}: name the recorded score in the column 'recorded_as'")
    return influences(experiment, key, metric, are_classes(metric, scores), profile)


_rescored = cache(results.rescored)


def set_of(metric: str) -> str:
    """Return the name of the set of scores that a metric belongs to, as records name it.

    >>> set_of("acc"), set_of("head_nmi"), set_of("nmi_geometric_2")
    ('', 'head_', '_2')
    """
    score = base(metric)
    return metric[len(score) :] if metric.startswith(score) else metric[: -len(score)]


def are_classes(metric: str, recorded: Container[str]) -> bool:
    """Return whether the answers behind a metric are classes and not clusters.

    ``recorded`` holds the names of all metrics of the run: only classes have an F1 score.

    >>> are_classes("acc", ["acc", "f1_micro"]), are_classes("head_acc", ["head_acc", "head_nmi"])
    (True, False)
    """
    name = set_of(metric)
    return answers.metric_of(name, "f1_micro") in recorded or name.endswith("neighbours_")


def changes(labels, predictions, score: str, classes: bool = False) -> np.ndarray:
    """Return by how much a score changes when one document is left out, float [N].

    The change depends only on the number of documents in each pair of class and cluster.

    Args:
        labels: the true classes, int [N].
        predictions: the documents' predicted classes or clusters, int [N].
        score: one of ``answers.COUNTED``.
        classes: whether ``predictions`` are classes, so that accuracy is the share of equal ones.

    >>> changes([0, 0, 1, 1], [0, 0, 1, 0], "acc", classes=True).round(3)  # 2 of 3 or 3 of 3
    array([-0.083, -0.083, -0.083,  0.25 ])
    """
    if classes:  # rows and columns of the table have the same names
        names, numbers = np.unique(np.stack([labels, predictions]), return_inverse=True)
        cell_of = tuple(numbers.reshape(2, -1))
        shape = len(names), len(names)
    else:
        named = [np.unique(values, return_inverse=True) for values in (labels, predictions)]
        cell_of = tuple(numbers for _, numbers in named)
        shape = tuple(len(names) for names, _ in named)
    table = np.bincount(np.ravel_multi_index(cell_of, shape), minlength=math.prod(shape))
    table = table.reshape(shape).astype(float)
    full, without = _scores(table, score, classes)
    return (without - full)[cell_of]


def _scores(table, score, classes):
    """Return a score of a table [classes, clusters], and the score without a document of each cell.

    The second result is an array [classes, clusters].
    """
    if score in ("acc", "f1_micro"):
        return _accuracy(table, classes)
    if score == "f1_macro":
        return _f1_macro(table)
    term = _pair_sums if score == "ari" else _entropy_sums
    # Leaving out a document changes its cell, its row and its column.
    counts = table, table.sum(1), table.sum(0)
    sums = [term(part).sum() for part in counts]
    losses = [term(part) - term(np.maximum(part - 1, 0)) for part in counts]
    parts = sums[0] - losses[0], sums[1] - losses[1][:, None], sums[2] - losses[2][None, :]
    measure = {"ari": _ari, "nmi": _nmi, "nmi_geometric": _nmi_geometric}[score]
    with np.errstate(divide="ignore", invalid="ignore"):  # of cells without documents
        return measure(*sums, table.sum()), measure(*parts, table.sum() - 1)


def _accuracy(table, classes):
    """Return the share of the largest matching, in full and without a document of each cell.

    Leaving out an unmatched document does not change the matching.
    """
    count = table.sum()
    if classes:
        matched = np.arange(len(table)), np.arange(len(table))
        best = np.trace(table)
        fewer = np.full(len(table), best - 1)
    else:
        matched = linear_sum_assignment(-table)
        best = table[matched].sum()
        fewer = np.array([_best_without_one(table, cell) for cell in zip(*matched, strict=True)])
    without = np.full(table.shape, best)
    without[matched] = fewer
    return best / count, without / (count - 1)


def _best_without_one(table, cell):
    smaller = table.copy()
    smaller[cell] -= 1
    return smaller[linear_sum_assignment(-smaller)].sum()


def _f1_macro(table):
    """Return the macro F1, in full and without a document of each cell.

    It is the mean over classes that occur of 2 true positives / (row sum + column sum).
    """

    def f1(counts):
        sums = counts.sum(0) + counts.sum(1)
        return (2 * np.diag(counts)[sums > 0] / sums[sums > 0]).mean()

    without = np.zeros(table.shape)
    for cell in zip(*np.nonzero(table), strict=True):
        smaller = table.copy()
        smaller[cell] -= 1
        without[cell] = f1(smaller)
    return f1(table), without


def _pair_sums(counts):
    return counts * (counts - 1) / 2


def _entropy_sums(counts):
    return counts * np.log(np.maximum(counts, 1))


def _ari(both, classes, clusters, count):
    expected = classes * clusters / (count * (count - 1) / 2)
    return (both - expected) / ((classes + clusters) / 2 - expected)


def _information(both, classes, clusters, count):
    entropies = [np.log(count) - part / count for part in (classes, clusters)]
    return (both - classes - clusters) / count + np.log(count), *entropies


def _nmi(both, classes, clusters, count):
    shared, first, second = _information(both, classes, clusters, count)
    return shared / ((first + second) / 2)


def _nmi_geometric(both, classes, clusters, count):
    shared, first, second = _information(both, classes, clusters, count)
    return shared / np.sqrt(first * second)


def half_width(weighted: list[list[tuple[float, tuple[np.ndarray, np.ndarray]]]]) -> float:
    """Return the half-width that new documents alone give a weighted sum of scores.

    Args:
        weighted: for each unit a list of (weight, influences) of its runs.

    Units with the same documents move together, so each document's influence is summed over all
    runs that have it. Returns 0 if no two units share more than half of their documents, because
    then the spread between units already includes the documents.

    >>> rows, one = np.arange(4), np.array([0.1, -0.1, 0.1, -0.1])
    >>> round(half_width([[(0.5, (rows, one))], [(0.5, (rows, one))]]), 3)  # two equal units
    0.339
    """
    all_rows = [rows for unit in weighted for _, (rows, _) in unit]
    size = 1 + max(rows.max(initial=0) for rows in all_rows)
    total = np.zeros(size)
    in_unit = np.zeros((len(weighted), size), dtype=bool)
    for documents, unit in zip(in_unit, weighted, strict=True):
        for weight, (rows, change) in unit:
            total[rows] += weight * change  # a run has each document once
            documents[rows] = True
    counts = in_unit.astype(float)
    shared = counts @ counts.T / np.minimum.outer(counts.sum(1), counts.sum(1)).clip(1)
    if len(weighted) > 1 and (shared[np.triu_indices(len(weighted), 1)] <= 0.5).all():
        return 0.0
    total = total[in_unit.any(0)]
    count = len(total)
    return NORMAL * math.sqrt((count - 1) / count * np.square(total - total.mean()).sum())
