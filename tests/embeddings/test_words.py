"""Smooth inverse frequency and a corpus's own vectors, against arithmetic by hand."""

from collections import Counter

import numpy as np
import pytest

from snnl_book import data
from snnl_book.embeddings import words
from snnl_book.embeddings.words import corpus_vectors, sentence_vectors


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
# Eight words, and a component along the third axis.
FIT = [["all"], ["rain"], ["wind", "wind"], ["of", "of", "of", "of"]]
RAIN, WIND = 0.001 / (0.001 + 1 / 8), 0.001 / (0.001 + 2 / 8)


def test_a_document_is_the_weighted_mean_of_its_known_words_without_the_common_component_by_hand():
    documents, expected = zip(
        (["rain"], [2 * RAIN, 0, 0]),
        (["wind"], [0, 4 * WIND, 0]),
        (["rain", "wind"], [RAIN, 2 * WIND, 0]),
        (["rain", "rain", "wind"], [4 / 3 * RAIN, 4 / 3 * WIND, 0]),
        (["all", "rain"], [RAIN, 0, 0]),  # "all" counts as a word, and its part goes
        # Words without a vector do not count, though frequencies are shares of all words.
        (["rain", "of", "zephyr"], [2 * RAIN, 0, 0]),
        (["all"], [0, 0, 0]),
        # A word that was not counted has weight one.
        (["snow"], [1, 1, 0]),
        (["snow", "rain"], [0.5 + RAIN, 0.5, 0]),
        strict=True,
    )
    found = sentence_vectors(documents, AXES, fit_documents=FIT)
    assert found.dtype == np.float32 and found.shape == (9, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_real_documents_are_what_word_by_word_arithmetic_and_a_whole_decomposition_give(documents):
    vectors = corpus_vectors(documents)
    counts = Counter(word for document in documents for word in document)
    means = np.zeros((200, words.DIMENSIONS))
    for mean, document in zip(means, documents, strict=True):
        known = [word for word in document if word in vectors]
        for word in known:
            mean += 1e-3 / (1e-3 + counts[word] / sum(counts.values())) * vectors[word] / len(known)
    component = np.linalg.svd(means)[2][0]
    assert np.abs(means @ component).max() > 0.1
    expected = means - np.outer(means @ component, component)
    np.testing.assert_allclose(sentence_vectors(documents, vectors), expected, rtol=0, atol=1e-6)


def test_nothing_to_find_the_common_component_in_is_an_error():
    for fit_documents in ([], [["of", "zephyr"]]):
        with pytest.raises(ValueError, match="no word of fit_documents has a vector"):
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
    assert list(vectors) == [word for word, is_known in zip(words, known, strict=True) if is_known]
    assert known.sum() > 300
    found = np.stack(list(vectors.values()))
    np.testing.assert_allclose(
        found @ found.T, (expected @ expected.T)[known][:, known], rtol=0, atol=1e-8
    )  # signs and order are free


def test_a_word_that_stands_near_no_other_has_no_vector():
    found = corpus_vectors([["wet", "rain"], ["it"], [], ["cold", "rain"]])
    assert list(found) == ["wet", "rain", "cold"]


def test_a_corpus_without_words_near_each_other_is_an_error():
    for documents in ([], [["rain"], ["wind"]], [["rain", "rain"]]):
        with pytest.raises(ValueError, match="no two words are near each other"):
            corpus_vectors(documents)
