"""Check the rendered book in a real browser (make check-book).

Every page is opened in light and dark, and as wide as a desk's screen and a phone's. Problems are
listed page by page, and make the exit status 1. Screenshots and the list are in ``_build/check``.
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
    "table.runs tbody:nth-of-type(n+4)",
    "table.runs tbody tr:nth-child(n+4)",
]  # of a page of runs the first settings, and rows of either shade
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
    """The links of a page, its downloads, and its anchors."""

    def __init__(self, path: Path):
        super().__init__()
        self.targets = []
        self.anchors = set()
        self.downloads = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors.update(attributes[name] for name in ("id", "name") if attributes.get(name))
        address = attributes.get("href")
        if tag == "a" and address:
            (self.downloads if "_downloads/" in address else self.targets).append(address)


def is_redirect(path: Path) -> bool:
    """Return whether a page only opens another one."""
    return 'http-equiv="refresh"' in path.read_text(encoding="utf-8")[:500].lower()


def broken_links(pages: dict[str, Links]) -> list[str]:
    """List the links of pages to files or anchors of this book that do not exist."""
    problems = set()
    for name, page in pages.items():
        for target in [*page.targets, *page.downloads]:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = SITE / name
            if parts.path:
                path = path.parent / urllib.parse.unquote(parts.path)
            path = path.resolve() / "index.html" if path.is_dir() else path.resolve()
            linked = pages.get(str(path.relative_to(SITE))) if path.is_relative_to(SITE) else None
            anchor = urllib.parse.unquote(parts.fragment)
            if not path.exists() or (anchor and linked and anchor not in linked.anchors):
                problems.add(f"{name}: the link {target} leads nowhere")
    return sorted(problems)


# ---------------------------------------------------------------- tables against the records

MEAN = r"(-?[\d,]+(?:\.\d+)?)(?: ± [\d,.]+)?(?: ≠)?"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@functools.cache
def record(name: str) -> dict[str, float] | None:
    """Return the scores of a record in results/, or None if there is no record of that name.

    It is read without the library, so that mistakes in the library are noticed.
    """
    for device in ("", ".cuda", ".mps", ".xpu"):
        path = ROOT / "results" / f"{name}{device}.csv"
        if path.exists():
            return {row["metric"]: float(row["value"]) for row in read(path)}
    return None


def differences(pages: dict[str, Links]) -> list[str]:
    """List how the book's CSV files differ from the records, or from the files of its chapters."""
    problems = []
    offered = {
        (SITE / name).parent / target: name
        for name, page in pages.items()
        for target in page.downloads
    }
    written = {}
    for path in (*SOURCE.glob("tables/*.csv"), *SOURCE.glob("runs/tables/*.csv")):
        written.setdefault(path.name, []).append(path)
    for path, name in offered.items():
        if path.suffix != ".csv":
            continue
        if path.read_bytes() not in [file.read_bytes() for file in written.get(path.name, [])]:
            problem = f"the download {path.name} is not the file written when the book was built"
            problems.append(f"{name}: {problem}")
        rows = read(path)
        if rows and "experiment" in rows[0] and "key" in rows[0]:
            problems += _unlike_results(path, rows)
        problems += [f"{name}: {line}" for row in rows for line in _unlike_records(path.name, row)]
    return problems


def _unlike_results(path, rows):
    """Compare a file that has all records of an experiment with results/."""
    in_file = {(row["key"], row["metric"]): row["value"] for row in rows}
    folder = ROOT / "results" / rows[0]["experiment"]
    files = (
        file
        for file in folder.glob("*.csv")
        if not file.name.endswith((".answers.csv", ".curve.csv", ".points.csv"))
    )
    in_results = {(file.stem, row["metric"]): row["value"] for file in files for row in read(file)}
    different = [
        score
        for score in in_file.keys() | in_results.keys()
        if not _equal(in_file.get(score), in_results.get(score))
    ]
    if not different:
        return []
    example = sorted(different)[0]
    return [f"{path.name}: {len(different)} values are not those in results/, such as {example}"]


