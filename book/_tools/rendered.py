"""Turn an executed chapter, which looks the same everywhere, into a page of the book.

The title gets the number of the chapter's file. Tables, figures and sentences in the outputs become
text of the page: a table gets links to its runs and a download, a figure gets a number, and an
equation the number of its paper. What follows a heading of level four, such as ``#### Solution``,
goes into a dropdown, code and outputs included, and so does the text in ``<details>``. The page
offers the executed chapter itself for download.
"""

import base64
import copy
import csv
import re
from itertools import count
from pathlib import Path

from snnl_book import results
from snnl_book.report.show import FIGURE, TABLE

ROOT = Path(__file__).resolve().parents[2]
EQUATION = re.compile(r"\\tag\{(\d+)\}\s*\$\$")
RUN = re.compile(r"-s\d+-n\d+-[0-9a-f]{8}\b")
FOLDED = "#### "
DETAILS = re.compile(r"<details><summary>(.*?)</summary>\n\n(.*?)\n\n</details>", re.DOTALL)
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
    title = f"# {int(chapter[:2])}. " if chapter[:2].isdigit() else "# "
    for cell in copy.deepcopy(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            text = re.sub(r"\A# ", title, _text(cell["source"]))
            cells.append(cell | {"source": _numbered(text, chapter, labels)})
            continue
        outputs = []
        texts = []
        for output in cell.get("outputs", []):
            text = _text_of(output, folder, numbers)
            if text is None:
                outputs.append(output)
            else:
                texts.append(_numbered(text, chapter, labels))
        tags = cell["metadata"].get("tags", [])
        if "remove-input" in tags and not outputs:
            cell["metadata"] = {"tags": ["remove-cell"]}
        cells.append(cell | {"outputs": outputs})
        if texts and "remove-cell" not in tags:
            below = {"cell_type": "markdown", "id": f"{cell['id']}-text", "metadata": {}}
            cells.append(below | {"source": "\n\n".join(texts)})
    return notebook | {"cells": _with_folded_parts(cells)}


def _with_folded_parts(cells):
    """Return the cells of a page with each folded part, up to the next heading, in one dropdown."""
    page, parts, title = [], None, ""
    for cell in cells:
        text, prose = _text(cell["source"]), cell["cell_type"] == "markdown"
        if prose and text.startswith("#"):
            parts = [] if text.startswith(FOLDED) else None
        if not parts:
            page.append(cell)
        if parts == []:
            title, _, text = text.removeprefix(FOLDED).partition("\n")
        if parts is not None:
            parts += [text.strip()] if prose else _code_as_text(cell)
            inside = "\n\n".join(part for part in parts if part)
            folded = f":::::{{dropdown}} {title}\n{inside}\n:::::"
            page[-1] = page[-1] | {"metadata": {}, "source": folded}
    return page


def _code_as_text(cell):
    """Return a code cell and what it printed as fenced blocks."""
    tags = cell["metadata"].get("tags", [])
    hidden = {"remove-input", "remove-cell"} & {*tags}
    blocks = [] if hidden else [f"```python\n{_text(cell['source'])}\n```"]
    printed = [_text(output["text"]) for output in cell["outputs"] if "text" in output]
    texts = ["".join(printed)] if printed else []  # a loop's lines come in several outputs
    texts += [_text(output["data"]["text/plain"]) for output in cell["outputs"] if "data" in output]
    blocks += [f"```text\n{text.rstrip()}\n```" for text in texts]
    return blocks


def _text(source):
    return source if isinstance(source, str) else "".join(source)


def _numbers(chapter):
    """Count the tables and the figures of a chapter: Table 7.1, Table 7.2, ..."""
    number = chapter.partition("_")[0].lstrip("0")
    return {
        kind: map(f"**{kind} {number}.{{}}.** ".format, count(1)) for kind in ("Table", "Figure")
    }


def _text_of(output, folder, numbers):
    """Return an output as MyST, or None if it stays an output."""
    data = output.get("data", {})
    if facts := data.get(TABLE):
        path = folder / "tables" / f"{facts['name']}.csv"
        results.write_atomically(path, facts["csv"])
        fold = facts["fold"]
        if facts.get("file"):
            return f"{{download}}`{fold} <tables/{facts['name']}.csv>`. {facts['caption']}"
        table = _directive("run-table", facts["name"], facts, numbers["Table"])
        return f"::::{{dropdown}} {fold}\n{table}\n::::" if fold else table
    if facts := data.get(FIGURE):
        path = folder / "figures" / f"{facts['name']}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = re.search(r"base64,([^\"]+)", _text(data["text/html"]))[1]
        path.write_bytes(base64.b64decode(picture))
        options = f":alt: {facts['alt']}\n:width: {facts['width']}\n"
        text = _directive("figure", f"figures/{path.name}", facts, numbers["Figure"], options)
        if RUN.search(facts["records"]):  # else it names a file, or is words
            text += f"\n\n```{{runs-of}}\n{facts['records']}\n```"
        return text
    return _text(data["text/markdown"]).strip() if "text/markdown" in data else None


def _directive(directive, argument, facts, numbers, options=""):
    options += f":name: {facts['name']}\n"
    return f"```{{{directive}}} {argument}\n{options}\n{next(numbers)}{facts['caption']}\n```"


def _numbered(text, chapter, labels):
    """Give equations and links to them the labels by which the book knows them; fold parts."""
    text = DETAILS.sub(r"::::{dropdown} \1\n\2\n::::", text)
    try:
        text = EQUATION.sub(lambda match: f"\n$$ ({labels[chapter, match[1]]})", text)
        return QUOTED_EQUATION.sub(lambda match: f"{{eq}}`{labels[match[2], match[1]]}`", text)
    except KeyError as error:
        name, number = error.args[0]
        problem = f"the chapter {name} has no Eq. {number} in book/equations.csv"
        raise ValueError(f"{problem}: add it there, or correct the number") from None
