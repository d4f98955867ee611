"""DEC (Xie, Girshick and Farhadi, 2016) and IDEC (Guo, Gao, Liu and Yin, 2017)."""

import math
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from numbers import Integral

import numpy as np
import torch
import torch.nn.functional as F

from snnl_book.methods._fitting import k_means
from snnl_book.methods._saving import as_it_was_on_error
from snnl_book.methods.deep_clustering._method import DeepClustering
from snnl_lib.checkpoint import Checkpoint
from snnl_lib.training import named_seed, progress_bar, take_step

KMEANS_STARTS = 20  # DEC, Sec. 3.2


def soft_assignment(codes, centroids):
    """Compute DEC's Eq. 1: how much each code belongs to each centroid.

    ``codes`` are [N, c] and ``centroids`` [k, c]. The result q [N, k] uses Student's t with one
    degree of freedom, and its rows sum to 1.

    >>> soft_assignment(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]])).numpy().round(3)
    array([[0.833, 0.167],
           [0.5  , 0.5  ]], dtype=float32)
    """
    distances = torch.cdist(codes, centroids, compute_mode="donot_use_mm_for_euclid_dist")
    nearness = 1 / (1 + distances.square())
    return nearness / nearness.sum(dim=1, keepdim=True)


def target_distribution(q):
    """Compute DEC's Eq. 3 (ClusterBERT's Eq. 5): the assignments q, sharpened.

    ``q`` [N, k] is squared, so that confident assignments weigh more, and each cluster is divided
    by its size. The rows of the result p [N, k] sum to 1. A cluster without any q gets no p.

    >>> target_distribution(torch.tensor([[0.8, 0.2], [0.4, 0.6]])).numpy().round(3)
    array([[0.914, 0.086],
           [0.229, 0.771]], dtype=float32)
    """
    sizes = q.sum(dim=0).clamp_min(torch.finfo(q.dtype).tiny)  # an empty cluster would be 0 / 0
    weight = q.square() / sizes
    return weight / weight.sum(dim=1, keepdim=True)


def divergence(q, target):
    """Return DEC's Eq. 2, KL(p || q) of assignments and targets [N, k]: the mean over points."""
    return F.kl_div(q.log(), target, reduction="batchmean")