def _equal(first, second):
    """Return whether two values, as text or None, are the same number; "" is nan."""
    if first == second:
        return True
    if first is None or second is None:
        return {first, second} == {None, ""}
    return float(first or "nan") == float(second or "nan") or {first, second} <= {"", "nan"}


def _unlike_records(name, row):
    """List the records of a row that do not exist, and means that are not those of the records."""
    parts = (row.get("records") or "").split()
    names = [part for part in parts if "/" in part and not part.startswith("results/")]
    if missing := [part for part in names if record(part) is None]:
        return [f"{name}: there is no record {missing[0]}"]
    return [
        line
        for metric, printed in means_shown(row, names)
        if (line := _unlike_mean(name, metric, printed, names))
    ]


def means_shown(row: dict[str, str], names: list[str]) -> list[tuple[str, str]]:
    """List a row's scores that are means over its records, as (metric, printed mean).

    They are ``our mean``, or the columns of scores if one setting is behind the row.
    """
    if "our mean" in row:
        cells = [(row.get("metric", "acc"), row["our mean"])]
    elif len({re.sub(r"-s\d+-n", "-n", part) for part in names}) == 1:
        cells = [(metric, row[metric]) for metric in SCORES if metric in row]
    else:
        cells = []
    means = ((metric, re.fullmatch(MEAN, cell or "")) for metric, cell in cells)
    return [(metric, match[1].replace(",", "")) for metric, match in means if match]


def _unlike_mean(name, metric, printed, names):
    """Return a problem if a printed score is not the mean over the records, else an empty text.

    The records of one random encoder count as one. If runs are scored after each stage (acc_0,
    acc_1, ...), the mean of any stage will do.
    """
    scores = {
        score for part in names for score in record(part) if re.fullmatch(rf"{metric}(_\d)?", score)
    }
    digits = len(printed.partition(".")[2])
    means = []
    for score in sorted(scores):
        units = {}
        for part in names:
            if record(part).get(score, float("nan")) == record(part).get(score):
                drawn = re.search(r"-(infersent-random)-.*-s(\d+)-n", part)
                unit = part if not drawn else drawn[2] if drawn[2] in DRAWS else "first draw"
                units.setdefault(unit, []).append(record(part)[score])
        values = [statistics.fmean(unit) for unit in units.values()]
        if values:
            means.append(statistics.fmean(values))
    if any(abs(mean - float(printed)) <= 0.51 * 10**-digits for mean in means):
        return ""
    recorded = f"{means[0]:.{digits}f}" if means else "not"
    return f"{name}: the mean of {metric} is {recorded} by the records, and {printed} in the table"


# ---------------------------------------------------------------- in the browser


def look(context, address: str, name: str, theme: str, problems: list[str]) -> None:
    """Open a page, and add its problems in one theme to ``problems``.

    Problems concern requests, the console, accessibility, mathematics, weight, code wider than the
    page, and the page's width on a phone.
    """
    page = context.new_page()
    label = f"{name} ({theme})"
    sizes = _listen(page, address, label, problems)
    page.goto(f"{address}/{name}", wait_until="load")
    page.wait_for_function(SET)
    if unset := page.evaluate(UNSET):
        problems.append(f"{label}: {unset} formulas are not set")
    stem = name.removesuffix(".html").replace("/", "-")
    # A picture of the whole page would be too tall for a browser with little memory.
    page.screenshot(path=SEEN / f"{stem}-{theme}.png")
    problems += [f"{label}: {violation}" for violation in _violations(page, theme)]
    if theme == "light":
        if cut := page.evaluate(CUT):
            problems.append(f"{label}: {cut} cells have code that the page's edge cuts")
        weight = sum(sizes) / MEGABYTE
        if weight > 1:
            problems.append(f"{label}: weighs {weight:.2f} MB beyond the shared scripts")
        page.set_viewport_size(PHONE)
        page.wait_for_timeout(500)  # the side bars slide out
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            problems.append(f"{label}: is {width} pixels wide on a phone of {PHONE['width']}")
        page.screenshot(path=SEEN / f"{stem}-phone.png")
    page.close()


