"""``python -m benchmarks.row_order``: how the order of rows and its repairs change UMAP.

``results/bench/row-order-cpu.csv`` has the NMI (geometric mean) of UMAP and k-means on TF-IDF, for
2,000 texts of each available corpus of short texts. The first row of a corpus is the mistake: rows
in the corpus's order, plain UMAP and the Euclidean distance. Each of the next four changes one
thing, and the last two change two and three. Every row uses the current vocabulary of TF-IDF.
``same class`` is the share of a corpus's texts whose next text has the same class. The data set
``uninformative`` holds 200 vectors that are all equally far from each other, in five classes of 40.
It takes about three minutes per corpus and seed on one core.
"""

import argparse
import os
import time
from itertools import product
from types import SimpleNamespace

os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from umap import UMAP

from benchmarks.own_texts import write
from snnl_book import data, experiments
from snnl_book.experiments import short_texts
from snnl_book.experiments.runner import one_thread
from snnl_book.methods.deep_clustering import fit_umap
from snnl_lib.seeds import named_seed

TEXTS, UNINFORMATIVE = 2000, "uninformative"
SETTINGS = {  # order of rows, ties between neighbours, distance, texts without a counted word
    "as withdrawn": ("corpus", "row", "euclidean", "kept"),
    "shuffled rows": ("shuffled", "row", "euclidean", "kept"),
    "ties by chance": ("corpus", "chance", "euclidean", "kept"),
    "cosine distance": ("corpus", "row", "cosine", "kept"),
    "no empty texts": ("corpus", "row", "euclidean", "left out"),
    "shuffled rows, ties by chance": ("shuffled", "chance", "euclidean", "kept"),
    "all three": ("shuffled", "chance", "cosine", "kept"),
}


def uninformative(seed):
    """Return shuffled vectors that say nothing about their classes; their own order is by class."""
    rows = np.random.default_rng(seed).permutation(200)
    vectors = np.eye(200, dtype="float32")[rows]
    return SimpleNamespace(train_x=vectors, train_y=rows // 40, train_rows=rows, classes=5)


def same_class(name):
    """Return how often the next text of a corpus has the same class."""
    classes = data.load_dataset(name).train.labels
    return (classes[1:] == classes[:-1]).mean()


def measure(name, seed, settings):
    """Cluster a corpus in each of these ``SETTINGS``; yields a row each."""
    if name == UNINFORMATIVE:
        task, next_same = uninformative(seed), 195 / 199
    else:
        task = experiments.load_task(name, "tfidf", seed, TEXTS, None)
        next_same = same_class(name)
    rows = {"corpus": np.argsort(task.train_rows), "shuffled": np.arange(len(task.train_x))}
    map_seed = named_seed(seed, "umap")
    has_words = task.train_x.any(axis=1)
    for setting in settings:
        order, ties, metric, empty = SETTINGS[setting]
        chosen = rows[order] if empty == "kept" else rows[order][has_words[rows[order]]]
        vectors, classes = task.train_x[chosen], task.train_y[chosen]
        options = {"n_components": task.classes + 1, "n_neighbors": 15, "metric": metric}
        started = time.perf_counter()
        if ties == "chance":
            _, points = fit_umap(vectors, map_seed, **options)
        else:
            points = UMAP(n_jobs=1, random_state=map_seed, **options).fit_transform(vectors)
        kmeans = KMeans(task.classes, n_init=10, random_state=named_seed(seed, "kmeans"))
        clusters = kmeans.fit_predict(points)
        nmi = normalized_mutual_info_score(classes, clusters, average_method="geometric")
        row = {"dataset": name, "seed": seed, "setting": setting, "order": order, "ties": ties}
        row |= {"distance": metric, "empty texts": empty, "texts": len(classes)}
        row["same class"] = next_same
        row["nmi_geometric"] = nmi
        yield row | {"seconds": time.perf_counter() - started}


def main():
    """Make the file, or only the rows of what is named; other rows stay."""
    parser = argparse.ArgumentParser(description=__doc__)
    here = [name for name in short_texts.DATASETS if data.locate(name)]
    parser.add_argument("--corpora", nargs="*", default=[*here, UNINFORMATIVE])
    parser.add_argument("--seeds", nargs="*", type=int, default=(1234,))
    parser.add_argument("--settings", nargs="*", default=[*SETTINGS], choices=[*SETTINGS])
    args = parser.parse_args()
    with one_thread():
        for seed, name in product(args.seeds, args.corpora):
            write("row-order", measure(name, seed, args.settings), ["dataset", "seed", "setting"])


if __name__ == "__main__":
    main()
