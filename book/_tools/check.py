"""Look at the rendered book in a real browser (make check-book): every page, light and dark, wide
and as narrow as a phone.

What is wrong is listed, page by page, and the exit status is 1. Screenshots and the list stay in
``_build/check``.
"""

import csv
import functools
import http.server
import re
import shutil
import statistics
import sys
import threading
import urllib.parse
from concurrent.futures import ProcessPoolExecutor, as_completed
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE, SOURCE, SEEN = (
    ROOT / "_build" / "book" / "_build" / "html",
    ROOT / "_build" / "src" / "book",
    ROOT / "_build" / "check",
)
RUN = (
    "([alike, rules]) => axe.run({exclude: alike.map(one => [one])}, {runOnly: rules, preload:"
    " false})"
)
SET = "!window.MathJax || !MathJax.startup || MathJax.startup.promise.then(() => true)"
UNSET = (
    "[...document.querySelectorAll('.math')].filter(one => !one.querySelector('mjx-container') ||"
    " one.querySelector('mjx-merror')).length"
)
CUT = (
    "[...document.querySelectorAll('.cell_input pre')].filter(one => one.scrollWidth >"
    " one.clientWidth).length"
)
ALIKE = [
    ".wide:nth-of-type(n+4) table.runs",
    "table.runs tbody tr:nth-child(n+3)",
]  # of a page of runs the first tables, and rows of either shade
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1300, "height": 900}
SCORES = ("acc", "nmi", "ari", "sil", "dbi", "chs", "f1_macro")
DRAWS = ("1", "2")  # the seeds whose runs have a random encoder of their own: one unit of a mean
MEGABYTE = 2**20
NO_PAGES = {
    "genindex",
    "py-modindex",
    "search",
}  # made by Sphinx, and looked at only as far as the search is used


class Links(HTMLParser):
    """Where a page leads, and the places in it that can be led to."""

    def __init__(self, path: Path):
        super().__init__()
        self.targets, self.places, self.downloads = [], set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        own = dict(attrs)
        self.places |= {own[name] for name in ("id", "name") if own.get(name)}
        if tag == "a" and own.get("href"):
            (self.downloads if "_downloads/" in own["href"] else self.targets).append(own["href"])


def broken_links(pages: dict[str, Links]) -> list[str]:
    """Name each link of a page to a file or a place of this book that is not there."""
    found = []
    for name, page in pages.items():
        for target in [*page.targets, *page.downloads]:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = (
                (SITE / name).parent / urllib.parse.unquote(parts.path)
                if parts.path
                else SITE / name
            )
            path = path.resolve() / "index.html" if path.is_dir() else path.resolve()
            there = pages.get(str(path.relative_to(SITE))) if path.is_relative_to(SITE) else None
            if not path.exists() or (
                parts.fragment
                and there
                and urllib.parse.unquote(parts.fragment) not in there.places
            ):
                found.append(f"{name}: the link {target} leads nowhere")
    return sorted(set(found))


# ---------------------------------------------------------------- tables against the records

MEAN = r"(-?[\d,]+(?:\.\d+)?)(?: ± [\d,.]+)?(?: ≠)?"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@functools.cache
def record(name: str) -> dict[str, float] | None:
    """The scores of a record in results/, read without the library; None if there is none of that
    name.
    """
    path = ROOT / "results" / f"{name}.csv"
    return {row["metric"]: float(row["value"]) for row in read(path)} if path.exists() else None


def differences(pages: dict[str, Links]) -> list[str]:
    """Name what a CSV file that the book offers says otherwise than the records, or than the file
    that its chapter wrote.
    """
    found, offered = [], {}
    for name, page in pages.items():
        offered |= {(SITE / name).parent / target: name for target in page.downloads}
    written = {}
    for path in (*SOURCE.glob("tables/*.csv"), *SOURCE.glob("runs/tables/*.csv")):
        written.setdefault(path.name, []).append(path)
    for path, name in offered.items():
        if path.suffix != ".csv":
            continue
        if path.read_bytes() not in [own.read_bytes() for own in written.get(path.name, [])]:
            found.append(
                f"{name}: the download {path.name} is not what was written when the book was built"
            )
        rows = read(path)
        found += (
            _unlike_results(path, rows)
            if rows and "experiment" in rows[0] and "key" in rows[0]
            else []
        )
        found += [f"{name}: {line}" for row in rows for line in _unlike_records(path.name, row)]
    return found


