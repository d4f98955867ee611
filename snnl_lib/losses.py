"""The soft nearest neighbor loss and the objectives built on it (Eqs. 4-8 of the text paper).

The equations are those of *Text Classification and Clustering with Annealing Soft Nearest Neighbor
Loss* (A. F. Agarap). Read ``reference_loss`` to see Eq. 4 in a few lines. Use
``soft_nearest_neighbor_loss``, which is fast, and accurate for any temperature.
"""

import math
import sys
import warnings
from collections.abc import Mapping
from numbers import Integral, Real

import torch
import torch.nn.functional as F

from snnl_lib._pairs import PairLosses, Settings

DISTANCES = ("cosine", "sqeuclidean")
REDUCTIONS = ("mean", "sum", "none")
OPTIONS = ("distance", "reduction", "chunk_size", "ignore_index")
# Python shows the same text once per calling line, so the text must not contain a count.
FEW_CLASS_MATES = (
    "more than half of the anchors have no classmate in their batch and thus no loss: use larger "
    "batches, a sampler that groups by label, or more neighbours as references"
)


def reference_loss(features, labels, temperature=1.0, *, distance="cosine"):
    """Compute Eq. 4 in plain torch, as a formula to read and to test against.

    The value equals that of ``soft_nearest_neighbor_loss`` up to rounding. This function is slower
    and keeps tables of all pairs in memory. In return, its gradient can be differentiated again,
    and it runs under ``torch.func`` and ``torch.vmap``.

    Args:
        features: float tensor [..., B, D]; leading axes are independent batches. float16 and
            bfloat16 are converted to float32, which is then the dtype of the result.
        labels: integer tensor [..., B], classes in any numbering; or an integer or bool tensor
            [..., B, C] of 0 and 1, several classes per row, of which classmates share at least one.
        temperature: T > 0; a number, or a scalar tensor.
        distance: ``"cosine"`` (Eq. 5, in [0, 2]) or ``"sqeuclidean"``.

    Returns:
        Tensor [...], the mean over the points that have a classmate; >= 0.

    Raises:
        TypeError: the features are not floating point, or the labels are not integers (bool is
            allowed for [..., B, C]).
        ValueError: an argument has a wrong shape or value.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> labels = torch.tensor([0, 0, 1])
    >>> reference_loss(features, labels)
    tensor(0.5470)
    """
    _check_rows(features, labels, "features", "labels", "B")
    _check_options(temperature, distance)
    _check_classes(features, labels, None)
    if not features.shape[-2]:
        return features.sum(dim=(-2, -1))
    # Half precision is computed in float32.
    features = features.to(torch.promote_types(features.dtype, torch.float32))
    if distance == "cosine":
        lengths = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
        unit = features / (lengths + (lengths == 0))  # a row of zeros stays as it is
        distances = 1 - unit @ unit.mT
    else:
        differences = features.unsqueeze(-2) - features.unsqueeze(-3)
        distances = differences.square().sum(dim=-1)
    logits = -distances / temperature

    if labels.ndim == features.ndim:
        same = labels.to(features.dtype) @ labels.to(features.dtype).mT > 0
    else:
        same = labels.unsqueeze(-1) == labels.unsqueeze(-2)
    itself = torch.eye(features.shape[-2], dtype=torch.bool, device=labels.device)
    mates = same & ~itself
    masked = torch.finfo(logits.dtype).min / 4  # -inf would make gradients NaN
    log_mates = torch.where(mates, logits, masked).logsumexp(dim=-1)
    log_others = torch.where(same, masked, logits).logsumexp(dim=-1)

    # -log(mates / (mates + others)) = log(1 + others / mates), which is a softplus
    losses = F.softplus(log_others - log_mates)
    has_mate = mates.any(dim=-1)
    return (losses * has_mate).sum(dim=-1) / has_mate.sum(dim=-1).clamp_min(1)


