"""The hidden first cell of the chapters: what it says and asks of pip, the buttons that start a
chapter elsewhere, and chapters run from the wheel alone.
"""

import json
import os
import re
import runpy
import subprocess
import sys
import venv
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import environment_without

from snnl_book import experiments

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
BOOTSTRAP = runpy.run_path(str(ROOT / "book" / "_tools" / "bootstrap.py"))
PINNED = ("torch", "numpy", "pandas", "scikit-learn")


def code(address=""):
    return "".join(BOOTSTRAP["cell"](address)["source"])


@pytest.fixture
def bare(monkeypatch):
    """A machine without what chapters need: ``missing`` modules are not found, and pip is not run
    but noted in ``calls``; ``status`` is what it answers.
    """
    machine = SimpleNamespace(missing={"snnl_book", "spacy"}, calls=[], status=0)
    find = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name: None if name in machine.missing else find(name)
    )

    def run(command, **_):
        machine.calls.append(command)
        return SimpleNamespace(returncode=machine.status)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.delenv("SNNL_SOURCE", raising=False)
    return machine


# ---------------------------------------------------------------- the cell


@pytest.mark.parametrize("path", CHAPTERS, ids=[path.stem for path in CHAPTERS])
def test_a_chapter_has_the_cell_before_its_parameters_with_the_address_of_the_book(path):
    cells = json.loads(path.read_text())["cells"]
    place = next(
        i for i, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", [])
    )
    assert cells[place - 1] == BOOTSTRAP["cell"](BOOTSTRAP["address"]())
    assert sum("SNNL_SOURCE" in "".join(cell["source"]) for cell in cells) == 1


@pytest.mark.parametrize("path", CHAPTERS, ids=[path.stem for path in CHAPTERS])
def test_solutions_and_details_are_folded_in_jupyterlab_and_colab(path):
    notebook = json.loads(path.read_text())
    parts = [cell for cell in notebook["cells"] if "".join(cell["source"]).startswith("#### ")]
    assert all(cell["metadata"]["jp-MarkdownHeadingCollapsed"] for cell in parts)
    folded = notebook["metadata"].get("colab", {}).get("collapsed_sections", [])
    assert folded == [cell["metadata"]["id"] for cell in parts]
    # a section that began in the cell of a folded part would be hidden with it
    prose = [re.sub(r"(?ms)^```.*?^```", "", "".join(cell["source"])) for cell in parts]
    assert not [text for text in prose if re.search(r"(?m)^#{1,4} ", text.partition("\n")[2])]


def test_writing_the_cell_again_changes_nothing_and_a_new_address_changes_it_alone(tmp_path):
    chapter = Path("book") / CHAPTERS[0].name
    (tmp_path / "book" / "_tools").mkdir(parents=True)
    for name in ("book/_tools/bootstrap.py", "_config.yml", chapter):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    write = [sys.executable, str(tmp_path / "book" / "_tools" / "bootstrap.py")]
    subprocess.run(write, check=True)
    assert (tmp_path / chapter).read_bytes() == CHAPTERS[0].read_bytes()
    address = "https://github.com/someone/some-book"
    (tmp_path / "_config.yml").write_text(f"repository: {{url: {address}/}}")
    subprocess.run(write, check=True)
    cells, others = (
        json.loads((place / chapter).read_text())["cells"] for place in (tmp_path, ROOT)
    )
    (changed,) = [cell for cell, other in zip(cells, others, strict=True) if cell != other]
    assert f'"git+{address}"' in "".join(changed["source"])


def test_where_all_is_installed_the_cell_does_nothing_and_leaves_no_name_that_a_parameter_could_be(
    bare, capsys
):
    bare.missing = set()
    scope = {"profile": "tiny", "seeds": [42], "dataset": "newsgroups4", "device": "cpu"}
    loaded = set(sys.modules)
    exec(code(), scope)
    assert not bare.calls and capsys.readouterr() == ("", "") and set(sys.modules) == loaded
    assert experiments.parameters(scope).profile == "tiny"


def test_what_is_missing_is_installed_from_the_source_and_what_is_here_stays_as_it_is(
    bare, monkeypatch, capsys
):
    extras, wheel = "[text,transformers,book]", "snnl_book-0.1.0-py3-none-any.whl"
    address = f"https://example.org/{wheel}"
    for source, asked in ((wheel, wheel + extras), (address, f"snnl-book{extras} @ {address}")):
        monkeypatch.setenv("SNNL_SOURCE", source)
        exec(code("https://github.com/someone/some-book"), {})
        pins = [f"{name}=={metadata.version(name)}" for name in PINNED]
        pip = [sys.executable, "-m", "pip", "install", "-q"]
        assert bare.calls.pop() == [*pip, asked, *pins]
        said = f"Not installed: snnl_book spacy (getting them from {source} takes minutes)\n"
        assert capsys.readouterr() == (said, "")


def test_without_a_source_the_cell_takes_the_address_and_pins_only_what_is_here(bare):
    bare.missing |= {"torch", "sklearn"}
    exec(code("https://github.com/someone/some-book"), {})
    (command,) = bare.calls
    assert command[5].endswith(" @ git+https://github.com/someone/some-book")
    assert command[6:] == [f"{name}=={metadata.version(name)}" for name in ("numpy", "pandas")]


