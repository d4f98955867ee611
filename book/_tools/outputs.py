"""List what the cells of an executed notebook show, and the problems with it.

Problems are images without an alternative text, tables without a caption, and placeholders that
only the book fills. ``cells_of`` reads a notebook, and ``SEE`` a page that shows the notebook, in
the same form, so that ``compare`` finds what is missing on the page.
"""

import html
import re

RAISED = "it raised"
LEAST_ALT = 30  # characters of an alternative text; fewer cannot describe a figure
NO_ALT = "No description has been provided"  # what nbconvert writes where there is none
ADDED = {"injected-parameters", "papermill-error-cell-tag"}  # cells that papermill puts in
NAMES = "glue|cite|doc|eq|ref|numref|term|math|download|table|figure|run-table"
PLACEHOLDER = re.compile(
    rf"(?<![\w^}}\\])\{{(?:{NAMES})(?=[:}}])"  # LaTeX has a letter, ^ or } before its own braces
    r"|(?<![^\s(*_])\{[a-z][\w:-]*\}(?=`[\w<])"  # any other role, though not the end of `a_{name}`
    r"|`{3,}\s*\{[\w-]+\}|:{3,}|^\([\w-]+\)=$",
    re.MULTILINE,
)
SHOWN = ("text/html", "text/markdown", "image/png", "image/jpeg", "text/plain")  # the first of them
SEE = """() => {
  document.querySelectorAll('details').forEach(one => { one.open = true; });  // else without text
  return [...document.querySelectorAll('.jp-Notebook .jp-Cell')].map(cell => {
    const prose = cell.classList.contains('jp-MarkdownCell');
    const parts = [...cell.querySelectorAll('.jp-MarkdownOutput, .jp-OutputArea-output')];
    const all = what => parts.flatMap(part => [...part.querySelectorAll(what)]);
    return {
      images: all('img').map(one => ({alt: one.alt, width: one.naturalWidth})),
      figures: all('figure').length,
      empty: all('figure:not(:has(img, table))').length,
      tables: all('table').map(one => ({
        caption: prose || one.matches('.dataframe') ? null
          : one.caption ? one.caption.innerText : '',
        rows: one.querySelectorAll('tbody tr').length})),
      unset: all('mjx-merror').length,
      text: parts.map(part => part.innerText).join('\\n')};
  });
}"""


# ---------------------------------------------------------------- what a cell shows


def contents(pages: list[str], texts: list[str], prose: bool) -> dict:
    """Return what the browser should find in a cell, from its HTML, in the form of ``SEE``.

    The width of an image is None, because only the browser knows it. Tables in prose and data
    frames need no caption.
    """
    from bs4 import BeautifulSoup

    soup = BeautifulSoup("\n".join(pages), "html.parser")
    tables = []
    for table in soup.select("table"):
        caption = table.caption.get_text() if table.caption else ""
        if prose or "dataframe" in table.get("class", []):
            caption = None
        tables.append({"caption": caption, "rows": len(table.select("tbody tr"))})
    return {
        "images": [{"alt": image.get("alt", ""), "width": None} for image in soup.select("img")],
        "figures": len(soup.select("figure")),
        "empty": len(soup.select("figure:not(:has(img, table))")),
        "tables": tables,
        "unset": 0,
        "text": "\n".join([*texts, soup.get_text()]),
    }


