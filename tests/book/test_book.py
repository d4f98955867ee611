"""The chapters as they are committed, and the real chapters executed: one with good parameters,
some with bad ones.
"""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import build
import papermill
import pytest

from snnl_book import data, experiments
from snnl_book.report.show import FIGURE, TABLE

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
names = [path.stem for path in CHAPTERS]


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def shown_in(path, kind):
    """The facts of the tables or figures that an executed notebook shows, by name."""
    outputs = (output for cell in code_cells(path) for output in cell["outputs"])
    found = [output["data"][kind] for output in outputs if kind in output.get("data", {})]
    return {facts["name"]: facts for facts in found}


def test_every_chapter_is_in_the_table_of_contents():
    toc = re.findall(r"file: book/(\S+)", (ROOT / "_toc.yml").read_text())
    assert set(names) <= set(toc)
    assert {path.stem for path in (ROOT / "book").glob("*.md")} - {"index"} <= set(toc)
    assert all(
        (ROOT / "book" / f"{name}.ipynb").exists() or (ROOT / "book" / f"{name}.md").exists()
        for name in toc
    )


@pytest.mark.parametrize("path", CHAPTERS, ids=names)
def test_a_chapter_is_committed_without_outputs_and_with_parameters(path):
    cells = code_cells(path)
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    (tagged,) = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    given = re.findall(r"^(\w+): \w+ = ", "".join(tagged["source"]), re.MULTILINE)
    assert set(given) == {"profile", "seeds", "dataset", "device"}
    following = cells[cells.index(tagged) + 1]
    assert "experiments.parameters(globals()" in "".join(following["source"])


@pytest.mark.parametrize("path", CHAPTERS, ids=names)
def test_papermill_tells_what_each_parameter_takes(path):
    told = papermill.inspect_notebook(path)
    assert {name: (own["inferred_type_name"], own["default"]) for name, own in told.items()} == {
        "profile": ("str", '"quick"'),
        "seeds": ("list", "[]"),
        "dataset": ("str", '"auto"'),
        "device": ("str", '"auto"'),
    }
    assert all(name in told["profile"]["help"] for name in experiments.PROFILES)
    assert "full (hours; that of the recorded runs)" in told["profile"]["help"]
    kind = re.search(r'globals\(\), kind=\\"([a-z ]+)', path.read_text())
    named = set(re.findall(r"\w+", told["dataset"]["help"])) & {*data.available_datasets()}
    assert named and {data.describe(name).kind for name in named} == {kind[1] if kind else "texts"}
    for name in named:  # what is named is allowed
        namespace = {"profile": "tiny", "seeds": "42,73", "dataset": name, "device": "cpu"}
        assert experiments.parameters(namespace, kind[1] if kind else "texts").dataset == name


def test_a_chapter_warns_that_other_records_replace_the_books(monkeypatch, capsys, tmp_path):
    namespace = {"profile": "tiny", "seeds": [], "dataset": "auto", "device": "cpu"}
    notebook = namespace | {"get_ipython": None}
    monkeypatch.setenv("SNNL_RESULTS", str(tmp_path))
    experiments.parameters(namespace)  # the commands that check parameters print nothing
    assert capsys.readouterr().out == ""
    experiments.parameters(notebook)
    assert f"come from {tmp_path} (SNNL_RESULTS)" in capsys.readouterr().out
    monkeypatch.delenv("SNNL_RESULTS")
    experiments.parameters(notebook)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("path", CHAPTERS, ids=names)
def test_every_figure_has_alt_text_and_every_table_a_caption_and_a_name_of_its_own(path):
    calls = {"show_table": [], "show_figure": []}
    for cell in code_cells(path):
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in calls:
                calls[node.func.attr].append([ast.unparse(each) for each in node.args])
    assert all(len(caption) > 32 for _, _, caption in calls["show_table"])
    assert all(len(alt) > 32 and caption for _, _, alt, caption in calls["show_figure"])
    names = [arguments[1] for own in calls.values() for arguments in own]
    assert len(names) == len({*names})


@pytest.mark.parametrize("path", CHAPTERS, ids=names)
def test_a_chapter_speaks_no_renderers_own_language(path):
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        code = cell["cell_type"] == "code"
        told = "\n".join(re.findall(r'""".*?"""', text, re.DOTALL)) if code else text
        assert not re.findall(r"\{[a-z:]+\}`|^[`:]{3,}\{|^\([\w-]+\)=|\$\$ \(", told, re.MULTILINE)
        assert not re.findall(r"\bglue\(|myst", text) or cell["id"] == "bootstrap"
    hidden = [
        cell for cell in code_cells(path) if "remove-input" in cell["metadata"].get("tags", [])
    ]
    for cell in hidden:  # in the book, in Jupyter and in Colab
        if "parameters" not in cell["metadata"]["tags"]:
            assert cell["metadata"]["jupyter"] == {"source_hidden": True}
            assert cell["metadata"]["cellView"] == "form"


