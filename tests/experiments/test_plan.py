"""The grids of runs: what is in them, which runs a data set and seeds mean, and that none becomes
another run unseen.
"""

import hashlib
import inspect
import re
from collections import Counter
from dataclasses import replace

import pytest

from snnl_book import data
from snnl_book.experiments import images
from snnl_book.experiments.cells import FIFTEEN_SEEDS, PAPER_SEEDS, PROFILES, Cell
from snnl_book.experiments.plan import EXPERIMENTS, FAMILIES, ExperimentError, parse_seeds, specs
from snnl_lib import SnnlError

CLASSIFIERS = {
    (model, alpha, temperature)
    for model in ("ffn", "cnn")
    for alpha, temperature in ((0, "none"), (100, "annealed"), (-100, "annealed"))
}


@pytest.mark.parametrize(
    ("experiment", "grid"),
    [
        ("classification", CLASSIFIERS),
        (
            "clustering",
            {
                ("pca", 0, "none"),
                ("ae", 0, "none"),
                ("lc-d", 100, "annealed"),
                ("ae-d", 100, "annealed"),
            },
        ),
    ],
)
def test_the_grid_is_the_papers(experiment, grid):
    found = [spec for spec in specs(experiment, "full", "newsgroups4") if spec.embedding == "spacy"]
    assert {(spec.model, spec.alpha, spec.temperature) for spec in found} == grid
    first = [spec for spec in found if spec.seed in PAPER_SEEDS]
    assert Counter(spec.seed for spec in first) == dict.fromkeys(PAPER_SEEDS, len(grid))
    assert len(set(first)) == len(first) == 5 * len(grid)
    assert {(spec.experiment, spec.profile, spec.dataset, spec.embedding) for spec in found} == {
        (experiment, "full", "newsgroups4", "spacy")
    }
    assert {spec.revision for spec in found} == {EXPERIMENTS[experiment].revision}


def test_infersent_vectors_have_rows_for_a_cpu_and_rows_on_every_document_for_a_gpu():
    found = [
        spec for spec in specs("classification", "full", "newsgroups4") if spec.embedding != "spacy"
    ]
    rows = Counter((spec.embedding, spec.model, spec.n_train, bool(spec.needs)) for spec in found)
    assert rows == {
        ("infersent-random", "ffn", 20_000, False): 21,  # and two further encoders
        ("infersent-random", "cnn", 20_000, False): 21,
        ("infersent-random", "ffn", 1_000_000, True): 15,
        ("infersent-random", "cnn", 1_000_000, True): 15,
        ("infersent-nli", "ffn", 20_000, True): 15,
        ("infersent-nli", "cnn", 20_000, True): 15,
        ("infersent-nli", "ffn", 1_000_000, True): 9,  # three seeds
        ("infersent", "ffn", 1_000_000, True): 15,
    }
    whole = [spec for spec in found if spec.n_train == 1_000_000]
    assert {spec.seed for spec in whole if spec.embedding == "infersent-nli"} == {42, 1234, 73}, (
        "the first three, or they would not be paired"
    )
    assert all(spec["standardize"] for spec in found)
    assert {spec["hidden_sizes"] for spec in found if spec.model == "ffn"} == {(500,)}, (
        "Sec. 2.1: one hidden layer on InferSent"
    )
    for profile in ("tiny", "quick"):  # 2,048 units in either direction are too many for a minute
        found = [spec for name in EXPERIMENTS for spec in specs(name, profile, "newsgroups4")]
        assert not any(spec.embedding.startswith("infersent") or spec.needs for spec in found)


@pytest.mark.parametrize(
    ("profile", "n_train", "n_test", "epochs"),
    [
        ("tiny", 300, 200, {"ffn": 2, "cnn": 1, "ae": 2, "lc-d": 2, "ae-d": 2}),
        ("full", 20_000, None, {"ffn": 30, "cnn": 50, "ae": 30, "lc-d": 30, "ae-d": 30}),
    ],
)
@pytest.mark.parametrize(
    "experiment", [name for name in EXPERIMENTS if name not in ("annealing", "images")]
)
def test_a_profile_says_how_many_documents_and_epochs(experiment, profile, n_train, n_test, epochs):
    epochs = epochs | dict.fromkeys(("supcon", "ffn-knn", "ffn-layer", "ffn-hidden"), epochs["ffn"])
    epochs |= {"ae-supcon": epochs["ae"]}
    if experiment == "lexicon" and profile == "full":  # few words: more epochs
        epochs = dict.fromkeys(("ae", "lc-d", "ae-d"), 50)
    for spec in specs(experiment, profile, "newsgroups4", 42):
        of_its_own = (
            spec.needs
            or experiment == "labels"
            or (
                experiment in ("clustering", "clustering-readings", "clustering-rivals", "tsne")
                and spec.embedding != "spacy"
            )
        )
        assert spec["n_test"] == n_test and (of_its_own or spec.n_train == n_train)
        assert spec.get("epochs") == epochs.get(spec.model), (
            "pca and the classifiers of scikit-learn have no epochs"
        )


def test_every_run_has_a_key_of_its_own():
    found = [
        spec
        for name in EXPERIMENTS
        for profile in PROFILES
        for spec in specs(name, profile, "newsgroups4")
    ]
    assert (
        len({(spec.experiment, spec.profile, spec.key("a")) for spec in found})
        == len({spec.identity for spec in found})
        == len(found)
    )