def _unlike_results(path, rows):
    """Compare the file with all records of an experiment with results/."""
    theirs = {(row["key"], row["metric"]): row["value"] for row in rows}
    folder = ROOT / "results" / rows[0]["experiment"]
    files = (
        file
        for file in folder.glob("*.csv")
        if not file.name.endswith((".answers.csv", ".curve.csv", ".points.csv"))
    )
    ours = {(file.stem, row["metric"]): row["value"] for file in files for row in read(file)}
    odd = [
        key
        for key in theirs.keys() | ours.keys()
        if theirs.get(key, "") != ours.get(key, "") and not _equal(theirs.get(key), ours.get(key))
    ]
    return (
        [f"{path.name}: {len(odd)} values are not those in results/, such as {sorted(odd)[0]}"]
        if odd
        else []
    )


def _equal(one, other):
    return (
        one is not None
        and other is not None
        and (float(one or "nan") == float(other) or {one, other} <= {"", "nan"})
    )


def _unlike_records(name, row):
    """Name the records of a row that do not exist, and a mean that is not theirs."""
    names = [
        part for part in (row.get("records") or "").split() if "/" in part and "/bench" not in part
    ]
    if missing := [part for part in names if record(part) is None]:
        return [f"{name}: there is no record {missing[0]}"]
    return [
        line
        for metric, said in means_shown(row, names)
        if (line := _unlike_mean(name, metric, said, names))
    ]


def means_shown(row: dict[str, str], names: list[str]) -> list[tuple[str, str]]:
    """List a row's scores that are means over its records, as (metric, what is printed): ``our
    mean``, or the columns of scores if one setting is behind it.
    """
    if "our mean" in row:
        shown = [(row.get("metric", "acc"), row["our mean"])]
    else:
        settings = {re.sub(r"-s\d+-n", "-n", part) for part in names}
        shown = (
            [(metric, row[metric]) for metric in SCORES if metric in row]
            if len(settings) == 1
            else []
        )
    means = ((metric, re.fullmatch(MEAN, said or "")) for metric, said in shown)
    return [(metric, found[1].replace(",", "")) for metric, found in means if found]


def _unlike_mean(name, metric, said, names):
    """Say so if a printed score is not the mean over the records, those of one random encoder
    counted as one; of a run that is scored after each stage (acc_0, acc_1, ...) it may be any.
    """
    scores = {
        own for part in names for own in record(part) if re.fullmatch(rf"{metric}(_\d)?", own)
    }
    digits, means = len(said.partition(".")[2]), []
    for score in sorted(scores):
        units = {}
        for part in names:
            if record(part).get(score, float("nan")) == record(part).get(score):
                drawn = re.search(r"-(infersent-random)-.*-s(\d+)-n", part)
                unit = part if not drawn else drawn[2] if drawn[2] in DRAWS else "first draw"
                units.setdefault(unit, []).append(record(part)[score])
        values = [statistics.fmean(unit) for unit in units.values()]
        means += [statistics.fmean(values)] if values else []
    if any(abs(mean - float(said)) <= 0.51 * 10**-digits for mean in means):
        return ""
    return (
        f"{name}: the mean of {metric} is {f'{means[0]:.{digits}f}' if means else 'not'} by the"
        f" records, and {said} in the table"
    )


# ---------------------------------------------------------------- in the browser


def look(context, address: str, name: str, theme: str, problems: list[str]) -> None:
    """Open a page and note what is wrong with it in one theme: requests, the console,
    accessibility, mathematics, weight, code wider than the page, and its width on a phone.
    """
    page, weight, where = context.new_page(), [0], f"{name} ({theme})"

    def weigh(response):
        if response.url.startswith(address) and not re.search(
            "/_static/|/searchindex.js", response.url
        ):  # shared by all pages
            weight[0] += int(response.headers.get("content-length", 0))
        if response.status >= 400:
            problems.append(f"{where}: {response.url} answers {response.status}")

    page.on("response", weigh)
    page.on(
        "console",
        lambda said: (
            problems.append(f"{where}: the console says {said.text}")
            if said.type == "error"
            else None
        ),
    )
    page.on("pageerror", lambda error: problems.append(f"{where}: a script failed: {error}"))
    page.on(
        "request",
        lambda asked: (
            None
            if asked.url.startswith((address, "data:", "blob:"))
            else problems.append(f"{where}: asks for {asked.url}")
        ),
    )
    page.goto(f"{address}/{name}", wait_until="load")
    page.wait_for_function(SET)
    if unset := page.evaluate(UNSET):
        problems.append(f"{where}: {unset} formulas are not set")
    stem = name.removesuffix(".html").replace("/", "-")
    # A picture of the whole page would be too tall for a browser with little memory.
    page.screenshot(path=SEEN / f"{stem}-{theme}.png")
    page.add_script_tag(path=Path(find_spec("axe_playwright_python").origin).parent / "axe.min.js")
    rules = (
        {"type": "rule", "values": ["color-contrast"]}
        if theme == "dark"
        else {"type": "tag", "values": WCAG}
    )
    for violation in page.evaluate(RUN, [ALIKE, rules])["violations"]:
        nodes = violation["nodes"]
        problems.append(
            f"{where}: {violation['id']}: {violation['help']}, {len(nodes)} times, such as"
            f" {nodes[0]['html'][:160]}"
        )
    if theme == "light":
        if cut := page.evaluate(CUT):
            problems.append(f"{where}: {cut} cells have code that the page's edge cuts")
        if weight[0] > MEGABYTE:
            problems.append(
                f"{where}: weighs {weight[0] / MEGABYTE:.2f} MB beyond the shared scripts"
            )
        page.set_viewport_size(PHONE)
        page.wait_for_timeout(500)  # the side bars slide out
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > PHONE["width"]:
            problems.append(f"{where}: is {wide} pixels wide on a phone of {PHONE['width']}")
        page.screenshot(path=SEEN / f"{stem}-phone.png")
    page.close()


