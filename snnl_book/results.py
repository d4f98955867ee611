"""Records of runs: one CSV file per run, whole or absent; which runs are missing or stale.

A record is a tidy table with one row per metric. Every row carries the whole provenance, so that
files can be concatenated. Next to a record lie its curve, its points and its answers (``answers``),
if it has any. A run on another type of device than the CPU has a file of its own, such as
``<key>.cuda.csv``.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from snnl_book import answers
from snnl_lib import SnnlError
from snnl_lib.checkpoint import whole_file

if TYPE_CHECKING:  # pandas takes longer to import than thousands of records to judge
    import pandas as pd

STATUSES = ("ok", "diverged", "collapsed", "failed")
_NAMES = "experiment profile dataset embedding model alpha temperature seed".split()
COLUMNS = [*_NAMES, *"metric value n_train n_test status reason seconds device versions".split()]
COLUMNS += "commit revision fingerprint created settings rows".split()
_PLACE = {name: place for place, name in enumerate(COLUMNS)}
_NUMBERS = {_PLACE[name]: float for name in ("alpha", "value", "seconds")}
_NUMBERS |= {_PLACE[name]: int for name in "seed n_train n_test revision rows".split()}
_IDENTITY = [_PLACE[name] for name in (*_NAMES, "settings")]


class RecordError(SnnlError):
    """A record is truncated, damaged or cannot be written."""


@dataclass(frozen=True)
class Spec:
    """One run, told apart by everything that can move its numbers.

    ``settings`` holds what the named fields do not (epochs, layers, scaling, ...) as sorted (name,
    value) pairs; ``n_train`` is the number of training documents asked for.
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
    needs: str = field(default="", compare=False)  # what it costs where it is left out for that
    label: str = field(default="", compare=False)  # the row of a table that it belongs to
    seconds: float = field(default=math.nan, compare=False)  # measured on a part of such a run

    def __getitem__(self, name):
        return dict(self.settings)[name]

    def get(self, name, default=None):
        return dict(self.settings).get(name, default)

    @property
    def identity(self) -> tuple:
        """Everything but the revision and the data's fingerprint, as records hold it."""
        where = self.experiment, self.profile, self.dataset, self.embedding, self.model
        numbers = float(self.alpha), str(self.temperature), self.seed
        return (*where, *numbers, self.settings_text)

    @property
    def settings_text(self) -> str:
        return json.dumps({"n_train": self.n_train, **dict(self.settings)}, sort_keys=True)

    def key(self, fingerprint: str) -> str:
        """Name the record: the readable fields, then a hash of the settings and the data."""
        digest = _digest(self.settings_text, fingerprint)
        alpha = str(float(self.alpha)).removesuffix(".0")
        names = f"{self.dataset}-{self.embedding}-{self.model}"
        numbers = f"a{alpha}-t{self.temperature}-s{self.seed}-n{self.n_train}"
        return f"{names}-{numbers}-{digest}"

    def __str__(self):
        reading = f" ({self.get('reading')})" if self.get("reading") else ""
        where = f"{self.model}{reading} on {self.dataset}/{self.embedding}"
        return f"{where}, alpha {self.alpha:g}, seed {self.seed}"


def _digest(settings, fingerprint):
    return hashlib.sha256(f"{settings} {fingerprint}".encode()).hexdigest()[:8]


