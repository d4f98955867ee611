"""The fast computation of Eq. 4 and its gradient, over all pairs of a batch.

``losses.reference_loss`` shows the same equation in a few lines. Two things make this one fast: its
gradient is a closed form, and it works on the table of pairs in place, one chunk of anchors after
the other.
"""

import math
from collections import namedtuple
from contextlib import nullcontext

import torch
import torch.nn.functional as F

from snnl_lib.devices import exact_products, has_float64

PAIRS_AT_ONCE = 2**26  # pairs in a chunk by default: 256 MB in float32
CACHED_PAIRS = 2**18  # pairs in a block that stays in a CPU's cache
TILE = 256  # side of the squares in which a CPU adds a table to its transpose
# exp(-80) is lost beside exp(0) = 1 in every dtype. Smaller terms would underflow, which takes a
# CPU a hundred times as long.
LOWEST_EXPONENT = -80.0


# The arguments of PairLosses that are neither a tensor nor the temperature. The first ``anchors``
# rows have a loss, the others are only neighbours. ``summed`` asks for the sum over the anchors.
Settings = namedtuple("Settings", "anchors distance chunk_size ignore_index summed")


class PairLosses(torch.autograd.Function):
    """Eq. 4 with its gradient in closed form.

    Takes arguments that were checked: features [..., N, D] of 32 or 64 bits, labels [..., N] or
    [..., N, C] (several classes per row), a temperature (a number or a tensor []), and Settings.
    Returns the losses of the anchors and whether each has a class mate, both [..., anchors]; or the
    sums of both over the anchors, [...].

    The gradient of a sum is computed in the forward pass, so that no table of pairs has to wait
    for the backward pass. Single losses may be weighted, and only the backward pass knows the
    weights: there the losses are computed again.
    """

    @staticmethod
    def forward(ctx, features, labels, temperature, settings):
        weights = 1 if settings.summed and any(ctx.needs_input_grad) else None
        with _without_autocast(features.device.type), exact_products():
            losses, has_mate, by_features, by_temperature = _sweep(
                features, labels, temperature, settings, weights, ctx.needs_input_grad[2]
            )
        ctx.settings = settings
        if torch.is_tensor(temperature):
            ctx.save_for_backward(features, labels, by_features, by_temperature, temperature)
        else:
            ctx.save_for_backward(features, labels, by_features, by_temperature)
            ctx.temperature = temperature
        if settings.summed:
            losses, has_mate = losses.sum(dim=-1), has_mate.sum(dim=-1)
        ctx.mark_non_differentiable(has_mate)
        return losses, has_mate

    @staticmethod
    def backward(ctx, upstream, _):
        # Torch's own guard misses this if the upstream gradient is a constant.
        if torch.is_grad_enabled():  # only under create_graph
            raise RuntimeError(
                "the gradient of soft_nearest_neighbor_loss is a closed form that cannot be "
                "differentiated again (create_graph=True); that of reference_loss can"
            )
        features, labels, by_features, by_temperature, *learned = ctx.saved_tensors
        wants_slope = ctx.needs_input_grad[2]
        if ctx.settings.summed:
            by_features = by_features * upstream[..., None, None]
            by_temperature = by_temperature * upstream if wants_slope else None
        else:
            temperature = learned[0] if learned else ctx.temperature
            with _without_autocast(features.device.type), exact_products():
                _, _, by_features, by_temperature = _sweep(
                    features, labels, temperature, ctx.settings, upstream, wants_slope
                )
        if wants_slope:
            by_temperature = by_temperature.sum().to(learned[0].dtype)
        return by_features, None, by_temperature, None


def _without_autocast(device):
    has_autocast = torch.amp.is_autocast_available(device)  # not on the device "meta"
    return torch.autocast(device, enabled=False) if has_autocast else nullcontext()


