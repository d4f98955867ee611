"""The wheel: what is in it and what it asks for, the library with its minimal dependencies alone,
and what it says where an extra is missing.
"""

import ast
import functools
import json
import os
import re
import runpy
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path, PurePath

import pytest
from conftest import environment_without
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import snnl_lib
from snnl_book import EXTRAS, experiments

ROOT = Path(__file__).resolve().parent.parent
MINIMAL = {"torch", "numpy", "scipy", "scikit-learn", "pandas", "tqdm"}
PACKAGES = ("snnl_lib", "snnl_book")
OF_DATA = {"platformdirs", "pooch"}  # whose absence snnl_book.data handles itself
FILES = ("requirements.txt", "requirements/lock.txt", "requirements/nodeps.txt")
PINS = {
    canonicalize_name(name): version
    for file in FILES
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / file).read_text(), re.MULTILINE)
}

TRAINS = """
import torch
from snnl_lib.losses import soft_nearest_neighbor_loss
from snnl_lib.models import FeedForwardNet
from snnl_lib.training import build, cross_entropy, train

features, labels = torch.eye(4).repeat(8, 1), torch.arange(4).repeat(8)
untangled = soft_nearest_neighbor_loss(features, labels)
assert untangled < soft_nearest_neighbor_loss(features, labels.sort().values)
model = build(FeedForwardNet, 4, 4, hidden_sizes=(16,), seed=42)
curve = train(model, features, labels, cross_entropy, alpha=100, epochs=3, seed=42).curve
assert curve["loss"].iloc[-1] < curve["loss"].iloc[0]
"""


def asked(wheel):
    """The requirements in the wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return [
            Requirement(line)
            for line in metadata.PathDistribution(
                zipfile.Path(wheel, f"{PurePath(name).parent}/")
            ).requires
        ]


def of_extra(wheel, extra):
    """The requirements that an extra adds, or with an empty name those of every installation."""
    if not extra:
        return [own for own in asked(wheel) if own.marker is None]
    return [own for own in asked(wheel) if own.marker and own.marker.evaluate({"extra": extra})]


def brought(requirements):
    """The canonical names of what requirements bring, with all that it needs itself, as it is
    installed here.
    """
    found, todo = set(), [(own.name, frozenset(own.extras)) for own in requirements]
    while todo:
        name, extras = todo.pop()
        if (canonicalize_name(name), extras) in found:
            continue
        found.add((canonicalize_name(name), extras))
        for own in map(Requirement, metadata.requires(name) or []):
            if own.marker is None or any(
                own.marker.evaluate({"extra": extra}) for extra in extras or {""}
            ):
                todo.append((own.name, frozenset(own.extras)))
    return {name for name, _ in found}


@functools.cache
def _all_distributions():
    return metadata.packages_distributions()


def distributions(module):
    """The canonical names of the packages that a module comes in."""
    return {canonicalize_name(name) for name in _all_distributions()[module]}


def imported(text):
    """The top-level names of what a Python source imports from elsewhere."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {*PACKAGES}


# ---------------------------------------------------------------- what is in it


def test_the_wheel_holds_the_library_the_records_the_papers_numbers_and_nothing_else(wheel):
    suffixes = {".py", ".csv", ".toml", ".md", ".txt", ".html"}
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*"))
    expected = {str(path.relative_to(ROOT)) for path in paths if path.suffix in suffixes}
    assert {"snnl_lib/losses.py", "snnl_book/data/catalogue.toml"} <= expected
    assert "snnl_book/paper/table1.csv" in expected
    records = (ROOT / "results").rglob("*.csv")
    expected |= {f"snnl_book/{path.relative_to(ROOT)}" for path in records}
    with zipfile.ZipFile(wheel) as archive:
        every = {info.filename: info.file_size for info in archive.infolist()}
    found = {name: size for name, size in every.items() if ".dist-info/" not in name}
    assert set(found) == expected | {"snnl_book/requirements-data.txt"}
    assert sum(name.startswith("snnl_book/results/classification/") for name in found) > 50
    assert max(found.values()) < 5e5, "no data set is as small"
    assert wheel.stat().st_size < 45e6, "the records of over 4,000 runs, with their predictions"


