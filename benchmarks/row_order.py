"""``python -m benchmarks.row_order``: how the order of rows and its repairs change UMAP.

``results/bench/row-order-cpu.csv`` has the NMI (geometric mean) of UMAP and k-means on TF-IDF, for
2,000 texts of each available corpus of short texts. The first row of a corpus is the mistake: rows
in the corpus's order, plain UMAP and the Euclidean distance. Each of the next four changes one
thing, and the last two change two and three. Every row uses the current vocabulary of TF-IDF. It
takes about three minutes per corpus and seed on one core.
"""

import argparse
import os
import time
from itertools import product

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

TEXTS = 2000
SETTINGS = {  # order of rows, ties between neighbours, distance, texts without a counted word
    "as withdrawn": ("corpus", "row", "euclidean", "kept"),
    "shuffled rows": ("shuffled", "row", "euclidean", "kept"),
    "ties by chance": ("corpus", "chance", "euclidean", "kept"),
    "cosine distance": ("corpus", "row", "cosine", "kept"),
    "no empty texts": ("corpus", "row", "euclidean", "left out"),
    "shuffled rows, ties by chance": ("shuffled", "chance", "euclidean", "kept"),
    "all three": ("shuffled", "chance", "cosine", "kept"),
}


def measure(name, seed, settings):
    """Cluster a corpus in each of these ``SETTINGS``; yields a row each."""
    task = experiments.load_task(name, "tfidf", seed, TEXTS, None)
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
        row["nmi_geometric"] = nmi
        yield row | {"seconds": time.perf_counter() - started}


def main():
    """Make the file, or only the rows of what is named; other rows stay."""
    parser = argparse.ArgumentParser(description=__doc__)
    here = [name for name in short_texts.DATASETS if data.locate(name)]
    parser.add_argument("--corpora", nargs="*", default=here)
    parser.add_argument("--seeds", nargs="*", type=int, default=(1234,))
    parser.add_argument("--settings", nargs="*", default=[*SETTINGS], choices=[*SETTINGS])
    args = parser.parse_args()
    with one_thread():
        for seed, name in product(args.seeds, args.corpora):
            write("row-order", measure(name, seed, args.settings), ["dataset", "seed", "setting"])


if __name__ == "__main__":
    main()
