"""A page about clusters: sizes, words, nearest texts and a map to explore, in one HTML file."""

import html
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from snnl_book.own_texts.clusters import Clustering
from snnl_book.own_texts.tables import counted
from snnl_book.own_texts.words import describe_clusters
from snnl_lib.seeds import named_seed

MOST_POINTS = 3000  # on the map
MOST_CHARACTERS = 300  # of a text


def map_texts(vectors: np.ndarray, seed: int = 42) -> np.ndarray:
    """Place vectors [N, D] on a map by t-SNE of their first 50 principal components: [N, 2].

    Positions are in [0, 1]. Fewer than five vectors are placed by their principal components.

    >>> map_texts(np.random.default_rng(0).normal(size=(20, 5))).shape
    (20, 2)
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    size = min(50, *vectors.shape)
    components = PCA(size, random_state=named_seed(seed, "components"))
    with np.errstate(invalid="ignore"):  # the shares of no variance at all
        points = components.fit_transform(vectors)
    if len(points) >= 5 and len(np.unique(points, axis=0)) > 1:
        perplexity = min(30, (len(points) - 1) / 3)
        points = TSNE(
            perplexity=perplexity, init="random", random_state=named_seed(seed, "tsne")
        ).fit_transform(points)
    points = np.pad(points, ((0, 0), (0, 2)))[:, :2]
    low, high = points.min(axis=0), points.max(axis=0)
    return 0.03 + 0.94 * (points - low) / np.where(high > low, high - low, 1)


def _beginning(text):
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def write_page(
    path: Path,
    title: str,
    texts: Sequence[str],
    clustering: Clustering,
    *,
    omit: Iterable[str] | None = None,
    seed: int = 42,
) -> None:
    """Write a page about a clustering of N texts as one HTML file that needs no network.

    It has the clusters' sizes, words and nearest texts, and a map of at most 3,000 texts, drawn by
    the ``seed``, on which texts can be searched. ``path`` is the file, ``title`` what the texts
    are, and ``omit`` are stop words as in ``describe_clusters``.

    >>> from snnl_book.own_texts import cluster_texts
    >>> path, texts = getfixture("tmp_path") / "page.html", ["a list", "lists", "red wine", "wine"]
    >>> write_page(path, "four texts", texts, cluster_texts(texts, 2, "tfidf"))
    >>> "Clusters of four texts" in path.read_text("utf-8")
    True
    """
    from snnl_lib.checkpoint import whole_file

    texts = list(texts)
    shown = describe_clusters(texts, clustering.clusters, clustering.vectors, omit=omit)
    drawn = np.random.default_rng(named_seed(seed, "map")).permutation(len(texts))[:MOST_POINTS]
    places = map_texts(clustering.vectors[drawn], seed).round(4)
    clusters = [
        {
            "cluster": row.cluster,
            "texts": row.size,
            "outliers": int(clustering.outliers[clustering.clusters == row.cluster].sum()),
            "words": row.words,
            "nearest": [_beginning(text) for text in row.nearest],
        }
        for row in shown.itertuples(index=False)
    ]
    points = [
        {
            "x": float(x),
            "y": float(y),
            "c": int(clustering.clusters[i]),
            "o": int(clustering.outliers[i]),
            "t": _beginning(texts[i]),
        }
        for i, (x, y) in zip(drawn, places, strict=True)
    ]
    part = "" if len(drawn) == len(texts) else f", of which the map shows {len(drawn):,}"
    outliers = counted(int(clustering.outliers.sum()), "outlier")
    summary = f"{counted(len(texts), 'text')}{part}, {counted(len(clusters), 'cluster')}"
    summary += f" and {outliers} (squares on the map)."
    data = {"summary": summary, "clusters": clusters, "points": points}
    # A text may hold "</script>" or "<!--", which would end or hide the data.
    data = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    template = Path(__file__).with_name("page.html").read_text("utf-8")
    parts = {"TITLE": html.escape(title), "DATA": data}
    page = re.sub("TITLE|DATA", lambda match: parts[match[0]], template)
    with whole_file(path) as file:
        file.write(page.encode("utf-8", "replace"))
