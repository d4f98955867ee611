"""Deep clustering without labels, on vectors or pixels: DEC, IDEC, VaDE and N2D.

They are scikit-learn's estimators: ``IDEC(10, seed=42).fit_predict(X)`` clusters the rows of X,
``predict`` assigns new ones and ``transform`` returns their codes. All start from an autoencoder
d-500-500-2000-c and back, which they train themselves, or copy from
``fit(X, autoencoder=autoencoder)`` (``pretrain``), so that several can share one. A clustering that
breaks down does not raise: ``diverged`` says why.

DEC and IDEC take an autoencoder of normalised features with a linear output (``normalize=True``),
as their papers do; VaDE one of the features as they are, in its own likelihood. N2D takes either:
its authors' code has the squared error and a linear output, and does not normalise. DEC's and
IDEC's papers train layer by layer, on features of which a fifth is dropped, and then the whole;
here, as in N2D, the whole is trained at once, and nothing is dropped.
"""

import copy
import math
import os
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from sklearn.base import ClusterMixin
from torch import nn
from torch.nn.utils import skip_init

from snnl_book import require
from snnl_book.methods._fitting import check_clusters, k_means
from snnl_book.methods._saving import Estimator, as_it_was_on_error
from snnl_lib import training
from snnl_lib.checkpoint import Checkpoint
from snnl_lib.metrics import check_points
from snnl_lib.models import Autoencoder
from snnl_lib.seeds import BATCH_SIZE
from snnl_lib.training import batches, build, forward, named_seed, take_step


class ClusteringAutoencoder(Autoencoder):
    """The autoencoder d-500-500-2000-c and back that all four papers use, with a linear code.

    ``unit_range`` says that the data lie in [0, 1]: the reconstruction is then the logistic
    function of the output, and is compared by the binary cross entropy; else it is the output
    itself, compared by the squared error. ``in_features`` is d, ``code_size`` c. ``scale`` is what
    features are multiplied by before the network sees them, None where they stay as they are; the
    methods do so, ``forward`` does not.

    >>> output, hidden = ClusteringAutoencoder(784, 10, unit_range=True)(torch.zeros(2, 784))
    >>> output.shape, hidden["code"].shape
    (torch.Size([2, 784]), torch.Size([2, 10]))
    """

    def __init__(self, in_features, code_size, *, unit_range=False, scale=None):
        super().__init__(in_features, code_size=code_size, linear_code=True)
        self.unit_range = unit_range
        self.scale = scale

    def reconstruct(self, output):
        """Turn the output [B, D] into the reconstruction [B, D]."""
        return torch.sigmoid(output) if self.unit_range else output

    def error(self, output, x):
        """Return the error of each value of a reconstruction, [B, D], in VaDE's likelihood."""
        if self.unit_range:
            return F.binary_cross_entropy_with_logits(output, x, reduction="none")
        return (output - x).square() / 2


def pretrain(features, code_size, *, normalize=False, epochs=200, updates=None, seed=0, **settings):
    """Train the autoencoder that the four methods start from, on its reconstruction error alone.

    Args:
        features: [N, D] numbers.
        code_size: c, the number of units of the code; the papers take 10, or the number of
            clusters.
        normalize: for DEC and IDEC: the features are multiplied by one number, so that
            ``(1/D) |x|^2`` has a mean of 1 (DEC, Sec. 4.1), and reconstructed by a linear output
            and the squared error (its mean over points and features, as in the authors' code). Else
            they stay as they are, and where all lie in [0, 1] they are reconstructed by a logistic
            output and the binary cross entropy (``ClusteringAutoencoder``).
        epochs, updates: passes over the points, or as many updates whatever their number.
        seed: settles the initial weights and the order of the points.
        settings: ``learning_rate`` of Adam (0.001), ``device``, ``progress`` and ``checkpoint``,
            as in ``train``.

    Returns (ClusteringAutoencoder, History). Raises ValueError for features that are empty, not
    finite or of another shape, or all 0 and to be normalised.

    >>> autoencoder, history = pretrain(np.eye(20), code_size=2, epochs=3, seed=42)
    >>> autoencoder.unit_range, history.curve["epoch"].tolist()
    (True, [0, 1, 2])
    >>> bool(history.curve["loss"].is_monotonic_decreasing)
    True
    >>> autoencoder, _ = pretrain(np.eye(25), code_size=2, normalize=True, updates=3)
    >>> autoencoder.unit_range, autoencoder.scale
    (False, 5.0)
    """
    features, scale = _checked(features), None
    if normalize:
        if not features.any():
            raise ValueError("features must not all be 0 where they are to be normalised")
        scale = float(np.square(features, dtype=np.float64).mean() ** -0.5)
        features = features * np.float32(scale)
    unit_range = bool(not normalize and features.min() >= 0 and features.max() <= 1)
    kind = {"unit_range": unit_range, "scale": scale}
    model = build(ClusteringAutoencoder, features.shape[1], code_size, **kind, seed=seed)
    unlabelled = np.zeros(len(features), dtype=np.int64)
    primary = training.binary_cross_entropy if unit_range else training.squared_error
    if updates:  # one epoch of that many steps
        epochs = 1
    history = training.train(
        model,
        features,
        unlabelled,
        primary,
        epochs=epochs,
        steps_per_epoch=updates,
        seed=seed,
        **settings,
    )
    return model, history


