"""One training loop for every network of the book, and the named random sources that make runs
repeatable and paired.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from tqdm import tqdm

from snnl_lib.checkpoint import Checkpoint, key
from snnl_lib.losses import annealed_temperature, composite_loss
from snnl_lib.seeds import BATCH_SIZE, named_seed


class Diverged(ArithmeticError):
    """A training whose loss or weights were not finite; ``curve`` is what there is of it."""

    def __init__(self, reason: str, curve: pd.DataFrame):
        super().__init__(reason)
        self.curve = curve


def raise_if_diverged(trained):
    """Return what was trained, or raise Diverged if its ``diverged`` says why it broke down.

    ``trained`` is a History, or anything with its ``curve`` and ``diverged``.

    >>> raise_if_diverged(History(pd.DataFrame(), diverged="the loss was nan in epoch 3"))
    Traceback (most recent call last):
    snnl_lib.training.Diverged: the loss was nan in epoch 3
    """
    if trained.diverged:
        raise Diverged(trained.diverged, trained.curve)
    return trained


# ---------------------------------------------------------------- random sources


def build(model_class, *args, seed: int, **kwargs):
    """Build ``model_class(*args, **kwargs)`` with initial weights that depend on the seed alone,
    leaving torch's global random state as it was.

    >>> first, second = (build(torch.nn.Linear, 3, 2, seed=42) for _ in range(2))
    >>> torch.equal(first.weight, second.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would reseed the GPUs as well.
        torch.default_generator.manual_seed(named_seed(seed, "weights"))
        return model_class(*args, **kwargs)


def take_step(optimizer, loss):
    """Move what the optimiser holds by one step against the gradient of a loss."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def batches(documents, batch_size, generator):
    """Yield batches of the indices of some documents without end, in a new order each time all have
    been seen; ``generator`` draws the orders.
    """
    while True:
        yield from torch.randperm(documents, generator=generator).split(batch_size)


# ---------------------------------------------------------------- objectives


def cross_entropy(output, features, labels):
    """Compute Eq. 2, the mean over the batch, from the logits ``output`` [B, classes] and integer
    ``labels`` [B]; ``features`` play no part.

    >>> cross_entropy(torch.zeros(3, 4), None, torch.tensor([0, 1, 3]))  # ln 4
    tensor(1.3863)
    """
    return F.cross_entropy(output, labels)


def binary_cross_entropy(output, features, labels):
    """Compute Eq. 3 with its printed sign slip put right, the mean over documents and features.

    ``output`` [B, D] are logits, ``features`` [B, D] in [0, 1]; ``labels`` play no part.

    >>> binary_cross_entropy(torch.zeros(2, 3), torch.ones(2, 3), None)  # ln 2
    tensor(0.6931)
    """
    return F.binary_cross_entropy_with_logits(output, features)


def squared_error(output, features, labels):
    """Compute the squared error in place of Eq. 3, the mean over documents and features.

    ``output`` and ``features`` are [B, D]; ``labels`` play no part.

    >>> squared_error(torch.zeros(2, 3), torch.full((2, 3), 0.5), None)
    tensor(0.2500)
    """
    return F.mse_loss(output, features)


def squared_error_of_logistic(output, features, labels):
    """Compute the squared error of the logistic function of the output, as ``squared_error`` does.

    The paper's decoder ends in that function; ``output`` [B, D] are its logits.

    >>> squared_error_of_logistic(torch.zeros(2, 3), torch.ones(2, 3), None)  # (1 - 1/2)²
    tensor(0.2500)
    """
    return F.mse_loss(torch.sigmoid(output), features)


# ---------------------------------------------------------------- training


POWERS = {None: 0, "over T": -1, "times T": 1}
"""What power of the falling temperature a training's alpha is multiplied by (``weight``)."""


@dataclass
class _Objective:
    """Eq. 7 or 8 of a batch; ``train`` describes the fields."""

    primary: Callable
    alpha: float
    layers: str | list[str]
    select: Callable | None
    regularizer: Callable | None
    ignore_index: int | None

    def __call__(self, output, hidden, x, y, temperature, factor):
        """Return the composite loss and the primary loss; ``factor`` multiplies alpha."""
        first = self.primary(output, x, y)
        seen = hidden if self.select is None else self.select(hidden, output)
        if self.regularizer is not None:
            added = sum(self.regularizer(part, y, temperature) for part in seen.values())
            return first + self.alpha * factor * added, first
        if self.alpha == 0:
            return first, first
        options = {"alpha": self.alpha * factor, "temperature": temperature, "layers": self.layers}
        # Whether the numbers are finite is checked once an epoch: each check stalls a GPU.
        options |= {"ignore_index": self.ignore_index, "check_finite": False}
        return composite_loss(first, seen, y, **options), first


@dataclass
class History:
    """The course of a training.

    ``curve`` has one row per epoch; ``diverged`` says why the training stopped early, if it did.
    """

    curve: pd.DataFrame
    diverged: str = ""


def train(  # noqa: PLR0913 - one argument for each setting of a training
    model,
    features,
    labels,
    primary: Callable,
    *,
    epochs: int,
    seed: int,
    alpha: float = 0.0,
    temperature: float | str = "annealed",
    weight: str | None = None,
    layers: str | list[str] = "sum",
    select: Callable | None = None,
    regularizer: Callable | None = None,
    learning_rate: float = 1e-3,
    batch_size: int = BATCH_SIZE,
    steps_per_epoch: int | None = None,
    after_epoch: Callable | None = None,
    ignore_index: int | None = None,
    checkpoint: Path | None = None,
    device="cpu",
    progress: str | None = None,
) -> History:
    """Train a network on Eq. 7 or 8 with Adam.

    Args:
        model: maps a batch [B, D] to (output, hidden). It is moved to the device, and left there
            in eval mode.
        features, labels: arrays [N, D] float32 and [N] int.
        primary: (output, batch features, batch labels) -> loss of one value.
        epochs, batch_size, learning_rate: of the optimiser; numbers above 0. The last, smaller
            batch of the documents is used too.
        seed: settles the order of the documents.
        alpha, layers: those of ``composite_loss``.
        temperature: a number, or ``"annealed"`` (Eq. 6, epochs from 0).
        weight: ``"over T"`` divides alpha in each epoch by the falling temperature of Eq. 6,
            ``"times T"`` multiplies it by that; None leaves it. The gradient of Eq. 4 has a factor
            of 1 / temperature, so that annealing also strengthens the loss. With T = 1 and
            ``"over T"`` it is as strong as annealed, and annealed with ``"times T"`` as strong as
            at T = 1: this tells the temperature from the strength.
        select: (hidden, output) -> dict of the tensors that the loss is applied to; default: all
            hidden layers.
        regularizer: (tensor, labels, temperature) -> loss of one value that takes the place of
            Eq. 4, summed over the tensors; for rivals.
        steps_per_epoch: default: once over the documents. With more steps, an epoch goes on over
            the documents in a new order; with fewer, it stops early.
        after_epoch: (model) -> dict of numbers added to the epoch's row.
        ignore_index: a label of rows that Eq. 4 leaves out, or None.
        checkpoint: file from which an interrupted training goes on after the last epoch that it
            holds; None keeps none. Remove it once the trained model is saved.
        device: where the network is trained, as torch names it.
        progress: title of a progress bar; None shows none.

    Returns:
        A History whose curve has ``epoch, temperature, loss`` (the composite loss, mean over the
        epoch's documents), ``primary`` and what ``after_epoch`` gave. The training stops at the
        first epoch whose loss or weights are not finite, and ``diverged`` says so.

    Raises:
        ValueError: an alpha that is not finite, epochs or a batch size that is not above 0, an
            unknown weight, or a temperature or layer that ``composite_loss`` refuses; Adam refuses
            a negative rate.
        CacheError: a checkpoint that is damaged, is of another training (other data, seed or
            settings), or cannot be written.

    >>> from snnl_lib.models import FeedForwardNet
    >>> x, y = torch.eye(4).repeat(8, 1), torch.arange(4).repeat(8)
    >>> model = build(FeedForwardNet, 4, 4, hidden_sizes=(16,), seed=42)
    >>> curve = train(model, x, y, cross_entropy, alpha=100, epochs=3, seed=42).curve
    >>> list(curve.columns), bool(curve["loss"].is_monotonic_decreasing)
    (['epoch', 'temperature', 'loss', 'primary'], True)
    """
    if not math.isfinite(alpha):
        raise ValueError(f"alpha must be a finite number, got {alpha!r}")
    if not (epochs > 0 and batch_size > 0):
        wanted = "epochs and batch_size must be above 0"
        raise ValueError(f"{wanted}, got {epochs!r} and {batch_size!r}")
    if weight not in POWERS:
        raise ValueError(f"weight must be one of {[*POWERS]}, got {weight!r}")
    features, labels = torch.as_tensor(features), torch.as_tensor(labels)
    steps = steps_per_epoch or math.ceil(len(features) / batch_size)
    generator = torch.Generator().manual_seed(named_seed(seed, "batches"))
    order = batches(len(features), batch_size, generator)
    model.to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    objective = _Objective(primary, alpha, layers, select, regularizer, ignore_index)
    settings = {"epochs": epochs, "seed": seed, "temperature": temperature, "steps": steps}
    settings |= {"learning_rate": learning_rate, "batch_size": batch_size, "weight": weight}
    name = _name_of(vars(objective) | settings, model, features, labels) if checkpoint else ""
    saved = Checkpoint(checkpoint, name, model=model, optimizer=optimizer)
    features, labels = features.to(device), labels.to(device)

    with torch.random.fork_rng(_gpus(device)):  # a checkpoint restores torch's global sources
        reached = saved.restore()
        start, rows, diverged = reached.get("epoch", 0), reached.get("rows", []), ""
        order = islice(order, start * steps, None)
        bar = progress_bar(progress, start, epochs, "epoch")
        for epoch in bar:
            falling = annealed_temperature(epoch)
            now = falling if temperature == "annealed" else temperature
            factor = falling ** POWERS[weight]
            sums, documents = torch.zeros(2, dtype=features.dtype, device=device), 0
            for batch in _on(device, islice(order, steps)):
                x, y = features[batch], labels[batch]
                output, hidden = model(x)
                losses = objective(output, hidden, x, y, now, factor)
                take_step(optimizer, losses[0])
                sums += torch.stack(losses).detach() * len(batch)
                documents += len(batch)
            loss, first = (sums / documents).tolist()
            rows.append({"epoch": epoch, "temperature": now, "loss": loss, "primary": first})
            if diverged := _breakdown(loss, model, epoch):
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


def _on(device, drawn):
    """Yield batches of indices from the device; all of them are moved there at once."""
    drawn = list(drawn)
    return torch.cat(drawn).to(device).split([len(batch) for batch in drawn])


def _breakdown(loss, model, epoch) -> str:
    """Return in what way a training broke down in an epoch, or nothing."""
    if not math.isfinite(loss):
        return f"the loss was {loss} in epoch {epoch}"
    whole = torch.stack([weights.isfinite().all() for weights in model.parameters()]).all()
    if not whole:  # broken by the last step, so that no loss shows it
        return f"the weights were not finite after epoch {epoch}"
    return ""


def _gpus(device):
    """List the GPUs whose random state a training on this device can change."""
    return [device] if torch.device(device).type == "cuda" else []


def _name_of(settings, model, features, labels) -> str:
    """Name a training by all that settles it, so that no other goes on from its checkpoint."""
    facts = {
        name: getattr(value, "__qualname__", type(value).__name__) if callable(value) else value
        for name, value in settings.items()
    }
    shapes = [(name, [*value.shape]) for name, value in model.state_dict().items()]
    data = {"features": features.cpu().numpy(), "labels": labels.cpu().numpy()}
    return key(facts | {"model": shapes} | data)


def progress_bar(name: str | None, first: int, last: int, unit: str = "it"):
    """Return the numbers from first to last - 1, under a bar of that name unless it is None.

    >>> list(progress_bar(None, 2, 5))
    [2, 3, 4]
    """
    numbers = range(first, last)
    # No disabled bar: it too takes a lock between processes, which a killed worker leaves behind.
    if name is None:
        return numbers
    return tqdm(numbers, desc=name, unit=unit, leave=False, initial=first, total=last)


@torch.no_grad()
def forward(model, features, *, layer=None, batch_size=1024):
    """Run a trained model over features [N, D] in batches: its output, or one named hidden layer,
    as a float32 array [N, ...].

    ``batch_size`` rows are on the model's device at a time.

    >>> from snnl_lib.models import FeedForwardNet
    >>> model = build(FeedForwardNet, 300, 4, seed=42)
    >>> forward(model, torch.zeros(5, 300), layer="hidden1").shape
    (5, 500)
    """
    device = next(model.parameters()).device
    parts = []
    for batch in torch.as_tensor(features).split(batch_size):
        output, hidden = model(batch.to(device))
        parts.append((output if layer is None else hidden[layer]).float().cpu())
    return torch.cat(parts).numpy()
