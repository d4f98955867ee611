"""Packs: a folder holds all that a machine without spaCy, network and git needs."""

import functools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import environment_without, forget_datasets

from snnl_book import data, embeddings, experiments, results
from snnl_book.__main__ import main
from snnl_book.embeddings import backbones, nli, words
from snnl_book.experiments import draws, packing

ROOT = Path(__file__).resolve().parents[2]
TINY = ("--profile", "tiny", "--dataset", "newsgroups4", "--seeds", "42", "--device", "cpu")
SHORT = ("--dataset", "newsgroups20_openings")


@pytest.fixture(scope="session")
def packed(packages, tmp_path_factory):
    """A pack of the corpus that every machine has."""
    folder = tmp_path_factory.mktemp("packs") / "deep" / "text"
    assert main(["pack", "clustering", str(folder), "--dataset", "newsgroups4"]) == 0
    return folder


@pytest.fixture(scope="session")
def packed_texts(packages, tmp_path_factory):
    """A pack of short texts and MiniLM."""
    folder = tmp_path_factory.mktemp("packs") / "short"
    assert main(["pack", "clusterbert", str(folder), *SHORT]) == 0
    return folder


@pytest.fixture
def open_pack(tmp_path, monkeypatch):
    """Name a pack by SNNL_DATA, on a machine that has nothing beside it and cannot fetch."""

    def use(folder):
        def fails(*args, **kwargs):
            raise AssertionError("the pack has all that is needed")

        forget_datasets(monkeypatch)
        monkeypatch.setenv("SNNL_CACHE", str(tmp_path / "cache beside the pack"))
        monkeypatch.setenv("SNNL_DATA", str(folder))
        monkeypatch.setattr(words, "table", functools.cache(words.table.__wrapped__))
        monkeypatch.setattr(words, "vocabulary", fails)
        monkeypatch.setattr(data, "fetch", fails)

    return use


# ---------------------------------------------------------------- what went in comes out


def test_a_pack_gives_the_same_documents_vectors_and_fingerprint(
    packed, newsgroups4, own_cache, open_pack
):
    expected = embeddings.embed(newsgroups4.test.texts[:300], "spacy")
    fingerprint = experiments.fingerprint("newsgroups4", "spacy")
    open_pack(packed)
    found = data.load_dataset("newsgroups4")
    for split in ("train", "test"):
        own, original = getattr(found, split), getattr(newsgroups4, split)
        assert own.texts == original.texts and np.array_equal(own.labels, original.labels)
    vectors = embeddings.embed(found.test.texts[:300], "spacy")
    np.testing.assert_array_equal(vectors, expected)
    assert experiments.fingerprint("newsgroups4", "spacy") == fingerprint