def _checked(features, autoencoder=None):
    features = check_points(features).astype(np.float32)
    if not len(features):
        raise ValueError("features must be a non-empty array [N, D], got none")
    if autoencoder is not None and features.shape[1] != (size := autoencoder.output.out_features):
        wanted = f"[N, {size}], which the autoencoder was made for"
        raise ValueError(f"features must be {wanted}, got {features.shape}")
    return features


def _scaled(features, autoencoder):
    features, scale = _checked(features, autoencoder), autoencoder.scale
    return features if scale is None else features * np.float32(scale)


@dataclass(eq=False, repr=False)
class _Method(ClusterMixin, Estimator):
    """What the four share: where they start, ``transform``, ``save`` and ``load``."""

    k: int
    _: KW_ONLY
    seed: int = 0
    device: str = "cpu"
    progress: str | None = None
    checkpoint: Path | None = None
    pretrain_epochs: int = 200
    code_size: int | None = None

    _NORMALIZED = None  # whether it takes an autoencoder of normalised features; None: either
    _MORE_POINTS = 0  # than clusters, which it needs
    _FITTED = ()  # names of the tensors that it predicts by, beside the autoencoder's

    def _start(self, X, y, autoencoder):
        """Check X [N, D] and take a copy of the autoencoder, or pretrain one.

        Returns X as it was checked, what of it is on the device, scaled for the autoencoder, and
        batches of indices without end.
        """
        if isinstance(y, nn.Module):  # which y, ignored, would hide
            raise TypeError("an autoencoder is given by its name: fit(X, autoencoder=...)")
        with as_it_was_on_error(self):
            X = self._validated(X, reset=True)
            check_clusters(self.k, len(X), "points")
            if len(X) < (needed := self.k + self._MORE_POINTS):
                wanted = f"the number of clusters and {self._MORE_POINTS} more, {needed}"
                raise ValueError(f"the number of points must be at least {wanted}, got {len(X)}")
            if autoencoder is None:
                code_size, settings = self.code_size or self.k, {"seed": self.seed}
                settings |= {"epochs": self.pretrain_epochs, "normalize": bool(self._NORMALIZED)}
                settings |= {"device": self.device, "progress": self.progress}
                autoencoder, history = pretrain(X, code_size, **settings)
                training.raise_if_diverged(history)
            elif not isinstance(autoencoder, ClusteringAutoencoder):
                kind = type(autoencoder).__name__
                raise TypeError(f"autoencoder must be one that pretrain returned, got {kind}")
            elif autoencoder.unit_range and (X.min() < 0 or X.max() > 1):
                raise ValueError("the autoencoder is of features in [0, 1], and X has others")
            elif self._NORMALIZED not in (None, autoencoder.scale is not None):
                wanted = f"pretrain(..., normalize={self._NORMALIZED})"
                raise ValueError(f"{type(self).__name__} starts from an autoencoder of {wanted}")
        features = _scaled(X, autoencoder)
        self.autoencoder, self.diverged = copy.deepcopy(autoencoder).to(self.device).train(), ""
        shuffling = torch.Generator().manual_seed(named_seed(self.seed, "batches"))
        order = batches(len(features), BATCH_SIZE, shuffling)
        return X, torch.as_tensor(features, device=self.device), order

    def _end(self, X, rows=(), parameters=()):
        """Keep the curve, and look for what the last step may have broken, which no loss shows."""
        self.autoencoder.eval()
        self.curve = pd.DataFrame(rows)
        if not self.diverged and not all(values.isfinite().all() for values in parameters):
            self.diverged = "the weights were not finite after the last step"
        self.labels_ = self._assign(X)
        return self

    def _parameter(self, values):
        return nn.Parameter(torch.as_tensor(values, dtype=torch.float32, device=self.device))

    def predict(self, X):
        """Return the cluster of each row of X [N, D], as int array [N] of numbers in [0, k).

        Raises ValueError for an X that is empty, not finite or of another width, NotFittedError
        before ``fit``.
        """
        return self._assign(self._validated(X))

    def transform(self, X):
        """Return the codes of X [N, D], as float32 array [N, c]. Raises as ``predict``."""
        return self._codes(self._validated(X))

    def _codes(self, X):
        return forward(self.autoencoder.eval(), _scaled(X, self.autoencoder), layer="code")

    def __sklearn_is_fitted__(self):
        return hasattr(self, "labels_")

    def _saved_parts(self):
        network = self.autoencoder
        tensors = {f"autoencoder.{name}": value for name, value in network.state_dict().items()}
        facts = {name: getattr(network, name) for name in ("unit_range", "scale")}
        return tensors | {name: getattr(self, name) for name in self._FITTED}, {"network": facts}

    def _load_parts(self, tensors, facts, folder):
        network = {name: tensors[f"autoencoder.{name}.bias"] for name in ("output", "code")}
        sizes = map(len, network.values())
        self.autoencoder = ClusteringAutoencoder(*sizes, **facts["network"]).to(self.device).eval()
        weights = {name: tensors[f"autoencoder.{name}"] for name in self.autoencoder.state_dict()}
        self.autoencoder.load_state_dict(weights)
        for name in self._FITTED:
            setattr(self, name, tensors[name])


