"""``python -m benchmarks.cluster_words``: which words name a cluster best.

``results/bench/cluster-words-cpu.csv`` has a row for each corpus, draw and way to weigh words.
k-means clusters MiniLM's vectors of 2,000 texts, half of the texts give each cluster five words,
and each text of the other half goes to the cluster of whose words it has the most.
``identified`` is the share of those texts that are given to their own cluster, as a mean over
clusters; a text without any of the words, or with as many of two clusters, is not identified.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from benchmarks.own_texts import CHOSEN_FROM, SEEDS, drawn, write
from snnl_book import data, own_texts
from snnl_book.experiments import short_texts
from snnl_book.experiments.runner import one_thread
from snnl_book.own_texts import words
from snnl_lib.seeds import named_seed

MOST_CLUSTERS = 30  # GoogleNews has 152 stories, each with too few texts for this
WORDS = 5


def presence(counts, clusters):
    """Return in how many texts of each cluster a word is, and how many texts each cluster has."""
    numbers, sizes = np.unique(clusters, return_counts=True)
    present = counts > 0
    rows = [np.asarray(present[clusters == c].sum(axis=0)).ravel() for c in numbers]
    return np.array(rows, dtype=float), sizes[:, None].astype(float)


def excess_tfidf(counts, clusters):
    """The mean TF-IDF in the cluster, less that in all texts."""
    from sklearn.feature_extraction.text import TfidfTransformer

    weights = TfidfTransformer().fit_transform(counts)
    means = [weights[clusters == c].mean(axis=0) for c in np.unique(clusters)]
    return np.array([np.asarray(mean - weights.mean(axis=0)).ravel() for mean in means])


def log_likelihood(counts, clusters):
    """Dunning's (1993) ratio for "the word is in the text" and "the text is in the cluster"."""
    inside, sizes = presence(counts, clusters)
    everywhere, total = inside.sum(axis=0), sizes.sum()
    ratio = np.zeros_like(inside)
    for found, texts in ((inside, sizes), (everywhere - inside, total - sizes)):
        for seen, frequency in ((found, everywhere), (texts - found, total - everywhere)):
            expected = np.maximum(texts * frequency / total, 1e-9)
            ratio += 2 * seen * np.log(np.maximum(seen, 1e-9) / expected)
    return np.where(inside * total > sizes * everywhere, ratio, -1)


WAYS = {
    "TF-IDF above the mean": excess_tfidf,
    "class-based TF-IDF": words.class_tfidf,
    "log-likelihood ratio": log_likelihood,
    "class-based TF-IDF times share": words.word_weights,
}


def identified(counts, clusters, way, seed):
    """Return the share of held-out texts that five words lead to their cluster."""
    order = np.random.default_rng(named_seed(seed, "halves")).permutation(len(clusters))
    known, held_out = np.array_split(order, 2)
    numbers = np.unique(clusters[known])
    weights = way(counts[known], clusters[known])
    top = np.argsort(-weights, axis=1, kind="stable")[:, :WORDS]
    present = counts[held_out] > 0
    hits = np.stack(
        [np.asarray(present[:, columns].sum(axis=1)).ravel() for columns in top], axis=1
    )
    is_unique = (hits == hits.max(axis=1, keepdims=True)).sum(axis=1) == 1
    right = is_unique & (numbers[hits.argmax(axis=1)] == clusters[held_out])
    return float(np.mean([right[clusters[held_out] == c].mean() for c in numbers]))


def compare(names, seeds):
    """Yield a row for each corpus, draw and way."""
    for name in names:
        for seed in seeds:
            texts, labels = drawn(name, CHOSEN_FROM, seed)
            k = min(len({*labels}), MOST_CLUSTERS)
            clusters = own_texts.cluster_texts(texts, k, "minilm", seed=seed).clusters
            _, counts = words.count_words(texts)
            for way, function in WAYS.items():
                share = identified(counts, clusters, function, seed)
                row = {"dataset": name, "seed": seed, "way": way, "clusters": k}
                yield row | {"texts": len(texts), "identified": share}


def main():
    """Make the file, or only the rows of some corpora."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", nargs="*", default=None)
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    args = parser.parse_args()
    here = [name for name in short_texts.DATASETS if data.locate(name)]
    with one_thread():
        rows = compare(here if args.corpora is None else args.corpora, args.seeds)
        write("cluster-words", rows, ["dataset", "seed", "way"])


if __name__ == "__main__":
    main()
