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

if TYPE_CHECKING:  # what judges records needs no frames, and pandas takes longer to import than thousands of records to judge
    import pandas as pd

STATUSES = ("ok", "diverged", "collapsed", "failed")
COLUMNS = [
    "experiment",
    "profile",
    "dataset",
    "embedding",
    "model",
    "alpha",
    "temperature",
    "seed",
    "metric",
    "value",
    "n_train",
    "n_test",
    "status",
    "reason",
    "seconds",
    "device",
    "versions",
    "commit",
    "revision",
    "fingerprint",
    "created",
    "settings",
    "rows",
]
_NUMBERS = {
    "alpha": float,
    "seed": int,
    "value": float,
    "n_train": int,
    "n_test": int,
    "seconds": float,
    "revision": int,
    "rows": int,
}
_NUMBERS = {COLUMNS.index(name): number for name, number in _NUMBERS.items()}
_STATUS, _PROFILE = COLUMNS.index("status"), COLUMNS.index("profile")
_IDENTITY = [
    COLUMNS.index(name)
    for name in (
        "experiment",
        "profile",
        "dataset",
        "embedding",
        "model",
        "alpha",
        "temperature",
        "seed",
        "settings",
    )
]


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
    needs: str = field(
        default="", compare=False
    )  # what it costs on a CPU core, if it is left to a GPU
    label: str = field(default="", compare=False)  # the row of a table that it belongs to

    def __getitem__(self, name):
        return dict(self.settings)[name]

    def get(self, name, default=None):
        return dict(self.settings).get(name, default)

    @property
    def identity(self) -> tuple:
        """Everything but the revision and the data's fingerprint, in the form in which records hold
        it.
        """
        own = (
            self.experiment,
            self.profile,
            self.dataset,
            self.embedding,
            self.model,
            float(self.alpha),
            str(self.temperature),
            self.seed,
        )
        return (*own, self.settings_text)

    @property
    def settings_text(self) -> str:
        return json.dumps({"n_train": self.n_train, **dict(self.settings)}, sort_keys=True)

    def key(self, fingerprint: str) -> str:
        """Name the record: the readable fields, then a hash of the settings and of the data's
        fingerprint.
        """
        digest = hashlib.sha256(f"{self.settings_text} {fingerprint}".encode()).hexdigest()[:8]
        alpha = str(float(self.alpha)).removesuffix(".0")
        readable = f"{self.dataset}-{self.embedding}-{self.model}-a{alpha}-t{self.temperature}-s{self.seed}-n{self.n_train}"
        return f"{readable}-{digest}"

    def __str__(self):
        reading = f" ({self.get('reading')})" if self.get("reading") else ""
        return f"{self.model}{reading} on {self.dataset}/{self.embedding}, alpha {self.alpha:g}, seed {self.seed}"


