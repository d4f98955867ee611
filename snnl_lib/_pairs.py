"""A fast soft nearest neighbor loss (Eq. 4 of the text paper, see ``losses``) with its gradient.

``losses.reference_loss`` shows the same equation in a few lines. This module processes the table of
pairs in chunks of anchors (the points that have a loss), each in three steps:

1. ``_logits`` computes the chunk's logits, -distance / T for each anchor and each neighbour.
2. ``_block_losses`` computes the losses of the anchors, a few anchors at a time so that their
   logits fit into a CPU's cache. It replaces the logits with the derivatives of the losses.
3. ``_point_gradient`` turns these derivatives into the chunk's part of the gradient with respect
   to the points. The parts of all chunks are added up.

The computation is fast because the gradient has a closed form, and because a single table holds
first the logits, then their exponentials, and finally the derivatives.
"""

import math
from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F

from snnl_lib.devices import exact_products, has_float64

PAIRS_AT_ONCE = 2**26  # pairs in a chunk by default: 256 MB in float32
CACHED_PAIRS = 2**18  # pairs in a block that stays in a CPU's cache
TILE = 256  # side of the squares in which a CPU adds a table to its transpose
# In every dtype, adding exp(-80) to exp(0) = 1 changes nothing. Smaller terms would underflow, and
# a CPU takes a hundred times as long to compute these.
LOWEST_EXPONENT = -80.0


class Settings(NamedTuple):
    """The arguments of PairLosses other than the tensors and the temperature.

    The first ``anchor_count`` rows are anchors; the other rows are only neighbours. ``summed`` says
    whether to sum the losses over the anchors. The other settings are arguments of
    ``losses.soft_nearest_neighbor_loss``.
    """

    anchor_count: int
    distance: str
    chunk_size: int | None
    ignore_index: int | None
    summed: bool


class PairLosses(torch.autograd.Function):
    """The soft nearest neighbor loss (Eq. 4) with its gradient in closed form.

    The arguments, which must already have been checked, are float32 or float64 features [..., N,
    D], labels [..., N] or (several classes per row) [..., N, C], a temperature (a number or a
    scalar tensor), and Settings. The results are the losses of the anchors and whether each anchor
    has a classmate (another point of its class), both of shape [..., anchors]. If ``summed`` is
    True, both are summed over the anchors and have shape [...].

    For sums, the forward pass also computes the gradient, so no table of pairs has to be kept for
    the backward pass. Losses that are not summed can receive different weights. Only the backward
    pass knows these weights, so it computes the losses again.
    """

    @staticmethod
    def forward(ctx, features, labels, temperature, settings):
        anchor_weights = 1 if settings.summed and any(ctx.needs_input_grad) else None
        temperature_learned = ctx.needs_input_grad[2]
        with without_autocast(features.device.type), exact_products():
            losses, has_mate, feature_gradient, temperature_gradient = _losses_and_gradients(
                features, labels, temperature, settings, anchor_weights, temperature_learned
            )
        ctx.settings = settings
        if settings.summed:  # the backward pass needs the gradients only
            features, labels = features.new_empty(0), labels.new_empty(0)
        if torch.is_tensor(temperature):
            ctx.save_for_backward(
                features, labels, feature_gradient, temperature_gradient, temperature
            )
        else:
            ctx.save_for_backward(features, labels, feature_gradient, temperature_gradient)
            ctx.temperature = temperature
        if settings.summed:
            losses, has_mate = losses.sum(dim=-1), has_mate.sum(dim=-1)
        ctx.mark_non_differentiable(has_mate)
        return losses, has_mate

    @staticmethod
    def backward(ctx, loss_gradient, _):
        # Torch's own guard misses this if the gradient of the loss is a constant.
        if torch.is_grad_enabled():  # only under create_graph
            raise RuntimeError(
                "soft_nearest_neighbor_loss computes its gradient in closed form, which cannot be "
                "differentiated again (create_graph=True): use reference_loss instead"
            )
        features, labels, feature_gradient, temperature_gradient, *tensors = ctx.saved_tensors
        temperature = tensors[0] if tensors else ctx.temperature
        temperature_learned = ctx.needs_input_grad[2]
        if ctx.settings.summed:
            feature_gradient = feature_gradient * loss_gradient[..., None, None]
            if temperature_learned:
                temperature_gradient = temperature_gradient * loss_gradient
        else:
            with without_autocast(features.device.type), exact_products():
                _, _, feature_gradient, temperature_gradient = _losses_and_gradients(
                    features, labels, temperature, ctx.settings, loss_gradient, temperature_learned
                )
        if temperature_learned:
            temperature_gradient = temperature_gradient.sum().to(temperature.dtype)
        return feature_gradient, None, temperature_gradient, None


