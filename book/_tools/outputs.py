"""What the cells of an executed notebook show, and what is wrong with it: images without a text
that says what they show, tables without a caption, placeholders that only the book fills.

``cells_of`` reads it from the notebook, and ``SEE`` from a page that shows the notebook, in the
same form, so that ``compare`` can tell what the page left out.
"""

import html
import re

RAISED = "it raised"
LEAST_ALT = 30  # characters: fewer name a figure and do not say what it shows
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
    const all = what => parts.flatMap(part => [...part.querySelectorAll(what)])
      .filter(one => !one.closest('.js-plotly-plot'));  // has no images of its own to tell of
    return {
      images: all('img').map(one => ({alt: one.alt, width: one.naturalWidth})),
      figures: all('figure').length,
      drawn: cell.querySelectorAll('.js-plotly-plot .main-svg:first-child').length,
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
    """List what the browser should find in a cell: the counterpart of ``SEE`` for its HTML. How
    wide an image is only the browser knows; a table in prose, or a data frame, has no caption.
    """
    from bs4 import BeautifulSoup

    soup = BeautifulSoup("\n".join(pages), "html.parser")
    tables = [
        {
            "caption": None
            if prose or "dataframe" in table.get("class", [])
            else table.caption.get_text()
            if table.caption
            else "",
            "rows": len(table.select("tbody tr")),
        }
        for table in soup.select("table")
    ]
    return {
        "images": [{"alt": image.get("alt", ""), "width": None} for image in soup.select("img")],
        "figures": len(soup.select("figure")),
        "empty": len(soup.select("figure:not(:has(img, table))")),
        "tables": tables,
        "unset": 0,
        "text": "\n".join([*texts, soup.get_text()]),
    }


def cells_of(notebook: dict) -> list[tuple[str, dict]]:
    """List the cells of an executed notebook: what to call each, and what it shows. They are
    counted as in the chapter, without those that papermill added.
    """
    from markdown_it import MarkdownIt

    render, number, found = MarkdownIt("commonmark").enable("table").render, 0, []
    for cell in notebook["cells"]:
        added = ADDED & {*cell["metadata"].get("tags", [])}
        number += not added
        name = "a cell added by papermill" if added else f"cell {number} ({cell.get('id', '?')})"
        pages, texts = [], []
        shown = [{"data": {"text/markdown": cell["source"]}}]
        for output in shown if cell["cell_type"] == "markdown" else cell.get("outputs", []):
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
        found.append((name, contents(pages, texts, cell["cell_type"] == "markdown")))
    return found


# ---------------------------------------------------------------- what is wrong with it


def faults(seen: dict) -> list[str]:
    """List what is wrong with what a cell shows."""
    found = ["a figure has neither an image nor a table"] * seen["empty"]
    for image in seen["images"]:
        alt = "" if image["alt"].startswith(NO_ALT) else " ".join(image["alt"].split())
        if len(alt) < LEAST_ALT:
            said = f"of {len(alt)} characters, fewer than {LEAST_ALT}: {alt!r}"
            found.append(f"an image has an alternative text {said}")
        if image["width"] == 0:
            found.append(f"an image has no pixels: {alt[:60]!r}")
    for table in seen["tables"]:
        if table["caption"] is not None and not table["caption"].strip():
            found.append("a table has no caption")
        if not table["rows"]:
            found.append(f"a table has no rows: {(table['caption'] or '').strip()[:60]!r}")
    if seen["unset"]:
        found.append(f"{seen['unset']} formulas are not set")
    left = dict.fromkeys(match[0] for match in PLACEHOLDER.finditer(seen["text"]))
    found += [f"a placeholder is left: {text}" for text in left]
    if "Traceback (most recent call last)" in seen["text"]:
        found.append("a traceback is shown")
    return found


def faults_of_outputs(cell: dict) -> list[str]:
    """List what is wrong with a cell's outputs that only the notebook tells: errors, and figures
    and tables whose HTML does not hold what their own type promises.
    """
    found = []
    for output in cell.get("outputs", []):
        if output["output_type"] == "error":
            found.append(f"{RAISED} {output['ename']}: {output['evalue'].partition(chr(10))[0]}")
        if output.get("name") == "stderr":
            found.append(f"a warning is shown: {''.join(output['text']).strip()[:200]!r}")
        data = output.get("data", {})
        held = contents(["".join(data.get("text/html", ""))], [], False)
        for kind, count in (("figure", held["figures"]), ("table", len(held["tables"]))):
            if f"application/vnd.snnl.{kind}+json" in data and count != 1:
                found.append(f"an output that is a {kind} holds {count} <{kind}> in its HTML")
    return found


def problems_of(notebook: dict) -> list[tuple[str, str]]:
    """List what is wrong with an executed notebook: (cell, what)."""
    cells = zip(notebook["cells"], cells_of(notebook), strict=True)
    return [
        (name, what)
        for cell, (name, seen) in cells
        for what in (*faults_of_outputs(cell), *faults(seen))
    ]


def compare(cells: list[tuple[str, dict]], seen: list[dict]) -> list[tuple[str, str]]:
    """List what is wrong with a page that shows the cells of a notebook: (cell, what)."""
    if len(cells) != len(seen):
        return [("the page", f"it shows {len(seen)} cells of {len(cells)}")]
    found = []
    for (name, ours), theirs in zip(cells, seen, strict=True):
        for kind, size in (("images", len), ("figures", int), ("tables", len)):
            # What plotly draws stands in the place of a figure and its image.
            shown = size(theirs[kind]) + (theirs.get("drawn", 0) if kind != "tables" else 0)
            if size(ours[kind]) != shown:
                counts = f"{shown} {kind} of {size(ours[kind])}"
                found.append((name, f"the page shows {counts}"))
        found += [(name, what) for what in faults(theirs)]
    return found
