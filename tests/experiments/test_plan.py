"""The grids of runs: what is in them, which runs a data set and seeds mean, and that none becomes
another run unseen.
"""

import hashlib
import inspect
import re
from dataclasses import replace

import pytest

from snnl_book import data
from snnl_book.experiments import images
from snnl_book.experiments.cells import FIFTEEN_SEEDS, PAPER_SEEDS, PROFILES, Cell, ExperimentError
from snnl_book.experiments.plan import EXPERIMENTS, FAMILIES, parse_seeds, specs
from snnl_lib import SnnlError


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
    assert len(found) == 11269
    assert hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:16] == "0e06814e1c3f31ca"


def test_every_experiment_has_a_function_of_its_family_that_carries_it_out():
    for name, experiment in EXPERIMENTS.items():
        signature = inspect.signature(experiment.run)
        assert list(signature.parameters) == ["spec", "task", "device", "progress"]
        assert experiment.metrics and experiment.title
        (family,) = [family for family in FAMILIES if name in family.EXPERIMENTS]
        assert family.EXPERIMENTS[name] is experiment
        assert experiment.run.__module__ == experiment.cells.__module__ == family.__name__


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
