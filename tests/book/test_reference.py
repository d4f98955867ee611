"""The API reference: every public name is on a page, every example holds, and the docstrings say
what is taken and what is raised.
"""

import ast
import dataclasses
import doctest
import inspect
import pkgutil
import re
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

import snnl_book
import snnl_lib
from snnl_book.embeddings import backbones

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.stem: path.read_text() for path in (ROOT / "book" / "api").glob("*.md")}


def directives(page, kind):
    """The full names that the directives of a kind, a regular expression, stand for on a page."""
    return re.findall(rf"^\.\. auto{kind}:: (\S+)$", PAGES[page], re.MULTILINE)


KINDS = {
    name: kind
    for page in PAGES
    for kind in ("function", "class", "exception")
    for name in directives(page, kind)
}
DOCUMENTED = sorted(KINDS)
WALKED = [
    found.name
    for package in (snnl_lib, snnl_book)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]
LIBRARY = [import_module(name) for name in WALKED if not name.endswith("__main__")]

# Public names that serve the library itself, the command line or one chapter, by the page on which
# a reader would look for them.
INTERNALS = {
    "data": """
        describe fetch locate read resolve
        Backbone InferSent Packed backbone_folder cache_key cached_vectors coverage embed_texts
        encode fingerprint frequent_words is_rounded load_encoder load_language_model load_tokenizer
        local_folder mean_vectors open_backbone own_rows pack parse published_files random_encoder
        save_encoder sif table table_file tfidf to_device train_infersent_nli train_nli
        trained_weights vocabulary whole_characters word_rows word_vectors write_rounded
    """,
    "library": """
        check_points external_scores output_layer
        take_step batches progress_bar squared_error_of_logistic warn_caller
    """,
    "methods": """
        check_features cluster_map divergence embed_once fit_umap
        scale_features
    """,
    "results": """
        Run made runs runs_of verdict
        asked_by behind benchmark benchmark_files benchmark_provenance cell_of compare
        computing_seconds count_runs gain_row includes_shared_training most_documents paper_tables
        record_cells show_difference show_ends show_interval show_number stale
        choices plus_minus
    """,
}

# The modules and packages that each page documents.
SUBJECTS = {
    "library": ("snnl_lib",),
    "methods": ("snnl_book.methods", "snnl_book.own_texts"),
    "data": ("snnl_book.data", "snnl_book.embeddings"),
    "results": ("snnl_book.results", "snnl_book.report"),
}


def is_exception(value):
    return inspect.isclass(value) and issubclass(value, Exception)


def lookup(name):
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def public_names(module):
    """What a module defines, as opposed to imports, without a leading underscore."""
    return {
        name
        for name, value in vars(module).items()
        if callable(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }


def examples():
    """The examples of all modules, those not on a page too, by the full name of what they belong
    to.
    """
    return {
        found.name: found
        for module in LIBRARY
        for found in doctest.DocTestFinder().find(module)
        if found.examples
    }


EXAMPLES = examples()


# ---------------------------------------------------------------- pages


MODULES = {page: directives(page, "module") for page in sorted(PAGES)}


def test_every_page_but_the_first_documents_the_modules_of_its_subjects():
    assert not MODULES["index"] and SUBJECTS.keys() == PAGES.keys() - {"index"}
    for page, subjects in SUBJECTS.items():
        assert {*subjects} - {"snnl_lib"} <= {*MODULES[page]} <= {*WALKED}
        assert all(name.startswith(subjects) for name in MODULES[page])


def test_every_module_for_readers_has_a_page():
    packages = {
        f"snnl_book.{found.name}"
        for found in pkgutil.iter_modules(snnl_book.__path__)
        if found.ispkg
    }
    documented = {name for names in MODULES.values() for name in names}
    assert packages - documented == {"snnl_book.experiments", "snnl_book.paper"}
    modules = {f"snnl_lib.{name}" for name in ("losses", "models", "training", "metrics")}
    assert modules | {"snnl_lib.integrations"} <= documented


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"index"}))
def test_every_public_name_of_a_pages_modules_is_on_it_or_internal(page):
    hidden = set()
    for name in MODULES[page]:
        public = public_names(import_module(name))
        shown = {
            documented.rpartition(".")[2]
            for documented in DOCUMENTED
            if documented.rpartition(".")[0] == name and documented in PAGES[page]
        }
        hidden |= public - shown
    assert hidden == set(INTERNALS.get(page, "").split())


def kind_of(value):
    return "exception" if is_exception(value) else "class" if inspect.isclass(value) else "function"


def test_a_directive_names_a_thing_of_its_kind():
    assert {name: kind_of(lookup(name)) for name in DOCUMENTED} == KINDS


def test_the_first_page_lists_every_page_and_refers_to_what_is_documented():
    references = {
        name for page in PAGES.values() for name in re.findall(r"\{py:\w+\}`~?([\w.]+)`", page)
    }
    assert len(references) > 15 and references <= KINDS.keys()
    pages = PAGES.keys() - {"index"}
    assert set(re.findall(r"^\| \{doc\}`(\w+)`", PAGES["index"], re.MULTILINE)) == pages
    assert set(re.findall(r"file: book/api/(\w+)", (ROOT / "_toc.yml").read_text())) == PAGES.keys()


def test_the_page_of_embeddings_lists_the_backbones_as_they_are():
    rows = re.findall(r"^\| `([\w-]+)` \| `([^`]+)` \| `(\w+)` \|", PAGES["data"], re.MULTILINE)
    assert rows == [(name, own.source, own.pooling) for name, own in backbones.BACKBONES.items()]


# ---------------------------------------------------------------- docstrings


# Pytest itself collects the examples of snnl_lib, which need no cache.
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("snnl_book.")])
def test_an_example_holds(name, own_cache, monkeypatch, request):
    monkeypatch.delenv("SNNL_RESULTS", raising=False)
    example, said = EXAMPLES[name], []
    example.globs["getfixture"] = request.getfixturevalue  # as where pytest collects examples
    tried = doctest.DocTestRunner().run(example, out=said.append)
    assert tried.attempted and not tried.failed, "".join(said)


def test_what_can_be_called_has_an_example():
    for name in DOCUMENTED:
        value = lookup(name)
        defined = f"{value.__module__}.{value.__qualname__}"  # a module may hand on another's names
        needs_none = is_exception(value) or dataclasses.is_dataclass(value)
        assert needs_none or {name, defined} & EXAMPLES.keys(), name


def test_a_docstring_names_every_parameter():
    for name in DOCUMENTED:
        value = lookup(name)
        for parameter in [] if is_exception(value) else inspect.signature(value).parameters:
            assert re.search(rf"\b{parameter}\b", inspect.getdoc(value)), (name, parameter)


def test_a_docstring_names_the_errors_that_are_raised():
    for name in DOCUMENTED:
        text = inspect.getdoc(lookup(name))
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(lookup(name))))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                assert ast.unparse(node.exc.func).split(".")[-1] in text, name
        listed = re.search(r"^Raises:\n((?:    .*\n?)*)", text, re.MULTILINE)
        for entry in re.findall(r"^    (\S.*)", listed[1], re.MULTILINE) if listed else []:
            # An error's name and a colon, or the page makes nonsense of it.
            assert re.match(r"\w+: ", entry), (name, entry)
