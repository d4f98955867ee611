"""Records of runs: one CSV file a run, whole or absent; which are missing or stale.

A record is a tidy table with one row a metric, every row carrying the whole provenance, so that
files can be concatenated.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
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

from snnl_lib import SnnlError, whole_file

if TYPE_CHECKING:  # pandas takes longer to import than thousands of records to judge
    import numpy as np
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


@dataclass
class Record:
    """An ``Outcome`` with its provenance. ``seconds`` are the run's own (``shared_seconds``)."""

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
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    commit: str = field(default_factory=lambda: commit())

    @property
    def key(self) -> str:
        return self.spec.key(self.fingerprint)

    def frame(self) -> pd.DataFrame:
        """Return the rows that the file holds."""
        import pandas as pd

        derived = {"versions": versions(), "settings": self.spec.settings_text}
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


@cache
def versions() -> str:
    """Name the versions that can move a number."""
    found = [f"python {platform.python_version()}"]
    for name in ("torch", "numpy", "scipy", "scikit-learn", "spacy", "umap-learn"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return "; ".join(found)


@cache
def commit() -> str:
    """Return the commit of the checkout, with ``+changes`` if the library differs from it, or
    ``unknown`` outside a checkout.
    """

    def git(*args):
        return subprocess.run(
            ["git", *args], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+changes" if git("status", "--porcelain", "--", ".") else ""
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
    """Write a record, and its curve and points first, each whole or not at all.

    ``folder``: in place of ``results_dir`` of the record's profile. Returns the record's path;
    raises RecordError if the folder refuses.
    """
    folder = (folder or results_dir(record.spec.profile)) / record.spec.experiment
    path = folder / f"{record.key}.csv"
    for kind, frame, digits in (("curve", record.curve, 6), ("points", record.points, 4)):
        if frame is not None:
            text = frame.to_csv(index=False, na_rep="nan", float_format=f"%.{digits}g")
            write_atomically(folder / f"{record.key}.{kind}.csv", text)
    write_atomically(path, record.frame().to_csv(index=False, na_rep="nan", lineterminator="\n"))
    for kind, frame in (("curve", record.curve), ("points", record.points)):
        if frame is None:  # those of an earlier run of this key would pass for this one's
            (folder / f"{record.key}.{kind}.csv").unlink(missing_ok=True)
    return path


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


_BESIDE = (".curve.csv", ".points.csv")  # what a record may have beside it


def _record_paths(experiment, profile, by_chapters=False):
    """List the files of the records of an experiment (None: of all), sorted by folder and name.

    With ``by_chapters`` those that chapters made as well; of a run in both folders the ``_best``.
    """
    found: dict[tuple, list[Path]] = {}
    for place in _places(profile)[: 2 if by_chapters else 1]:
        for path in place.glob(f"{experiment or '*'}/*.csv"):
            timing = path.parent.name == "bench"  # which is no run
            hidden = path.name.startswith(".") or not path.is_file()
            if not timing and not hidden and not _is_beside(path):
                found.setdefault((path.parent.name, path.name), []).append(path)
    return [_best(found[name]) for name in sorted(found)]


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
    experiment: str | None = None, profile: str = "full", by_chapters: bool = False
) -> pd.DataFrame:
    """Load the records of an experiment (default: of all) as one tidy frame, one row a metric.

    ``profile`` is the one they were made by, or "full"; ``by_chapters`` takes those in
    ``chapters_dir`` as well. Columns: those of a record's file (``COLUMNS``), and ``key``, which
    tells runs apart. An empty frame with the same columns if there are none. Raises RecordError if
    a record is damaged.

    >>> sorted(load_results("clustering")["model"].unique())
    ['ae', 'ae-d', 'lc-d', 'pca']
    """
    import pandas as pd

    rows = [
        [*row, path.stem]
        for path in _record_paths(experiment, profile, by_chapters)
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


# ---------------------------------------------------------------- what is there


class Run(NamedTuple):
    """What tells a recorded run apart (``identity`` is ``Spec.identity``) and how it ended.

    ``seconds`` are those of the run and of the training that it shares with others.
    """

    identity: tuple
    revision: int
    fingerprint: str
    status: str
    seconds: float


def runs(experiment: str, profile: str = "full", by_chapters: bool = False) -> Iterator[Run]:
    """Go through the recorded runs of an experiment, those of chapters too if asked for.

    Raises RecordError if a record is damaged.
    """
    metric, value = _PLACE["metric"], _PLACE["value"]
    for path in _record_paths(experiment, profile, by_chapters):
        rows = _rows(path)
        if rows[0][_PLACE["profile"]] == profile:
            identity = tuple(rows[0][place] for place in _IDENTITY)
            *rest, seconds = (rows[0][_PLACE[name]] for name in Run._fields[1:])
            shared = sum(row[value] for row in rows if row[metric] == "shared_seconds")
            yield Run(identity, *rest, seconds + shared)


def made(specs: list[Spec], by_chapters: bool = False) -> list[Run]:
    """List the recorded ``runs`` of the experiments and profiles of these specs."""
    of = {(spec.experiment, spec.profile) for spec in specs}
    return [run for pair in of for run in runs(*pair, by_chapters)]


def judge(specs: list[Spec], fingerprints: dict[Spec, str | None], ran=None) -> dict[Spec, str]:
    """Judge each spec ``done``, ``stale`` (an older revision), ``failed`` or ``missing``.

    ``fingerprints`` has for each spec the fingerprint of its data at hand, or None where they are
    not: then a record made elsewhere, from whatever copy of the data, counts. ``ran`` lists the
    runs ``made``, if they have been read.
    """
    there: dict[tuple, list] = {}
    for run in made(specs) if ran is None else ran:
        there.setdefault(run.identity, []).append(run)
    verdicts = {}
    for spec in specs:
        known = fingerprints.get(spec)
        own = [run for run in there.get(spec.identity, []) if known in (None, run.fingerprint)]
        whole = [run.revision for run in own if run.status != "failed"]
        if whole:
            verdicts[spec] = "done" if max(whole) >= spec.revision else "stale"
        else:
            verdicts[spec] = "failed" if own else "missing"
    return verdicts


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

    A record that is not here is added with its curve and points; of two of one run, a whole one
    replaces one that failed, and one of a newer revision an older one. Where both are as good and
    their numbers differ, ours stays and that is a conflict. One that is damaged, there or here, or
    of another profile is refused. Raises RecordError if the source is no folder with records, or
    ours cannot be written.
    """
    paths = [path for path in sorted(Path(source).glob("*/*.csv")) if path.is_file()]
    paths = [path for path in paths if not _is_beside(path)]
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
        except RecordError as error:
            merged.refused.append(str(error))
            continue
        if verdict in ("added", "replaced"):
            _take(path, ours)
        getattr(merged, verdict).append(f"{name}: {why}" if why else name)
    return merged


def _begins_as_one(path):
    with path.open(errors="replace") as file:
        return file.read(20) == ",".join(COLUMNS)[:20]


def _is_beside(path):
    return path.name.endswith(_BESIDE)


def _take(path, ours):
    """Copy a record and what is beside it; the record last, so that it is never there alone."""
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
    if not path.stem.endswith(_digest(*(rows[0][_PLACE[n]] for n in ("settings", "fingerprint")))):
        raise RecordError(f"the record {path} is not called as its run is: give it its name back")
    return _compare(rows, _rows(ours)) if ours.exists() else ("added", "")


def _compare(theirs, ours):
    """Say what becomes of another record of a run that is recorded here (a field of ``Merged``),
    and of a conflict what it is about."""

    def cell(rows, column):
        return rows[0][_PLACE[column]]

    sides = theirs, ours
    goodness = [(cell(rows, "status") != "failed", cell(rows, "revision")) for rows in sides]
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
