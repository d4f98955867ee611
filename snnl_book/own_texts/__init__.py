"""Cluster your own texts: read a file, choose the number of clusters, cluster, and describe them.

``python -m snnl_book cluster`` does all of this from the command line. No labels are needed.
"""

from snnl_book.own_texts.clusters import (
    METHODS,
    Clustering,
    cluster_texts,
    embed_texts,
    typical_minutes,
)
from snnl_book.own_texts.number import CANDIDATES, best_k, silhouettes
from snnl_book.own_texts.tables import TextsError, TextsWarning, read_table
from snnl_book.own_texts.words import describe_clusters

__all__ = [
    "CANDIDATES",
    "METHODS",
    "Clustering",
    "TextsError",
    "TextsWarning",
    "best_k",
    "cluster_texts",
    "describe_clusters",
    "embed_texts",
    "read_table",
    "silhouettes",
    "typical_minutes",
]