@dataclass(eq=False, repr=False)
class DEC(DeepClustering):
    """Deep embedded clustering (Xie, Girshick and Farhadi, 2016).

    DEC starts from k-means on the codes (20 starts, Sec. 3.2). It then moves encoder and centroids
    so that the assignments q (Eq. 1) approach their own sharpened targets p (Eq. 3). The loss is
    the divergence KL(p || q) (Eq. 2), here its mean over points. The decoder is not used. The
    optimiser is stochastic gradient descent with a rate of 0.01 (Sec. 4.3), a momentum of 0.9 and
    batches of 256. The autoencoder must come from ``pretrain(..., normalize=True)``, and X is
    scaled as it was. With ``max_steps=0`` the result is k-means on the pretrained codes.

    After ``fit``: ``labels_`` [N] are the clusters of X, ``n_features_in_`` is D. ``curve`` has a
    row each time the targets are computed: ``step``, ``loss`` (the divergence, mean over points)
    and ``changed`` (a share). ``diverged`` is the reason for an early stop, or an empty text.

    Args:
        k: the number of clusters.
        seed: determines where the centroids start, and the order of the points.
        max_steps: the largest number of steps (20,000 in IDEC's published code).
        update_interval: the number of steps between two computations of the targets.
        tolerance: training ends when fewer than this share of the points have changed cluster
            since the targets were last computed (0.001, Sec. 4.3).
        device: as torch names it.
        progress: the name of a progress bar, None for none.
        checkpoint: a file from which a killed training continues, removed at its end. None keeps
            no file.
        pretrain_epochs: epochs of the autoencoder, if ``fit`` is given none.
        code_size: units of that autoencoder's code. The default is k, as in N2D's code (DEC, IDEC
            and VaDE use 10).

    >>> x = np.repeat(np.eye(3), 20, axis=0)  # three points, twenty times each
    >>> clusters = DEC(3, seed=42, max_steps=20, pretrain_epochs=20).fit_predict(x)
    >>> np.unique(clusters, return_counts=True)[1]
    array([20, 20, 20])
    """

    _: KW_ONLY
    max_steps: int = 20_000
    update_interval: int = 140
    tolerance: float = 0.001

    _NORMALIZED = True
    _FITTED_TENSORS = ("centroids",)
    _RANGES = (("max_steps", Integral), ("update_interval", Integral, 1), ("tolerance",))

    def _optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def _loss(self, x, target):
        """Return the loss of a batch x [B, D] with targets [B, k]."""
        code, _ = self.autoencoder.encode(x)
        return divergence(soft_assignment(code, self.centroids), target)

    @as_it_was_on_error
    def fit(self, X, y=None, *, autoencoder=None):
        """Cluster X [N, D] and return self; ``y`` is ignored.

        A given ``autoencoder`` is copied and not changed; without one, ``fit`` pretrains its own.
        Raises ValueError for an X that is empty or not finite, for k > N, for a parameter that is
        out of its range, and for an autoencoder of features that were not normalised; TypeError for
        an autoencoder given as ``y``; Diverged if the pretraining breaks down.
        """
        X, x, order = self._start(X, y, autoencoder)
        seed = named_seed(self.seed, "centroids")
        kmeans = k_means(self._codes(X), self.k, seed, KMEANS_STARTS, "points", stacklevel=4)
        self.centroids = self._parameter(kmeans.cluster_centers_)
        parameters = [*self.autoencoder.parameters(), self.centroids]
        optimizer = self._optimizer(parameters)
        saved = Checkpoint(
            self.checkpoint,
            self._training(X=X, start=kmeans.cluster_centers_),
            optimizer=optimizer,
            autoencoder=self.autoencoder,
            centroids=self.centroids,
        )
        first = {"step": 0, "rows": [], "assigned": torch.as_tensor(kmeans.labels_)}
        state = saved.restore() or first
        rows, clusters = state["rows"], state["assigned"].numpy()
        order = islice(order, state["step"], None)
        for step in progress_bar(self.progress, state["step"], self.max_steps):
            if step % self.update_interval == 0:
                saved.save_if_due(step=step, rows=rows, assigned=torch.as_tensor(clusters))
                target, clusters, row = self._new_targets(X, step, clusters)
                rows.append(row)
                if self.diverged or (step and row["changed"] < self.tolerance):
                    break
            batch = next(order).to(self.device)
            take_step(optimizer, self._loss(x[batch], target[batch]))
        saved.remove()
        return self._end(X, rows, parameters)

    def _new_targets(self, X, step, clusters):
        """Return new targets [N, k], the points' clusters by now, and a row of the curve.

        ``clusters`` [N] are those at the last computation of the targets. A loss that is not
        finite is recorded in ``diverged``.
        """
        memberships = self._memberships(X)
        now = memberships.argmax(axis=1)
        q = torch.as_tensor(memberships, device=self.device)
        target = target_distribution(q)
        loss = divergence(q, target).item()
        if not math.isfinite(loss):
            self.diverged = f"the loss was {loss} at step {step}"
        self.autoencoder.train()
        return target, now, {"step": step, "loss": loss, "changed": float(np.mean(now != clusters))}

    def memberships(self, X):
        """Return q of Eq. 1 for X [N, D], as float32 array [N, k] whose rows sum to 1.

        Raises as ``predict``, which takes the largest.
        """
        return self._memberships(self._validated(X))

    @torch.no_grad()
    def _memberships(self, X):
        codes = torch.as_tensor(self._codes(X), device=self.device)
        return soft_assignment(codes, self.centroids).cpu().numpy()

    def _assign(self, X):
        return self._memberships(X).argmax(axis=1)


@dataclass(eq=False, repr=False)
class IDEC(DEC):
    """Improved deep embedded clustering (Guo, Gao, Liu and Yin, 2017): DEC that keeps the decoder.

    The loss (Eq. 8) is the squared error of the reconstruction, ``|x - x'|^2`` (Eq. 9), plus
    ``gamma`` (0.1) times DEC's divergence (Eq. 10). Both are summed as printed and divided by the
    number of points. The authors' code takes the mean over the D features in Eq. 9. A ``gamma`` of
    0.1 D has the same effect here, because Adam ignores a common factor. As printed, the centroids
    hardly count, and codes that the pretraining left moving drift away from them. The optimiser is
    Adam with a ``learning_rate`` of 0.001, as in the authors' code for MNIST. ``k``, ``seed``,
    ``max_steps``, ``update_interval``, ``tolerance``, ``device``, ``progress``, ``checkpoint``,
    ``pretrain_epochs`` and ``code_size`` are DEC's, and so are the attributes after ``fit``.

    >>> from snnl_book.methods.deep_clustering import pretrain
    >>> x = np.repeat(np.eye(3), 20, axis=0)  # three points, twenty times each
    >>> autoencoder, _ = pretrain(x, code_size=2, normalize=True, epochs=40, seed=42)
    >>> idec = IDEC(3, seed=42, max_steps=20, learning_rate=1e-4)
    >>> clusters = idec.fit(x, autoencoder=autoencoder).predict(x)
    >>> np.unique(clusters, return_counts=True)[1]
    array([20, 20, 20])
    """

    _: KW_ONLY
    gamma: float = 0.1
    learning_rate: float = 0.001

    _RANGES = (*DEC._RANGES, ("gamma learning_rate",))

    def _optimizer(self, parameters):
        return torch.optim.Adam(parameters, lr=self.learning_rate, fused=True)

    def _loss(self, x, target):
        code, _ = self.autoencoder.encode(x)
        output, _ = self.autoencoder.decode(code)
        clustering = divergence(soft_assignment(code, self.centroids), target)
        error = (self.autoencoder.reconstruct(output) - x).square().sum(dim=1).mean()
        return error + self.gamma * clustering
