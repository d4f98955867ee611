"""What DEC, IDEC, VaDE and N2D share: start, ``predict``, ``transform``, saving and loading."""

import copy
import warnings
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.base import ClusterMixin
from torch import nn

from snnl_book.methods._fitting import check_clusters
from snnl_book.methods._saving import Estimator
from snnl_book.methods.deep_clustering.autoencoder import (
    ClusteringAutoencoder,
    pretrain,
    scale_features,
)
from snnl_book.recipes import check_numbers
from snnl_lib import training
from snnl_lib.seeds import BATCH_SIZE
from snnl_lib.training import batches, forward, named_seed


class _Encoder(nn.Module):
    """The encoder of an autoencoder as a model of its own, to compute codes without the decoder."""

    def __init__(self, autoencoder):
        super().__init__()
        self.autoencoder = autoencoder

    def forward(self, x):
        return self.autoencoder.encode(x)


@dataclass(eq=False, repr=False)
class DeepClustering(ClusterMixin, Estimator):
    """The base of the four methods. A subclass fits, and assigns points by ``_assign``."""

    k: int
    _: KW_ONLY
    seed: int = 0
    device: str = "cpu"
    progress: str | None = None
    checkpoint: Path | None = None
    pretrain_epochs: int = 200
    code_size: int | None = None

    _NORMALIZED = None  # whether the autoencoder must be of normalised features; None: either
    _EXTRA_POINTS = 0  # the number of points needed beyond the number of clusters
    _FITTED_TENSORS = ()  # the attributes that are saved next to the autoencoder
    _RANGES = ()  # of parameters, each as the arguments of check_numbers

    def _start(self, X, y, autoencoder):
        """Check the parameters and X [N, D], and copy the given autoencoder or pretrain one.

        Returns the checked X, the scaled features on the device, and an endless iterator over
        batches of indices.
        """
        if isinstance(y, nn.Module):  # y is ignored, and so would the autoencoder be
            raise TypeError("pass the autoencoder by keyword: fit(X, autoencoder=...)")
        for parameters_in_range in self._RANGES:
            check_numbers(vars(self), *parameters_in_range)
        X = self._validated(X, reset=True)
        self._check_number_of_points(len(X))
        if autoencoder is None:
            autoencoder = self._pretrained(X)
        else:
            self._check_autoencoder(autoencoder, X)
        features = scale_features(X, autoencoder)
        self.autoencoder = copy.deepcopy(autoencoder).to(self.device).train()
        self.diverged = ""
        shuffling = torch.Generator().manual_seed(named_seed(self.seed, "batches"))
        order = batches(len(features), BATCH_SIZE, shuffling)
        return X, torch.as_tensor(features, device=self.device), order

    def _check_number_of_points(self, count):
        check_clusters(self.k, count, "points")
        needed = self.k + self._EXTRA_POINTS
        if count < needed:
            wanted = f"{needed} (the number of clusters plus {self._EXTRA_POINTS})"
            raise ValueError(f"the number of points must be at least {wanted}, got {count}")

    def _pretrained(self, X):
        autoencoder, history = pretrain(
            X,
            self.k if self.code_size is None else self.code_size,
            normalize=bool(self._NORMALIZED),
            epochs=self.pretrain_epochs,
            seed=self.seed,
            device=self.device,
            progress=self.progress,
        )
        training.raise_if_diverged(history)
        return autoencoder

    def _check_autoencoder(self, autoencoder, X):
        if not isinstance(autoencoder, ClusteringAutoencoder):
            found = type(autoencoder).__name__
            raise TypeError(f"autoencoder must be one that pretrain returned, got {found}")
        if autoencoder.unit_range and (X.min() < 0 or X.max() > 1):
            found = f"X has values from {X.min():g} to {X.max():g}"
            raise ValueError(f"the autoencoder was trained on features in [0, 1], but {found}")
        is_normalized = autoencoder.scale is not None
        if self._NORMALIZED not in (None, is_normalized):
            wanted = f"pretrain(..., normalize={self._NORMALIZED})"
            raise ValueError(f"{type(self).__name__} needs an autoencoder from {wanted}")

    def _end(self, X, rows=(), parameters=()):
        """Keep the curve and the labels, warn of unused clusters; return self.

        The last step can break the weights without any loss showing it, so they are checked here.
        """
        self.autoencoder.eval()
        self.curve = pd.DataFrame(rows)
        if not self.diverged and not all(values.isfinite().all() for values in parameters):
            self.diverged = "the weights were not finite after the last step"
        self.labels_ = self._assign(X)
        used = len(np.unique(self.labels_))
        if used < self.k and not self.diverged:
            sentence = f"only {used} of {self.k} clusters are used: try a smaller k or another seed"
            warnings.warn(sentence, stacklevel=4)  # points at the call of fit
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
        features = scale_features(X, self.autoencoder)
        return forward(_Encoder(self.autoencoder).eval(), features)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "labels_")

    def _saved_parts(self):
        weights = self.autoencoder.state_dict()
        tensors = {f"autoencoder.{name}": value for name, value in weights.items()}
        for name in self._FITTED_TENSORS:
            tensors[name] = getattr(self, name)
        network = {"unit_range": self.autoencoder.unit_range, "scale": self.autoencoder.scale}
        return tensors, {"network": network}

    def _load_parts(self, tensors, facts, folder):
        features = len(tensors["autoencoder.output.bias"])
        code_size = len(tensors["autoencoder.code.bias"])
        self.autoencoder = ClusteringAutoencoder(features, code_size, **facts["network"])
        names = self.autoencoder.state_dict()
        self.autoencoder.load_state_dict({name: tensors[f"autoencoder.{name}"] for name in names})
        self.autoencoder.to(self.device).eval()
        for name in self._FITTED_TENSORS:
            setattr(self, name, tensors[name])