# ---------------------------------------------------------------- DEC and IDEC


def soft_assignment(codes, centroids):
    """Compute DEC's Eq. 1: how far each of the codes belongs to each of the centroids.

    ``codes`` are [N, c], ``centroids`` [k, c]; q [N, k] comes of Student's t with one degree of
    freedom, and its rows sum to 1.

    >>> soft_assignment(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]])).numpy().round(3)
    array([[0.833, 0.167],
           [0.5  , 0.5  ]], dtype=float32)
    """
    distances = torch.cdist(codes, centroids, compute_mode="donot_use_mm_for_euclid_dist")
    nearness = 1 / (1 + distances.square())
    return nearness / nearness.sum(dim=1, keepdim=True)


def target_distribution(q):
    """Compute DEC's Eq. 3 (ClusterBERT's Eq. 5): the assignments q, sharpened.

    ``q`` [N, k] is squared, so that the sure ones weigh more, and each cluster divided by its size;
    the rows of p [N, k] sum to 1. To a cluster to which q gives nothing, neither does p.

    >>> target_distribution(torch.tensor([[0.8, 0.2], [0.4, 0.6]])).numpy().round(3)
    array([[0.914, 0.086],
           [0.229, 0.771]], dtype=float32)
    """
    weight = q.square() / q.sum(dim=0).clamp_min(torch.finfo(q.dtype).tiny)  # or 0 / 0
    return weight / weight.sum(dim=1, keepdim=True)


def _divergence(q, target):
    """Return KL(p || q) of assignments and their targets [N, k] (DEC's Eq. 2), mean over points."""
    return F.kl_div(q.log(), target, reduction="batchmean")


