"""The tree in CONTRIBUTING.md is complete, and its worked example runs on a copy of the library."""

import csv
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import environment_without

from snnl_book import results
from snnl_book.experiments.plan import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SECTION = PAGE.partition("\n## Worked example")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
PATCHES = [text for kind, text in BLOCKS if kind == "diff"]
MODELS = {"pca", "ae", "c-d"}


# ---------------------------------------------------------------- where everything lives


def test_the_tree_names_every_file_and_room_of_the_library():
    tree = re.search(r"^```\n(book/.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]
    folders = re.findall(r"^(\w+)/", tree, re.MULTILINE)
    assert {"snnl_lib", "snnl_book"} < {*folders}
    assert all((ROOT / folder).is_dir() for folder in folders)
    _, library, book = re.split(r"^snnl_(?:lib|book)/", tree, flags=re.MULTILINE)
    for package, inside in (("snnl_lib", library), ("snnl_book", book)):
        found = {path.name for path in (ROOT / package).glob("*.py")} - {"__init__.py"}
        found |= {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        named = re.findall(r"\w+\.py\b|(?<=^  )\w+(?=/)", inside, re.MULTILINE)
        assert set(named) | ({"__main__.py"} & found) == found
    inside = book
    (experiments,) = re.findall(r"  experiments/(.*?)^  \w", inside, re.DOTALL | re.MULTILINE)
    assert {family.__name__.rpartition(".")[2] for family in FAMILIES} <= set(
        re.findall(r"\w+", experiments)
    )


# ---------------------------------------------------------------- the worked example


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory):
    """A copy of the library to which every step of the example was applied, in its order: (folder,
    what each step that runs something said).
    """
    if not shutil.which("git"):
        pytest.skip("the patches are applied by git")
    scratch = tmp_path_factory.mktemp("contributing")
    copy = scratch / "checkout"
    for package in ("snnl_lib", "snnl_book"):
        shutil.copytree(ROOT / package, copy / package)  # with its byte code
    for name in ("pyproject.toml", "requirements/data.txt"):
        (copy / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    (scratch / "data").mkdir()
    environment = environment_without("SNNL_", "GIT_", "PYTHONPATH")
    environment |= {"SNNL_DATA": str(scratch / "data"), "SNNL_CACHE": str(scratch / "cache")}
    environment |= {"GIT_CEILING_DIRECTORIES": str(scratch)}
    environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    tools = {"python": [sys.executable, "-"], "diff": ["git", "apply", "-"], "bash": ["bash", "-e"]}
    options = {"cwd": copy, "env": environment, "capture_output": True, "text": True}
    said = []
    for kind, text in BLOCKS:
        done = subprocess.run(tools[kind], input=text, **options)
        told = f"a step of CONTRIBUTING.md no longer works:\n{text}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, told
        said += [done.stdout] if kind != "diff" else []
    return copy, said


def test_the_files_that_are_named_are_those_that_the_patches_touch():
    rows = re.findall(r"^\| an? [a-z ]+ \|(.*)\| \d+ \|$", SECTION, re.MULTILINE)
    for row, patch in zip(rows, PATCHES, strict=True):
        touched = re.findall(r"^\+\+\+ b/snnl_book/(\S+)$", patch, re.MULTILINE)
        assert touched and len(touched) == len(re.findall(r"^\+\+\+ ", patch, re.MULTILINE))
        assert set(re.findall(r"`([\w/]+\.\w+)`", row)) == set(touched)


def test_the_worked_example_finds_its_data_and_records_its_runs(carried_out):
    copy, (written, commands, table) = carried_out
    assert written == ""
    assert "reports: 216 + 72 documents, verified" in commands
    assert "runs to do: 3, recorded: 0" in commands
    paths = (copy / "_build" / "results" / "tiny" / "letters").glob("*.csv")
    records = [results.read_record(path) for path in paths if path.name.count(".") == 1]
    assert {frame["model"].iloc[0] for frame in records} == MODELS and len(records) == 3
    for frame in records:
        facts = frame[["dataset", "embedding", "n_train", "n_test"]].drop_duplicates()
        assert facts.to_numpy().tolist() == [["reports", "letters", 216, 72]]
        scores = frame.set_index("metric")["value"]
        assert scores["empty_test"] == 0 <= scores["acc"] <= 1
        if set(frame["status"]) == {"ok"}:
            assert np.isfinite(scores).all()
        assert f"{scores['acc']:.6f}" in table
    for model in MODELS:
        assert re.search(rf"^\s*reports\s+letters\s+{model}\s", table, re.MULTILINE)


def test_the_model_of_the_example_is_trained_by_the_loss_on_its_code(carried_out):
    copy, _ = carried_out
    (path,) = (copy / "_build" / "results" / "tiny" / "letters").glob(
        "*-c-d-a100-tannealed-s42-n300-*.curve.csv"
    )
    first, *_ = csv.DictReader(path.read_text().splitlines())
    entanglement = (float(first["loss"]) - float(first["primary"])) / 100
    assert 0 < entanglement < 2 * math.log(2), (
        "one layer, which begins near the chance of two classes; AE(D) has seven"
    )
