"""Describe clusters by their sizes, words and texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # importing pandas would slow down the command line
    import pandas as pd


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

    English stop words are not counted, unless the texts have no other words.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    for pattern, stop_words in ((r"(?u)\b\w\w+\b", "english"), (r"(?u)\S+", None)):
        vectorizer = TfidfVectorizer(
            stop_words=stop_words, token_pattern=pattern, max_features=10_000
        )
        try:
            weights = vectorizer.fit_transform(texts)
        except ValueError:  # no text has such a word
            continue
        return vectorizer.get_feature_names_out(), weights
    return np.array([]), np.zeros((len(texts), 0))