def test_no_run_has_become_another_one_unseen():
    # Records are found by these. Where runs are meant to change, come or go, the two numbers
    # below change with them. No run on the embedded digits is recorded.
    named = [
        name
        for name in data.available_datasets()
        if data.describe(name).kind != "retrieval" and name != images.EMBEDDED
    ]
    found = {
        (*spec.identity, spec.key(""))
        for name in EXPERIMENTS
        for dataset in named
        for spec in specs(name, "full", dataset)
    }
    assert len(found) == 8056
    assert hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:16] == "19cb0b7b4e9cce90"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_function_of_its_family_that_carries_it_out(name):
    run, cells = EXPERIMENTS[name].run, EXPERIMENTS[name].cells
    assert list(inspect.signature(run).parameters) == ["spec", "task", "device", "progress"]
    assert EXPERIMENTS[name].metrics and EXPERIMENTS[name].title
    (family,) = [family for family in FAMILIES if name in family.EXPERIMENTS]
    assert family.EXPERIMENTS[name] is EXPERIMENTS[name]
    assert run.__module__ == cells.__module__ == family.__name__


def test_an_unknown_name_in_a_grid_is_an_error_that_lists_the_known_ones():
    for arguments, message in (
        (("clasification",), "no experiment 'clasification': choose one of classification, "),
        (("classification", "fast"), "no profile 'fast': choose one of tiny, quick, full"),
        (("classification", "tiny", "agnews"), "no data set 'agnews': choose one of ag_news, "),
        (("classification", "tiny", "newsgroups4", []), "seeds must be whole numbers"),
    ):
        with pytest.raises(SnnlError, match=message):
            specs(*arguments)


@pytest.mark.parametrize("dataset", ["stackoverflow", "newsgroups20_openings"])
def test_a_set_of_short_texts_means_the_runs_that_name_it(dataset, monkeypatch):
    for name in set(EXPERIMENTS) - {"annealing"}:  # which is on points, whatever the data set
        assert {spec.dataset for spec in specs(name, "tiny", dataset)} <= {dataset}
        assert bool(specs(name, "tiny", dataset)) == (
            name in ("clusterbert", "clusterbert-ablation", "retrieval")
        )
    cells = [
        Cell("Orig.", "spacy", "pca", 0, {}, dataset=own) for own in ("", "stackoverflow", "mnist")
    ]
    monkeypatch.setitem(
        EXPERIMENTS, "clustering", replace(EXPERIMENTS["clustering"], cells=lambda profile: cells)
    )
    assert {spec.dataset for spec in specs("clustering", "tiny", dataset)} == (
        {"stackoverflow"} if dataset == "stackoverflow" else set()
    )
    assert {spec.dataset for spec in specs("clustering", "tiny", "newsgroups4")} == {"newsgroups4"}


# ---------------------------------------------------------------- seeds


def test_a_cell_may_have_seeds_of_its_own_and_a_user_who_names_seeds_gets_those(monkeypatch):
    cells = [
        Cell("all", "spacy", "pca", 0, {}),
        Cell("two", "spacy", "ae", 0, {}, seeds=2),
        Cell("own", "spacy", "ae-d", 0, {}, seeds=FIFTEEN_SEEDS),
        Cell("anew", "infersent-random", "pca", 0, {}, seeds=2, drawn_anew=True),
    ]
    experiment = replace(EXPERIMENTS["clustering"], cells=lambda profile: cells)
    monkeypatch.setitem(EXPERIMENTS, "clustering", experiment)

    def seeds(asked=None):
        found = specs("clustering", "tiny", "newsgroups4", asked)
        return [tuple(spec.seed for spec in found if spec.label == cell.label) for cell in cells]

    first = PAPER_SEEDS[:2]
    assert seeds() == [PAPER_SEEDS, first, FIFTEEN_SEEDS, (*first, 1, 2)]
    assert seeds([5, 3, 9]) == [(5, 3, 9), (5, 3), (5, 3, 9), (5, 3)]
    assert FIFTEEN_SEEDS[:5] == PAPER_SEEDS and len(set(FIFTEEN_SEEDS)) == 15


def test_every_way_of_writing_seeds_means_the_same():
    for seeds in ([42, 73], (42, 73), "42,73", "42, 73", "[42, 73]", "(42, 73)"):
        assert parse_seeds(seeds) == (42, 73)
    for seeds in (42, [42], "42", "[42]"):
        assert parse_seeds(seeds) == (42,)
    assert parse_seeds([0, 2**32 - 1]) == (0, 4294967295)


NOT_SEEDS = [-1, [42, -1], "-1", True, [True], 42.0, [42.0], "42.0", 2**32, "", "[]", [], ["42"]]
NOT_SEEDS += ["forty-two", "42;73", "42,,73", None, {}]


def test_anything_else_for_seeds_is_an_error_that_shows_it():
    for seeds in NOT_SEEDS:
        message = f"seeds must be whole numbers from 0 to .* got {re.escape(repr(seeds))}"
        with pytest.raises(ExperimentError, match=message):
            parse_seeds(seeds)
    for seeds in ([42, 42], "42,73,42", (0, 0)):
        with pytest.raises(ExperimentError, match="seeds must differ, got"):
            parse_seeds(seeds)