@dataclass(eq=False, repr=False)
class DEC(_Method):
    """Deep embedded clustering (Xie, Girshick and Farhadi, 2016).

    Starts from k-means on the codes (20 starts, Sec. 3.2), and moves encoder and centroids so that
    the assignments q (Eq. 1) become their own sharpened targets p (Eq. 3), by the divergence
    KL(p || q) (Eq. 2), here its mean over points. The decoder is thrown away. Stochastic gradient
    descent with a rate of 0.01 (Sec. 4.3) and a momentum of 0.9, batches of 256. The autoencoder
    is one of ``pretrain(..., normalize=True)``; X is scaled as for it. With ``max_steps=0``
    it is k-means on the pretrained codes.

    After ``fit``: ``labels_`` [N] are the clusters of X, ``n_features_in_`` is D; ``curve`` has a
    row each time the targets are computed: ``step``, ``loss`` (the divergence, mean over points)
    and ``changed`` (a share); ``diverged`` says why it stopped early, or nothing.

    Args:
        k: the number of clusters.
        seed: settles where the centroids start, and the order of the points.
        max_steps: after so many steps it ends at the latest (20,000 in IDEC's published code).
        update_interval: every so many steps the targets are computed anew.
        tolerance: it ends when fewer than this share of the points have changed cluster since the
            targets were last computed (0.001, Sec. 4.3).
        device: as torch names it.
        progress: name of a progress bar, None for none.
        checkpoint: file from which a training that was killed goes on, and which goes at its end;
            None keeps none.
        pretrain_epochs: of the autoencoder, where ``fit`` is given none.
        code_size: units of that autoencoder's code; default: k, as N2D's authors have it (DEC,
            IDEC and VaDE: 10).

    >>> x = np.repeat(np.eye(3), 20, axis=0)  # three points, twenty times each
    >>> clusters = DEC(3, seed=42, max_steps=20, pretrain_epochs=20).fit_predict(x)
    >>> np.unique(clusters, return_counts=True)[1]
    array([20, 20, 20])
    """

    _: KW_ONLY
    max_steps: int = 20_000
    update_interval: int = 140
    tolerance: float = 0.001

    _NORMALIZED, _FITTED = True, ("centroids",)

    def _optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def _loss(self, x, target):
        """Return the loss of a batch x [B, D] with targets [B, k]."""
        return _divergence(soft_assignment(self.autoencoder.encode(x)[0], self.centroids), target)

    def fit(self, X, y=None, *, autoencoder=None):
        """Cluster X [N, D]; ``y`` is ignored. Returns self.

        A pretrained ``autoencoder`` is left as it is; without one it pretrains its own. Raises
        ValueError for an X that is empty or not finite, for k > N, and for an autoencoder of
        features that were not normalised; TypeError for one that is given without its name;
        Diverged where the pretraining breaks down.
        """
        X, x, order = self._start(X, y, autoencoder)
        kmeans = k_means(self._codes(X), self.k, named_seed(self.seed, "centroids"), 20)
        self.centroids = self._parameter(kmeans.cluster_centers_)
        parameters = [*self.autoencoder.parameters(), self.centroids]
        optimizer = self._optimizer(parameters)
        parts = {"autoencoder": self.autoencoder, "centroids": self.centroids}
        of = self._training(X=X, start=kmeans.cluster_centers_)
        saved = Checkpoint(self.checkpoint, of, optimizer=optimizer, **parts)
        first = {"step": 0, "rows": [], "assigned": torch.as_tensor(kmeans.labels_)}
        reached = saved.restore() or first
        start, rows, assigned = reached["step"], reached["rows"], reached["assigned"].numpy()
        order = islice(order, start, None)
        for step in training.progress_bar(self.progress, start, self.max_steps):
            if step % self.update_interval == 0:
                saved.save_if_due(step=step, rows=rows, assigned=torch.as_tensor(assigned))
                q = self._memberships(X)
                changed, assigned = float(np.mean(q.argmax(axis=1) != assigned)), q.argmax(axis=1)
                q = torch.as_tensor(q, device=self.device)
                target = target_distribution(q)
                loss = _divergence(q, target).item()
                rows.append({"step": step, "loss": loss, "changed": changed})
                if not math.isfinite(loss):
                    self.diverged = f"the loss was {loss} at step {step}"
                if self.diverged or (step and changed < self.tolerance):
                    break
                self.autoencoder.train()
            batch = next(order).to(self.device)
            take_step(optimizer, self._loss(x[batch], target[batch]))
        saved.remove()
        return self._end(X, rows, parameters)

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
    ``gamma`` (0.1) times DEC's divergence (Eq. 10), both summed as printed and divided by the
    number of points. The authors' code takes the mean over the D features of the first, which a
    ``gamma`` of 0.1 D does here, since Adam minds no common factor; as printed, the centroids
    hardly count, and codes that the pretraining left on the move leave them behind. Adam with a
    ``learning_rate`` of 0.001, as the authors have it for MNIST. ``k``, ``seed``, ``max_steps``,
    ``update_interval``, ``tolerance``, ``device``, ``progress``, ``checkpoint``,
    ``pretrain_epochs`` and ``code_size`` are DEC's, and so is what there is after ``fit``.

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

    def _optimizer(self, parameters):
        return torch.optim.Adam(parameters, lr=self.learning_rate, fused=True)

    def _loss(self, x, target):
        code, _ = self.autoencoder.encode(x)
        output, _ = self.autoencoder.decode(code)
        divergence = _divergence(soft_assignment(code, self.centroids), target)
        error = (self.autoencoder.reconstruct(output) - x).square().sum(dim=1).mean()
        return error + self.gamma * divergence


