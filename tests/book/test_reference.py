"""The API reference: every public name is on a page, every example holds, and the docstrings say
what is taken and what is raised.
"""

import ast
import dataclasses
import doctest
import inspect
import json
import re
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

from snnl_lib.embeddings import backbones

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.stem: path.read_text() for path in (ROOT / "book" / "api").glob("*.md")}
KINDS = {
    (module, name): kind
    for page in PAGES.values()
    for kind, module, name in re.findall(
        r"^\.\. auto(\w+):: snnl_lib\.(\w+)\.(\w+)$", page, re.MULTILINE
    )
}
DOCUMENTED = sorted(KINDS)

# Public names that serve the library itself, the command line or one chapter.
INTERNALS = {
    "backbones": (
        """Backbone backbone_folder cache_key files_to_pack fingerprint open_backbone parse"""
    ),
    "clusterbert": """batches_of_like_length check_clusters""",
    "data": (
        """available_packages cache_dir describe fetch locate package_fingerprint package_path read resolve unpacked user_folder verify"""
    ),
    "deep_clustering": """umap""",
    "encoders": """embed_texts load_language_model""",
    "embeddings": (
        """cached coverage facts fingerprint nli_pairs nli_weights own_rows published_files train_infersent_nli vocabulary word_rows word_vectors"""
    ),
    "metrics": """check_points""",
    "models": """output_layer""",
    "results": (
        """Merged Outcome Record Run Spec commit judge merge read_record runs versions write_atomically write_record"""
    ),
    "training": """Training batches stack_of_this_run train_stack""",
}


def is_exception(value):
    return inspect.isclass(value) and issubclass(value, Exception)


def lookup(name):
    return getattr(import_module(f"snnl_lib.{name[0]}"), name[1])


def examples():
    """The examples of all modules, those not on a page too, by the full name of what they belong
    to.
    """
    modules = [
        import_module(f"snnl_lib.{path.stem}")
        for path in sorted((ROOT / "snnl_lib").glob("*.py"))
        if not path.stem.startswith("__")
    ]
    return {
        found.name: found
        for module in modules
        for found in doctest.DocTestFinder().find(module)
        if found.examples
    }


EXAMPLES = examples()
with_a_name = pytest.mark.parametrize("name", DOCUMENTED, ids=".".join)


# ---------------------------------------------------------------- pages


MODULES = [
    (page, module)
    for page in sorted(PAGES)
    for module in re.findall(r"^\.\. automodule:: snnl_lib\.(\w+)$", PAGES[page], re.MULTILINE)
]


def test_every_page_but_the_first_is_that_of_the_module_it_is_named_after():
    assert {(page, page) for page in PAGES.keys() - {"index"}} <= set(MODULES)


@pytest.mark.parametrize(("page", "name"), MODULES)
def test_every_public_name_of_a_module_is_on_its_page_or_internal(page, name):
    module = import_module(f"snnl_lib.{name}")
    public = {
        own
        for own, value in vars(module).items()
        if callable(value) and value.__module__ == module.__name__ and not own.startswith("_")
    }
    shown = {
        own
        for own in re.findall(
            rf"^\.\. auto\w+:: snnl_lib\.{name}\.(\w+)$", PAGES[page], re.MULTILINE
        )
    }
    internal = set(INTERNALS.get(name, "").split())
    assert shown | internal == public
    assert not shown & internal


@with_a_name
def test_a_directive_names_a_thing_of_its_kind(name):
    value = lookup(name)
    assert KINDS[name] == (
        "exception" if is_exception(value) else "class" if inspect.isclass(value) else "function"
    )


def test_the_first_page_lists_every_page_and_refers_to_what_is_documented():
    references = {
        (module, name)
        for page in PAGES.values()
        for module, name in re.findall(r"\{py:\w+\}`~snnl_lib\.(\w+)\.(\w+)`", page)
    }
    assert len(references) > 15 and references <= KINDS.keys()
    pages = PAGES.keys() - {"index"}
    assert set(re.findall(r"^\| \{doc\}`(\w+)`", PAGES["index"], re.MULTILINE)) == pages
    assert set(re.findall(r"file: book/api/(\w+)", (ROOT / "_toc.yml").read_text())) == PAGES.keys()


def test_the_page_of_backbones_lists_them_as_they_are():
    rows = re.findall(
        r"^\| `([\w-]+)` \| `([^`]+)` \| `(\w+)` \|", PAGES["backbones"], re.MULTILINE
    )
    assert rows == [(name, own.source, own.pooling) for name, own in backbones.BACKBONES.items()]


def test_the_equations_are_those_of_the_chapters():
    cells = [
        cell
        for path in (ROOT / "book").glob("*.ipynb")
        for cell in json.loads(path.read_text())["cells"]
        if cell["cell_type"] == "markdown"
    ]
    derived = {
        "".join(equation.split())
        for cell in cells
        for equation in re.findall(r"\$\$(.*?)\$\$", "".join(cell["source"]), re.DOTALL)
    }
    shown = {
        "".join(equation.split())
        for page in PAGES.values()
        for equation in re.findall(r"\$\$(.*?)\$\$", page, re.DOTALL)
    }
    assert len(shown) >= 15 and shown <= derived


# ---------------------------------------------------------------- docstrings


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_holds(name, own_cache, monkeypatch):
    monkeypatch.delenv("SNNL_RESULTS", raising=False)
    said = []
    tried = doctest.DocTestRunner().run(EXAMPLES[name], out=said.append)
    assert tried.attempted and not tried.failed, "".join(said)


@with_a_name
def test_what_can_be_called_has_an_example(name):
    value = lookup(name)
    assert (
        is_exception(value)
        or dataclasses.is_dataclass(value)
        or f"snnl_lib.{'.'.join(name)}" in EXAMPLES
    )


@with_a_name
def test_a_docstring_names_every_parameter(name):
    value = lookup(name)
    parameters = [] if is_exception(value) else inspect.signature(value).parameters
    assert not [
        parameter
        for parameter in parameters
        if not re.search(rf"\b{parameter}\b", inspect.getdoc(value))
    ]


@with_a_name
def test_a_docstring_names_the_errors_that_are_raised(name):
    text = inspect.getdoc(lookup(name))
    tree = ast.parse(textwrap.dedent(inspect.getsource(lookup(name))))
    raised = [
        ast.unparse(node.exc.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    ]
    assert not [error for error in raised if error.split(".")[-1] not in text]
    listed = re.search(r"^Raises:\n((?:    .*\n?)*)", text, re.MULTILINE)
    entries = re.findall(r"^    (\S.*)", listed[1], re.MULTILINE) if listed else []
    assert not [
        entry for entry in entries if not re.match(r"\w+: ", entry)
    ]  # an error's name and a colon, or the page makes nonsense of it
