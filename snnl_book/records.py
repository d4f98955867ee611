"""One run and its record: a CSV file with one row per metric, written as a whole or not at all.

Every row holds the complete provenance, so that files can be concatenated. The curve, the points
and the answers (``answers``) of a run are files next to its record. A run on another type of
device than the CPU has a file of its own, such as ``<key>.cuda.csv``.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from snnl_book import answers
from snnl_book.provenance import RecordError, commit, results_dir, versions
from snnl_lib.checkpoint import whole_file

if TYPE_CHECKING:  # pandas takes longer to import than thousands of records to judge
    import pandas as pd

STATUSES = ("ok", "diverged", "collapsed", "failed")
SPEC_COLUMNS = "experiment profile dataset embedding model alpha temperature seed".split()
COLUMNS = [*SPEC_COLUMNS, *"metric value n_train n_test status reason seconds device".split()]
COLUMNS += "versions commit revision fingerprint created settings rows".split()
SHARED_COLUMNS = [name for name in COLUMNS if name not in ("metric", "value")]
"""Columns in which all rows of a record are equal."""
DEVICE_TYPES = ("cuda", "mps", "xpu")
COMPANIONS = (".curve.csv", ".points.csv", ".answers.csv")
"""Endings of the files that may accompany a record."""
REPLACED = ("experiment", "key", "status", "seconds", "device", "versions", "commit", "created")
REPLACED += ("revision", "scores")
"""Columns of ``replaced.csv``."""


# ---------------------------------------------------------------- a run and what it returns


@dataclass(frozen=True)
class Spec:
    """One run, identified by everything that can change its scores.

    Args:
        n_train: the number of training documents asked for.
        settings: what the other fields do not say (epochs, layers, scaling, ...), as sorted
            pairs (name, value).
        needs: how long the run takes, if it is left out unless asked for.
        label: the row of the table that the run belongs to.
    """

    experiment: str
    profile: str
    dataset: str
    embedding: str
    model: str
    alpha: float
    temperature: str
    seed: int
    n_train: int
    revision: int
    settings: tuple[tuple[str, object], ...] = ()
    needs: str = field(default="", compare=False)
    label: str = field(default="", compare=False)

    def __getitem__(self, name):
        return dict(self.settings)[name]

    def get(self, name, default=None):
        return dict(self.settings).get(name, default)

    @property
    def identity(self) -> tuple:
        """Everything but the revision and the data's fingerprint, as records hold it."""
        names = self.experiment, self.profile, self.dataset, self.embedding, self.model
        return (*names, float(self.alpha), str(self.temperature), self.seed, self.settings_text)

    @property
    def settings_text(self) -> str:
        return json.dumps({"n_train": self.n_train, **dict(self.settings)}, sort_keys=True)

    def key(self, fingerprint: str) -> str:
        """Return the name of the record: readable fields, then a hash of settings and data."""
        digest = digest_of(self.settings_text, fingerprint)
        alpha = str(float(self.alpha)).removesuffix(".0")
        names = f"{self.dataset}-{self.embedding}-{self.model}"
        numbers = f"a{alpha}-t{self.temperature}-s{self.seed}-n{self.n_train}"
        return f"{names}-{numbers}-{digest}"

    def __str__(self):
        reading = f" ({self.get('reading')})" if self.get("reading") else ""
        run = f"{self.model}{reading} on {self.dataset}/{self.embedding}"
        return f"{run}, alpha {self.alpha:g}, seed {self.seed}"


def digest_of(settings: str, fingerprint: str) -> str:
    """Return the last part of a record's key."""
    return hashlib.sha256(f"{settings} {fingerprint}".encode()).hexdigest()[:8]


class Outcome(NamedTuple):
    """What a run returns.

    Fields:
        metrics: scores by name.
        curve: one row per epoch.
        status: one of ``STATUSES``, and ``reason`` says why it is not ``ok``.
        points: row numbers and coordinates.
        shared_seconds: how long the training took that the run shares with other runs.
        answers: for each set of scores that count documents, the class or cluster of each test
            document, int [N]. The names are what the scores have around the metric: ``""`` for
            ``acc``, ``"head_"`` for ``head_acc``, ``"_0"`` for ``acc_0``. Under ``"train_"``, those
            of the training documents. For scores of queries, one float per query under the name of
            the score (``"map"``, ``"mrr_0"``).
        waited: seconds of the run that were spent on what it shares.
    """

    metrics: dict[str, float]
    curve: pd.DataFrame | None = None
    status: str = "ok"
    reason: str = ""
    points: pd.DataFrame | None = None
    shared_seconds: float | None = None
    answers: dict[str, np.ndarray] | None = None
    waited: float = 0.0