class Outcome(NamedTuple):
    """What a run leaves.

    ``metrics`` (name -> number), a ``curve`` (one row an epoch), why it is not ok, ``points`` (row
    numbers, coordinates), and how long what it shares with other runs took to make, if anything.
    """

    metrics: dict[str, float]
    curve: pd.DataFrame | None = None
    status: str = "ok"
    reason: str = ""
    points: pd.DataFrame | None = None
    shared_seconds: float | None = None


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
    working directory.

    >>> results_dir("quick").name
    'quick'
    """
    root = Path(__file__).resolve().parent.parent
    checkout = (root / "pyproject.toml").exists()
    if os.environ.get("SNNL_RESULTS"):
        full, rest = Path(os.environ["SNNL_RESULTS"]), Path(os.environ["SNNL_RESULTS"]) / "_build"
    elif checkout:
        full, rest = root / "results", root / "_build" / "results"
    else:
        full, rest = Path(__file__).resolve().parent / "results", Path.cwd() / "_build" / "results"
    return full if profile == "full" else rest / profile


# ---------------------------------------------------------------- write and read


def write_record(record: Record) -> Path:
    """Write a record, and its curve and points first, each whole or not at all. Returns the
    record's path; raises RecordError if the folder refuses.
    """
    folder = results_dir(record.spec.profile) / record.spec.experiment
    path = folder / f"{record.key}.csv"
    for kind, frame, digits in (("curve", record.curve, 6), ("points", record.points, 4)):
        if frame is not None:
            write_atomically(
                folder / f"{record.key}.{kind}.csv",
                frame.to_csv(index=False, na_rep="nan", float_format=f"%.{digits}g"),
            )
    write_atomically(path, record.frame().to_csv(index=False, na_rep="nan", lineterminator="\n"))
    for kind, frame in (("curve", record.curve), ("points", record.points)):
        if frame is None:  # those of an earlier run of this key would pass for this one's
            (folder / f"{record.key}.{kind}.csv").unlink(missing_ok=True)
    return path


def write_atomically(path: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raises RecordError if the folder refuses."""
    try:
        with whole_file(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise RecordError(
            f"{path} could not be written ({error.strerror}): make room, or set SNNL_RESULTS to a folder you can write to"
        ) from error


def read_record(path: Path) -> pd.DataFrame:
    """Read one record. Raises RecordError if it is truncated or damaged."""
    import pandas as pd

    return pd.DataFrame(_rows(path), columns=COLUMNS)


def _rows(path, first=False):
    """Read a record's rows, numbers as numbers; with ``first`` that one alone, if it is plain from
    the number of lines that the others are there.

    Raises RecordError if the record is truncated or damaged.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.count("\n")
    try:
        header, *rows = csv.reader(
            text.split("\n", 2)[:2] if first else io.StringIO(text), strict=True
        )
        for row in rows:
            for place, number in _NUMBERS.items():
                row[place] = number(row[place])
        count = lines - 1 if first else len(rows)
        whole = (
            text.endswith("\n")
            and header == COLUMNS
            and all(len(row) == len(COLUMNS) and row[-1] == count for row in rows)
        )
        whole = whole and rows and {row[_STATUS] for row in rows} <= {*STATUSES}
    except (csv.Error, IndexError, ValueError):
        whole = False
    if not whole and first:  # a text may have a line break of its own
        return _rows(path)
    if not whole:
        raise RecordError(
            f"the record {path} is truncated or damaged: remove it and run its experiment again"
        )
    return rows


def _record_paths(experiment, profile):
    """List the files of the records of an experiment (None: of all), sorted."""
    folder, found = results_dir(profile), []
    for place in (
        [folder / experiment] if experiment else sorted(folder.iterdir()) if folder.is_dir() else []
    ):
        if place.name != "bench" and place.is_dir():  # timings are no runs
            files = (
                path
                for path in place.iterdir()
                if path.suffix == ".csv" and not path.name.endswith((".curve.csv", ".points.csv"))
            )
            found += sorted(path for path in files if not path.name.startswith("."))
    return found


def load_results(experiment: str | None = None, profile: str = "full") -> pd.DataFrame:
    """Load the records of an experiment (default: of all) and a profile as one tidy frame, one row
    a metric.

    Columns: those of a record's file (``COLUMNS``), and ``key``, which tells runs apart. An empty
    frame with the same columns if there are none. Raises RecordError if a record is damaged.

    >>> sorted(load_results("clustering")["model"].unique())
    ['ae', 'ae-d', 'lc-d', 'pca']
    """
    import pandas as pd

    rows = [
        [*row, path.stem]
        for path in _record_paths(experiment, profile)
        for row in _rows(path)
        if row[_PROFILE] == profile
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, "key"])


def load_curves(records: pd.DataFrame, kind: str = "curve") -> pd.DataFrame:
    """Load the curves that belong to records: one row an epoch, with the record's experiment, key,
    embedding, model, alpha, seed and status.

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
        path = results_dir(row.profile) / row.experiment / f"{row.key}.{kind}.csv"
        if path.exists():
            own = {
                name: getattr(row, name)
                for name in ("experiment", "key", "embedding", "model", "alpha", "seed", "status")
            }
            frames.append(pd.read_csv(path).assign(**own))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


# ---------------------------------------------------------------- what is there


class Run(NamedTuple):
    """What tells a recorded run apart (``identity``: that of ``Spec.identity``) and how it ended."""

    identity: tuple
    revision: int
    fingerprint: str
    status: str
    seconds: float


def runs(experiment: str, profile: str = "full") -> Iterator[Run]:
    """Go through the recorded runs of an experiment without loading their numbers. Raises
    RecordError if a record is damaged.
    """
    for path in _record_paths(experiment, profile):
        row = _rows(path, first=True)[0]
        if row[_PROFILE] == profile:
            yield Run(
                tuple(row[place] for place in _IDENTITY),
                *(row[COLUMNS.index(name)] for name in Run._fields[1:]),
            )


def judge(specs: list[Spec], fingerprints: dict[Spec, str | None]) -> dict[Spec, str]:
    """Judge each spec ``done``, ``stale`` (an older revision), ``failed`` (the run broke off) or
    ``missing``.

    ``fingerprints`` has for each spec the fingerprint of its data at hand, or None where they are
    not: then a record made elsewhere, from whatever copy of the data, counts.
    """
    there: dict[tuple, list] = {}
    for experiment, profile in {(spec.experiment, spec.profile) for spec in specs}:
        for run in runs(experiment, profile):
            there.setdefault(run.identity, []).append(run)
    verdicts = {}
    for spec in specs:
        known = fingerprints.get(spec)
        made = [run for run in there.get(spec.identity, []) if known in (None, run.fingerprint)]
        whole = [run.revision for run in made if run.status != "failed"]
        verdicts[spec] = (
            "missing"
            if not made
            else "failed"
            if not whole
            else "done"
            if max(whole) >= spec.revision
            else "stale"
        )
    return verdicts


# ---------------------------------------------------------------- records from other machines


class Merged(NamedTuple):
    """What became of each file of another folder: names of records, and a sentence for each in
    conflict or refused.
    """

    added: list[str]
    replaced: list[str]  # ours was stale or failed
    there: list[str]  # the same numbers, or theirs is stale or failed
    conflicts: list[str]
    refused: list[str]


def merge(source: Path) -> Merged:
    """Take the full profile's records of another ``results`` folder into this one, each whole or
    not at all; the other folder stays as it is.

    A record that is not here is added with its curve and points; of two of one run, a whole one
    replaces one that failed, and one of a newer revision an older one. Where both are as good and
    their numbers differ, ours stays and that is a conflict. One that is damaged, there or here, or
    of another profile is refused. Raises RecordError if the source is no folder with records, or
    ours cannot be written.
    """
    theirs = [
        path
        for path in sorted(Path(source).glob("*/*.csv"))
        if not path.name.endswith((".curve.csv", ".points.csv"))
    ]
    if not theirs:
        raise RecordError(
            f"{source} holds no records: name a folder like results/, with a folder for each experiment in it"
        )
    found = Merged([], [], [], [], [])
    for path in theirs:
        name, own = (
            f"{path.parent.name}/{path.stem}",
            results_dir("full") / path.parent.name / path.name,
        )
        if path.parent.name == "bench":  # a table of timings, named after its device
            what = (
                found.added
                if not own.exists()
                else found.there
                if own.read_bytes() == path.read_bytes()
                else found.conflicts
            )
            what.append(
                name
                if what is not found.conflicts
                else f"{name}: other timings of the same device; ours stay"
            )
            if what is found.added:
                write_atomically(own, path.read_text())
            continue
        try:
            rows = _rows(path)
            if rows[0][_PROFILE] != "full":
                raise RecordError(
                    f"the record {path} is of the profile {rows[0][_PROFILE]}, and only those of the profile full are kept here"
                )
            verdict, why = _compare(rows, _rows(own)) if own.exists() else ("added", "")
        except RecordError as error:
            found.refused.append(str(error))
            continue
        if verdict in ("added", "replaced"):
            for kind in ("curve", "points"):
                beside, ours = (place.parent / f"{place.stem}.{kind}.csv" for place in (path, own))
                if beside.exists():
                    write_atomically(ours, beside.read_text())
                else:  # that of the run which is replaced would pass for this one's
                    ours.unlink(missing_ok=True)
            write_atomically(own, path.read_text())
        getattr(found, verdict).append(f"{name}: {why}" if why else name)
    return found


def _compare(theirs, ours):
    """Say what becomes of another record of a run that is recorded here (a field of ``Merged``),
    and of a conflict what it is about.
    """
    of = {name: place for place, name in enumerate(COLUMNS)}
    goodness = [(rows[0][_STATUS] != "failed", rows[0][of["revision"]]) for rows in (theirs, ours)]
    if goodness[0] != goodness[1]:
        return "replaced" if goodness[0] > goodness[1] else "there", ""
    numbers = [
        {row[of["metric"]]: (repr(row[of["value"]]), row[_STATUS]) for row in rows}
        for rows in (theirs, ours)
    ]
    if numbers[0] == numbers[1]:
        return "there", ""
    where = [
        f"{rows[0][of['device']]}, {rows[0][of['versions']]}, {rows[0][of['created']]}"
        for rows in (theirs, ours)
    ]
    metric = next(
        name
        for name in numbers[0].keys() | numbers[1].keys()
        if numbers[0].get(name) != numbers[1].get(name)
    )
    values = [numbers[side].get(metric, ("none",))[0] for side in (0, 1)]
    return (
        "conflicts",
        f"{metric} is {values[0]} there ({where[0]}) and {values[1]} here ({where[1]}); ours stays",
    )