# ---------------------------------------------------------------- VaDE


@dataclass(eq=False, repr=False)
class VaDE(_Method):
    """Variational deep embedding (Jiang, Zheng, Tan, Tang and Zhou, 2017).

    A variational autoencoder whose prior is a Gaussian mixture: a cluster is drawn with probability
    pi, a code from the cluster's Gaussian (mean, diagonal variance), and the point from the decoder
    (Eqs. 1-3): Bernoulli for data in [0, 1] (Eq. 4), else Gaussian of variance 1 (Eq. 5). The
    encoder gives the mean and the variance of a point's code. Starts from a Gaussian mixture of the
    pretrained autoencoder's codes, and with the mixture's mean variance as the variance of every
    point's code (the paper does not say). Adam with a rate of 0.002, times 0.9 every 10 of the
    ``epochs`` (Sec. 4.3) but never below ``lowest_rate`` (0 in the paper, 0.0002 on MNIST in its
    authors' code), batches of 256 (100 in the paper). The autoencoder is one of features
    that were not normalised (``pretrain``): either likelihood is that of the data as they are.

    After ``fit``: ``curve`` has a row for each epoch: ``epoch`` and ``loss`` (the negative of the
    evidence lower bound, Eq. 12, mean over points). ``k``, ``seed``, ``device``, ``progress``,
    ``checkpoint``, ``pretrain_epochs``, ``code_size``, ``labels_`` and ``diverged`` are what they
    are in DEC.

    >>> x = np.repeat(np.eye(3), 20, axis=0)  # three points, twenty times each
    >>> vade = VaDE(3, seed=42, epochs=2, pretrain_epochs=20).fit(x)
    >>> vade.predict(x).shape, list(vade.curve.columns)
    ((60,), ['epoch', 'loss'])
    """

    _: KW_ONLY
    epochs: int = 300
    lowest_rate: float = 0.0

    _NORMALIZED, _FITTED = False, ("logits", "means", "log_variances")

    def fit(self, X, y=None, *, autoencoder=None):
        """Cluster X [N, D]; ``y`` is ignored. Returns self.

        A pretrained ``autoencoder`` is left as it is; without one it pretrains its own. Raises
        ValueError for an X that is empty or not finite, for k > N, and for an autoencoder of
        normalised features; TypeError for one that is given without its name; Diverged where the
        pretraining breaks down.
        """
        X, x, order = self._start(X, y, autoencoder)
        self._start_mixture(self._codes(X))
        parameters = [*self.autoencoder.parameters(), *self.spread.parameters()]
        parameters += [self.logits, self.means, self.log_variances]
        optimizer = torch.optim.Adam(parameters, lr=0.002, fused=True)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.9)
        noise = torch.Generator(self.device).manual_seed(named_seed(self.seed, "noise"))
        parts = {f"parameter {i}": values for i, values in enumerate(parameters)}
        parts |= {"optimizer": optimizer, "schedule": schedule, "noise": noise}
        of = self._training(X=X, start=self.means.detach().cpu().numpy())
        saved = Checkpoint(self.checkpoint, of, **parts)
        reached = saved.restore() or {"epoch": 0, "rows": []}
        start, rows, steps = reached["epoch"], reached["rows"], math.ceil(len(x) / BATCH_SIZE)
        order = islice(order, start * steps, None)
        self.autoencoder.train()
        for epoch in training.progress_bar(self.progress, start, self.epochs):
            total = torch.zeros((), device=self.device)
            for batch in islice(order, steps):
                loss = self._loss(x[batch.to(self.device)], noise)
                take_step(optimizer, loss)
                total += loss.detach() * len(batch)
            schedule.step()
            for group in optimizer.param_groups:
                group["lr"] = max(group["lr"], self.lowest_rate)
            rows.append({"epoch": epoch, "loss": total.item() / len(x)})
            if not math.isfinite(rows[-1]["loss"]):
                self.diverged = f"the loss was {rows[-1]['loss']} in epoch {epoch}"
                break
            saved.save_if_due(epoch=epoch + 1, rows=rows)
        saved.remove()
        return self._end(X, rows, parameters)

    def _start_mixture(self, codes):
        """Start the prior from a mixture of the codes, and every code's variance from its mean."""
        from sklearn.mixture import GaussianMixture

        seed = named_seed(self.seed, "centroids")
        mixture = GaussianMixture(self.k, covariance_type="diag", n_init=10, random_state=seed)
        mixture.fit(codes.astype(np.float64))  # one of tight clusters breaks down in float32
        self.logits = self._parameter(np.log(mixture.weights_))
        self.means = self._parameter(mixture.means_)
        self.log_variances = self._parameter(np.log(mixture.covariances_))
        within = (mixture.weights_[:, None] * mixture.covariances_).sum(axis=0)
        # From the last hidden layer to the log variance of a code, at first equal for all points.
        layer = self.autoencoder.code
        self.spread = skip_init(nn.Linear, layer.in_features, layer.out_features)
        self.spread.weight = self._parameter(np.zeros(layer.weight.shape))
        self.spread.bias = self._parameter(np.log(within))

    def log_joint(self, codes):
        """Compute log p(c) p(z|c) (Eqs. 1 and 2) of codes z [B, c], for each cluster: [B, k]."""
        deviations = (codes[:, None] - self.means).square() / self.log_variances.exp()
        densities = (math.log(2 * math.pi) + self.log_variances + deviations).sum(dim=2) / 2
        return F.log_softmax(self.logits, dim=0) - densities

    def _loss(self, x, noise):
        """Return the negative of Eq. 12, with one sample of the code for each point."""
        mean, hidden = self.autoencoder.encode(x)
        log_variance = self.spread(hidden["encoder3"])
        draw = torch.randn(mean.shape, generator=noise, device=mean.device, dtype=mean.dtype)
        z = mean + (log_variance / 2).exp() * draw
        output, _ = self.autoencoder.decode(z)
        log_gamma = F.log_softmax(self.log_joint(z), dim=1)  # Eq. 16: of each cluster, given z
        squares = log_variance.exp()[:, None] + (mean[:, None] - self.means).square()
        expected = (self.log_variances + squares / self.log_variances.exp()).sum(dim=2)
        entropy = (1 + log_variance).sum(dim=1) / 2
        gaussian = (log_gamma.exp() * expected).sum(dim=1) / 2 - entropy
        cluster = (log_gamma.exp() * (log_gamma - F.log_softmax(self.logits, dim=0))).sum(dim=1)
        return (self.autoencoder.error(output, x).sum(dim=1) + gaussian + cluster).mean()

    @torch.no_grad()
    def _assign(self, X):
        """Return the most probable cluster of the mean of each code (Eq. 16)."""
        codes = torch.as_tensor(self._codes(X), device=self.device)
        return self.log_joint(codes).argmax(dim=1).cpu().numpy()