def without_autocast(device):
    has_autocast = torch.amp.is_autocast_available(device)  # not on the device "meta"
    return torch.autocast(device, enabled=False) if has_autocast else nullcontext()


def _losses_and_gradients(
    features, labels, temperature, settings, anchor_weights, temperature_learned
):
    """Return the losses of the anchors, whether each has a classmate, and two gradients.

    The gradients are those of the weighted sum of the losses, with weights ``anchor_weights`` (1 or
    [..., anchors]). The first gradient is with respect to the features. The second is with respect
    to the temperature, or None if the temperature is not learned. Without weights, both are None.
    """
    anchor_count, distance, chunk_size, ignore_index, _ = settings
    cosine = distance == "cosine"
    points, divisors = _scaled_rows(features, temperature) if cosine else (features, None)
    # Logits of cosines lie between -1 / T and 1 / T. Unless T is small, neither their exponentials
    # nor the sums of these need scaling.
    bounded = cosine and not torch.is_tensor(temperature) and 2 / temperature <= -LOWEST_EXPONENT
    chunk_size, block_size, tile_size = _table_sizes(points, anchor_count, distance, chunk_size)
    labels, row_mask = _prepared_labels(labels, ignore_index, points)

    block_results = []
    point_gradient = scale_gradient = None
    for chunk_start in range(0, anchor_count, chunk_size):
        chunk_end = min(chunk_start + chunk_size, anchor_count)
        logits = _logits(points, chunk_start, chunk_end, temperature, distance)
        for block_start in range(chunk_start, chunk_end, block_size):
            block_end = min(block_start + block_size, chunk_end)
            block = logits[..., block_start - chunk_start : block_end - chunk_start, :]
            block_weights = anchor_weights
            if torch.is_tensor(anchor_weights):
                block_weights = anchor_weights[..., block_start:block_end, None]
            learns = temperature_learned and anchor_weights is not None
            block_logits = block.clone() if learns else None
            block_results.append(
                _block_losses(block, labels, row_mask, block_start, bounded, block_weights)
            )
            if learns:  # the block now holds derivatives
                block_gradient = (block * block_logits).sum(dim=(-2, -1))
                scale_gradient = (
                    block_gradient if scale_gradient is None else scale_gradient + block_gradient
                )
        if anchor_weights is not None:  # all of the chunk's logits are now derivatives
            chunk_gradient = _point_gradient(
                logits, points, temperature, distance, chunk_start, tile_size
            )
            point_gradient = (
                chunk_gradient if point_gradient is None else point_gradient.add_(chunk_gradient)
            )

    losses, has_mate = block_results[0]
    if len(block_results) > 1:
        losses, has_mate = (torch.cat(parts, dim=-1) for parts in zip(*block_results, strict=True))
    if anchor_weights is None:
        return losses, has_mate, None, None
    # All logits are proportional to 1 / T. The derivative with respect to T is therefore that with
    # respect to a common factor of the logits, divided by -T.
    temperature_gradient = None if scale_gradient is None else scale_gradient / -temperature
    if cosine:
        point_gradient = _gradient_of_scaled_rows(point_gradient, points, divisors, temperature)
    return losses, has_mate, point_gradient, temperature_gradient


def _on_cpu(points):
    return points.device.type == "cpu" and not torch.compiler.is_compiling()


