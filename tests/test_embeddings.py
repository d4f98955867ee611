"""Texts to vectors: against word-by-word arithmetic on real texts and real word vectors, and what the cache must never do."""

import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from snnl_lib import data, embeddings
from snnl_lib.embeddings import EmbeddingError, coverage, embed, has_words

ROOT = Path(__file__).resolve().parent.parent


def cached_files(cache):
    """Everything under the cache's folder of embeddings, temporary files included."""
    return sorted((cache / "embeddings").glob("*"))


@pytest.fixture
def documents(newsgroups4):
    """Twenty real documents, one of them with words that no vocabulary knows."""
    texts = [" ".join(text.split()[:80]) for text in newsgroups4.test.texts[:20]]
    return [texts[0] + " Qwertzuiop xyzzyplugh", *texts[1:]]


# ---------------------------------------------------------------- mean word vectors


def test_a_document_is_the_mean_of_its_words_vectors_where_unknown_words_count_as_zero(own_cache, documents):
    vocabulary = embeddings.vocabulary()
    expected, unknown = [], 0
    for text in documents:
        words = data.preprocess(text).split()
        unknown += sum(not vocabulary.has_vector(word) for word in words)
        total = np.zeros(300)
        for word in words:
            total += vocabulary.get_vector(word)  # zeros for an unknown word
        expected.append(total / len(words))
    assert unknown >= 2, "the documents must hold unknown words, or this test shows less than it says"
    found = embed(documents, "spacy")
    assert found.dtype == np.float32 and found.shape == (20, 300)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_a_document_is_what_spacys_own_doc_vector_gives(own_cache, documents):
    from spacy.tokens import Doc

    vocabulary = embeddings.vocabulary()
    expected = [Doc(vocabulary, words=data.preprocess(text).split()).vector for text in documents]
    np.testing.assert_allclose(embed(documents, "spacy"), expected, rtol=0, atol=2e-6)


def test_a_repeated_word_counts_each_time(own_cache):
    vocabulary = embeddings.vocabulary()
    expected = (2 * vocabulary.get_vector("rain") + vocabulary.get_vector("dancing")) / 3
    np.testing.assert_allclose(embed(["Rain, dancing, rain!"], "spacy")[0], expected, rtol=0, atol=1e-6)


def test_documents_without_a_known_word_are_rows_of_zeros_that_has_words_finds(own_cache):
    rows = embed(["rain and sun", "", "a of the !!", "xyzzyplugh", "sun"], "spacy")
    assert has_words(rows).tolist() == [True, False, False, False, True]
    assert not rows[1:4].any()


def test_a_list_of_nothing_but_empty_documents_is_all_rows_of_zeros(own_cache):
    # What is true of one document among others is true of it alone.
    rows = embed(["", "a of the !!"], "spacy")
    assert rows.shape == (2, 300) and not rows.any()


def test_embedding_neither_warns_nor_prints(own_cache):
    # In a process of its own, warnings as errors: spaCy's W095 and the like would come when the vectors are loaded.
    code = "from snnl_lib import embeddings; print(embeddings.embed(['rain xyzzyplugh', 'of the'], 'spacy').shape)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(2, 300)\n", "")


def test_at_least_5000_short_documents_a_second_are_embedded_on_one_core(own_cache, newsgroups4):
    texts = [" ".join(text.split()[:40]) for text in newsgroups4.train.texts[:5000]]
    seconds = []
    for _ in range(3):
        started = time.process_time()  # the processor's time: what else runs on the machine does not count
        embed(texts, "spacy")
        seconds.append(time.process_time() - started)
        (file,) = cached_files(own_cache)
        file.unlink()
    assert len(texts) / min(seconds) >= 5000


# ---------------------------------------------------------------- tf-idf


def test_tf_idf_is_what_the_formula_gives_by_hand(own_cache):
    rows = embed(["cat dog", "cat cat bird", "cat"], "tfidf")
    # Words in alphabetical order: bird, cat, dog. Smoothed idf = ln((1 + documents) / (1 + documents with the word)) + 1.
    bird = dog = math.log(4 / 2) + 1
    cat = math.log(4 / 4) + 1
    expected = np.array([[0, cat, dog], [bird, 2 * cat, 0], [0, cat, 0]])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-6)


