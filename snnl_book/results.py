"""The recorded runs: load them, and judge which runs are done, stale, failed or missing.

``records`` writes and reads one record, ``merging`` copies those of another machine, and
``provenance`` says where records are. Their public names are here as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from snnl_book import answers
from snnl_book.merging import merge as merge
from snnl_book.provenance import RecordError as RecordError
from snnl_book.provenance import chapters_dir, results_dir
from snnl_book.provenance import commit as commit
from snnl_book.provenance import device_name as device_name
from snnl_book.provenance import versions as versions
from snnl_book.records import (
    COLUMNS,
    SPEC_COLUMNS,
    Spec,
    device_type_of,
    is_companion,
    read_rows,
    run_key,
    scores_of,
)
from snnl_book.records import Outcome as Outcome
from snnl_book.records import Record as Record
from snnl_book.records import check_folder as check_folder
from snnl_book.records import read_record as read_record
from snnl_book.records import write_atomically as write_atomically
from snnl_book.records import write_record as write_record

if TYPE_CHECKING:  # pandas takes longer to import than thousands of records to judge
    import pandas as pd

OTHER_FOLDERS = ("bench", "notes", "rows")
"""Folders of ``results/`` that hold no records of runs."""


# ---------------------------------------------------------------- which records there are


def _folders(profile):
    """Return the folders that may hold records of a profile, each once."""
    return list(dict.fromkeys((results_dir(profile), chapters_dir(profile))))


def _record_paths(experiment, profile, by_chapters=False, device_type="cpu"):
    """List the files of the records of an experiment (None: of all), sorted by folder and name.

    Args:
        by_chapters: also records that chapters made; the better one of a run in both folders.
        device_type: the type of device; None takes all. Records that are not committed (of other
            profiles, or made by chapters) may be of another type if a run has none of this type.
    """
    paths: dict[tuple, list[Path]] = {}
    for folder in _folders(profile)[: 2 if by_chapters else 1]:
        for path in folder.glob(f"{experiment or '*'}/*.csv"):
            visible = not path.name.startswith(".") and path.is_file()
            if visible and path.parent.name not in OTHER_FOLDERS and not is_companion(path):
                if " " in path.stem.rpartition("-")[2]:  # it would count as another run
                    raise RecordError(f"{path} seems to be a copy of a record: delete the copy")
                paths.setdefault((path.parent.name, path.name), []).append(path)
    best = [_best(paths[name]) for name in sorted(paths)]
    if device_type is None:
        return best
    of_type = [path for path in best if device_type_of(path) == device_type]
    if profile == "full" and not by_chapters:
        return of_type
    runs_of_type = {(path.parent.name, run_key(path)) for path in of_type}
    return [
        path
        for path in best
        if device_type_of(path) == device_type
        or (path.parent.name, run_key(path)) not in runs_of_type
    ]


def _best(paths):
    """Return the best record of a run: not failed, then of the newest revision, then the first."""
    if len(paths) == 1:
        return paths[0]
    first_rows = {path: read_rows(path)[0] for path in paths}
    return max(paths, key=lambda path: (_finished(first_rows[path]), first_rows[path]["revision"]))


def _finished(row):
    return row["status"] != "failed"


# ---------------------------------------------------------------- loading


def load_results(
    experiment: str | None = None,
    profile: str = "full",
    by_chapters: bool = False,
    device_type: str = "cpu",
) -> pd.DataFrame:
    """Load the records of an experiment (default: of all) as one tidy frame, one row per metric.

    Args:
        profile: the profile that the runs were made with.
        by_chapters: also load the records in ``chapters_dir``.
        device_type: the type of device that computed the runs: ``cpu``, ``cuda``, ``mps`` or
            ``xpu``. For records that are not committed, another type is used if there is none of
            this type.

    Returns the columns of a record's file (``COLUMNS``) and ``key``, the name of the file, which
    identifies the run. The frame is empty, with the same columns, if there are no records. Raises
    RecordError if a record is damaged.

    >>> sorted(load_results("clustering")["model"].unique())
    ['ae', 'ae-d', 'lc-d', 'pca']
    """
    import pandas as pd

    rows = [
        row | {"key": path.stem}
        for path in _record_paths(experiment, profile, by_chapters, device_type)
        for row in read_rows(path)
        if row["profile"] == profile
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, "key"])


def load_curves(records: pd.DataFrame, kind: str = "curve") -> pd.DataFrame:
    """Load the curves of records, one row per epoch.

    Adds the experiment, key, embedding, model, alpha, seed and status of the record.
    ``kind="points"`` loads coordinates instead, one row per point. A record without a curve adds
    no row, and the frame is empty if no record has one.

    >>> records = load_results("clustering")
    >>> curves = load_curves(records.query("model == 'ae-d'"))
    >>> list(curves.columns[:4]), int(curves["epoch"].max())
    (['epoch', 'temperature', 'loss', 'primary'], 29)
    """
    import pandas as pd

    names = "experiment key embedding model alpha seed status".split()
    frames = []
    for row in records.drop_duplicates("key").itertuples():
        paths = [folder / row.experiment / f"{row.key}.csv" for folder in _folders(row.profile)]
        paths = [path for path in paths if path.exists()]
        if paths and (curve := _best(paths).with_suffix(f".{kind}.csv")).exists():
            facts = {name: getattr(row, name) for name in names}
            frames.append(pd.read_csv(curve).assign(**facts))
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
    experiment: str, key: str, profile: str = "full", scores: str = ""
) -> tuple[np.ndarray, np.ndarray] | None:
    """Load the row numbers and the true classes of the documents of a run's answers, int [N] each.

    ``experiment``, ``key`` and ``profile`` name the run, as the columns of ``load_results`` do,
    and ``scores`` names the set of answers, as ``load_answers`` does. ``"train_"`` belongs to the
    training documents, all others to the test documents. Rows are numbered within their part of
    the corpus, or within the whole corpus if texts are clustered as a whole, in ascending order.
    Returns None if the run has no such answers, or if they are scores of queries. Raises
    RecordError as ``load_answers`` does.

    >>> runs = load_results("classification").query("embedding == 'spacy' and model == 'ffn'")
    >>> rows, labels = load_rows("classification", runs["key"].iloc[0])
    >>> rows[:3], labels.max()
    (array([0, 1, 2]), np.int64(3))
    """
    lines = _answers_lines(experiment, key, profile)
    names = {line["scores"]: line["rows"] for line in lines if line["rows"]}
    if scores not in names:
        return None
    path = _answers_path(experiment, key, profile).parent.parent / "rows" / f"{names[scores]}.csv"
    return _read_rows_file(path)


@cache
def _read_rows_file(path):
    """Read row numbers and labels, once: the file is named by its content, so it never changes."""
    rows, labels = (line["values"] for line in answers.read(path))
    for values in (rows, labels):
        values.flags.writeable = False  # all callers share them
    return rows, labels


def rescored(experiment: str, key: str, profile: str = "full") -> dict[str, float]:
    """Compute those scores of a run that count documents again, from its answers alone.

    ``experiment``, ``key`` and ``profile`` name the run, as the columns of ``load_results`` do.
    Returns a dictionary from the names of scores to their values, each in [0, 1] or, for ``ari``,
    in [-0.5, 1].

    >>> runs = load_results("classification").query("embedding == 'spacy' and model == 'ffn'")
    >>> sorted(rescored("classification", runs["key"].iloc[0]))
    ['acc', 'f1_macro', 'f1_micro']
    """
    path = _answers_path(experiment, key, profile)
    recorded = scores_of(read_rows(path.with_name(f"{key}.csv")))
    found = {}
    for scores, values in load_answers(experiment, key, profile).items():
        rows = load_rows(experiment, key, profile, scores)
        found |= answers.scores_from(scores, values, rows and rows[1], recorded)
    return found


def _answers_path(experiment, key, profile):
    """Return the path of a run's answers. Raises RecordError if there is no record of the run."""
    for folder in _folders(profile):
        if (folder / experiment / f"{key}.csv").exists():
            return folder / experiment / f"{key}.answers.csv"
    raise RecordError(f"there is no record {key!r} of the experiment {experiment!r}")