def _table_sizes(points, anchor_count, distance, chunk_size):
    """Return the number of anchors in a chunk and in a block, and the side of a tile."""
    pairs_of_an_anchor = max(1, math.prod(points.shape[:-1]))  # over all batches
    # Squared distances also need a table in float64 and copies of the points in float64.
    pairs_at_once = PAIRS_AT_ONCE if distance == "cosine" else PAIRS_AT_ONCE // 8
    chunk_size = min(chunk_size or max(1, pairs_at_once // pairs_of_an_anchor), anchor_count)
    if _on_cpu(points):
        return chunk_size, max(1, CACHED_PAIRS // pairs_of_an_anchor), TILE
    return chunk_size, chunk_size, anchor_count


def _prepared_labels(labels, ignore_index, points):
    """Return labels that are fast to compare, and a mask of the rows, [..., N].

    The mask is 0 for rows to ignore and 1 for other rows. Without ``ignore_index``, it is None.
    """
    if labels.ndim == points.ndim:  # several classes per row, which are multiplied
        return labels.to(points.dtype), None
    labels = labels.long()  # unsigned types lack operations; values that wrap stay different
    row_mask = None if ignore_index is None else (labels != ignore_index).to(points.dtype)
    # Floats are compared three times as fast. Float32 holds whole numbers up to 2^24.
    if _on_cpu(points) and labels.numel() and max(map(abs, map(int, labels.aminmax()))) < 2**24:
        labels = labels.to(points.dtype)
    return labels, row_mask


def _block_losses(logits, labels, row_mask, block_start, bounded, weights):
    """Return the losses of a block's anchors, and whether each has a classmate.

    The first anchor of the block is row ``block_start``. The logits [..., anchors, N] are
    overwritten: with ``weights`` (1 or [..., anchors, 1]) by the derivatives of the weighted sum of
    the losses, and without weights by meaningless values. ``row_mask`` [..., N] is 0 for rows to
    ignore, or None if there are none. If ``bounded`` is True, the exponentials of the logits need
    no scaling.
    """
    # Masks are numbers here: a product is many times faster than a selection.
    same_class = _same_class(labels, block_start, logits)
    if bounded:
        exponentials = logits.exp_()
    else:
        # Mates and others are each scaled by their own largest exponential, so that neither sum
        # vanishes.
        masked = torch.finfo(logits.dtype).min / 4  # in place of -inf, which times 0 would be NaN
        if row_mask is not None:
            logits.add_(1 - row_mask[..., None, :], alpha=masked)
        logits.clamp_min_(masked).diagonal(block_start, -2, -1).fill_(masked)
        other_class = 1 - same_class
        top_mate = torch.add(logits, other_class, alpha=masked).amax(dim=-1, keepdim=True)
        top_other = torch.add(logits, same_class, alpha=masked).amax(dim=-1, keepdim=True)
        logits.sub_(top_mate * same_class).sub_(other_class.mul_(top_other))
        exponentials = logits.clamp_min_(LOWEST_EXPONENT).exp_()
    exponentials.diagonal(block_start, -2, -1).zero_()  # no point is its own neighbour
    if row_mask is not None:  # an ignored anchor loses its mates, because all are ignored too
        exponentials.mul_(row_mask[..., None, :])
    of_mates = same_class.mul_(exponentials)
    of_others = exponentials.sub_(of_mates)
    mate_sum = of_mates.sum(dim=-1, keepdim=True)
    other_sum = of_others.sum(dim=-1, keepdim=True)
    has_mate = mate_sum != 0
    # -log(mates / (mates + others)) = softplus(log others - log mates), which is never negative,
    # and exact for tight clusters.
    log_ratio = other_sum.log() - mate_sum.log()
    if not bounded:
        log_ratio += top_other - top_mate
    log_ratio = torch.where(has_mate, log_ratio, -math.inf)
    if weights is not None:
        # The derivative of softplus is the logistic function. Others share it in proportion to
        # their exponentials, and mates share its negative.
        slope = weights * torch.sigmoid(log_ratio)
        tiny = torch.finfo(logits.dtype).tiny
        of_others.mul_(slope / other_sum.clamp_min(tiny))
        of_others.addcmul_(of_mates, slope / mate_sum.clamp_min(tiny), value=-1)
    return F.softplus(log_ratio).squeeze(-1), has_mate.squeeze(-1)


def _same_class(labels, block_start, logits):
    """Return a table like ``logits`` with 1 for pairs that share a class and 0 for other pairs."""
    block_end = block_start + logits.shape[-2]
    if labels.ndim == logits.ndim:
        return (labels[..., block_start:block_end, :] @ labels.mT).clamp_max_(1)
    anchor_labels = labels[..., block_start:block_end, None]
    return torch.eq(anchor_labels, labels[..., None, :], out=torch.empty_like(logits))


def _scaled_rows(features, temperature):
    """Return the rows scaled to length 1 / sqrt(T), and their divisors.

    The products of the scaled rows are the logits. Rows of zeros stay unchanged.
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


def _gradient_of_scaled_rows(point_gradient, points, divisors, temperature):
    """Convert the gradient with respect to scaled rows into that with respect to the features.

    The length of a row does not affect the loss, so the gradient has no component along the row.
    This function overwrites ``point_gradient``.
    """
    part_along = (points * point_gradient).sum(dim=-1, keepdim=True).mul_(-temperature)
    return point_gradient.addcmul_(points, part_along).div_(divisors)


def _logits(points, chunk_start, chunk_end, temperature, distance):
    """Return -distance / T for a chunk's anchors and all points, up to an additive constant."""
    anchors = points[..., chunk_start:chunk_end, :]
    if distance == "cosine":  # cosine / T: the constant -1 / T cancels in the softmax
        return anchors @ points.mT
    if _on_cpu(points) and points.dtype == torch.float32:
        rows = _centred_rows(points)
        squares = rows.square().sum(dim=-1, keepdim=True)
        # |x|² + |y|² - 2xy is a single product, ten times as fast as differences. In float64, it
        # is off by about 1e-16 |x|², which changes a logit by less than 1e-8 here.
        if (squares < 1e7 * temperature).all():
            ones = torch.ones_like(squares)
            anchors = torch.cat([rows, squares, ones], dim=-1)[..., chunk_start:chunk_end, :]
            products = (anchors / -temperature) @ torch.cat([-2 * rows, ones, squares], dim=-1).mT
            return products.to(points.dtype).clamp_max_(0)
    distances = torch.cdist(anchors, points, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.square_().div_(-temperature)


def _centred_rows(points):
    """Return the points minus their mean, in float64 if the device supports it."""
    rows = points.to(torch.float64 if has_float64(points.device) else points.dtype)
    return rows - rows.mean(dim=-2, keepdim=True)


def _point_gradient(derivatives, points, temperature, distance, chunk_start, tile_size):
    """Return one chunk's part of the gradient with respect to the points.

    The chunk's first anchor is row ``chunk_start``. ``derivatives`` [..., chunk, N] are the
    derivatives with respect to its logits; they are overwritten.
    """
    chunk_end = chunk_start + derivatives.shape[-2]
    if distance == "sqeuclidean":
        return _squared_distance_gradient(derivatives, points, temperature, chunk_start)
    if derivatives.shape[-2] < points.shape[-2]:
        gradient = derivatives.transpose(-1, -2) @ points[..., chunk_start:chunk_end, :]
        gradient[..., chunk_start:chunk_end, :] += derivatives @ points
        return gradient
    # The chunk is the whole table, so it has every pair twice: one product can serve both.
    if chunk_end <= tile_size:
        return (derivatives + derivatives.transpose(-1, -2)) @ points
    # This works in tiles, because reading whole columns is slow.
    for row in range(0, chunk_end, tile_size):
        for column in range(row, chunk_end, tile_size):
            upper = derivatives[..., row : row + tile_size, column : column + tile_size]
            lower = derivatives[..., column : column + tile_size, row : row + tile_size]
            tile_sum = upper + lower.transpose(-1, -2)
            upper.copy_(tile_sum)
            lower.copy_(tile_sum.transpose(-1, -2))
    return derivatives @ points


def _squared_distance_gradient(derivatives, points, temperature, chunk_start):
    """Return one chunk's part of the gradient with respect to the points, for squared distances.

    For a pair (i, j), the gradient of point i receives ``pair_weight * (x_i - x_j)``, and that of
    point j its negative. Torch's own derivative of ``cdist`` would store all these differences,
    [chunk, N, D], on a GPU. Sums of products need no such table, but can lose the small differences
    within clusters far from the mean of the points. float64 keeps these differences.
    """
    rows = _centred_rows(points)
    pair_weights = derivatives.to(rows.dtype).mul_(-2 / temperature)
    chunk_end = chunk_start + pair_weights.shape[-2]
    anchors = rows[..., chunk_start:chunk_end, :]
    gradient = pair_weights.sum(dim=-2)[..., None] * rows - pair_weights.mT @ anchors
    gradient[..., chunk_start:chunk_end, :] += (
        pair_weights.sum(dim=-1)[..., None] * anchors - pair_weights @ rows
    )
    return gradient.to(points.dtype)
