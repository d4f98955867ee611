"""Which runs a data set means where images, points and texts share an experiment."""

from dataclasses import replace

import pytest

from snnl_book import data
from snnl_book.experiments import second_corpus
from snnl_book.experiments.cells import ALL, PROFILES
from snnl_book.experiments.plan import specs

SETS = ("mnist", "fashion_mnist", "emnist_balanced")


ON_IMAGES = ("images", "labels", "tsne")


@pytest.mark.parametrize("profile", PROFILES)
def test_every_run_on_images_and_points_has_a_key_of_its_own(profile):
    names = (*ON_IMAGES, "annealing")
    found = [spec for name in names for spec in specs(name, profile, "auto")]
    keys = {(spec.experiment, spec.key("a")) for spec in found}
    assert len(keys) == len({spec.identity for spec in found}) == len(found)


# ---------------------------------------------------------------- which runs a data set means


@pytest.mark.parametrize("experiment", [*ON_IMAGES, "classification", "lexicon"])
def test_a_set_of_images_means_the_runs_on_it_alone(experiment):
    for dataset in SETS:
        found = specs(experiment, "full", dataset)
        assert {spec.dataset for spec in found} <= {dataset}
        assert {spec.embedding for spec in found} <= {"pixels"}
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
def test_a_corpus_means_the_runs_on_texts_alone(experiment):
    corpus = "newsgroups4"
    found = specs(experiment, "full", corpus)
    assert {spec.dataset for spec in found} == {
        "images": set(),
        "lexicon": {"opinion_lexicon"},
    }.get(experiment, {corpus})
    assert not any(spec.embedding == "pixels" for spec in found)


@pytest.mark.parametrize("experiment", ["labels", "tsne"])
def test_auto_means_the_texts_and_every_set_of_images_and_short_texts(experiment):
    found = specs(experiment, "full", "auto")
    found = [spec for spec in found if spec.dataset != second_corpus.CORPUS]
    own = {data.resolve("auto"), *SETS}
    own = own | {"bbc_sentences"} if experiment == "tsne" else own - {"emnist_balanced"}
    assert {spec.dataset for spec in found} == own
    parts = [spec for dataset in own for spec in specs(experiment, "full", dataset)]
    assert len(found) == len(parts) and set(found) == set(parts)


@pytest.mark.parametrize("dataset", ["auto", "newsgroups4", "mnist"])
def test_points_are_meant_whatever_the_data_set(dataset):
    assert specs("annealing", "full", dataset) == specs("annealing", "full", "auto") != []