def test_what_cannot_be_packed_is_named_and_the_rest_is_packed(
    packages, tmp_path, monkeypatch, capsys
):
    def missing():
        raise data.DataError("the inference pairs are not on this machine")

    monkeypatch.setattr(nli, "pairs_folder", missing)
    assert main(["pack", "classification", str(tmp_path / "out"), "--dataset", "newsgroups4"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    reason = "the inference pairs are not on this machine"
    assert first == f"the pack leaves out the runs on infersent-nli: {reason}"
    assert "newsgroups4, word vectors" in second


def test_inference_pairs_are_packed_as_they_are_published(packages, tmp_path, open_pack, capsys):
    try:
        expected = nli.load_pairs()
    except data.DataError:
        pytest.skip("the inference pairs are not on this machine")
    assert main(["pack", "classification", str(tmp_path / "out"), "--dataset", "newsgroups4"]) == 0
    open_pack(tmp_path / "out")
    for split, frame in nli.load_pairs().items():
        assert frame.equals(expected[split])


def test_without_git_a_record_has_the_commit_of_the_checkout_that_wrote_the_pack(
    packed, open_pack, monkeypatch
):
    written = results.commit()
    open_pack(packed)
    assert packing.commit() == written
    monkeypatch.setattr(results, "commit", lambda: "unknown")
    assert packing.commit() == written
    monkeypatch.delenv("SNNL_DATA")
    assert packing.commit() == "unknown"


# ---------------------------------------------------------------- MiniLM


def test_packed_minilm_is_rounded_and_its_vectors_are_cached_apart_and_named_in_records(
    packed_texts, open_pack, own_cache
):
    texts = ["how to sort a list", "rain is expected", "sorting lists"]
    before, key = embeddings.embed(texts, "minilm"), backbones.cache_key("minilm")
    fingerprint = backbones.fingerprint("minilm")
    assert draws.weights_remark("minilm") == ""
    open_pack(packed_texts)
    after = embeddings.embed(texts, "minilm")
    assert not np.array_equal(after, before)
    cosines = (after * before).sum(axis=1) / np.linalg.norm(after, axis=1)
    np.testing.assert_allclose(cosines / np.linalg.norm(before, axis=1), 1, atol=1e-5)
    assert backbones.cache_key("minilm") == f"{key}-float16"
    assert backbones.fingerprint("minilm") == fingerprint
    assert draws.weights_remark("minilm") == ", with weights rounded to float16"
    assert draws.weights_remark("tfidf") == ""


# ---------------------------------------------------------------- a bare machine

BARE = """
import os
from importlib.machinery import PathFinder

NOT_HERE = {
    "spacy", "matplotlib", "seaborn", "IPython", "ipykernel", "jupyter_core", "jupyter_client",
    "jupyterlab", "nbformat", "nbclient", "myst_nb", "papermill", "pooch", "platformdirs",
    "requests", "git", "umap", "pynndescent", "numba", "sentence_transformers",
}
find_here = PathFinder.find_spec


def find_spec(name, path=None, target=None):
    return None if name.split(".")[0] in NOT_HERE else find_here(name, path, target)


PathFinder.find_spec = staticmethod(find_spec)
"""


@pytest.fixture
def bare(tmp_path, no_network):
    """Run the command line in a process of its own, without spaCy, git, a network and a cache."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BARE)

    def run(*arguments, **variables):
        places = dict.fromkeys(("PYTHONPATH", "PATH", "HOME"), str(folder))
        environment = environment_without("SNNL_") | places | variables
        command = [sys.executable, "-m", "snnl_book", *arguments]
        options = {"cwd": ROOT, "env": environment, "stdin": subprocess.DEVNULL, "timeout": 300}
        done = subprocess.run(command, capture_output=True, text=True, **options)
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_bare_machine_gives_the_same_scores_from_a_pack(
    packed, bare, packages, results_folder, tmp_path, monkeypatch
):
    only = ("run", "clustering", *TINY, "--models", "pca")
    assert main(only) == 0
    expected = results.load_results(profile="tiny")
    status, said, error = bare(*only, SNNL_DATA=str(packed), SNNL_RESULTS=str(tmp_path / "bare"))
    assert (status, error) == (0, ""), error
    assert "[1/1]" in said
    monkeypatch.setenv("SNNL_RESULTS", str(tmp_path / "bare"))
    found = results.load_results(profile="tiny")
    names = ["key", "metric", "value", "status", "commit", "fingerprint", "settings"]
    assert found[names].equals(expected[names]) and expected["commit"].ne("unknown").all()


def test_a_bare_machine_says_what_a_pack_lacks(packed, bare, results_folder):
    only = ("run", "clustering", "--profile", "tiny", "--dataset", "newsgroups20")
    status, _, error = bare(*only, SNNL_DATA=str(packed), SNNL_RESULTS=str(results_folder))
    assert status == 2 and "error: the data set 'newsgroups20' is unavailable" in error


@pytest.mark.slow
def test_a_bare_machine_fine_tunes_packed_minilm_to_nearly_the_same_scores(
    packed_texts, bare, own_cache, results_folder
):
    wanted = [
        spec
        for spec in experiments.specs("clusterbert", "tiny", SHORT[1], 42)
        if spec.model == "clusterbert" and not spec.needs and "umap" not in spec["clusterer"]
    ]
    only = ("--profile", "tiny", *SHORT, "--seeds", "42", "--device", "cpu")
    places = {"SNNL_DATA": str(packed_texts), "SNNL_RESULTS": str(results_folder)}
    status, said, error = bare("run", "clusterbert", *only, "--models", "clusterbert", **places)
    assert (status, error) == (0, "") and "umap-learn is not installed" in said
    found = results.load_results(profile="tiny").set_index(["key", "metric"])
    for record in map(experiments.run, wanted, ["cpu"] * len(wanted)):
        own = found.loc[record.key]
        assert own["device"].eq(f"{record.device}, with weights rounded to float16").all()
        scores = {name: score for name, score in record.metrics.items() if name != "shared_seconds"}
        np.testing.assert_allclose(
            own["value"].loc[list(scores)], list(scores.values()), rtol=0.01, atol=0.02
        )
