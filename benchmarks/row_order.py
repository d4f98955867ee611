"""``python -m benchmarks.row_order``: how the order of rows and its three repairs change UMAP.

``results/bench/row-order-cpu.csv`` has the NMI (geometric mean) of UMAP and k-means on TF-IDF, for
2,000 texts of each corpus of short texts at hand. The first row of a corpus is the mistake: rows in
the corpus's order, plain UMAP and the Euclidean distance. Each of the next three changes one thing,
and the last changes all. The words that TF-IDF counts are the present ones in every row. About five
minutes a corpus and seed on one core.
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
SETTINGS = {  # order of rows, ties between neighbours, distance
    "as withdrawn": ("corpus", "row", "euclidean"),
    "shuffled rows": ("shuffled", "row", "euclidean"),
    "ties by chance": ("corpus", "chance", "euclidean"),
    "cosine distance": ("corpus", "row", "cosine"),
    "all three": ("shuffled", "chance", "cosine"),
}


def measure(name, seed):
    """Cluster a corpus in each of ``SETTINGS``; yields a row each."""
    task = experiments.load_task(name, "tfidf", seed, TEXTS, None)
    rows = {"corpus": np.argsort(task.train_rows), "shuffled": np.arange(len(task.train_x))}
    map_seed = named_seed(seed, "umap")
    for setting, (order, ties, metric) in SETTINGS.items():
        vectors, classes = task.train_x[rows[order]], task.train_y[rows[order]]
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
        row |= {"distance": metric, "texts": len(classes), "nmi_geometric": nmi}
        yield row | {"seconds": time.perf_counter() - started}


def main():
    """Make the file, or only the rows of what is named; other rows stay."""
    parser = argparse.ArgumentParser(description=__doc__)
    here = [name for name in short_texts.DATASETS if data.locate(name)]
    parser.add_argument("--corpora", nargs="*", default=here)
    parser.add_argument("--seeds", nargs="*", type=int, default=(1234,))
    args = parser.parse_args()
    with one_thread():
        for seed, name in product(args.seeds, args.corpora):
            write("row-order", measure(name, seed), ["dataset", "seed", "setting"])


if __name__ == "__main__":
    main()
