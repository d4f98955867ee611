"""Recompute a chosen tenth of Tables 1 to 4 on a CPU, and compare with results/ (make codecheck).

The choice depends on the names and seconds of the recorded runs, and not on their scores. Runs are
ordered by the sha256 of their names, and taken from the first on until they are a tenth of all. A
run that would bring the recorded seconds beyond 2.5 hours is passed over. Only runs on averaged
vectors are chosen unless ``--embeddings`` names others, because a sentence encoder takes up to an
hour to embed the documents before the first run, and more than two to be trained.

Two scores are ``near`` if they differ by no more than the margin "within" of the book's rule: 1.5
points, or a tenth of a score that is not a fraction. Training can enlarge a difference in the last
bit until the result is that of another seed. Scores that differ by more than the margin, but by no
more than two seeds of their row do in 99 of 100 cases, have the verdict ``as seeds do``. Scores
that differ by more than both are ``beyond``.
"""

import argparse
import hashlib
import math
import os
import sys
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and numpy are imported

import pandas as pd
from scipy import stats

from snnl_book import data, results
from snnl_book.experiments import EXPERIMENTS, key, run_all, status
from snnl_book.report.contrasts import FRACTIONS, POINTS, SHARE
from snnl_lib import SnnlError

FOLDER = Path(__file__).resolve().parents[2] / "_build" / "codecheck"
TABLES = ("classification", "clustering")
SHARE_OF_RUNS = 10  # one run in so many
SECONDS = 9000  # no more than this by recorded seconds, which other work has lengthened
SHOWN = ["run", "score", "recorded", "recomputed", "difference", "verdict"]
EQUAL, NEAR, SEEDS, BEYOND = "equal", "near", "as seeds do", "beyond"
SURE = 0.99  # the share of differences between two seeds of a row below the limit of SEEDS
ROW = "dataset embedding model alpha temperature settings".split()


def recorded(profile: str, dataset: str, embeddings: list[str]) -> tuple[dict, Counter]:
    """Return the recorded runs that can be made here, and count the others by their reason.

    The runs are returned as spec -> seconds.
    """
    seconds = {}
    reasons = Counter()
    for name in TABLES:
        seconds_of = {run.identity: run.seconds for run in results.runs(name, profile)}
        for spec, verdict, unmet, *_ in status(name, profile, dataset, device="cpu"):
            if verdict != "done":
                continue
            if spec.embedding not in embeddings:
                reasons[f"their documents are embedded by {spec.embedding} (--embeddings)"] += 1
            elif unmet:
                reasons[unmet] += 1
            else:
                seconds[spec] = seconds_of[spec.identity]
    return seconds, reasons


def choose(seconds: dict, count: int, limit: float = SECONDS) -> list:
    """Choose ``count`` runs by the rule above, at most ``limit`` seconds of them.

    Returns specs, the shortest run first.
    """
    names = {spec: f"{spec.experiment}/{key(spec)}".encode() for spec in seconds}
    chosen = []
    total = 0.0
    for spec in sorted(names, key=lambda spec: hashlib.sha256(names[spec]).hexdigest()):
        if len(chosen) < count and total + seconds[spec] <= limit:
            chosen.append(spec)
            total += seconds[spec]
    return sorted(chosen, key=seconds.get)


def recomputed(spec, folder: Path) -> pd.DataFrame | None:
    """Return a run's recomputed record, or None if there is none of its revision and versions."""
    path = folder / spec.experiment / f"{key(spec)}.csv"
    if not path.exists():
        return None
    record = results.read_record(path)
    current = (spec.revision, results.versions(), results.device_name("cpu"))
    return record if tuple(record.loc[0, ["revision", "versions", "device"]]) == current else None


def recompute(seconds: dict, folder: Path, jobs: int) -> None:
    """Make the runs that are not in the folder yet, and print a line for each, with minutes left.

    The minutes follow the records, and more and more the pace of the runs made here.
    """
    todo = [spec for spec in seconds if recomputed(spec, folder) is None]
    total = sum(map(seconds.get, todo))
    done = 0.0
    started = time.monotonic()
    about = f"{math.ceil(total / 60 / jobs)} minutes by the records' seconds"
    print(f"{len(todo)} of {len(seconds)} runs to do, {jobs} at a time: {about}", flush=True)
    for count, record in enumerate(run_all(todo, "cpu", jobs, folder=folder), start=1):
        done += seconds[record.spec]
        pace = (time.monotonic() - started + 600) / (done / jobs + 600)
        minutes = math.ceil((total - done) / jobs * pace / 60)
        remaining = f"; about {minutes} min left" if count < len(todo) else ""
        times = f"{record.seconds:.0f} s, recorded in {seconds[record.spec]:.0f}"
        print(
            f"[{count}/{len(todo)}] {record.spec}: {record.status}, {times}{remaining}", flush=True
        )


