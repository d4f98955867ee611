"""ClusterBERT's head: its loss, its first weights, and the numbers of its clusters (Eqs. 2-3)."""

import math

import numpy as np
import torch

FIRST_CONFIDENCE = 0.6
"""Mean probability of the likeliest cluster when the head starts: neither uniform nor certain."""


def clustering_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Compute Eqs. 2-3: the cross entropy between targets and the softmax of the head's logits.

    ``logits`` and ``targets`` are [B, k]; each row of the targets q sums to 1. Returns a number,
    the mean over the batch.

    >>> loss = clustering_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.5, 0.5]]))
    >>> round(loss.item() / math.log(2), 6)
    1.0
    """
    return -(targets * logits.log_softmax(dim=1)).sum(dim=1).mean()


def match_clusters(clusters: np.ndarray, before: np.ndarray, k: int) -> np.ndarray:
    """Renumber clusters so that as many texts as possible keep their number (Hungarian method).

    ``clusters`` and ``before`` are int arrays [N] of numbers from 0 to k - 1, and so is the result.

    >>> match_clusters(np.array([0, 0, 1]), np.array([1, 1, 0]), 2)
    array([1, 1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    shared = np.zeros((k, k), dtype=int)
    np.add.at(shared, (clusters, before), 1)
    return linear_sum_assignment(shared, maximize=True)[1][clusters]


def head_of_centroids(centroids: np.ndarray, embeddings: np.ndarray):
    """Return weight and bias of a head that assigns each embedding to the nearest centroid.

    Its logits are negative squared distances, without the term that all clusters share. They are
    scaled so that the likeliest cluster has a probability of 0.6 on average. The paper does not say
    how its head starts. ``centroids`` are [k, D], ``embeddings`` [N, D]; the weight is [k, D], the
    bias [k].

    >>> embeddings = np.array([[0.0, 0], [1, 0], [4, 0], [5, 0]])
    >>> centroids = np.array([[0.5, 0], [4.5, 0]])
    >>> weight, bias = head_of_centroids(centroids, embeddings)
    >>> (embeddings @ weight.T + bias).argmax(axis=1)
    array([0, 0, 1, 1])
    """
    from scipy.optimize import brentq
    from scipy.special import softmax

    weight, bias = 2 * centroids, -(centroids**2).sum(axis=1)
    logits = embeddings @ weight.T + bias

    def excess(log_scale):
        return softmax(math.exp(log_scale) * logits, axis=1).max(axis=1).mean() - FIRST_CONFIDENCE

    low, high = -20.0, 20.0
    scale = math.exp(brentq(excess, low, high)) if excess(low) < 0 < excess(high) else 1.0
    return scale * weight, scale * bias
