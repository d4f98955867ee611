"""One training loop for every network of the book, alone or as a stack of runs, and the named
random sources that make runs repeatable and paired.
"""

import copy
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, stack_module_state
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from snnl_lib.cache import Checkpoint, key
from snnl_lib.losses import annealed_temperature, composite_loss
from snnl_lib.recipes import BATCH_SIZE, named_seed


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
class History:
    """What a training leaves.

    ``curve`` has one row an epoch; ``diverged`` says why it stopped early, if it did; ``stack`` is
    with how many trainings it was carried out, itself included; ``checkpoint`` is the file that all
    of these share, there or not.
    """

    curve: pd.DataFrame
    diverged: str = ""
    stack: int = 1
    checkpoint: Path | None = None


@dataclass
class Training:
    """A network to be trained on Eq. 7 or 8 with Adam; the last, smaller batch is used too.

    Args:
        model: maps a batch [B, D] to (output, hidden); moved to the device and left there, in eval
            mode.
        features, labels: arrays [N, D] float32 and [N] int.
        primary: (output, batch features, batch labels) -> loss of one value.
        epochs, batch_size, learning_rate: of the optimiser; numbers above 0.
        seed: settles the order of the documents.
        alpha, layers: those of ``composite_loss``.
        temperature: a number, or ``"annealed"`` (Eq. 6, epochs from 0).
        weight: ``"over T"`` divides alpha in each epoch by the falling temperature of Eq. 6,
            ``"times T"`` multiplies it by that; None leaves it. The gradient of Eq. 4 has a factor
            of 1 / temperature, so that annealing also strengthens the loss. With T = 1 and
            ``"over T"`` it is as strong as annealed, and annealed with ``"times T"`` as strong as
            at T = 1: this tells the temperature from the strength.
        select: (hidden, output) -> dict of the tensors that the loss sees; default: all hidden
            layers.
        ignore_index: a label of rows that Eq. 4 shall not see, or None.
        regularizer: (tensor, labels, temperature) -> loss of one value, summed over what is seen in
            place of Eq. 4; for rivals.
        steps_per_epoch: default: once over the documents. With another number of steps an epoch
            goes on over them in new orders, or stops early.
        after_epoch: (model) -> dict of numbers added to the epoch's row.
        checkpoint: file from which a training that was killed goes on, after the last epoch that it
            holds; None keeps none. Remove it once the trained model is saved.

    Raises ValueError for an alpha that is not finite, for epochs or a batch size that is not above
    0, and for an unknown weight; Adam refuses a negative rate.
    """

    model: nn.Module
    features: torch.Tensor
    labels: torch.Tensor
    primary: Callable
    epochs: int
    seed: int
    alpha: float = 0.0
    temperature: float | str = "annealed"
    layers: str | list[str] = "sum"
    select: Callable | None = None
    regularizer: Callable | None = None
    learning_rate: float = 1e-3
    batch_size: int = BATCH_SIZE
    steps_per_epoch: int | None = None
    after_epoch: Callable | None = None
    checkpoint: Path | None = None
    ignore_index: int | None = None
    weight: str | None = None

    def __post_init__(self):
        if not math.isfinite(self.alpha):
            raise ValueError(f"alpha must be a finite number, got {self.alpha!r}")
        if not (self.epochs > 0 and self.batch_size > 0):
            given = f"{self.epochs!r} and {self.batch_size!r}"
            raise ValueError(f"epochs and batch_size must be above 0, got {given}")
        if self.weight not in POWERS:
            raise ValueError(f"weight must be one of {[*POWERS]}, got {self.weight!r}")
        self.features, self.labels = map(torch.as_tensor, (self.features, self.labels))
        batches_of_all = math.ceil(len(self.features) / self.batch_size)
        self.steps_per_epoch = self.steps_per_epoch or batches_of_all

    def facts(self) -> dict:
        """Return what settles this training, so that no other goes on from its checkpoint."""
        names = "epochs seed alpha temperature layers learning_rate batch_size steps_per_epoch"
        facts = {name: getattr(self, name) for name in (*names.split(), "ignore_index")}
        if self.weight is not None:
            facts["weight"] = self.weight
        for name in ("primary", "select", "regularizer"):
            function = getattr(self, name)
            facts[name] = getattr(function, "__qualname__", type(function).__name__)
        state = self.model.state_dict()
        facts["model"] = [(name, [*value.shape]) for name, value in state.items()]
        data = {"features": self.features, "labels": self.labels}
        return facts | {name: value.cpu().numpy() for name, value in data.items()}

    def kind(self) -> tuple:
        """What has to be equal for trainings to be one stack; functions have to be the same."""
        modules = [
            (name, type(part), {key: value for key, value in vars(part).items() if key[0] != "_"})
            for name, part in self.model.named_modules()
        ]
        shapes = [
            (name, value.shape, value.dtype) for name, value in self.model.state_dict().items()
        ]
        numbers = self.epochs, self.layers, self.learning_rate, self.batch_size, self.ignore_index
        functions = id(self.primary), id(self.select)
        alone = id(self) if self.regularizer or list(self.model.buffers()) else None
        return str(modules), str(shapes), str(numbers), self.steps_per_epoch, functions, alone


