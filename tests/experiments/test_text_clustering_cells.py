"""The grids of the text paper: tables, readings that differ in what their names say, rivals, labels
and figures.
"""

from collections import Counter

import pytest

from snnl_lib.experiments import text
from snnl_lib.experiments.grids import specs
from snnl_lib.experiments.settings import PROFILES
from snnl_lib.experiments.text_grids import (
    RIVALS,
    classification_cells,
    classification_reading_cells,
    classification_rival_cells,
    clustering_cells,
    clustering_reading_cells,
)

MODELS = ("original", "ae", "lc-d", "ae-d")
FIVE = {42, 1234, 73, 1024, 31415926}


def grid(experiment, profile="full", seeds=None):
    return specs(experiment, profile, "newsgroups4", *([seeds] if seeds else []))


def described(cell):
    """Everything that can move a cell's numbers."""
    return {
        "embedding": cell.embedding,
        "model": cell.model,
        "alpha": cell.alpha,
        "temperature": cell.temperature,
        "n_train": cell.n_train,
        **cell.settings,
    }


# ---------------------------------------------------------------- classification


@pytest.mark.parametrize("profile", PROFILES)
def test_a_reading_differs_from_the_main_setting_in_exactly_one_thing(profile):
    main = [described(cell) for cell in classification_cells(PROFILES[profile])]
    for cell in classification_reading_cells(PROFILES[profile]):
        own = described(cell)
        reading = own.pop("reading")
        changed = min(
            (
                {name for name in own.keys() | setting.keys() if own.get(name) != setting.get(name)}
                for setting in main
            ),
            key=len,
        )
        if (
            reading == "8 filters, 256 positions"
        ):  # one choice in two numbers: as many values leave the convolution
            assert (
                changed == {"filters", "positions"} and own["filters"] * own["positions"] == 32 * 64
            )
        else:
            assert len(changed) == 1, f"{reading}: {changed}"


def test_the_readings_are_those_that_the_paper_leaves_open():
    found = [
        (cell.settings["reading"], cell.alpha)
        for cell in classification_reading_cells(PROFILES["full"])
    ]
    assert len(set(found)) == len(found), "a name and an alpha say which"
    assert {name for name, _ in found} == {
        "minimum over layers",
        "before the nonlinearity",
        "output layer counted too",
        "alpha 1",
        "alpha 10",
        "alpha 1000",
        "fixed temperature 1.0",
        "fixed temperature 0.1",
        "best epoch on a held-out tenth",
        "five hidden layers",
        "kernel 3, max pooling",
        "8 filters, 256 positions",
        "InferSent not standardised",
    }
    for name in ("best epoch on a held-out tenth", "five hidden layers"):
        assert {alpha for reading, alpha in found if reading == name} == {0, 100, -100}, (
            "these need baselines of their own"
        )


@pytest.mark.parametrize("cells", [classification_reading_cells, classification_rival_cells])
def test_sentence_vectors_are_left_out_where_a_profile_has_none(cells):
    assert {cell.embedding for cell in cells(PROFILES["tiny"])} == {"spacy"}
    assert {cell.embedding for cell in cells(PROFILES["full"])} == {"spacy", "infersent-random"}


# ---------------------------------------------------------------- clustering


def test_the_tables_have_rows_on_averaged_and_on_sentence_vectors():
    found = grid("clustering")
    models = ("pca", "ae", "lc-d", "ae-d")
    expected = {("spacy", model, 20_000, False): 5 for model in models}
    for embedding in ("infersent-random", "infersent"):
        expected |= {(embedding, model, 10_000, False): 5 for model in models}  # Sec. 3.5
    assert Counter(
        (spec.embedding, spec.model, spec.n_train, bool(spec.needs)) for spec in found
    ) == expected | {("infersent-nli", "ae-d", 10_000, True): 3}
    assert {spec.seed for spec in found if spec.embedding == "infersent-nli"} == {42, 1234, 73}, (
        "the first three, or they would not be paired"
    )
    assert {spec.seed for spec in found} == FIVE
    for spec in found:
        layers = {"pca": None, "ae": "none", "lc-d": "code[:100]", "ae-d": "sum"}[spec.model]
        alpha, temperature = (100, "annealed") if spec.model in ("lc-d", "ae-d") else (0, "none")
        assert (spec.get("layers"), spec.alpha, spec.temperature) == (layers, alpha, temperature)
        assert (spec.get("components"), spec.get("scaling")) == (
            (128, None) if spec.model == "pca" else (None, "feature")
        )


