"""The cells of the image paper, and which runs a data set means where images, points and texts
share an experiment.
"""

from collections import Counter
from dataclasses import replace

import pytest

from snnl_book import data
from snnl_book.data import DataError
from snnl_book.experiments import images
from snnl_book.experiments.cells import ALL, MORE_SEEDS, PROFILES
from snnl_book.experiments.plan import specs

SETS = ("mnist", "fashion_mnist", "emnist_balanced")


DEEP = ("ae-10", "dec", "idec", "vade", "n2d")


ON_IMAGES = ("images", "labels", "tsne")


@pytest.mark.parametrize("dataset", SETS)
def test_the_table_has_the_rows_of_the_article_its_readings_and_the_papers_own_numbers_of_images(
    dataset,
):
    found = [spec for spec in specs("images", "full", "auto") if spec.dataset == dataset]
    rows = Counter(
        (
            spec.model,
            spec.alpha,
            spec.temperature,
            spec.get("reading", ""),
            spec.n_train,
            bool(spec.needs),
        )
        for spec in found
    )
    many = 5 if dataset == "emnist_balanced" else 15
    main = {
        ("original", 0, "none", ""): 9,
        ("pca", 0, "none", ""): 9,
        ("ae", 0, "none", ""): 5,
        ("ae-d", 1, "annealed", "alpha 1"): many,
        ("ae-d", 100, "annealed", "alpha 100"): many,
        ("supcon", 1, "0.1", ""): 5,
        ("ae-d", 1, "0.15", "fixed temperature 0.15"): 5,
        ("ae-d", 1, "0.3", "fixed temperature 0.3"): 5,
        ("ae-d", 1, "0.5", "fixed temperature 0.5"): 5,
        ("ae-d", 1, "1.0", "fixed temperature 1"): 5,
        ("idec", 0, "none", "mean over pixels"): 3,
        ("ae-d", 1, "annealed", "100 epochs"): 3,
    } | {(model, 0, "none", ""): 3 for model in DEEP}
    if dataset != "emnist_balanced":
        main["ae-d", 1, "1.0", "weight divided by the falling T"] = 5
        main["ae-d", 1, "annealed", "weight times the falling T"] = 5
    expected = {(*row, 10_000, False): seeds for row, seeds in main.items()}
    if dataset == "mnist":
        expected["vade", 0, "none", "as in its authors' code", 10_000, True] = 3
    assert rows == expected | {(model, 0, "none", "", ALL, True): 3 for model in DEEP}
    assert {spec.seed for spec in found if spec.model == "pca"} == set(MORE_SEEDS[:9]) and {
        spec.embedding for spec in found
    } == {"pixels"}
    assert {spec.seed for spec in found if spec.model in DEEP} == {42, 1234, 73}, (
        "the first three, or they would not be paired"
    )
    assert {spec.seed for spec in found if spec.model == "ae"} == {42, 1234, 73, 1024, 31415926}


def test_small_profiles_leave_nothing_to_a_gpu_and_the_full_one_scores_all_test_images():
    for profile in ("tiny", "quick"):
        found = specs("images", profile, "mnist")
        assert {spec.needs for spec in found} == {""} and {spec.n_train for spec in found} == {
            PROFILES[profile]["image_train"]
        }
        assert {spec["n_test"] for spec in found} == {PROFILES[profile]["image_test"]}
    for experiment in ON_IMAGES:
        assert {spec["n_test"] for spec in specs(experiment, "full", "mnist")} == {None}


SETTINGS = {
    "original": {},
    "pca": {"components": 128},
    "ae": {"scaling": "none", "layers": "none", "epochs": 30},
    "ae-d": {"scaling": "none", "layers": "sum", "epochs": 30},
    "supcon": {"layers": "projection", "epochs": 30},
    "ae-10": {"pretrain_epochs": 200},
    "dec": {"pretrain_epochs": 200, "max_steps": 20_000},
    "idec": {"pretrain_epochs": 200, "max_steps": 20_000},
    "vade": {"pretrain_epochs": 200, "epochs": 200},
    "n2d": {"pretrain_epochs": 200},
}


