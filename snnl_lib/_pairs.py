"""The kernel of the soft nearest neighbor loss: Eq. 4 over all pairs of a batch, fast and exact.

``losses.reference_loss`` shows the same equation in a few lines. Here its gradient is a closed
form, and its table of pairs is worked on in place, chunk by chunk.
"""

import math
from collections import namedtuple
from contextlib import nullcontext

import torch
import torch.nn.functional as F

PAIRS_AT_ONCE = 2**26  # what is computed in one block unless told otherwise: 256 MB in float32
CACHED_PAIRS = 2**18  # what a CPU goes through at a time, so that it stays in its cache
TILE = 256  # the side of the squares in which a CPU adds a table to its transpose
# Beside exp(0) = 1 the exponential of less is lost in every dtype, and one that underflows takes a
# hundred times as long.
LEAST = -80.0


# What is neither a tensor nor the temperature. The first rows, as many as ``anchors``, have a loss,
# the others are neighbours only; ``summed`` asks for the sum over the anchors.
Settings = namedtuple("Settings", "anchors distance chunk_size ignore_index summed")


class PairLosses(torch.autograd.Function):
    """Eq. 4 with its gradient in closed form.

    Takes checked arguments: features [..., N, D] of 32 or 64 bits, labels [..., N], a temperature
    that is a number or a tensor [], and Settings. Returns the losses of the anchors and which of
    them have a class mate, both [..., anchors], or the sums of both, [...].

    A sum over the anchors is differentiated in the forward pass, so that no table of pairs waits
    for the backward pass. Of single losses only the backward pass knows the weights; there they
    are computed again.
    """

    @staticmethod
    def forward(ctx, features, labels, temperature, settings):
        ctx.settings = settings
        weights = 1 if settings.summed and any(ctx.needs_input_grad) else None
        with _without_autocast(features.device.type):
            losses, has_mate, *gradients = _sweep(
                features, labels, temperature, settings, weights, ctx.needs_input_grad[2]
            )
        learned = torch.is_tensor(temperature)
        tensor, ctx.number = (temperature, None) if learned else (None, temperature)
        ctx.save_for_backward(features, labels, tensor, *gradients)
        if settings.summed:
            losses, has_mate = losses.sum(dim=-1), has_mate.sum(dim=-1)
        ctx.mark_non_differentiable(has_mate)
        return losses, has_mate

    @staticmethod
    def backward(ctx, upstream, _):
        # torch's own guard misses this where the upstream gradient is a constant.
        if torch.is_grad_enabled():  # only under create_graph
            raise RuntimeError(
                "the gradient of soft_nearest_neighbor_loss is a closed form that cannot be "
                "differentiated again (create_graph=True); that of reference_loss can"
            )
        features, labels, temperature, by_features, by_temperature = ctx.saved_tensors
        wants_slope = ctx.needs_input_grad[2]
        if ctx.settings.summed:
            by_features = by_features * upstream[..., None, None]
            by_temperature = by_temperature * upstream if wants_slope else None
        else:
            at = ctx.number if temperature is None else temperature
            with _without_autocast(features.device.type):
                *_, by_features, by_temperature = _sweep(
                    features, labels, at, ctx.settings, upstream, wants_slope
                )
        if wants_slope:
            by_temperature = by_temperature.sum().to(temperature.dtype)
        return by_features, None, by_temperature, None


def _without_autocast(device):
    known = torch.amp.is_autocast_available(device)  # "meta" has none
    return torch.autocast(device, enabled=False) if known else nullcontext()