def test_tf_idf_is_fitted_on_the_training_texts_alone(own_cache):
    train, test = ["cat dog", "cat bird"], ["cat fish fish", "fish", "dog dog cat"]
    rows = embed(test, "tfidf", fit_texts=train)
    assert rows.shape == (3, 3), "fish is no training word: bird, cat, dog"
    assert has_words(rows).tolist() == [True, False, True]
    dog, cat = math.log(3 / 2) + 1, math.log(3 / 3) + 1  # weights of the training texts, not of the test texts
    np.testing.assert_allclose(rows[2], np.array([0, cat, 2 * dog]) / math.hypot(cat, 2 * dog), rtol=0, atol=1e-6)


def test_tf_idf_rows_have_unit_length_and_at_most_the_asked_for_words(own_cache, documents):
    for asked, expected in ((50, 50), (100_000, len({word for text in documents for word in data.preprocess(text).split()}))):
        rows = embed(documents, "tfidf", max_features=asked)
        assert rows.dtype == np.float32 and rows.shape == (20, expected)
        np.testing.assert_allclose(np.linalg.norm(rows[has_words(rows)], axis=1), 1, rtol=0, atol=1e-5)


def test_tf_idf_keeps_the_most_frequent_words(own_cache):
    assert embed(["cat cat cat dog", "dog dog bird"], "tfidf", max_features=2).shape == (2, 2)
    assert not embed(["bird"], "tfidf", fit_texts=["cat cat cat dog", "dog dog bird"], max_features=2).any(), "bird is the rarest of three"


# ---------------------------------------------------------------- arguments


def test_an_unknown_method_is_an_error_that_lists_the_known_ones():
    with pytest.raises(EmbeddingError, match="no embedding 'word2vec': choose one of spacy, tfidf"):
        embed(["rain"], "word2vec")


@pytest.mark.parametrize("method", embeddings.METHODS)
@pytest.mark.parametrize("texts", [[], "one text instead of a list"])
def test_no_texts_and_bare_text_are_errors_that_show_what_was_given(method, texts):
    with pytest.raises(ValueError, match=r"texts must be a non-empty list of strings, got (\[\]|'one text)"):
        embed(texts, method)


# ---------------------------------------------------------------- the cache


def test_the_second_call_reads_the_file(own_cache, documents, monkeypatch):
    first = {method: embed(documents, method) for method in embeddings.METHODS}
    assert len(cached_files(own_cache)) == 2

    def computed_again(*args):
        raise AssertionError("computed again, though the file is there")

    monkeypatch.setattr(embeddings, "_mean_word_vectors", computed_again)
    monkeypatch.setattr(embeddings, "_tfidf", computed_again)
    for method, rows in first.items():
        again = embed(documents, method)
        assert again.dtype == rows.dtype and np.array_equal(again, rows)


@pytest.mark.parametrize(
    "one_and_other",
    [
        ((["rain", "sun"], "spacy"), (["sun", "rain"], "spacy")),  # order
        ((["rain", "sun"], "spacy"), (["rain sun"], "spacy")),  # where documents end
        ((["rain", "sun"], "spacy"), (["rain", "moon"], "spacy")),
        ((["rain\0sun", "moon"], "spacy"), (["rain", "sun\0moon"], "spacy")),  # whatever stands between them in the key
        ((["rain", "sun"], "spacy"), (["rain", "sun"], "tfidf")),
        ((["rain", "sun"], "tfidf"), (["rain", "sun"], "tfidf", ["rain"])),
        ((["rain", "sun"], "tfidf", ["rain", "sun"]), (["rain", "sun"], "tfidf", ["sun", "rain", "sun"])),
    ],
)
def test_the_key_tells_apart_texts_order_method_and_what_was_fitted_on(own_cache, one_and_other):
    for texts, method, *fit_texts in one_and_other:
        embed(texts, method, fit_texts=fit_texts[0] if fit_texts else None)
    assert len(cached_files(own_cache)) == 2