def beside(records: pd.DataFrame, name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return a run's record, and by how much two seeds of its row may differ in each score.

    That is the repeatability limit, t * sqrt(2) * standard deviation, of the row's other seeds. The
    run itself is left out, so that a wrong record cannot widen the limit.
    """
    record = records[records["key"] == name]
    is_of_row = (records[ROW] == record[ROW].iloc[0]).all(axis=1)
    others = records[is_of_row & (records["key"] != name)].groupby("metric")["value"]
    t = stats.t.ppf((1 + SURE) / 2, others.count() - 1)
    return record.set_index("metric"), t * math.sqrt(2) * others.std()


def judge(old: float, new: float, margin: float, limit: float) -> str:
    """Judge a recomputed score by the margins above."""
    if old == new or (math.isnan(old) and math.isnan(new)):
        return EQUAL
    difference = abs(new - old)
    if difference <= margin:
        return NEAR
    return SEEDS if difference <= limit else BEYOND


def compare(specs: list, folder: Path) -> pd.DataFrame:
    """Compare recomputed with recorded scores, one row for each score."""
    rows = []
    records = {}
    for spec in specs:
        new = recomputed(spec, folder)
        if new is None:
            continue
        name = spec.experiment
        if name not in records:
            records[name] = results.load_results(name, spec.profile)
        old, limits = beside(records[name], key(spec))
        new = new.set_index("metric")
        for metric in EXPERIMENTS[name].metrics:
            rows.append(_row(spec, metric, old, new, float(limits.get(metric, math.nan))))
    return pd.DataFrame(rows)


def _row(spec, metric, old, new, limit):
    """Return the row of one score, from the recorded and the recomputed record of a run."""
    old_score, new_score = (float(record["value"].get(metric, math.nan)) for record in (old, new))
    margin = POINTS if metric in FRACTIONS else SHARE * abs(old_score)
    row = {
        "run": f"{spec.experiment}: {spec}",
        "score": metric,
        "recorded": old_score,
        "recomputed": new_score,
        "difference": new_score - old_score,
        "verdict": judge(old_score, new_score, margin, limit),
        "margin": margin,
        "limit_of_seeds": limit,
        "key": key(spec),
    }
    for fact in ("status", "seconds", "device", "versions", "commit"):
        row[f"recorded_{fact}"] = old[fact].iloc[0]
        row[fact] = new[fact].iloc[0]
    return row


def is_same_machine(row) -> bool:
    """Return whether a run was recorded on a processor of this name, with the versions here."""
    old, new = (
        dict(part.split(" ", 1) for part in versions.split("; "))
        for versions in (row.recorded_versions, row.versions)
    )
    same_versions = all(old[name] == new[name] for name in old.keys() & new.keys())
    return same_versions and row.recorded_device == row.device


def summary(scores: pd.DataFrame) -> str:
    """Return the number of scores with each verdict, and of those from a machine like this one."""
    counts = Counter(scores["verdict"])
    verdicts = [row.verdict for row in scores.itertuples() if is_same_machine(row)]
    return (
        f"{counts[EQUAL]} of {len(scores)} scores equal to the last digit, {counts[NEAR]} within "
        f"{100 * POINTS:.1f} points ({SHARE:.0%} of a score that is not a fraction), "
        f"{counts[SEEDS]} no further off than two seeds of their row in {SURE:.0%} of cases, "
        f"{counts[BEYOND]} beyond\n"
        f"{len(verdicts)} were recorded on a processor of this name with these versions; "
        f"{verdicts.count(EQUAL)} of these are equal"
    )


def check(seconds: dict, folder: Path, jobs: int) -> int:
    """Recompute runs, compare, print and write the report; return the exit status."""
    interrupted = False
    try:
        recompute(seconds, folder, jobs)
    except KeyboardInterrupt:
        interrupted = True
    scores = compare(list(seconds), folder)
    if len(scores):
        results.write_atomically(folder / "report.csv", scores.to_csv(index=False, na_rep="nan"))
        print(scores[SHOWN].to_string(index=False, float_format="{:.6g}".format))
        print(f"{summary(scores)}\nwritten to {folder / 'report.csv'}")
    if interrupted:
        count = scores["key"].nunique() if len(scores) else 0
        progress = f"{count} of {len(seconds)} runs compared"
        print(f"interrupted: {progress}, the same command resumes", file=sys.stderr)
        return 130
    return 1 if len(scores) and (scores["verdict"] == BEYOND).any() else 0


def _run(args):
    dataset = data.resolve(args.dataset)
    if dataset != "ag_news" and args.dataset == "auto":
        print(f"AG News is not on this machine: recorded runs on {dataset} would take its place")
    seconds, reasons = recorded(args.profile, dataset, args.embeddings)
    for reason, count in reasons.items():
        print(f"{count} recorded runs are left out: {reason}")
    if not seconds:
        problem = f"no recorded run of Tables 1 to 4 can be made on {dataset} here"
        advice = (
            "records are of AG News with 89,029 training documents, as a folder ag_news in the one"
            " that SNNL_DATA names; the official files make runs of other names"
        )
        raise SnnlError(f"{problem}: {advice}")
    total = len(seconds) + reasons.total()
    chosen = choose(seconds, math.ceil(total / SHARE_OF_RUNS))
    print(f"{len(chosen)} of {total} recorded runs are chosen by their names")
    print(f"{len(seconds)} can be made here")
    return check({spec: seconds[spec] for spec in chosen}, args.folder, args.jobs)


def main(argv=None) -> int:
    """Check; return 1 if a score is beyond, 2 if nothing can be checked, and else 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--jobs", type=int, default=1, help="runs side by side (default: 1)")
    add("--folder", type=Path, default=FOLDER, help="where runs and report go")
    add("--embeddings", nargs="+", default=["spacy"], help="embeddings (default: spacy)")
    add("--dataset", default="auto", help="AG News, or another with recorded runs")
    add("--profile", default="full", help="the profile of the recorded runs (default: full)")
    try:
        return _run(parser.parse_args(argv))
    except (SnnlError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