def _sweep(features, labels, temperature, settings, weights, wants_slope):
    """Return the losses of the anchors, whether each has a class mate, and two gradients.

    The gradients are those of the sum of the losses times ``weights`` (1 or [..., anchors]): by the
    features, and by the temperature if ``wants_slope``. Without weights, both are None.
    """
    anchors, distance, chunk_size, ignore_index, _ = settings
    cosine = distance == "cosine"
    points, divisors = _scaled_rows(features, temperature) if cosine else (features, None)
    # Logits of cosines lie between -1 / T and 1 / T. Unless T is small, neither their exponentials
    # nor the sums of these need scaling.
    bounded = cosine and not torch.is_tensor(temperature) and 2 / temperature <= -LOWEST_EXPONENT
    chunk_size, block_size, tile = _table_sizes(points, anchors, chunk_size)
    labels, kept = _prepared_labels(labels, ignore_index, points)

    blocks = []
    gradient = slope = None
    for start in range(0, anchors, chunk_size):
        stop = min(start + chunk_size, anchors)
        logits = _logits(points[..., start:stop, :], points, temperature, distance)
        for first in range(start, stop, block_size):
            last = min(first + block_size, stop)
            block = logits[..., first - start : last - start, :]
            weight = weights[..., first:last, None] if torch.is_tensor(weights) else weights
            before = block.clone() if wants_slope and weights is not None else None
            blocks.append(_block_losses(block, labels, kept, first, bounded, weight))
            if before is not None:
                by_scale = (block * before).sum(dim=(-2, -1))
                slope = by_scale if slope is None else slope + by_scale
        if weights is not None:  # by now the logits have become their own derivatives
            by_points = _points_gradient(logits, points, temperature, distance, start, tile)
            gradient = by_points if gradient is None else gradient.add_(by_points)

    losses, has_mate = blocks[0]
    if len(blocks) > 1:
        losses, has_mate = (torch.cat(parts, dim=-1) for parts in zip(*blocks, strict=True))
    if weights is not None and cosine:  # a change of a row's length leaves the loss as it is
        along = (points * gradient).sum(dim=-1, keepdim=True).mul_(-temperature)
        gradient.addcmul_(points, along).div_(divisors)
    return losses, has_mate, gradient, None if slope is None else slope / -temperature


def _on_cpu(points):
    return points.device.type == "cpu" and not torch.compiler.is_compiling()