def test_the_key_tells_apart_numbers_of_words_and_revisions_of_the_code(own_cache, monkeypatch):
    embed(["rain sun"], "tfidf", max_features=1)
    embed(["rain sun"], "tfidf", max_features=2)
    monkeypatch.setattr(embeddings, "REVISION", embeddings.REVISION + 1)
    embed(["rain sun"], "tfidf", max_features=2)
    assert len(cached_files(own_cache)) == 3


@pytest.fixture
def cached(own_cache):
    """A call, what it gave and the small file in the cache that holds it."""
    rows = embed(["rain cat", "dog"], "tfidf")
    (file,) = cached_files(own_cache)
    return lambda: embed(["rain cat", "dog"], "tfidf"), rows, file


def test_a_truncated_cache_file_is_an_error_that_names_it_wherever_it_ends(cached):
    call, _, file = cached
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(EmbeddingError, match="is damaged: remove it") as caught:
            call()
        assert str(file) in str(caught.value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("bit", [0x01, 0x40])
def test_a_flipped_bit_anywhere_in_a_cache_file_never_gives_other_vectors(cached, bit):
    # Some bytes of a zip file carry nothing (time stamps, version numbers): there the vectors may come back as they were.
    call, rows, file = cached
    whole, refused = file.read_bytes(), 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= bit
        file.write_bytes(damaged)
        try:
            found = call()
        except EmbeddingError as error:
            refused += 1
            assert str(file) in str(error)
        else:
            assert found.dtype == rows.dtype and np.array_equal(found, rows), f"byte {position}"
    assert refused > len(whole) / 2


def test_a_cache_file_of_something_else_is_an_error_that_names_it(cached):
    call, rows, file = cached
    for write in (lambda: file.write_bytes(b""), lambda: file.write_text("<html>"), lambda: np.savez(file, embedding=rows), lambda: np.savez(file, a=rows)):
        write()
        with pytest.raises(EmbeddingError, match="is damaged: remove it"):
            call()


def test_other_vectors_under_the_old_checksum_are_an_error(cached):
    call, rows, file = cached
    with np.load(file) as archive:
        checksum = archive["sha256"]
    np.savez(file, embedding=rows + 1, sha256=checksum)
    with pytest.raises(EmbeddingError, match="is damaged: remove it"):
        call()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_no_file(own_cache, monkeypatch, interruption):
    def half_a_save(file, **arrays):
        file.write(b"PK half of it")
        raise interruption

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", half_a_save)
        with pytest.raises((KeyboardInterrupt, OSError, EmbeddingError)):
            embed(["rain cat"], "tfidf")
    assert cached_files(own_cache) == []
    assert embed(["rain cat"], "tfidf").shape == (1, 2)


def test_a_cache_that_cannot_be_written_is_an_error_that_names_it(own_cache):
    (own_cache / "embeddings").write_text("a file where the folder should be")  # refuses a superuser too, as a read-only folder does not
    with pytest.raises(EmbeddingError, match="embeddings"):
        embed(["rain cat"], "tfidf")


# ---------------------------------------------------------------- coverage


def test_coverage_by_hand():
    # Known: rain (twice), cat. Unknown: xyzzyplugh. "the" is a stop word and no token.
    assert coverage(["the rain xyzzyplugh", "rain cat"]) == pytest.approx({"tokens": 2, "tokens_known": 3 / 4, "words_known": 2 / 3, "words_shared": 0})


def test_coverage_counts_words_that_share_their_vector():
    # The package keeps 20,000 vectors for half a million words: close words share one. Known: three, two of them by one vector.
    rows = embeddings._vector_rows(["accessible", "inaccessible", "rain"])
    assert rows[0] == rows[1] != rows[2]
    found = coverage(["accessible inaccessible", "rain xyzzyplugh rain"])
    assert found == pytest.approx({"tokens": 2.5, "tokens_known": 4 / 5, "words_known": 3 / 4, "words_shared": 2 / 3})


def test_coverage_of_real_documents_is_made_of_fractions(documents):
    found = coverage(documents)
    assert all(0 <= found[name] <= 1 for name in ("tokens_known", "words_known", "words_shared"))
    assert found["tokens"] == pytest.approx(sum(len(data.preprocess(text).split()) for text in documents) / 20)
    assert 0.5 < found["words_known"] < 1 and found["tokens_known"] < 1