def test_an_equation_has_the_number_that_its_paper_gives_it(tmp_path, monkeypatch):
    from sphinx.application import Sphinx

    monkeypatch.syspath_prepend(ROOT / "book" / "_tools" / "_ext")
    equations = ".. math:: a\n   :label: eq-19\n\n.. math:: b\n   :label: cb-5\n\n"
    (tmp_path / "index.rst").write_text(f"{equations}:eq:`cb-5` and :eq:`eq-19`\n")
    settings = {"extensions": "book_extension,sphinx.ext.mathjax"}
    places = tmp_path, None, tmp_path / "out", tmp_path / "doctrees"
    Sphinx(*places, "html", settings, status=None, warning=None).build()
    page = (tmp_path / "out" / "index.html").read_text()
    assert re.findall(r'class="eqno">\((\d+)\)', page) == ["19", "5"]
    references = re.findall(r'href="#equation-(\S+)">\((\d+)\)</a>', page)
    assert references == [("cb-5", "5"), ("eq-19", "19")]


ON_IMAGES = ("11_images", "12_deep_clustering")
ON_SHORT_TEXTS = ("13_clusterbert", "14_order_of_the_rows", "15_short_texts")
# Executed by `make test`; the others are in the long lane, as `make check-chapters` looks at them
# all as they are executed for the book.
ALWAYS = "09_loss_or_labels"  # test_bootstrap.py always runs another from the wheel


def execute(chapter, output, *parameters, results):
    """Execute a chapter with the profile tiny."""
    environment = os.environ | {"SNNL_RESULTS": str(results), "OMP_NUM_THREADS": "1"}
    path = ROOT / "book" / f"{chapter}.ipynb"
    command = [sys.executable, "-m", "papermill", path, output, "--cwd", output.parent]
    command += ["-k", "python3", "--no-progress-bar", "-p", "profile", "tiny", *parameters]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    "chapter", [pytest.param(name, marks=[pytest.mark.slow] * (name != ALWAYS)) for name in names]
)
def test_a_chapter_runs_with_the_tiny_profile(chapter, tmp_path):
    # Read only in this profile: tiny runs go to _build.
    (tmp_path / "results").symlink_to(ROOT / "results")
    results = tmp_path / "records"
    results.mkdir()
    for folder in (ROOT / "results").iterdir():
        (results / folder.name).symlink_to(folder)
    output = tmp_path / "out.ipynb"
    dataset, seeds = "auto" if chapter in ON_IMAGES else "newsgroups4", "42,73"
    if chapter in ON_SHORT_TEXTS:
        dataset, seeds = "newsgroups20_openings", "42"
    parameters = ("-p", "dataset", dataset, "-r", "seeds", seeds)
    done = execute(chapter, output, *parameters, results=results)
    assert done.returncode == 0, done.stderr[-3000:]
    shown = (out for cell in code_cells(output) for out in cell["outputs"])
    errors = [out for out in shown if out.get("name") == "stderr"]
    assert not errors, errors
    shown = {**shown_in(output, TABLE), **shown_in(output, FIGURE)}
    called = re.findall(r"show_(?:table|figure)\(", output.read_text())
    assert len(shown) >= len(called) and not list(tmp_path.glob("tables/*"))


def test_a_wrong_parameter_stops_a_chapter_with_one_clear_sentence(tmp_path):
    wrong = ("-p", "porfile", "quick")
    done = execute("01_introduction", tmp_path / "out.ipynb", *wrong, results=tmp_path)
    assert done.returncode != 0
    assert "unknown parameter 'porfile'" in done.stderr.strip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("chapter", ON_SHORT_TEXTS)
def test_a_chapter_on_short_texts_runs_without_corpora_and_records_and_says_what_is_missing(
    chapter, own_cache, tmp_path, monkeypatch
):
    monkeypatch.delenv("SNNL_DATA", raising=False)
    output, results = tmp_path / "out.ipynb", tmp_path / "results"
    results.mkdir()
    done = execute(chapter, output, "-p", "device", "cpu", results=results)
    assert done.returncode == 0, done.stderr[-3000:]
    tables = {name: facts["csv"] for name, facts in shown_in(output, TABLE).items()}
    empty = {
        "14_order_of_the_rows": "c14-order-then",
        "13_clusterbert": "c13-by-stage-table",
        "15_short_texts": "c15-rows-2000",
    }
    assert "nothing recorded yet" in tables[empty[chapter]]
    if chapter == "13_clusterbert":
        assert len(tables["c13-corpora"].splitlines()) == 2  # the embedded default alone
    if chapter != "14_order_of_the_rows":
        assert "**[Not tested](claims.md" in output.read_text()


@pytest.mark.slow  # what is said where data are missing is tested with the runs
@pytest.mark.parametrize("chapter", ON_IMAGES)
def test_a_chapter_on_images_says_what_to_do_where_they_are_not_at_hand(
    chapter, tmp_path, monkeypatch
):
    for name in ("SNNL_DATA", "SNNL_CACHE"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    output, results = tmp_path / "out.ipynb", tmp_path / "results"
    results.mkdir()  # nothing is recorded either
    done = execute(chapter, output, "-p", "dataset", "emnist_balanced", results=results)
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = (out for cell in code_cells(output) for out in cell["outputs"])
    said = "".join("".join(out.get("text", "")) for out in outputs)
    assert "not on this machine: python -m snnl_book data fetch emnist_balanced" in said
    told = build.ran_on("emnist_balanced")  # what the page on the status says of it
    assert told == "digits, as emnist_balanced is not on this machine"
