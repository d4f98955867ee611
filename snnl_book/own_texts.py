"""Cluster texts of your own: read a file of texts, choose how many clusters, cluster them, and see
what is in each.

``python -m snnl_book cluster`` does all of it from the command line. Nothing here needs a label.
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

if TYPE_CHECKING:  # the command line, which imports this, must not wait for pandas
    import pandas as pd

METHODS = {
    "tfidf": "k-means on word counts (TF-IDF)",
    "sif-corpus": "k-means on averaged word vectors, made from the texts themselves",
    "minilm": "k-means on MiniLM's sentence vectors, as published",
    "clusterbert": "MiniLM fine-tuned on the texts by ClusterBERT, then k-means",
}
"""What ``cluster_texts`` can do."""

CANDIDATES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 22, 25, 30, 35, 40, 50, 60, 80, 100)
LOOKED_AT = 2000  # texts that choose k, at most
TEXTS_A_CLUSTER = 20  # on average at least, for a k that is chosen: the silhouette of tiny ones
# rises with k on any corpus


class TextsError(SnnlError):
    """A file of texts that cannot be read, or texts that cannot be clustered as asked."""


@dataclass(frozen=True)
class Clustering:
    """What ``cluster_texts`` found.

    - ``clusters``: int array [N], numbers from 0 to k - 1.
    - ``vectors``: float32 array [N, D], what was clustered.
    - ``model``: the fitted ``ClusterBERT``, which predicts and saves; None of the other methods.
    """

    clusters: np.ndarray
    vectors: np.ndarray
    model: object = None


# ---------------------------------------------------------------- texts in a file


def _lines(path):
    # Not splitlines, which also cuts at characters within a text; utf-8-sig drops a mark before it.
    return path.read_text("utf-8-sig").removesuffix("\n").split("\n")


def _reason(error):
    return getattr(error, "strerror", None) or " ".join(str(error).split())[:200]


def read_table(path: str | Path, column: str | None = None) -> tuple["pd.DataFrame", str]:
    """Read a file with a text in each row: at ``path``, .csv, .tsv, .jsonl (a JSON object a line),
    or .txt (a text a line).

    ``column`` names the texts, which may be left out where there is but one column. Returns the
    table, its values as the file has them, and the name of the column. Raises TextsError for a file
    that is not there, cannot be read as what its ending says, is empty, or has no such column.

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
            table = readers[path.suffix](path, skip_blank_lines=False)  # which are empty texts
    except (OSError, ValueError) as error:
        raise TextsError(f"{path} could not be read ({_reason(error)}): {advice}") from error
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes what is too many for row names
        raise TextsError(f"{path}: a row has more fields than the header: quote texts with commas")
    if column is None and len(table.columns) == 1:
        column = table.columns[0]
    if column not in table.columns:
        said = "name the column of the texts" if column is None else f"it has no column {column!r}"
        raise TextsError(f"{path}: {said}: choose one of {', '.join(map(str, table.columns))}")
    if table[column].fillna("").astype(str).str.strip().eq("").all():
        raise TextsError(f"{path} has no text in its column {column}: give one that has")
    return table, column


# ---------------------------------------------------------------- how many clusters


def silhouettes(vectors: np.ndarray, *, seed: int = 42) -> "pd.DataFrame":
    """Compute how clear clusterings of vectors [N, D] into more and more clusters are.

    Of at most 2,000 vectors, drawn by the ``seed``, k-means makes each number of ``CANDIDATES``
    clusters that leaves twenty to each on average. Returns a frame with a row for each: ``k`` and
    ``silhouette``, the mean silhouette by cosine distance, in [-1, 1]. Raises TextsError for fewer
    than 40 vectors.

    >>> table = silhouettes(np.eye(3)[np.arange(60) % 3] + 0.01 * np.arange(60)[:, None] / 60)
    >>> table.round(2).to_numpy().tolist()
    [[2.0, 0.66], [3.0, 1.0]]
    """
    import pandas as pd
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    if len(vectors) < 2 * TEXTS_A_CLUSTER:
        least = 2 * TEXTS_A_CLUSTER
        raise TextsError(
            f"k is chosen from at least {least} texts, and there are {len(vectors)}: name k"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = (vectors / np.where(lengths > 0, lengths, 1))[_drawn(len(vectors), seed)]
    rows = []
    for k in (k for k in CANDIDATES if k * TEXTS_A_CLUSTER <= len(vectors)):
        found = KMeans(k, n_init=4, random_state=named_seed(seed, "kmeans")).fit_predict(vectors)
        clear = len(np.unique(found)) > 1
        score = silhouette_score(vectors, found, metric="cosine") if clear else np.nan
        rows.append({"k": k, "silhouette": float(score)})
    return pd.DataFrame(rows)


def _drawn(count, seed):
    """Draw at most ``LOOKED_AT`` of so many rows."""
    return np.random.default_rng(named_seed(seed, "subset")).permutation(count)[:LOOKED_AT]


def best_k(table: "pd.DataFrame") -> int:
    """Choose the number of clusters from a table of ``silhouettes``: that of the largest.

    A rule of thumb that knows nothing of what the clusters are for: on the book's corpora it finds
    nearly the number of classes of some, and a fraction or a multiple of it on others (the chapter
    *Cluster your own texts* has the numbers). Raises TextsError where no silhouette is defined.

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

    ClusterBERT starts from the mean of MiniLM's pieces, as MiniLM was trained; ``folder`` keeps its
    checkpoints, from which an interrupted call goes on, ``progress`` names its bar. ``seed``
    settles k-means, and of ClusterBERT all the rest; ``device`` is where a transformer runs. Raises
    TextsError for an unknown method or texts that are none, ValueError for a k that is not a whole
    number from 1 to N.

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
    """Return the vectors [N, D] of texts from which ``cluster_texts`` starts by that method.

    ``device`` is where a transformer runs. Raises TextsError for an unknown method.

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
    """Estimate how many minutes ``cluster_texts`` by a ``method`` takes on one CPU core for as many
    texts as ``count``.

    By what ``python -m benchmarks.own_texts`` measured with the most texts, as if time grew with
    their number; nan where nothing is recorded.

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
    """Show what is in each cluster: a row a cluster, the largest first.

    ``texts`` are N strings, ``clusters`` their numbers [N], ``vectors`` [N, D] what was clustered.
    The columns: ``cluster``, ``size``, ``words`` (a list of as many as ``words``, whose mean TF-IDF
    in the cluster exceeds that in all texts most; English stop words are left out) and ``nearest``
    (the texts nearest to the cluster's mean, by Euclidean distance).

    >>> texts = ["a list", "lists, a list", "red wine", "a red wine"]
    >>> shown = describe_clusters(texts, np.array([0, 0, 1, 1]), np.eye(4), words=1, nearest=1)
    >>> shown[["size", "words"]].to_numpy().tolist()
    [[2, ['list']], [2, ['red']]]
    """
    import pandas as pd

    names, weights = word_weights(texts)
    overall, rows = weights.mean(axis=0), []
    for cluster, size in pd.Series(clusters).value_counts().sort_index(kind="stable").items():
        own = np.flatnonzero(clusters == cluster)
        more = np.asarray(weights[own].mean(axis=0) - overall).ravel()
        top = [str(names[i]) for i in np.argsort(-more, kind="stable")[:words] if more[i] > 0]
        apart = np.linalg.norm(vectors[own] - vectors[own].mean(axis=0), axis=1)
        close = [texts[i] for i in own[np.argsort(apart, kind="stable")[:nearest]]]
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
