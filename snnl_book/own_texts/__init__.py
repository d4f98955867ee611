"""Cluster your own texts: read a file, choose the number of clusters, cluster, and describe them.

``python -m snnl_book cluster`` does all of this from the command line. No labels are needed.
"""

from snnl_book.own_texts.clusters import (
    METHODS,
    PIECES,
    RETURNS,
    Clustering,
    cluster_texts,
    embed_texts,
    predict_clusters,
    shared_texts,
    typical_minutes,
)
from snnl_book.own_texts.number import CANDIDATES, best_k, silhouettes, stands_out
from snnl_book.own_texts.page import write_page
from snnl_book.own_texts.tables import TextsError, TextsWarning, read_table
from snnl_book.own_texts.words import describe_clusters, read_stop_words

__all__ = [
    "CANDIDATES",
    "METHODS",
    "PIECES",
    "RETURNS",
    "Clustering",
    "TextsError",
    "TextsWarning",
    "best_k",
    "cluster_texts",
    "describe_clusters",
    "embed_texts",
    "predict_clusters",
    "read_stop_words",
    "read_table",
    "shared_texts",
    "silhouettes",
    "stands_out",
    "typical_minutes",
    "write_page",
]