@dataclass
class Shared:
    """A training that several runs use, kept in a file.

    ``keep`` turns its History into what the file holds (``cache.cached``).
    """

    path: Path
    training: Training
    keep: Callable


def train(model, features, labels, primary, *, device="cpu", progress=None, **settings) -> History:
    """Train one model.

    ``model``, ``features``, ``labels``, ``primary`` and ``settings``, by name, are what
    ``Training`` describes.

    Args:
        device: where it is trained, as torch names it.
        progress: text for a progress bar, None for no bar.

    Returns:
        A History whose curve has ``epoch, temperature, loss`` (mean over the epoch's documents of
        the composite loss), ``primary`` and what ``after_epoch`` gave. Stops at the first epoch
        whose loss is not finite and says so in ``diverged``.

    Raises:
        ValueError: an alpha, temperature or layer that ``composite_loss`` refuses.
        CacheError: a checkpoint that is damaged, is of another training (other data, seed or
            settings), or cannot be written.

    >>> from snnl_lib.models import FeedForwardNet
    >>> x, y = torch.eye(4).repeat(8, 1), torch.arange(4).repeat(8)
    >>> model = build(FeedForwardNet, 4, 4, hidden_sizes=(16,), seed=42)
    >>> curve = train(model, x, y, cross_entropy, alpha=100, epochs=3, seed=42).curve
    >>> list(curve.columns), bool(curve["loss"].is_monotonic_decreasing)
    (['epoch', 'temperature', 'loss', 'primary'], True)
    """
    training = Training(model, features, labels, primary, **settings)
    return train_stack([training], device, progress)[0]


def train_stack(trainings: list[Training], device="cpu", progress=None) -> list[History]:
    """Train networks of one ``kind`` at the same time, their weights side by side in tensors.

    Each takes the steps that ``train`` takes alone, over its own documents in its own order; only
    rounding can differ. The data stay on the device, which is waited for once an epoch.
    ``trainings``, ``device`` and ``progress`` are as for ``train``; returns a History for each.

    >>> from snnl_lib.models import FeedForwardNet
    >>> x, y = torch.eye(4).repeat(8, 1), torch.arange(4).repeat(8)
    >>> models = [build(FeedForwardNet, 4, 4, hidden_sizes=(16,), seed=seed) for seed in (42, 73)]
    >>> pair = [Training(model, x, y, cross_entropy, epochs=3, seed=42) for model in models]
    >>> [(len(history.curve), history.stack) for history in train_stack(pair)]
    [(3, 2), (3, 2)]
    """
    stack, epochs = _Stack(trainings, device), trainings[0].epochs
    with torch.random.fork_rng(_gpus(device)):  # a checkpoint restores torch's global sources
        return _train_epochs(stack, epochs, progress)


def _gpus(device):
    """List the GPUs whose random state a training on this device can change."""
    return [device] if torch.device(device).type == "cuda" else []


