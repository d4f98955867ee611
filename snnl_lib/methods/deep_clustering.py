"""Deep clustering without labels: DEC, IDEC, VaDE and N2D on vectors or pixels, each as short as
its paper allows.

All start from one autoencoder d-500-500-2000-c and back (``pretrain``), which they copy, and are
used as scikit-learn's clusterings are: ``IDEC(10, seed=42).fit(features,
autoencoder).predict(features)``. A run that breaks down does not raise: ``diverged`` says why.

The papers train their autoencoders layer by layer; here, as in IDEC's and N2D's, it is trained as a
whole.
"""

import copy
import math
import os
from itertools import islice

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import skip_init
from tqdm import tqdm

from snnl_lib import require
from snnl_lib.cache import Checkpoint
from snnl_lib.metrics import check_points
from snnl_lib.models import Autoencoder
from snnl_lib.training import (
    BATCH_SIZE,
    Training,
    batches,
    binary_cross_entropy,
    build,
    forward,
    named_seed,
    squared_error,
    train_stack,
)


class ClusteringAutoencoder(Autoencoder):
    """The autoencoder d-500-500-2000-c and back that all four papers use, with a linear code.

    ``unit_range`` says that the data lie in [0, 1]: the reconstruction is then the logistic
    function of the output, and is compared by the binary cross entropy; else it is the output
    itself, compared by the squared error. ``in_features`` is d, ``code_size`` c.

    >>> output, hidden = ClusteringAutoencoder(784, 10, unit_range=True)(torch.zeros(2, 784))
    >>> output.shape, hidden["code"].shape
    (torch.Size([2, 784]), torch.Size([2, 10]))
    """

    def __init__(self, in_features, code_size, *, unit_range=False):
        super().__init__(in_features, code_size=code_size, linear_code=True)
        self.unit_range = unit_range

    def reconstruct(self, output):
        """Turn the output [B, D] into the reconstruction [B, D]."""
        return torch.sigmoid(output) if self.unit_range else output

    def error(self, output, x):
        """Return the error of a reconstruction, one number for each value [B, D]: what ``pretrain``
        and VaDE's likelihood are made of.
        """
        return (
            F.binary_cross_entropy_with_logits(output, x, reduction="none")
            if self.unit_range
            else (output - x).square() / 2
        )


def _reconstruction_error(unit_range):
    """The loss of ``pretrain``, as ``train`` takes it: the mean over points and features."""
    if unit_range:
        return lambda output, x, labels: F.binary_cross_entropy_with_logits(output, x)
    return lambda output, x, labels: F.mse_loss(output, x)


def pretrain(
    features,
    code_size,
    *,
    epochs=200,
    learning_rate=1e-3,
    seed=0,
    device="cpu",
    progress=None,
    checkpoint=None,
):
    """Train the autoencoder that the four methods start from, with Adam on its reconstruction error
    alone.

    Args:
        features: [N, D] numbers; where all lie in [0, 1] they are reconstructed by a logistic
            output (``ClusteringAutoencoder``).
        code_size: c, the number of units of the code; the papers take 10, or the number of
            clusters.
        epochs, learning_rate: passes over the points, and the rate of Adam.
        seed: settles the initial weights and the order of the points.
        device, progress, checkpoint: as in ``train``.

    Returns (ClusteringAutoencoder, History). Raises ValueError for features that are empty, not
    finite or of another shape.

    >>> autoencoder, history = pretrain(np.eye(20), code_size=2, epochs=3, seed=42)
    >>> autoencoder.unit_range, len(history.curve), bool(history.curve["loss"].is_monotonic_decreasing)
    (True, 3, True)
    """
    training = pretraining(
        features, code_size, epochs=epochs, learning_rate=learning_rate, seed=seed
    )
    training.checkpoint = checkpoint
    return training.model, train_stack([training], device, progress)[0]


def pretraining(features, code_size, *, epochs=200, learning_rate=1e-3, seed=0):
    features = _checked(features)
    unit_range = bool(features.min() >= 0 and features.max() <= 1)
    model = build(
        ClusteringAutoencoder, features.shape[1], code_size, unit_range=unit_range, seed=seed
    )
    unlabelled = np.zeros(len(features), dtype=np.int64)
    primary = binary_cross_entropy if unit_range else squared_error
    settings = {"epochs": epochs, "learning_rate": learning_rate, "seed": seed}
    return Training(model, features, unlabelled, primary, **settings)


