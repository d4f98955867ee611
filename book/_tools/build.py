"""One step of building the book: execute a chapter with papermill, or render the executed chapters.
The Snakefile puts the steps in order.
"""

import argparse
import csv
import hashlib
import json
import math
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

from snnl_book import data, results
from snnl_lib import SnnlError
from snnl_lib.checkpoint import whole_file

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "_build"
EXECUTED = BUILD / "executed"
SOURCE = BUILD / "src"
PAGE = BUILD / "book" / "_build" / "html" / "index.html"
PARAMETERS = ("profile", "seeds", "dataset", "device")
COPIED = {".md", ".bib", ".css", ".js", ".py", ".png", ".svg"}  # files that are not notebooks


def contents() -> list[str]:
    """List the table of contents, without endings."""
    return re.findall(r"^\s*- file: (\S+)", (ROOT / "_toc.yml").read_text(), re.MULTILINE)


def chapters() -> list[Path]:
    """List the notebooks of the table of contents."""
    return [path for path in (ROOT / f"{name}.ipynb" for name in contents()) if path.exists()]


def sources() -> list[Path]:
    """List what is rendered besides the chapters."""
    pages = (
        path
        for path in (ROOT / "book").rglob("*")
        if path.suffix in COPIED and "tables" not in path.parts and "__pycache__" not in path.parts
    )
    return [ROOT / "_config.yml", ROOT / "_toc.yml", *sorted(pages)]


def library() -> list[Path]:
    """List the files of the library, on which every chapter depends."""
    suffixes = {".py", ".csv", ".toml"}
    paths = (path for name in ("snnl_lib", "snnl_book") for path in (ROOT / name).rglob("*"))
    return sorted(path for path in paths if path.suffix in suffixes)


