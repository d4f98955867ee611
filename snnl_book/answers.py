"""The class or cluster given to each test document of a run, and the scores that follow from it.

The answers of a record are in ``<key>.answers.csv`` next to it, one line for each set of scores.
Many runs share the rows of the corpus and their true classes, so these are kept once, in
``results/rows/``. Neither file holds a text or an image.
"""

import base64
import csv
import hashlib
import zlib
from pathlib import Path

import numpy as np

from snnl_book.provenance import RecordError

COUNTED = ("acc", "f1_micro", "f1_macro", "nmi", "nmi_geometric", "ari")
"""Scores that depend only on the true classes and the answers."""
OF_QUERIES = ("map", "mrr")
"""Scores that are means over queries."""
COLUMNS = ("scores", "rows", "count", "dtype", "packed")


def pack(values: np.ndarray) -> tuple[int, str, str]:
    """Pack an array [N] of integers or floats into one line of text.

    Returns (N, dtype, base64 text of the zlib-compressed values). Integers take as few bytes as
    they need.

    >>> unpack(*pack(np.array([3, 0, 300])))
    array([  3,   0, 300])
    """
    values = np.asarray(values)
    if np.issubdtype(values.dtype, np.floating):
        values = values.astype("<f8")
    else:
        smallest = np.result_type(*map(np.min_scalar_type, (values.min(), values.max())))
        values = values.astype(smallest.newbyteorder("<"))
    packed = base64.b64encode(zlib.compress(values.tobytes(), 9)).decode()
    return len(values), values.dtype.str, packed


def unpack(count: int, dtype: str, packed: str) -> np.ndarray:
    """Unpack what ``pack`` returned: int64 [N] or float64 [N].

    Raises ValueError if the text is damaged.
    """
    try:
        values = np.frombuffer(zlib.decompress(base64.b64decode(packed, validate=True)), dtype)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(values) != int(count):
        raise ValueError(f"{len(values)} values in place of {count}")
    return values.astype(float if values.dtype.kind == "f" else np.int64)


def read(path: Path) -> list[dict]:
    """Read a file of answers or of rows: one dictionary per line, with the unpacked ``values``.

    Raises RecordError if the file is missing or damaged.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        if not lines:
            raise ValueError("the file is empty")
        for line in lines:
            line["values"] = unpack(line["count"], line["dtype"], line["packed"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        advice = "run its experiment again with `run --answers`"
        raise RecordError(f"the file {path} is missing or damaged: {advice}") from error
    return lines


def name_of_rows(dataset: str, rows: np.ndarray, labels: np.ndarray) -> str:
    """Name a set of row numbers and true classes, both int [N], by its content."""
    content = np.stack([rows, labels]).astype("<i8").tobytes()
    return f"{dataset}-{hashlib.sha256(content).hexdigest()[:8]}"


def metric_of(name: str, metric: str) -> str:
    """Return the score that a metric has in a set of scores.

    >>> metric_of("", "acc"), metric_of("head_", "acc"), metric_of("_2", "acc")
    ('acc', 'head_acc', 'acc_2')
    """
    return f"{metric}{name}" if name.startswith("_") else f"{name}{metric}"


def scores_from(name: str, values: np.ndarray, labels, recorded: dict) -> dict[str, float]:
    """Compute all recorded scores that follow from one set of answers alone.

    Answers are classes if F1 is recorded for them, or if the set's name ends in ``neighbours_``;
    accuracy is then the share of correct ones. All others are clusters, which accuracy matches
    with the classes.

    Args:
        name, values: a set of scores and its answers, as ``results.load_answers`` returns them.
        labels: the true classes, int [N]; None if the answers are scores of queries.
        recorded: the record's scores by name; only these are computed.
    """
    from sklearn.metrics import normalized_mutual_info_score

    from snnl_lib.metrics import classification_scores, external_scores

    if values.dtype.kind == "f":
        return {name: float(values.mean())}
    scores = external_scores(values, labels)
    geometric = normalized_mutual_info_score(labels, values, average_method="geometric")
    scores["nmi_geometric"] = geometric
    if metric_of(name, "f1_micro") in recorded or name.endswith("neighbours_"):
        scores |= classification_scores(labels, values)
    named = {metric_of(name, metric): float(value) for metric, value in scores.items()}
    return {metric: value for metric, value in named.items() if metric in recorded}
