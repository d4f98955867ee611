"""Make of an executed chapter, which reads alike everywhere, a page of the book.

The outputs that hold tables, figures and sentences become the text of the page: a table gets links
to its runs and a download, a figure a number, an equation the number of its paper. The executed
chapter itself is what the page offers for download.
"""

import base64
import copy
import csv
import re
from itertools import count
from pathlib import Path

from snnl_book import results
from snnl_book.report.show import FIGURE, PLOTLY, TABLE

ROOT = Path(__file__).resolve().parents[2]
EQUATION = re.compile(r"\\tag\{(\d+)\}\s*\$\$")
RUN = re.compile(r"-s\d+-n\d+-[0-9a-f]{8}\b")
QUOTED_EQUATION = re.compile(r"\[Eq\. (\d+)\]\((\w+)\.ipynb\)")


def equations() -> dict[tuple[str, str], str]:
    """List the label of each equation by its chapter and number."""
    with (ROOT / "book" / "equations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["chapter"], row["label"].split("-")[1]): row["label"] for row in rows}


def page_of(notebook: dict, chapter: str, folder: Path) -> dict:
    """Return an executed chapter as Sphinx renders it; tables and pictures go below ``folder``.

    Raises ValueError if it quotes or numbers an equation that book/equations.csv does not have.
    """
    cells, labels, numbers = [], equations(), _numbers(chapter)
    for cell in copy.deepcopy(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            cells.append(cell | {"source": _numbered(_text(cell["source"]), chapter, labels)})
            continue
        kept, told = [], []
        for output in cell.get("outputs", []):
            text = _told(output, folder, numbers)
            if text is None:
                kept.append(output)
            else:
                told.append(_numbered(text, chapter, labels))
        tags = cell["metadata"].get("tags", [])
        if "remove-input" in tags and not kept:
            cell["metadata"] = {"tags": ["remove-cell"]}
        cells.append(cell | {"outputs": kept})
        if told and "remove-cell" not in tags:
            below = {"cell_type": "markdown", "id": f"{cell['id']}-told", "metadata": {}}
            cells.append(below | {"source": "\n\n".join(told)})
    return notebook | {"cells": cells}


def _text(source):
    return source if isinstance(source, str) else "".join(source)


def _numbers(chapter):
    """Count the tables and the figures of a chapter: Table 7.1, of an appendix Table B.1."""
    numbered = re.match(r"\d+", chapter)
    others = sorted(path.stem for path in (ROOT / "book").glob("[!0-9]*.ipynb"))
    of = int(numbered[0]) if numbered else chr(ord("A") + others.index(chapter))
    return {kind: map(f"**{kind} {of}.{{}}.** ".format, count(1)) for kind in ("Table", "Figure")}


def _told(output, folder, numbers):
    """Return what an output is in a page's MyST, or None if it stays an output."""
    data = output.get("data", {})
    if facts := data.get(TABLE):
        path = folder / "tables" / f"{facts['name']}.csv"
        results.write_atomically(path, facts["csv"])
        table = _directive("run-table", facts["name"], facts, numbers["Table"])
        fold = facts["fold"]
        return f"::::{{dropdown}} {fold}\n{table}\n::::" if fold else table
    if facts := data.get(FIGURE):
        path = folder / "figures" / f"{facts['name']}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = re.search(r"base64,([^\"]+)", _text(data["text/html"]))[1]
        path.write_bytes(base64.b64decode(picture))
        alt = f":alt: {facts['alt']}\n"
        shown = _directive("figure", f"figures/{path.name}", facts, numbers["Figure"], alt)
        if view := data.get(PLOTLY):
            shown += f"\n\n```{{raw}} html\n{_interactive(view, facts['name'])}\n```"
        runs = facts["records"] if RUN.search(facts["records"]) else ""  # or words, or a file
        return shown + (f"\n\n```{{runs-of}}\n{runs}\n```" if runs else "")
    return _text(data["text/markdown"]).strip() if "text/markdown" in data else None


def _interactive(view, name):
    """Draw a plotly figure in the place of its picture, which stays where no script runs."""
    from plotly.io import to_html

    # The library is the book's: one copy for all chapters, which book_extension.py puts there.
    options = {"full_html": False, "include_plotlyjs": "../_static/plotly.min.js"}
    drawn = to_html(view, **options, div_id=f"{name}-view", validate=False)
    hide = f"document.querySelector('#{name} img').style.display = 'none';"
    fit = f"addEventListener('load', () => Plotly.Plots.resize('{name}-view'));"  # in the column
    return f"{drawn}\n<script>if (window.Plotly) {{ {hide} {fit} }}</script>"


def _directive(kind, argument, facts, numbers, options=""):
    options += f":name: {facts['name']}\n"
    return f"```{{{kind}}} {argument}\n{options}\n{next(numbers)}{facts['caption']}\n```"


def _numbered(text, chapter, labels):
    """Give equations, and links to them, the labels by which the book knows them."""
    try:
        text = EQUATION.sub(lambda found: f"\n$$ ({labels[chapter, found[1]]})", text)
        return QUOTED_EQUATION.sub(lambda found: f"{{eq}}`{labels[found[2], found[1]]}`", text)
    except KeyError as error:
        where, number = error.args[0]
        told = f"the chapter {where} has no Eq. {number} in book/equations.csv"
        raise ValueError(told) from None
