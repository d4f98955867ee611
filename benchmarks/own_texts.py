"""``python -m benchmarks.own_texts``: what it takes to cluster texts of one's own, and what it
costs to choose the number of clusters by the silhouette.

``results/bench/own-texts-cpu.csv`` has the seconds and the scores of each method of
``snnl_book.own_texts`` on openings of 20 Newsgroups, nothing taken from the cache but weights;
``results/bench/choose-k-cpu.csv`` has, for 2,000 texts of each corpus at hand and each of three
draws of them, the k that was chosen and the scores of MiniLM with k-means at it and at the number
of classes. Times mean something on an otherwise idle machine; one torch thread.
"""

import argparse
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from snnl_book import data, own_texts, results
from snnl_book.experiments import short_texts
from snnl_book.experiments.runner import one_thread
from snnl_lib import metrics
from snnl_lib.seeds import named_seed

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


def choose(names):
    """Choose k for the corpora, and score what it costs; yields a row a draw."""
    for name in names:
        for seed in SEEDS:
            texts, labels = drawn(name, CHOSEN_FROM, seed)
            vectors = own_texts.embed_texts(texts, "minilm")
            k, classes = own_texts.best_k(own_texts.silhouettes(vectors, seed=seed)), len({*labels})
            row = {"dataset": name, "seed": seed, "texts": len(texts), "classes": classes, "k": k}
            for which, clusters in (("chosen", k), ("classes", classes)):
                found = own_texts.cluster_texts(texts, clusters, "minilm", seed=seed)
                of = scores(found.clusters, labels)
                row |= {f"{metric} at {which}": value for metric, value in of.items()}
            yield row


def write(name, rows, keys):
    """Rewrite a file of results/bench as rows are made; other rows stay."""
    path = results.results_dir("full") / "bench" / f"{name}-cpu.csv"
    facts = {"device": results.device_name("cpu"), "threads": 1, "versions": results.versions()}
    facts |= {"commit": results.commit()}
    for row in rows:
        row |= facts | {"created": datetime.now(UTC).isoformat(timespec="seconds")}
        table = pd.DataFrame([row])
        if path.exists():
            table = pd.concat([pd.read_csv(path), table]).drop_duplicates(keys, keep="last")
        table = table.sort_values(keys, kind="stable")
        results.write_atomically(path, table.to_csv(index=False, float_format="%.4f"))
        print({key: row[key] for key in (*keys, "acc", "seconds", "k") if key in row}, flush=True)


def main():
    """Make both files, or only what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=[*SIZES], choices=[*SIZES])
    parser.add_argument("--corpora", nargs="*", default=None)
    args = parser.parse_args()
    here = [name for name in short_texts.DATASETS if data.locate(name)]
    with one_thread():
        chosen = here if args.corpora is None else args.corpora
        write("choose-k", choose(chosen), ["dataset", "seed"])
        write("own-texts", time_methods(args.methods), ["method", "texts"])


if __name__ == "__main__":
    main()