CHANGED = {
    "inputs not scaled": {"scaling": "none"},
    "one scale for all features": {"scaling": "global"},
    "squared error, inputs not scaled": {
        "reconstruction": "squared error",
        "scaling": "none",
    },  # one thing more than "inputs not scaled"
    "linear code": {"linear_code": True},
    "alpha 1": {"alpha": 1},
    "alpha 10": {"alpha": 10},
    "alpha 1000": {"alpha": 1000},
    "before the nonlinearity": {"before_nonlinearity": True},
    "k-means on the 100 units only": {"clustered": 100},
    "k-means fitted on training codes": {"fitted_on": "train"},
}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_reading_differs_from_the_main_setting_in_exactly_what_its_name_says(profile):
    main = {
        (cell.embedding, cell.model): described(cell)
        for cell in clustering_cells(PROFILES[profile])
    }
    seen = set()
    for cell in clustering_reading_cells(PROFILES[profile]):
        own, setting = described(cell), main[cell.embedding, cell.model]
        reading = own.pop("reading")
        assert {
            name: own.get(name)
            for name in own.keys() | setting.keys()
            if own.get(name) != setting.get(name)
        } == CHANGED[reading]
        assert cell.embedding in ("spacy", "infersent-random") and not cell.needs
        seen.add(reading)
    assert seen == set(CHANGED) and [
        name for name, changes in CHANGED.items() if len(changes) != 1
    ] == ["squared error, inputs not scaled"]


def test_readings_are_run_for_three_seeds_and_those_that_may_be_the_papers_for_all_five():
    found = grid("clustering-readings")
    averaged, sentences = (
        [spec for spec in found if spec.embedding == form] for form in ("spacy", "infersent-random")
    )
    assert Counter((spec["reading"], spec.model) for spec in averaged) == {
        ("inputs not scaled", "ae"): 5,
        ("inputs not scaled", "lc-d"): 3,
        ("inputs not scaled", "ae-d"): 3,
        ("one scale for all features", "ae"): 3,
        ("one scale for all features", "ae-d"): 3,
        ("squared error, inputs not scaled", "ae"): 5,
        ("squared error, inputs not scaled", "lc-d"): 5,
        ("squared error, inputs not scaled", "ae-d"): 5,
        ("linear code", "ae"): 3,
        ("linear code", "ae-d"): 3,
        ("alpha 1", "ae-d"): 3,
        ("alpha 10", "ae-d"): 3,
        ("alpha 1000", "ae-d"): 3,
        ("before the nonlinearity", "ae-d"): 3,
        ("k-means on the 100 units only", "lc-d"): 3,
        ("k-means fitted on training codes", "pca"): 3,
        ("k-means fitted on training codes", "ae"): 3,
        ("k-means fitted on training codes", "ae-d"): 3,
    }
    assert {
        spec.seed
        for spec in found
        if spec["reading"] != "squared error, inputs not scaled"
        and (spec["reading"], spec.model) != ("inputs not scaled", "ae")
    } == {42, 1234, 73}
    assert Counter((spec["reading"], spec.model) for spec in sentences) == {
        ("linear code", "ae"): 3,
        ("linear code", "lc-d"): 3,
        ("linear code", "ae-d"): 3,
        ("squared error, inputs not scaled", "ae"): 5,
        ("squared error, inputs not scaled", "lc-d"): 5,
        ("squared error, inputs not scaled", "ae-d"): 5,
    }
    assert {spec.n_train for spec in averaged} == {20_000} and {
        spec.n_train for spec in sentences
    } == {10_000}