def soft_nearest_neighbor_loss(  # noqa: PLR0913 - a public name, fixed
    features,
    labels,
    temperature=1.0,
    *,
    distance="cosine",
    reduction="mean",
    chunk_size=None,
    references=None,
    reference_labels=None,
    ignore_index=None,
    check_finite=True,
):
    """Measure how entangled the classes of a batch are (Eq. 4).

    The loss is low when neighbours share a class. Every point (an *anchor*) picks a neighbour at
    random, near ones more often: the probabilities are a softmax of -distance / temperature over
    the rest of the batch. The anchor's loss is minus the log probability of picking a *classmate*,
    a neighbour of its own class::

        loss_i = -log(  sum of exp(-d_ij / T) over j != i with y_j = y_i
                      / sum of exp(-d_ik / T) over k != i )

    Args:
        features: float tensor [..., B, D]; leading axes are independent batches. float16 and
            bfloat16 are converted to float32, which is then the dtype of the result.
        labels: integer tensor [..., B], classes in any numbering; or an integer or bool tensor
            [..., B, C] of 0 and 1, several classes per row. Classmates then share at least one
            class, and ``ignore_index`` must be None.
        temperature: T > 0; a number, or a tensor of one value that may require a gradient. A
            tensor's value is checked only if the tensor is on the CPU, because reading it from a
            GPU would make Python wait.
        distance: ``"cosine"`` (Eq. 5, in [0, 2]; a row of zeros has distance 1 to every other row)
            or ``"sqeuclidean"`` (in float32, rows must be less than 1e19 apart, or their squared
            distance overflows).
        reduction: over the batch axis, ``"mean"``, ``"sum"`` or ``"none"``. A point without a
            classmate has no loss, because Eq. 4 would be infinite: it gets 0 under ``"none"`` and
            is left out of the mean. A batch of such points gives 0, and so does an empty one.
        chunk_size: the number of anchors processed at a time. Memory is O((B + R) x chunk_size),
            with R references; value and gradient do not depend on ``chunk_size``. By default, a
            chunk takes at most a quarter of a gigabyte in float32.
        references: float tensor [..., R, D], R >= 0, with reference_labels [..., R] (or [..., R, C]
            like the labels): additional neighbours, such as a memory bank or the rows of other
            ranks. They receive a gradient but have no loss of their own. They must not contain rows
            of the batch: such a row would be its own neighbour, at distance 0.
        ignore_index: a label whose rows count as absent, or None; -1 is scikit-learn's "no label".
            Such points and references have no loss (0 under ``"none"``), are nobody's neighbours,
            get gradient 0 and may hold NaN.
        check_finite: False skips the checks for numbers that are not finite and for missing
            classmates; meant for training loops with checks of their own.

    Returns:
        Tensor [...], or [..., B] for ``"none"``; values >= 0.

    Warns:
        UserWarning: more than half of the anchors have no classmate, and there are at least two
            anchors. The check is made only on a CPU in eager mode, and the warning is shown once
            per calling line.

    Raises:
        TypeError: the features are not floating point, or the labels are not integers (bool is
            allowed for [..., B, C]).
        ValueError: an argument has a wrong shape or value, or the features are not finite. The
            latter is checked only on a CPU in eager mode; elsewhere NaN propagates.
        RuntimeError: the gradient is differentiated again, or the loss is called inside
            ``torch.func`` or ``torch.vmap``; ``reference_loss`` allows both.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 2.0]])
    >>> labels = torch.tensor([0, 0, 1, -1])
    >>> soft_nearest_neighbor_loss(features[:3], labels[:3])
    tensor(0.5470)
    >>> soft_nearest_neighbor_loss(features, labels, ignore_index=-1)
    tensor(0.5470)
    >>> soft_nearest_neighbor_loss(features, labels, ignore_index=-1, reduction="none")
    tensor([0.4008, 0.6931, 0.0000, 0.0000])
    """
    _refuse_function_transforms()
    _check_rows(features, labels, "features", "labels", "B")
    _check_options(temperature, distance, reduction, chunk_size, ignore_index)
    _check_classes(features, labels, ignore_index)
    features = _cleaned_rows(features, labels, "features", ignore_index, check_finite)
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    rows, row_labels = features, labels
    if references is not None or reference_labels is not None:
        _check_references(references, reference_labels, features, labels)
        references = _cleaned_rows(
            references, reference_labels, "references", ignore_index, check_finite
        )
        rows = torch.cat([features, references.to(features.dtype)], dim=-2)
        row_labels = torch.cat([labels, reference_labels], dim=features.ndim - 2)
    if torch.is_tensor(temperature):
        # [1] would broadcast into the loss's shape; half precision would round it once more
        temperature = temperature.reshape(()).to(features.dtype)
    if not features.shape[-2]:
        return _loss_of_nothing(features, references, temperature, reduction)
    anchors = features.shape[-2]
    settings = Settings(anchors, distance, chunk_size, ignore_index, reduction != "none")
    losses, has_mate = PairLosses.apply(rows, row_labels, temperature, settings)
    if check_finite and _can_look(features) and _mostly_alone(has_mate, labels, settings):
        _warn_caller(FEW_CLASS_MATES)
    if reduction == "mean":
        return losses / has_mate.clamp_min(1).to(losses.dtype)
    return losses


