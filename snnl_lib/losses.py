"""The soft nearest neighbor loss and the objectives built on it (Eqs. 4-8 of the text paper).

Equations are those of *Text Classification and Clustering with Annealing Soft Nearest Neighbor
Loss* (A. F. Agarap). ``reference_loss`` is Eq. 4 to read; ``soft_nearest_neighbor_loss`` is the one
to use, fast and exact for any batch and temperature.
"""

import math
import warnings
from collections.abc import Mapping
from numbers import Integral, Real

import torch
import torch.nn.functional as F

from snnl_lib._pairs import PairLosses, Settings

DISTANCES = ("cosine", "sqeuclidean")
REDUCTIONS = ("mean", "sum", "none")
OPTIONS = ("distance", "reduction", "chunk_size", "ignore_index")
LONELY = (  # without a number, for Python shows a sentence once for each place that it comes from
    "more than half of the anchors have no class mate in their batch and thus no loss: take larger "
    "batches, a sampler that groups by label, or more neighbours as references"
)


def reference_loss(features, labels, temperature=1.0, *, distance="cosine"):
    """Compute Eq. 4 in plain torch: slower, but a formula to read and to test with.

    It differs from ``soft_nearest_neighbor_loss`` by rounding, and in what it allows:
    its gradient can be differentiated again, and it runs under ``torch.func`` and
    ``torch.vmap``. It keeps tables of all pairs in memory.

    Args:
        features: float tensor [..., B, D]; leading axes are independent batches. float16 and
            bfloat16 are computed and returned in float32.
        labels: integer tensor [..., B], classes in any numbering.
        temperature: T > 0; a number, or a tensor [].
        distance: ``"cosine"`` (Eq. 5, in [0, 2]) or ``"sqeuclidean"``.

    Returns:
        Tensor [...], the mean over the points that have a class mate; >= 0.

    Raises:
        TypeError: features that are not floating point, or labels not integers.
        ValueError: a wrong shape, name or number.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> labels = torch.tensor([0, 0, 1])
    >>> reference_loss(features, labels)
    tensor(0.5470)
    """
    _check_rows(features, labels, "features", "labels", "B")
    _check_options(temperature, distance)
    features = features.to(torch.promote_types(features.dtype, torch.float32))  # from half of it
    if distance == "cosine":
        lengths = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
        unit = features / (lengths + (lengths == 0))  # a row of zeros stays as it is
        distances = 1 - unit @ unit.mT
    else:
        differences = features.unsqueeze(-2) - features.unsqueeze(-3)
        distances = differences.square().sum(dim=-1)
    logits = -distances / temperature

    same = labels.unsqueeze(-1) == labels.unsqueeze(-2)
    itself = torch.eye(labels.shape[-1], dtype=torch.bool, device=labels.device)
    mates = same & ~itself
    nothing = torch.finfo(logits.dtype).min / 4  # -inf would make gradients NaN
    log_mates = torch.where(mates, logits, nothing).logsumexp(dim=-1)
    log_others = torch.where(same, nothing, logits).logsumexp(dim=-1)

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
    """Measure how entangled the classes are in a batch: low when neighbours share a class (Eq. 4).

    Every point picks a neighbour at random, near ones more often (softmax of -distance /
    temperature over the rest of the batch). Its loss is minus the log probability that the
    neighbour is of its class, a class mate::

        loss_i = -log(  sum of exp(-d_ij / T) over j != i with y_j = y_i
                      / sum of exp(-d_ik / T) over k != i )

    Args:
        features: float tensor [..., B, D]; leading axes are independent batches. float16 and
            bfloat16 are computed and returned in float32.
        labels: integer tensor [..., B], classes in any numbering.
        temperature: T > 0; a number, or a tensor of one value that may require a gradient.
        distance: ``"cosine"`` (Eq. 5, in [0, 2]; a row of zeros has distance 1 to everything) or
            ``"sqeuclidean"`` (in float32 for rows less than 1e19 apart, where the square still is
            a number).
        reduction: over the batch axis, ``"mean"``, ``"sum"`` or ``"none"``. A point without a
            class mate has no loss (Eq. 4 would be infinite): 0 under ``"none"``, and left out of
            the mean. A batch of such points gives 0.
        chunk_size: anchors handled at a time, for memory of O(B x chunk_size) instead of
            O(B x B); by default as many as a quarter of a gigabyte holds. Same value, same
            gradient.
        references: float tensor [..., R, D], R >= 0, with integer reference_labels [..., R]: more
            neighbours to pick, such as a memory bank or the rows of other ranks. They receive a
            gradient, but are no anchors. The batch's own rows must not be among them: each would
            find itself at distance 0.
        ignore_index: a label of points and references that count as absent, such as -1, which in
            scikit-learn means "no label"; or None. They have no loss (0 under ``"none"``), are
            nobody's neighbour, get gradient 0 and may hold NaN.
        check_finite: False skips the look for NaN and the one for class mates, for training loops
            that do their own.

    Returns:
        Tensor [...], or [..., B] for ``"none"``; values >= 0.

    Warns:
        UserWarning: more than half of the anchors have no class mate (looked at on a CPU in eager
            mode; shown once for each line that calls).

    Raises:
        TypeError: features that are not floating point, or labels that are not integers.
        ValueError: a wrong shape, name or number, or features that are not finite (checked on a
            CPU in eager mode; elsewhere NaN propagates).
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
    # torch itself fails later, without saying what to do; it has no public name for this question.
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            "soft_nearest_neighbor_loss does not run inside torch.func or torch.vmap: "
            "use reference_loss there, or give it batches as leading axes, [..., B, D]"
        )
    _check_rows(features, labels, "features", "labels", "B")
    _check_options(temperature, distance, reduction, chunk_size, ignore_index)
    features = _known_rows(features, labels, "features", ignore_index, check_finite)
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    anchors = labels  # which those of the references may join
    settings = Settings(features.shape[-2], distance, chunk_size, ignore_index, reduction != "none")
    if references is not None or reference_labels is not None:
        _check_rows(references, reference_labels, "references", "reference_labels", "R")
        *batches, _, width = features.shape
        fits = [*references.shape[:-2], references.shape[-1]] == [*batches, width]
        expected = f"[{', '.join(map(str, (*batches, 'R', width)))}]"
        _require(fits, "references", expected, tuple(references.shape))
        more = _known_rows(references, reference_labels, "references", ignore_index, check_finite)
        features = torch.cat([features, more.to(features.dtype)], dim=-2)
        labels = torch.cat([labels, reference_labels], dim=-1)
    if torch.is_tensor(temperature):
        temperature = temperature.reshape(())  # [1] would broadcast into the loss's shape and dtype
    losses, has_mate = PairLosses.apply(features, labels, temperature, settings)
    if _looked_at(features, check_finite) and _mostly_lonely(has_mate, anchors, ignore_index):
        warnings.warn(LONELY, stacklevel=2)
    return losses / has_mate.clamp_min(1).to(losses.dtype) if reduction == "mean" else losses


def annealed_temperature(epoch, eta=1.0, gamma=0.55):
    """Return the annealed temperature 1 / (eta + epoch)^gamma (Eq. 6).

    Takes numbers, epoch >= 0, eta > 0 and gamma >= 0, and returns a float > 0. Epochs count from 0,
    and epoch 0 has T = 1 for eta = 1. Raises ValueError for numbers out of range.

    >>> [round(annealed_temperature(epoch), 3) for epoch in (0, 1, 29)]
    [1.0, 0.683, 0.154]
    """
    if not (0 <= epoch < math.inf and 0 < eta < math.inf and 0 <= gamma < math.inf):
        given = f"epoch={epoch}, eta={eta}, gamma={gamma}"
        raise ValueError(f"epoch must be >= 0, eta > 0 and gamma >= 0, all finite, got {given}")
    return 1.0 / (eta + epoch) ** gamma


class SoftNearestNeighborLoss(torch.nn.Module):
    """Eq. 4 as a module, whose temperature may follow the epoch or be learned.

    ``temperature`` is a number, ``"annealed"`` (Eq. 6) or ``"learnable"`` (on log T, from T = 1).
    ``distance``, ``reduction``, ``chunk_size`` and ``ignore_index`` are those of
    ``soft_nearest_neighbor_loss``, and so are the arguments, the value and the errors of
    ``forward(features, labels, *, epoch=None, references=None, reference_labels=None)``;
    ``"annealed"`` needs the epoch (ValueError without it), the others ignore it.

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
    ):
        super().__init__()
        number = 1.0 if temperature in ("annealed", "learnable") else temperature
        words = 'a number, "annealed" or "learnable"'
        _require(not isinstance(number, str), "temperature", words, temperature)
        _check_options(number, distance, reduction, chunk_size, ignore_index)
        self.temperature, self.distance, self.reduction = temperature, distance, reduction
        self.chunk_size, self.ignore_index = chunk_size, ignore_index
        if temperature == "learnable":
            self.log_temperature = torch.nn.Parameter(torch.zeros(()))

    def current_temperature(self, epoch=None):
        """Return T now: a number, or for ``"learnable"`` a tensor [] with a gradient.

        Raises ValueError if ``"annealed"`` is not told the epoch.
        """
        if self.temperature == "learnable":
            return self.log_temperature.exp()
        if self.temperature != "annealed":
            return self.temperature
        if epoch is None:
            raise ValueError('"annealed" needs the epoch: call loss(features, labels, epoch=epoch)')
        return annealed_temperature(epoch)

    def forward(self, features, labels, *, epoch=None, references=None, reference_labels=None):
        temperature = self.current_temperature(epoch)
        options = {name: getattr(self, name) for name in OPTIONS}
        options |= {"references": references, "reference_labels": reference_labels}
        return soft_nearest_neighbor_loss(features, labels, temperature, **options)

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
    """Add alpha times the loss of Eq. 4 of hidden layers to a primary loss (Eqs. 7 and 8).

    The value is ::

        primary + alpha * sum over layers of soft_nearest_neighbor_loss(hidden[layer], labels)

    Args:
        primary: the primary loss, a tensor [...]: cross entropy (Eq. 7) or reconstruction (Eq. 8);
            [] unless there are leading axes.
        hidden: dict from layer name to float tensor [..., B, D]; D may differ, and more axes after
            B count as one.
        labels: integer tensor [..., B]; leading axes are independent batches.
        alpha: weight; positive disentangles classes, negative entangles them, 0 leaves the primary
            loss as it is. A number, or a tensor [...] with one for each batch.
        temperature: T > 0, or a tensor of one value.
        layers: ``"sum"`` (over all of ``hidden``, the equations read literally), ``"min"`` (the
            least entangled layer only), or a list of names to sum over.
        ignore_index: a label of rows that Eq. 4 shall not see, such as -1, which in scikit-learn
            means "no label"; or None. It does not touch the primary loss.
        check_finite: False skips the look for NaN and the one for class mates, for training loops
            that do their own.

    Returns:
        The composite loss, a tensor [...]; for alpha = 0 the primary loss itself.

    Raises:
        ValueError: an empty ``hidden``, an unknown layer or a bad number; what
            ``soft_nearest_neighbor_loss`` raises besides.
        TypeError: labels that are no tensor, and likewise.

    >>> hidden = {"hidden1": torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])}
    >>> primary, labels = torch.tensor(0.5), torch.tensor([0, 0, 1])
    >>> composite_loss(primary, hidden, labels, alpha=100, temperature=1.0)
    tensor(55.1990)
    """
    finite = torch.is_tensor(alpha) or (_is_a(Real, alpha) and math.isfinite(alpha))
    _require(finite, "alpha", "a finite number", alpha)
    _require(
        isinstance(hidden, Mapping) and hidden, "hidden", "a dict of layers, not empty", hidden
    )
    if not torch.is_tensor(labels):
        raise TypeError(f"labels must be an integer tensor, got {_kind(labels)}")
    _check_options(temperature, DISTANCES[0], ignore_index=ignore_index)
    names = list(hidden) if layers in ("sum", "min") else layers
    known = not isinstance(names, str) and names and all(name in hidden for name in names)
    _require(known, "layers", f'"sum", "min" or some of {list(hidden)}', layers)
    if not torch.is_tensor(alpha) and alpha == 0:
        return primary
    more = {"ignore_index": ignore_index, "check_finite": check_finite}
    batch, rows = labels.ndim, (hidden[name] for name in names)
    rows = (x.flatten(batch) if torch.is_tensor(x) and x.ndim > batch else x for x in rows)
    losses = torch.stack([soft_nearest_neighbor_loss(x, labels, temperature, **more) for x in rows])
    return primary + alpha * (losses.amin(dim=0) if layers == "min" else losses.sum(dim=0))