class Outcome(NamedTuple):
    """What a run leaves.

    ``metrics`` (name -> number), a ``curve`` (one row an epoch), why it is not ok, ``points`` (row
    numbers, coordinates), and how long what it shares with other runs took to make, if anything.
    ``waited`` are the seconds of the run that went to that, which are not its own.
    ``answers`` holds, for each set of scores that count documents, the class or cluster given to
    each test document: int [N] under the name that the scores have around the metric (``""`` for
    ``acc``, ``"head_"`` for ``head_acc``, ``"_0"`` for ``acc_0``); for scores of queries one float
    a query, under the score's whole name (``"map"``, ``"mrr_0"``).
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

    ``seconds`` are the run's own, without ``shared_seconds``. ``device_type`` is ``cpu``, ``cuda``,
    ``mps`` or ``xpu``. ``rows`` and ``labels``, both int [N], are the row numbers and true classes
    of the test documents that the ``answers`` belong to.
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
    rows: np.ndarray | None = None
    labels: np.ndarray | None = None
    device_type: str = "cpu"
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    commit: str = field(default_factory=lambda: commit())

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

        derived = {"versions": versions(self.device_type), "settings": self.spec.settings_text}
        derived |= {"seconds": round(self.seconds, 2), "rows": len(self.metrics)}

        def cell(column):
            if column in derived:
                return derived[column]
            return getattr(self if column in _OF_A_RECORD else self.spec, column)

        shared = {name: cell(name) for name in COLUMNS if name not in ("metric", "value")}
        rows = [{"metric": name, "value": value} for name, value in self.metrics.items()]
        return pd.DataFrame([shared | row for row in rows])[COLUMNS]


_OF_A_RECORD = {*Record.__dataclass_fields__}


# ---------------------------------------------------------------- provenance


VERSIONS_OF = ("torch", "numpy", "scipy", "scikit-learn", "spacy", "transformers", "umap-learn")
"""Packages that can move a number."""


@cache
def versions(device_type: str = "cpu") -> str:
    """List the versions of everything that can move a number on this type of device."""
    found = [f"python {platform.python_version()}"]
    for name in VERSIONS_OF:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    if device_type == "cuda":
        import torch

        found.append(f"cuda {torch.version.cuda or torch.version.hip}")
    return "; ".join(found)


@cache
def commit() -> str:
    """Return the commit of the checkout, with ``+changes`` if one of the packages differs from it.

    Returns ``unknown`` outside a checkout of this project, such as for an installed package that
    lies in another repository's environment.
    """
    package = Path(__file__).resolve().parent
    root = package.parent
    if not ((root / ".git").exists() and (root / "pyproject.toml").exists()):
        return "unknown"

    def git(*args):
        return subprocess.run(
            ["git", *args], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+changes" if git("status", "--porcelain", "--", package.name, "snnl_lib") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def device_name(device: str) -> str:
    """Describe a device for a record.

    A preloaded library is named, for it can take the place of any arithmetic.
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    processor, preloaded = "", os.environ.get("LD_PRELOAD", "")
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as file:
        models = (line.split(":")[1].strip() for line in file if line.startswith("model name"))
        processor = next((f" ({model})" for model in models), "")
    library = f", with {Path(preloaded).name}" if preloaded else ""
    return f"CPU, one thread{processor}{library}"


def results_dir(profile: str = "full") -> Path:
    """Return where a profile's records lie: ``results/`` (or ``SNNL_RESULTS``) for full,
    ``_build/results/<profile>`` for the others.

    Outside a checkout the full records are those that the wheel ships, and the others lie under the
    working directory. Raises RecordError if SNNL_RESULTS names what is no folder to read.

    >>> results_dir("quick").name
    'quick'
    """
    root = Path(__file__).resolve().parent.parent
    checkout = (root / "pyproject.toml").exists()
    if os.environ.get("SNNL_RESULTS"):
        full, rest = Path(os.environ["SNNL_RESULTS"]), Path(os.environ["SNNL_RESULTS"]) / "_build"
        if full.exists() and not (full.is_dir() and os.access(full, os.R_OK | os.X_OK)):
            advice = "set SNNL_RESULTS to a folder you can write to"
            raise RecordError(f"{full}, which SNNL_RESULTS names, is no folder to read: {advice}")
    elif checkout:
        full, rest = root / "results", root / "_build" / "results"
    else:
        full, rest = Path(__file__).resolve().parent / "results", Path.cwd() / "_build" / "results"
    return full if profile == "full" else rest / profile