@dataclass
class Record:
    """An ``Outcome`` with its provenance.

    ``seconds`` leaves out ``shared_seconds``. ``device_type`` is ``cpu`` or one of
    ``DEVICE_TYPES``. ``documents`` has the row numbers and true classes, both int [N], of the test
    documents that the ``answers`` belong to, under ``""``, and those of the training documents
    under ``"train_"``.
    """

    spec: Spec
    fingerprint: str
    metrics: dict[str, float]
    n_train: int
    n_test: int
    seconds: float
    device: str
    status: str = "ok"
    reason: str = ""
    curve: pd.DataFrame | None = None
    points: pd.DataFrame | None = None
    answers: dict[str, np.ndarray] | None = None
    documents: dict[str, tuple[np.ndarray, np.ndarray]] | None = None
    device_type: str = "cpu"
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    commit: str = field(default_factory=commit)

    @property
    def key(self) -> str:
        return self.spec.key(self.fingerprint)

    @property
    def stem(self) -> str:
        """The name of the record's file, without its ending."""
        return self.key if self.device_type == "cpu" else f"{self.key}.{self.device_type}"

    def frame(self) -> pd.DataFrame:
        """Return the rows that the file holds."""
        import pandas as pd

        shared = {name: getattr(self.spec, name) for name in (*SPEC_COLUMNS, "revision")}
        for name in "n_train n_test status reason device commit fingerprint created".split():
            shared[name] = getattr(self, name)
        shared["seconds"] = round(self.seconds, 2)
        shared["versions"] = versions(self.device_type)
        shared["settings"] = self.spec.settings_text
        shared["rows"] = len(self.metrics)
        rows = [shared | {"metric": name, "value": value} for name, value in self.metrics.items()]
        return pd.DataFrame(rows)[COLUMNS]


# ---------------------------------------------------------------- reading one record


def read_record(path: Path) -> pd.DataFrame:
    """Read one record. Raises RecordError if it is truncated or damaged."""
    import pandas as pd

    return pd.DataFrame(read_rows(path), columns=COLUMNS)


def read_rows(path: Path) -> list[dict]:
    """Read the rows of a record as dictionaries, with numbers as numbers.

    ``pandas.read_csv`` takes about twenty times as long on such a small file, and a question
    about all records reads thousands of them. Raises RecordError if the file is truncated or
    damaged.
    """
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    try:
        header, *lines = csv.reader(io.StringIO(text), strict=True)
        metric, value = COLUMNS.index("metric"), COLUMNS.index("value")
        (line,) = {(*line[:metric], *line[value + 1 :]) for line in lines}
        shared = _as_numbers(dict(zip(SHARED_COLUMNS, line, strict=True)))
        rows = [shared | {"metric": line[metric], "value": float(line[value])} for line in lines]
        complete = shared["rows"] == len(rows) and text.endswith("\n")
        valid = header == COLUMNS and complete and shared["status"] in STATUSES
    except (csv.Error, IndexError, ValueError):
        valid = False
    if not valid:
        advice = "remove it and, if it was the record of a run, run its experiment again"
        raise RecordError(f"the record {path} is truncated, damaged or not a record: {advice}")
    return rows


def _as_numbers(row):
    for name in ("alpha", "seconds"):
        row[name] = float(row[name])
    for name in ("seed", "n_train", "n_test", "revision", "rows"):
        row[name] = int(row[name])
    return row


def scores_of(rows: list[dict]) -> dict[str, float]:
    """Return the scores of a record by name."""
    return {row["metric"]: row["value"] for row in rows}


def finished_rows(path: Path) -> list[dict] | None:
    """Return the rows of a finished run's record, or None if there is none that can be read."""
    try:
        rows = read_rows(path)
    except (OSError, RecordError):
        return None
    return rows if rows[0]["status"] != "failed" else None


def is_companion(path: Path) -> bool:
    """Return whether a file accompanies a record, such as its curve."""
    return path.name.endswith(COMPANIONS)


def device_type_of(path: Path) -> str:
    """Return the type of device in the name of a record's file, ``cpu`` if it names none.

    >>> device_type_of(Path("mnist-pixels-ae-a0-tnone-s42-n100-0.cuda.csv"))
    'cuda'
    """
    ending = path.name.removesuffix(".csv").rpartition(".")[2]
    return ending if ending in DEVICE_TYPES else "cpu"