def _checked(features, autoencoder=None):
    features = check_points(features).astype(np.float32)
    if not len(features):
        raise ValueError("features must be a non-empty array [N, D], got none")
    if autoencoder is not None and features.shape[1] != autoencoder.output.out_features:
        raise ValueError(
            f"features must be [N, {autoencoder.output.out_features}], which the autoencoder was made for, got {features.shape}"
        )
    return features


class _Method:
    """What the four share: ``fit(features, autoencoder)``, ``codes(features)``,
    ``predict(features)``, ``curve`` and ``diverged``.

    ``k`` clusters; ``seed`` settles where the centroids start and the order of the points;
    ``device`` as torch names it; with a text as ``progress`` there is a progress bar of that name;
    from the file ``checkpoint`` a training that was killed goes on (it goes at the end).
    """

    def __init__(self, k, *, seed=0, device="cpu", progress=None, checkpoint=None):
        self.k, self.seed, self.device, self.progress, self.checkpoint = (
            k,
            seed,
            device,
            progress,
            checkpoint,
        )
        self.curve, self.diverged = pd.DataFrame(), ""

    def _start(self, features, autoencoder):
        """Check the features and take a copy of the autoencoder: returns the features on the
        device, and batches of their indices without end.
        """
        features, k = _checked(features, autoencoder), self.k
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= len(features):
            raise ValueError(
                f"the number of clusters must be a whole number from 1 to the number of points, {len(features)}, got {k!r}"
            )
        self.autoencoder, self.diverged = copy.deepcopy(autoencoder).to(self.device).train(), ""
        order = torch.Generator().manual_seed(named_seed(self.seed, "batches"))
        return torch.as_tensor(features, device=self.device), batches(
            len(features), BATCH_SIZE, order
        )

    def _end(self, rows, parameters):
        """Keep the curve, and look for what the last step may have broken, which no loss shows."""
        self.autoencoder.eval()
        self.curve = pd.DataFrame(rows)
        if not self.diverged and not all(values.isfinite().all() for values in parameters):
            self.diverged = "the weights were not finite after the last step"
        return self

    def _bar(self, first, last):
        steps = range(first, last)
        return (
            steps
            if self.progress is None
            else tqdm(steps, desc=self.progress, leave=False, initial=first, total=last)
        )

    def codes(self, features):
        """Return the codes of features [N, D], as float32 array [N, c]."""
        return forward(self.autoencoder.eval(), _checked(features, self.autoencoder), layer="code")


# ---------------------------------------------------------------- DEC and IDEC


def soft_assignment(codes, centroids):
    """Compute DEC's Eq. 1, q [N, k]: how far each of the codes [N, c] belongs to each of the
    centroids [k, c], by Student's t with one degree of freedom.

    >>> soft_assignment(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]])).numpy().round(3)
    array([[0.833, 0.167],
           [0.5  , 0.5  ]], dtype=float32)
    """
    nearness = 1 / (
        1 + torch.cdist(codes, centroids, compute_mode="donot_use_mm_for_euclid_dist").square()
    )
    return nearness / nearness.sum(dim=1, keepdim=True)


def target_distribution(q):
    """Compute DEC's Eq. 3 (ClusterBERT's Eq. 5), p [N, k]: the assignments q [N, k] squared, so
    that the sure ones weigh more, each cluster by its share.

    >>> target_distribution(torch.tensor([[0.8, 0.2], [0.4, 0.6]])).numpy().round(3)
    array([[0.914, 0.086],
           [0.229, 0.771]], dtype=float32)
    """
    weight = q.square() / q.sum(dim=0)
    return weight / weight.sum(dim=1, keepdim=True)


