"""Our DEC, IDEC, VaDE and N2D against ClustPy's, on small data: run by hand, not part of the tests
or of ``make bench``.

``python -m benchmarks.deep_clustering`` in an environment that has ``clustpy`` (and torchvision),
which is no dependency of the project, and umap-learn; about 20 minutes of one core. Rewrites
results/bench/clustering-cpu.csv when all is done. Each trains an autoencoder of its own, which
k-means on the codes compares. The four methods then start from *our* autoencoder (DEC and IDEC from
one of normalised pixels with a linear output, VaDE and N2D from one of pixels in [0, 1]), with one
seed for the first centroids: what differs is how they go on.

Equal: architecture, losses and their weights, batches, epochs, optimisers and rates, starts of
k-means and mixtures, UMAP's settings. What ClustPy's arguments cannot make equal: the targets of
DEC and IDEC (its own: of each batch at each step; ours: of all points, here once an epoch); in VaDE
the rate (constant; ours falls), the first variance of a code (of a layer with torch's usual start;
ours: the mean variance in a cluster), the log variances in a point's memberships (twice the normal
density's), the first prior (nearly even), and the labels (of a drawn code; ours: of its mean).
"""

import os
import time
from importlib import metadata

os.environ |= {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}  # UMAP's numba would give torch more threads as well

import numpy as np
import pandas as pd
import torch
from clustpy import deep
from clustpy.deep.neural_networks import FeedforwardAutoencoder, VariationalAutoencoder
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score
from torch import nn
from umap import UMAP

from snnl_book import results
from snnl_book.data import load_dataset
from snnl_book.methods import deep_clustering as ours
from snnl_lib.metrics import clustering_accuracy
from snnl_lib.seeds import BATCH_SIZE
from snnl_lib.training import forward, named_seed

from . import _files

SEEDS, K, MNIST_IMAGES, PRETRAINING, CLUSTERING = (
    (42, 1234, 73),
    10,
    2000,
    50,
    25,
)  # the last two: epochs
THEIRS = f"clustpy {metadata.version('clustpy')}"


def datasets():
    """Yield (name, images [N, D] in [0, 1], labels [N])."""
    digits, train = load_digits(), load_dataset("mnist").train
    yield "digits", (digits.data / 16).astype(np.float32), digits.target
    chosen = np.random.default_rng(42).permutation(len(train.labels))[:MNIST_IMAGES]
    yield "mnist", (train.pixels[chosen] / 255).astype(np.float32), train.labels[chosen]


def linears(*models):
    return [layer for model in models for layer in model.modules() if isinstance(layer, nn.Linear)]


def theirs(x, seed, trained=None, network=FeedforwardAutoencoder):
    """ClustPy's autoencoder; with ``trained`` given, it has the weights and the kind of output of
    ours and counts as fitted.
    """
    linear = trained is not None and trained.scale is not None
    torch.manual_seed(seed)
    made = network(
        [x.shape[1], 500, 500, 2000, 10],
        activation_fn=nn.ReLU,
        decoder_output_fn=None if linear else nn.Sigmoid,
        random_state=seed,
    )
    if trained is not None:
        parts = (
            (made.encoder, made.mean, made.decoder)
            if network is VariationalAutoencoder
            else (made.encoder, made.decoder)
        )
        for layer, own in zip(linears(*parts), linears(trained), strict=True):
            layer.load_state_dict(own.state_dict())
        made.fitted = True
    return made