def chapters_dir(profile: str = "full") -> Path:
    """Return the folder for the records of a ``profile`` that a chapter makes: never the committed
    ``results``.

    >>> chapters_dir("tiny") == results_dir("tiny")
    True
    """
    shared = profile != "full" or os.environ.get("SNNL_RESULTS")
    return results_dir(profile) if shared else results_dir("tiny").with_name("full")


# ---------------------------------------------------------------- write and read


def write_record(record: Record, folder: Path | None = None) -> Path:
    """Write a record, and what lies beside it first, each file whole or not at all.

    A failed run never replaces a finished one (``ok``, ``diverged`` or ``collapsed``). Where a
    finished run is replaced by other numbers of the same revision, ``replaced.csv`` keeps the old
    ones.

    Args:
        folder: written to in place of ``results_dir`` of the record's profile.

    Returns the record's path. Raises RecordError if the folder refuses.
    """
    root = folder or results_dir(record.spec.profile)
    path = root / record.spec.experiment / f"{record.stem}.csv"
    earlier = _finished_rows(path)
    if earlier and record.status == "failed":
        return path
    if earlier:
        _keep_replaced(root, path, earlier, record.spec.revision, record.metrics)
    beside = {
        ".curve.csv": _table(record.curve, 6),
        ".points.csv": _table(record.points, 4),
        ".answers.csv": _answers_table(record, root),
    }
    for ending, text in beside.items():
        if text is not None:
            write_atomically(path.parent / f"{record.stem}{ending}", text)
    write_atomically(path, record.frame().to_csv(index=False, na_rep="nan", lineterminator="\n"))
    for ending, text in beside.items():
        if text is None:  # what an earlier run of this key left would pass for this one's
            (path.parent / f"{record.stem}{ending}").unlink(missing_ok=True)
    return path


def _table(frame, digits):
    """Write a curve or points as CSV text; None stays None."""
    if frame is None:
        return None
    return frame.to_csv(index=False, na_rep="nan", float_format=f"%.{digits}g")


def _answers_table(record, root):
    """Write a record's answers as CSV text, sorted by row number, and the file of their rows."""
    if not record.answers:
        return None
    name, order = "", None
    if record.rows is not None and any(a.dtype.kind != "f" for a in record.answers.values()):
        order = np.argsort(record.rows, kind="stable")
        rows, labels = record.rows[order], record.labels[order]
        name = answers.name_of_rows(record.spec.dataset, rows, labels)
        path = root / "rows" / f"{name}.csv"
        if not path.exists():
            packed = [("rows", *answers.pack(rows)), ("labels", *answers.pack(labels))]
            write_atomically(path, _csv(("what", "count", "dtype", "packed"), *packed))
    lines = []
    for scores, given in record.answers.items():
        given = np.asarray(given)
        if given.dtype.kind == "f":
            lines.append((scores, "", *answers.pack(given)))
        else:
            lines.append((scores, name, *answers.pack(given[order])))
    return _csv(answers.COLUMNS, *lines)


def _csv(*lines):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _finished_rows(path):
    """Return the rows of a finished run's record, or None if there is none that can be read."""
    try:
        rows = _rows(path)
    except (OSError, RecordError):
        return None
    return rows if rows[0][_PLACE["status"]] != "failed" else None


REPLACED = ("experiment", "key", "status", "seconds", "device", "versions", "commit", "created")
REPLACED += ("revision", "scores")


def _scores(rows):
    return {row[_PLACE["metric"]]: row[_PLACE["value"]] for row in rows}