@pytest.mark.parametrize("source", ["", "a.whl"])
def test_where_nothing_can_be_installed_one_sentence_says_what_to_set(bare, monkeypatch, source):
    monkeypatch.setenv("SNNL_SOURCE", source)
    bare.status = 1
    with pytest.raises(SystemExit, match="set SNNL_SOURCE to a wheel of snnl-book or its address"):
        exec(code(), {})
    assert len(bare.calls) == bool(source)  # without a source pip is not asked


def test_a_chapter_goes_on_where_only_an_extra_is_out_of_reach(bare, monkeypatch):
    bare.missing, bare.status = {"seaborn"}, 1
    exec(code(), {})
    monkeypatch.setenv("SNNL_SOURCE", "a.whl")
    exec(code(), {})
    assert len(bare.calls) == 1


# ---------------------------------------------------------------- on the page


def test_a_chapter_has_a_button_for_colab_and_never_shows_the_cell(tmp_path):
    address = "https://github.com/someone/some-book"
    book = tmp_path / "book"
    (book / "_tools").mkdir(parents=True)
    (book / "_tools" / "_ext").symlink_to(ROOT / "book" / "_tools" / "_ext")
    config = (ROOT / "_config.yml").read_text().replace('  url: ""', f'  url: "{address}"')
    title = {"cell_type": "markdown", "id": "title", "metadata": {}, "source": ["# A chapter"]}
    notebook = json.loads(CHAPTERS[0].read_text()) | {"cells": [title, BOOTSTRAP["cell"](address)]}
    for name, text in {
        "_config.yml": config,
        "_toc.yml": "format: jb-book\nroot: index\nchapters:\n- file: book/chapter\n",
        "index.md": "# Title\n",
        "book/references.bib": "",
        "book/chapter.ipynb": json.dumps(notebook),
    }.items():
        (tmp_path / name).write_text(text)
    build = [Path(sys.executable).parent / "jupyter-book", "build", tmp_path, "-W", "-q"]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "_build" / "html" / "book" / "chapter.html").read_text()
    on_colab = (
        f"https://colab.research.google.com/github/{address[19:]}/blob/main/book/chapter.ipynb"
    )
    assert re.findall(r'href="(https://colab[^"]*)"', page) == [on_colab]
    assert "A chapter" in page and "SNNL_SOURCE" not in page


# ---------------------------------------------------------------- outside of a checkout


def papermill(python, chapter, folder, **environment):
    """Execute a chapter in a folder outside of the checkout, with the profile tiny."""
    folder.mkdir(exist_ok=True)
    inherited = environment_without("SNNL_DATA", "SNNL_RESULTS", "PYTHONPATH")
    given = ["-p", "profile", "tiny", "-p", "device", "cpu", "-k", "python3", "--no-progress-bar"]
    path = ROOT / "book" / f"{chapter}.ipynb"
    command = [python, "-m", "papermill", path, folder / "out.ipynb", *given]
    environment = inherited | environment
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_a_chapter_runs_from_the_wheel_outside_of_a_checkout_and_shows_the_records_in_it(
    unpacked_wheel, packages, tmp_path
):
    from_wheel = {"PYTHONPATH": str(unpacked_wheel), "SNNL_SOURCE": ""}
    done = papermill(sys.executable, "07_text_classification", tmp_path / "here", **from_wheel)
    assert done.returncode == 0, done.stderr[-3000:]
    told = (tmp_path / "here" / "out.ipynb").read_text()
    assert "<table" in told and "nothing recorded" not in told
    assert json.loads(told)["cells"][1]["outputs"] == []


@pytest.fixture(scope="session")
def bare_environment(tmp_path_factory):
    """An environment as a hosted notebook offers it: torch, numpy, pandas, scikit-learn and a
    kernel, without any of the book's packages.
    """
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, with_pip=True)
    (python,) = folder.glob("*/python")
    names = (*PINNED, "ipykernel", "papermill")
    pins = [f"{name}=={metadata.version(name).partition('+')[0]}" for name in names]
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *pins], check=True)
    return python


@pytest.mark.slow
@pytest.mark.parametrize("chapter", [path.stem for path in CHAPTERS])
def test_a_chapter_installs_what_it_needs_and_runs_where_only_torch_numpy_and_pandas_are(
    chapter, bare_environment, wheel, tmp_path
):
    frozen = [bare_environment, "-m", "pip", "freeze"]
    before = subprocess.run(frozen, capture_output=True, text=True, check=True).stdout.splitlines()
    done = papermill(
        str(bare_environment),
        chapter,
        tmp_path / "here",
        SNNL_SOURCE=str(wheel),
        PATH=f"{bare_environment.parent}{os.pathsep}{os.environ['PATH']}",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    after = subprocess.run(frozen, capture_output=True, text=True, check=True).stdout.splitlines()
    assert set(before) <= set(after) and any(line.startswith("snnl-book") for line in after)