def annealed_temperature(epoch, eta=1.0, gamma=0.55):
    """Return the annealed temperature 1 / (eta + epoch)^gamma (Eq. 6), a float > 0.

    Takes numbers: epoch >= 0, eta > 0 and gamma >= 0. Epochs are counted from 0, where T = 1 if eta
    = 1. Raises ValueError for a number out of range.

    >>> [round(annealed_temperature(epoch), 3) for epoch in (0, 1, 29)]
    [1.0, 0.683, 0.154]
    """
    if not (0 <= epoch < math.inf and 0 < eta < math.inf and 0 <= gamma < math.inf):
        values = f"epoch={epoch}, eta={eta}, gamma={gamma}"
        raise ValueError(f"epoch must be >= 0, eta > 0 and gamma >= 0, all finite, got {values}")
    return 1.0 / (eta + epoch) ** gamma


class SoftNearestNeighborLoss(torch.nn.Module):
    """Eq. 4 as a module whose temperature may be annealed or learned.

    ``temperature`` is a number, ``"annealed"`` (Eq. 6) or ``"learnable"`` (its logarithm is a
    parameter; T starts at ``initial_temperature``). ``distance``, ``reduction``, ``chunk_size``
    and ``ignore_index`` are those of ``soft_nearest_neighbor_loss``.

    ``forward(features, labels, *, epoch=None, references=None, reference_labels=None)`` takes,
    returns and raises what that function does. ``"annealed"`` also needs the epoch (ValueError
    without it); the other temperatures ignore it.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> labels = torch.tensor([0, 0, 1])
    >>> loss = SoftNearestNeighborLoss("annealed")
    >>> loss(features, labels, epoch=29)
    tensor(0.3516)
    """

    def __init__(
        self,
        temperature=1.0,
        *,
        distance="cosine",
        reduction="mean",
        chunk_size=None,
        ignore_index=None,
        initial_temperature=1.0,
    ):
        super().__init__()
        positive = _is_number(initial_temperature, Real) and 0 < initial_temperature < math.inf
        expected = "a finite number above 0"
        _require(positive, "initial_temperature", expected, initial_temperature)
        number = 1.0 if temperature in ("annealed", "learnable") else temperature
        allowed = 'a number, "annealed" or "learnable"'
        _require(not isinstance(number, str), "temperature", allowed, temperature)
        _check_options(number, distance, reduction, chunk_size, ignore_index)
        self.temperature = temperature
        self.distance = distance
        self.reduction = reduction
        self.chunk_size = chunk_size
        self.ignore_index = ignore_index
        if temperature == "learnable":
            start = torch.tensor(math.log(initial_temperature), dtype=torch.get_default_dtype())
            self.log_temperature = torch.nn.Parameter(start)

    def current_temperature(self, epoch=None):
        """Return T at the given epoch: a number, or for ``"learnable"`` a scalar tensor with a
        gradient.

        Raises ValueError if the temperature is ``"annealed"`` and no epoch is given.
        """
        if self.temperature == "learnable":
            return self.log_temperature.exp()
        if self.temperature != "annealed":
            return self.temperature
        if epoch is None:
            raise ValueError('"annealed" needs the epoch: call loss(features, labels, epoch=epoch)')
        return annealed_temperature(epoch)

    def forward(self, features, labels, *, epoch=None, references=None, reference_labels=None):
        return soft_nearest_neighbor_loss(
            features,
            labels,
            self.current_temperature(epoch),
            references=references,
            reference_labels=reference_labels,
            **{name: getattr(self, name) for name in OPTIONS},
        )

    def extra_repr(self):
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in ("temperature", *OPTIONS))