def _keep_replaced(root, path, rows, revision, new_scores):
    """Append the numbers of a record to ``replaced.csv`` before others of its revision replace it.

    Nothing is kept where the numbers stay as they are, the seconds of shared work aside.
    """
    facts, scores = dict(zip(COLUMNS, rows[0], strict=True)), _scores(rows)
    names = {*scores, *new_scores} - {"shared_seconds"}
    same = all(repr(scores.get(name)) == repr(new_scores.get(name)) for name in names)
    if same or facts["revision"] != revision:
        return
    line = facts | {"key": path.name.removesuffix(".csv"), "scores": json.dumps(scores)}
    file = root / "replaced.csv"
    text = _csv([line[name] for name in REPLACED])
    if not file.exists():
        text = _csv(REPLACED) + text
    elif text in file.read_text(encoding="utf-8"):
        return  # an interrupted call has kept it
    try:
        with file.open("a", encoding="utf-8") as replaced:
            replaced.write(text)
    except OSError as error:
        raise RecordError(f"{file} could not be written ({error.strerror})") from error


def check_folder(folder: Path) -> None:
    """Raise RecordError unless files can be written into a folder, which is made if need be."""
    probe = folder / ".probe"
    write_atomically(probe, "")
    probe.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raises RecordError if the folder refuses."""
    try:
        with whole_file(path) as file:
            file.write(text.encode())
    except OSError as error:
        advice = "make room, or set SNNL_RESULTS to a folder you can write to"
        raise RecordError(f"{path} could not be written ({error.strerror}): {advice}") from error


def read_record(path: Path) -> pd.DataFrame:
    """Read one record. Raises RecordError if it is truncated or damaged."""
    import pandas as pd

    return pd.DataFrame(_rows(path), columns=COLUMNS)


def _rows(path):
    """Read a record's rows, numbers as numbers; RecordError if it is truncated or damaged."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    try:
        header, *rows = csv.reader(io.StringIO(text), strict=True)
        for row in rows:
            for place, number in _NUMBERS.items():
                row[place] = number(row[place])
        (shared,) = {(*row[: _PLACE["metric"]], *row[_PLACE["value"] + 1 :]) for row in rows}
        told = len(shared) + 2, shared[-1], rows[0][_PLACE["status"]] in STATUSES
        whole = header == COLUMNS and told == (len(header), len(rows), True) and text[-1] == "\n"
    except (csv.Error, IndexError, ValueError):
        whole = False
    if not whole:
        raise RecordError(
            f"the record {path} is truncated, damaged or none: remove it, and if it was one run its"
            " experiment again"
        )
    return rows


_BESIDE = (".curve.csv", ".points.csv", ".answers.csv")  # what a record may have beside it
_NO_RUNS = ("bench", "notes", "rows")  # folders of results/ that hold no records of runs
_DEVICE_TYPES = ("cuda", "mps", "xpu")


def device_type_of(path: Path) -> str:
    """Return the type of the device that a record's file is of: ``cpu`` unless its name says so.

    >>> device_type_of(Path("mnist-pixels-ae-a0-tnone-s42-n100-0.cuda.csv"))
    'cuda'
    """
    ending = path.name.removesuffix(".csv").rpartition(".")[2]
    return ending if ending in _DEVICE_TYPES else "cpu"


def _run_key(path):
    """Return the key of the run that a record's file is of, without the type of its device."""
    return path.name.removesuffix(".csv").removesuffix(f".{device_type_of(path)}")


def _record_paths(experiment, profile, by_chapters=False, device_type="cpu"):
    """List the files of the records of an experiment (None: of all), sorted by folder and name.

    Args:
        by_chapters: also records that chapters made; of a run in both folders the ``_best``.
        device_type: the type of device; None takes all. Where records of a type are not committed
            (other profiles, or those of chapters), a run without a record of this type is taken
            from another.
    """
    found: dict[tuple, list[Path]] = {}
    for place in _places(profile)[: 2 if by_chapters else 1]:
        for path in place.glob(f"{experiment or '*'}/*.csv"):
            hidden = path.name.startswith(".") or not path.is_file()
            if path.parent.name not in _NO_RUNS and not hidden and not _is_beside(path):
                found.setdefault((path.parent.name, path.name), []).append(path)
    best = [_best(found[name]) for name in sorted(found)]
    if device_type is None:
        return best
    known = {(path.parent.name, _run_key(path)) for path in best if _is_of(path, device_type)}
    any_type = by_chapters or profile != "full"
    return [
        path
        for path in best
        if _is_of(path, device_type)
        or (any_type and (path.parent.name, _run_key(path)) not in known)
    ]