class DEC(_Method):
    """Deep embedded clustering (Xie, Girshick and Farhadi, 2016).

    Starts from k-means on the codes (20 starts, Sec. 3.2), and moves encoder and centroids so that
    the assignments q (Eq. 1) become their own sharpened targets p (Eq. 3), by the divergence KL(p
    || q) (Eq. 2). The decoder is thrown away. Stochastic gradient descent with a rate of 0.01 and a
    momentum of 0.9, batches of 256. Every ``update_interval`` steps the targets are computed anew;
    it ends when fewer than a share of ``tolerance`` of the points have changed cluster since
    (0.001, Sec. 4.3), or after ``max_steps``.

    ``curve`` has a row for each update: ``step``, ``loss`` (the divergence, mean over points) and
    ``changed`` (a share).

    ``k``, ``seed``, ``device`` and ``progress`` are what all four methods take: the number of
    clusters, what settles where they start and the order of the points, a torch device, and the
    name of a progress bar or None.

    >>> x = np.repeat(np.eye(3), 20, axis=0)  # three points, twenty times each
    >>> autoencoder, _ = pretrain(x, code_size=2, epochs=20, seed=42)
    >>> np.unique(DEC(3, seed=42, max_steps=20).fit(x, autoencoder).predict(x), return_counts=True)[1]
    array([20, 20, 20])
    """

    def __init__(
        self, k, *, seed=0, max_steps=20_000, update_interval=140, tolerance=0.001, **settings
    ):
        super().__init__(k, seed=seed, **settings)
        self.max_steps, self.update_interval, self.tolerance = max_steps, update_interval, tolerance

    def _optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def _loss(self, x, target):
        """Return the loss of a batch x [B, D] with targets [B, k]."""
        q = soft_assignment(self.autoencoder.encode(x)[0], self.centroids)
        return F.kl_div(q.log(), target, reduction="batchmean")

    def fit(self, features, autoencoder):
        """Cluster features [N, D] from a pretrained autoencoder, which is left as it is. Returns
        self. Raises ValueError for bad features, or k > N.
        """
        from sklearn.cluster import KMeans

        x, order = self._start(features, autoencoder)
        kmeans = KMeans(self.k, n_init=20, random_state=named_seed(self.seed, "centroids")).fit(
            self.codes(features)
        )
        self.centroids = nn.Parameter(
            torch.as_tensor(kmeans.cluster_centers_, dtype=x.dtype, device=self.device)
        )
        parameters = [*self.autoencoder.parameters(), self.centroids]
        optimizer = self._optimizer(parameters)
        assigned, rows, start = kmeans.labels_, [], 0
        kept = Checkpoint(
            self.checkpoint,
            autoencoder=self.autoencoder,
            centroids=self.centroids,
            optimizer=optimizer,
        )
        if reached := kept.restore():
            start, rows, assigned = reached["step"], reached["rows"], reached["assigned"].numpy()
            order = islice(order, start, None)
        for step in self._bar(start, self.max_steps):
            if step % self.update_interval == 0:
                kept.save_if_due(step=step, rows=rows, assigned=torch.as_tensor(assigned))
                q = self.memberships(features)
                target = target_distribution(torch.as_tensor(q, device=self.device))
                changed, assigned = float(np.mean(q.argmax(axis=1) != assigned)), q.argmax(axis=1)
                divergence = F.kl_div(
                    torch.as_tensor(q, device=self.device).log(), target, reduction="batchmean"
                ).item()
                rows.append({"step": step, "loss": divergence, "changed": changed})
                if not math.isfinite(divergence):
                    self.diverged = f"the loss was {divergence} at step {step}"
                if self.diverged or (step and changed < self.tolerance):
                    break
                self.autoencoder.train()
            batch = next(order).to(self.device)
            optimizer.zero_grad(set_to_none=True)
            self._loss(x[batch], target[batch]).backward()
            optimizer.step()
        kept.remove()
        return self._end(rows, parameters)

    @torch.no_grad()
    def memberships(self, features):
        """Return q of Eq. 1 for features [N, D], as float32 array [N, k] whose rows sum to 1."""
        return (
            soft_assignment(
                torch.as_tensor(self.codes(features), device=self.device), self.centroids
            )
            .cpu()
            .numpy()
        )

    def predict(self, features):
        """Return the cluster of each of the features [N, D], a whole number in [0, k): the largest
        membership.
        """
        return self.memberships(features).argmax(axis=1)


class IDEC(DEC):
    """Improved deep embedded clustering (Guo, Gao, Liu and Yin, 2017): DEC that keeps the decoder.

    The loss (Eq. 8) is the mean squared error of the reconstruction (Eq. 9) plus ``gamma`` times
    DEC's divergence (Eq. 10); Adam with a ``learning_rate`` of 0.001, gamma 0.1, the targets anew
    every 140 steps, tolerance 0.001 (Sec. 4.2). The other ``settings`` and ``k`` are DEC's.

    >>> x = np.repeat(np.eye(3), 20, axis=0)  # three points, twenty times each
    >>> autoencoder, _ = pretrain(x, code_size=2, epochs=20, seed=42)
    >>> np.unique(IDEC(3, seed=42, max_steps=20).fit(x, autoencoder).predict(x), return_counts=True)[1]
    array([20, 20, 20])
    """

    def __init__(self, k, *, gamma=0.1, learning_rate=0.001, **settings):
        super().__init__(k, **settings)
        self.gamma, self.learning_rate = gamma, learning_rate

    def _optimizer(self, parameters):
        return torch.optim.Adam(parameters, lr=self.learning_rate, fused=True)

    def _loss(self, x, target):
        code, _ = self.autoencoder.encode(x)
        output, _ = self.autoencoder.decode(code)
        q = soft_assignment(code, self.centroids)
        return F.mse_loss(self.autoencoder.reconstruct(output), x) + self.gamma * F.kl_div(
            q.log(), target, reduction="batchmean"
        )