def _table_sizes(points, anchors, chunk_size):
    """Return how many anchors make a chunk and a block, and the side of a tile."""
    pairs_of_an_anchor = max(1, math.prod(points.shape[:-1]))  # over all batches
    chunk_size = min(chunk_size or max(1, PAIRS_AT_ONCE // pairs_of_an_anchor), anchors)
    if _on_cpu(points):
        return chunk_size, max(1, CACHED_PAIRS // pairs_of_an_anchor), TILE
    return chunk_size, chunk_size, anchors


def _prepared_labels(labels, ignore_index, points):
    """Return labels that are fast to compare, and 0 or 1 for rows to ignore or keep, or None."""
    if labels.ndim == points.ndim:  # several classes per row, which are multiplied
        return labels.to(points.dtype), None
    labels = labels.long()  # unsigned types lack operations; values that wrap stay different
    kept = None if ignore_index is None else (labels != ignore_index).to(points.dtype)
    # Floats are compared three times as fast. Float32 holds whole numbers up to 2^24.
    if _on_cpu(points) and labels.numel() and max(map(abs, map(int, labels.aminmax()))) < 2**24:
        labels = labels.to(points.dtype)
    return labels, kept


def _block_losses(logits, labels, kept, start, bounded, weight):
    """Return the losses of the anchors from ``start`` on, and whether each has a class mate.

    This overwrites their logits [..., rows, N]. With a ``weight`` (1 or [..., rows, 1]) they become
    the derivatives of the weighted sum of the losses; without one (None) they hold nothing of use.
    ``kept`` [..., N] is 0 for rows to ignore, or None.
    """
    # Masks are numbers here: a product is many times faster than a selection.
    same = _same_class(labels, start, logits)
    if bounded:
        terms = logits.exp_()
    else:
        # Mates and others are each scaled by their own largest term, so that neither sum vanishes.
        masked = torch.finfo(logits.dtype).min / 4  # in place of -inf, which times 0 would be NaN
        if kept is not None:
            logits.add_(1 - kept[..., None, :], alpha=masked)
        logits.clamp_min_(masked).diagonal(start, -2, -1).fill_(masked)
        different = 1 - same
        top_mate = torch.add(logits, different, alpha=masked).amax(dim=-1, keepdim=True)
        top_other = torch.add(logits, same, alpha=masked).amax(dim=-1, keepdim=True)
        logits.sub_(top_mate * same).sub_(different.mul_(top_other))
        terms = logits.clamp_min_(LOWEST_EXPONENT).exp_()
    terms.diagonal(start, -2, -1).zero_()  # no point is its own neighbour
    if kept is not None:  # an ignored anchor loses its mates, because all of them are ignored too
        terms.mul_(kept[..., None, :])
    mate_terms = same.mul_(terms)
    other_terms = terms.sub_(mate_terms)
    mates = mate_terms.sum(dim=-1, keepdim=True)
    others = other_terms.sum(dim=-1, keepdim=True)
    has_mate = mates != 0
    # -log(mates / (mates + others)) = softplus(log others - log mates), which is never negative,
    # and exact for tight clusters.
    difference = others.log() - mates.log()
    if not bounded:
        difference += top_other - top_mate
    difference = torch.where(has_mate, difference, -math.inf)
    if weight is not None:
        pull = weight * torch.sigmoid(difference)
        tiny = torch.finfo(terms.dtype).tiny
        other_terms.mul_(pull / others.clamp_min(tiny))
        other_terms.addcmul_(mate_terms, pull / mates.clamp_min(tiny), value=-1)
    return F.softplus(difference).squeeze(-1), has_mate.squeeze(-1)


def _same_class(labels, start, logits):
    """Return 1 for pairs that share a class and 0 for others, a table like ``logits``."""
    stop = start + logits.shape[-2]
    if labels.ndim == logits.ndim:
        return (labels[..., start:stop, :] @ labels.mT).clamp_max_(1)
    anchor_labels = labels[..., start:stop, None]
    return torch.eq(anchor_labels, labels[..., None, :], out=torch.empty_like(logits))


def _scaled_rows(features, temperature):
    """Return the rows divided to length 1 / sqrt(T), so that their products are the logits.

    Also returns the divisors. Rows of zeros stay as they are.
    """
    # Dividing by the largest entry first keeps the norm from overflowing. The norm is then at least
    # 1, except for a row of zeros.
    highest = features.amax(dim=-1, keepdim=True)
    lowest = features.amin(dim=-1, keepdim=True)
    largest = torch.maximum(highest, -lowest)
    largest += largest == 0
    points = features / largest
    length = torch.linalg.vector_norm(points, dim=-1, keepdim=True).clamp_min(1) * temperature**0.5
    return points.div_(length), largest * length


def _logits(anchors, points, temperature, distance):
    """Return -distance / T of all pairs, [..., anchors, N], up to a constant."""
    if distance == "cosine":  # cosine / T: the constant -1 / T cancels in the softmax
        return anchors @ points.transpose(-1, -2)
    # The expanded form |x|² + |y|² - 2xy would lose the small distances in far-off clusters.
    distances = torch.cdist(anchors, points, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.square() / -temperature


def _points_gradient(by_logits, points, temperature, distance, start, tile):
    """Return the gradient by the points through one chunk: its anchors, from ``start`` on.

    ``by_logits`` [..., chunk, N] are the derivatives by the chunk's logits; they are overwritten.
    """
    stop = start + by_logits.shape[-2]
    if distance == "sqeuclidean":
        return _by_squared_distances(by_logits, points, temperature, start)
    if by_logits.shape[-2] < points.shape[-2]:
        gradient = by_logits.transpose(-1, -2) @ points[..., start:stop, :]
        gradient[..., start:stop, :] += by_logits @ points
        return gradient
    # The chunk is the whole table, so it has every pair twice: one product can serve both.
    if stop <= tile:
        return (by_logits + by_logits.transpose(-1, -2)) @ points
    for first in range(0, stop, tile):  # in tiles, because reading down whole columns is slow
        for second in range(first, stop, tile):
            upper = by_logits[..., first : first + tile, second : second + tile]
            lower = by_logits[..., second : second + tile, first : first + tile]
            both = upper + lower.transpose(-1, -2)
            upper.copy_(both)
            lower.copy_(both.transpose(-1, -2))
    return by_logits @ points


def _by_squared_distances(by_logits, points, temperature, start):
    """Return the gradient by the points through the negative squared distances of one chunk.

    The pair (i, j) moves i by ``weight * (x_i - x_j)`` and j the other way. Torch's own derivative
    of ``cdist`` would hold a table of these differences, [chunk, N, D], on a GPU. Sums of products
    need no such table, but they lose the small differences in far-off clusters; float64 keeps them.
    """
    exact = torch.float64 if has_float64(points.device) else points.dtype
    weights = by_logits.to(exact) * (-2 / temperature)
    points_exact = points.to(exact)
    points_exact = points_exact - points_exact.mean(dim=-2, keepdim=True)
    anchors = points_exact[..., start : start + weights.shape[-2], :]
    gradient = weights.sum(dim=-2)[..., None] * points_exact - weights.mT @ anchors
    gradient[..., start : start + weights.shape[-2], :] += (
        weights.sum(dim=-1)[..., None] * anchors - weights @ points_exact
    )
    return gradient.to(points.dtype)