def _is_of(path, device_type):
    return device_type_of(path) == device_type


def _places(profile):
    """The folders of records: the one for all, and that of chapters where it is another."""
    return list(dict.fromkeys((results_dir(profile), chapters_dir(profile))))


def _best(paths):
    """Of the records of one run take what has not failed, of the newest revision, of the first."""
    if len(paths) == 1:
        return paths[0]
    rows = {path: dict(zip(COLUMNS, _rows(path)[0], strict=True)) for path in paths}
    return max(rows, key=lambda path: (rows[path]["status"] != "failed", rows[path]["revision"]))


def load_results(
    experiment: str | None = None,
    profile: str = "full",
    by_chapters: bool = False,
    device_type: str = "cpu",
) -> pd.DataFrame:
    """Load the records of an experiment (default: of all) as one tidy frame, one row per metric.

    Args:
        profile: the profile that the runs were made with.
        by_chapters: also take the records in ``chapters_dir``.
        device_type: the type of device that computed the runs: ``cpu``, ``cuda``, ``mps`` or
            ``xpu``. Records that are not committed fall back on another type.

    Returns the columns of a record's file (``COLUMNS``) and ``key``, the name of the file, which
    tells runs apart. An empty frame with the same columns if there are none. Raises RecordError if
    a record is damaged.

    >>> sorted(load_results("clustering")["model"].unique())
    ['ae', 'ae-d', 'lc-d', 'pca']
    """
    import pandas as pd

    rows = [
        [*row, path.stem]
        for path in _record_paths(experiment, profile, by_chapters, device_type)
        for row in _rows(path)
        if row[_PLACE["profile"]] == profile
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, "key"])


