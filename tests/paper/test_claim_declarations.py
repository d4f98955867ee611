"""The declarations of the claims: verbatim quotes, every rival that a sentence names, and rows of
the plan. Nothing here judges: the files are read as they are.
"""

import csv
import os
import re
import tomllib
from functools import cache
from itertools import chain, product
from pathlib import Path

import pytest

from snnl_book import paper
from snnl_book.experiments import EXPERIMENTS, specs
from snnl_book.experiments.cells import DRAWN
from snnl_book.report.contrasts import base

FOLDER = Path(paper.__file__).with_name("claims")
TEXTS = {"text": ("000",), "image": ("001", "002"), "clusterbert": ("004",)}
"""The claims of each paper, and how its stored text's file begins."""
ROW = {"experiment", "dataset", "embedding", "model", "alpha", "temperature", "reading"}
ROW |= {"clusterer", "n_train", "task", "metric"}
CORPORA = {"stackoverflow", "biomedical", "searchsnippets"}
CORPORA |= {"bbc_sentences", "googlenews", "ag_news_descriptions"}
TESTS = {"> 0", "within", "= v", "at least v", "rank", "more than half"}
WORDS = {None, "marginal", "slim", "sharply", "by a wide margin", "on par"}
FIELDS = {"says", "test", "words", "unit", "metric", "value", "best", "rank", "over", "corpora"}
FIELDS |= {"each", "common", "cells", "not_attempted", "printed", "published"}


def claims_of(name):
    """Read one paper's claims."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))["claim"]


CLAIMS = [(name, claim) for name in TEXTS for claim in claims_of(name)]
every_claim = pytest.mark.parametrize(
    ("name", "claim"), CLAIMS, ids=[claim["name"] for _, claim in CLAIMS]
)


def filled(part, chosen):
    """Put what ``each`` chose into a part of a contrast: ``{key}`` alone becomes the value itself,
    within a longer text it is written into it."""
    if isinstance(part, dict):
        return {key: filled(value, chosen) for key, value in part.items()}
    if isinstance(part, list):
        return [filled(value, chosen) for value in part]
    if not isinstance(part, str):
        return part
    alone = re.fullmatch(r"\{(\w+)\}", part)
    return chosen[alone[1]] if alone and alone[1] in chosen else part.format(**chosen)


def contrasts(claim):
    """Expand a claim's contrasts: one for each combination of what ``each`` lists, with rows whole.

    A key of ``each`` that is a field of rows goes into every row that lacks it, ``metric`` also
    into the contrast. With ``over``, rows are made for each of its parts: ``cells`` is then a list
    of lists of cells.
    """
    for declared in claim.get("contrast", ()):
        each = declared.get("each", {})
        for values in product(*each.values()):
            chosen = dict(zip(each, values, strict=True))
            contrast = filled({k: v for k, v in declared.items() if k != "each"}, chosen)
            contrast |= {"metric": chosen["metric"]} if "metric" in chosen else {}
            common = {key: value for key, value in chosen.items() if key in ROW - {"metric"}}
            common |= contrast.get("common", {})
            parts = contrast.get("over", [{}])
            whole = [
                [[weight, common | part | row] for weight, row in contrast.get("cells", [])]
                for part in parts
            ]
            yield contrast | {"cells": whole if "over" in contrast else whole[0]}


def rows(contrast):
    """List (weight, row) of a contrast, the rows of each corpus if corpora are the units."""
    parts = contrast["cells"] if "over" in contrast else [contrast["cells"]]
    for weight, row in chain.from_iterable(parts):
        for corpus in contrast.get("corpora", [row.get("dataset")]):
            yield weight, row | {"dataset": corpus}


@cache
def plan(experiment, dataset):
    return specs(experiment, "full", "ag_news" if dataset == DRAWN else dataset, (0,))


def cell(row):
    """Find the one cell of the plan that a row names, on whatever number of documents."""
    asked = {key: value for key, value in row.items() if key not in ("experiment", "metric")}
    if not (row["experiment"] == "clusterbert" and row.get("clusterer") != "kmeans"):
        asked.setdefault("reading", None)  # the main setting, but where the clusterer implies it
    found = {}
    for spec in plan(row["experiment"], row["dataset"]):
        has = dict(spec.settings) | vars(spec)
        if all(has.get(key) == value for key, value in asked.items()):
            found[spec.label] = spec
    assert len(found) == 1, f"{row} names {sorted(found) or 'no cell'}"
    return next(iter(found.values()))


def quoted(value):
    """The published numbers that a contrast's ``value`` names: (what is named, number)."""
    if "stated" in value:
        return [(value["stated"], value["number"])]
    if "table" in value:
        table, at = paper.paper_table(value["table"]), "label"
    elif "literature" in value:
        table, at = paper.literature(value["literature"]), "method"
    else:
        table, at = paper.paper_short_texts(), "label"
    for key, wanted in value.items():
        if key not in ("table", "literature", "short_texts"):
            table = table[table[key] == wanted]
    return [*table.dropna(subset="value")[[at, "value"]].itertuples(index=False, name=None)]


def same(text):
    """Lay line breaks, hyphens at their ends and marks of emphasis aside."""
    return re.sub(r"[\s*\-–]", "", text)