def _answers_lines(experiment, key, profile):
    path = _answers_path(experiment, key, profile)
    return answers.read(path) if path.exists() else []


# ---------------------------------------------------------------- judging


class Run(NamedTuple):
    """A recorded run: its identity (``Spec.identity``) and how it ended.

    ``seconds`` include those of the training that the run shares with others. ``answered`` says
    whether the run's answers were kept.
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
    """Yield the recorded runs of an experiment, as ``load_results`` chooses them.

    ``device_type`` None takes the records of all types. Raises RecordError if a record is damaged.
    """
    with_answers = {
        str(path)
        for folder in _folders(profile)
        for path in folder.glob(f"{experiment}/*.answers.csv")
    }
    for path in _record_paths(experiment, profile, by_chapters, device_type):
        first, *_ = rows = read_rows(path)
        if first["profile"] == profile:
            yield Run(
                tuple(first[name] for name in (*SPEC_COLUMNS, "settings")),
                first["revision"],
                first["fingerprint"],
                first["status"],
                first["seconds"] + scores_of(rows).get("shared_seconds", 0),
                device_type_of(path),
                f"{str(path).removesuffix('.csv')}.answers.csv" in with_answers,
            )


def made(specs: list[Spec], by_chapters: bool, device_type: str | None) -> list[Run]:
    """List the recorded ``runs`` of the experiments and profiles of these specs."""
    pairs = {(spec.experiment, spec.profile) for spec in specs}
    return [run for pair in pairs for run in runs(*pair, by_chapters, device_type)]


def verdict(spec: Spec, runs: list[Run]) -> str:
    """Judge a spec by its recorded runs (``runs_of``).

    Returns ``done``, ``stale`` (an older revision), ``failed`` or ``missing``.
    """
    finished = [run.revision for run in runs if run.status != "failed"]
    if finished:
        return "done" if max(finished) >= spec.revision else "stale"
    return "failed" if runs else "missing"


def runs_of(
    specs: list[Spec], fingerprints: dict[Spec, str | None], ran: list[Run]
) -> dict[Spec, list[Run]]:
    """Return those of the runs ``made`` that belong to each spec, for ``verdict``.

    Args:
        fingerprints: the fingerprint of each spec's data on this machine. For None, where the
            data is not on this machine, a record made from any copy of the data counts.
        ran: the runs ``made``.
    """
    by_identity: dict[tuple, list] = {}
    for run in ran:
        by_identity.setdefault(run.identity, []).append(run)
    return {
        spec: [
            run
            for run in by_identity.get(spec.identity, [])
            if fingerprints.get(spec) in (None, run.fingerprint)
        ]
        for spec in specs
    }
