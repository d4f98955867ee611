"""The soft nearest neighbor loss and the objectives built on it, Eqs. 4-8 of the text paper.

The text paper is *Text Classification and Clustering with Annealing Soft Nearest Neighbor Loss* by
A. F. Agarap. To see Eq. 4 in a few lines of code, read ``reference_loss``. To compute it, use
``soft_nearest_neighbor_loss``, which is fast and accurate at any temperature.
"""

import math
import sys
import warnings
from collections.abc import Mapping
from functools import wraps
from numbers import Integral, Real

import torch
import torch.nn.functional as F

from snnl_lib._pairs import PairLosses, Settings, without_autocast

DISTANCES = ("cosine", "sqeuclidean")
REDUCTIONS = ("mean", "sum", "none")
OPTIONS = ("distance", "reduction", "chunk_size", "ignore_index", "check_finite")
# Python shows a warning once per calling line if the text stays the same, so it has no count.
FEW_CLASS_MATES = (
    "more than half of the anchors have no classmate in their batch and thus no loss: use larger "
    "batches, a sampler that groups by label, or more neighbours as references"
)


def _without_autocast(loss):
    """Wrap a loss so that it does not compute in half precision where autocast is on."""

    @wraps(loss)
    def exact_loss(features, *args, **options):
        device = features.device.type if torch.is_tensor(features) else "cpu"
        with without_autocast(device):
            return loss(features, *args, **options)

    return exact_loss


