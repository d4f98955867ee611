"""How much of a chapter's code its reader sees, and how wide it is."""

import io
import json
import tokenize
from pathlib import Path

import pytest

CHAPTERS = sorted((Path(__file__).resolve().parents[2] / "book").glob("*.ipynb"))
NAMES = [path.stem for path in CHAPTERS]
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
NO_CODE |= {tokenize.ENDMARKER}
WIDEST = 84  # columns of a page


def code_cells(path):
    """The cells of a chapter's code, without its parameters and the cell that installs it."""
    for cell in json.loads(path.read_text())["cells"]:
        parameters = "parameters" in cell["metadata"].get("tags", [])
        if cell["cell_type"] == "code" and cell["id"] != "bootstrap" and not parameters:
            yield "".join(cell["source"]), cell["metadata"].get("jupyter", {})


def size(code):
    """Count names, numbers, strings and operators: captions and sentences are words, not code."""
    # From Python 3.12 on an f-string has tokens within; here it is one, as it was before.
    start, end = (getattr(tokenize, f"FSTRING_{name}", None) for name in ("START", "END"))
    count = within = 0
    for token in tokenize.generate_tokens(io.StringIO(code + "\n").readline):
        within -= token.type == end
        count += not within and token.type not in NO_CODE | {start}
        within += token.type == start
    return count


def test_a_caption_counts_once_however_long_it_is():
    assert size('show(table, "A line.")  # said') == size('show(table, f"Of {a} or {b}.")\n') == 6


@pytest.mark.parametrize("path", CHAPTERS, ids=NAMES)
def test_at_most_half_of_a_chapters_code_is_collapsed(path):
    sizes = {True: 0, False: 0}
    for code, jupyter in code_cells(path):
        sizes[bool(jupyter.get("source_hidden"))] += size(code)
    assert sizes[True] <= sizes[False], "show what computes; collapse what only draws or formats"


@pytest.mark.parametrize("path", CHAPTERS, ids=NAMES)
def test_code_that_is_seen_fits_the_page(path):
    seen = [code for code, jupyter in code_cells(path) if not jupyter.get("source_hidden")]
    wide = [line for code in seen for line in code.splitlines() if len(line) > WIDEST]
    assert not wide


@pytest.mark.parametrize("path", CHAPTERS, ids=NAMES)
def test_a_cell_that_is_collapsed_in_one_front_end_is_so_in_all(path):
    for cell in json.loads(path.read_text())["cells"]:
        tags = {*cell["metadata"].get("tags", [])} & {"remove-input", "remove-cell"}
        hidden = cell["metadata"].get("jupyter", {}).get("source_hidden", False)
        if "parameters" not in cell["metadata"].get("tags", []):
            assert bool(tags) == hidden == ("cellView" in cell["metadata"]), cell["id"]
