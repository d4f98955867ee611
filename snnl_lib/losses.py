"""The soft nearest neighbor loss and the objectives built on it (Eqs. 4-8 of the text paper).

Equations are those of *Text Classification and Clustering with Annealing Soft Nearest Neighbor Loss* (A. F. Agarap).
"""

import math
from contextlib import nullcontext
from numbers import Real

import torch
import torch.nn.functional as F

DISTANCES = ("cosine", "sqeuclidean")
REDUCTIONS = ("mean", "sum", "none")
PAIRS_AT_ONCE = 2**26  # what is computed in one block unless told otherwise: 256 MB in float32
CACHED_PAIRS = 2**18  # what a CPU goes through at a time, so that it stays in its cache
TILE = 256  # the side of the squares in which it adds a table to its transpose
LEAST = -80.0  # beside exp(0) = 1 the exponential of less is lost in every dtype; where it underflows it takes a hundred times as long


def soft_nearest_neighbor_loss(
    features, labels, temperature=1.0, *, distance="cosine", reduction="mean", chunk_size=None, references=None, reference_labels=None
):
    """Measure how entangled the classes are in a batch: low when each point's neighbours share its class (Eq. 4).

    Every point picks a neighbour at random, near ones more often (softmax of -distance / temperature over the rest of the
    batch); its loss is minus the log probability that the neighbour has its class.

    Args:
        features: float tensor [..., B, D]; leading axes are independent batches. float16 and bfloat16 are computed and
            returned in float32.
        labels: integer tensor [..., B], classes in any numbering.
        temperature: T > 0; a number, or a tensor of one value that may require a gradient.
        distance: ``"cosine"`` (Eq. 5, in [0, 2]; a row of zeros has distance 1 to everything) or ``"sqeuclidean"``
            (in float32 for rows less than 1e19 apart, where the square still is a number).
        reduction: over the batch axis, ``"mean"``, ``"sum"`` or ``"none"``. A point without another of its class has no
            loss (Eq. 4 would be infinite): 0 under ``"none"``, and left out of the mean. A batch of such points gives 0.
        chunk_size: anchors handled at a time, for memory of O(B x chunk_size) instead of O(B x B); by default as many as a
            quarter of a gigabyte holds. Same value, same gradient.
        references: float tensor [..., R, D], R >= 0, with integer reference_labels [..., R]: more neighbours to pick, such as a
            memory bank or the rows of other ranks. They receive a gradient, but are no anchors. The batch's own rows must not
            be among them: each would find itself at distance 0.

    Returns:
        Tensor [...], or [..., B] for ``"none"``; values >= 0.

    Raises:
        TypeError: features that are not floating point, or labels that are not integers.
        ValueError: a wrong shape, name or number, or features that are not finite (checked on a CPU in eager mode;
            elsewhere NaN propagates).
        RuntimeError: the gradient is differentiated again; it is a closed form, which cannot be.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> labels = torch.tensor([0, 0, 1])
    >>> soft_nearest_neighbor_loss(features, labels)
    tensor(0.5470)
    >>> soft_nearest_neighbor_loss(features, labels, reduction="none")
    tensor([0.4008, 0.6931, 0.0000])
    """
    return _loss(features, labels, temperature, distance, reduction, chunk_size, references, reference_labels)