def fits(x, seed):
    """Yield (method, whose, the clusters [N])."""
    kmeans, mixture = (
        {"n_init": n, "random_state": named_seed(seed, "centroids")} for n in (20, 10)
    )
    own, _ = ours.pretrain(x, 10, epochs=PRETRAINING, seed=seed)
    normalized, _ = ours.pretrain(x, 10, epochs=PRETRAINING, seed=seed, normalize=True)
    scaled = x * np.float32(normalized.scale)
    yield (
        "k-means on codes",
        "snnl_lib",
        KMeans(K, **kmeans).fit_predict(forward(own, x, layer="code")),
    )
    other = theirs(x, seed).fit(PRETRAINING, {"lr": 1e-3}, BATCH_SIZE, x, ssl_loss_fn=nn.BCELoss())
    yield "k-means on codes", THEIRS, KMeans(K, **kmeans).fit_predict(other.transform(x))

    def fitted(method, network=FeedforwardAutoencoder, **settings):
        dec = method in (deep.DEC, deep.IDEC)
        start, features = (normalized, scaled) if dec else (own, x)
        start = theirs(x, seed, start, network)
        return method(K, neural_network=start, random_state=seed, **settings).fit(features)

    updates = -(-len(x) // BATCH_SIZE)
    trained = {
        "batch_size": BATCH_SIZE,
        "clustering_epochs": CLUSTERING,
        "initial_clustering_params": kmeans,
    }
    steps = {"max_steps": updates * CLUSTERING, "update_interval": updates, "tolerance": 0}
    yield (
        "DEC",
        "snnl_lib",
        ours.DEC(K, seed=seed, **steps).fit(x, autoencoder=normalized).labels_,
    )
    yield (
        "DEC",
        THEIRS,
        fitted(
            deep.DEC,
            **trained,
            optimizer_class=torch.optim.SGD,
            clustering_optimizer_params={"lr": 0.01, "momentum": 0.9},
        ).dec_labels_,
    )
    idec = ours.IDEC(K, seed=seed, gamma=0.1, **steps)
    yield "IDEC", "snnl_lib", idec.fit(x, autoencoder=normalized).labels_
    weights = {
        "clustering_loss_weight": 0.1,
        "ssl_loss_weight": 1.0,
        "ssl_loss_fn": lambda output, x: (output - x).square().sum(dim=1).mean(),
    }
    yield (
        "IDEC",
        THEIRS,
        fitted(
            deep.IDEC, **trained, **weights, clustering_optimizer_params={"lr": 1e-3}
        ).dec_labels_,
    )
    yield (
        "VaDE",
        "snnl_lib",
        ours.VaDE(K, seed=seed, epochs=CLUSTERING).fit(x, autoencoder=own).labels_,
    )
    trained["initial_clustering_params"] = mixture | {"covariance_type": "diag"}
    bound = {
        "ssl_loss_fn": lambda output, x: (
            nn.functional.binary_cross_entropy(output, x, reduction="sum") / len(x)
        )
    }  # its default: the batch's sum
    yield (
        "VaDE",
        THEIRS,
        fitted(
            deep.VaDE,
            VariationalAutoencoder,
            **trained,
            **bound,
            clustering_optimizer_params={"lr": 2e-3},
        ).vade_labels_,
    )
    yield "N2D", "snnl_lib", ours.N2D(K, seed=seed).fit(x, autoencoder=own).labels_
    manifold = {
        "n_components": K,
        "n_neighbors": 20,
        "min_dist": 0.0,
        "random_state": named_seed(seed, "umap"),
        "n_jobs": 1,
    }
    yield (
        "N2D",
        THEIRS,
        fitted(
            deep.N2D,
            manifold_class=UMAP,
            manifold_params=manifold,
            initial_clustering_params=mixture,
        ).labels_,
    )


def main():
    facts = _files.facts("cpu")
    del facts["threads"]  # this file has no such column
    facts["versions"] += f"; {THEIRS}"
    rows = []
    for name, x, labels in datasets():
        for seed in SEEDS:
            started = time.process_time()  # the time on the core, which others may share
            for method, whose, clusters in fits(x, seed):
                scores = {
                    "acc": clustering_accuracy(labels, clusters),
                    "nmi": normalized_mutual_info_score(labels, clusters),
                }
                scores |= {"seconds": round(time.process_time() - started, 1)}
                rows.append(
                    {"method": method, "implementation": whose, "dataset": name, "seed": seed}
                    | scores
                    | {"images": len(x)}
                )
                print(*rows[-1].values(), flush=True)
                started = time.process_time()
    table = pd.DataFrame(rows).assign(**facts, created=_files.now())
    results.write_atomically(
        results.results_dir() / "bench" / "clustering-cpu.csv",
        table.to_csv(index=False, float_format="%.6g"),
    )


if __name__ == "__main__":
    main()
