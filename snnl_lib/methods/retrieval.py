"""Does an embedding keep its meaning (Sec. 4.4 of the ClusterBERT paper)? Candidates are ranked by
their cosine to a query.
"""

from dataclasses import dataclass
from itertools import chain, compress

import numpy as np

from snnl_lib import data
from snnl_lib.data import catalogue
from snnl_lib.methods.tsdae import kept_words
from snnl_lib.metrics import check_points, query_scores

CHUNK = 256  # queries at a time, for the memory


@dataclass(frozen=True)
class Retrieval:
    """A ranking task: what each query is compared with, and what should come first.

    ``queries`` are Q strings, ``texts`` N distinct ones. ``candidates`` has for each query an int
    array [C] of rows of ``texts``, and ``relevant`` an int array of positions in that, from 0 to C
    - 1; C differs from query to query. ``source`` says in words where all this is from.
    """

    queries: list[str]
    texts: list[str]
    candidates: list[np.ndarray]
    relevant: list[np.ndarray]
    source: str


def load_retrieval(name: str, split: str = "test") -> Retrieval:
    """Load a ranking task by name, fetching it if need be.

    - ``trecqa``: a question's candidates are sentences, relevant are those that answer it (Wang et
      al. 2007); 65 questions of dev, 68 of test.
    - ``askubuntu``: a question's candidates are 20 others that BM25 found, relevant are those that
      people marked as similar (Lei et al. 2016); titles only, as in the code of the TSDAE paper,
      since the ClusterBERT paper does not say which text it takes.

    Queries whose candidates are all relevant or all not say nothing about a ranking and are left
    out, as in the literature on both.

    Args:
        name: ``trecqa`` or ``askubuntu``.
        split: ``dev`` or ``test``.

    Raises:
        DataError: an unknown name, a wrong checksum, or a task that is out of reach; it says what
            to do.
        SnnlError: a file of AskUbuntu without a known checksum that is not in the published layout.
        ValueError: a split other than ``dev`` and ``test``.

    >>> load_retrieval("trecqa", "train")
    Traceback (most recent call last):
    ValueError: split must be 'dev' or 'test', got 'train'
    """
    names = [name for name, entry in catalogue.entries().items() if entry.kind == "retrieval"]
    if name not in names:
        raise data.DataError(f"there is no ranking task {name!r}: choose one of {', '.join(names)}")
    if split not in ("dev", "test"):
        raise ValueError(f"split must be 'dev' or 'test', got {split!r}")
    form, _, place, parts = data.read(name)
    usable = [row for row in parts[split == "test"] if 0 < np.sum(row[2]) < len(row[2])]
    queries, candidates, relevant = zip(*usable, strict=True)
    row_of = {text: row for row, text in enumerate(dict.fromkeys(chain.from_iterable(candidates)))}
    rows = [np.array([row_of[text] for text in texts]) for texts in candidates]
    relevant = [np.flatnonzero(found) for found in relevant]
    source = f"{form.description}, from {place}"
    return Retrieval(list(queries), list(row_of), rows, relevant, source)


def denoise(texts: list[str], ratio: float = 0.6, seed: int = 0) -> Retrieval:
    """Make a ranking task of any texts: find each of the distinct ones, among all, by what
    ``delete_words`` leaves of it (``map`` is ``mrr`` here).

    A ``ratio`` of 0.6 is that of the TSDAE paper; the ClusterBERT paper, which trains by such
    noise, names none. The ``seed`` settles the words deleted. Raises ValueError for fewer than two
    distinct texts, a text without a word, and a ratio outside [0, 1].

    >>> denoise(["rain fell again on the town today", "wind"]).queries
    ['rain the town today', 'wind']
    """
    texts, random = list(dict.fromkeys(texts)), np.random.default_rng(seed)
    if len(texts) < 2:
        raise ValueError(f"texts must hold two distinct ones or more, got {texts}")
    rows = np.arange(len(texts))
    queries = [delete_words(text, ratio, random) for text in texts]
    source = f"{ratio:g} of the words deleted, seed {seed}"
    return Retrieval(queries, texts, [rows] * len(texts), list(rows[:, None]), source)


def delete_words(text: str, ratio: float, random: np.random.Generator) -> str:
    """Delete each word of a text with the chance ``ratio``; one drawn by ``random`` stays where
    none would. Words are what white space parts.

    Raises ValueError for a text without a word, and a ratio outside [0, 1].

    >>> random = np.random.default_rng(0)
    >>> delete_words("rain fell again on the town", 0.5, random)
    'rain the town'
    """
    words = text.split()
    if not words or not 0 <= ratio <= 1:
        wanted = "a text must have a word and the ratio lie in [0, 1]"
        raise ValueError(f"{wanted}, got {text!r:.60} and {ratio}")
    kept = kept_words(len(words), ratio, random)
    return text if kept.all() else " ".join(compress(words, kept))


def evaluate(task: Retrieval, embed) -> dict[str, float]:
    """Rank each query's candidates by cosine similarity and score the rankings.

    Args:
        task: what to rank.
        embed: a function from a list of distinct strings to an array with as many rows [M, D];
            called once, with the texts and the queries. A row of zeros has the cosine 0 to all
            others.

    Returns:
        ``map`` and ``mrr`` of ``metrics.retrieval_scores``, and ``queries``, how many there were.

    Raises:
        ValueError: ``embed`` returned no finite array with a row for each text.

    >>> task = denoise(["rain", "wind"], ratio=0)
    >>> letters = lambda texts: np.array([[text.count("r"), text.count("w")] for text in texts])
    >>> evaluate(task, letters)
    {'map': 1.0, 'mrr': 1.0, 'queries': 2}
    """
    scores = evaluate_queries(task, embed)
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    return means | {"queries": len(task.queries)}


def evaluate_queries(task: Retrieval, embed) -> dict[str, list[float]]:
    """Score each query as ``evaluate`` does: ``map`` and ``mrr``, one value per query."""
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
        # A matrix product can round equal rows differently: cosines that agree in 12 digits are
        # ties.
        cosines = np.round(queries[part] @ texts.T, 12)
        rows = zip(cosines, task.candidates[part], task.relevant[part], strict=True)
        for row, candidates, relevant in rows:
            yield row[candidates], np.isin(np.arange(len(candidates)), relevant)