def test_the_wheel_asks_for_the_minimal_packages_and_has_six_extras(wheel):
    assert {own.name for own in of_extra(wheel, "")} == MINIMAL
    markers = [str(own.marker) for own in asked(wheel) if own.marker]
    extras = {re.search(r'extra == "(\w+)"', marker)[1] for marker in markers}
    assert extras == {"data", "text", "excel", "transformers", "book", "batch"}
    batch = {str(own).partition(";")[0].strip() for own in of_extra(wheel, "batch")}
    assert batch == {"papermill>=2.7", "snakemake==9.27.1"}


def test_what_the_wheel_asks_for_is_pinned_at_a_version_that_it_takes(wheel):
    for own in asked(wheel):
        assert own.specifier.contains(PINS[canonicalize_name(own.name)]), own
    everything = brought(asked(wheel))
    assert {"snakemake", "spacy", "myst-nb", "safetensors"} <= everything
    of_torch = brought([Requirement("torch")])  # differs between its builds, and is left to it
    moved = [
        name
        for name in everything & PINS.keys()
        if metadata.version(name).partition("+")[0] != PINS[name]
    ]  # by `make LOCK=`
    if not moved and sys.version_info[:2] == (3, 11):  # which the lock was written on
        assert not everything - of_torch - {*PINS, "setuptools", "wheel"}


