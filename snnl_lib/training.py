"""The training loop for all networks, with the objectives and random sources that it uses.

Equation numbers are those of the text paper (Agarap, 2021).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from numbers import Integral, Real
from pathlib import Path
from types import FunctionType

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from tqdm import tqdm

from snnl_lib.checkpoint import Checkpoint, key
from snnl_lib.devices import exact_layers, has_float64, kept_random_states
from snnl_lib.losses import (
    FEW_CLASS_MATES,
    annealed_temperature,
    composite_loss,
    soft_nearest_neighbor_loss,
    warn_caller,
)
from snnl_lib.seeds import BATCH_SIZE, named_seed


class Diverged(ArithmeticError):
    """Raised by ``raise_if_diverged`` if the loss or the weights of a training run are not finite.

    ``curve`` is a DataFrame with one row per epoch.
    """

    def __init__(self, reason: str, curve: pd.DataFrame):
        super().__init__(reason)
        self.curve = curve

    def __reduce__(self):  # an exception from another process is pickled
        return type(self), (str(self), self.curve)


def raise_if_diverged(trained):
    """Return ``trained``, or raise Diverged if its attribute ``diverged`` gives a reason.

    ``trained`` is a History, or any object with the attributes ``curve`` and ``diverged``.

    >>> raise_if_diverged(History(pd.DataFrame(), diverged="the loss was nan in epoch 3"))
    Traceback (most recent call last):
    snnl_lib.training.Diverged: the loss was nan in epoch 3
    """
    if trained.diverged:
        raise Diverged(trained.diverged, trained.curve)
    return trained


# ---------------------------------------------------------------- random sources


def build(model_class, *args, seed: int, **kwargs):
    """Return ``model_class(*args, **kwargs)`` with initial weights that depend only on the seed.

    Torch's global random state does not change.

    >>> first, second = (build(torch.nn.Linear, 3, 2, seed=42) for _ in range(2))
    >>> torch.equal(first.weight, second.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also reseed the GPUs.
        torch.default_generator.manual_seed(named_seed(seed, "weights"))
        return model_class(*args, **kwargs)


def take_step(optimizer, loss):
    """Take one optimiser step to reduce a loss."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def batches(count, batch_size, generator):
    """Yield an endless series of batches of the indices 0 to count - 1.

    ``generator`` draws a new order for each pass over the indices.
    """
    while True:
        yield from torch.randperm(count, generator=generator).split(batch_size)


# ---------------------------------------------------------------- objectives


def cross_entropy(output, features, labels):
    """Compute the cross entropy (Eq. 2), averaged over the batch.

    ``output`` [B, classes] holds logits and ``labels`` [B] holds integers. ``features`` is not
    used.

    >>> cross_entropy(torch.zeros(3, 4), None, torch.tensor([0, 1, 3]))  # ln 4
    tensor(1.3863)
    """
    return F.cross_entropy(output, labels)


def binary_cross_entropy(output, features, labels):
    """Compute the binary cross entropy of a reconstruction (Eq. 3, with its sign corrected).

    ``output`` [B, D] holds logits and ``features`` [B, D] holds values in [0, 1]. For other values
    the loss has no lower bound, and a network can lower it without rebuilding its input: scale
    them, or use ``squared_error``. ``labels`` is not used. The loss is averaged over documents and
    features.

    >>> binary_cross_entropy(torch.zeros(2, 3), torch.ones(2, 3), None)  # ln 2
    tensor(0.6931)
    """
    return F.binary_cross_entropy_with_logits(output, features)


def squared_error(output, features, labels):
    """Compute the squared error of a reconstruction, an alternative to Eq. 3.

    ``output`` and ``features`` are [B, D]. ``labels`` is not used. The loss is averaged over
    documents and features.

    >>> squared_error(torch.zeros(2, 3), torch.full((2, 3), 0.5), None)
    tensor(0.2500)
    """
    return F.mse_loss(output, features)


def squared_error_of_logistic(output, features, labels):
    """Compute the squared error between the features and the logistic function of the output.

    ``output`` [B, D] holds logits, because the paper's decoder ends in the logistic function.
    ``features`` and ``labels`` are as in ``squared_error``.

    >>> squared_error_of_logistic(torch.zeros(2, 3), torch.ones(2, 3), None)  # (1 - 1/2)²
    tensor(0.2500)
    """
    return F.mse_loss(torch.sigmoid(output), features)


# ---------------------------------------------------------------- training


POWERS = {None: 0, "over T": -1, "times T": 1}
"""For each ``weight`` of ``train``, the power of the annealed temperature that multiplies alpha."""
ONE_CLASS = (
    "the labels have fewer than two classes, so the soft nearest neighbor loss is 0 in every "
    "batch: pass labels of at least two classes, or alpha=0"
)


@dataclass
class History:
    """The result of a training run.

    ``curve`` has one row per epoch. If the loss or the weights were not finite, training stopped
    and ``diverged`` gives the reason. Otherwise ``diverged`` is empty.
    """

    curve: pd.DataFrame
    diverged: str = ""


def train(  # noqa: PLR0913 - one argument for each setting of a run
    model,
    features,
    labels,
    primary: Callable,
    *,
    epochs: int,
    seed: int,
    alpha: float | Callable[[int], float] = 0.0,
    temperature: float | str = "annealed",
    weight: str | None = None,
    layers: str | list[str] = "sum",
    select: Callable | None = None,
    regularizer: Callable | None = None,
    learning_rate: float | Callable[[int], float] = 1e-3,
    batch_size: int = BATCH_SIZE,
    steps_per_epoch: int | None = None,
    after_epoch: Callable | None = None,
    ignore_index: int | None = None,
    checkpoint: Path | None = None,
    device="cpu",
    progress: str | None = None,
) -> History:
    """Train a network with Adam to minimise Eq. 7 or 8.

    Args:
        model: network that maps a batch [B, D] to (output, hidden), where ``hidden`` is a dict of
            the hidden layers. Training moves the network to the device and leaves it there in eval
            mode.
        features: float32 array or tensor [N, D], or float64 if the network is float64 too and the
            device supports it.
        labels: integer array or tensor [N].
        primary: function (output, features, labels) that returns the primary loss of a batch, a
            scalar tensor.
        epochs: number of epochs, an integer above 0.
        seed: seed for the order of the documents.
        alpha: weight of the loss of Eq. 4: a finite number, or a function that takes the epoch
            (from 0) and returns a number, for instance to switch the loss off halfway.
        temperature: T, a number above 0 or ``"annealed"`` (Eq. 6, with epochs counted from 0).
        weight: in each epoch, ``"over T"`` divides alpha by the annealed temperature (Eq. 6),
            ``"times T"`` multiplies alpha by it, and None leaves alpha unchanged. Annealing has two
            effects. Points pick nearer neighbours, and the loss becomes stronger because the
            gradient of Eq. 4 has a factor of 1 / T. This option separates the effects. With ``"over
            T"`` and ``temperature=1``, the loss is as strong as the annealed loss. With ``"times
            T"``, the annealed loss is as strong as the loss at T = 1.
        layers: the layers that the loss is applied to, as in ``composite_loss``.
        select: function (hidden, output) that returns a dict of the tensors that the loss is
            applied to; by default, all hidden layers.
        regularizer: None, or a function (tensor, labels, temperature) that replaces Eq. 4 and
            returns a scalar tensor. Its values are summed over the selected tensors. ``layers`` and
            ``ignore_index`` must then keep their defaults.
        learning_rate: learning rate of Adam, at least 0, or a function that takes the epoch (from
            0) and returns it.
        batch_size: number of documents in a batch, an integer above 0. The last batch of a pass
            over the documents may be smaller.
        steps_per_epoch: number of batches in an epoch. By default, an epoch is one pass over the
            documents. A longer epoch continues with the documents in a new order; a shorter one
            ends early, and the next epoch continues with the remaining documents.
        after_epoch: function (model) that returns a dict of numbers to add to the epoch's row of
            the curve.
        ignore_index: label of documents to ignore in Eq. 4, or None. It does not affect
            ``primary``: to ignore the label -1 there too, pass a function that returns
            ``F.cross_entropy(output, labels, ignore_index=-1)``.
        checkpoint: path of a checkpoint file, or None. An interrupted training run continues after
            the last epoch saved in it. Remove the file once the trained model is saved. The file
            identifies the functions ``primary``, ``select`` and ``regularizer`` by their names, so
            they must be defined at the top level of a module, or be partials of such functions.
        device: the torch device to train on. Computations in float32 keep their full precision on
            every device, even if torch is allowed to use TensorFloat-32.
        progress: title of a progress bar, or None.

    Returns:
        A History. Its curve has the columns ``epoch``, ``temperature``, ``loss`` (the composite
        loss) and ``primary``, and those that ``after_epoch`` adds. Both losses are means over the
        documents of the epoch. Training stops after the first epoch whose loss or weights are not
        finite, and ``diverged`` gives the reason.

    Warns:
        UserWarning: ``alpha`` is not 0, and Eq. 4 is 0 because all labels are equal, or more than
            half of the documents in a batch have no classmate (another document with the same
            label). The latter is checked for one batch, before training starts.

    Raises:
        TypeError: ``features`` is not a floating-point array or tensor, or has another dtype than
            the network; ``labels`` is not an integer array or tensor; or the network does not
            return (output, hidden).
        ValueError: ``features`` has no rows, is not finite, differs from ``labels`` in length, or
            is float64 on a device without float64; a number is out of range; ``weight`` or a layer
            is unknown; ``regularizer`` is combined with ``layers`` or ``ignore_index``; or a
            function has no name by which a checkpoint can identify it.
        CacheError: the checkpoint is damaged, belongs to a run with different data, a different
            seed or different settings, or cannot be read or written.

    >>> from snnl_lib.models import FeedForwardNet
    >>> x, y = torch.eye(4).repeat(8, 1), torch.arange(4).repeat(8)
    >>> model = build(FeedForwardNet, 4, 4, hidden_sizes=(16,), seed=42)
    >>> curve = train(model, x, y, cross_entropy, alpha=100, epochs=3, seed=42).curve
    >>> list(curve.columns), bool(curve["loss"].is_monotonic_decreasing)
    (['epoch', 'temperature', 'loss', 'primary'], True)
    """
    _check_settings(alpha, temperature, epochs, batch_size, steps_per_epoch, weight)
    features, labels = _tensor(features, "features", "float32"), _tensor(labels, "labels", "int64")
    _check_data(features, labels, device)
    labels = labels.long()
    steps = steps_per_epoch or math.ceil(len(features) / batch_size)
    generator = torch.Generator().manual_seed(named_seed(seed, "batches"))
    order = batches(len(features), batch_size, generator)
    objective = _objective(primary, layers, select, regularizer, ignore_index)
    if alpha != 0 and regularizer is None:
        _warn_if_alone(labels, batch_size, ignore_index)
    model.to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=_rate_in(0, learning_rate), fused=True)
    settings = {
        "primary": primary,
        "alpha": alpha,
        "layers": layers,
        "select": select,
        "regularizer": regularizer,
        "ignore_index": ignore_index,
        "epochs": epochs,
        "seed": seed,
        "temperature": temperature,
        "steps": steps,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "weight": weight,
    }
    name = _training_key(settings, model, features, labels) if checkpoint else ""
    saved = Checkpoint(checkpoint, name, model=model, optimizer=optimizer)
    features, labels = features.to(device), labels.to(device)

    # Restoring a checkpoint sets torch's global generators.
    with exact_layers(), kept_random_states(device):
        state = saved.restore() or {"epoch": 0, "rows": []}
        first_epoch, rows = state["epoch"], state["rows"]
        order = islice(order, first_epoch * steps, None)  # without the batches of those epochs
        diverged = ""
        bar = progress_bar(progress, first_epoch, epochs, "epoch")
        for epoch in bar:
            annealed = annealed_temperature(epoch)
            epoch_temperature = annealed if temperature == "annealed" else temperature
            epoch_alpha = _in(epoch, alpha) * annealed ** POWERS[weight]
            optimizer.param_groups[0]["lr"] = _rate_in(epoch, learning_rate)
            exact = torch.promote_types(features.dtype, torch.float32)
            sums = torch.zeros(2, dtype=exact, device=device)
            documents = 0
            for batch in _moved(islice(order, steps), device):
                x, y = features[batch], labels[batch]
                output, hidden = _output_and_hidden(model, x)
                losses = objective(output, hidden, x, y, epoch_temperature, epoch_alpha)
                take_step(optimizer, losses[0])
                sums += torch.stack(losses).detach() * len(batch)
                documents += len(batch)
            loss, primary_loss = (sums / documents).tolist()
            row = {"epoch": epoch, "temperature": epoch_temperature}
            rows.append(row | {"loss": loss, "primary": primary_loss})
            diverged = _why_diverged(loss, model, epoch)
            if diverged:
                break
            if after_epoch is not None:
                model.eval()
                rows[-1] |= after_epoch(model)
                model.train()
            saved.save_if_due(epoch=epoch + 1, rows=rows)
            if progress is not None:
                bar.set_postfix(loss=f"{loss:.3f}")
    model.eval()
    return History(pd.DataFrame(rows), diverged)


def _in(epoch, setting):
    """Return the value of a setting in an epoch."""
    return setting(epoch) if callable(setting) else setting


def _rate_in(epoch, learning_rate):
    """Return the learning rate of an epoch."""
    rate = _in(epoch, learning_rate)
    if not 0 <= rate < math.inf:
        expected = "learning_rate must be a finite number of at least 0"
        raise ValueError(f"{expected}, got {rate!r} in epoch {epoch}")
    return rate


def _check_settings(alpha, temperature, epochs, batch_size, steps_per_epoch, weight):
    if not callable(alpha) and not (isinstance(alpha, Real) and math.isfinite(alpha)):
        raise ValueError(f"alpha must be a finite number, got {alpha!r}")
    number = 1.0 if temperature == "annealed" else temperature
    if not (isinstance(number, Real) and 0 < number < math.inf):
        raise ValueError(f'temperature must be a number above 0 or "annealed", got {temperature!r}')
    counts = {"epochs": epochs, "batch_size": batch_size, "steps_per_epoch": steps_per_epoch or 1}
    for name, count in counts.items():
        if not isinstance(count, Integral):
            raise ValueError(f"{name} must be a whole number, got {count!r}")
    if not (epochs > 0 and batch_size > 0):
        expected = "epochs and batch_size must be above 0"
        raise ValueError(f"{expected}, got {epochs!r} and {batch_size!r}")
    if steps_per_epoch is not None and not steps_per_epoch > 0:
        raise ValueError(f"steps_per_epoch must be above 0 or None, got {steps_per_epoch!r}")
    if weight not in POWERS:
        raise ValueError(f"weight must be one of {[*POWERS]}, got {weight!r}")


def _tensor(values, name, dtype):
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values)  # torch refuses reversed arrays
    try:
        return torch.as_tensor(values)
    except (KeyError, TypeError, ValueError) as error:
        expected = f"{name} must be a numeric array or tensor, got {type(values).__name__}"
        advice = f'convert a DataFrame or Series with .to_numpy("{dtype}")'
        if name == "labels":
            advice += ", and names with np.unique(labels, return_inverse=True)[1]"
        raise TypeError(f"{expected}: {advice}") from error


def _check_data(features, labels, device):
    if not features.is_floating_point():
        raise TypeError(f"features must be floating point, got {features.dtype}")
    if labels.is_floating_point():
        raise TypeError(f"labels must be integers, got {labels.dtype}: convert them to int64")
    if len(features) == 0:
        raise ValueError("features must have at least one row, got none")
    if features.dtype == torch.float64 and not has_float64(device):
        raise ValueError(f"features must be float32, because {device} does not support float64")
    if len(labels) != len(features):
        counts = f"{len(labels)} for {len(features)} rows"
        raise ValueError(f"labels must have one entry per row, got {counts}")
    not_finite = ~features.isfinite()
    if not_finite.any():
        row = int(not_finite.nonzero()[0, 0])
        value = features[not_finite][0].item()
        raise ValueError(f"features must be finite, but row {row} contains {value}")


def _objective(primary, layers, select, regularizer, ignore_index):
    """Return a function that computes Eq. 7 or 8 for a batch; ``train`` describes the arguments.

    The function returns two scalar tensors: the composite loss and the primary loss.
    """
    if regularizer is not None and (layers != "sum" or ignore_index is not None):
        values = f"layers={layers!r} and ignore_index={ignore_index!r}"
        raise ValueError(f"layers and ignore_index do not apply to a regularizer, got {values}")

    def objective(output, hidden, x, y, temperature, alpha):
        primary_loss = primary(output, x, y)
        selected = hidden if select is None else select(hidden, output)
        if regularizer is not None:
            penalty = sum(regularizer(values, y, temperature) for values in selected.values())
            return primary_loss + alpha * penalty, primary_loss
        if alpha == 0 and not selected:  # a model without hidden layers
            return primary_loss, primary_loss
        loss = composite_loss(
            primary_loss,
            selected,
            y,
            alpha=alpha,
            temperature=temperature,
            layers=layers,
            ignore_index=ignore_index,
            check_finite=False,  # each check makes a GPU wait: train checks once per epoch
        )
        return loss, primary_loss

    return objective


def _warn_if_alone(labels, batch_size, ignore_index):
    """Warn if all labels are equal or few documents in a random batch have a classmate.

    The loss issues the second warning itself if a batch has several documents. It does so only on
    the CPU, so the labels are moved there.
    """
    if len({*labels.unique().tolist()} - {ignore_index}) < 2:
        return warn_caller(ONE_CLASS)
    if batch_size == 1:
        return warn_caller(FEW_CLASS_MATES)
    rows = next(batches(len(labels), batch_size, torch.Generator().manual_seed(0)))
    points = torch.zeros(len(rows), 1)
    soft_nearest_neighbor_loss(points, labels[rows].cpu(), ignore_index=ignore_index)


def _output_and_hidden(model, x):
    try:
        result = model(x)
    except RuntimeError as error:
        dtypes = {parameter.dtype for parameter in model.parameters()}
        differ = x.is_floating_point() and len(dtypes) == 1 and x.dtype not in dtypes
        if not differ or "type" not in str(error):
            raise
        of_features, of_model = (str(kind).removeprefix("torch.") for kind in (x.dtype, *dtypes))
        advice = f"convert them to {of_model}" + ", or use model.double()" * (x.dtype.itemsize == 8)
        problem = f"the features are {of_features} but the network is {of_model}"
        raise TypeError(f"{problem}: {advice}") from error
    if not isinstance(result, tuple | list) or len(result) != 2:
        expected = "the network must return (output, hidden), where hidden is a dict of its layers"
        advice = "wrap it in a module whose forward returns both"
        raise TypeError(f"{expected}, got {type(result).__name__}: {advice}")
    return result


def _moved(index_batches, device):
    """Return batches of indices on a device, moved there all at once."""
    index_batches = list(index_batches)
    return torch.cat(index_batches).to(device).split([len(batch) for batch in index_batches])


def _why_diverged(loss, model, epoch) -> str:
    """Return the reason why training must stop after an epoch, or an empty string."""
    if not math.isfinite(loss):
        return f"the loss was {loss} in epoch {epoch}"
    finite = torch.stack([weights.isfinite().all() for weights in model.parameters()]).all()
    if not finite:  # because of the last step, after the loss was computed
        return f"the weights were not finite after epoch {epoch}"
    return ""


def _training_key(settings, model, features, labels) -> str:
    """Return a key of the training run, so that no other run continues from its checkpoint."""
    for name in ("alpha", "learning_rate"):
        if callable(settings[name]):
            values = [float(settings[name](epoch)) for epoch in range(settings["epochs"])]
            settings = settings | {name: values}
    facts = {name: _named(value) for name, value in settings.items()}
    facts["network"] = repr(model)
    for name, value in model.state_dict().items():  # the weights that the run starts from
        facts[f"model.{name}"] = value.detach().cpu().float().numpy()
    facts["features"] = features.cpu().numpy()
    facts["labels"] = labels.cpu().numpy()
    return key(facts)


def _named(value):
    """Return a setting in a form that can be hashed: for a function, its name and arguments."""
    if isinstance(value, partial):
        arguments = [*map(_named, value.args)]
        keywords = {name: _named(argument) for name, argument in value.keywords.items()}
        return [_named(value.func), arguments, keywords]
    if not callable(value):
        return value
    # Two lambdas have the same name, and objects of the same class may have different settings.
    if not isinstance(value, FunctionType) or "<" in value.__qualname__:
        expected = "must be defined at the top level of a module if there is a checkpoint"
        raise ValueError(f"primary, select and regularizer {expected}, got {value!r}")
    return value.__qualname__


def progress_bar(name: str | None, first: int, last: int, unit: str = "it"):
    """Return the numbers ``first`` to ``last`` - 1, with a progress bar unless ``name`` is None.

    >>> list(progress_bar(None, 2, 5))
    [2, 3, 4]
    """
    numbers = range(first, last)
    # Even a disabled bar takes a lock between processes, which a killed worker would never release.
    if name is None:
        return numbers
    return tqdm(numbers, desc=name, unit=unit, leave=False, initial=first, total=last)


@torch.no_grad()
@exact_layers()
def forward(model, features, *, layer=None, batch_size=1024):
    """Return the output or one hidden layer of a model for features [N, D].

    The result is a float32 array [N, ...]. ``layer`` is the name of the hidden layer, or None for
    the output. The features are moved to the model's device in batches of ``batch_size`` rows. The
    model stays in its mode: call ``model.eval()`` first if it has dropout. Raises TypeError for
    features that are not numbers or have another dtype than the model, ValueError for an unknown
    layer.

    >>> from snnl_lib.models import FeedForwardNet
    >>> model = build(FeedForwardNet, 300, 4, seed=42)
    >>> forward(model, torch.zeros(5, 300), layer="hidden1").shape
    (5, 500)
    """
    device = next((weights.device for weights in model.parameters()), "cpu")
    parts = []
    for batch in _tensor(features, "features", "float32").split(batch_size):
        output, hidden = _output_and_hidden(model, batch.to(device))
        if layer is not None and layer not in hidden:
            raise ValueError(f"layer must be None or one of {[*hidden]}, got {layer!r}")
        parts.append((output if layer is None else hidden[layer]).float().cpu())
    return torch.cat(parts).numpy()
