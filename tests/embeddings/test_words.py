"""Smooth inverse frequency: against arithmetic by hand and word by word, and what vectors of a
corpus's own buy on real titles.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from snnl_book import data
from snnl_book.embeddings import embed, has_words, words
from snnl_book.embeddings.words import corpus_vectors, sentence_vectors

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def documents(newsgroups4):
    """The words of two hundred real documents, the first forty of each."""
    return [data.words(text)[:40] for text in newsgroups4.test.texts[:200]]


# ---------------------------------------------------------------- sentence vectors


AXES = {
    "rain": np.array([2.0, 0, 0]),
    "wind": np.array([0, 4.0, 0]),
    "all": np.array([0, 0, 1000.0]),
    "snow": np.array([1.0, 1, 1]),
}
FIT = [
    ["all"],
    ["rain"],
    ["wind", "wind"],
    ["of", "of", "of", "of"],
]  # eight words, and a component along the third axis
RAIN, WIND = 0.001 / (0.001 + 1 / 8), 0.001 / (0.001 + 2 / 8)


def test_a_document_is_the_weighted_mean_of_its_known_words_without_the_common_component_by_hand():
    documents = [
        ["rain"],
        ["wind"],
        ["rain", "wind"],
        ["rain", "rain", "wind"],
        ["all", "rain"],
        ["rain", "of", "zephyr"],
        ["all"],
    ]
    expected = [
        [2 * RAIN, 0, 0],
        [0, 4 * WIND, 0],
        [RAIN, 2 * WIND, 0],
        [4 / 3 * RAIN, 4 / 3 * WIND, 0],
        [RAIN, 0, 0],  # "all" counts as a word, and its part goes
        # Words without a vector do not count, though frequencies are shares of all words.
        [2 * RAIN, 0, 0],
        [0, 0, 0],
    ]
    found = sentence_vectors(documents, AXES, fit_documents=FIT)
    assert found.dtype == np.float32 and found.shape == (7, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_a_word_that_was_not_counted_has_weight_one():
    np.testing.assert_allclose(
        sentence_vectors([["snow"], ["snow", "rain"]], AXES, fit_documents=FIT),
        [[1, 1, 0], [0.5 + RAIN, 0.5, 0]],
        rtol=1e-6,
        atol=1e-9,
    )


def test_real_documents_are_what_word_by_word_arithmetic_and_a_whole_decomposition_give(documents):
    vectors = corpus_vectors(documents)
    counts = Counter(word for document in documents for word in document)
    means = np.zeros((200, words.DIMENSIONS))
    for mean, document in zip(means, documents, strict=True):
        known = [word for word in document if word in vectors]
        for word in known:
            mean += 1e-3 / (1e-3 + counts[word] / sum(counts.values())) * vectors[word] / len(known)
    component = np.linalg.svd(means)[2][0]
    found = sentence_vectors(documents, vectors)
    np.testing.assert_allclose(
        found, means - np.outer(means @ component, component), rtol=0, atol=1e-6
    )
    assert np.abs(found @ component).max() < 1e-6 < 0.1 < np.abs(means @ component).max(), (
        "nothing is left along the component, where there was much"
    )


def test_documents_without_a_known_word_are_rows_of_zeros_that_has_words_finds():
    found = sentence_vectors(
        [["rain"], [], ["of"], ["zephyr", "of"], ["wind", "zephyr"]], AXES, fit_documents=FIT
    )
    assert has_words(found).tolist() == [True, False, False, False, True]
    assert sentence_vectors([[], ["of"]], AXES, fit_documents=FIT).tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize("fit_documents", [[], [[]], [["of", "zephyr"]]])
def test_nothing_to_find_the_common_component_in_is_an_error(fit_documents):
    with pytest.raises(
        ValueError,
        match=r"no word of fit_documents has a vector: there is no common component to remove",
    ):
        sentence_vectors([["rain"]], AXES, fit_documents=fit_documents)


# ---------------------------------------------------------------- word vectors of the corpus


def test_corpus_vectors_are_what_counting_pair_by_pair_and_a_dense_decomposition_give(documents):
    words = list(dict.fromkeys(word for document in documents for word in document))[:400]
    documents = [[word for word in document if word in words] for document in documents]
    near = np.zeros((400, 400))
    for document in documents:
        for i, word in enumerate(document):
            for other in document[max(i - 5, 0) : i] + document[i + 1 : i + 6]:
                near[words.index(word), words.index(other)] += 1
    often = near.sum(axis=1)
    share = often**0.75 / (often**0.75).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(near / often[:, None] / share)
    information[~(information > 0)] = 0
    left, sizes, _ = np.linalg.svd(information)
    assert sizes[47] > 1.001 * sizes[48], "or the first 48 would not be told from the others"
    expected = left[:, :48] * np.sqrt(sizes[:48])
    vectors = corpus_vectors(documents)
    known = information.any(axis=1)
    assert (
        list(vectors) == [word for word, is_known in zip(words, known, strict=True) if is_known]
        and known.sum() > 300
    )
    found = np.stack(list(vectors.values()))
    np.testing.assert_allclose(
        found @ found.T, (expected @ expected.T)[known][:, known], rtol=0, atol=1e-8
    )  # signs and order are free


def test_a_word_that_stands_near_no_other_has_no_vector():
    assert list(corpus_vectors([["wet", "rain"], ["it"], [], ["cold", "rain"]])) == [
        "wet",
        "rain",
        "cold",
    ]


@pytest.mark.parametrize("documents", [[], [[]], [["rain"], ["wind"]], [["rain", "rain"]]])
def test_a_corpus_without_words_near_each_other_is_an_error(documents):
    with pytest.raises(
        ValueError, match="no two words are near each other more often than by chance"
    ):
        corpus_vectors(documents)


# ---------------------------------------------------------------- both


def test_another_process_with_other_hashes_and_more_threads_gives_the_same_bits(
    own_cache, packages, tmp_path, newsgroups4
):
    texts = [text[:300] for text in newsgroups4.test.texts[:500]]
    expected = [
        hashlib.sha256(embed(texts, method).tobytes()).hexdigest()
        for method in ("sif", "sif-corpus")
    ]
    code = (
        "import hashlib, json, sys; from snnl_book.embeddings import embed; texts ="
        " json.load(sys.stdin); "
        + "print(*(hashlib.sha256(embed(texts, method).tobytes()).hexdigest() for method in ('sif',"
        " 'sif-corpus')))"
    )
    cache = tmp_path / "another-cache"
    cache.mkdir()
    (cache / "packages").symlink_to(packages.resolve(), target_is_directory=True)
    environment = os.environ | {
        "SNNL_CACHE": str(cache),
        "PYTHONHASHSEED": "123",
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
    }
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, expected, "")


def test_on_programmers_titles_vectors_of_the_corpus_find_far_more_of_the_classes_than_general_ones(
    own_cache,
):
    folder = data.user_folder("stackoverflow")
    if folder is None or not (folder / "texts.parquet").exists():
        pytest.skip("the StackOverflow titles are not on this machine: set SNNL_DATA")
    frame = pd.read_parquet(folder / "texts.parquet")
    part = frame.sample(3000, random_state=0)
    nmi = {}
    for method in ("sif", "sif-corpus"):
        codes = embed(part["text"].tolist(), method, fit_texts=frame["text"].tolist())
        nmi[method] = normalized_mutual_info_score(
            part["label"], KMeans(20, n_init=2, random_state=0).fit_predict(codes)
        )
    assert codes.shape == (3000, words.DIMENSIONS) and has_words(codes).mean() > 0.999
    assert nmi["sif"] < 0.15 < 0.35 < nmi["sif-corpus"]