# ---------------------------------------------------------------- N2D


def fit_umap(vectors, seed, **settings):
    """Fit a UMAP of such settings to vectors [N, D], in one thread.

    Returns it and the map [N, d]. The vectors are first moved by a thousandth of their length in
    directions drawn from the seed: all texts that share no word are equally far from each other in
    word counts, and of equally near points UMAP takes those of the first rows for neighbours,
    which in a sorted corpus tell the class. Now chance settles it. Raises SnnlError where
    umap-learn is not installed.
    """
    # numba, started with more threads, raises torch's number too, whatever it was set to.
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    require("umap")
    from umap import UMAP

    noise = np.random.default_rng(seed).normal(size=vectors.shape) / vectors.shape[1] ** 0.5
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    mapping = UMAP(n_jobs=1, random_state=seed, **settings)
    return mapping, mapping.fit_transform((vectors + 1e-3 * lengths * noise).astype(np.float32))


@dataclass(eq=False, repr=False)
class N2D(_Method):
    """(Not too) deep clustering (McConville, Santos-Rodriguez, Piechocki and Craddock, 2021).

    UMAP of the codes to as many dimensions as clusters, with 20 neighbours and minimal distance 0,
    then a Gaussian mixture with full covariances. Nothing is trained beyond the autoencoder. Needs
    umap-learn, and two points more than clusters (``fit`` raises ValueError).

    UMAP cannot be kept without pickle, nor lay new points twice alike, so ``predict`` does without
    it: a new point is put where its ``NEIGHBOURS`` nearest of the fitted codes lie on the map, on
    average, weighted by the inverse of their distance, and the mixture says its cluster. A point
    that it was fitted on lies where it lay.

    After ``fit``: ``manifold`` [N, k] is what was clustered, ``clusters`` [N], also ``labels_``,
    the result. ``k`` and ``seed`` are the number of clusters and what settles UMAP and the mixture;
    ``device`` is where the codes are computed. ``checkpoint`` is taken as by the other methods, and
    has no effect. ``progress``, ``pretrain_epochs`` and ``code_size`` are those of the pretraining,
    as in DEC.

    >>> x = np.random.default_rng(42).random((60, 5))
    >>> N2D(2, seed=42, pretrain_epochs=1).fit(x).manifold.shape
    (60, 2)
    """

    NEIGHBOURS = 20  # as many as UMAP looks at
    _MORE_POINTS = 2  # which UMAP needs
    _FITTED = ("fitted_codes", "manifold")
    _MIXTURE = ("weights_", "means_", "covariances_", "precisions_cholesky_")

    def fit(self, X, y=None, *, autoencoder=None):
        """Cluster X [N, D]; ``y`` is ignored. Returns self.

        A pretrained ``autoencoder`` is left as it is; without one it pretrains its own. Raises
        ValueError for an X that is empty or not finite, or for k > N - 2; TypeError for an
        autoencoder that is given without its name; Diverged where the pretraining breaks down.
        """
        from sklearn.mixture import GaussianMixture

        X, _, _ = self._start(X, y, autoencoder)
        settings = {"n_components": self.k, "n_neighbors": 20, "min_dist": 0.0}
        seed, self.fitted_codes = named_seed(self.seed, "umap"), self._codes(X)
        _, self.manifold = fit_umap(self.fitted_codes, seed, **settings)
        seed = named_seed(self.seed, "centroids")
        self.mixture = GaussianMixture(self.k, n_init=10, random_state=seed)
        self.clusters = self.mixture.fit_predict(self.manifold.astype(np.float64))
        self._lay()
        self._end(X)
        self.labels_ = self.clusters
        return self

    def _lay(self):
        """Get ready to put new points on the map."""
        from sklearn.neighbors import KNeighborsRegressor

        neighbours = min(self.NEIGHBOURS, len(self.manifold))
        self.map = KNeighborsRegressor(neighbours, weights="distance")
        self.map.fit(self.fitted_codes, self.manifold)

    def _assign(self, X):
        return self.mixture.predict(self.map.predict(self._codes(X)).astype(np.float64))

    def _saved_parts(self):
        tensors, facts = super()._saved_parts()
        return tensors | {name: getattr(self.mixture, name) for name in self._MIXTURE}, facts

    def _load_parts(self, tensors, facts, folder):
        from sklearn.mixture import GaussianMixture

        super()._load_parts(tensors, facts, folder)
        for name in self._FITTED:
            setattr(self, name, tensors[name].cpu().numpy())
        self.mixture, self.clusters = GaussianMixture(self.k), self.labels_
        for name in self._MIXTURE:
            setattr(self.mixture, name, tensors[name].cpu().numpy())
        self._lay()
