"""Cluster your own texts: read a file, choose the number of clusters, cluster, and describe them.

``python -m snnl_book cluster`` does all of this from the command line. No labels are needed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from snnl_book import results
from snnl_book.recipes import STAGES, Recipe
from snnl_lib import SnnlError
from snnl_lib.seeds import named_seed

if TYPE_CHECKING:  # importing pandas would slow down the command line
    import pandas as pd

METHODS = {
    "tfidf": "k-means on word counts (TF-IDF)",
    "sif-corpus": "k-means on averaged word vectors, made from the texts themselves",
    "minilm": "k-means on MiniLM's sentence vectors, as published",
    "clusterbert": "MiniLM fine-tuned on the texts by ClusterBERT, then k-means",
}
"""The methods of ``cluster_texts``."""

CANDIDATES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 22, 25, 30, 35, 40, 50, 60, 80, 100)
SAMPLE_SIZE = 2000  # the largest number of texts from which k is chosen
# Below this average size of a cluster, the silhouette rises with k on any corpus.
LEAST_TEXTS_PER_CLUSTER = 20


class TextsError(SnnlError):
    """A file of texts that cannot be read, or texts that cannot be clustered."""


@dataclass(frozen=True)
class Clustering:
    """The result of ``cluster_texts``.

    - ``clusters``: int array [N] of numbers from 0 to k - 1.
    - ``vectors``: float32 array [N, D], the vectors that were clustered.
    - ``model``: the fitted ``ClusterBERT``, which can predict and be saved; None for other methods.
    """

    clusters: np.ndarray
    vectors: np.ndarray
    model: object = None


# ---------------------------------------------------------------- texts in a file


def _lines(path):
    # splitlines would also split at other characters; utf-8-sig drops a byte-order mark.
    return path.read_text("utf-8-sig").removesuffix("\n").split("\n")


def _reason(error):
    return getattr(error, "strerror", None) or " ".join(str(error).split())[:200]


def read_table(path: str | Path, column: str | None = None) -> tuple["pd.DataFrame", str]:
    """Read a file with one text per row: .csv, .tsv, .jsonl (a JSON object per line) or .txt.

    ``path`` is the file. ``column`` is the column of the texts, and may be omitted if there is only
    one. Returns the table, with unchanged values, and the name of the column. Raises TextsError for
    a file that does not exist, is empty, does not have the format of its ending, or has no such
    column.

    >>> path = getfixture("tmp_path") / "texts.txt"
    >>> _ = path.write_text("red wine\\nsort a list\\n")
    >>> table, column = read_table(path)
    >>> table[column].tolist()
    ['red wine', 'sort a list']
    """
    import pandas as pd

    path = Path(path)
    readers = {
        ".csv": partial(pd.read_csv, dtype=str, keep_default_na=False),
        ".tsv": partial(pd.read_csv, sep="\t", dtype=str, keep_default_na=False),
        ".jsonl": lambda file: pd.DataFrame(
            [json.loads(line) for line in _lines(file) if line.strip()], dtype=object
        ),
        ".txt": lambda file: pd.DataFrame({"text": _lines(file)}),
    }
    if path.suffix not in readers:
        raise TextsError(
            f"{path} does not end in one of {', '.join(readers)}: rename or convert it"
        )
    advice = f"give a file of texts in UTF-8 that is what its ending {path.suffix} says"
    try:
        table = readers[path.suffix](path)
        if len(table.columns) == 1 and path.suffix in (".csv", ".tsv"):
            # A blank line of a single column is an empty text.
            table = readers[path.suffix](path, skip_blank_lines=False)
    except (OSError, ValueError) as error:
        raise TextsError(f"{path} could not be read ({_reason(error)}): {advice}") from error
    if not isinstance(table.index, pd.RangeIndex):  # pandas uses surplus fields as an index
        raise TextsError(f"{path}: a row has more fields than the header: quote texts with commas")
    return table, _column_of_texts(table, column, path)


def _column_of_texts(table, column, path):
    if column is None and len(table.columns) == 1:
        column = table.columns[0]
    if column not in table.columns:
        problem = "name the column of the texts"
        if column is not None:
            problem = f"it has no column {column!r}"
        raise TextsError(f"{path}: {problem}: choose one of {', '.join(map(str, table.columns))}")
    if table[column].fillna("").astype(str).str.strip().eq("").all():
        raise TextsError(f"{path} has no text in its column {column}: name another column")
    return column


# ---------------------------------------------------------------- how many clusters


def silhouettes(vectors: np.ndarray, *, seed: int = 42) -> "pd.DataFrame":
    """Compute the silhouette of clusterings of vectors [N, D] for several numbers of clusters.

    The ``seed`` draws at most 2,000 vectors. k-means clusters them for each k of ``CANDIDATES``
    with at least twenty vectors per cluster on average. Returns a frame with a row for each:
    ``k`` and ``silhouette``, the mean silhouette by cosine distance, in [-1, 1]. Raises TextsError
    for fewer than 40 vectors.

    >>> table = silhouettes(np.eye(3)[np.arange(60) % 3] + 0.01 * np.arange(60)[:, None] / 60)
    >>> table.round(2).to_numpy().tolist()
    [[2.0, 0.66], [3.0, 1.0]]
    """
    import pandas as pd
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    least = 2 * LEAST_TEXTS_PER_CLUSTER
    if len(vectors) < least:
        raise TextsError(f"choosing k needs at least {least} texts, got {len(vectors)}: name k")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = (vectors / np.where(lengths > 0, lengths, 1))[_sample(len(vectors), seed)]
    rows = []
    for k in CANDIDATES:
        if k * LEAST_TEXTS_PER_CLUSTER > len(vectors):
            break
        kmeans = KMeans(k, n_init=4, random_state=named_seed(seed, "kmeans"))
        clusters = kmeans.fit_predict(vectors)
        score = np.nan  # equal vectors form a single cluster
        if len(np.unique(clusters)) > 1:
            score = silhouette_score(vectors, clusters, metric="cosine")
        rows.append({"k": k, "silhouette": float(score)})
    return pd.DataFrame(rows)


def _sample(count, seed):
    """Draw at most ``SAMPLE_SIZE`` of ``count`` row numbers."""
    return np.random.default_rng(named_seed(seed, "subset")).permutation(count)[:SAMPLE_SIZE]


def best_k(table: "pd.DataFrame") -> int:
    """Return the k with the largest silhouette in a table of ``silhouettes``.

    This is a rule of thumb, and it ignores what the clusters are for. On some of the book's corpora
    it comes close to the number of classes, on others it finds a fraction or a multiple of it (see
    the chapter *Cluster your own texts*). Raises TextsError if no silhouette is defined.

    >>> centers = 10 * np.eye(5)[np.repeat(np.arange(5), 40)]
    >>> best_k(silhouettes(centers + np.random.default_rng(0).normal(size=(200, 5)), seed=1))
    5
    """
    if table["silhouette"].isna().all():
        raise TextsError("all texts are alike to this method: take another, or name k")
    return int(table.loc[table["silhouette"].idxmax(), "k"])


# ---------------------------------------------------------------- clusters


def cluster_texts(
    texts: Sequence[str],
    k: int,
    method: str = "minilm",
    *,
    seed: int = 42,
    device: str = "cpu",
    progress: str | None = None,
    folder: Path | None = None,
) -> Clustering:
    """Cluster N texts into k clusters by one of ``METHODS``.

    ClusterBERT starts from the mean of MiniLM's pieces, because MiniLM was trained so. Its
    checkpoints are saved in ``folder``, from which an interrupted call continues, and ``progress``
    names its progress bar. ``seed`` determines k-means and everything random in ClusterBERT. A
    transformer runs on ``device``. Raises TextsError for an unknown method, empty texts or a
    training that diverges, and ValueError for a k that is not a whole number from 1 to N.

    >>> texts = ["sort a list", "a sorted list", "red wine", "a red wine"]
    >>> a, b, c, d = cluster_texts(texts, 2, "tfidf").clusters
    >>> bool(a == b != c == d)
    True
    """
    from snnl_book.methods._fitting import check_clusters, k_means

    _check_method(method)
    texts = list(texts)
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise TextsError("texts must be strings that are not empty: leave the others out")
    check_clusters(k, len(texts), "texts")
    if method == "clusterbert":
        from snnl_book.methods import ClusterBERT

        settings = {"seed": seed, "device": device, "progress": progress, "folder": folder}
        model = ClusterBERT(k, "minilm", Recipe(pooling="mean"), **settings).fit(texts)
        if model.diverged:
            raise TextsError(f"the training diverged ({model.diverged}): take another seed")
        return Clustering(model.labels_, model.embeddings[STAGES[-1]], model)
    vectors = embed_texts(texts, method, device)
    return Clustering(k_means(vectors, k, named_seed(seed, "kmeans")).labels_, vectors)


def embed_texts(texts: Sequence[str], method: str, device: str = "cpu") -> np.ndarray:
    """Return the vectors [N, D] of texts from which ``cluster_texts`` starts with a method.

    A transformer runs on ``device``. Raises TextsError for an unknown method.

    >>> embed_texts(["a list", "red wine"], "tfidf").shape
    (2, 3)
    """
    from snnl_book.embeddings import embed

    _check_method(method)
    return embed(list(texts), "minilm" if method == "clusterbert" else method, device=device)


def _check_method(method):
    if method not in METHODS:
        raise TextsError(f"there is no method {method!r}: choose one of {', '.join(METHODS)}")


def typical_minutes(count: int, method: str) -> float:
    """Estimate how many minutes ``cluster_texts`` takes on one CPU core for ``count`` texts.

    The estimate is proportional to the largest measurement of ``python -m benchmarks.own_texts``.
    It is nan for a ``method`` without a measurement.

    >>> typical_minutes(10, "minilm") < typical_minutes(1000, "minilm")
    True
    """
    import pandas as pd

    path = results.results_dir("full") / "bench" / "own-texts-cpu.csv"
    if not path.exists():
        return np.nan
    took = pd.read_csv(path).query("method == @method").nlargest(1, "texts")
    return float((took["seconds"] / took["texts"]).mean() * count / 60)


def describe_clusters(
    texts: Sequence[str], clusters: np.ndarray, vectors: np.ndarray, *, words=5, nearest=3
) -> "pd.DataFrame":
    """Describe each cluster by its size, words and texts: a row per cluster, the largest first.

    ``texts`` are N strings, ``clusters`` [N] their clusters, ``vectors`` [N, D] what was clustered.
    Columns are ``cluster``, ``size``, ``words`` and ``nearest``. ``words`` lists the words whose
    mean TF-IDF in the cluster most exceeds that in all texts, without English stop words.
    ``nearest`` lists the texts nearest to the cluster's mean, by Euclidean distance.

    >>> texts = ["a list", "lists, a list", "red wine", "a red wine"]
    >>> shown = describe_clusters(texts, np.array([0, 0, 1, 1]), np.eye(4), words=1, nearest=1)
    >>> shown[["size", "words"]].to_numpy().tolist()
    [[2, ['list']], [2, ['red']]]
    """
    import pandas as pd

    names, weights = word_weights(texts)
    overall, rows = weights.mean(axis=0), []
    for cluster, size in pd.Series(clusters).value_counts().sort_index(kind="stable").items():
        members = np.flatnonzero(clusters == cluster)
        excess = np.asarray(weights[members].mean(axis=0) - overall).ravel()
        top = [str(names[i]) for i in np.argsort(-excess, kind="stable")[:words] if excess[i] > 0]
        distances = np.linalg.norm(vectors[members] - vectors[members].mean(axis=0), axis=1)
        close = [texts[i] for i in members[np.argsort(distances, kind="stable")[:nearest]]]
        rows.append({"cluster": cluster, "size": size, "words": top, "nearest": close})
    return pd.DataFrame(rows).sort_values("size", ascending=False, kind="stable", ignore_index=True)


def word_weights(texts: Sequence[str]):
    """Return the words of N texts, and their tf-idf weights as a sparse matrix [N, words].

    Raises TextsError if the texts have no words.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(stop_words="english", max_features=10_000)
    try:
        weights = vectorizer.fit_transform(texts)
    except ValueError as error:
        raise TextsError("no word could be counted: give texts that have words") from error
    return vectorizer.get_feature_names_out(), weights