def digest_of_records() -> str:
    """Hash all records of the full profile, which chapters show."""
    digest, folder = hashlib.sha256(), results.results_dir("full")
    for path in sorted(folder.rglob("*.csv")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def fitting(chapter: Path, dataset: str) -> str:
    """Return the data set for a chapter: ``dataset``, or the default if that is of another kind.

    A chapter may name a default of its own, which takes the place of ``auto``.
    """
    source = chapter.read_text()
    own = re.search(r'dataset = \\"(\w+)\\" if dataset == \\"auto\\"', source)
    if own and dataset == "auto":
        return own[1]
    match = re.search(r'parameters\(globals\(\), kind=\\"([a-z ]+)\\"\)', source)
    kind = match[1] if match else "texts"
    resolved = data.resolve(dataset, kind)
    return resolved if data.describe(resolved).kind == kind else data.resolve("auto", kind)


def arguments(chapter: Path, parameters: dict[str, str]) -> str:
    """Spell out the parameters for one chapter as arguments of the step ``chapter``."""
    fitted = parameters | {"dataset": fitting(chapter, parameters["dataset"])}
    return shlex.join(f"--{name}={fitted[name]}" for name in PARAMETERS)


def ran_on(dataset: str) -> str:
    """Return the name of the data set that a chapter ran on, and why if it is the substitute."""
    return dataset if data.locate(dataset) else f"digits, as {dataset} is not on this machine"


def data_behind(chapter: Path, dataset: str) -> str:
    """Return the fingerprint of a chapter's data: the page changes with other data."""
    from snnl_book import experiments

    return str(experiments.fingerprint(fitting(chapter, dataset), "tfidf"))


def seeds_of_runs(profile: str, seeds: str) -> str:
    """Return the seeds of recorded runs as text; empty stands for each experiment's own seeds."""
    return seeds or ("" if profile == "full" else "42")


def groups(
    names: list[str], profile: str, seeds: str, dataset: str, device: str
) -> dict[tuple, list[str]]:
    """Group the runs that have no good record and can be made here, with a process for each group.

    Returns (experiment, data set, embedding, seed) -> keys of the records. Runs of a group read the
    same documents and vectors. If runs take seconds, and on a GPU, all seeds are one group, and the
    seed is ``all``.
    """
    from snnl_book import experiments

    seeds = seeds_of_runs(profile, seeds) or None
    together = profile != "full" or experiments.check_device(device) != "cpu"
    rows = [
        row for name in names for row in experiments.status(name, profile, dataset, seeds, device)
    ]
    todo = [row.spec for row in rows if row.verdict != "done"]
    keys_of: dict[tuple, list[str]] = {}
    for spec in experiments.runnable(todo, device):
        group = (spec.experiment, spec.dataset, spec.embedding, "all" if together else spec.seed)
        keys_of.setdefault(group, []).append(experiments.key(spec))
    return keys_of


def _counted(number: int, noun: str, suffix: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}{suffix}"


def announcement(jobs: list[tuple[str, str | None]], cores: int | None) -> str:
    """Return a line on what will be made, with the minutes that chapters took when measured.

    ``jobs`` are (rule, its chapter or None); ``cores`` is None on a cluster.
    """
    rules = [rule for rule, _ in jobs]
    names = [chapter for _, chapter in jobs if chapter]
    parts = [_counted(rules.count("run"), "group", " of runs")] if "run" in rules else []
    if names:
        with (ROOT / "results" / "bench" / "chapters-cpu.csv").open(newline="") as file:
            seconds = {row["chapter"]: float(row["seconds"]) for row in csv.DictReader(file)}
        measured = [seconds[name] for name in names if name in seconds]
        parts.append(_counted(len(names), "chapter", " to execute"))
        if cores and measured:
            minutes = sum(measured) / len(measured) * len(names) / cores / 60
            parts[-1] += f" (about {math.ceil(minutes)} min)"
    if "render" in rules:
        parts.append("pages to render")
    logs = (BUILD / "logs").relative_to(ROOT)
    return f"{', '.join(parts)}; logs are in {logs}" if parts else "everything is up to date"


def execute(chapter: Path, parameters: dict[str, str], log: Path) -> None:
    """Execute one chapter into ``_build/executed``, completely or not at all.

    ``log`` keeps the cells that were executed. Raises SnnlError if one fails.
    """
    from snnl_book import experiments

    output = EXECUTED / chapter.name
    output.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    # Wrong parameters are an error before a kernel starts.
    experiments.parameters(parameters, data.describe(parameters["dataset"]).kind)
    started = time.monotonic()
    created = datetime.now(UTC).isoformat(timespec="seconds")
    _papermill(chapter, log, parameters, output.parent)
    notebook = json.loads(log.read_text())
    for cell in notebook["cells"]:
        if "injected-parameters" in cell["metadata"].get("tags", []):
            cell["metadata"]["tags"].append("remove-input")
    # The largest child process is the kernel.
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    note = {
        **parameters,
        "dataset": ran_on(parameters["dataset"]),
        "created": created,
        "seconds": round(time.monotonic() - started, 1),
        "memory_mb": memory,
        "versions": results.versions(),
        "commit": results.commit(),
        "device": experiments.device_name(experiments.check_device(parameters["device"])),
    }
    notebook["metadata"]["snnl"] = note
    with whole_file(output) as file:
        file.write(json.dumps(notebook).encode())
    print(f"{chapter.stem}: executed in {note['seconds']:.0f} s", flush=True)


def _papermill(chapter, log, parameters, folder):
    """Execute a notebook in a folder; raise SnnlError if a cell fails."""
    options = [part for name, value in parameters.items() for part in ("-r", name, value)]
    options += ["--cwd", str(folder), "-k", "python3", "--no-progress-bar"]
    # The log is written at the end, or when a cell fails.
    options.append("--no-request-save-on-cell-execute")
    command = [sys.executable, "-m", "papermill", str(chapter), str(log), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "papermill failed"
        raise SnnlError(f"{chapter.stem} did not run: {last} (the executed cells are in {log})")


def render() -> None:
    """Render the executed chapters and the pages about them. Raises SnnlError on any warning."""
    import pages
    import rendered

    started = time.monotonic()
    for path in sources():
        target = SOURCE / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    current = {SOURCE / path.relative_to(ROOT) for path in (*sources(), *chapters())}
    for folder in ("runs", "tables", "figures"):  # all files in them are written again below
        shutil.rmtree(SOURCE / "book" / folder, ignore_errors=True)
    for path in SOURCE.rglob("*"):  # files removed from the book are removed from the build
        if path.suffix in COPIED | {".ipynb"} and path not in current:
            path.unlink()
    for path in chapters():
        executed = json.loads((EXECUTED / path.name).read_text())
        page = rendered.page_of(executed, path.stem, SOURCE / "book")
        results.write_atomically(SOURCE / "book" / path.name, json.dumps(page))
    pages.write(SOURCE / "book", contents(), chapters())
    PAGE.unlink(missing_ok=True)
    command = [
        str(Path(sys.executable).parent / "jupyter-book"),
        "build",
        str(SOURCE),
        "--path-output",
        str(BUILD / "book"),
        "-W",
        "-n",
        "--keep-going",
        "-q",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode or not PAGE.exists():
        print(done.stdout)
        raise SnnlError("the book did not render without warnings: see the messages above")
    print(f"pages rendered in {time.monotonic() - started:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    chapter = steps.add_parser("chapter")
    chapter.add_argument("chapter", type=Path)
    chapter.add_argument(
        "log", type=Path, help="where the notebook is kept while it is executed, and if it fails"
    )
    for name in PARAMETERS:
        chapter.add_argument(f"--{name}", required=True)
    steps.add_parser("render")
    steps.add_parser("digest", help="print a hash of all records")
    args = vars(parser.parse_args())
    try:
        if args["step"] == "chapter":
            parameters = {name: args[name] for name in PARAMETERS}
            execute(args["chapter"].resolve(), parameters, args["log"].resolve())
        elif args["step"] == "render":
            render()
        else:
            print(digest_of_records())
    except (SnnlError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
