"""The order of rows is no information: corpora are sorted by class, and whatever breaks ties by row
order reads the labels.
"""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from snnl_book import data, experiments
from snnl_book.experiments import Task, load_task, short_texts, text_clustering
from snnl_book.methods import DEC, IDEC, N2D, SCCL, ClusterBERT, VaDE
from snnl_book.methods.deep_clustering import pretrain
from snnl_book.recipes import Recipe

K, EACH = 4, 30
NOISE = 0.15
"""How far the adjusted Rand index of two orders of rows may be apart: as far as other seeds are."""


def short(clusterer, embedding="tfidf", seed=42):
    """Cluster vectors as the runs on short texts do."""
    given = {"dataset": "newsgroups20_openings", "profile": "quick"}
    found = experiments.specs("clusterbert", seeds=[seed], **given)
    spec = next(s for s in found if (s.embedding, s["clusterer"]) == (embedding, clusterer))
    more = {"idec_updates": 60} if clusterer.endswith("idec") else {}
    spec = replace(spec, settings=tuple(sorted((dict(spec.settings) | more).items())))
    # On a map of so few points IDEC's updates can lead from its start, all right, to anywhere, and
    # a processor's rounding settles where: it is judged by its start.
    taken = 2 if clusterer == "umap-idec" else 0
    return lambda vectors: short_texts.cluster(vectors, spec, K)[taken]


def rival(model):
    """Cluster vectors as a rival in text clustering that sees no labels does."""
    found = experiments.specs("clustering-rivals", "quick", "newsgroups4", [42])
    spec = next(s for s in found if s.model == model)

    def cluster(vectors):
        nothing = np.zeros(len(vectors), dtype=int)
        task = Task(vectors, nothing, vectors, nothing, K, 0, 0)
        return text_clustering.cluster_by_rival(spec, task)[0]

    return cluster


def deep(method, **settings):
    def cluster(vectors):
        normalize = method in (DEC, IDEC)
        autoencoder, _ = pretrain(vectors, K, epochs=10, seed=42, normalize=normalize)
        method_ = method(K, seed=42, **settings).fit(vectors, autoencoder=autoencoder)
        return method_.labels_ if method is N2D else method_.predict(vectors)

    return cluster


VECTORS = {clusterer: short(clusterer) for clusterer in short_texts.CLUSTERERS}
VECTORS |= {f"umap of {name}": short("umap", name) for name in ("minilm", "sif-corpus")}
VECTORS |= {f"rival {name}": rival(name) for name in ("kmeans", "spherical-kmeans", "umap", "gmm")}
VECTORS |= {"DEC": deep(DEC, max_steps=60), "IDEC": deep(IDEC, max_steps=60)}
VECTORS |= {"VaDE": deep(VaDE, epochs=10), "N2D": deep(N2D)}


LONG = {"idec", "umap-idec", "umap of minilm", "umap of sif-corpus", "rival umap"}
"""Left to the long lane: IDEC and UMAP are looked at alone, too."""
EACH_WAY = [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in VECTORS]


@pytest.mark.parametrize("name", EACH_WAY)
def test_sorted_labels_on_vectors_without_content_are_not_found(packages, name):
    # Every vector is as far from every other: only the order of rows could tell the classes. Each
    # has its one at a random place, or the order of features would tell them, too.
    labels = np.repeat(np.arange(K), 150)
    contentless = np.eye(len(labels), dtype=np.float32)
    contentless = contentless[np.random.default_rng(0).permutation(len(labels))]
    assert abs(adjusted_rand_score(labels, VECTORS[name](contentless))) < 0.02


@pytest.mark.parametrize("name", EACH_WAY)
def test_shuffled_rows_get_the_clusters_of_sorted_ones(packages, name):
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(K), EACH)
    words = np.abs(random.normal(size=(K, 60))) * (random.random((K, 60)) < 0.3)
    counts = random.poisson(3 * words[labels]).astype(np.float32) + np.float32(1e-3)
    vectors = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    order = random.permutation(len(labels))
    in_order = adjusted_rand_score(labels, VECTORS[name](vectors))
    shuffled = adjusted_rand_score(labels[order], VECTORS[name](vectors[order]))
    assert abs(in_order - shuffled) < NOISE


SHORT = Recipe(batch_size=16, warm_up=1, adaptation_epochs=1, reclusterings=1)
SHORT = replace(SHORT, clustering_epochs=1, hardening_epochs=1)


def fine_tuned(stages):
    def cluster(texts, tmp_path):
        model = ClusterBERT(K, "roberta-base", SHORT, seed=42, folder=tmp_path)
        vectors = model.fit(texts, stages=stages).embeddings
        return short("kmeans")(list(vectors.values())[-1])

    return cluster


def contrasted(texts, tmp_path):
    return SCCL(K, "roberta-base", steps=3, seed=42).fit(texts).labels_


TEXTS = {"ClusterBERT": fine_tuned(3), "TSDAE": fine_tuned(1), "SCCL": contrasted}


@pytest.mark.parametrize("name", TEXTS)
def test_sorted_labels_on_texts_without_content_are_not_found(roberta, tmp_path, name):
    labels = np.repeat(np.arange(K), EACH // 2)
    letters = np.random.default_rng(0).integers(97, 123, size=(len(labels), 12))
    texts = ["".join(map(chr, word)) for word in letters]
    assert abs(adjusted_rand_score(labels, TEXTS[name](texts, tmp_path))) < 0.1


def test_texts_that_are_clustered_whole_stand_in_an_order_drawn_from_the_seed(packages):
    corpus = data.load_dataset("newsgroups20_openings").train
    alike = (corpus.labels[1:] == corpus.labels[:-1]).mean()
    assert alike > 0.99, "a corpus that is sorted by class, as most are"
    rows = {}
    for seed in (42, 1234):
        task = load_task("newsgroups20_openings", "tfidf", seed, 500, None)
        assert (task.train_y[1:] == task.train_y[:-1]).mean() < 0.15
        assert (task.train_y == corpus.labels[task.train_rows]).all()
        rows[seed] = task.train_rows.tolist()
        texts = load_task("newsgroups20_openings", experiments.TEXTS, seed, 500, None)
        assert texts.train_x.tolist() == [corpus.texts[row] for row in task.train_rows]
        assert texts.test_rows.tolist() == task.test_rows.tolist() == rows[seed]
    assert rows[42] != rows[1234]


def test_in_another_order_the_same_texts_have_the_same_vectors(packages):
    every = len(data.load_dataset("newsgroups20_openings").train)
    first, second = (
        load_task("newsgroups20_openings", "sif-corpus", seed, every, None) for seed in (42, 1234)
    )
    assert first.train_rows.tolist() != second.train_rows.tolist()
    for rows in (first.train_rows, second.train_rows):
        assert sorted(rows) == list(range(every))
    ordered = [task.train_x[np.argsort(task.train_rows)] for task in (first, second)]
    np.testing.assert_array_equal(*ordered)