@_without_autocast
def reference_loss(features, labels, temperature=1.0, *, distance="cosine"):
    """Compute the soft nearest neighbor loss (Eq. 4) in plain torch, for reading and for tests.

    The result equals that of ``soft_nearest_neighbor_loss`` up to rounding. This function is slower
    and keeps matrices of all pairs in memory. However, it supports second derivatives, and it runs
    under ``torch.func`` and ``torch.vmap``.

    Args:
        features: float tensor [..., B, D]: B points with D features. Any leading axes hold
            independent batches. For float16 and bfloat16, the result is float32.
        labels: integer tensor [..., B], or integer or bool tensor [..., B, C], as in
            ``soft_nearest_neighbor_loss``.
        temperature: T > 0, a number or a scalar tensor.
        distance: ``"cosine"`` (Eq. 5, in [0, 2]) or ``"sqeuclidean"`` (squared Euclidean).

    Returns:
        Tensor [...], the mean loss of the points that have a classmate (another point of their
        class), or 0 if none has one.

    Raises:
        TypeError: ``features`` is not a float tensor, or ``labels`` is not an integer or bool
            tensor.
        ValueError: an argument has a wrong shape or an invalid value.

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
        unit = _unit_rows(features)
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
    """Compute the soft nearest neighbor loss of a batch (Eq. 4).

    The loss measures how entangled the classes are: it is low when neighbours share a class. Each
    point, called an *anchor*, picks a neighbour at random from the other points. The probabilities
    are a softmax of -distance / T, so near points are picked more often. The loss of an anchor is
    minus the logarithm of the probability that it picks a *classmate*, a point of its own class::

        loss_i = -log(  sum of exp(-d_ij / T) over j != i with y_j = y_i
                      / sum of exp(-d_ik / T) over k != i )

    Args:
        features: float tensor [..., B, D]: B points with D features. Any leading axes hold
            independent batches. For float16 and bfloat16, the result is float32.
        labels: integer tensor [..., B] with one class per point, in any numbering; or, for several
            classes per point, an integer or bool tensor [..., B, C] of 0 and 1 with one column per
            class (C > 1). In the second form, two points are classmates if they share at least one
            class, and ``ignore_index`` must be None.
        temperature: T > 0, a number or a tensor with one element; the tensor may require a
            gradient. The value of a tensor is checked only on the CPU, because reading it from a
            GPU makes Python wait.
        distance: ``"cosine"`` (Eq. 5, in [0, 2]; a zero row has distance 1 from all other rows) or
            ``"sqeuclidean"`` (squared Euclidean, which can overflow in float32 if two rows are more
            than 1e19 apart).
        reduction: how to combine the losses of a batch: ``"mean"``, ``"sum"`` or ``"none"``. Eq. 4
            is infinite for a point without a classmate. Such a point is left out of the mean and
            the sum, and its loss is 0 with ``"none"``. If no point has a classmate, or the batch is
            empty, the result is 0.
        chunk_size: number of anchors to process at a time. Memory use is O((B + R) x chunk_size)
            for R references. The loss and its gradient do not depend on ``chunk_size``. By default,
            a chunk's table of pairs takes at most a quarter of a gigabyte in float32.
        references: float tensor [..., R, D] of additional neighbours, such as stored points of
            earlier batches or the points of other processes. R may be 0. References receive a
            gradient but have no loss of their own. They must not include points of the batch,
            because such a point would be its own neighbour, at distance 0.
        reference_labels: labels of the references, [..., R] or [..., R, C], in the same form as
            ``labels``.
        ignore_index: label of points to ignore, or None. (scikit-learn uses -1 for unlabelled
            points.) An ignored point has no loss (0 with ``"none"``), has a gradient of 0, is not a
            neighbour of any point, and may contain NaN. The same applies to ignored references.
        check_finite: whether to check that the features are finite and to warn about missing
            classmates. Pass False in training loops that have their own checks.

    Returns:
        Tensor [...], or [..., B] with ``reduction="none"``; all values are at least 0.

    Warns:
        UserWarning: B is at least 2, and more than half of the anchors have no classmate. This is
            checked only on the CPU, without ``torch.compile``. The warning is shown once per
            calling line.

    Raises:
        TypeError: ``features`` is not a float tensor, or ``labels`` is not an integer or bool
            tensor.
        ValueError: an argument has a wrong shape or an invalid value, or the features are not
            finite. Finiteness is checked only on the CPU, without ``torch.compile``; elsewhere, NaN
            propagates.
        RuntimeError: the gradient is differentiated again, or the function is called under
            ``torch.func`` or ``torch.vmap``. ``reference_loss`` supports both.

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
    features = features.to(torch.promote_types(features.dtype, torch.float32))
    rows, row_labels = features, labels
    if references is not None or reference_labels is not None:
        _check_references(references, reference_labels, features, labels)
        references = _cleaned_rows(
            references, reference_labels, "references", ignore_index, check_finite
        )
        rows = torch.cat([features, references.to(features.dtype)], dim=-2)
        row_labels = torch.cat([labels, reference_labels], dim=features.ndim - 2)
    if torch.is_tensor(temperature):
        # Shape [1] would add an axis to the loss, and half precision would round the value again.
        temperature = temperature.reshape(()).to(features.dtype)
    if not features.shape[-2]:
        return _loss_of_nothing(features, references, temperature, reduction)
    anchors = features.shape[-2]
    settings = Settings(anchors, distance, chunk_size, ignore_index, reduction != "none")
    losses, has_mate = PairLosses.apply(rows, row_labels, temperature, settings)
    if check_finite and _can_look(features) and _mostly_alone(has_mate, labels, settings):
        warn_caller(FEW_CLASS_MATES)
    if reduction == "mean":
        return losses / has_mate.clamp_min(1).to(losses.dtype)
    return losses


def annealed_temperature(epoch, eta=1.0, gamma=0.55):
    """Return the annealed temperature 1 / (eta + epoch)^gamma (Eq. 6), a float above 0.

    Annealing means that T falls from epoch to epoch. ``epoch`` counts from 0, ``eta`` must be above
    0, and ``gamma`` must be at least 0. The defaults are those of the paper. With ``eta=1``, T
    starts at 1. Raises ValueError if an argument is out of range.

    >>> [round(annealed_temperature(epoch), 3) for epoch in (0, 1, 29)]
    [1.0, 0.683, 0.154]
    """
    if not (0 <= epoch < math.inf and 0 < eta < math.inf and 0 <= gamma < math.inf):
        values = f"epoch={epoch}, eta={eta}, gamma={gamma}"
        raise ValueError(f"epoch must be >= 0, eta > 0 and gamma >= 0, all finite, got {values}")
    return 1.0 / (eta + epoch) ** gamma


