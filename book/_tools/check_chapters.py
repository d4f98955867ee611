"""Check every executed chapter outside of the book (make check-chapters).

It is read as a notebook, as nbconvert's page, and in JupyterLab, which does not trust it. Problems
are listed with chapter and cell, and make the exit status 1. Copies of the notebooks, nbconvert's
pages, screenshots of JupyterLab and the list are in ``_build/check``.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import build
import check
import outputs

FOLDER = check.SEEN / "chapters"
SETTINGS = {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},  # all cells at once
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}
LOADED = "[...document.images].every(one => one.complete)"


# ---------------------------------------------------------------- in the browser


@contextlib.contextmanager
def jupyterlab(folder: Path):
    """Serve a folder with JupyterLab, and yield its address.

    The server has new settings and trusts no notebook. It has neither a kernel nor a terminal, so
    that it can run nothing.
    """
    with tempfile.TemporaryDirectory() as scratch, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        names = ("config", "data", "runtime", "app", "user")
        folders = {name: Path(scratch) / name for name in names}
        for path in folders.values():
            path.mkdir()
        (folders["app"] / "overrides.json").write_text(json.dumps(SETTINGS))
        options = [
            *("--no-browser", "--allow-root", "--IdentityProvider.token=", "--ip=127.0.0.1"),
            *(f"--port={port}", "--ServerApp.port_retries=0", f"--notebook-dir={folder}"),
            *(f"--LabApp.{name}_settings_dir={folders[name]}" for name in ("app", "user")),
            *(f"--LabApp.workspaces_dir={scratch}", "--ServerApp.terminals_enabled=False"),
            "--KernelSpecManager.allowed_kernelspecs=none",
            "--KernelSpecManager.ensure_native_kernel=False",
        ]
        dirs = {f"JUPYTER_{name.upper()}_DIR": str(folders[name]) for name in names[:3]}
        with (Path(scratch) / "log").open("w+") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *options], stderr=log, env=os.environ | dirs
            )
            try:
                _wait(server, f"http://127.0.0.1:{port}/api/status", Path(log.name))
                yield f"http://127.0.0.1:{port}"
            finally:
                server.terminate()
                server.wait()


def _wait(server, address, log, seconds=60):
    """Wait until a server answers, and raise SnnlError with its last line if it does not."""
    for _ in range(5 * seconds):
        with contextlib.suppress(OSError), urllib.request.urlopen(address):
            return
        if server.poll() is not None:
            break
        time.sleep(0.2)
    last = (log.read_text().strip().splitlines() or ["its log is empty"])[-1]
    raise build.SnnlError(f"JupyterLab does not start: {last}")


def open_page(context, address: str, allowed: str):
    """Open a page that can load files from the ``allowed`` address alone."""
    prefixes = (allowed, "data:", "blob:")
    page = context.new_page()
    page.route(lambda url: not url.startswith(prefixes), lambda route: route.abort())
    page.goto(address, wait_until="domcontentloaded")
    return page


def in_nbconvert(context, executed: Path, target: Path) -> list[dict]:
    """Convert an executed notebook to a page and list what each cell shows there."""
    from nbconvert import HTMLExporter

    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(HTMLExporter(embed_images=True).from_filename(str(executed))[0])
    page = open_page(context, target.as_uri(), "file:")
    page.wait_for_function(LOADED)
    cells = page.evaluate(outputs.SEE)
    page.close()
    return cells


def in_jupyterlab(context, address: str, name: str, cells: int, picture: Path) -> list[dict]:
    """Open a notebook in JupyterLab, keep a picture of it, and list what each cell shows."""
    from playwright.sync_api import Error

    page = open_page(context, f"{address}/lab/tree/{name}?reset", address)
    with contextlib.suppress(Error):  # cells that are still missing are found by the comparison
        count = "document.querySelectorAll('.jp-Notebook .jp-Cell').length"
        page.wait_for_function(f"{count} >= {cells}", timeout=60_000)
        page.locator(".jp-Dialog .jp-mod-reject").click(timeout=10_000)  # asks for a kernel
    size = "document.querySelector('.jp-Notebook')?.innerHTML.length"
    sizes = []
    while len(sizes) < 3 or (len(sizes) < 30 and len({*sizes[-3:]}) > 1):  # until it stops changing
        sizes.append(page.evaluate(size))
        page.wait_for_timeout(500)
    page.wait_for_function(LOADED)
    contents = page.evaluate(outputs.SEE)
    tall = page.evaluate("document.querySelector('.jp-WindowedPanel-outer')?.scrollHeight || 700")
    height = min(tall + 200, 16_000)  # Chromium draws no more than that
    page.set_viewport_size({"width": check.DESK["width"], "height": height})
    page.wait_for_timeout(500)
    page.screenshot(path=picture)
    page.close()
    return contents


def look(context, address: str, executed: Path, pictures: Path) -> tuple[dict, str]:
    """Check an executed notebook in all three ways.

    Returns (the views that have each problem, by the pair of cell and problem; how many figures and
    tables there should be, as text).
    """
    notebook = json.loads(executed.read_text())
    cells = outputs.cells_of(notebook)
    page = executed.parent / "html" / f"{executed.stem}.html"
    picture = pictures / f"lab-{executed.stem}.png"
    views = {
        "notebook": outputs.problems_of(notebook),
        "nbconvert": outputs.compare(cells, in_nbconvert(context, executed, page)),
        "JupyterLab": outputs.compare(
            cells, in_jupyterlab(context, address, executed.name, len(cells), picture)
        ),
    }
    views_of: dict[tuple, list[str]] = {}
    for view, problems in views.items():
        for problem in dict.fromkeys(problems):
            views_of.setdefault(problem, []).append(view)
    figures = sum(len(contents["images"]) for _, contents in cells)
    tables = sum(len(contents["tables"]) for _, contents in cells)
    return views_of, f"{figures} figures, {tables} tables"


def look_at_all(chromium: str, notebooks: list[Path], pictures: Path) -> list[str]:
    """Check the executed notebooks of a folder one after another, and return their problems.

    Prints how long each took.
    """
    (_, context), *_ = check.browser(chromium)
    pictures.mkdir(parents=True, exist_ok=True)
    problems = []
    with jupyterlab(notebooks[0].parent) as address:
        for executed in notebooks:
            started = time.monotonic()
            views_of, counts = look(context, address, executed, pictures)
            problems += [
                f"{executed.stem}, {cell}: {problem} [{', '.join(views)}]"
                for (cell, problem), views in views_of.items()
            ]
            seconds = time.monotonic() - started
            summary = f"{counts}, {len(views_of)} problems, checked in {seconds:.0f} s"
            print(f"{executed.stem}: {summary}", flush=True)
    return problems


def copies(chapters: list[Path]) -> list[Path]:
    """Copy the executed chapters, so that JupyterLab cannot change those of the book.

    Raises SnnlError if one has not been executed.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    executed = [build.EXECUTED / chapter.name for chapter in chapters]
    for path in executed:
        if not path.exists():
            raise build.SnnlError(f"{path.stem} has not been executed: make book")
    return [Path(shutil.copy(path, FOLDER)) for path in executed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="chapters, without .ipynb (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="browsers at a time")
    args = parser.parse_args()
    chapters = [path for path in build.chapters() if not args.names or path.stem in args.names]
    if unknown := {*args.names} - {path.stem for path in chapters}:
        print(f"error: there is no chapter {sorted(unknown)[0]}", file=sys.stderr)
        return 2
    if not (chromium := check.find_chromium()):
        print("error: Chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 2
    try:
        executed = copies(chapters)
        shares = [share for start in range(args.jobs) if (share := executed[start :: args.jobs])]
        with ProcessPoolExecutor(len(shares)) as browsers:
            checks = [browsers.submit(look_at_all, chromium, share, check.SEEN) for share in shares]
            problems = sorted(problem for done in checks for problem in done.result())
    except build.SnnlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    (check.SEEN / "chapters.txt").write_text("\n".join([*problems, ""]))
    print(*problems, sep="\n")
    print(f"{len(chapters)} chapters: {len(problems)} problems; screenshots in {check.SEEN}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