def _train_epochs(stack, epochs, progress):
    first = stack.restore()
    bar = progress_bar(progress, first, epochs, "epoch")
    for epoch in bar:
        loss = stack.train_epoch(epoch)
        if all(stack.diverged):
            break
        stack.checkpoint.save_if_due(epoch=epoch + 1, rows=stack.rows, diverged=stack.diverged)
        if progress is not None:
            bar.set_postfix(loss=f"{loss:.3f}")
    for model in stack.models:
        model.eval()
    return [
        History(pd.DataFrame(rows), diverged, len(stack.trainings), stack.checkpoint.path)
        for rows, diverged in zip(stack.rows, stack.diverged, strict=True)
    ]


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


class _Stack:
    """Trainings under way, their weights as tensors with a leading axis of runs."""

    def __init__(self, trainings, device):
        self.trainings, self.device = trainings, device
        self.models = [training.model.to(device).train() for training in trainings]
        alone = len(trainings) == 1
        self.weights, self.network = _alone(trainings[0]) if alone else _side_by_side(trainings)
        rate = trainings[0].learning_rate
        self.optimizer = torch.optim.Adam(self.weights.values(), lr=rate, fused=True)  # one pass
        self.features = _joined([training.features for training in trainings], device)
        self.labels = _joined([training.labels for training in trainings], device)
        sizes = [len(training.features) for training in trainings]
        self.starts = np.cumsum([0, *sizes])[:-1].tolist()
        alphas = [training.alpha for training in trainings]
        self.alphas = torch.tensor(alphas, dtype=self.features.dtype, device=device)
        self.queues = [
            batches(
                len(training.features),
                training.batch_size,
                torch.Generator().manual_seed(named_seed(training.seed, "batches")),
            )
            for training in trainings
        ]
        self.rows, self.diverged = [[] for _ in trainings], ["" for _ in trainings]
        # Made once: each would make the device wait.
        self.index = cache(lambda numbers: torch.tensor(numbers, device=device))
        weights = {f"weights.{name}": value for name, value in self.weights.items()}
        path = _checkpoint_of(trainings)
        of = key([training.facts() for training in trainings]) if path else ""
        self.checkpoint = Checkpoint(path, of, optimizer=self.optimizer, **weights)

    def restore(self) -> int:
        """Go back to the last epoch that a checkpoint holds; returns the number of the next."""
        reached = self.checkpoint.restore()
        if not reached:
            return 0
        self.rows, self.diverged = reached["rows"], reached["diverged"]
        seen = reached["epoch"] * self.trainings[0].steps_per_epoch
        self.queues = [islice(queue, seen, None) for queue in self.queues]
        return reached["epoch"]

    def train_epoch(self, epoch) -> float:
        """Carry out one epoch and add its rows; returns the mean loss of the runs."""
        temperatures = [
            annealed_temperature(epoch) if run.temperature == "annealed" else run.temperature
            for run in self.trainings
        ]
        powers = [annealed_temperature(epoch) ** POWERS[run.weight] for run in self.trainings]
        alphas = self.alphas * self.alphas.new_tensor(powers)
        steps = self.trainings[0].steps_per_epoch
        drawn = [list(islice(queue, steps)) for queue in self.queues]
        placed = [
            batch + start
            for start, drawn_batches in zip(self.starts, drawn, strict=True)
            for batch in drawn_batches
        ]
        order = pad_sequence(placed, batch_first=True).to(self.device)
        order = order.unflatten(0, (len(self.trainings), -1))  # [runs, steps, B]
        sums = torch.zeros(2, len(drawn), dtype=self.features.dtype, device=self.device)
        sizes_of_steps = zip(*(map(len, drawn_batches) for drawn_batches in drawn), strict=True)
        for step, sizes in enumerate(sizes_of_steps):
            parts = []
            # Last batches differ in size by the documents of a run without a known word.
            for size in sorted(set(sizes)):
                chosen = tuple(place for place, taken in enumerate(sizes) if taken == size)
                batch = self._of(order[:, step, :size], chosen)
                losses = self._losses(chosen, batch, temperatures, alphas)
                parts.append(losses[0].sum())
                sums.index_add_(1, self.index(chosen), torch.stack(losses).detach() * size)
            take_step(self.optimizer, sum(parts))
        documents = [sum(map(len, drawn_batches)) for drawn_batches in drawn]
        means = sums / torch.tensor(documents, device=self.device)
        found = torch.cat([means, self._finite()[None].to(sums.dtype)]).T.tolist()
        for place, (loss, primary, whole) in enumerate(found):
            if not self.diverged[place]:
                row = {"epoch": epoch, "temperature": temperatures[place]}
                self._end_epoch(place, row | {"loss": loss, "primary": primary}, whole)
        return np.mean([loss for loss, *_ in found])

    def _of(self, values, chosen):
        """Take the rows of the chosen runs."""
        return values if len(chosen) == len(values) else values[self.index(chosen)]

    def _losses(self, chosen, batch, temperatures, alphas):
        """Return the composite and the primary losses of the chosen runs, each [runs]."""
        x, y, first = self.features[batch], self.labels[batch], self.trainings[0]
        weights = {name: self._of(value, chosen) for name, value in self.weights.items()}
        primary, seen = self.network(weights, x, y)
        if first.regularizer is not None:
            added = [
                first.regularizer(values[0], y[0], temperatures[0]) for values in seen.values()
            ]
            return primary + alphas[0] * sum(added), primary
        total = primary
        for temperature in dict.fromkeys(temperatures):
            at = tuple(
                place
                for place, run in enumerate(chosen)
                if self.trainings[run].alpha != 0 and temperatures[run] == temperature
            )
            if at:
                hidden = {name: self._of(values, at) for name, values in seen.items()}
                composite = composite_loss(
                    self._of(primary, at),
                    hidden,
                    self._of(y, at),
                    alpha=self._of(self._of(alphas, chosen), at),
                    temperature=temperature,
                    layers=first.layers,
                    ignore_index=first.ignore_index,
                    check_finite=False,  # once an epoch is enough: each look would stall a GPU
                )
                total = total.index_copy(0, self.index(at), composite)
        return total, primary

    def _finite(self):
        """Tell of which runs all weights are finite, bool [runs]."""
        runs = len(self.trainings)
        finite = [
            value.detach().reshape(runs, -1).isfinite().all(dim=1)
            for value in self.weights.values()
        ]
        return torch.stack(finite).all(dim=0)

    def _end_epoch(self, place, row, whole):
        training, epoch = self.trainings[place], row["epoch"]
        if not np.isfinite(row["loss"]):
            self.diverged[place] = f"the loss was {row['loss']} in epoch {epoch}"
        elif not whole:  # broken by the last step, so that no loss shows it
            self.diverged[place] = f"the weights were not finite after epoch {epoch}"
        elif training.after_epoch is not None:
            training.model.eval()
            row |= training.after_epoch(training.model)
            training.model.train()
        self.rows[place].append(row)