def test_all_sentences_of_rule_1_are_still_declared_and_some_are_new():
    sentences = [claim["claim"] for _, claim in CLAIMS]
    with (FOLDER / "rule-1.csv").open(encoding="utf-8", newline="") as file:
        frozen = list(csv.DictReader(file))
    assert list(frozen[0]) == ["claim", "ours", "interval", "verdict"] and len(frozen) == 42
    assert {row["claim"] for row in frozen} < set(sentences)
    assert len(set(sentences)) == len(sentences)


def test_the_verdicts_of_rule_2_are_kept_with_one_line_for_each_claim_that_it_judged():
    with (FOLDER / "rule-2.csv").open(encoding="utf-8", newline="") as file:
        frozen = list(csv.DictReader(file))
    assert list(frozen[0]) == ["claim", "verdict", "interval", "units", "reason"]
    replaced = {"lost-in-chs"}  # by the number without the collapsed run
    names = [row["claim"] for row in frozen]
    assert len(set(names)) == len(names) == 50
    assert {*names} - {claim["name"] for _, claim in CLAIMS} == replaced
    assert all(cell.strip() for row in frozen for cell in row.values())


def test_names_are_unique_and_a_few_claims_are_headlines():
    names = [claim["name"] for _, claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
    assert 5 <= sum(claim.get("headline", False) for _, claim in CLAIMS) <= 12


@every_claim
def test_a_claim_says_where_it_stands_what_would_change_our_mind_and_what_it_is_tested_by(
    name, claim
):
    for field in ("chapter", "claim", "where", "reported", "quote", "changes"):
        assert claim[field].strip(), field
    assert claim.get("changed", "what rule 1 did").strip()
    root = Path(__file__).parents[2]
    assert (root / "book" / f"{claim['chapter']}.ipynb").exists()
    assert bool(claim.get("contrast")) != bool(claim.get("not_attempted"))
    for contrast in claim.get("contrast", ()):
        assert set(contrast) <= FIELDS
        assert contrast["test"] in TESTS and contrast.get("words") in WORDS
        assert contrast["unit"] in ("seed", "encoder", "corpus")
    told = [(contrast["says"], contrast["metric"]) for contrast in contrasts(claim)]
    assert len(set(told)) == len(told)


@every_claim
def test_a_quote_stands_in_the_paper(name, claim):
    folder = Path(os.environ.get("SNNL_DATA", "nowhere")).parent / "papers"
    files = [path for start in TEXTS[name] for path in folder.glob(f"{start}_*.txt")]
    if not files:
        pytest.skip("the papers' texts are not beside the data (SNNL_DATA)")
    texts = [same(path.read_text("utf-8")) for path in files]
    for part in claim["quote"].split(" […] "):
        assert any(same(part) in text for text in texts), part


@every_claim
def test_every_rival_that_the_sentence_names_is_one_of_the_contrasts(name, claim):
    against = set()
    for contrast in contrasts(claim):
        if "value" in contrast:
            against |= {what for what, _ in quoted(contrast["value"])}
        for weight, row in rows(contrast):
            if weight < 0:
                against |= {row.get("model"), row["embedding"], cell(row).label}
    for words, rivals in claim["named"].items():
        assert same(words) in same(claim["quote"])
        assert rivals and ("not_attempted" in claim or set(rivals) <= against), words


@every_claim
def test_a_row_names_one_cell_of_the_plan_and_a_metric_that_it_has(name, claim):
    for contrast in contrasts(claim):
        for _, row in rows(contrast):
            assert set(row) <= ROW
            spec = cell(row)
            metric = row.get("metric", contrast["metric"])
            metrics = EXPERIMENTS[spec.experiment].metrics
            assert metric in metrics or base(metric) in metrics
            assert "infersent-random" not in row["embedding"] or contrast["unit"] == "encoder"


@every_claim
def test_weights_make_a_difference_or_there_is_a_number_to_compare_with(name, claim):
    for contrast in contrasts(claim):
        cells = contrast["cells"] if "over" in contrast else [contrast["cells"]]
        if cells == [[]]:
            assert contrast["not_attempted"].strip()
            continue
        for own in cells:
            assert own[0][0] == 1  # what the sentence puts first
        total = {sum(weight for weight, _ in own) for own in cells}
        rivals = len(cells[0]) > 1
        assert (contrast["test"] in ("= v", "at least v")) <= ("value" in contrast)
        if contrast["test"] == "rank":
            assert rivals != ("value" in contrast)
        else:
            assert total == ({0} if rivals else {1})
        if "value" in contrast:
            numbers = quoted(contrast["value"])
            fraction = contrast["metric"] != "chs"
            assert all(0 < number < (1 if fraction else 1e7) for _, number in numbers)
            assert len(numbers) > 1 if contrast["test"] == "rank" else len(numbers) == 1
        assert ("rank" in contrast) == (contrast["test"] == "rank")
        assert ("over" in contrast) == (contrast["test"] == "more than half")


def test_the_corpora_of_clusterbert_are_those_of_its_paper():
    theirs = set(paper.paper_corpora()["dataset"])
    assert theirs == CORPORA
    for claim in claims_of("clusterbert"):
        for contrast in contrasts(claim):
            assert {row["dataset"] for _, row in rows(contrast)} <= CORPORA
            assert ("corpora" in contrast) == (contrast["unit"] == "corpus")
