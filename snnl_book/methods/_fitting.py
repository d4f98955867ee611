"""What the fits of several methods share: k-means, Adam, random numbers."""

from contextlib import contextmanager
from numbers import Integral

import torch

KMEANS_STARTS = 10  # of k-means on embeddings of texts


def check_clusters(k, count: int, things: str) -> None:
    """Raise ValueError unless k is a whole number from 1 to the number of points or texts."""
    if isinstance(k, bool) or not isinstance(k, Integral) or not 1 <= k <= count:
        allowed = f"a whole number from 1 to the number of {things}, {count}"
        raise ValueError(f"the number of clusters must be {allowed}, got {k!r}")


def k_means(vectors, k, seed, starts=KMEANS_STARTS):
    """Return scikit-learn's KMeans of vectors [N, D], the best of so many starts."""
    from sklearn.cluster import KMeans

    return KMeans(k, n_init=starts, random_state=seed).fit(vectors)


def adam_at_two_rates(brought_along, rate, new, new_rate):
    """Return Adam for what a backbone brings along, and at a rate of its own for what is new."""
    groups = [{"params": brought_along, "lr": rate}, {"params": new, "lr": new_rate}]
    return torch.optim.Adam(groups, fused=True)


@contextmanager
def separate_random_numbers(device, seed):
    """Seed torch's global sources, which dropout draws from, until the block is left."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def mixed_precision(device):
    """Return a block in which a GPU computes in bfloat16 where that does no harm."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
