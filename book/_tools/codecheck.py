"""Recompute a chosen tenth of Tables 1 to 4 on a CPU, and compare with results/ (make codecheck).

The choice sees names and seconds of the recorded runs, and none of their scores: they are put in
the order of the sha256 of their names, and taken from the first on until there are a tenth of all;
one that would bring the recorded seconds beyond two hours is passed over. Only averaged vectors
are meant unless ``--embeddings`` names others: a sentence encoder takes up to an hour to embed the
documents before the first run, and one to be trained.

Two scores are near where they differ by no more than what the book's rule calls "within": 1.5
points, or a tenth of a score that is no fraction. Training carries a last bit on until it does what
another seed would have done; so a score that is further off, but by no more than two seeds of its
row differ in 99 of 100 cases, has a verdict of its own. What differs by more than both is beyond.
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
SECONDS = 7200  # no more than this by recorded seconds, an hour on two cores
SHOWN = ["run", "score", "recorded", "recomputed", "difference", "verdict"]
EQUAL, NEAR, SEEDS, BEYOND = "equal", "near", "as seeds do", "beyond"
SURE = 0.99  # how many differences between two seeds of a row the limit of SEEDS holds
ROW = "dataset embedding model alpha temperature settings".split()


def recorded(profile: str, dataset: str, embeddings: list[str]) -> tuple[dict, Counter]:
    """Return the recorded runs that can be made here, as spec -> seconds, and count the others by
    why they are left out.
    """
    seconds, left = {}, Counter()
    for name in TABLES:
        took = {run.identity: run.seconds for run in results.runs(name, profile)}
        for spec, verdict, unmet, *_ in status(name, profile, dataset, device="cpu"):
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


def beside(records: pd.DataFrame, name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return a run's own record, and by how much two seeds of its row may differ in each score.

    That is the repeatability limit, t * sqrt(2) * standard deviation, of the row's other seeds: a
    wrong record must not widen what it is judged by.
    """
    own = records[records["key"] == name]
    of_row = (records[ROW] == own[ROW].iloc[0]).all(axis=1)
    others = records[of_row & (records["key"] != name)].groupby("metric")["value"]
    t = stats.t.ppf((1 + SURE) / 2, others.count() - 1)
    return own.set_index("metric"), t * math.sqrt(2) * others.std()


def judge(then: float, now: float, margin: float, limit: float) -> str:
    """Judge a recomputed score by the margins above."""
    if then == now or (math.isnan(then) and math.isnan(now)):
        return EQUAL
    off = abs(now - then)
    return NEAR if off <= margin else SEEDS if off <= limit else BEYOND


def compare(specs: list, folder: Path) -> pd.DataFrame:
    """Set what was recomputed beside what is recorded, a row a score."""
    rows, records = [], {}
    for spec in specs:
        if (made := recomputed(spec, folder)) is None:
            continue
        name, made = spec.experiment, made.set_index("metric")
        if name not in records:
            records[name] = results.load_results(name, spec.profile)
        theirs, limits = beside(records[name], key(spec))
        for metric in EXPERIMENTS[name].metrics:
            then, now = (float(frame["value"].get(metric, math.nan)) for frame in (theirs, made))
            margin = POINTS if metric in FRACTIONS else SHARE * abs(then)
            limit = float(limits.get(metric, math.nan))
            row = {"run": f"{name}: {spec}", "score": metric, "recorded": then, "recomputed": now}
            row |= {"difference": now - then, "verdict": judge(then, now, margin, limit)}
            row |= {"margin": margin, "limit_of_seeds": limit, "key": key(spec)}
            for fact in ("status", "seconds", "device", "versions", "commit"):
                row |= {f"recorded_{fact}": theirs[fact].iloc[0], fact: made[fact].iloc[0]}
            rows.append(row)
    return pd.DataFrame(rows)


def alike(row) -> bool:
    """Tell if a run was recorded on a processor of this name, with the versions here."""
    then, now = (
        dict(part.split(" ", 1) for part in versions.split("; "))
        for versions in (row.recorded_versions, row.versions)
    )
    same = all(then[name] == now[name] for name in then.keys() & now.keys())
    return same and row.recorded_device == row.device


def tell(scores: pd.DataFrame) -> str:
    """Say how many scores have each verdict, of those recorded on a machine like this one too."""
    counts = Counter(scores["verdict"])
    verdicts = [row.verdict for row in scores.itertuples() if alike(row)]
    return (
        f"{counts[EQUAL]} of {len(scores)} scores equal to the last digit, {counts[NEAR]} within "
        f"{100 * POINTS:.1f} points ({SHARE:.0%} of a score that is no fraction), {counts[SEEDS]} "
        f"no further off than two seeds of their row in {SURE:.0%} of cases, "
        f"{counts[BEYOND]} beyond\n"
        f"{len(verdicts)} were recorded on a processor of this name with these versions; "
        f"{verdicts.count(EQUAL)} of these are equal"
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
        held = f"{len({*scores['key']}) if len(scores) else 0} of {len(seconds)} runs"
        print(f"interrupted: {held} compared, the same command goes on", file=sys.stderr)
        return 130
    return 1 if len(scores) and (scores["verdict"] == BEYOND).any() else 0


def _run(asked):
    dataset = data.resolve(asked.dataset)
    if dataset != "ag_news" and asked.dataset == "auto":
        print(f"AG News is not on this machine: recorded runs on {dataset} would take its place")
    seconds, left = recorded(asked.profile, dataset, asked.embeddings)
    for why, count in left.items():
        print(f"{count} recorded runs are left out: {why}")
    if not seconds:
        advice = "records are of AG News with 89,029 training documents, as a folder ag_news in "
        advice += "the one that SNNL_DATA names; the official files make runs of other names"
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
        return _run(parser.parse_args(argv))
    except (SnnlError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