def load_curves(records: pd.DataFrame, kind: str = "curve") -> pd.DataFrame:
    """Load the curves that belong to records, one row an epoch.

    Adds the record's experiment, key, embedding, model, alpha, seed and status.
    ``kind="points"`` loads coordinates instead, one row a point. A record without a curve adds no
    row; an empty frame if none has one.

    >>> records = load_results("clustering")
    >>> curves = load_curves(records.query("model == 'ae-d'"))
    >>> list(curves.columns[:4]), int(curves["epoch"].max())
    (['epoch', 'temperature', 'loss', 'primary'], 29)
    """
    import pandas as pd

    frames = []
    for row in records.drop_duplicates("key").itertuples():
        paths = [place / row.experiment / f"{row.key}.csv" for place in _places(row.profile)]
        there = [path for path in paths if path.exists()]
        if there and (path := _best(there).with_suffix(f".{kind}.csv")).exists():
            names = "experiment key embedding model alpha seed status".split()
            frames.append(pd.read_csv(path).assign(**{name: getattr(row, name) for name in names}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def load_answers(experiment: str, key: str, profile: str = "full") -> dict[str, np.ndarray]:
    """Load the class or cluster that a run gave to each of its test documents.

    ``experiment``, ``key`` and ``profile`` name the run, as the columns of ``load_results`` do.

    Returns a dictionary from the name of a set of scores (``""`` for ``acc``, ``"head_"`` for
    ``head_acc``, ``"_2"`` for ``acc_2``) to int [N] in the order of ``load_rows``. For scores of
    queries, the name is that of the score, and the values are floats, one per query. Empty if the
    run has no answers. Raises RecordError if there is no such run or its answers are damaged.

    >>> runs = load_results("classification").query("embedding == 'spacy' and model == 'ffn'")
    >>> load_answers("classification", runs["key"].iloc[0])[""].shape
    (7600,)
    """
    lines = _answers_lines(experiment, key, profile)
    return {line["scores"]: line["values"] for line in lines}


def load_rows(
    experiment: str, key: str, profile: str = "full"
) -> tuple[np.ndarray, np.ndarray] | None:
    """Load the row numbers and the true classes of a run's test documents, both int [N].

    ``experiment``, ``key`` and ``profile`` name the run, as the columns of ``load_results`` do.
    Rows are numbered within the test part of the corpus, or within the whole corpus where texts are
    clustered whole, in ascending order. Returns None if the run's answers are scores of queries, or
    it has none. Raises RecordError as ``load_answers`` does.

    >>> runs = load_results("classification").query("embedding == 'spacy' and model == 'ffn'")
    >>> rows, labels = load_rows("classification", runs["key"].iloc[0])
    >>> rows[:3], labels.max()
    (array([0, 1, 2]), np.int64(3))
    """
    names = [line["rows"] for line in _answers_lines(experiment, key, profile) if line["rows"]]
    if not names:
        return None
    path = _answers_path(experiment, key, profile).parent.parent / "rows" / f"{names[0]}.csv"
    rows, labels = (line["values"] for line in _packed_lines(path))
    return rows, labels


def rescored(experiment: str, key: str, profile: str = "full") -> dict[str, float]:
    """Compute a run's scores that count documents anew, from its answers alone.

    ``experiment``, ``key`` and ``profile`` name the run, as the columns of ``load_results`` do.
    Returns a dictionary from the names of scores to their values, each in [0, 1] or, for ``ari``,
    in [-0.5, 1].

    >>> runs = load_results("classification").query("embedding == 'spacy' and model == 'ffn'")
    >>> sorted(rescored("classification", runs["key"].iloc[0]))
    ['acc', 'f1_macro', 'f1_micro']
    """
    path = _answers_path(experiment, key, profile)
    rows = _rows(path.with_name(f"{key}.csv"))
    recorded = _scores(rows)
    labels = load_rows(experiment, key, profile)
    given = load_answers(experiment, key, profile)
    return answers.scores_from(given, labels and labels[1], recorded)


def _answers_path(experiment, key, profile):
    """Name the file of a run's answers. Raises RecordError if there is no record of the run."""
    for place in _places(profile):
        if (place / experiment / f"{key}.csv").exists():
            return place / experiment / f"{key}.answers.csv"
    raise RecordError(f"there is no record {key!r} of the experiment {experiment!r}")


def _answers_lines(experiment, key, profile):
    path = _answers_path(experiment, key, profile)
    return _packed_lines(path) if path.exists() else []


def _packed_lines(path):
    """Read a file of packed values: one dictionary per line, with the ``values`` unpacked."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        if not lines:
            raise ValueError("the file is empty")
        for line in lines:
            line["values"] = answers.unpack(line["count"], line["dtype"], line["packed"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        advice = "run its experiment again with `run --answers`"
        raise RecordError(f"the answers {path} are missing or damaged: {advice}") from error
    return lines


# ---------------------------------------------------------------- what is there


class Run(NamedTuple):
    """What tells a recorded run apart (``identity`` is ``Spec.identity``) and how it ended.

    ``seconds`` are those of the run and of the training that it shares with others. ``answered``
    says whether the run's answers lie beside its record.
    """

    identity: tuple
    revision: int
    fingerprint: str
    status: str
    seconds: float
    device_type: str = "cpu"
    answered: bool = False


def runs(
    experiment: str, profile: str = "full", by_chapters: bool = False, device_type="cpu"
) -> Iterator[Run]:
    """Go through the recorded runs of an experiment, as ``load_results`` chooses them.

    ``device_type`` None takes the records of all types. Raises RecordError if a record is damaged.
    """
    metric, value = _PLACE["metric"], _PLACE["value"]
    places = (place.glob(f"{experiment}/*.answers.csv") for place in _places(profile))
    with_answers = {str(path) for found in places for path in found}
    for path in _record_paths(experiment, profile, by_chapters, device_type):
        rows = _rows(path)
        if rows[0][_PLACE["profile"]] == profile:
            identity = tuple(rows[0][place] for place in _IDENTITY)
            names = ("revision", "fingerprint", "status", "seconds")
            revision, fingerprint, status, seconds = (rows[0][_PLACE[name]] for name in names)
            seconds += sum(row[value] for row in rows if row[metric] == "shared_seconds")
            answered = f"{str(path).removesuffix('.csv')}.answers.csv" in with_answers
            facts = revision, fingerprint, status, seconds, device_type_of(path), answered
            yield Run(identity, *facts)


def made(specs: list[Spec], by_chapters: bool = False, device_type="cpu") -> list[Run]:
    """List the recorded ``runs`` of the experiments and profiles of these specs."""
    pairs = {(spec.experiment, spec.profile) for spec in specs}
    return [run for pair in pairs for run in runs(*pair, by_chapters, device_type)]


def judge(specs: list[Spec], fingerprints: dict[Spec, str | None], ran=None) -> dict[Spec, str]:
    """Judge each spec ``done``, ``stale`` (an older revision), ``failed`` or ``missing``.

    Args:
        fingerprints: for each spec the fingerprint of its data on this machine, or None where the
            data are not here; then a record made from any copy of the data counts.
        ran: the runs ``made``, if they have been read.
    """
    found = runs_of(specs, fingerprints, ran)
    return {spec: verdict(spec, runs) for spec, runs in found.items()}


def verdict(spec: Spec, runs: list[Run]) -> str:
    """Judge a spec by its recorded runs, as ``judge`` does."""
    finished = [run.revision for run in runs if run.status != "failed"]
    if finished:
        return "done" if max(finished) >= spec.revision else "stale"
    return "failed" if runs else "missing"


def runs_of(specs, fingerprints, ran=None) -> dict[Spec, list[Run]]:
    """List for each spec its recorded runs; the arguments are those of ``judge``."""
    by_identity: dict[tuple, list] = {}
    for run in made(specs) if ran is None else ran:
        by_identity.setdefault(run.identity, []).append(run)
    return {
        spec: [
            run
            for run in by_identity.get(spec.identity, [])
            if fingerprints.get(spec) in (None, run.fingerprint)
        ]
        for spec in specs
    }


# ---------------------------------------------------------------- records from other machines


class Merged(NamedTuple):
    """What became of each file of another folder: names, and why where that has to be said."""

    added: list[str]
    replaced: list[str]  # ours was stale or failed
    there: list[str]  # the same numbers, or theirs is stale or failed
    conflicts: list[str]
    refused: list[str]


def merge(source: Path) -> Merged:
    """Take the full profile's records of another ``results`` folder into this one.

    Each whole or not at all; the other folder stays as it is.

    A record that is not here is added, with what lies beside it. Of two records of one run, a
    finished one replaces one that failed, one of a newer revision an older one, and one with
    answers one without; ``replaced.csv`` keeps the numbers of the latter. Where both are equally
    good and their numbers differ, ours stays and that is a conflict. A record that is damaged,
    there or here, or of another profile is refused. Raises RecordError if the source holds no
    records, or ours cannot be written.
    """
    paths = [path for path in sorted(Path(source).glob("*/*.csv")) if path.is_file()]
    paths = [path for path in paths if not _is_beside(path)]
    paths = [path for path in paths if path.parent.name != "rows"]  # they come with their records
    there = {path.parent for path in paths if path.parent.name == "bench" or _begins_as_one(path)}
    paths = [path for path in paths if path.parent in there]
    if not paths:
        advice = "name a folder like results/, with a folder for each experiment in it"
        raise RecordError(f"{source} holds no records: {advice}")
    merged = Merged([], [], [], [], [])
    for path in paths:
        name = f"{path.parent.name}/{path.stem}"
        ours = results_dir("full") / path.parent.name / path.name
        judged = _compare_timings if path.parent.name == "bench" else _compare_records
        try:
            verdict, why = judged(path, ours)
            if verdict in ("added", "replaced"):
                _take(path, ours)
        except RecordError as error:
            merged.refused.append(str(error))
            continue
        getattr(merged, verdict).append(f"{name}: {why}" if why else name)
    return merged


def _begins_as_one(path):
    with path.open(errors="replace") as file:
        return file.read(20) == ",".join(COLUMNS)[:20]


def _is_beside(path):
    return path.name.endswith(_BESIDE)


def _take(path, ours):
    """Copy a record and what is beside it; the record last, so that it is never there alone."""
    root = ours.parent.parent
    earlier = _finished_rows(ours) if path.parent.name != "bench" else None
    if earlier:
        theirs = _rows(path)
        _keep_replaced(root, ours, earlier, theirs[0][_PLACE["revision"]], _scores(theirs))
    answered = path.parent / f"{path.stem}.answers.csv"
    for line in _packed_lines(answered) if answered.exists() else []:
        rows = f"rows/{line['rows']}.csv"
        if line["rows"] and not (root / rows).exists():
            _packed_lines(path.parent.parent / rows)  # refuses what is missing or damaged
            write_atomically(root / rows, (path.parent.parent / rows).read_text())
    for ending in _BESIDE:
        theirs_beside, ours_beside = (p.parent / f"{p.stem}{ending}" for p in (path, ours))
        if theirs_beside.exists():
            write_atomically(ours_beside, theirs_beside.read_text())
        else:  # that of the run which is replaced would pass for this one's
            ours_beside.unlink(missing_ok=True)
    write_atomically(ours, path.read_text())


def _compare_timings(path, ours):
    """As ``_compare`` of a table of timings, named after its device."""
    if not ours.exists():
        return "added", ""
    if ours.read_bytes() == path.read_bytes():
        return "there", ""
    return "conflicts", "other timings of the same device; ours stay"


def _compare_records(path, ours):
    rows = _rows(path)
    profile = rows[0][_PLACE["profile"]]
    if profile != "full":
        only = "and only those of the profile full are kept here"
        raise RecordError(f"the record {path} is of the profile {profile}, {only}")
    digest = _digest(*(rows[0][_PLACE[n]] for n in ("settings", "fingerprint")))
    if not _run_key(path).endswith(digest):
        raise RecordError(f"the record {path} is not called as its run is: give it its name back")
    if not ours.exists():
        return "added", ""
    answered = [each.with_name(f"{each.stem}.answers.csv").exists() for each in (path, ours)]
    return _compare(rows, _rows(ours), answered)


def _compare(theirs, ours, answered):
    """Say what becomes of another record of a run that is recorded here (a field of ``Merged``),
    and of a conflict what it is about."""

    def cell(rows, column):
        return rows[0][_PLACE[column]]

    sides = theirs, ours
    goodness = [
        (cell(rows, "status") != "failed", cell(rows, "revision"), has_answers)
        for rows, has_answers in zip(sides, answered, strict=True)
    ]
    if goodness[0] != goodness[1]:
        return "replaced" if goodness[0] > goodness[1] else "there", ""
    metric, value, status = (_PLACE[name] for name in ("metric", "value", "status"))
    there, here = ({row[metric]: (repr(row[value]), row[status]) for row in rows} for rows in sides)
    # Seconds of what runs share are no score of theirs.
    names = [name for name in {**there, **here} if name != "shared_seconds"]
    differing = [name for name in names if there.get(name) != here.get(name)]
    if not differing:
        return "there", ""
    nothing = ("none",)
    where = [
        ", ".join(str(cell(rows, column)) for column in ("device", "versions", "created"))
        for rows in sides
    ]
    name = differing[0]
    values = there.get(name, nothing)[0], here.get(name, nothing)[0]
    return (
        "conflicts",
        f"{name} is {values[0]} there ({where[0]}) and {values[1]} here ({where[1]}); ours stays",
    )