def cells_of(notebook: dict) -> list[tuple[str, dict]]:
    """List the cells of an executed notebook as (name, contents).

    They are counted as in the chapter, without those that papermill added.
    """
    from markdown_it import MarkdownIt

    render = MarkdownIt("commonmark").enable("table").render
    number = 0
    cells = []
    for cell in notebook["cells"]:
        added = ADDED & {*cell["metadata"].get("tags", [])}
        number += not added
        name = "a cell added by papermill" if added else f"cell {number} ({cell.get('id', '?')})"
        pages = []
        texts = []
        is_prose = cell["cell_type"] == "markdown"
        prose = [{"data": {"text/markdown": cell["source"]}}]
        for output in prose if is_prose else cell.get("outputs", []):
            data = output.get("data") or {"text/plain": output.get("text", "")}
            mime = next((mime for mime in SHOWN if mime in data), "text/plain")
            text = "".join(data.get(mime, ""))
            if mime == "text/markdown":
                texts.append(text)
                pages.append(render(text))
            elif mime.startswith("image/"):
                pages.append("<img>")
            else:
                pages.append(text if mime == "text/html" else f"<pre>{html.escape(text)}</pre>")
        cells.append((name, contents(pages, texts, is_prose)))
    return cells


# ---------------------------------------------------------------- problems


def faults(shown: dict) -> list[str]:
    """List the problems with the contents of a cell."""
    problems = ["a figure has neither an image nor a table"] * shown["empty"]
    for image in shown["images"]:
        alt = "" if image["alt"].startswith(NO_ALT) else " ".join(image["alt"].split())
        if len(alt) < LEAST_ALT:
            length = f"of {len(alt)} characters, fewer than {LEAST_ALT}: {alt!r}"
            problems.append(f"an image has an alternative text {length}")
        if image["width"] == 0:
            problems.append(f"an image has no pixels: {alt[:60]!r}")
    for table in shown["tables"]:
        if table["caption"] is not None and not table["caption"].strip():
            problems.append("a table has no caption")
        if not table["rows"]:
            problems.append(f"a table has no rows: {(table['caption'] or '').strip()[:60]!r}")
    if shown["unset"]:
        problems.append(f"{shown['unset']} formulas are not set")
    placeholders = dict.fromkeys(match[0] for match in PLACEHOLDER.finditer(shown["text"]))
    problems += [f"a placeholder is left: {text}" for text in placeholders]
    if "Traceback (most recent call last)" in shown["text"]:
        problems.append("a traceback is shown")
    return problems


def faults_of_outputs(cell: dict) -> list[str]:
    """List the problems with a cell's outputs that only the notebook shows.

    They are errors, warnings, and figures and tables whose HTML does not have one.
    """
    problems = []
    for output in cell.get("outputs", []):
        if output["output_type"] == "error":
            problems.append(f"{RAISED} {output['ename']}: {output['evalue'].partition(chr(10))[0]}")
        if output.get("name") == "stderr":
            problems.append(f"a warning is shown: {''.join(output['text']).strip()[:200]!r}")
        data = output.get("data", {})
        shown = contents(["".join(data.get("text/html", ""))], [], False)
        for tag, count in (("figure", shown["figures"]), ("table", len(shown["tables"]))):
            if f"application/vnd.snnl.{tag}+json" in data and count != 1:
                problems.append(f"an output that is a {tag} holds {count} <{tag}> in its HTML")
    return problems


def problems_of(notebook: dict) -> list[tuple[str, str]]:
    """List the problems with an executed notebook as (cell, problem)."""
    cells = zip(notebook["cells"], cells_of(notebook), strict=True)
    return [
        (name, problem)
        for cell, (name, shown) in cells
        for problem in (*faults_of_outputs(cell), *faults(shown))
    ]


def compare(cells: list[tuple[str, dict]], on_page: list[dict]) -> list[tuple[str, str]]:
    """List the problems with a page that shows the cells of a notebook as (cell, problem)."""
    if len(cells) != len(on_page):
        return [("the page", f"it shows {len(on_page)} cells of {len(cells)}")]
    problems = []
    for (name, expected), shown in zip(cells, on_page, strict=True):
        for noun, size in (("images", len), ("figures", int), ("tables", len)):
            count = size(shown[noun])
            if count != size(expected[noun]):
                problems.append((name, f"the page shows {count} {noun} of {size(expected[noun])}"))
        problems += [(name, problem) for problem in faults(shown)]
    return problems