def _checkpoint_of(trainings):
    """Name the checkpoint of a stack: that of its only training, or one of all their names."""
    paths = [training.checkpoint for training in trainings]
    if None in paths or len(paths) == 1:
        return paths[0] if len(paths) == 1 else None
    together = zlib.crc32(" ".join(path.name for path in paths).encode())
    return paths[0].with_name(f"stack-{len(paths)}-{together:08x}.pt")


def _joined(parts, device):
    return parts[0].to(device) if len(parts) == 1 else torch.cat(parts).to(device)


def _alone(training):
    """What ``_side_by_side`` returns, of one training, with its own weights as they are."""

    def network(weights, x, y):
        output, hidden = training.model(x[0])
        seen = hidden if training.select is None else training.select(hidden, output)
        primary = training.primary(output, x[0], y[0])[None]
        return primary, {name: value[None] for name, value in seen.items()}

    return dict(training.model.named_parameters()), network


def _side_by_side(trainings):
    """Stack the weights, name -> [runs, ...], and make the models' own ones views of them.

    Returns these and (weights, x [runs, B, D], y [runs, B]) -> (primary losses [runs], what the
    loss sees, name -> [runs, B, D]).
    """
    weights, _ = stack_module_state([training.model for training in trainings])
    for place, training in enumerate(trainings):
        for name, value in training.model.named_parameters():
            value.data = weights[name].data[place]
    select, primary = trainings[0].select, trainings[0].primary
    bare = copy.deepcopy(trainings[0].model).to("meta")

    def network(weights, x, y):
        output, hidden = functional_call(bare, weights, (x,))
        return primary(output, x, y), hidden if select is None else select(hidden, output)

    return weights, torch.vmap(network)


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
