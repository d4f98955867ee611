"""The soft nearest neighbor loss and the objectives built on it (Eqs. 4-8 of the text paper).

Equations are those of *Text Classification and Clustering with Annealing Soft Nearest Neighbor Loss* (A. F. Agarap).
"""

import math
from numbers import Real

import torch
import torch.nn.functional as F

DISTANCES = ("cosine", "sqeuclidean")
REDUCTIONS = ("mean", "sum", "none")
LEAST = -80.0  # beside exp(0) = 1 the exponential of less is lost in every dtype; where it underflows it takes a hundred times as long


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
        on a CPU in eager mode; elsewhere NaN propagates). The gradient is a closed form and cannot be differentiated again.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    >>> round(soft_nearest_neighbor_loss(features, torch.tensor([0, 0, 1]), temperature=0.1).item(), 5)
    9e-05
    """
    return _loss(features, labels, temperature, distance, reduction, chunk_size, check_finite=True)


def _loss(features, labels, temperature, distance, reduction, chunk_size, *, check_finite):
    _check(features, labels, temperature, distance, reduction, chunk_size, check_finite)
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    if isinstance(temperature, torch.Tensor):
        temperature = temperature.reshape(())  # [1] or [1, 1, 1] would broadcast into the loss's shape and dtype
    else:
        temperature = torch.full((), temperature, dtype=features.dtype, device=features.device)
    losses, has_positive = _AnchorLosses.apply(features, labels, temperature, distance, chunk_size)
    if reduction == "none":
        return losses
    total = losses.sum(dim=-1)
    return total if reduction == "sum" else total / has_positive.sum(dim=-1).clamp_min(1).to(total.dtype)


class _AnchorLosses(torch.autograd.Function):
    """The losses [..., B] of all anchors, and which of them have a positive. The gradient is the closed form, which takes one
    tensor [..., B, B]: the derivative of each loss by its logits. It is kept, or in chunks computed again.
    """

    @staticmethod
    def forward(ctx, features, labels, temperature, distance, chunk_size):
        points, scale = _unit_rows(features) if distance == "cosine" else (features, None)
        batch = labels.shape[-1]
        size = min(chunk_size or batch, batch)
        ctx.distance, ctx.blocks = distance, [(start, min(start + size, batch)) for start in range(0, batch, size)]
        with torch.autocast(features.device.type, enabled=False):
            parts = []
            for block in ctx.blocks:
                *part, by_logits = _anchor_losses(points, labels, temperature, distance, *block)
                parts.append(part)
        losses, has_positive, by_temperature = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
        ctx.save_for_backward(points, scale, labels, temperature, by_temperature, by_logits if len(parts) == 1 else None)
        ctx.mark_non_differentiable(has_positive)
        return losses, has_positive

    @staticmethod
    def backward(ctx, upstream, _):
        if torch.is_grad_enabled():  # only under create_graph; torch's own guard misses it where the upstream gradient is a constant
            raise RuntimeError("the gradient of the soft nearest neighbor loss is a closed form that cannot be differentiated again (create_graph=True)")
        points, scale, labels, temperature, by_temperature, by_logits = ctx.saved_tensors
        gradient = torch.zeros_like(points)
        with torch.autocast(points.device.type, enabled=False):
            for start, stop in ctx.blocks:
                if len(ctx.blocks) > 1:
                    *_, by_logits = _anchor_losses(points, labels, temperature, ctx.distance, start, stop)
                _add_points_gradient(gradient, by_logits * upstream[..., start:stop, None], points, temperature, ctx.distance, start, stop)
        if scale is not None:  # of points = features / scale: a change along the point only changes the scale
            gradient.sub_(points * (points * gradient).sum(dim=-1, keepdim=True)).div_(scale)
        return gradient, None, (upstream * by_temperature).sum().to(temperature.dtype), None, None


def _anchor_losses(points, labels, temperature, distance, start, stop):
    """Return for the anchors start:stop against the whole batch: the losses, which of them have a positive, and the
    derivatives of the losses by the temperature and by the logits [..., anchors, B].
    """
    logits = _logits(points[..., start:stop, :], points, temperature, distance)
    # A finite stand-in for -inf, which times 0 would be NaN. Masks are numbers: a product is many times faster than a selection.
    nothing = torch.finfo(logits.dtype).min / 4
    logits.clamp_min_(nothing).diagonal(start, -2, -1).fill_(nothing)  # no point is its own neighbour
    same = (labels[..., start:stop, None] == labels[..., None, :]).to(logits.dtype)
    different = 1 - same
    most_own = (logits + nothing * different).amax(dim=-1, keepdim=True)
    most_other = (logits + nothing * same).amax(dim=-1, keepdim=True)
    # Each side is scaled by its own largest term, so that neither vanishes beside the other.
    terms = (logits - (most_own * same + most_other * different)).clamp_min_(LEAST).exp_()
    terms.diagonal(start, -2, -1).zero_()
    own = (terms * same).sum(dim=-1, keepdim=True).clamp_min(1)
    other = (terms * different).sum(dim=-1, keepdim=True).clamp_min(1)
    # -log(own / (own + other)) = softplus(log other - log own): never negative, exact where clusters are tight.
    has_positive = same.sum(dim=-1) > 1
    difference = torch.where(has_positive[..., None], most_other - most_own + (other.log() - own.log()), nothing)
    slope = torch.sigmoid(difference)
    by_logits = terms * (slope / other * different - slope / own * same)
    by_temperature = (by_logits * logits).sum(dim=-1) / -temperature
    return F.softplus(difference).squeeze(-1), has_positive, by_temperature, by_logits


def _unit_rows(features):
    """Return the rows at length 1 (rows of zeros as they are), and what they were divided by."""
    # Dividing by the largest entry first keeps the norm from overflowing, and leaves it at 1 or more except in a row of zeros.
    largest = torch.maximum(features.amax(dim=-1, keepdim=True), -features.amin(dim=-1, keepdim=True))
    largest = torch.where(largest > 0, largest, 1)
    points = features / largest
    length = torch.linalg.vector_norm(points, dim=-1, keepdim=True).clamp_min(1)
    return points.div_(length), largest * length


def _logits(anchors, points, temperature, distance):
    if distance == "cosine":  # -(1 - similarity) / T without the 1, which all terms of a softmax share
        return (anchors / temperature) @ points.transpose(-1, -2)
    # The expanded form |x|² + |y|² - 2xy loses the distance inside tight, far-off clusters.
    return torch.cdist(anchors, points, compute_mode="donot_use_mm_for_euclid_dist").square() / -temperature


def _add_points_gradient(gradient, by_logits, points, temperature, distance, start, stop):
    """Add the gradient that reaches the points through the logits [..., anchors, B] of the anchors start:stop."""
    anchors = points[..., start:stop, :]
    if distance == "sqeuclidean":
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            gradient += torch.autograd.grad(_logits(points[..., start:stop, :], points, temperature, distance), points, by_logits)[0]
    elif anchors.shape == points.shape:  # one product does for both sides
        gradient += (by_logits + by_logits.transpose(-1, -2)) @ points / temperature
    else:
        gradient[..., start:stop, :] += by_logits @ points / temperature
        gradient += by_logits.transpose(-1, -2) @ anchors / temperature


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
