"""Shared by the fits of several methods: k-means, batches, Adam, random numbers, precision."""

import warnings
from contextlib import contextmanager
from numbers import Integral

import numpy as np
import torch

from snnl_lib.devices import exact_layers, kept_random_states

FEW_IN_A_CLUSTER = 8  # too few for quartiles of their own
KMEANS_STARTS = 10  # for embeddings of texts


def check_clusters(k, count: int, things: str) -> None:
    """Raise ValueError unless k is a whole number from 1 to ``count``, of ``things`` to cluster."""
    if isinstance(k, bool) or not isinstance(k, Integral) or not 1 <= k <= count:
        allowed = f"a whole number from 1 to the number of {things} ({count})"
        raise ValueError(f"the number of clusters must be {allowed}, got {k!r}")


def k_means(vectors, k, seed, starts=KMEANS_STARTS, things="texts", stacklevel=3):
    """Return scikit-learn's KMeans fitted to vectors [N, D], the best of several starts.

    If the things have fewer distinct vectors than k, equal vectors share a cluster, and a warning
    gives their number.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        kmeans = KMeans(k, n_init=starts, random_state=seed).fit(vectors)
    if len(np.unique(kmeans.labels_)) < k:
        # Several centers are then equal up to rounding, which would split equal vectors.
        distinct, first, place = np.unique(vectors, axis=0, return_index=True, return_inverse=True)
        kmeans.labels_ = kmeans.labels_[first[place]]
        used = len(np.unique(kmeans.labels_))
        parts = [
            f"{count} {word}{'' if count == 1 else 's'}"
            for count, word in ((used, "cluster"), (len(distinct), "distinct vector"))
        ]
        sentence = f"found {parts[0]} instead of {k}: the {things} have {parts[1]}"
        warnings.warn(sentence, stacklevel=stacklevel)
    return kmeans


def distances_to(vectors, centers, clusters):
    """Return the Euclidean distance of each vector [N, D] from its cluster's center, [N]."""
    return np.linalg.norm(vectors - centers[clusters], axis=1)


def distance_limits(vectors, centers, clusters):
    """Return for each of k clusters the distance beyond which a member is an outlier, [k].

    It is Tukey's fence: the upper quartile of the members' distances plus 1.5 times the range
    between the quartiles. Clusters with fewer than eight members take that of all vectors.

    Args:
        vectors, centers, clusters: the members [N, D], the centers [k, D], and the cluster of each
            member [N].
    """
    distances = distances_to(vectors, centers, clusters)
    groups = [distances[clusters == c] for c in range(len(centers))]
    groups = [group if len(group) >= FEW_IN_A_CLUSTER else distances for group in groups]
    low, high = np.array([np.quantile(group, (0.25, 0.75)) for group in groups]).T
    return high + 1.5 * (high - low)


def batches_of_like_length(lengths, batch_size, generator):
    """Return one pass over texts of these lengths [N], as a list of batches of their indices.

    Each batch has at most ``batch_size`` texts. The ``generator`` draws a random order. Texts of
    similar length share a batch, because a batch is padded to its longest text.
    """
    order = torch.randperm(len(lengths), generator=generator).numpy()
    batches = []
    for start in range(0, len(order), 32 * batch_size):
        chunk = order[start : start + 32 * batch_size]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += [chunk[first : first + batch_size] for first in range(0, len(chunk), batch_size)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def adam_at_two_rates(pretrained, rate, new, new_rate):
    """Return Adam with one learning rate for a backbone's parameters and another for new ones."""
    groups = [{"params": pretrained, "lr": rate}, {"params": new, "lr": new_rate}]
    return torch.optim.Adam(groups, fused=True)


@contextmanager
def seeded_training(device, seed):
    """Seed torch's global random sources within the block, for dropout; restore them after it.

    Float32 keeps all its digits there, whatever torch is allowed to round.
    """
    with exact_layers(), kept_random_states(device):
        torch.manual_seed(seed)
        yield