def _loss(features, labels, temperature, distance="cosine", reduction="mean", chunk_size=None, references=None, reference_labels=None, *, check_finite=True):
    _check_rows(features, labels, "features", "labels", "B", check_finite)
    _check_choice("distance", distance, DISTANCES)
    _check_choice("reduction", reduction, REDUCTIONS)
    _check_temperature(temperature)
    _check_chunk_size(chunk_size)
    anchors = features.shape[-2]
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    if references is not None or reference_labels is not None:
        _check_rows(references, reference_labels, "references", "reference_labels", "R", check_finite)
        if (*references.shape[:-2], references.shape[-1]) != (*features.shape[:-2], features.shape[-1]):
            raise ValueError(f"references must be {_rows(features, 'R')}, got {tuple(references.shape)}")
        features = torch.cat([features, references.to(features.dtype)], dim=-2)
        labels = torch.cat([labels, reference_labels], dim=-1)
    if isinstance(temperature, torch.Tensor):
        temperature = temperature.reshape(())  # [1] or [1, 1, 1] would broadcast into the loss's shape and dtype
        bounded = False
    else:  # logits of cosines lie between -1 / T and 1 / T: their exponentials, and the sums of these, need no scaling unless T is small
        bounded = distance == "cosine" and 2 / temperature <= -LEAST
    losses, has_positive = _SoftNearestNeighbor.apply(features, labels, anchors, temperature, distance, bounded, chunk_size, reduction != "none")
    return losses / has_positive.clamp_min(1).to(losses.dtype) if reduction == "mean" else losses


class _SoftNearestNeighbor(torch.autograd.Function):
    """Eq. 4 with its gradient in closed form.

    A sum over the anchors is differentiated in the forward pass, so that no table of pairs waits for the backward pass. Of
    single losses only the backward pass knows the weights; there they are computed again.
    """

    @staticmethod
    def forward(ctx, features, labels, anchors, temperature, distance, bounded, chunk_size, summed):
        ctx.settings, ctx.summed = (anchors, distance, bounded, chunk_size), summed
        weights = 1 if summed and any(ctx.needs_input_grad) else None
        with _without_autocast(features.device.type):
            losses, has_positive, *gradients = _sweep(features, labels, temperature, *ctx.settings, weights, ctx.needs_input_grad[3])
        tensor = isinstance(temperature, torch.Tensor)
        ctx.number = None if tensor else temperature
        ctx.save_for_backward(features, labels, temperature if tensor else None, *gradients)
        if summed:
            losses, has_positive = losses.sum(dim=-1), has_positive.sum(dim=-1)
        ctx.mark_non_differentiable(has_positive)
        return losses, has_positive

    @staticmethod
    def backward(ctx, upstream, _):
        if torch.is_grad_enabled():  # only under create_graph; torch's own guard misses it where the upstream gradient is a constant
            raise RuntimeError("the gradient of the soft nearest neighbor loss is a closed form that cannot be differentiated again (create_graph=True)")
        features, labels, temperature, by_features, by_temperature = ctx.saved_tensors
        if ctx.summed:
            by_features = by_features * upstream[..., None, None]
            by_temperature = None if by_temperature is None else by_temperature * upstream
        else:
            with _without_autocast(features.device.type):
                settings = (ctx.number if temperature is None else temperature, *ctx.settings, upstream, ctx.needs_input_grad[3])
                *_, by_features, by_temperature = _sweep(features, labels, *settings)
        if by_temperature is not None:
            by_temperature = by_temperature.sum().to(temperature.dtype)
        return by_features, None, None, by_temperature, None, None, None, None


def _without_autocast(device):
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()  # "meta" has none


