"""The soft nearest neighbor loss and the objectives built on it (Eqs. 4-8 of the text paper).

Equations are those of *Text Classification and Clustering with Annealing Soft Nearest Neighbor Loss* (A. F. Agarap).
"""

import math
from numbers import Real

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

DISTANCES = ("cosine", "sqeuclidean")
REDUCTIONS = ("mean", "sum", "none")


def soft_nearest_neighbor_loss(features, labels, temperature=1.0, *, distance="cosine", reduction="mean", chunk_size=None):
    """Measure how entangled the classes are in a batch: low when each point's neighbours share its class (Eq. 4).

    Every point picks a neighbour at random, near ones more often (softmax of -distance / temperature over the rest of the
    batch); its loss is minus the log probability that the neighbour has its class.

    Args:
        features: float tensor [..., B, D]; leading axes are independent batches. float16 and bfloat16 are computed and
            returned in float32.
        labels: integer tensor [..., B], classes in any numbering.
        temperature: T > 0; a number, or a tensor of one value that may require a gradient.
        distance: ``"cosine"`` (Eq. 5, in [0, 2]; a row of zeros has distance 1 to everything) or ``"sqeuclidean"``.
        reduction: over the batch axis, ``"mean"``, ``"sum"`` or ``"none"``. A point without another of its class has no
            loss (Eq. 4 would be infinite): 0 under ``"none"``, and left out of the mean. A batch of such points gives 0.
        chunk_size: anchors handled at a time; memory is then O(B x chunk_size) instead of O(B x B). Same value, same gradient.

    Returns:
        Tensor [...], or [..., B] for ``"none"``; values >= 0.

    Raises:
        TypeError or ValueError for a wrong shape, dtype, name or number, and for features that are not finite (checked
        on a CPU in eager mode; elsewhere NaN propagates).

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    >>> round(soft_nearest_neighbor_loss(features, torch.tensor([0, 0, 1]), temperature=0.1).item(), 5)
    9e-05
    """
    return _loss(features, labels, temperature, distance, reduction, chunk_size, check_finite=True)


def _loss(features, labels, temperature, distance, reduction, chunk_size, *, check_finite):
    _check(features, labels, temperature, distance, reduction, chunk_size, check_finite)
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    if distance == "cosine":
        features = _unit_rows(features)
    if isinstance(temperature, torch.Tensor):
        temperature = temperature.reshape(())  # [1] or [1, 1, 1] would broadcast into the loss's shape and dtype
    batch = features.shape[-2]
    with torch.autocast(features.device.type, enabled=False):
        if chunk_size is None or chunk_size >= batch:
            losses, has_positive = _anchor_losses(features, labels, temperature, distance, 0, batch)
        else:
            # Checkpointing recomputes each block in the backward pass, so that only one block of distances lives at a time.
            blocks = [
                checkpoint(_anchor_losses, features, labels, temperature, distance, start, min(start + chunk_size, batch), use_reentrant=False)
                for start in range(0, batch, chunk_size)
            ]
            losses, has_positive = (torch.cat(parts, dim=-1) for parts in zip(*blocks, strict=True))
    if reduction == "none":
        return losses
    total = losses.sum(dim=-1)
    return total if reduction == "sum" else total / has_positive.sum(dim=-1).clamp_min(1).to(total.dtype)


def _anchor_losses(features, labels, temperature, distance, start, stop):
    """Return the losses of the anchors start:stop against the whole batch, and which of them have a positive."""
    anchors = features[..., start:stop, :]
    logits = -_pairwise_distance(anchors, features, distance) / temperature  # ... × anchors × B
    same = labels[..., start:stop, None] == labels[..., None, :]
    itself = torch.arange(start, stop, device=labels.device)[:, None] == torch.arange(labels.shape[-1], device=labels.device)
    own, other = same & ~itself, ~same
    # A finite stand-in for -inf: where nothing is left to sum, logsumexp of -inf would have a NaN gradient.
    nothing = torch.finfo(logits.dtype).min / 4
    log_own = logits.masked_fill(~own, nothing).logsumexp(dim=-1)
    log_other = logits.masked_fill(~other, nothing).logsumexp(dim=-1)
    # -log(own / (own + other)) = softplus(log other - log own): never negative, exact where clusters are tight.
    has_positive = own.any(dim=-1)
    return F.softplus(torch.where(has_positive, log_other - log_own, nothing)), has_positive


def _unit_rows(features):
    # Dividing by the largest entry first keeps the norm from overflowing, and leaves it at 1 or more except in a row of zeros.
    largest = features.detach().abs().amax(dim=-1, keepdim=True)
    features = features / torch.where(largest > 0, largest, 1)
    return features / torch.linalg.vector_norm(features, dim=-1, keepdim=True).clamp_min(1)


def _pairwise_distance(x, y, distance):
    if distance == "cosine":
        return 1 - x @ y.transpose(-1, -2)
    # The expanded form |x|² + |y|² - 2xy loses the distance inside tight, far-off clusters.
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()


def annealed_temperature(epoch, eta=1.0, gamma=0.55):
    """Return the annealed temperature 1 / (eta + epoch)^gamma (Eq. 6); epochs count from 0, and epoch 0 has T = 1 for eta = 1.

    >>> [round(annealed_temperature(epoch), 3) for epoch in (0, 1, 29)]
    [1.0, 0.683, 0.154]
    """
    if not (0 <= epoch < math.inf and 0 < eta < math.inf and 0 <= gamma < math.inf):
        raise ValueError(f"epoch must be >= 0, eta > 0 and gamma >= 0, all finite, got epoch={epoch}, eta={eta}, gamma={gamma}")
    return 1.0 / (eta + epoch) ** gamma


