"""``python -m benchmarks.own_texts``: what it takes to cluster texts of one's own, and what it
costs to choose the number of clusters by a rule.

``results/bench/own-texts-cpu.csv`` has the seconds and the scores of each method of
``snnl_book.own_texts`` on openings of 20 Newsgroups, nothing taken from the cache but weights;
``results/bench/choose-k-cpu.csv`` has, for 2,000 texts of each corpus at hand and each of three
draws of them and each rule, the k that was chosen and the scores of MiniLM with k-means at it and
at the number of classes. Times mean something on an otherwise idle machine; one torch thread.
"""

import argparse
import os
import tempfile
import time
from itertools import product
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import silhouette_score

from snnl_book import data, own_texts, results
from snnl_book.experiments import short_texts
from snnl_book.experiments.runner import one_thread
from snnl_lib import metrics
from snnl_lib.seeds import named_seed

from . import _files

SIZES = {"tfidf": (300, 1000, 3000, 10_000), "sif-corpus": (300, 1000, 3000, 10_000)}
SIZES |= {"minilm": (300, 1000, 3000, 10_000), "clusterbert": (300, 1000)}
CORPUS, CHOSEN_FROM, SEEDS = "newsgroups20_openings", 2000, (42, 1234, 73)


def drawn(name, count, seed):
    """Draw texts and classes of a corpus, in random order."""
    part = data.load_dataset(name).train
    rows = np.random.default_rng(named_seed(seed, "subset")).permutation(len(part.texts))
    rows = [i for i in rows if part.texts[i].strip()][:count]
    return [part.texts[i] for i in rows], np.asarray(part.labels)[rows]


def scores(found, labels):
    """Score clusters by the classes."""
    of = metrics.clustering_scores(np.zeros((len(labels), 1)), found, labels)
    return {name: of[name] for name in ("acc", "nmi", "ari")}


def time_methods(methods):
    """Cluster more and more texts by each method; yields a row each."""
    packages = data.cache_dir() / "packages"
    for method in methods:
        for count in SIZES[method]:
            texts, labels = drawn(CORPUS, count, 42)
            own_texts.cluster_texts(texts[:60], 20, "tfidf")  # imports are not timed
            with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, SNNL_CACHE=folder):
                (Path(folder) / "packages").symlink_to(packages)
                started = time.perf_counter()
                found = own_texts.cluster_texts(texts, 20, method, folder=Path(folder) / "kept")
                seconds = time.perf_counter() - started
            row = {"method": method, "dataset": CORPUS, "texts": len(texts), "seconds": seconds}
            yield row | scores(found.clusters, labels)


def by_components(vectors, seed):
    """The library's rule, and whether its k stands out."""
    table = own_texts.silhouettes(vectors, seed=seed)
    return own_texts.best_k(table), own_texts.stands_out(table)


def by_vectors(vectors, seed):
    """The largest silhouette of k-means on the vectors themselves, the library's rule until 0.1."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    best = {}
    for k in own_texts.CANDIDATES:
        clusters = KMeans(k, n_init=4, random_state=named_seed(seed, "kmeans")).fit_predict(unit)
        best[k] = silhouette_score(unit, clusters, metric="cosine")
    return max(best, key=best.get), None


def by_density(vectors, seed):
    """The number of clusters that HDBSCAN finds on a map of five dimensions by UMAP."""
    import umap

    settings = {"n_neighbors": 15, "n_components": 5, "min_dist": 0.0, "metric": "cosine"}
    places = umap.UMAP(random_state=named_seed(seed, "umap"), **settings).fit_transform(vectors)
    return max(1, HDBSCAN(min_cluster_size=20).fit_predict(places).max() + 1), None


RULES = {"components": by_components, "vectors": by_vectors, "density": by_density}


def choose(names, rules, seeds):
    """Choose k for the corpora, and score what it costs; yields a row for each draw and rule."""
    for name, seed in product(names, seeds):
        texts, labels = drawn(name, CHOSEN_FROM, seed)
        vectors, classes = own_texts.embed_texts(texts, "minilm"), len({*labels})
        for rule in rules:
            k, is_clear = RULES[rule](vectors, seed)
            row = {"dataset": name, "seed": seed, "rule": rule, "texts": len(texts)}
            row |= {"classes": classes, "k": k, "stands out": is_clear}
            for which, clusters in (("chosen", k), ("classes", classes)):
                found = own_texts.cluster_texts(texts, clusters, "minilm", seed=seed)
                of = scores(found.clusters, labels)
                row |= {f"{metric} at {which}": value for metric, value in of.items()}
            yield row


def write(name, rows, keys):
    """Rewrite a file of results/bench as rows are made; other rows stay."""
    path = results.results_dir("full") / "bench" / f"{name}-cpu.csv"
    facts = _files.facts("cpu")
    for row in rows:
        table = _files.with_row(path, row | facts, keys).sort_values(keys, kind="stable")
        results.write_atomically(path, table.to_csv(index=False, float_format="%.4f"))
        print(
            {key: row[key] for key in (*keys, "acc", "seconds", "k", "identified") if key in row},
            flush=True,
        )


def main():
    """Make both files, or only what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=[*SIZES], choices=[*SIZES])
    parser.add_argument("--corpora", nargs="*", default=None)
    parser.add_argument("--rules", nargs="*", default=[*RULES], choices=[*RULES])
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    args = parser.parse_args()
    here = [name for name in short_texts.DATASETS if data.locate(name)]
    with one_thread():
        chosen = here if args.corpora is None else args.corpora
        rows = choose(chosen, args.rules, args.seeds)
        write("choose-k", rows, ["dataset", "seed", "rule"])
        write("own-texts", time_methods(args.methods), ["method", "texts"])


if __name__ == "__main__":
    main()
