"""Which of a chapter's code its reader sees, and how wide it is."""

import ast
import json
from pathlib import Path

import pytest

CHAPTERS = sorted((Path(__file__).resolve().parents[2] / "book").glob("*.ipynb"))
NAMES = [path.stem for path in CHAPTERS]
WIDEST = 84  # columns of a page


def code_cells(path):
    """The cells of a chapter's code, without its parameters and the cell that installs it."""
    for cell in json.loads(path.read_text())["cells"]:
        parameters = "parameters" in cell["metadata"].get("tags", [])
        if cell["cell_type"] == "code" and cell["id"] != "bootstrap" and not parameters:
            yield "".join(cell["source"]), cell["metadata"].get("jupyter", {})


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


@pytest.mark.parametrize("path", CHAPTERS, ids=NAMES)
def test_a_table_or_figure_is_the_last_expression_of_its_cell(path):
    # Jupyter shows nothing else: a table made in a loop, or before the end, is lost.
    for code, _ in code_cells(path):
        tree = ast.parse(code)
        lost = [part for part in ast.walk(tree) if isinstance(part, ast.Expr)]
        lost = [ast.unparse(part) for part in lost if part is not tree.body[-1]]
        assert not [part for part in lost if part.startswith("report.show_")]
