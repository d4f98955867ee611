"""Copy records that another machine made into this checkout's results."""

from pathlib import Path
from typing import NamedTuple

from snnl_book import answers
from snnl_book.provenance import RecordError, results_dir
from snnl_book.records import (
    COLUMNS,
    COMPANIONS,
    check_folder,
    digest_of,
    finished_rows,
    is_companion,
    keep_replaced,
    read_rows,
    run_key,
    scores_of,
    write_atomically,
)


class Merged(NamedTuple):
    """The names of another folder's records, by what became of each."""

    added: list[str]
    replaced: list[str]  # ours had failed, or was older, or had no answers
    kept: list[str]  # ours is as good or better
    conflicts: list[str]  # ours stays; the text says which scores differ
    refused: list[str]  # the text says why


def merge(source: Path) -> Merged:
    """Copy those records of another ``results`` folder that are missing here, or better than ours.

    A finished run is better than a failed one, then a newer revision, then a record with answers.
    ``replaced.csv`` keeps the scores that were replaced. If two records are equally good and their
    scores differ, ours stays, and the name is listed under ``conflicts``. Tables of timings
    (``bench``) are copied if they are missing here. Raises RecordError if the source holds no
    records, or if ours cannot be written.
    """
    paths = _record_files(Path(source))
    if not paths:
        advice = "name a folder like results/, which has a folder for each experiment"
        raise RecordError(f"{source} holds no records: {advice}")
    check_folder(results_dir("full"))
    merged = Merged([], [], [], [], [])
    for path in paths:
        name = f"{path.parent.name}/{path.stem}"
        target = results_dir("full") / path.parent.name / path.name
        try:
            verdict, difference = _verdict(path, target)
            if verdict in ("added", "replaced"):
                _copy(path, target)
        except RecordError as error:
            merged.refused.append(str(error))
        else:
            getattr(merged, verdict).append(f"{name}: {difference}" if difference else name)
    return merged


def _record_files(source):
    """List the files of records and of timings in a folder, without their companions."""
    files = [path for path in sorted(source.glob("*/*.csv")) if path.is_file()]
    files = [path for path in files if not is_companion(path) and path.parent.name != "rows"]
    folders = {path.parent for path in files if path.parent.name == "bench" or _has_header(path)}
    return [path for path in files if path.parent in folders]


def _has_header(path):
    beginning = ",".join(COLUMNS)[:20]
    with path.open(errors="replace") as file:
        return file.read(len(beginning)) == beginning


def _verdict(path, target):
    """Return the field of ``Merged`` that a file belongs to, and for a conflict the difference."""
    if path.parent.name == "bench":
        if not target.exists():
            return "added", ""
        same = target.read_bytes() == path.read_bytes()
        return ("kept", "") if same else ("conflicts", "timings of the same device differ")
    theirs = read_rows(path)
    _check(path, theirs[0])
    if not target.exists():
        return "added", ""
    ours = read_rows(target)
    goodness = _goodness(path, theirs[0]), _goodness(target, ours[0])
    if goodness[0] != goodness[1]:
        return ("replaced" if goodness[0] > goodness[1] else "kept"), ""
    difference = _first_difference(scores_of(theirs), scores_of(ours))
    return ("conflicts" if difference else "kept"), difference


def _check(path, row):
    """Raise RecordError for a record of another profile, or under the name of another run."""
    if row["profile"] != "full":
        raise RecordError(
            f"the record {path} has the profile {row['profile']}: only records of the profile full"
            " are merged"
        )
    if not run_key(path).endswith(digest_of(row["settings"], row["fingerprint"])):
        raise RecordError(f"the name of {path} does not match its run: restore the original name")


def _goodness(path, row):
    has_answers = path.with_suffix(".answers.csv").exists()
    return row["status"] != "failed", row["revision"], has_answers


def _first_difference(theirs, ours):
    for name in {**theirs, **ours}:
        values = repr(theirs.get(name)), repr(ours.get(name))
        if name != "shared_seconds" and values[0] != values[1]:
            return f"{name} is {values[0]} there and {values[1]} here; ours stays"
    return ""


def _copy(path, target):
    """Copy a record and its companions, the record last, so that it is never without them."""
    root = target.parent.parent
    earlier = finished_rows(target) if path.parent.name != "bench" else None
    if earlier:
        theirs = read_rows(path)
        keep_replaced(root, target, earlier, theirs[0]["revision"], scores_of(theirs))
    answered = path.with_suffix(".answers.csv")
    for line in answers.read(answered) if answered.exists() else []:
        rows = f"rows/{line['rows']}.csv"
        if line["rows"] and not (root / rows).exists():
            answers.read(path.parent.parent / rows)  # refuses a missing or damaged file
            write_atomically(root / rows, (path.parent.parent / rows).read_text())
    for ending in COMPANIONS:
        companion = target.with_suffix(ending)
        if path.with_suffix(ending).exists():
            write_atomically(companion, path.with_suffix(ending).read_text())
        else:  # a file of the run that is replaced would pass for one of this run
            companion.unlink(missing_ok=True)
    write_atomically(target, path.read_text())