def composite_loss(  # noqa: PLR0913 - a public name, fixed
    primary,
    hidden,
    labels,
    *,
    alpha,
    temperature,
    layers="sum",
    ignore_index=None,
    check_finite=True,
):
    """Add alpha times the soft nearest neighbor loss of hidden layers to a primary loss.

    With cross entropy as the primary loss this is Eq. 7; with a reconstruction loss, it is Eq. 8::

        primary + alpha * sum over layers of
            soft_nearest_neighbor_loss(hidden[layer], labels, temperature)

    Args:
        primary: the primary loss, a scalar tensor, or a tensor [...] if there are leading axes.
        hidden: dict from layer name to float tensor [..., B, D]; D may differ between layers. Axes
            after D are flattened into it.
        labels: integer tensor [..., B]; leading axes are independent batches. For several classes
            per row, pass a tensor [..., B, C] of 0 and 1, preferably bool, because an integer
            tensor whose shape matches the first axes of every layer is read as one class per row.
        alpha: the weight; a positive one disentangles the classes, a negative one entangles them,
            and 0 returns the primary loss. A number, or a tensor [...] with one weight per batch.
        temperature: T > 0; a number, or a tensor of one value.
        layers: ``"sum"`` (over all of ``hidden``, as the equations say), ``"min"`` (only the least
            entangled layer), or a list of names to sum over.
        ignore_index: a label whose rows Eq. 4 leaves out, or None; -1 is scikit-learn's "no
            label". It does not change the primary loss.
        check_finite: False skips the checks for numbers that are not finite and for missing
            classmates; meant for training loops with checks of their own.

    Returns:
        The composite loss, a tensor [...]; for alpha = 0 the primary loss itself.

    Raises:
        ValueError: ``hidden`` is empty, a layer is unknown, or a number is out of range; also what
            ``soft_nearest_neighbor_loss`` raises.
        TypeError: the labels are not a tensor; also what ``soft_nearest_neighbor_loss`` raises.

    >>> hidden = {"hidden1": torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])}
    >>> primary, labels = torch.tensor(0.5), torch.tensor([0, 0, 1])
    >>> composite_loss(primary, hidden, labels, alpha=100, temperature=1.0)
    tensor(55.1990)
    """
    finite = torch.is_tensor(alpha) or (_is_number(alpha, Real) and math.isfinite(alpha))
    _require(finite, "alpha", "a finite number", alpha)
    filled = isinstance(hidden, Mapping) and hidden
    _require(filled, "hidden", "a dict of layers, not empty", hidden)
    if not torch.is_tensor(labels):
        raise TypeError(f"labels must be an integer tensor, got {_type_name(labels)}")
    _check_options(temperature, DISTANCES[0], ignore_index=ignore_index)
    names = list(hidden) if layers in ("sum", "min") else layers
    known = not isinstance(names, str) and names and all(name in hidden for name in names)
    _require(known, "layers", f'"sum", "min" or some of {list(hidden)}', layers)
    if not torch.is_tensor(alpha) and alpha == 0:
        return primary
    losses = []
    axes = _batch_axes(labels, hidden)
    for name in names:
        values = hidden[name]
        if torch.is_tensor(values) and values.ndim > axes:
            values = values.flatten(axes)
        losses.append(
            soft_nearest_neighbor_loss(
                values, labels, temperature, ignore_index=ignore_index, check_finite=check_finite
            )
        )
    losses = torch.stack(losses)
    return primary + alpha * (losses.amin(dim=0) if layers == "min" else losses.sum(dim=0))