def _listen(page, address, label, problems):
    """Add what goes wrong while a page loads to ``problems``; return the sizes of its files."""
    sizes = []

    def on_response(response):
        is_shared = re.search("/_static/|/searchindex.js", response.url)  # by all pages
        if response.url.startswith(address) and not is_shared:
            sizes.append(int(response.headers.get("content-length", 0)))
        if response.status >= 400:
            problems.append(f"{label}: {response.url} answers {response.status}")

    def on_console(message):
        if message.type == "error":
            problems.append(f"{label}: the console says {message.text}")

    def on_request(request):
        if not request.url.startswith((address, "data:", "blob:")):
            problems.append(f"{label}: asks for {request.url}")

    page.on("response", on_response)
    page.on("console", on_console)
    page.on("pageerror", lambda error: problems.append(f"{label}: a script failed: {error}"))
    page.on("request", on_request)
    return sizes


def _violations(page, theme):
    """List what axe-core finds on a page; in the dark theme it looks at contrast alone."""
    page.add_script_tag(path=Path(find_spec("axe_playwright_python").origin).parent / "axe.min.js")
    rules = {"type": "tag", "values": WCAG}
    if theme == "dark":
        rules = {"type": "rule", "values": ["color-contrast"]}
    for violation in page.evaluate(RUN, [ALIKE, rules])["violations"]:
        nodes = violation["nodes"]
        example = nodes[0]["html"][:160]
        title = f"{violation['id']}: {violation['help']}"
        yield f"{title}, {len(nodes)} times, such as {example}"


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
        if not any("02_soft_nearest" in hit for hit in hits):
            problems.append(
                f"search: no chapter on the loss among the {len(hits)} hits for temperature"
            )
    except Error:
        problems.append("search: finds nothing for temperature")
    page.goto(f"{address}/book/02_soft_nearest_neighbor_loss.html")
    try:
        page.wait_for_function("window.snnlPlayground", timeout=20_000)
        difference = page.evaluate("snnlPlayground.selfCheck()")
        if not difference < 1e-6:
            problems.append(f"playground: its numbers are {difference} away from the library's")
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
    """Return the problems of a page in both themes, or of using the book if there is no name."""
    problems = []
    contexts = browser(chromium)
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
    """A server that ignores a page closed before all of its pictures were sent."""

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def find_chromium() -> str | None:
    """Return the path of this machine's browser, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def main() -> int:
    chromium = find_chromium()
    if not chromium:
        print("error: Chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 2
    if not (SITE / "index.html").exists():
        print("error: the book is not built: run make book", file=sys.stderr)
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
    visited = [
        name for name in names if not name.startswith("_modules/") and not is_redirect(SITE / name)
    ]
    # The largest pages come first, so that both browsers end at the same time.
    by_size = sorted(visited, key=lambda name: -(SITE / name).stat().st_size)
    with ProcessPoolExecutor(2) as browsers:
        visits = [browsers.submit(browse, chromium, address, name) for name in [None, *by_size]]
        for number, visit in enumerate(as_completed(visits), start=1):
            problems += visit.result()
            line = f"\r{number} of {len(visits)} visits, {len(problems)} problems"
            print(line, end="", file=sys.stderr, flush=True)
    server.shutdown()
    print(file=sys.stderr)
    (SEEN / "problems.txt").write_text("\n".join([*problems, ""]))
    print(*problems, sep="\n")
    print(f"{len(visited)} pages, light and dark and on a phone: {len(problems)} problems")
    print(f"pictures of their first screens are in {SEEN}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