def use(context, address: str, problems: list[str]) -> None:
    """Search for a word, and try the playground against the library's numbers."""
    from playwright.sync_api import Error

    page = context.new_page()
    page.goto(f"{address}/search.html?q=temperature")
    try:
        page.wait_for_selector("#search-results li a", timeout=20_000)
        hits = [
            link.get_attribute("href") for link in page.query_selector_all("#search-results li a")
        ]
        if not any("04_soft_nearest" in hit for hit in hits):
            problems.append(
                f"search: no chapter on the loss among the {len(hits)} hits for temperature"
            )
    except Error:
        problems.append("search: finds nothing for temperature")
    page.goto(f"{address}/book/02_soft_nearest_neighbor_loss.html")
    try:
        page.wait_for_function("window.snnlPlayground", timeout=20_000)
        apart = page.evaluate("snnlPlayground.selfCheck()")
        if not apart < 1e-6:
            problems.append(f"playground: its numbers are {apart} away from the library's")
    except Error as error:
        problems.append(f"playground: it does not start ({error.message.splitlines()[0]})")
    page.close()


@functools.cache
def browser(chromium: str) -> list:
    """Start this process's browser, once: a context for each theme."""
    from playwright.sync_api import sync_playwright

    opened = (
        sync_playwright().start().chromium.launch(executable_path=chromium, args=["--no-sandbox"])
    )
    return [
        (theme, opened.new_context(color_scheme=theme, viewport=DESK))
        for theme in ("light", "dark")
    ]


def browse(chromium: str, address: str, name: str | None) -> list[str]:
    """Look at a page in both themes, or, without a name, use the book; returns what is wrong."""
    problems, contexts = [], browser(chromium)
    if name is None:
        use(contexts[0][1], address, problems)
        return problems
    for theme, context in contexts:
        look(context, address, name, theme, problems)
    return problems


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Says nothing of a page that was closed before all of its pictures had come."""

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def find_chromium() -> str | None:
    """Find the browser of this machine."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def main() -> int:
    chromium = find_chromium()
    if not chromium:
        print("error: Chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 2
    if not (SITE / "index.html").exists():
        print("error: there is no book to look at: make book", file=sys.stderr)
        return 2
    shutil.rmtree(SEEN, ignore_errors=True)
    SEEN.mkdir(parents=True)
    names = sorted(
        str(path.relative_to(SITE))
        for path in SITE.rglob("*.html")
        if path.stem not in NO_PAGES and "_static" not in path.parts
    )
    pages = {name: Links(SITE / name) for name in names}
    problems = broken_links(pages) + differences(pages)
    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    shown = [name for name in names if not name.startswith("_modules/") and name != "index.html"]
    heavy = sorted(
        shown, key=lambda name: -(SITE / name).stat().st_size
    )  # first, so that both browsers end at the same time
    with ProcessPoolExecutor(2) as browsers:
        looked = [browsers.submit(browse, chromium, address, name) for name in [None, *heavy]]
        for number, found in enumerate(as_completed(looked), start=1):
            problems += found.result()
            print(
                f"\r{number} of {len(looked)} visits, {len(problems)} problems",
                end="",
                file=sys.stderr,
                flush=True,
            )
    server.shutdown()
    print(file=sys.stderr)
    (SEEN / "problems.txt").write_text("\n".join([*problems, ""]))
    print(*problems, sep="\n")
    print(
        f"{len(shown)} pages, light and dark and on a phone: {len(problems)} problems; pictures of"
        f" their first screens in {SEEN}"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