@pytest.mark.parametrize("model", SETTINGS)
def test_settings_of_a_row_are_those_of_the_choices(model):
    readings = {
        **{f"fixed temperature {t}": {} for t in ("0.15", "0.3", "0.5", "1")},
        "mean over pixels": {"gamma": pytest.approx(78.4)},
        "100 epochs": {"epochs": 100},
        "alpha 1": {},
        "alpha 100": {},
        "weight divided by the falling T": {"weight": "over T"},
        "weight times the falling T": {"weight": "times T"},
        "as in its authors' code": {"epochs": 3000, "lowest_rate": 0.0002},
        None: {},
    }
    for spec in specs("images", "full", "mnist", 42):
        if spec.model == model:
            reading = {"reading": spec["reading"]} if spec.get("reading") else {}
            assert (
                dict(spec.settings)
                == {"n_test": None, "kmeans_starts": 10}
                | SETTINGS[model]
                | reading
                | readings[spec.get("reading")]
            )


def test_the_choices_name_the_numbers_of_the_grid():
    said, full = " ".join(images.CHOICES.values()), PROFILES["full"]
    for number in (
        f"{images.POINTS} points",
        f"{full['image_epochs']} epochs over {full['image_train']:,} labelled images",
        f"for {full['pretrain_epochs']} epochs",
        f"{full['deep_steps']:,} updates",
        f"784-500-500-2000-{images.CODE_SIZE}",
        f"{images.PROJECTION} units",
        f"T = {images.CONTRASTIVE_TEMPERATURE}",
    ):
        assert number in said


def test_labels_on_images_are_few_to_many_each_for_as_many_steps_as_all():
    found = specs("labels", "full", "fashion_mnist")
    few = (100, 300, 1000, 3000)
    assert Counter(
        (spec.model, spec.alpha, spec.n_train, spec.get("steps_per_epoch")) for spec in found
    ) == {
        **{
            (model, alpha, size, 40): 15
            for model, alpha in (("ae-d", 1), ("ffn", 0))
            for size in few
        },  # 10,000 images are 39 batches of 256 and a smaller one
        **{
            (model, 0, size, None): 15
            for model in ("lda", "logreg", "logreg-predictions", "svm", "knn")
            for size in (*few, 10_000)
        },
        ("ffn", 0, 10_000, None): 15,
    }
    assert {spec["reading"] for spec in found if spec.n_train == 3000} == {"3,000 labels"}
    assert {spec["epochs"] for spec in found if spec.model in ("ae-d", "ffn")} == {30}
    assert {spec["hidden_sizes"] for spec in found if spec.model == "ffn"} == {(500, 500)}


def test_maps_are_flat_and_in_space_of_2000_test_images():
    found = specs("tsne", "full", "auto")
    for dataset in SETS:
        rows = Counter(
            (spec.model, spec.alpha, spec["dimensions"], spec["points"], spec.get("shown_classes"))
            for spec in found
            if spec.dataset == dataset
        )
        shown = 10 if dataset == "emnist_balanced" else None
        assert rows == {
            (model, alpha, dimensions, 2000, shown): 1
            for model, alpha in (("original", 0), ("ae-d", 1))
            for dimensions in (2, 3)
        }
    own = [spec for spec in found if spec.dataset in SETS]
    assert {
        (spec.seed, spec["perplexity"], spec["learning_rate"], spec["iterations"]) for spec in own
    } == {(42, 50, 10, 5000)}


def test_points_move_at_four_temperatures_and_in_four_readings_at_two():
    found = specs("annealing", "full", "auto")
    main = {"optimizer": "sgd", "learning_rate": 10.0, "distance": "sqeuclidean", "classes": 4}
    changed = {
        "Adam, step 0.1": {"optimizer": "adam", "learning_rate": 0.1},
        "cosine distance": {"distance": "cosine"},
        "step 1": {"learning_rate": 1.0},
        "10 classes": {"classes": 10},
    }
    alone = {
        ("step divided by the falling T", "1.0"): "over T",
        ("step times the falling T", "annealed"): "times T",
        ("step divided by the falling T, Adam, step 0.1", "1.0"): "over T",
        ("step times the falling T, Adam, step 0.1", "annealed"): "times T",
    }
    assert Counter((spec.get("reading"), spec.temperature) for spec in found) == {
        (None, own): 10 for own in ("annealed", "1.0", "0.5", "0.1")
    } | {(reading, own): 10 for reading in changed for own in ("annealed", "1.0")} | dict.fromkeys(
        alone, 10
    )
    for spec in found:
        assert spec.get("step") == alone.get((spec.get("reading"), spec.temperature))
    for spec in found:
        reading = spec.get("reading") or ""
        own = changed["Adam, step 0.1"] if "Adam" in reading else changed.get(reading, {})
        assert {name: spec[name] for name in main} == main | own
        assert (spec.dataset, spec.embedding, spec.model, spec.n_train, spec["epochs"]) == (
            "gaussian",
            "points",
            "points",
            300,
            50,
        )
    assert {spec.seed for spec in found} == set(MORE_SEEDS) and len(set(MORE_SEEDS)) == 10


