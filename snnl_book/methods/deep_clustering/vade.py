"""VaDE (Jiang, Zheng, Tan, Tang and Zhou, 2017)."""

import math
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from numbers import Integral

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import skip_init

from snnl_book.methods._saving import as_it_was_on_error
from snnl_book.methods.deep_clustering._method import DeepClustering
from snnl_lib.checkpoint import Checkpoint
from snnl_lib.seeds import BATCH_SIZE
from snnl_lib.training import named_seed, progress_bar, take_step

LEARNING_RATE = 0.002  # this and its decay: Sec. 4.3
DECAY, DECAY_EPOCHS = 0.9, 10
WARM_UP = 100  # steps in which the learning rate rises to its value
MIXTURE_STARTS = 10


@dataclass(eq=False, repr=False)
class VaDE(DeepClustering):
    """Variational deep embedding (Jiang, Zheng, Tan, Tang and Zhou, 2017).

    VaDE is a variational autoencoder whose prior is a Gaussian mixture. A cluster is drawn with
    probability pi, a code from the cluster's Gaussian (mean, diagonal variance), and the point from
    the decoder (Eqs. 1-3): Bernoulli for data in [0, 1] (Eq. 4), else Gaussian of variance 1
    (Eq. 5). The encoder gives the mean and the variance of a point's code.

    Training starts from a Gaussian mixture of the pretrained autoencoder's codes. The variance of
    every point's code starts at the mixture's mean variance (the paper does not say). The optimiser
    is Adam with a rate of 0.002, multiplied by 0.9 every 10 epochs (Sec. 4.3), with batches of 256
    (100 in the paper). The rate rises linearly over the first 100 steps, which the paper does not
    say: the codes of a pretrained autoencoder can be so narrow that a first step at the full rate
    throws all of them into one cluster. The autoencoder must be one of features that were not
    normalised (``pretrain``), because either likelihood describes the data as it is.

    After ``fit``: ``curve`` has a row for each epoch: ``epoch`` and ``loss`` (the negative of the
    evidence lower bound, Eq. 12, mean over points). ``labels_`` and ``diverged`` are as in DEC.

    Args:
        epochs: passes over the points.
        lowest_rate: a lower bound of the learning rate (0 in the paper, 0.0002 on MNIST in its
            authors' code).
        k, seed, device, progress, checkpoint, pretrain_epochs, code_size: as in DEC.

    >>> x = np.repeat(np.eye(3), 20, axis=0)  # three points, twenty times each
    >>> vade = VaDE(3, seed=42, epochs=2, pretrain_epochs=20).fit(x)
    >>> vade.predict(x).shape, list(vade.curve.columns)
    ((60,), ['epoch', 'loss'])
    """

    _: KW_ONLY
    epochs: int = 300
    lowest_rate: float = 0.0

    _NORMALIZED = False
    _FITTED_TENSORS = ("logits", "means", "log_variances")
    _RANGES = (("epochs", Integral), ("lowest_rate",))

    @as_it_was_on_error
    def fit(self, X, y=None, *, autoencoder=None):
        """Cluster X [N, D] and return self; ``y`` is ignored.

        A given ``autoencoder`` is copied and not changed; without one, ``fit`` pretrains its own.
        Raises ValueError for an X that is empty or not finite, for k > N, for a parameter that is
        out of its range, and for an autoencoder of normalised features; TypeError for an
        autoencoder given as ``y``; Diverged if the pretraining breaks down.
        """
        X, x, order = self._start(X, y, autoencoder)
        self._start_mixture(self._codes(X))
        parameters = [*self.autoencoder.parameters(), *self.spread.parameters()]
        parameters += [self.logits, self.means, self.log_variances]
        optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, DECAY_EPOCHS, DECAY)
        noise = torch.Generator().manual_seed(named_seed(self.seed, "noise"))
        parts = {f"parameter {i}": values for i, values in enumerate(parameters)}
        parts |= {"optimizer": optimizer, "schedule": schedule, "noise": noise}
        training = self._training(X=X, start=self.means.detach().cpu().numpy())
        saved = Checkpoint(self.checkpoint, training, **parts)
        state = saved.restore() or {"epoch": 0, "rows": []}
        rows, steps = state["rows"], math.ceil(len(x) / BATCH_SIZE)
        order = islice(order, state["epoch"] * steps, None)
        self.autoencoder.train()
        for epoch in progress_bar(self.progress, state["epoch"], self.epochs):
            batches = enumerate(islice(order, steps), start=epoch * steps + 1)
            loss = self._epoch(x, batches, optimizer, noise)
            schedule.step()
            rows.append({"epoch": epoch, "loss": loss})
            if not math.isfinite(loss):
                self.diverged = f"the loss was {loss} in epoch {epoch}"
                break
            saved.save_if_due(epoch=epoch + 1, rows=rows)
        saved.remove()
        return self._end(X, rows, parameters)

    def _epoch(self, x, batches, optimizer, noise):
        """Take a step for each pair of its number and indices; return the mean loss over points."""
        total = torch.zeros((), device=self.device)
        decayed = optimizer.param_groups[0]["lr"]
        for step, batch in batches:
            rate = max(decayed, self.lowest_rate) * min(1, step / WARM_UP)
            optimizer.param_groups[0]["lr"] = rate
            loss = self._loss(x[batch.to(self.device)], noise)
            take_step(optimizer, loss)
            total += loss.detach() * len(batch)
        optimizer.param_groups[0]["lr"] = decayed  # the schedule multiplies it
        return total.item() / len(x)

    def _start_mixture(self, codes):
        """Start the prior from a mixture of the codes, and every code's variance from its mean."""
        from sklearn.mixture import GaussianMixture

        seed = named_seed(self.seed, "centroids")
        mixture = GaussianMixture(
            self.k, covariance_type="diag", n_init=MIXTURE_STARTS, random_state=seed
        )
        mixture.fit(codes.astype(np.float64))  # float32 breaks down on tight clusters
        self.logits = self._parameter(np.log(mixture.weights_))
        self.means = self._parameter(mixture.means_)
        self.log_variances = self._parameter(np.log(mixture.covariances_))
        variance = (mixture.weights_[:, None] * mixture.covariances_).sum(axis=0)
        # From the last hidden layer to the log variance of a code, equal for all points at first.
        layer = self.autoencoder.code
        self.spread = skip_init(nn.Linear, layer.in_features, layer.out_features)
        self.spread.weight = self._parameter(np.zeros(layer.weight.shape))
        self.spread.bias = self._parameter(np.log(variance))

    def log_joint(self, codes):
        """Compute log p(c) p(z|c) (Eqs. 1 and 2) of codes z [B, c], for each cluster: [B, k]."""
        deviations = (codes[:, None] - self.means).square() / self.log_variances.exp()
        densities = (math.log(2 * math.pi) + self.log_variances + deviations).sum(dim=2) / 2
        return F.log_softmax(self.logits, dim=0) - densities

    def _loss(self, x, noise):
        """Return the negative of Eq. 12, with one sample of the code for each point."""
        mean, hidden = self.autoencoder.encode(x)
        log_variance = self.spread(hidden["encoder3"])
        draw = torch.randn(mean.shape, generator=noise).to(mean.device)
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