# ---------------------------------------------------------------- VaDE


class VaDE(_Method):
    """Variational deep embedding (Jiang, Zheng, Tan, Tang and Zhou, 2017): a variational
    autoencoder whose prior is a Gaussian mixture.

    A cluster is drawn with probability pi, a code from the cluster's Gaussian (mean, diagonal
    variance), and the point from the decoder (Eqs. 1-3): Bernoulli for data in [0, 1] (Eq. 4), else
    Gaussian of variance 1 (Eq. 5). The encoder gives the mean and the variance of a point's code.
    Starts from a Gaussian mixture of the pretrained autoencoder's codes, and with the mixture's
    mean variance as the variance of every point's code (the paper does not say). Adam with a rate
    of 0.002, times 0.9 every 10 of the ``epochs`` (Sec. 4.3), batches of 256 (100 in the paper).

    ``curve`` has a row for each epoch: ``epoch``, ``loss`` (the negative of the evidence lower
    bound, Eq. 12, mean over points).

    ``k``, ``seed``, ``device`` and ``progress`` are what all four methods take: the number of
    clusters, what settles where they start and the order of the points, a torch device, and the
    name of a progress bar or None.

    >>> x = np.repeat(np.eye(3), 20, axis=0)  # three points, twenty times each
    >>> autoencoder, _ = pretrain(x, code_size=2, epochs=20, seed=42)
    >>> vade = VaDE(3, seed=42, epochs=2).fit(x, autoencoder)
    >>> vade.predict(x).shape, list(vade.curve.columns)
    ((60,), ['epoch', 'loss'])
    """

    def __init__(self, k, *, seed=0, epochs=300, **settings):
        super().__init__(k, seed=seed, **settings)
        self.epochs = epochs

    def fit(self, features, autoencoder):
        """Cluster features [N, D] from a pretrained autoencoder, which is left as it is. Returns
        self. Raises ValueError for bad features, or k > N.
        """
        from sklearn.mixture import GaussianMixture

        x, order = self._start(features, autoencoder)
        codes = self.codes(features).astype(
            np.float64
        )  # a mixture of tight clusters breaks down in float32
        mixture = GaussianMixture(
            self.k,
            covariance_type="diag",
            n_init=10,
            random_state=named_seed(self.seed, "centroids"),
        ).fit(codes)
        self.logits, self.means, self.log_variances = (
            nn.Parameter(torch.as_tensor(values, dtype=x.dtype, device=self.device))
            for values in (np.log(mixture.weights_), mixture.means_, np.log(mixture.covariances_))
        )
        code = self.autoencoder.code
        self.spread = skip_init(
            nn.Linear, code.in_features, code.out_features, device=self.device
        )  # the log variance of a point's code
        nn.init.zeros_(self.spread.weight)
        within = (mixture.weights_[:, None] * mixture.covariances_).sum(axis=0)
        self.spread.bias.data = torch.as_tensor(np.log(within), dtype=x.dtype, device=self.device)
        parameters = [
            *self.autoencoder.parameters(),
            *self.spread.parameters(),
            self.logits,
            self.means,
            self.log_variances,
        ]
        optimizer = torch.optim.Adam(parameters, lr=0.002, fused=True)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
        noise = torch.Generator(self.device).manual_seed(named_seed(self.seed, "noise"))
        steps, rows, start = math.ceil(len(x) / BATCH_SIZE), [], 0
        learned = {f"parameter {number}": value for number, value in enumerate(parameters)}
        kept = Checkpoint(
            self.checkpoint, optimizer=optimizer, schedule=schedule, noise=noise, **learned
        )
        if reached := kept.restore():
            start, rows = reached["epoch"], reached["rows"]
            order = islice(order, start * steps, None)
        self.autoencoder.train()
        for epoch in self._bar(start, self.epochs):
            total = torch.zeros((), device=self.device)
            for _ in range(steps):
                batch = next(order).to(self.device)
                optimizer.zero_grad(set_to_none=True)
                loss = self._loss(x[batch], noise)
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(batch)
            schedule.step()
            rows.append({"epoch": epoch, "loss": total.item() / len(x)})
            if not math.isfinite(rows[-1]["loss"]):
                self.diverged = f"the loss was {rows[-1]['loss']} in epoch {epoch}"
                break
            kept.save_if_due(epoch=epoch + 1, rows=rows)
        kept.remove()
        return self._end(rows, parameters)

    def log_joint(self, codes):
        """Compute log p(c) p(z|c) (Eqs. 1 and 2) of codes z [B, c], for each cluster: [B, k]."""
        deviations = (codes[:, None] - self.means).square() / self.log_variances.exp()
        return (
            F.log_softmax(self.logits, dim=0)
            - (math.log(2 * math.pi) + self.log_variances + deviations).sum(dim=2) / 2
        )

    def _loss(self, x, noise):
        """The negative of Eq. 12, with one sample of the code for each point."""
        mean, hidden = self.autoencoder.encode(x)
        log_variance = self.spread(hidden["encoder3"])
        draw = torch.randn(mean.shape, generator=noise, device=mean.device, dtype=mean.dtype)
        z = mean + (log_variance / 2).exp() * draw
        output, _ = self.autoencoder.decode(z)
        log_gamma = F.log_softmax(
            self.log_joint(z), dim=1
        )  # Eq. 16: the clusters of a point, from its code
        expected = (
            self.log_variances
            + (log_variance.exp()[:, None] + (mean[:, None] - self.means).square())
            / self.log_variances.exp()
        )
        gaussian = (log_gamma.exp() * expected.sum(dim=2)).sum(dim=1) / 2 - (1 + log_variance).sum(
            dim=1
        ) / 2
        cluster = (log_gamma.exp() * (log_gamma - F.log_softmax(self.logits, dim=0))).sum(dim=1)
        return (self.autoencoder.error(output, x).sum(dim=1) + gaussian + cluster).mean()

    @torch.no_grad()
    def predict(self, features):
        """Return the cluster of each of the features [N, D], a whole number in [0, k): the most
        probable one of the code's mean (Eq. 16).
        """
        return (
            self.log_joint(torch.as_tensor(self.codes(features), device=self.device))
            .argmax(dim=1)
            .cpu()
            .numpy()
        )