# ---------------------------------------------------------------- checks


def _check_rows(features, labels, name, labels_name, count):
    if not torch.is_tensor(features) or not features.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {_kind(features)}")
    if not torch.is_tensor(labels) or labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"{labels_name} must be an integer tensor, got {_kind(labels)}")
    shape, fewest = features.shape, 0 if count == "R" else 1
    if len(shape) < 2 or shape[-2] < fewest or shape[-1] < 1 or labels.shape != shape[:-1]:
        expected = f"{name} must be [..., {count}, D] and {labels_name} [..., {count}]"
        raise ValueError(f"{expected}, got {tuple(shape)} and {tuple(labels.shape)}")


def _check_options(temperature, distance, reduction="mean", chunk_size=None, ignore_index=None):
    if torch.is_tensor(temperature) and temperature.numel() != 1:
        shape = tuple(temperature.shape)
        raise ValueError(f"temperature must be a single value, got a tensor of shape {shape}")
    number = 1.0 if torch.is_tensor(temperature) else temperature
    above_0 = _is_a(Real, number) and 0 < number < math.inf
    _require(above_0, "temperature", "a finite number above 0", temperature)
    _require(distance in DISTANCES, "distance", "one of " + ", ".join(DISTANCES), distance)
    _require(reduction in REDUCTIONS, "reduction", "one of " + ", ".join(REDUCTIONS), reduction)
    above_0 = chunk_size is None or (_is_a(Integral, chunk_size) and chunk_size >= 1)
    _require(above_0, "chunk_size", "a whole number above 0 or None", chunk_size)
    whole = ignore_index is None or _is_a(Integral, ignore_index)
    _require(whole, "ignore_index", "a whole number or None", ignore_index)