def _sweep(features, labels, temperature, anchors, distance, bounded, chunk_size, weights, wants_slope):
    """Return for the first rows of the features, the anchors, their losses and which of them have a positive; and for ``weights``
    of the losses, 1 or [..., anchors], the gradients of their sum by the features and, if it is wanted, by the temperature (else None).
    """
    points, scale = _scaled_rows(features, temperature) if distance == "cosine" else (features, None)
    pairs = max(1, labels.numel())  # of an anchor in each of the batches
    chunk_size = min(chunk_size or max(1, PAIRS_AT_ONCE // pairs), anchors)
    on_cpu = points.device.type == "cpu" and not torch.compiler.is_compiling()
    rows, tile = (max(1, CACHED_PAIRS // pairs), TILE) if on_cpu else (chunk_size, anchors)
    labels = labels.long()  # unsigned kinds lack operations; those that wrap stay different
    if on_cpu and labels.numel() and max(map(abs, map(int, labels.aminmax()))) < 2**24:  # as floats they are compared three times as fast
        labels = labels.to(points.dtype)
    parts, gradient, slope = [], None, None
    for start in range(0, anchors, chunk_size):
        stop = min(start + chunk_size, anchors)
        logits = _logits(points[..., start:stop, :], points, temperature, distance)
        for first in range(start, stop, rows):
            last = min(first + rows, stop)
            weight = weights[..., first:last, None] if isinstance(weights, torch.Tensor) else weights
            *part, by_temperature = _anchor_losses(logits[..., first - start : last - start, :], labels, first, bounded, weight, wants_slope)
            parts.append(part)
            if by_temperature is not None:
                slope = by_temperature if slope is None else slope + by_temperature
        if weights is not None:
            found = _points_gradient(logits, points, temperature, distance, start, tile)
            gradient = found if gradient is None else gradient.add_(found)
    losses, has_positive = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True)) if len(parts) > 1 else parts[0]
    if weights is not None:
        if scale is not None:  # a change along a point changes its length alone, which the loss does not see
            gradient.addcmul_(points, (points * gradient).sum(dim=-1, keepdim=True).mul_(-temperature)).div_(scale)
        slope = None if slope is None else slope / -temperature
    return losses, has_positive, gradient, slope


def _anchor_losses(logits, labels, start, bounded, weight, wants_slope):
    """Turn the logits [..., anchors, B] of the anchors from ``start`` on into their losses, and, given a ``weight`` for each
    [..., anchors, 1], the logits themselves into the derivatives of the weighted sum.
    """
    stop = start + logits.shape[-2]
    before = logits.clone() if wants_slope and weight is not None else None
    # Masks are numbers here: a product is many times faster than a selection.
    same = torch.eq(labels[..., start:stop, None], labels[..., None, :], out=torch.empty_like(logits))
    if bounded:
        terms = logits.exp_()
    else:  # each side is scaled by its own largest term, so that neither vanishes beside the other
        nothing = torch.finfo(logits.dtype).min / 4  # a finite stand-in for -inf, which times 0 would be NaN
        logits.clamp_min_(nothing).diagonal(start, -2, -1).fill_(nothing)
        different = 1 - same
        most_own = torch.add(logits, different, alpha=nothing).amax(dim=-1, keepdim=True)
        most_other = torch.add(logits, same, alpha=nothing).amax(dim=-1, keepdim=True)
        terms = logits.sub_(most_own * same).sub_(different.mul_(most_other)).clamp_min_(LEAST).exp_()
    terms.diagonal(start, -2, -1).zero_()  # no point is its own neighbour
    own_terms = same.mul_(terms)
    other_terms = terms.sub_(own_terms)
    own, other = own_terms.sum(dim=-1, keepdim=True), other_terms.sum(dim=-1, keepdim=True)
    has_positive = own != 0
    # -log(own / (own + other)) = softplus(log other - log own): never negative, exact where clusters are tight.
    difference = other.log() - own.log()
    if not bounded:
        difference += most_other - most_own
    difference = torch.where(has_positive, difference, -math.inf)
    by_temperature = None
    if weight is not None:
        slope, least = weight * torch.sigmoid(difference), torch.finfo(terms.dtype).tiny
        other_terms.mul_(slope / other.clamp_min(least)).addcmul_(own_terms, slope / own.clamp_min(least), value=-1)
        by_temperature = None if before is None else (other_terms * before).sum(dim=(-2, -1))
    return F.softplus(difference).squeeze(-1), has_positive.squeeze(-1), by_temperature


def _scaled_rows(features, temperature):
    """Return the rows at length 1 / sqrt(T) (rows of zeros as they are), whose products are the logits, and what they were divided by."""
    # Dividing by the largest entry first keeps the norm from overflowing, and leaves it at 1 or more except in a row of zeros.
    largest = torch.maximum(features.amax(dim=-1, keepdim=True), -features.amin(dim=-1, keepdim=True))
    largest += largest == 0
    points = features / largest
    length = torch.linalg.vector_norm(points, dim=-1, keepdim=True).clamp_min(1) * temperature**0.5
    return points.div_(length), largest * length


def _logits(anchors, points, temperature, distance):
    if distance == "cosine":  # -(1 - similarity) / T without the 1, which all terms of a softmax share
        return anchors @ points.transpose(-1, -2)
    # The expanded form |x|² + |y|² - 2xy loses the distance inside tight, far-off clusters.
    return torch.cdist(anchors, points, compute_mode="donot_use_mm_for_euclid_dist").square() / -temperature


def _points_gradient(by_logits, points, temperature, distance, start, tile):
    """Return the gradient that reaches the points through the logits [..., anchors, B] of the anchors from ``start`` on."""
    stop = start + by_logits.shape[-2]
    if distance == "sqeuclidean":
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            return torch.autograd.grad(_logits(points[..., start:stop, :], points, temperature, distance), points, by_logits)[0]
    if by_logits.shape[-2] == points.shape[-2]:  # every pair both ways round: one product does for both
        if stop <= tile:
            return (by_logits + by_logits.transpose(-1, -2)) @ points
        for first in range(0, stop, tile):  # tile by tile, for a table read down its columns is slow
            for second in range(first, stop, tile):
                one, other = by_logits[..., first : first + tile, second : second + tile], by_logits[..., second : second + tile, first : first + tile]
                both = one + other.transpose(-1, -2)
                one.copy_(both)
                other.copy_(both.transpose(-1, -2))
        return by_logits @ points
    gradient = by_logits.transpose(-1, -2) @ points[..., start:stop, :]
    gradient[..., start:stop, :] += by_logits @ points
    return gradient


def annealed_temperature(epoch, eta=1.0, gamma=0.55):
    """Return the annealed temperature 1 / (eta + epoch)^gamma (Eq. 6); epochs count from 0, and epoch 0 has T = 1 for eta = 1.

    Takes numbers, epoch >= 0, eta > 0 and gamma >= 0, and returns a float > 0. Raises ValueError for others.

    >>> [round(annealed_temperature(epoch), 3) for epoch in (0, 1, 29)]
    [1.0, 0.683, 0.154]
    """
    if not (0 <= epoch < math.inf and 0 < eta < math.inf and 0 <= gamma < math.inf):
        raise ValueError(f"epoch must be >= 0, eta > 0 and gamma >= 0, all finite, got epoch={epoch}, eta={eta}, gamma={gamma}")
    return 1.0 / (eta + epoch) ** gamma


class SoftNearestNeighborLoss(torch.nn.Module):
    """Eq. 4 as a module whose temperature is a number, ``"annealed"`` (Eq. 6) or ``"learnable"`` (on log T, from T = 1).

    ``distance``, ``reduction`` and ``chunk_size`` are those of ``soft_nearest_neighbor_loss``, and so are the arguments, the
    value and the errors of ``forward(features, labels, *, epoch=None, references=None, reference_labels=None)``; ``"annealed"``
    needs the epoch (ValueError without it), the others ignore it.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> labels = torch.tensor([0, 0, 1])
    >>> loss = SoftNearestNeighborLoss("annealed")
    >>> loss(features, labels, epoch=29)
    tensor(0.3516)
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
        """Return T now: a number, or for ``"learnable"`` a tensor [] with a gradient. Raises ValueError if ``"annealed"`` is not told the epoch."""
        if self.temperature == "learnable":
            return self.log_temperature.exp()
        if self.temperature == "annealed":
            if epoch is None:
                raise ValueError('temperature="annealed" needs the epoch: call loss(features, labels, epoch=epoch)')
            return annealed_temperature(epoch)
        return self.temperature

    def forward(self, features, labels, *, epoch=None, references=None, reference_labels=None):
        settings = {"distance": self.distance, "reduction": self.reduction, "chunk_size": self.chunk_size}
        more = {"references": references, "reference_labels": reference_labels}
        return soft_nearest_neighbor_loss(features, labels, self.current_temperature(epoch), **settings, **more)

    def extra_repr(self):
        return f"temperature={self.temperature!r}, distance={self.distance!r}, reduction={self.reduction!r}, chunk_size={self.chunk_size}"


def composite_loss(primary, hidden, labels, *, alpha, temperature, layers="sum", check_finite=True):
    """Add alpha times the soft nearest neighbor loss of hidden layers to a primary loss (Eqs. 7 and 8).

    Args:
        primary: the primary loss, a tensor [...]: cross entropy (Eq. 7) or reconstruction (Eq. 8); [] unless there are leading axes.
        hidden: dict from layer name to float tensor [..., B, D]; D may differ, and more axes after B count as one.
        labels: integer tensor [..., B]; leading axes are independent batches.
        alpha: weight; positive disentangles classes, negative entangles them, 0 leaves the primary loss as it is. A number, or a
            tensor [...] with one for each batch.
        temperature: T > 0, or a tensor of one value.
        layers: ``"sum"`` (over all of ``hidden``, the equations read literally), ``"min"`` (the least entangled layer only),
            or a list of names to sum over.
        check_finite: False skips the look for NaN, for training loops that do their own.

    Returns:
        The composite loss, a tensor [...]; for alpha = 0 the primary loss itself.

    Raises:
        ValueError: an empty ``hidden``, an unknown layer or a bad number; what ``soft_nearest_neighbor_loss`` raises besides.

    >>> hidden = {"hidden1": torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])}
    >>> primary, labels = torch.tensor(0.5), torch.tensor([0, 0, 1])
    >>> composite_loss(primary, hidden, labels, alpha=100, temperature=1.0)
    tensor(55.1990)
    """
    if not isinstance(alpha, torch.Tensor) and (isinstance(alpha, bool) or not isinstance(alpha, Real) or not math.isfinite(alpha)):
        raise ValueError(f"alpha must be a finite number, got {alpha!r}")
    if not hidden:
        raise ValueError("hidden must name at least one layer, got an empty dict")
    names = list(hidden) if layers in ("sum", "min") else layers
    if isinstance(names, str) or not names or any(name not in hidden for name in names):
        raise ValueError(f'layers must be "sum", "min" or some of {list(hidden)}, got {layers!r}')
    if not isinstance(alpha, torch.Tensor) and alpha == 0:
        return primary
    losses = torch.stack([_loss(hidden[name].flatten(labels.ndim), labels, temperature, check_finite=check_finite) for name in names])
    return primary + alpha * (losses.amin(dim=0) if layers == "min" else losses.sum(dim=0))


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


def _rows(features, count):
    return "[" + "".join(f"{size}, " for size in features.shape[:-2]) + f"{count}, {features.shape[-1]}]"


def _check_rows(features, labels, name, labels_name, count, check_finite):
    if not isinstance(features, torch.Tensor) or not features.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {_kind(features)}")
    if not isinstance(labels, torch.Tensor) or labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"{labels_name} must be an integer tensor, got {_kind(labels)}")
    least = 0 if count == "R" else 1
    if features.ndim < 2 or features.shape[-2] < least or features.shape[-1] < 1 or labels.shape != features.shape[:-1]:
        raise ValueError(f"{name} must be [..., {count}, D] and {labels_name} [..., {count}], got {tuple(features.shape)} and {tuple(labels.shape)}")
    looked_at = check_finite and features.device.type == "cpu" and not torch.compiler.is_compiling()
    # The sum at once, where a look at each would take longer than the loss of a small batch; it can overflow by itself.
    if looked_at and not math.isfinite(features.detach().sum()) and not (finite := torch.isfinite(features)).all():
        raise ValueError(f"{name} must be finite, got {features[~finite][0].item()} among them")