# ---------------------------------------------------------------- N2D


def umap(**settings):
    """Return a UMAP that computes in one thread: numba, started with more, raises torch's number of
    threads too, whatever it was set to.

    Raises SnnlError where umap-learn is not installed.
    """
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    require("umap")
    from umap import UMAP

    return UMAP(n_jobs=1, **settings)


class N2D(_Method):
    """(Not too) deep clustering (McConville, Santos-Rodriguez, Piechocki and Craddock, 2021): UMAP
    of the codes, then a Gaussian mixture.

    UMAP to as many dimensions as clusters, 20 neighbours, minimal distance 0; a mixture with full
    covariances on the result. Nothing is trained beyond the autoencoder. ``manifold`` [N, k] is
    what was clustered, ``clusters`` [N] the result. Needs umap-learn, and two points more than
    clusters (``fit`` raises ValueError).

    ``k``, ``seed``, ``device`` and ``progress`` are what all four methods take: the number of
    clusters, what settles where they start and the order of the points, a torch device, and the
    name of a progress bar or None.

    >>> x = np.random.default_rng(42).random((60, 5))
    >>> autoencoder, _ = pretrain(x, code_size=2, epochs=1, seed=42)
    >>> N2D(2, seed=42).fit(x, autoencoder).manifold.shape
    (60, 2)
    """

    def fit(self, features, autoencoder):
        """Cluster features [N, D] from a pretrained autoencoder, which is left as it is. Returns
        self. Raises ValueError for bad features, or k > N - 2.
        """
        from sklearn.mixture import GaussianMixture

        x, _ = self._start(features, autoencoder)
        if len(x) < self.k + 2:
            raise ValueError(
                f"the number of points must be at least the number of clusters and 2 more, {self.k + 2}, which UMAP needs, got {len(x)}"
            )
        self.umap = umap(
            n_components=self.k,
            n_neighbors=20,
            min_dist=0.0,
            random_state=named_seed(self.seed, "umap"),
        )
        self.manifold = self.umap.fit_transform(self.codes(features))
        self.mixture = GaussianMixture(
            self.k, n_init=10, random_state=named_seed(self.seed, "centroids")
        )
        self.clusters = self.mixture.fit_predict(self.manifold.astype(np.float64))
        return self

    def predict(self, features):
        """Return the cluster of each of other features [N, D], a whole number in [0, k), which UMAP
        lays among those it was fitted on.
        """
        return self.mixture.predict(self.umap.transform(self.codes(features)).astype(np.float64))