class SoftNearestNeighborLoss(torch.nn.Module):
    """The loss of Eq. 4 as a module with a fixed, annealed or learned temperature.

    ``temperature`` is a number, ``"annealed"`` (Eq. 6) or ``"learnable"``. A learnable temperature
    starts at ``initial_temperature``; its logarithm is a parameter of the module. A tensor is
    refused with ValueError, because the module would not train it. ``distance``, ``reduction``,
    ``chunk_size``, ``ignore_index`` and ``check_finite`` are passed to
    ``soft_nearest_neighbor_loss``.

    ``forward(features, labels, *, epoch=None, references=None, reference_labels=None)`` takes that
    function's arguments of the same names, returns its result and raises its errors. In addition,
    an annealed temperature needs ``epoch``, and ValueError is raised without it. Other temperatures
    ignore it.

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
        check_finite=True,
        initial_temperature=1.0,
    ):
        super().__init__()
        named = isinstance(temperature, str) and temperature in ("annealed", "learnable")
        allowed = 'a number, "annealed" or "learnable"'
        _require(named or _is_number(temperature, Real), "temperature", allowed, temperature)
        positive = _is_number(initial_temperature, Real) and 0 < initial_temperature < math.inf
        expected = "a finite number above 0"
        _require(positive, "initial_temperature", expected, initial_temperature)
        used = temperature == "learnable" or initial_temperature == 1
        expected = '1 unless temperature is "learnable"'
        _require(used, "initial_temperature", expected, initial_temperature)
        _check_options(1.0 if named else temperature, distance, reduction, chunk_size, ignore_index)
        self.temperature = temperature
        self.distance = distance
        self.reduction = reduction
        self.chunk_size = chunk_size
        self.ignore_index = ignore_index
        self.check_finite = check_finite
        if temperature == "learnable":
            start = torch.tensor(math.log(initial_temperature), dtype=torch.get_default_dtype())
            self.log_temperature = torch.nn.Parameter(start)

    def current_temperature(self, epoch=None):
        """Return the temperature at the given epoch.

        The result is a number, or a scalar tensor with a gradient if the temperature is learnable.
        Raises ValueError if the temperature is annealed and no epoch is given.
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
    distance="cosine",
    chunk_size=None,
    ignore_index=None,
    check_finite=True,
):
    """Add alpha times the soft nearest neighbor loss of hidden layers to a primary loss.

    The result is Eq. 7 if the primary loss is the cross entropy, and Eq. 8 if it is a
    reconstruction loss::

        primary + alpha * sum over layers of
            soft_nearest_neighbor_loss(hidden[layer], labels, temperature)

    Args:
        primary: the primary loss, a scalar tensor, or a tensor [...] if there are leading axes.
        hidden: dict that maps the name of a layer to a float tensor [..., B, D]. D may differ
            between layers, and any further axes are flattened into D.
        labels: integer tensor [..., B]; any leading axes hold independent batches. For several
            classes per point, pass a tensor [..., B, C] of 0 and 1, preferably bool. An integer
            tensor whose shape matches the first axes of every layer is read as [..., B].
        alpha: weight of the soft nearest neighbor loss, a number or a tensor [...] with one weight
            per batch. A positive weight disentangles the classes, and a negative weight entangles
            them. If ``alpha`` is the number 0, the result is the primary loss itself.
        temperature: T > 0, a number or a tensor with one element.
        layers: ``"sum"`` to sum over all of ``hidden``, as in the equations; ``"min"`` to use only
            the layer with the lowest loss; or a list of the names of layers to sum over.
        distance, chunk_size, ignore_index, check_finite: as in ``soft_nearest_neighbor_loss``. They
            do not affect the primary loss.

    Returns:
        Tensor [...], the composite loss.

    Raises:
        ValueError: ``hidden`` is empty, ``layers`` names an unknown layer, or an argument has a
            wrong shape or an invalid value.
        TypeError: ``labels`` or a layer is not a tensor, or has the wrong dtype.

    >>> hidden = {"hidden1": torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])}
    >>> primary, labels = torch.tensor(0.5), torch.tensor([0, 0, 1])
    >>> composite_loss(primary, hidden, labels, alpha=100, temperature=1.0)
    tensor(55.1990)
    """
    finite = torch.is_tensor(alpha) or (_is_number(alpha, Real) and math.isfinite(alpha))
    _require(finite, "alpha", "a finite number", alpha)
    _require(isinstance(hidden, Mapping), "hidden", "a dict of layers", type(hidden))
    _require(hidden, "hidden", "a non-empty dict of layers", hidden)
    for name, values in hidden.items():
        if not torch.is_tensor(values):
            raise TypeError(f"hidden[{name!r}] must be a tensor, got {_type_name(values)}")
    _check_label_type(labels, "labels")
    options = {"distance": distance, "chunk_size": chunk_size, "ignore_index": ignore_index}
    _check_options(temperature, **options)
    layers = layers if isinstance(layers, str | None) else list(layers)
    names = list(hidden) if layers in ("sum", "min") else layers
    known = not isinstance(names, str) and names and all(name in hidden for name in names)
    _require(known, "layers", f'"sum", "min" or some of {list(hidden)}', layers)
    if not torch.is_tensor(alpha) and alpha == 0:
        return primary
    options["check_finite"] = check_finite
    losses = []
    axes = _batch_axes(labels, hidden)
    for name in names:
        values = hidden[name]
        rows = values.flatten(axes) if values.ndim > axes else values
        losses.append(soft_nearest_neighbor_loss(rows, labels, temperature, **options))
    losses = torch.stack(losses)
    return primary + alpha * (losses.amin(dim=0) if layers == "min" else losses.sum(dim=0))


