"""``python -m benchmarks.chapters [NAME ...]``: what each chapter costs in the profile quick.

Chapters are executed one after the other, on an otherwise idle machine if the times are to mean
something; each in a process of its own, whose largest child is the kernel. Their runs go to a new
folder, so that none is taken from an earlier build. ``results/bench/chapters-DEVICE.csv`` is
rewritten as chapters are done; named chapters replace their own rows.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from snnl_book import results

from . import _files

ROOT = Path(__file__).resolve().parent.parent


def measure(chapter: Path, device: str) -> dict:
    """Execute a chapter; returns its row."""
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "results"
        records.mkdir()
        for place in (ROOT / "results").iterdir():
            (records / place.name).symlink_to(place)
        environment = os.environ | {"SNNL_RESULTS": str(records), "OMP_NUM_THREADS": "1"}
        command = [
            sys.executable,
            "-m",
            "papermill",
            str(chapter),
            str(Path(folder) / "out.ipynb"),
            "--cwd",
            folder,
            "-p",
            "profile",
            "quick",
        ]
        started = time.perf_counter()
        subprocess.run(
            [*command, "-p", "device", device, "-k", "python3", "--no-progress-bar"],
            env=environment,
            check=True,
            capture_output=True,
        )
        seconds = time.perf_counter() - started
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {"chapter": chapter.stem, "seconds": round(seconds, 1), "memory": round(memory)}


def main():
    sys.path.insert(0, str(ROOT / "book" / "_tools"))
    import build

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="chapters (default: all)")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    path = results.results_dir() / "bench" / f"chapters-{args.device.partition(':')[0]}.csv"
    facts = _files.facts(args.device)
    for chapter in build.chapters():
        if args.names and chapter.stem not in args.names:
            continue
        with ProcessPoolExecutor(
            1, get_context("spawn")
        ) as own:  # so that its largest child is this chapter's kernel
            row = own.submit(measure, chapter, args.device).result()
        table = _files.with_row(path, row | facts, "chapter")
        results.write_atomically(path, table.to_csv(index=False))
        print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