def _batch_axes(labels, hidden):
    """Return how many axes come before the features of a layer: leading ones, and B.

    Labels [..., B, C] have one axis more. They are recognised by being bools, or by a layer whose
    shape does not begin with theirs.
    """
    fits = all(values.shape[: labels.ndim] == labels.shape for values in hidden.values())
    several = labels.ndim > 1 and (labels.dtype == torch.bool or not fits)
    return labels.ndim - 1 if several else labels.ndim


def supervised_contrastive_loss(features, labels, temperature):
    """Compute the supervised contrastive loss, a rival of Eq. 4, on cosine similarities.

    This is the "out" form of Khosla et al. (2020). Like Eq. 4, it takes a softmax over the rest of
    the batch, but where Eq. 4 takes the logarithm of the classmates' summed probability, it takes
    the mean of their log probabilities. All classmates then have to be near, whereas one is enough
    for Eq. 4.

    Args:
        features: float tensor [B, D]; float16 and bfloat16 are converted to float32.
        labels: integer tensor [B]; anchors without a classmate are left out.
        temperature: a number above 0.

    Returns:
        Tensor [], the mean over the anchors; 0 if no anchor has a classmate.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> round(supervised_contrastive_loss(features, torch.tensor([0, 0, 1]), 1.0).item(), 4)
    0.3133
    """
    unit = F.normalize(features.to(torch.promote_types(features.dtype, torch.float32)), dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    masked = torch.finfo(unit.dtype).min / 4
    logits = (unit @ unit.T / temperature).masked_fill(itself, masked)
    mates = (labels[:, None] == labels) & ~itself
    log_probabilities = logits - logits.logsumexp(dim=1, keepdim=True)
    losses = -(log_probabilities * mates).sum(dim=1) / mates.sum(dim=1).clamp_min(1)
    return losses.sum() / mates.any(dim=1).sum().clamp_min(1)


# ---------------------------------------------------------------- checks of the arguments


def _loss_of_nothing(features, references, temperature, reduction):
    """Return the loss of an empty batch: 0, with a gradient of 0 for every argument that takes one.

    Without these gradients, a rank without rows would leave the others waiting for it.
    """
    zero = features.sum(dim=-1 if reduction == "none" else (-2, -1))
    for other in (references, temperature):
        if torch.is_tensor(other):
            zero = zero + 0 * other.sum()
    return zero


def _refuse_function_transforms():
    # Torch itself fails later, with a message that does not help. It has no public name for this.
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            "soft_nearest_neighbor_loss does not run inside torch.func or torch.vmap: "
            "use reference_loss there, or pass batches as leading axes, [..., B, D]"
        )


def _check_rows(features, labels, name, labels_name, axis):
    """Refuse features that are not [..., axis, D], or labels that do not fit them.

    Labels are one integer per row, or one 0 or 1 per row and class.
    """
    if not torch.is_tensor(features) or not features.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {_type_name(features)}")
    if not torch.is_tensor(labels) or labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"{labels_name} must be an integer tensor, got {_type_name(labels)}")
    shape = features.shape
    per_row = labels.shape[:-1] if labels.ndim == len(shape) else labels.shape
    if len(shape) < 2 or shape[-1] < 1 or per_row != shape[:-1]:
        shapes = f"[..., {axis}] or [..., {axis}, C]"
        expected = f"{name} must be [..., {axis}, D] and {labels_name} {shapes}"
        raise ValueError(f"{expected}, got {tuple(shape)} and {tuple(labels.shape)}")


def _check_classes(features, labels, ignore_index):
    """Refuse several classes per row that are not 0 and 1, or that come with an ignore_index."""
    if labels.ndim < features.ndim:
        return
    if ignore_index is not None:
        problem = f"ignore_index must be None where labels are [..., B, C], got {ignore_index}"
        advice = "set an unlabelled row to 0 in every class, and it has no loss"
        raise ValueError(f"{problem}: {advice}")
    if _can_look(labels) and labels.numel() and (labels.min() < 0 or labels.max() > 1):
        ends = f"{int(labels.min())} to {int(labels.max())}"
        raise ValueError(f"labels [..., B, C] must be 0 or 1, got values from {ends}")


