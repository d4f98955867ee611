"""The autoencoder that the four methods start from, and its pretraining."""

import numpy as np
import torch
import torch.nn.functional as F

from snnl_lib import training
from snnl_lib.metrics import check_points
from snnl_lib.models import Autoencoder
from snnl_lib.training import build


class ClusteringAutoencoder(Autoencoder):
    """The autoencoder d-500-500-2000-c and back that all four papers use, with a linear code.

    Args:
        in_features: d, the number of features.
        code_size: c, the number of units of the code.
        unit_range: whether the data lies in [0, 1]. The reconstruction is then the logistic
            function of the output, and the loss is the binary cross entropy. Otherwise the
            reconstruction is the output itself, and the loss is the squared error.
        scale: the factor by which features are multiplied before the network sees them, or None.
            The methods multiply; ``forward`` does not.

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
        """Return the error of each reconstructed value, [B, D], as in VaDE's likelihood."""
        if self.unit_range:
            return F.binary_cross_entropy_with_logits(output, x, reduction="none")
        return (output - x).square() / 2


def pretrain(features, code_size, *, normalize=False, epochs=200, updates=None, seed=0, **settings):
    """Train the autoencoder that the four methods start from, on its reconstruction error alone.

    Args:
        features: [N, D] numbers.
        code_size: c, the number of units of the code. The papers take 10, or the number of
            clusters.
        normalize: True for DEC and IDEC. All features are multiplied by one number, so that
            ``(1/D) |x|^2`` has a mean of 1 (DEC, Sec. 4.1). They are reconstructed by a linear
            output with the squared error (its mean over points and features, as in the authors'
            code). If False, the features stay as they are. If all lie in [0, 1], they are
            reconstructed by a logistic output with the binary cross entropy
            (``ClusteringAutoencoder``).
        epochs: the number of passes over the points.
        updates: the number of updates, which replaces ``epochs`` where it is given.
        seed: determines the initial weights and the order of the points.
        settings: ``learning_rate`` of Adam (0.001), ``device``, ``progress`` and ``checkpoint``,
            as in ``train``.

    Returns (ClusteringAutoencoder, History). Raises ValueError for features that are empty, not
    finite or of another shape, and for features to be normalised that are all 0.

    >>> autoencoder, history = pretrain(np.eye(20), code_size=2, epochs=3, seed=42)
    >>> autoencoder.unit_range, history.curve["epoch"].tolist()
    (True, [0, 1, 2])
    >>> bool(history.curve["loss"].is_monotonic_decreasing)
    True
    >>> autoencoder, _ = pretrain(np.eye(25), code_size=2, normalize=True, updates=3)
    >>> autoencoder.unit_range, autoencoder.scale
    (False, 5.0)
    """
    features = check_features(features)
    scale = None
    if normalize:
        if not features.any():
            raise ValueError("features must not all be 0 if they are to be normalised")
        scale = float(np.square(features, dtype=np.float64).mean() ** -0.5)
        features = features * np.float32(scale)
    unit_range = bool(not normalize and features.min() >= 0 and features.max() <= 1)
    model = build(
        ClusteringAutoencoder,
        features.shape[1],
        code_size,
        unit_range=unit_range,
        scale=scale,
        seed=seed,
    )
    history = training.train(
        model,
        features,
        np.zeros(len(features), dtype=np.int64),  # train asks for labels; this loss ignores them
        training.binary_cross_entropy if unit_range else training.squared_error,
        epochs=1 if updates else epochs,
        steps_per_epoch=updates,
        seed=seed,
        **settings,
    )
    return model, history


def check_features(features, autoencoder=None):
    """Return features as a float32 array [N, D].

    Raises ValueError if they are empty, not finite, of another shape, or not as wide as the
    autoencoder's.
    """
    features = check_points(features).astype(np.float32)
    if not len(features):
        raise ValueError("features must be a non-empty array [N, D], got none")
    if autoencoder is not None and features.shape[1] != (size := autoencoder.output.out_features):
        wanted = f"[N, {size}], as in the autoencoder's training"
        raise ValueError(f"features must be {wanted}, got {features.shape}")
    return features


def scale_features(features, autoencoder):
    """Return features [N, D] as the autoencoder's network takes them."""
    features = check_features(features, autoencoder)
    if autoencoder.scale is None:
        return features
    return features * np.float32(autoencoder.scale)