def test_every_rival_sees_the_documents_of_its_table_and_sentence_vectors_as_it_should():
    found = grid("clustering-rivals")
    rows = Counter(
        (spec.embedding, spec.model, spec.n_train, spec.get("standardize", False)) for spec in found
    )
    assert rows == {("spacy", model, 20_000, False): 5 for model in RIVALS} | {
        ("infersent-random", model, 10_000, model not in ("kmeans", "gmm")): 5 for model in RIVALS
    }
    assert set(RIVALS) == {
        "lda",
        "logreg",
        "logreg-predictions",
        "kmeans",
        "spherical-kmeans",
        "umap",
        "gmm",
    }
    assert {(spec["kmeans_starts"], spec.alpha) for spec in found} == {(10, 0)}


def test_labels_are_few_to_many_each_for_as_many_steps_as_all_and_for_one_pass():
    sizes = (100, 300, 1000, 3000, 10_000)
    found = grid("labels")
    labelled = [spec for spec in found if spec["reading"] != "no labels"]
    assert Counter(
        (spec.embedding, spec.model, spec.n_train, spec.get("steps_per_epoch")) for spec in labelled
    ) == {
        **{
            ("spacy", "ae-d", size, 79): 5 for size in sizes
        },  # 20,000 documents are 78 batches of 256 and a smaller one
        **{("spacy", "ae-d", size, None): 5 for size in sizes},
        **{("spacy", "lc-d", size, 79): 3 for size in sizes},
        **{
            (embedding, "lda", size, None): 5 for size in sizes for embedding in ("spacy", "minilm")
        },
    }
    main = {
        cell.model: described(cell)
        for cell in clustering_cells(PROFILES["full"])
        if cell.embedding == "spacy"
    }
    for spec in labelled:
        if spec.model != "lda":
            own = dict(spec.settings) | {"alpha": spec.alpha, "temperature": spec.temperature}
            assert {name for name in own if own[name] != main[spec.model].get(name)} - {
                "n_test"
            } <= {"reading", "steps_per_epoch"}
    assert {spec["reading"] for spec in labelled if spec.n_train == 1000} == {
        "1,000 labels",
        "1,000 labels, one pass an epoch",
    }


def test_without_labels_words_are_counted_in_all_training_documents_and_clusterbert_is_trained_on_some():
    found = [spec for spec in grid("labels") if spec["reading"] == "no labels"]
    assert Counter((spec.embedding, spec.model, spec.n_train) for spec in found) == {
        **{(embedding, "kmeans", 20_000): 5 for embedding in ("tfidf", "sif", "sif-corpus")},
        **{
            (embedding, "kmeans", 100): 5 for embedding in ("minilm", "minilm-cls")
        },  # which are as published, and see no training document
        ("minilm-cls", "clusterbert", 2000): 2,
    }
    like = ("clusterbert", "kmeans", "")
    (main,) = [
        spec
        for spec in specs("clusterbert", "full", "bbc_sentences", 42)
        if (spec.model, spec["clusterer"], spec.needs) == like
    ]
    (ours,) = [spec for spec in found if spec.model == "clusterbert" and spec.seed == 42]
    assert (
        dict(ours.settings) == dict(main.settings) | {"reading": "no labels"}
        and ours.n_train == main.n_train
    )
    said = text.CHOICES["no labels"]
    assert f"{PROFILES['full']['short_documents']:,} training documents" in said


def test_figure_2_is_drawn_for_one_seed_and_figure_1_is_about_words_whatever_the_corpus():
    found = grid("tsne")
    expected = {
        (embedding, model, n_train)
        for embedding, n_train in (("spacy", 20_000), ("infersent-random", 10_000))
        for model in MODELS
    }
    assert {(spec.embedding, spec.model, spec.n_train) for spec in found} == expected and len(
        found
    ) == len(expected)
    assert {
        (spec.seed, spec["perplexity"], spec["learning_rate"], spec["iterations"]) for spec in found
    } == {(42, 50, 200, 1000)}  # Sec. 3.6
    words = specs("lexicon", "full", "ag_news")
    assert Counter(
        (spec.dataset, spec.embedding, spec.model, spec["shown"], spec.get("epochs"))
        for spec in words
    ) == {
        ("opinion_lexicon", "spacy-word", model, 100, None if model == "original" else 50): 5
        for model in MODELS
    }
    for spec in found + words:
        assert (spec.alpha, spec.temperature) == (
            (100, "annealed") if spec.model in ("lc-d", "ae-d") else (0, "none")
        )
