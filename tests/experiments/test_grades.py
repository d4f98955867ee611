"""How near a cell of the plan is to its paper's protocol."""

import re

from snnl_book import data
from snnl_book.experiments import EXPERIMENTS, specs
from snnl_book.experiments.cells import DRAWN
from snnl_book.experiments.grades import _rules, grade, notes


def cells(experiment, dataset, **wanted):
    """The specs of seed 0 that have these fields or settings."""
    found = [
        spec
        for spec in specs(experiment, "full", "ag_news" if dataset == DRAWN else dataset, (0,))
        if spec.dataset == dataset
        and all(getattr(spec, k, None) == v or spec.get(k) == v for k, v in wanted.items())
    ]
    assert found
    return found


GLOVE = "spaCy's vectors of 2023 instead of GloVe"
PART = "documents drawn from three quarters of AG News"


def test_a_cell_names_its_grade_and_its_differences():
    for experiment, dataset, wanted, told in (
        ("clustering", "ag_news", {"embedding": "spacy"}, f"close ({GLOVE}; {PART})"),
        (
            "clustering",
            "ag_news",
            {"embedding": "infersent-random"},
            f"distant (a random encoder instead of InferSent), close ({PART})",
        ),
        (
            "classification",
            "ag_news",
            {"embedding": "infersent-random", "n_train": 20_000},
            "distant (a random encoder instead of InferSent; 20,000 training documents instead of"
            f" all, 17 % of the data), close ({PART})",
        ),
        (
            "annealing",
            "gaussian",
            {},
            "as published, our choice (the classes, the step size and the fixed temperatures)",
        ),
        (
            "labels",
            "mnist",
            {"model": "ae-d", "reading": "100 labels"},
            "as published, our choice (the numbers of labels)",
        ),
        ("images", "mnist", {"model": "original"}, "as published"),
        (
            "images",
            "mnist",
            {"model": "ae-d"},
            "as published, our choice (10,000 training images, 17 % of the data)",
        ),
        (
            "images",
            "emnist_balanced",
            {"model": "dec", "n_train": 10_000},
            "distant (fewer updates on 10,000 training images, 9 % of the data)",
        ),
        (
            "images",
            "digits",
            {"model": "ae-d"},
            "distant (scikit-learn's digits instead of the paper's images)",
        ),
        (
            "clusterbert",
            "biomedical",
            {"embedding": "tfidf", "n_train": 2000, "clusterer": "kmeans"},
            "distant (2,000 texts of each corpus, 10 % of the data)",
        ),
        (
            "clusterbert",
            "googlenews",
            {"model": "clusterbert", "n_train": 2000, "clusterer": "kmeans"},
            "distant (MiniLM instead of RoBERTa; 2,000 texts of each corpus, 18 % of the data; no"
            " training on Wikipedia), close (batches of 32 instead of 8; a learning rate of 0.001"
            " instead of 0.00002 for new layers)",
        ),
        (
            "clusterbert",
            "biomedical",
            {"embedding": "tfidf", "n_train": 2000, "clusterer": "idec"},
            "distant (2,000 texts of each corpus, 10 % of the data), close (4,000 updates of IDEC"
            " instead of 150 epochs)",
        ),
        (
            "clusterbert",
            "googlenews",
            {"embedding": "sif-corpus", "n_train": 50_000, "clusterer": "kmeans"},
            "distant (vectors trained on the corpus instead of GloVe)",
        ),
        (
            "retrieval",
            "biomedical",
            {"task": "trecqa", "embedding": "tfidf"},
            "distant (TREC-QA instead of AskUbuntu; 2,000 texts of each corpus, 10 % of the data)",
        ),
    ):
        assert {grade([spec]) for spec in cells(experiment, dataset, **wanted)} == {told}


def test_the_lowest_grade_of_several_cells_comes_first_with_the_range_of_their_shares():
    names = "biomedical", "bbc_sentences", "googlenews"
    rows = [cells("clusterbert", name, embedding="tfidf", n_train=2000)[0] for name in names]
    assert grade(rows) == "distant (2,000 texts of each corpus, 5 to 18 % of the data)"
    sif = cells("clusterbert", "biomedical", embedding="sif", n_train=50_000)
    both = grade([*rows, *sif])
    assert both == f"distant (2,000 texts of each corpus, 5 to 18 % of the data), close ({GLOVE})"
    assert grade([]) == "as published"


def test_readings_rivals_and_ablations_are_graded_as_what_they_vary():
    (spec,) = cells("clustering-readings", "ag_news", reading="alpha 10", model="ae-d")
    assert set(notes(spec)) == {GLOVE, PART}
    (spec, *_) = cells("clusterbert-ablation", "biomedical", reading="mean pooling")
    assert "MiniLM instead of RoBERTa" in notes(spec)


def test_every_rule_holds_for_a_cell_of_each_of_its_experiments():
    known = [name for name in data.available_datasets() if data.describe(name).kind != "retrieval"]
    for name in EXPERIMENTS:
        found = {
            says
            for each in known
            for spec in specs(name, "full", each, (0,))
            for says in notes(spec)
        }
        for rule in _rules():
            says = re.escape(rule["says"]).replace(re.escape("{n_train:,}"), r"[\d,]+")
            held = any(re.fullmatch(says, each) for each in found)
            assert held or name not in rule["experiments"], (rule["says"], name)
