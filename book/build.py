"""Execute the chapters with papermill into _build/src and render them with Jupyter Book into _build/book.

A chapter is executed again only when something it depends on has changed: itself, the library, the records, its parameters or the data.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

os.environ["OMP_NUM_THREADS"] = "1"

from snnl_lib import SnnlError, experiments

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "_build" / "src"


def chapters() -> list[Path]:
    """List the notebooks of the table of contents."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    found = [ROOT / f"{entry['file']}.ipynb" for entry in toc["chapters"]]
    return [path for path in found if path.exists()]


def copy_sources() -> None:
    """Copy everything but the notebooks, which arrive executed."""
    (SOURCE / "book").mkdir(parents=True, exist_ok=True)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copyfile(ROOT / name, SOURCE / name)
    for path in (ROOT / "book").rglob("*"):
        if path.is_file() and path.suffix in {".md", ".bib", ".css", ".py", ".png"} and "tables" not in path.parts:
            target = SOURCE / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def fitting(chapter: Path, parameters: dict) -> dict:
    """Return the parameters for one chapter: a data set of the kind that it is not about does not concern it."""
    said = re.search(r'parameters\(globals\(\), kind=\\"([a-z ]+)\\"\)', chapter.read_text())
    kind = said[1] if said else "texts"
    dataset = experiments.data.resolve(parameters["dataset"], kind)
    return parameters | {"dataset": dataset if experiments.data.describe(dataset).kind == kind else experiments.data.resolve("auto", kind)}


def depends_on(chapter: Path, parameters: dict) -> str:
    """Hash everything that can change an executed chapter."""
    digest = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode())
    digest.update(f"{experiments.fingerprint(parameters['dataset'], 'spacy')}".encode())
    files = [chapter, ROOT / "requirements-lock.txt", *sorted((ROOT / "snnl_lib").rglob("*.py")), *sorted((ROOT / "snnl_lib").rglob("*.csv"))]
    for path in [*files, *sorted((ROOT / "results").rglob("*.csv"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def execute(chapter: Path, parameters: dict) -> str:
    """Execute one chapter unless nothing it depends on has changed; returns what to say about it."""
    parameters = fitting(chapter, parameters)
    output, key = SOURCE / "book" / chapter.name, SOURCE / "book" / f"{chapter.stem}.key"
    wanted = depends_on(chapter, parameters)
    if output.exists() and key.exists() and key.read_text() == wanted:
        return f"{chapter.stem}: unchanged"
    key.unlink(missing_ok=True)
    started, unfinished = time.perf_counter(), ROOT / "_build" / "logs" / chapter.name
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    given = [part for name, value in parameters.items() for part in ("-r", name, value)]
    command = [sys.executable, "-m", "papermill", str(chapter), str(unfinished), *given, "--cwd", str(output.parent), "-k", "python3", "--no-progress-bar"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "papermill failed"
        raise SnnlError(f"{chapter.stem} did not run: {last} (the executed cells are in {unfinished})")
    notebook = json.loads(unfinished.read_text())
    for cell in notebook["cells"]:
        if "injected-parameters" in cell["metadata"].get("tags", []):
            cell["metadata"]["tags"].append("hide-input")
    output.write_text(json.dumps(notebook))
    key.write_text(wanted)
    return f"{chapter.stem}: executed in {time.perf_counter() - started:.0f} s"


def render() -> Path:
    """Render the executed chapters; a warning is an error."""
    target = ROOT / "_build" / "book"
    page = target / "_build" / "html" / "index.html"
    page.unlink(missing_ok=True)
    command = [str(Path(sys.executable).parent / "jupyter-book"), "build", str(SOURCE), "--path-output", str(target), "-W", "-n", "--keep-going", "-q"]
    if subprocess.run(command).returncode or not page.exists():
        raise SnnlError("the book did not render without warnings: see the messages above")
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--dataset", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", default="42", help='for what is run live, such as "42,73" (default: 42)')
    parser.add_argument("--jobs", type=int, default=2, help="chapters executed side by side (default: 2)")
    args = vars(parser.parse_args())
    jobs = args.pop("jobs")
    try:
        asked = experiments.data.resolve(args["dataset"])
        experiments.parameters(args, experiments.data.describe(asked).kind)  # before a kernel starts
        copy_sources()
        with ThreadPoolExecutor(jobs) as pool:
            for line in pool.map(lambda chapter: execute(chapter, args), chapters()):
                print(line, flush=True)
        page = render()
    except SnnlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"The book is at {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
