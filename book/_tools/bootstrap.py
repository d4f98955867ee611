"""Prepare the chapters for Jupyter and Colab: write the hidden cell that makes a chapter run
outside a checkout, with the address in _config.yml, and fold solutions and details.
"""

import json
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
ID = "bootstrap"
CODE = """\
# If anything that the chapters need is missing, this cell installs it.
import os
import subprocess
import sys
from importlib import metadata, util

_needed = "snnl_book spacy pyarrow umap sentence_transformers IPython markdown_it seaborn"
if _missing := [name for name in (*_needed.split(), "adjustText") if not util.find_spec(name)]:
    _from, _with = os.environ.get("SNNL_SOURCE") or "ADDRESS", "[text,transformers,book]"
    print("Not installed:", *_missing, f"(getting them from {_from} takes minutes)" * bool(_from))
    _what = f"snnl-book{_with} @ {_from}" if "://" in _from else f"{_from}{_with}"
    _kept = {"torch": "torch", "numpy": "numpy", "pandas": "pandas", "scikit-learn": "sklearn"}
    _pins = [f"{name}=={metadata.version(name)}" for name in _kept if util.find_spec(_kept[name])]
    _pip = [sys.executable, "-m", "pip", "install", "-q", _what, *_pins]
    if (not _from or subprocess.run(_pip).returncode) and "snnl_book" in _missing:
        raise SystemExit("no snnl_book: set SNNL_SOURCE to a wheel of snnl-book or its address")
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


def fold_parts(notebook: dict) -> None:
    """Fold what follows each heading of level four, for JupyterLab and for Colab."""
    folded = []
    for cell in notebook["cells"]:
        if "".join(cell["source"]).startswith("#### "):
            cell["metadata"] = {"id": cell["id"], "jp-MarkdownHeadingCollapsed": True}
            folded.append(cell["id"])
    if folded:
        notebook["metadata"]["colab"] = {"collapsed_sections": folded}


def main() -> None:
    wanted = cell(address())
    for path in CHAPTERS:
        notebook = json.loads(path.read_text())
        cells = [cell for cell in notebook["cells"] if cell["id"] != ID]
        first = next(
            i for i, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", [])
        )
        notebook["cells"] = [*cells[:first], wanted, *cells[first:]]
        fold_parts(notebook)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
