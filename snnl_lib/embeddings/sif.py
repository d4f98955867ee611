"""Smooth inverse frequency (Arora, Liang and Ma, 2017): documents as weighted means of word vectors
less what all have in common.

Words and vectors are passed in; ``corpus_vectors`` makes vectors from a corpus alone.
"""

from collections import Counter
from itertools import chain

import numpy as np
from scipy import sparse

A = 1e-3  # of a / (a + p(w))
DIMENSIONS = 48  # of corpus vectors: as many as those of Hadifar et al. (2019) have
WINDOW = 5  # words to either side that count as near, as in word2vec
SMOOTHING = 0.75  # power of a neighbour's frequency, and
ROOT = 0.5  # of the singular values: both as Levy, Goldberg and Dagan (2015) recommend
SEED = (
    0  # of the decomposition's first guess, for all runs: another one moves signs and last digits
)


def sentence_vectors(
    documents: list[list[str]],
    vectors: dict[str, np.ndarray],
    *,
    fit_documents: list[list[str]] | None = None,
) -> np.ndarray:
    """Embed documents by smooth inverse frequency (Arora, Liang and Ma, 2017, Algorithm 1).

    A document is the mean of a / (a + p(w)) times the vector of w over its words that have one, a =
    1e-3, and p(w) the word's share of the running words of ``fit_documents`` (0 for a word that
    does not occur there). Its part along the first right singular vector of the uncentred matrix of
    the ``fit_documents``' means is then taken away.

    Args:
        documents: N lists of words.
        vectors: the vector [D] of each word that has one.
        fit_documents: where words are counted and the common component is found; default:
            ``documents``.

    Returns:
        float32 array [N, D]; a document without a word that has a vector is a row of zeros. Where
        all documents of ``fit_documents`` are alike, they are nothing but the common component, and
        rounding is what is left of them.

    Raises:
        ValueError: no word of ``fit_documents`` has a vector.

    >>> vectors = {"rain": np.array([1.0, 1.0]), "wind": np.array([1.0, 0.0])}
    >>> found = sentence_vectors([["rain"], ["wind"], ["rain", "it"], ["it"]], vectors)
    >>> (1000 * found).round(2)
    array([[-0.52,  1.24],
           [ 0.73, -1.76],
           [-0.52,  1.24],
           [ 0.  ,  0.  ]], dtype=float32)
    """
    from threadpoolctl import threadpool_limits

    fit_documents = documents if fit_documents is None else fit_documents
    counts = Counter(chain.from_iterable(fit_documents))
    if not counts.keys() & vectors.keys():
        raise ValueError(
            "no word of fit_documents has a vector: there is no common component to remove"
        )
    rows = {word: i for i, word in enumerate(vectors)}
    weights = A / (A + np.array([counts[word] for word in rows]) / counts.total())
    table = np.stack(list(vectors.values())).astype(float) * weights[:, None]
    means, fit_means = (
        _means([[rows[word] for word in words if word in rows] for words in part], table)
        for part in (documents, fit_documents)
    )
    with threadpool_limits(1):  # other numbers of threads round in other ways
        component = np.linalg.eigh(fit_means.T @ fit_means)[1][:, -1]
        return (means - np.outer(means @ component, component)).astype(np.float32)


def _means(documents, table):
    lengths = np.array([len(rows) for rows in documents])
    columns = np.fromiter(chain.from_iterable(documents), dtype=np.int64, count=lengths.sum())
    counts = sparse.csr_matrix(
        (np.ones(len(columns)), columns, np.cumsum([0, *lengths])),
        shape=(len(documents), len(table)),
    )
    return counts @ table / np.maximum(lengths, 1)[:, None]


def corpus_vectors(documents: list[list[str]]) -> dict[str, np.ndarray]:
    """Make word vectors from a corpus alone: positive pointwise mutual information of near words,
    decomposed (Levy and Goldberg, 2014).

    How often two words stand within five words of each other, against how often they would by
    chance, is what the skip-grams of word2vec factorise too. On the titles of StackOverflow this
    takes a second, word2vec twenty, and k-means finds more of the classes. A word's vector is its
    row of U S^0.5, of the first 48 singular vectors.

    Args:
        documents: lists of words.

    Returns:
        The vector (float64 [D], D = 48, or fewer than there are words) of each word that stands
        near some word more often than by chance.

    Raises:
        ValueError: no two words do.

    >>> titles = ["wet rain", "cold rain", "hot sun", "warm sun", "sun"]
    >>> vectors = corpus_vectors([title.split() for title in titles])
    >>> wet = {word: vectors["wet"] @ vectors[word] for word in ("cold", "warm")}
    >>> bool(wet["cold"] > 0.5 > 0.01 > abs(wet["warm"]))
    True
    """
    from scipy.sparse.linalg import svds
    from threadpoolctl import threadpool_limits

    words = list(dict.fromkeys(chain.from_iterable(documents)))
    rows = {word: i for i, word in enumerate(words)}
    tokens = np.array([rows[word] for word in chain.from_iterable(documents)], dtype=np.int64)
    place = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    near = sparse.csr_matrix((len(words), len(words)))
    for distance in range(1, WINDOW + 1):
        same = place[:-distance] == place[distance:]
        near += sparse.csr_matrix(
            (np.ones(same.sum()), (tokens[:-distance][same], tokens[distance:][same])),
            shape=near.shape,
        )
    near = (near + near.T).tocoo()
    often = np.asarray(near.sum(axis=0)).ravel()
    smoothed = often**SMOOTHING
    information = np.log(near.data * smoothed.sum() / (often[near.row] * smoothed[near.col]))
    positive = information > 0
    if not positive.any():
        raise ValueError(
            "no two words stand near each other more often than by chance: there is nothing to make word vectors from"
        )
    table = sparse.csr_matrix(
        (information[positive], (near.row[positive], near.col[positive])), shape=near.shape
    )
    start = np.random.default_rng(SEED).normal(size=len(words))
    with threadpool_limits(1):
        left, sizes, _ = svds(table, k=min(DIMENSIONS, len(words) - 1), v0=start)
    vectors = left * sizes**ROOT
    return {words[i]: vectors[i] for i in np.flatnonzero(table.getnnz(axis=1))}
