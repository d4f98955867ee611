"""Write the hidden cell that makes a chapter run outside of a checkout, the same in every chapter,
with the address that stands in _config.yml.
"""

import json
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
ID = "bootstrap"
CODE = """\
# Where all is installed, as in a checkout, this does nothing. Elsewhere it installs what is
# missing; torch, numpy, pandas and scikit-learn stay as they are.
import os
import pathlib
import subprocess
import sys
from importlib import metadata, util

_source = os.environ.get("SNNL_SOURCE") or "ADDRESS"
_needed = (
    "snnl_lib",
    "spacy",
    "pyarrow",
    "umap",
    "sentence_transformers",
    "IPython",
    "markdown_it",
    "seaborn",
    "plotly",
    "adjustText",
)
if _missing := [name for name in _needed if not util.find_spec(name)]:
    _error = "the book has no address of its own yet"
    if _source:
        print(
            f"Not installed: {', '.join(_missing)}. Installing what chapters need from"
            f" {_source}, which takes minutes."
        )
        _place = _source if "://" in _source else pathlib.Path(_source).resolve().as_uri()
        _pip = [sys.executable, "-m", "pip", "install", "-q"]
        _pip += [f"snnl-book[text,transformers,book] @ {_place}"]
        for _name in ("torch", "numpy", "pandas", "scikit-learn"):
            if util.find_spec(_name.replace("scikit-", "sk")):
                _pip += [f"{_name}=={metadata.version(_name)}"]
        _done = subprocess.run(_pip, capture_output=True, text=True)
        _lines = [line for line in _done.stderr.splitlines() if line[:5].lower() == "error"]
        _error = _done.returncode and [*_lines, "pip failed"][0]
    if _error and "snnl_lib" in _missing:
        raise SystemExit(
            f"snnl_lib could not be installed ({_error}): set the environment variable"
            " SNNL_SOURCE to a wheel of snnl-book or its address"
        )
"""


def address() -> str:
    """Return the project's address on the web, without a slash at the end; an empty string while it
    has none.
    """
    return yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"].rstrip("/")


def cell(address: str) -> dict:
    """Return the cell for a project at an address, which pip takes by git."""
    code = CODE.replace("ADDRESS", address and f"git+{address}").rstrip()
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": ID,
        "metadata": {
            "cellView": "form",
            "jupyter": {"source_hidden": True},
            "tags": ["remove-cell"],
        },
        "outputs": [],
        "source": code.splitlines(True),
    }


def main() -> None:
    wanted = cell(address())
    for path in CHAPTERS:
        notebook = json.loads(path.read_text())
        cells = [cell for cell in notebook["cells"] if cell["id"] != ID]
        first = next(
            i for i, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", [])
        )
        notebook["cells"] = [*cells[:first], wanted, *cells[first:]]
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