def _batch_axes(labels, hidden):
    """Return the number of axes before the features of a layer: the leading axes and B.

    Labels [..., B, C] have one more axis. They are recognised by being bool, or because the shape
    of some layer does not begin with theirs.
    """
    fits = all(values.shape[: labels.ndim] == labels.shape for values in hidden.values())
    several = labels.ndim > 1 and (labels.dtype == torch.bool or not fits)
    return labels.ndim - 1 if several else labels.ndim


@_without_autocast
def supervised_contrastive_loss(features, labels, temperature):
    """Compute the supervised contrastive loss, an alternative to Eq. 4, from cosine similarities.

    This is the "out" form of Khosla et al. (2020), in which the sum over classmates is outside the
    logarithm. Like Eq. 4, it uses a softmax over the other points of the batch. Eq. 4 takes the
    logarithm of the classmates' total probability, so one near classmate is enough. This loss takes
    the mean of the classmates' log probabilities, so all of them must be near.

    Args:
        features: float tensor [B, D]; float16 and bfloat16 are converted to float32.
        labels: integer tensor [B]. Points without a classmate (another point of their class) are
            left out of the mean, but remain neighbours of the others.
        temperature: a number above 0.

    Returns:
        Scalar tensor, the mean over the points that have a classmate, or 0 if none has one.

    Raises:
        TypeError: ``features`` or ``labels`` has the wrong type.
        ValueError: an argument has a wrong shape or an invalid value.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> round(supervised_contrastive_loss(features, torch.tensor([0, 0, 1]), 1.0).item(), 4)
    0.3133
    """
    _check_rows(features, labels, "features", "labels", "B")
    _require(labels.ndim == 1, "labels", "[B], one class per point", tuple(labels.shape))
    _check_options(temperature, DISTANCES[0])
    unit = _unit_rows(features.to(torch.promote_types(features.dtype, torch.float32)))
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    masked = torch.finfo(unit.dtype).min / 4
    logits = (unit @ unit.T / temperature).masked_fill(itself, masked)
    mates = (labels[:, None] == labels) & ~itself
    log_probabilities = logits - logits.logsumexp(dim=1, keepdim=True)
    losses = -(log_probabilities * mates).sum(dim=1) / mates.sum(dim=1).clamp_min(1)
    return losses.sum() / mates.any(dim=1).sum().clamp_min(1)


def _unit_rows(features):
    """Return rows of length 1; a row of zeros stays as it is."""
    # Squares of very small or large entries would underflow or overflow. Each row is therefore
    # divided by a power of two near its largest entry, which rounds nothing.
    largest = features.detach().abs().amax(dim=-1, keepdim=True)
    exponents = largest.log2().floor() - 1
    exponents = exponents.masked_fill(largest < torch.finfo(features.dtype).tiny, 0)
    features = features / exponents.exp2()
    lengths = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    return features / (lengths + (lengths == 0))