def run_key(path: Path) -> str:
    """Return the key of the run in the name of a record's file, without the type of device."""
    return path.name.removesuffix(".csv").removesuffix(f".{device_type_of(path)}")


# ---------------------------------------------------------------- writing one record


def write_record(record: Record, folder: Path | None = None) -> Path:
    """Write a record after its companions, each file as a whole or not at all.

    A failed run never replaces a finished one (``ok``, ``diverged`` or ``collapsed``). If a
    finished run is replaced by other scores of the same revision, ``replaced.csv`` keeps the old
    ones.

    Args:
        folder: written to in place of ``results_dir`` of the record's profile.

    Returns the path of the record. Raises RecordError if the folder cannot be written to.
    """
    root = folder or results_dir(record.spec.profile)
    path = root / record.spec.experiment / f"{record.stem}.csv"
    earlier = finished_rows(path)
    if earlier and record.status == "failed":
        return path
    if earlier:
        keep_replaced(root, path, earlier, record.spec.revision, record.metrics)
    companions = {
        ".curve.csv": _table(record.curve, 6),
        ".points.csv": _table(record.points, 4),
        ".answers.csv": _answers_table(record, root),
    }
    for ending, text in companions.items():
        if text is not None:
            write_atomically(path.parent / f"{record.stem}{ending}", text)
    write_atomically(path, record.frame().to_csv(index=False, na_rep="nan", lineterminator="\n"))
    for ending, text in companions.items():
        if text is None:  # a file of an earlier run of this key would pass for one of this run
            (path.parent / f"{record.stem}{ending}").unlink(missing_ok=True)
    return path


def _table(frame, digits):
    """Return a curve or points as CSV text; None if there are none."""
    if frame is None:
        return None
    return frame.to_csv(index=False, na_rep="nan", float_format=f"%.{digits}g")


def _answers_table(record, root):
    """Return a record's answers as CSV text, sorted by row number, and write their rows' files."""
    if not record.answers:
        return None
    lines = []
    for scores, values in record.answers.items():
        values = np.asarray(values)
        if values.dtype.kind == "f":
            lines.append((scores, "", *answers.pack(values)))
            continue
        rows, labels = record.documents["train_" if scores == "train_" else ""]
        order = np.argsort(rows, kind="stable")
        name = _write_rows(record.spec.dataset, rows[order], labels[order], root)
        lines.append((scores, name, *answers.pack(values[order])))
    return _csv(answers.COLUMNS, *lines)


def _write_rows(dataset, rows, labels, root):
    """Write the row numbers and classes that answers belong to, once; return the file's name."""
    name = answers.name_of_rows(dataset, rows, labels)
    path = root / "rows" / f"{name}.csv"
    if not path.exists():
        packed = [("rows", *answers.pack(rows)), ("labels", *answers.pack(labels))]
        write_atomically(path, _csv(("what", "count", "dtype", "packed"), *packed))
    return name


def _csv(*lines):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def keep_replaced(root, path, rows, revision, new_scores):
    """Append the scores of a record to ``replaced.csv`` before new ones replace it.

    Nothing is kept if the revision changes, or if all scores stay as they are. The seconds of
    shared work do not count as a score.
    """
    facts, scores = rows[0], scores_of(rows)
    names = {*scores, *new_scores} - {"shared_seconds"}
    # As a record is read, a count is a float; nan, for a score that does not exist, equals itself.
    old, new = (
        {name: repr(float(each[name])) for name in names & each.keys()}
        for each in (scores, new_scores)
    )
    if old == new or facts["revision"] != revision:
        return
    line = facts | {"key": path.name.removesuffix(".csv"), "scores": json.dumps(scores)}
    file = root / "replaced.csv"
    text = _csv([line[name] for name in REPLACED])
    if not file.exists():
        text = _csv(REPLACED) + text
    elif text in file.read_text(encoding="utf-8"):
        return  # an interrupted call has already kept it
    try:
        with file.open("a", encoding="utf-8") as replaced:
            replaced.write(text)
    except OSError as error:
        raise RecordError(f"{file} could not be written ({error.strerror})") from error


def check_folder(folder: Path) -> None:
    """Create a folder if need be; raise RecordError if files cannot be written into it."""
    probe = folder / ".probe"
    write_atomically(probe, "")
    probe.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file as a whole or not at all; raise RecordError if it cannot be written."""
    try:
        with whole_file(path) as file:
            file.write(text.encode())
    except OSError as error:
        advice = "free some disk space, or set SNNL_RESULTS to a folder that you can write to"
        raise RecordError(f"{path} could not be written ({error.strerror}): {advice}") from error