def _known_rows(features, labels, name, ignore_index, check_finite):
    """Return the features with zeros in rows to be ignored, the others looked through for NaN."""
    if ignore_index is not None:
        features = features.masked_fill((labels.long() == ignore_index)[..., None], 0)
    # The sum at once, where a look at each would take longer than the loss of a small batch; it
    # can overflow by itself.
    if _looked_at(features, check_finite) and not math.isfinite(features.detach().sum()):
        wrong = features[~torch.isfinite(features)].tolist()
        if wrong:
            raise ValueError(f"{name} must be finite, got {wrong[0]} among them")
    return features


def _looked_at(features, wanted):
    """Tell whether values may decide what is said: a GPU would wait, and a compiled graph break."""
    return wanted and features.device.type == "cpu" and not torch.compiler.is_compiling()


def _mostly_lonely(has_mate, labels, ignore_index):
    """Tell whether more than half of the anchors, [..., B] labels, have no class mate.

    Those to be ignored do not count, and are themselves counted only where they can matter.
    """
    mates = int(has_mate.sum() if has_mate.ndim else has_mate)
    if 2 * mates >= labels.numel() or ignore_index is None:
        return 2 * mates < labels.numel()
    return 2 * mates < int((labels.long() != ignore_index).sum())


def _require(holds, name, expected, value):
    if not holds:
        raise ValueError(f"{name} must be {expected}, got {value!r}")


