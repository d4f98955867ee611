"""Names in the notation, the table of data sets and the entry to cite match the code."""

import re
from pathlib import Path

import pytest

from snnl_book import data, embeddings, results
from snnl_book.experiments import EXPERIMENTS, PROFILES, TEXTS

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGES = {
    name: (BOOK / f"{name}.md").read_text()
    for name in ("equations", "data_statements", "checklist", "reuse")
}


def section(page, title):
    return re.split(
        r"^#+ ", PAGES[page].partition(f" {title}\n")[2], maxsplit=1, flags=re.MULTILINE
    )[0]


def in_code(text):
    return set(re.findall(r"`([\w-]+)`", text))


@pytest.fixture(scope="module")
def records():
    return results.load_results()


# ---------------------------------------------------------------- notation


def test_every_model_and_embedding_of_the_grids_has_its_name_in_the_notation():
    cells = [
        cell for experiment in EXPERIMENTS.values() for cell in experiment.cells(PROFILES["full"])
    ]
    assert {cell.model for cell in cells} - {"points"} <= in_code(
        section("equations", "Names of models")
    )
    named = in_code(section("equations", "Names of embeddings"))
    assert {cell.embedding for cell in cells} - {TEXTS} <= named
    assert {
        method for method in embeddings.METHODS if not method.endswith(("-cls", "-mean"))
    } <= named


def test_every_score_of_a_record_has_its_name_in_the_notation(records):
    named = in_code(section("equations", "Names of scores")) | in_code(
        section("equations", "Other columns")
    )
    about = r"^(train|head|pretrained)_|_[0-3]$"
    scores = {re.sub(about, "", name) for name in records["metric"].unique()}
    assert (
        scores
        | {
            name
            for experiment in EXPERIMENTS.values()
            for name in experiment.metrics
            if not name.startswith("train_")
        }
        <= named
    )
    assert set(results.STATUSES) <= named


# ---------------------------------------------------------------- data


def test_the_table_of_data_sets_is_that_of_the_catalogue():
    rows = re.findall(
        r"^\| `(\w+)` \| ([a-z ]+) \| (.*) \| *(\d*) *\| (.*) \|$",
        section("data_statements", "At a glance"),
        re.MULTILINE,
    )
    assert [name for name, *_ in rows] == data.available_datasets()
    for name, kind, documents, classes, terms in rows:
        entry = data.describe(name)
        published = {
            tuple(f"{count:,}" for count in form.documents if count) for form in entry.forms
        }
        told = {tuple(re.findall(r"[\d,]*\d", part)) for part in documents.split("; official: ")}
        assert (kind, classes, terms, told) == (
            entry.kind,
            str(len(entry.class_names) or ""),
            entry.terms,
            published,
        ), name


# ---------------------------------------------------------------- reuse


def test_the_entry_to_cite_is_that_of_citation_cff():
    (entry,) = re.findall(r"^```bibtex\n(.*?)^```$", PAGES["reuse"], re.DOTALL | re.MULTILINE)
    cff = (BOOK.parent / "CITATION.cff").read_text()
    told = dict(re.findall(r"^  (\w+) = \{+(.*?)\}+,?$", entry, re.MULTILINE))
    for name in ("title", "version", "license"):
        assert re.search(rf'^{name}: "?{re.escape(told[name])}"?$', cff, re.MULTILINE)
    assert f"name: {told['author']}" in cff