def test_each_module_that_is_imported_comes_with_the_minimal_packages_or_with_its_extra(wheel):
    sources = (path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    modules = set.union(*map(imported, sources))
    names = {module: distributions(module) for module in modules | set(EXTRAS)}
    minimal = brought(of_extra(wheel, ""))
    assert {module for module in modules if not names[module] & minimal} <= {*EXTRAS, *OF_DATA}
    assert brought(of_extra(wheel, "data")) >= OF_DATA
    for module, (package, extra) in EXTRAS.items():
        assert canonicalize_name(package) in names[module] & brought(of_extra(wheel, extra)), module


EXCEL = {"openpyxl"}  # for files of the user, which no chapter reads


def test_what_chapters_import_comes_with_what_their_first_cell_asks_for(wheel):
    chapters = (json.loads(path.read_text()) for path in (ROOT / "book").glob("*.ipynb"))
    cells = [cell for chapter in chapters for cell in chapter["cells"]]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    modules = set.union(*map(imported, code))
    assert {"torch", "matplotlib", "sklearn", "sentence_transformers"} <= modules
    first = runpy.run_path(str(ROOT / "book" / "_tools" / "bootstrap.py"))["CODE"]
    pattern = r'^_needed = "(.*)"$.*_needed.split\(\), "(.*?)"\)'
    named, more = re.search(pattern, first, re.M | re.S).groups()
    needed = set.union(*map(distributions, {*named.split(), more} - {"snnl_book"}))
    there = brought([*of_extra(wheel, ""), *map(Requirement, needed)])
    asked_for = modules | set(EXTRAS) - EXCEL
    assert not {module for module in asked_for if not there & distributions(module)}
    extras = (of_extra(wheel, extra) for extra in ("text", "transformers", "book"))
    assert needed <= set.union(*map(brought, extras))


# ---------------------------------------------------------------- with the minimal packages alone


@pytest.fixture(scope="session")
def minimal(wheel, unpacked_wheel, tmp_path_factory):
    """Run Python where nothing is installed but the wheel and its minimal packages: (arguments) ->
    (exit status, standard output, standard error).

    The packages are linked, for a second copy of torch takes minutes; the working directory is an
    empty folder outside of the checkout.
    """
    site, here = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("empty")
    for name in brought(of_extra(wheel, "")):
        distribution = metadata.distribution(name)
        for top in {PurePath(file).parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            if not (site / top).exists():  # several may share a folder
                (site / top).symlink_to(distribution.locate_file(top))
    environment = environment_without("SNNL_", "PYTHON") | {"SNNL_CACHE": str(here / "cache")}
    environment["PYTHONPATH"] = f"{unpacked_wheel}{os.pathsep}{site}"

    def run(*arguments):
        # Without the site-packages of this Python.
        command = [sys.executable, "-S", "-P", *arguments]
        options = {"cwd": here, "env": environment, "stdin": subprocess.DEVNULL, "timeout": 300}
        done = subprocess.run(command, capture_output=True, text=True, **options)
        return done.returncode, done.stdout, done.stderr

    run.here = here
    return run


def test_with_the_minimal_packages_every_module_imports_and_a_network_trains(
    minimal, unpacked_wheel
):
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    names = (path.relative_to(ROOT).with_suffix("").parts for path in paths)
    modules = {".".join(parts).removesuffix(".__init__") for parts in names}
    modules = ", ".join(sorted(name for name in modules if not name.endswith("__main__")))
    code = f"""
import importlib.util
assert not [name for name in {list(EXTRAS)} if importlib.util.find_spec(name)]
import {modules}
assert snnl_lib.__file__.startswith({str(unpacked_wheel)!r})
{TRAINS}"""
    assert minimal("-c", code) == (0, "", "")


def test_with_the_minimal_packages_the_command_line_lists_runs_and_records(minimal):
    status, said, error = minimal("-m", "snnl_book", "list")
    assert (status, error) == (0, "")
    assert all(f"\n{name}: " in f"\n{said}" for name in experiments.EXPERIMENTS)
    status, said, error = minimal(*TINY_RUN.split())
    assert (status, error) == (0, "") and ": ok, " in said
    beside = (".curve.csv", ".points.csv")
    paths = (minimal.here / "_build" / "results" / "tiny" / "annealing").glob("*.csv")
    records = [path for path in paths if not path.name.endswith(beside)]
    assert records and said.startswith(f"runs to do: {len(records)}, recorded: 0\n")


TINY_RUN = "-m snnl_book run annealing --profile tiny --seeds 42 --device cpu"


def test_with_the_minimal_packages_a_run_that_needs_more_says_which_extra(minimal):
    sentence = "install it with the extra {0} (in a checkout: `pip install .[{0}]`)"
    code = f"""
from pathlib import Path
from snnl_book import embeddings, report
from snnl_lib import SnnlError
from snnl_book.embeddings import backbones, words, transformers as encoders
from snnl_book.methods import deep_clustering
from snnl_book.report import figures, playground
from snnl_book.data import readers

calls = {{
    "spaCy": [
        lambda: words._vector_rows(["rain"]),
        lambda: words.vocabulary(),
    ],
    "pyarrow": [lambda: readers.read_parquet(Path("none.parquet"))],
    "umap-learn": [lambda: deep_clustering.fit_umap(None, 0)],
    "transformers": [
        lambda: encoders.load_encoder("minilm"),
        lambda: encoders.load_language_model("minilm"),
        lambda: backbones.tokenize(["rain"], "minilm"),
    ],
    "safetensors": [lambda: backbones.write_rounded("minilm", Path("pack"))],
    "matplotlib": [lambda: figures.seed_figure([], "")],
    "seaborn": [figures.style],
    "adjustText": [lambda: figures.draw_words(None, None, [])],
    "ipython": [lambda: playground.show_playground(42)],
    "markdown-it-py": [
        lambda: report.show_table(report.benchmark("loss"), "name", "caption", "here")
    ],
}}
extras = dict({list(EXTRAS.values())})
for name, tried in calls.items():
    for call in tried:
        try:
            call()
        except SnnlError as error:
            told = f"{{name}} is not installed: " + {sentence!r}.format(extras[name])
            assert str(error) == told, error
        else:
            raise AssertionError(name)
# huggingface-hub comes with transformers, and only looks into a cache; openpyxl reads a file of
# the user, and its own test looks at the sentence.
assert extras.keys() - calls.keys() == {{"huggingface-hub", "openpyxl"}}
try:
    backbones.fingerprint("roberta-base")
except backbones.BackboneError as error:
    assert "are not on this machine" in str(error), error
else:
    raise AssertionError("roberta-base")
"""
    assert minimal("-c", code) == (0, "", "")


@pytest.mark.slow
def test_pip_installs_the_wheel_into_an_empty_environment_where_it_trains(wheel, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = next((tmp_path / "env").glob("*/python"))
    pins = [f"{name}=={PINS[name]}" for name in sorted(MINIMAL)]
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", wheel, *pins], check=True, cwd=tmp_path)
    here = {"cwd": tmp_path, "env": environment_without("SNNL_", "PYTHON")}
    for arguments in (("-c", TRAINS), ("-m", "snnl_book", "list"), TINY_RUN.split()):
        done = subprocess.run([python, *arguments], **here, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    assert list((tmp_path / "_build" / "results" / "tiny" / "annealing").glob("*.csv"))
    shown = subprocess.run([*pip, "show", "snnl-book"], capture_output=True, text=True).stdout
    assert snnl_lib.__version__ in shown