def _is_a(kind, value):
    return isinstance(value, kind) and not isinstance(value, bool)


def _kind(value):
    return value.dtype if torch.is_tensor(value) else type(value).__name__


# ---------------------------------------------------------------- a rival


def supervised_contrastive_loss(features, labels, temperature):
    """Compute the supervised contrastive loss (Khosla et al., 2020) on cosines, in its "out" form.

    Like Eq. 4 it is a softmax over the rest of the batch, but the mean over the class mates stands
    outside the logarithm, so that every class mate has to be near, and not only one.

    Args:
        features: float tensor [B, D]; float16 and bfloat16 are computed in float32.
        labels: integer tensor [B]; anchors without a class mate are left out.
        temperature: a number above 0.

    Returns:
        Tensor of one value, the mean over the anchors; 0 where none has a class mate.

    >>> apart = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> round(supervised_contrastive_loss(apart, torch.tensor([0, 0, 1]), 1.0).item(), 4)
    0.3133
    """
    unit = F.normalize(features.to(torch.promote_types(features.dtype, torch.float32)), dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    least = torch.finfo(unit.dtype).min / 4
    logits = (unit @ unit.T / temperature).masked_fill(itself, least)
    mates = (labels[:, None] == labels) & ~itself
    log_shares = logits - logits.logsumexp(dim=1, keepdim=True)
    losses = -(log_shares * mates).sum(dim=1) / mates.sum(dim=1).clamp_min(1)
    return losses.sum() / mates.any(dim=1).sum().clamp_min(1)