def test_every_run_on_images_and_points_has_a_key_of_its_own():
    found = [
        spec
        for name in (*ON_IMAGES, "annealing")
        for profile in PROFILES
        for spec in specs(name, profile, "auto")
    ]
    assert (
        len({(spec.experiment, spec.profile, spec.key("a")) for spec in found})
        == len({spec.identity for spec in found})
        == len(found)
    )


# ---------------------------------------------------------------- which runs a data set means


@pytest.mark.parametrize("experiment", [*ON_IMAGES, "classification", "lexicon"])
@pytest.mark.parametrize("dataset", SETS)
def test_a_set_of_images_means_the_runs_on_it_alone(experiment, dataset):
    found = specs(experiment, "full", dataset)
    assert {spec.dataset for spec in found} <= {dataset} and {spec.embedding for spec in found} <= {
        "pixels"
    }
    some = experiment in ("images", "tsne") or (
        experiment == "labels" and dataset != "emnist_balanced"
    )
    assert bool(found) == some
    whole = [spec for spec in specs(experiment, "full", "auto") if spec.dataset == dataset]
    assert found == whole, "the same runs as among all"


@pytest.mark.parametrize("experiment", ON_IMAGES)
def test_the_embedded_digits_are_meant_by_their_name_alone_and_have_the_runs_of_mnist(experiment):
    for profile in PROFILES:
        assert all(spec.dataset != "digits" for spec in specs(experiment, profile, "auto"))
        found, others = (specs(experiment, profile, name) for name in ("digits", "mnist"))
        assert {spec.dataset for spec in found} == {"digits"}
        as_theirs = [
            replace(spec, dataset="mnist", settings=tuple(settings_of_mnist(spec)))
            for spec in found
        ]
        # There are no more digits than a run of the full profile asks for anyway.
        assert as_theirs == [spec for spec in others if spec.n_train != ALL]


def settings_of_mnist(spec):
    """What weighs a mean over 64 pixels weighs one over 784."""
    for name, value in spec.settings:
        if name == "gamma":
            assert value == pytest.approx(6.4)
        yield name, 0.1 * 784 if name == "gamma" else value


@pytest.mark.parametrize("experiment", [*ON_IMAGES, "classification", "lexicon"])
@pytest.mark.parametrize("corpus", ["newsgroups4", "newsgroups20", "ag_news"])
def test_a_corpus_means_the_runs_on_texts_alone(experiment, corpus):
    found = specs(experiment, "full", corpus)
    assert {spec.dataset for spec in found} == {
        "images": set(),
        "lexicon": {"opinion_lexicon"},
    }.get(experiment, {corpus})
    assert not any(spec.embedding == "pixels" for spec in found)


@pytest.mark.parametrize("experiment", ["labels", "tsne"])
def test_auto_means_the_texts_and_every_set_of_images_and_short_texts(experiment):
    found = specs(experiment, "full", "auto")
    own = {data.resolve("auto"), *SETS} | ({"bbc_sentences"} if experiment == "tsne" else set())
    assert {spec.dataset for spec in found} == own - (
        {"emnist_balanced"} if experiment == "labels" else set()
    )
    parts = [spec for dataset in own for spec in specs(experiment, "full", dataset)]
    assert len(found) == len(parts) and set(found) == set(parts)


@pytest.mark.parametrize("dataset", ["auto", "newsgroups4", "mnist"])
def test_points_are_meant_whatever_the_data_set(dataset):
    assert specs("annealing", "full", dataset) == specs("annealing", "full", "auto") != []


@pytest.mark.parametrize("dataset", ["cifar10", "gaussian"])
def test_a_set_of_images_that_nobody_knows_is_an_error_that_lists_the_known_ones(dataset):
    with pytest.raises(
        DataError,
        match=(
            f"there is no data set '{dataset}': choose one of .*mnist, fashion_mnist,"
            " emnist_balanced"
        ),
    ):
        specs("images", "full", dataset)