class SoftNearestNeighborLoss(torch.nn.Module):
    """Eq. 4 as a module whose temperature is a number, ``"annealed"`` (Eq. 6) or ``"learnable"`` (on log T, from T = 1).

    ``forward(features, labels, *, epoch=None)`` takes what ``soft_nearest_neighbor_loss`` takes; ``"annealed"`` needs the
    epoch (ValueError without it), the others ignore it.
    """

    def __init__(self, temperature=1.0, *, distance="cosine", reduction="mean", chunk_size=None):
        super().__init__()
        if temperature not in ("annealed", "learnable"):
            _check_temperature(temperature)
        _check_choice("distance", distance, DISTANCES)
        _check_choice("reduction", reduction, REDUCTIONS)
        _check_chunk_size(chunk_size)
        self.temperature, self.distance, self.reduction, self.chunk_size = temperature, distance, reduction, chunk_size
        if temperature == "learnable":
            self.log_temperature = torch.nn.Parameter(torch.zeros(()))

    def current_temperature(self, epoch=None):
        """Return T now: a number, or for ``"learnable"`` a tensor with a gradient."""
        if self.temperature == "learnable":
            return self.log_temperature.exp()
        if self.temperature == "annealed":
            if epoch is None:
                raise ValueError('temperature="annealed" needs the epoch: call loss(features, labels, epoch=epoch)')
            return annealed_temperature(epoch)
        return self.temperature

    def forward(self, features, labels, *, epoch=None):
        temperature = self.current_temperature(epoch)
        return soft_nearest_neighbor_loss(features, labels, temperature, distance=self.distance, reduction=self.reduction, chunk_size=self.chunk_size)

    def extra_repr(self):
        return f"temperature={self.temperature!r}, distance={self.distance!r}, reduction={self.reduction!r}, chunk_size={self.chunk_size}"


def composite_loss(primary, hidden, labels, *, alpha, temperature, layers="sum", check_finite=True):
    """Add alpha times the soft nearest neighbor loss of hidden layers to a primary loss (Eqs. 7 and 8).

    Args:
        primary: the primary loss, a tensor of one value: cross entropy (Eq. 7) or reconstruction (Eq. 8).
        hidden: dict from layer name to float tensor [B, D], D may differ.
        labels: integer tensor [B].
        alpha: weight; positive disentangles classes, negative entangles them, 0 leaves the primary loss as it is.
        temperature: T > 0, or a tensor of one value.
        layers: ``"sum"`` (over all of ``hidden``, the equations read literally), ``"min"`` (the least entangled layer only),
            or a list of names to sum over.
        check_finite: False skips the look for NaN, for training loops that do their own.

    Returns the composite loss. Raises ValueError for an empty ``hidden``, an unknown layer or a bad number.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not math.isfinite(alpha):
        raise ValueError(f"alpha must be a finite number, got {alpha!r}")
    if not hidden:
        raise ValueError("hidden must name at least one layer, got an empty dict")
    names = list(hidden) if layers in ("sum", "min") else layers
    if isinstance(names, str) or not names or any(name not in hidden for name in names):
        raise ValueError(f'layers must be "sum", "min" or some of {list(hidden)}, got {layers!r}')
    if alpha == 0:
        return primary
    losses = [_loss(hidden[name].flatten(1), labels, temperature, "cosine", "mean", None, check_finite=check_finite) for name in names]
    return primary + alpha * (torch.stack(losses).amin() if layers == "min" else torch.stack(losses).sum())


# ---------------------------------------------------------------- checks


def _kind(value):
    return value.dtype if isinstance(value, torch.Tensor) else type(value).__name__


def _check_choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _check_temperature(temperature):
    if isinstance(temperature, torch.Tensor):
        if temperature.numel() != 1:
            raise ValueError(f"temperature must be a single value, got a tensor of shape {tuple(temperature.shape)}")
    elif isinstance(temperature, bool) or not isinstance(temperature, Real) or not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be a finite number above 0, got {temperature!r}")


def _check_chunk_size(chunk_size):
    if chunk_size is not None and (isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"chunk_size must be a whole number above 0 or None, got {chunk_size!r}")


def _check(features, labels, temperature, distance, reduction, chunk_size, check_finite):
    if not isinstance(features, torch.Tensor) or not features.is_floating_point():
        raise TypeError(f"features must be a floating-point tensor, got {_kind(features)}")
    if not isinstance(labels, torch.Tensor) or labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"labels must be an integer tensor, got {_kind(labels)}")
    if features.ndim < 2 or features.shape[-2] < 1 or features.shape[-1] < 1 or labels.shape != features.shape[:-1]:
        raise ValueError(f"features must be [..., B, D] and labels [..., B], got {tuple(features.shape)} and {tuple(labels.shape)}")
    _check_choice("distance", distance, DISTANCES)
    _check_choice("reduction", reduction, REDUCTIONS)
    _check_temperature(temperature)
    _check_chunk_size(chunk_size)
    if check_finite and features.device.type == "cpu" and not torch.compiler.is_compiling():
        finite = torch.isfinite(features)
        if not finite.all():
            raise ValueError(f"features must be finite, got {features[~finite][0].item()} among them")
