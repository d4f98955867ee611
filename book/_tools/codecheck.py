"""Recompute a chosen tenth of Tables 1 to 4 on a CPU, and compare with results/ (make codecheck).

The choice sees names and seconds of the recorded runs, and none of their scores: they are put in
the order of the sha256 of their names, and taken from the first on until there are a tenth of all;
one that would bring the recorded seconds beyond an hour is passed over. Only averaged word vectors
are meant unless ``--embeddings`` names others: a sentence encoder takes up to an hour to embed the
documents before the first run, and one to be trained.

Two scores are near where they differ by no more than what the book's rule calls "within" (1.5
points, or a tenth of a score that is no fraction): beyond that, verdicts could change.
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

from snnl_lib import SnnlError, data, full_disk_told, results
from snnl_lib.experiments import EXPERIMENTS, key, run_all, status
from snnl_lib.report.contrasts import FRACTIONS, POINTS, SHARE

FOLDER = Path(__file__).resolve().parents[2] / "_build" / "codecheck"
TABLES = ("classification", "clustering")
SHARE_OF_RUNS, SECONDS = 10, 3600  # one in so many, and no more than this by recorded seconds
SHOWN = ["run", "score", "recorded", "recomputed", "difference", "verdict"]
EQUAL, NEAR, BEYOND = "equal", "near", "beyond"


def recorded(profile: str, dataset: str, embeddings: list[str]) -> tuple[dict, Counter]:
    """Return the recorded runs that can be made here, as spec -> seconds, and count the others by
    why they are left out.
    """
    seconds, left = {}, Counter()
    for name in TABLES:
        took = {run.identity: run.seconds for run in results.runs(name, profile)}
        for spec, verdict, unmet in status(name, profile, dataset):
            if verdict != "done":
                continue
            if spec.embedding not in embeddings:
                left[f"their documents are embedded by {spec.embedding} (--embeddings)"] += 1
            elif unmet:
                left[unmet] += 1
            else:
                seconds[spec] = took[spec.identity]
    return seconds, left


def choose(seconds: dict, count: int, most: float = SECONDS) -> list:
    """Choose so many runs by the rule above, the shortest first."""
    names = {spec: f"{spec.experiment}/{key(spec)}".encode() for spec in seconds}
    chosen, total = [], 0.0
    for spec in sorted(names, key=lambda spec: hashlib.sha256(names[spec]).hexdigest()):
        if len(chosen) < count and total + seconds[spec] <= most:
            chosen.append(spec)
            total += seconds[spec]
    return sorted(chosen, key=seconds.get)


def recomputed(spec, folder: Path) -> pd.DataFrame | None:
    """Return what was recomputed of a run, if it was made at its revision by these versions."""
    path = folder / spec.experiment / f"{key(spec)}.csv"
    if not path.exists():
        return None
    made = results.read_record(path)
    now = (spec.revision, results.versions(), results.device_name("cpu"))
    return made if tuple(made.loc[0, ["revision", "versions", "device"]]) == now else None


def recompute(seconds: dict, folder: Path, jobs: int) -> None:
    """Make the runs that are not in the folder yet, and print a line for each, with minutes left.

    These are the records' minutes, until ten minutes' worth has shown how long they take here.
    """
    todo = [spec for spec in seconds if recomputed(spec, folder) is None]
    total, done, started = sum(map(seconds.get, todo)), 0.0, time.monotonic()
    about = f"{math.ceil(total / 60 / jobs)} minutes by the records' seconds"
    print(f"{len(todo)} of {len(seconds)} runs to do, {jobs} at a time: {about}", flush=True)
    for count, record in enumerate(run_all(todo, "cpu", jobs, folder=folder), start=1):
        done += seconds[record.spec]
        pace = (time.monotonic() - started + 600) / (done / jobs + 600)
        left = math.ceil((total - done) / jobs * pace / 60)
        more = f"; about {left} min left" if count < len(todo) else ""
        took = f"{record.seconds:.0f} s, recorded in {seconds[record.spec]:.0f}"
        print(f"[{count}/{len(todo)}] {record.spec}: {record.status}, {took}{more}", flush=True)


def compare(specs: list, folder: Path) -> pd.DataFrame:
    """Set what was recomputed beside what is recorded, a row a score."""
    rows = []
    for spec in specs:
        if (made := recomputed(spec, folder)) is None:
            continue
        ours = results.results_dir(spec.profile) / spec.experiment / f"{key(spec)}.csv"
        theirs, made = results.read_record(ours).set_index("metric"), made.set_index("metric")
        for metric in EXPERIMENTS[spec.experiment].metrics:
            then, now = (float(frame["value"].get(metric, math.nan)) for frame in (theirs, made))
            tolerance = POINTS if metric in FRACTIONS else SHARE * abs(then)
            same = then == now or (math.isnan(then) and math.isnan(now))
            verdict = EQUAL if same else NEAR if abs(now - then) <= tolerance else BEYOND
            row = {"run": f"{spec.experiment}: {spec}", "score": metric, "recorded": then}
            row |= {"recomputed": now, "difference": now - then, "verdict": verdict}
            row |= {"tolerance": tolerance, "key": key(spec)}
            for name in ("status", "seconds", "device", "versions", "commit"):
                row |= {f"recorded_{name}": theirs[name].iloc[0], name: made[name].iloc[0]}
            rows.append(row)
    return pd.DataFrame(rows)


def tell(scores: pd.DataFrame) -> str:
    """Say how many scores are equal, near and beyond; of runs recorded on a machine like this too.

    A machine is alike if its processor and all versions that a record names are the same.
    """
    counts = Counter(scores["verdict"])
    within = f"within {100 * POINTS:.1f} points ({SHARE:.0%} of a score that is no fraction)"
    said = f"{counts[EQUAL]} of {len(scores)} scores equal to the last digit, {counts[NEAR]} "
    said += f"{within}, {counts[BEYOND]} beyond"
    alike = scores[
        (scores["recorded_device"] == scores["device"])
        & (scores["recorded_versions"] == scores["versions"])
    ]
    equal = (alike["verdict"] == EQUAL).sum()
    return (
        f"{said}\nrecorded on this kind of processor with these versions, and so to be equal: "
        f"{len(alike)} of them, of which {equal} are; the others only have to be near"
    )


def check(seconds: dict, folder: Path, jobs: int) -> int:
    """Recompute runs, compare, print and write the report; the exit status."""
    interrupted = False
    try:
        recompute(seconds, folder, jobs)
    except KeyboardInterrupt:
        interrupted = True
    scores = compare(list(seconds), folder)
    if len(scores):
        results.write_atomically(folder / "report.csv", scores.to_csv(index=False, na_rep="nan"))
        print(scores[SHOWN].to_string(index=False, float_format="{:.6g}".format))
        print(f"{tell(scores)}\nwritten to {folder / 'report.csv'}")
    if interrupted:
        held = f"{scores['key'].nunique() if len(scores) else 0} of {len(seconds)} runs"
        print(f"interrupted: {held} compared, the same command goes on", file=sys.stderr)
        return 130
    return 1 if (scores["verdict"] == BEYOND).any() else 0


def _run(asked):
    dataset = data.resolve(asked.dataset)
    if dataset != "ag_news" and asked.dataset == "auto":
        print(f"AG News is not on this machine: recorded runs on {dataset} would take its place")
    seconds, left = recorded(asked.profile, dataset, asked.embeddings)
    for why, count in left.items():
        print(f"{count} recorded runs are left out: {why}")
    if not seconds:
        advice = "bring AG News, by `python -m snnl_lib data fetch ag_news` or as a folder ag_news "
        advice += "in the one that SNNL_DATA names"
        raise SnnlError(f"no recorded run of Tables 1 to 4 can be made on {dataset} here: {advice}")
    of = len(seconds) + sum(left.values())
    chosen = choose(seconds, math.ceil(of / SHARE_OF_RUNS))
    print(f"{len(chosen)} of {of} recorded runs are chosen by their names, {len(seconds)} at hand")
    return check({spec: seconds[spec] for spec in chosen}, asked.folder, asked.jobs)


def main(argv=None) -> int:
    """Check; 0 if all is equal or near, 1 if a score is beyond, 2 if nothing can be checked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--jobs", type=int, default=1, help="runs side by side (default: 1)")
    add("--folder", type=Path, default=FOLDER, help="where runs and report go")
    add("--embeddings", nargs="+", default=["spacy"], help="embeddings (default: spacy)")
    add("--dataset", default="auto", help="AG News, or another with recorded runs")
    add("--profile", default="full", help="the profile of the recorded runs (default: full)")
    try:
        with full_disk_told():
            return _run(parser.parse_args(argv))
    except SnnlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
