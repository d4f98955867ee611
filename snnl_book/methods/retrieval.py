"""Does fine-tuning damage an embedding (Sec. 4.4 of the ClusterBERT paper)?

Candidates are ranked by their cosine similarity to a query, and the rankings are scored.
"""

from itertools import compress

import numpy as np

from snnl_book.data import Retrieval
from snnl_book.methods.tsdae import kept_words
from snnl_lib.metrics import check_points, query_scores

CHUNK = 256  # queries at a time, to bound the memory


def denoise(texts: list[str], ratio: float = 0.6, seed: int = 0) -> Retrieval:
    """Make a ranking task from any texts: find each distinct text among all by a noisy version.

    ``delete_words`` makes the noise. Each query has one relevant text, so that ``map`` equals
    ``mrr``. The ``ratio`` of 0.6 is the TSDAE paper's; the ClusterBERT paper trains with such noise
    and gives no ratio. The ``seed`` determines the deleted words. Raises ValueError for fewer than
    two distinct texts, a text without a word, and a ratio outside [0, 1].

    >>> denoise(["rain fell again on the town today", "wind"]).queries
    ['rain the town today', 'wind']
    """
    texts = list(dict.fromkeys(texts))
    if len(texts) < 2:
        raise ValueError(f"ranking needs at least two distinct texts, got {texts}")
    random = np.random.default_rng(seed)
    rows = np.arange(len(texts))
    queries = [delete_words(text, ratio, random) for text in texts]
    source = f"{ratio:g} of the words deleted, seed {seed}"
    return Retrieval(queries, texts, [rows] * len(texts), list(rows[:, None]), source)


def delete_words(text: str, ratio: float, random: np.random.Generator) -> str:
    """Delete each word of a text with probability ``ratio``; at least one random word stays.

    Words are separated by white space. Raises ValueError for a text without a word, and a ratio
    outside [0, 1].

    >>> random = np.random.default_rng(0)
    >>> delete_words("rain fell again on the town", 0.5, random)
    'rain the town'
    """
    words = text.split()
    if not words or not 0 <= ratio <= 1:
        requirement = "a text must have at least one word, and the ratio must lie in [0, 1]"
        raise ValueError(f"{requirement}, got {text!r:.60} and {ratio}")
    stays = kept_words(len(words), ratio, random)
    return text if stays.all() else " ".join(compress(words, stays))


def evaluate(task: Retrieval, embed) -> dict[str, list[float]]:
    """Rank each query's candidates by cosine similarity and score the rankings.

    Args:
        task: the queries and their candidates.
        embed: a function from a list of M distinct strings to an array [M, D]. It is called once,
            with all texts and queries. A row of zeros has the cosine 0 to all others.

    Returns:
        ``map`` and ``mrr`` of each query, as ``metrics.query_scores``.

    Raises:
        ValueError: ``embed`` did not return a finite array with a row for each text.

    >>> task = denoise(["rain", "wind"], ratio=0)
    >>> letters = lambda texts: np.array([[text.count("r"), text.count("w")] for text in texts])
    >>> evaluate(task, letters)
    {'map': [1.0, 1.0], 'mrr': [1.0, 1.0]}
    """
    texts = list(dict.fromkeys([*task.texts, *task.queries]))
    vectors = check_points(embed(texts), texts=texts).astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(lengths == 0, 1, lengths)
    row_of = {text: row for row, text in enumerate(texts)}
    queries = vectors[[row_of[query] for query in task.queries]]
    rankings = _rankings(task, vectors[: len(task.texts)], queries)
    return query_scores(rankings)


def _rankings(task, texts, queries):
    for start in range(0, len(queries), CHUNK):
        part = slice(start, start + CHUNK)
        # A matrix product can round equal rows differently, so cosines that agree in 12 digits
        # count as ties.
        cosines = np.round(queries[part] @ texts.T, 12)
        rows = zip(cosines, task.candidates[part], task.relevant[part], strict=True)
        for row, candidates, relevant in rows:
            yield row[candidates], np.isin(np.arange(len(candidates)), relevant)