def _check_references(references, reference_labels, features, labels):
    _check_rows(references, reference_labels, "references", "reference_labels", "R")
    *batches, _, width = features.shape
    fits = [*references.shape[:-2], references.shape[-1]] == [*batches, width]
    expected = f"[{', '.join(map(str, (*batches, 'R', width)))}]"
    _require(fits, "references", expected, tuple(references.shape))
    several = labels.ndim == features.ndim
    fits = reference_labels.ndim == labels.ndim
    fits = fits and (not several or reference_labels.shape[-1] == labels.shape[-1])
    expected = f"[..., R, {labels.shape[-1]}]" if several else "[..., R]"
    _require(fits, "reference_labels", expected, tuple(reference_labels.shape))
    _check_classes(references, reference_labels, None)


def _check_options(temperature, distance, reduction="mean", chunk_size=None, ignore_index=None):
    if torch.is_tensor(temperature):
        if temperature.numel() != 1:
            shape = tuple(temperature.shape)
            raise ValueError(f"temperature must be a single value, got a tensor of shape {shape}")
        positive = not _can_look(temperature) or 0 < temperature.item() < math.inf
    else:
        positive = _is_number(temperature, Real) and 0 < temperature < math.inf
    _require(positive, "temperature", "a finite number above 0", temperature)
    _require(distance in DISTANCES, "distance", "one of " + ", ".join(DISTANCES), distance)
    _require(reduction in REDUCTIONS, "reduction", "one of " + ", ".join(REDUCTIONS), reduction)
    positive = chunk_size is None or (_is_number(chunk_size, Integral) and chunk_size >= 1)
    _require(positive, "chunk_size", "a whole number above 0 or None", chunk_size)
    whole = ignore_index is None or _is_number(ignore_index, Integral)
    _require(whole, "ignore_index", "a whole number or None", ignore_index)


def _cleaned_rows(features, labels, name, ignore_index, check_finite):
    """Return the features with ignored rows set to 0; raise ValueError if others are not finite."""
    if ignore_index is not None:
        features = features.masked_fill((labels.long() == ignore_index)[..., None], 0)
    # One sum is fast; looking at each value would take longer than the loss of a small batch.
    # Because a sum of finite values can overflow, only the second look decides.
    if check_finite and _can_look(features) and not math.isfinite(features.detach().sum()):
        not_finite = features[~torch.isfinite(features)].tolist()
        if not_finite:
            raise ValueError(f"{name} must be finite, got {not_finite[0]} among them")
    return features


def _can_look(features):
    """Return whether Python may read values: it would wait for a GPU, or break a compiled graph."""
    if features.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return not torch._C._are_functorch_transforms_active()  # a batched value cannot be read


def _mostly_alone(has_mate, labels, settings):
    """Return whether more than half of the anchors, at least two in number, have no classmate.

    ``has_mate`` marks or counts the anchors that have one. Ignored anchors do not count, and a last
    batch of one row gives no warning.
    """
    if settings.anchor_count < 2:
        return False
    with_mate = int(has_mate.sum())
    batches = has_mate.numel() if settings.summed else has_mate.shape[:-1].numel()
    few = 2 * with_mate < batches * settings.anchor_count
    if few and settings.ignore_index is not None:
        few = 2 * with_mate < int((labels.long() != settings.ignore_index).sum())
    return few


def _warn_caller(message):
    """Warn at the first line outside of this library and torch, whose modules call the loss."""
    frame = sys._getframe()
    level = 1
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(("snnl_lib.", "torch.")):
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)


def _require(holds, name, expected, value):
    if not holds:
        raise ValueError(f"{name} must be {expected}, got {value!r}")


def _is_number(value, number_type):
    return isinstance(value, number_type) and not isinstance(value, bool)


def _type_name(value):
    return value.dtype if torch.is_tensor(value) else type(value).__name__