def _sweep(features, labels, temperature, settings, weights, wants_slope):
    """Return the losses of the anchors, which of them have a class mate, and two gradients.

    The gradients are those of the sum of the losses times ``weights``, 1 or [..., anchors]: by the
    features, and with ``wants_slope`` by the temperature. For weights None both are None.
    """
    anchors, distance, chunk_size, ignore_index, _ = settings
    cosine = distance == "cosine"
    points, scale = _scaled_rows(features, temperature) if cosine else (features, None)
    pairs = max(1, labels.numel())  # of an anchor in each of the batches
    chunk_size = min(chunk_size or max(1, PAIRS_AT_ONCE // pairs), anchors)
    on_cpu = points.device.type == "cpu" and not torch.compiler.is_compiling()
    rows, tile = (max(1, CACHED_PAIRS // pairs), TILE) if on_cpu else (chunk_size, anchors)
    # Logits of cosines lie between -1 / T and 1 / T: unless T is small, their exponentials and the
    # sums of these need no scaling.
    bounded = cosine and not torch.is_tensor(temperature) and 2 / temperature <= -LEAST
    labels = labels.long()  # unsigned kinds lack operations; those that wrap stay different
    kept = None if ignore_index is None else (labels != ignore_index).to(points.dtype)
    if on_cpu and labels.numel() and max(map(abs, map(int, labels.aminmax()))) < 2**24:
        labels = labels.to(points.dtype)  # as floats they are compared three times as fast
    parts, gradient, slope = [], None, None
    for start in range(0, anchors, chunk_size):
        stop = min(start + chunk_size, anchors)
        logits = _logits(points[..., start:stop, :], points, temperature, distance)
        for first in range(start, stop, rows):
            last = min(first + rows, stop)
            block = logits[..., first - start : last - start, :]
            weight = weights[..., first:last, None] if torch.is_tensor(weights) else weights
            before = block.clone() if wants_slope and weights is not None else None
            parts.append(_block_losses(block, labels, kept, first, bounded, weight))
            if before is not None:
                by_scale = (block * before).sum(dim=(-2, -1))
                slope = by_scale if slope is None else slope + by_scale
        if weights is not None:
            by_points = _points_gradient(logits, points, temperature, distance, start, tile)
            gradient = by_points if gradient is None else gradient.add_(by_points)
    losses, has_mate = parts[0]
    if len(parts) > 1:
        losses, has_mate = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
    if weights is not None and cosine:  # the loss does not see a change of a point's length
        along = (points * gradient).sum(dim=-1, keepdim=True).mul_(-temperature)
        gradient.addcmul_(points, along).div_(scale)
    return losses, has_mate, gradient, None if slope is None else slope / -temperature


def _block_losses(logits, labels, kept, start, bounded, weight):
    """Return the losses of the anchors from ``start`` on, and which of these have a class mate.

    Their logits [..., rows, N] are used up: a ``weight``, 1 or [..., rows, 1], turns them into the
    derivatives of the weighted sum. ``kept`` [..., N] is 0 for rows to be ignored.
    """
    # Masks are numbers here: a product is many times faster than a selection.
    labels_down = labels[..., start : start + logits.shape[-2], None]
    same = torch.eq(labels_down, labels[..., None, :], out=torch.empty_like(logits))
    if bounded:
        terms = logits.exp_()
    else:  # each side is scaled by its own largest term, so that neither vanishes beside the other
        nothing = torch.finfo(logits.dtype).min / 4  # as -inf, which times 0 would be NaN
        if kept is not None:
            logits.add_(1 - kept[..., None, :], alpha=nothing)
        logits.clamp_min_(nothing).diagonal(start, -2, -1).fill_(nothing)
        different = 1 - same
        top_mate = torch.add(logits, different, alpha=nothing).amax(dim=-1, keepdim=True)
        top_other = torch.add(logits, same, alpha=nothing).amax(dim=-1, keepdim=True)
        logits.sub_(top_mate * same).sub_(different.mul_(top_other))
        terms = logits.clamp_min_(LEAST).exp_()
    terms.diagonal(start, -2, -1).zero_()  # no point is its own neighbour
    if kept is not None:  # an anchor to be ignored is left without mates, for all have its label
        terms.mul_(kept[..., None, :])
    mate_terms = same.mul_(terms)
    other_terms = terms.sub_(mate_terms)
    mates, others = mate_terms.sum(dim=-1, keepdim=True), other_terms.sum(dim=-1, keepdim=True)
    has_mate = mates != 0
    # -log(mates / (mates + others)) = softplus(log others - log mates): never negative, and exact
    # where clusters are tight.
    difference = others.log() - mates.log()
    if not bounded:
        difference += top_other - top_mate
    difference = torch.where(has_mate, difference, -math.inf)
    if weight is not None:
        pull, tiny = weight * torch.sigmoid(difference), torch.finfo(terms.dtype).tiny
        other_terms.mul_(pull / others.clamp_min(tiny))
        other_terms.addcmul_(mate_terms, pull / mates.clamp_min(tiny), value=-1)
    return F.softplus(difference).squeeze(-1), has_mate.squeeze(-1)


def _scaled_rows(features, temperature):
    """Return the rows at length 1 / sqrt(T), whose products are the logits, and their divisors.

    Rows of zeros stay as they are.
    """
    # Dividing by the largest entry first keeps the norm from overflowing, and leaves it at 1 or
    # more except in a row of zeros.
    highest, lowest = features.amax(dim=-1, keepdim=True), features.amin(dim=-1, keepdim=True)
    largest = torch.maximum(highest, -lowest)
    largest += largest == 0
    points = features / largest
    length = torch.linalg.vector_norm(points, dim=-1, keepdim=True).clamp_min(1) * temperature**0.5
    return points.div_(length), largest * length


def _logits(anchors, points, temperature, distance):
    if distance == "cosine":  # -(1 - cosine) / T without the 1, which all terms of a softmax share
        return anchors @ points.transpose(-1, -2)
    # The expanded form |x|² + |y|² - 2xy loses the distance inside tight, far-off clusters.
    distances = torch.cdist(anchors, points, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.square() / -temperature


def _points_gradient(by_logits, points, temperature, distance, start, tile):
    """Return the gradient by the points, through the logits of the anchors from ``start`` on."""
    stop = start + by_logits.shape[-2]
    if distance == "sqeuclidean":
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            logits = _logits(points[..., start:stop, :], points, temperature, distance)
            return torch.autograd.grad(logits, points, by_logits)[0]
    if by_logits.shape[-2] < points.shape[-2]:
        gradient = by_logits.transpose(-1, -2) @ points[..., start:stop, :]
        gradient[..., start:stop, :] += by_logits @ points
        return gradient
    if stop <= tile:  # every pair is there both ways round: one product does for both
        return (by_logits + by_logits.transpose(-1, -2)) @ points
    for first in range(0, stop, tile):  # tile by tile: a table read down its columns is slow
        for second in range(first, stop, tile):
            upper = by_logits[..., first : first + tile, second : second + tile]
            lower = by_logits[..., second : second + tile, first : first + tile]
            both = upper + lower.transpose(-1, -2)
            upper.copy_(both)
            lower.copy_(both.transpose(-1, -2))
    return by_logits @ points