# ---------------------------------------------------------------- checks of the arguments


def _loss_of_nothing(features, references, temperature, reduction):
    """Return the loss of an empty batch: 0, with a gradient of 0 for every argument that takes one.

    Without these gradients, the other processes of distributed training would wait forever.
    """
    zero = features.sum(dim=-1 if reduction == "none" else (-2, -1))
    for other in (references, temperature):
        if torch.is_tensor(other):
            zero = zero + 0 * other.sum()
    return zero


def _refuse_function_transforms():
    # Torch itself fails later, with an unhelpful message. It has no public name for this test.
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            "soft_nearest_neighbor_loss does not run inside torch.func or torch.vmap: "
            "use reference_loss there, or pass batches as leading axes, [..., B, D]"
        )


def _check_rows(features, labels, name, labels_name, axis):
    """Raise an error unless features are [..., axis, D] and labels match them.

    Labels are one integer per row, or a 0 or 1 for each row and class.
    """
    if not torch.is_tensor(features) or not features.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {_type_name(features)}")
    _check_label_type(labels, labels_name)
    shape = features.shape
    per_row = labels.shape[:-1] if labels.ndim == len(shape) else labels.shape
    if len(shape) < 2 or shape[-1] < 1 or per_row != shape[:-1]:
        shapes = f"[..., {axis}] or [..., {axis}, C]"
        expected = f"{name} must be [..., {axis}, D] and {labels_name} {shapes}"
        raise ValueError(f"{expected}, got {tuple(shape)} and {tuple(labels.shape)}")


def _check_label_type(labels, name):
    if not torch.is_tensor(labels) or labels.is_floating_point() or labels.is_complex():
        problem = f"{name} must be an integer tensor, got {_type_name(labels)}"
        advice = "use .long() for floats, .argmax(-1) for one-hot rows, torch.as_tensor for lists"
        raise TypeError(f"{problem}: {advice}")


def _check_classes(features, labels, ignore_index):
    """Raise ValueError if labels [..., B, C] are invalid or are used with ``ignore_index``."""
    if labels.ndim < features.ndim:
        return
    expected = "[..., B] (pass labels.squeeze(-1)) or have at least two columns"
    _require(labels.shape[-1] > 1, "labels", expected, tuple(labels.shape))
    if ignore_index is not None:
        problem = f"ignore_index must be None if labels are [..., B, C], got {ignore_index}"
        advice = "instead, set an unlabelled row to 0 in every class, so that it has no loss"
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
    """Return features with ignored rows set to 0; raise ValueError if other rows are not finite."""
    if ignore_index is not None:
        features = features.masked_fill((labels.long() == ignore_index)[..., None], 0)
    # One sum is fast; checking each value would take longer than the loss of a small batch. A sum
    # of finite values can overflow, so each value is checked if the sum is not finite.
    if check_finite and _can_look(features) and not math.isfinite(features.detach().sum()):
        not_finite = features[~torch.isfinite(features)].tolist()
        if not_finite:
            raise ValueError(f"{name} must be finite, but contain {not_finite[0]}")
    return features


def _can_look(features):
    """Return whether values can be read without waiting for a GPU or breaking a compiled graph."""
    if features.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return not torch._C._are_functorch_transforms_active()  # a batched value cannot be read


def _mostly_alone(has_mate, labels, settings):
    """Return whether more than half of the anchors have no classmate.

    ``has_mate`` marks the anchors that have one, or counts them. Ignored anchors are left out. A
    single anchor gives False, so that a last batch of one row causes no warning.
    """
    if settings.anchor_count < 2:
        return False
    with_mate = int(has_mate.sum())
    batches = has_mate.numel() if settings.summed else has_mate.shape[:-1].numel()
    few = 2 * with_mate < batches * settings.anchor_count
    if few and settings.ignore_index is not None:
        few = 2 * with_mate < int((labels.long() != settings.ignore_index).sum())
    return few


def warn_caller(message):
    """Issue a warning for the nearest calling line outside this library and torch."""
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
