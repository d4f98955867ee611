"""One training loop for every network of the book, and the named random sources that make runs
repeatable and paired.
"""

import copy
import math
import queue
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.func import functional_call, stack_module_state
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from snnl_lib.checkpoints import Checkpoint
from snnl_lib.experiments.settings import BATCH_SIZE
from snnl_lib.losses import annealed_temperature, composite_loss


def named_seed(seed: int, name: str) -> int:
    """Derive the seed of one named random source (``"subset"``, ``"weights"``, ``"batches"``,
    ``"kmeans"``, ...) from a run's seed.

    Separate sources keep runs paired: the baseline and the method draw the same subset, weights and
    batches for a seed. Another ``name`` or another seed is another source. Returns a whole number
    in [0, 2³²).

    >>> named_seed(42, "weights"), named_seed(42, "batches")
    (1366180961, 1106088122)
    """
    return int(np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)[0])


def build(model_class, *args, seed: int, **kwargs):
    """Build ``model_class(*args, **kwargs)`` with initial weights that depend on the seed alone,
    leaving torch's global random state as it was.

    >>> first, second = (build(torch.nn.Linear, 3, 2, seed=42) for _ in range(2))
    >>> torch.equal(first.weight, second.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(
            named_seed(seed, "weights")
        )  # torch.manual_seed would reseed the GPUs as well
        return model_class(*args, **kwargs)


def batches(documents, batch_size, generator):
    """Yield batches of the indices of some documents without end, in a new order each time all have
    been seen; ``generator`` draws the orders.
    """
    while True:
        yield from torch.randperm(documents, generator=generator).split(batch_size)


@dataclass
class History:
    """What a training run leaves: ``curve`` (one row an epoch) and, if it stopped early, why
    (``diverged``).
    """

    curve: pd.DataFrame
    diverged: str = ""


@dataclass
class Training:
    """One call of ``train``, before it is carried out."""

    model: nn.Module
    features: torch.Tensor
    labels: torch.Tensor
    primary: Callable
    epochs: int
    seed: int
    alpha: float
    temperature: float | str
    layers: str | list[str]
    select: Callable | None
    regularizer: Callable | None
    learning_rate: float
    batch_size: int
    steps_per_epoch: int
    after_epoch: Callable | None

    def kind(self) -> tuple:
        """What has to be equal for runs to train as one stack; of functions, that they are the same
        object.
        """
        modules = [
            (name, type(part), {key: value for key, value in vars(part).items() if key[0] != "_"})
            for name, part in self.model.named_modules()
        ]
        shapes = [
            (name, value.shape, value.dtype) for name, value in self.model.state_dict().items()
        ]
        own = (self.epochs, self.layers, self.learning_rate, self.batch_size, self.steps_per_epoch)
        alone = self if self.regularizer or list(self.model.buffers()) else None
        return str(modules), str(shapes), str(own), id(self.primary), id(self.select), id(alone)


def train(
    model,
    features,
    labels,
    primary,
    *,
    epochs,
    seed,
    alpha=0.0,
    temperature="annealed",
    layers="sum",
    select=None,
    regularizer=None,
    learning_rate=1e-3,
    batch_size=BATCH_SIZE,
    steps_per_epoch=None,
    device="cpu",
    after_epoch=None,
    progress=None,
    checkpoint=None,
):
    """Train a model on Eq. 7 or 8 with Adam; the last, smaller batch of an epoch is used too.

    Args:
        model: maps a batch [B, D] to (output, hidden); moved to ``device`` and left there, in eval
            mode.
        features, labels: arrays [N, D] float32 and [N] int.
        primary: (output, batch features, batch labels) -> loss of one value.
        epochs, batch_size, learning_rate: of the optimiser; numbers above 0.
        seed: settles the order of the documents.
        alpha, layers: those of ``composite_loss``.
        temperature: a number, or ``"annealed"`` (Eq. 6, epochs from 0).
        select: (hidden, output) -> dict of the tensors that the loss sees; default: all hidden
            layers.
        regularizer: (tensor, labels, temperature) -> loss of one value, summed over what is seen in
            place of Eq. 4; for rivals.
        steps_per_epoch: default: once over the documents. With another number of steps an epoch
            goes on over them in new orders, or stops early.
        after_epoch: (model) -> dict of numbers added to the epoch's row.
        progress: text for a progress bar, None for no bar.
        checkpoint: file from which a training that was killed goes on, after the last epoch that it
            holds; None keeps none. Whoever keeps what was trained removes it.

    Returns:
        A History whose curve has ``epoch, temperature, loss`` (mean over the epoch's documents of
        the composite loss), ``primary`` and what ``after_epoch`` gave. Stops at the first epoch
        whose loss is not finite and says so in ``diverged``.

    Raises:
        ValueError: an alpha, temperature or layer that ``composite_loss`` refuses.

    >>> from snnl_lib.models import FeedForwardNet
    >>> from snnl_lib.experiments.text import cross_entropy
    >>> x, y = torch.eye(4).repeat(8, 1), torch.arange(4).repeat(8)
    >>> model = build(FeedForwardNet, 4, 4, hidden_sizes=(16,), seed=42)
    >>> curve = train(model, x, y, cross_entropy, alpha=100, epochs=3, seed=42).curve
    >>> list(curve.columns), bool(curve["loss"].is_monotonic_decreasing)
    (['epoch', 'temperature', 'loss', 'primary'], True)
    """
    if not math.isfinite(alpha):
        raise ValueError(f"alpha must be a finite number, got {alpha!r}")
    run = Training(
        model,
        torch.as_tensor(features),
        torch.as_tensor(labels),
        primary,
        epochs,
        seed,
        alpha,
        temperature,
        layers,
        select,
        regularizer,
        learning_rate,
        batch_size,
        steps_per_epoch or math.ceil(len(features) / batch_size),
        after_epoch,
    )
    seat = getattr(_here, "seat", None)
    return (
        train_stack([run], device, progress, checkpoint)[0] if seat is None else seat.wait_for(run)
    )


def train_stack(
    runs: list[Training], device="cpu", progress=None, checkpoint=None
) -> list[History]:
    """Train runs of one ``kind`` (``Training.kind``) at the same time, their weights side by side
    in tensors with a leading axis of runs.

    Each takes the steps that ``train`` takes alone, over its own documents in its own order; only
    rounding can differ. The data stay on the device, which is waited for once an epoch.
    """
    models, first = [run.model.to(device).train() for run in runs], runs[0]
    weights, network = _alone(first) if len(runs) == 1 else _side_by_side(runs)
    optimizer = torch.optim.Adam(
        weights.values(), lr=first.learning_rate, fused=True
    )  # one pass over the weights
    features, labels = (
        _joined([run.features for run in runs], device),
        _joined([run.labels for run in runs], device),
    )
    starts = np.cumsum([0] + [len(run.features) for run in runs]).tolist()
    alphas = torch.tensor([run.alpha for run in runs], dtype=features.dtype, device=device)
    queues = [
        batches(
            len(run.features),
            run.batch_size,
            torch.Generator().manual_seed(named_seed(run.seed, "batches")),
        )
        for run in runs
    ]
    histories, rows = [History(pd.DataFrame()) for _ in runs], [[] for _ in runs]
    index = cache(
        lambda numbers: torch.tensor(numbers, device=device)
    )  # made once: each would make the device wait

    def some(values, numbers):
        return values if len(numbers) == len(values) else values[index(numbers)]

    def losses(chosen, x, y, temperatures):
        """Return the composite and the primary losses of the chosen runs, each [runs], on their
        batches [runs, B, D].
        """
        primary, seen = network(
            {name: some(value, chosen) for name, value in weights.items()}, x, y
        )
        if first.regularizer is not None:
            return primary + first.alpha * sum(
                first.regularizer(values[0], y[0], temperatures[0]) for values in seen.values()
            ), primary
        total = primary
        for temperature in dict.fromkeys(temperatures):
            at = tuple(
                place
                for place, number in enumerate(chosen)
                if runs[number].alpha != 0 and temperatures[number] == temperature
            )
            if (
                at
            ):  # a NaN is looked for once an epoch below: a look at every step would stall a GPU
                own = {name: some(values, at) for name, values in seen.items()}
                settings = {
                    "alpha": some(some(alphas, chosen), at),
                    "temperature": temperature,
                    "layers": first.layers,
                    "check_finite": False,
                }
                total = total.index_copy(
                    0, index(at), composite_loss(some(primary, at), own, some(y, at), **settings)
                )
        return total, primary

    kept = Checkpoint(
        checkpoint,
        optimizer=optimizer,
        **{f"weights.{name}": value for name, value in weights.items()},
    )
    first_epoch = 0
    if reached := kept.restore():
        first_epoch, rows = reached["epoch"], reached["rows"]
        for history, diverged in zip(histories, reached["diverged"], strict=True):
            history.diverged = diverged
        queues = [islice(queue, first_epoch * first.steps_per_epoch, None) for queue in queues]
    # no disabled bar: it too takes a lock between processes, which a worker that is stopped
    # leaves behind
    bar = range(first_epoch, first.epochs)
    if progress is not None:
        bar = tqdm(
            bar, desc=progress, unit="epoch", leave=False, initial=first_epoch, total=first.epochs
        )
    for epoch in bar:
        temperatures = [
            annealed_temperature(epoch) if run.temperature == "annealed" else run.temperature
            for run in runs
        ]
        drawn = [list(islice(own, first.steps_per_epoch)) for own in queues]
        order = pad_sequence(
            [batch + start for start, own in zip(starts, drawn, strict=False) for batch in own],
            batch_first=True,
        )
        order = order.to(device).unflatten(0, (len(runs), -1))  # [runs, steps, B]
        sums = torch.zeros(2, len(runs), dtype=features.dtype, device=device)
        for step, sizes in enumerate(zip(*(map(len, own) for own in drawn), strict=True)):
            parts = []
            for size in sorted(
                set(sizes)
            ):  # the last batches of runs differ in size by their documents without a known word
                chosen = tuple(number for number, own in enumerate(sizes) if own == size)
                batch = some(order[:, step, :size], chosen)
                found = losses(chosen, features[batch], labels[batch], temperatures)
                parts.append(found[0].sum())
                sums.index_add_(1, index(chosen), torch.stack(found).detach() * size)
            optimizer.zero_grad(set_to_none=True)
            sum(parts).backward()
            optimizer.step()
        seen_documents = torch.tensor([sum(map(len, own)) for own in drawn], device=device)
        finite = torch.stack(
            [
                value.detach().reshape(len(runs), -1).isfinite().all(dim=1)
                for value in weights.values()
            ]
        ).all(dim=0)
        found = torch.cat([sums / seen_documents, finite[None].to(sums.dtype)]).T.tolist()
        for run, model, history, own, temperature, (mean_loss, mean_primary, whole) in zip(
            runs, models, histories, rows, temperatures, found, strict=True
        ):
            if history.diverged:
                continue
            row = {
                "epoch": epoch,
                "temperature": temperature,
                "loss": mean_loss,
                "primary": mean_primary,
            }
            if not np.isfinite(mean_loss):
                history.diverged = f"the loss was {mean_loss} in epoch {epoch}"
            elif not whole:  # broken by the last step, so that no loss shows it
                history.diverged = f"the weights were not finite after epoch {epoch}"
            elif run.after_epoch is not None:
                model.eval()
                row |= run.after_epoch(model)
                model.train()
            own.append(row)
        if all(history.diverged for history in histories):
            break
        kept.save_if_due(
            epoch=epoch + 1, rows=rows, diverged=[history.diverged for history in histories]
        )
        if progress is not None:
            bar.set_postfix(loss=f"{np.mean([own[0] for own in found]):.3f}")
    for model, history, own in zip(models, histories, rows, strict=True):
        model.eval()
        history.curve = pd.DataFrame(own)
    return histories


def _joined(parts, device):
    return parts[0].to(device) if len(parts) == 1 else torch.cat(parts).to(device)


def _alone(run):
    """What ``_side_by_side`` returns, of one run, with its own weights as they are."""

    def network(weights, x, y):
        output, hidden = run.model(x[0])
        seen = hidden if run.select is None else run.select(hidden, output)
        return run.primary(output, x[0], y[0])[None], {
            name: value[None] for name, value in seen.items()
        }

    return dict(run.model.named_parameters()), network


def _side_by_side(runs):
    """Stack the weights of runs, name -> [runs, ...], and make the models' own ones views of them.

    Returns these and (weights, x [runs, B, D], y [runs, B]) -> (primary losses [runs], what the
    loss sees, name -> [runs, B, D]).
    """
    weights, _ = stack_module_state([run.model for run in runs])
    for number, run in enumerate(runs):
        for name, value in run.model.named_parameters():
            value.data = weights[name].data[number]
    bare, select, primary = copy.deepcopy(runs[0].model).to("meta"), runs[0].select, runs[0].primary

    def network(weights, x, y):
        output, hidden = functional_call(bare, weights, (x,))
        return primary(output, x, y), hidden if select is None else select(hidden, output)

    return weights, torch.vmap(network)


# ---------------------------------------------------------------- runs that meet in a stack

_here = (
    threading.local()
)  # .seat: of a thread in which `train` waits for other runs instead of starting


class _Seat(threading.Thread):
    """A thread that carries out one function and stops where it comes to ``train``; ``news``
    receives the seat whenever it stops or ends.
    """

    def __init__(self, function, news):
        super().__init__(daemon=True)
        self.function, self.news, self.waiting, self.answer = function, news, None, None
        self.result, self.error, self.answered, self.size, self.absent = (
            None,
            None,
            threading.Semaphore(0),
            1,
            0.0,
        )

    def run(self):
        _here.seat = self
        try:
            self.result = self.function()
        except BaseException as error:  # raised again where the result is asked for
            self.error = error
        self.news.put(self)

    def wait_for(self, run):
        self.waiting, started = run, time.perf_counter()
        self.news.put(self)
        self.answered.acquire()
        self.absent += time.perf_counter() - started
        answer, self.answer = self.answer, None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def go_on(self, answer, share=0.0):
        self.waiting, self.answer, self.absent = None, answer, self.absent - share
        self.answered.release()


def stack_of_this_run() -> tuple[int, float]:
    """Return with how many runs the one in this thread was trained, itself included, and the
    seconds that it spent waiting for others.
    """
    seat = getattr(_here, "seat", None)
    return (1, 0.0) if seat is None else (seat.size, seat.absent)


def together(functions, device="cpu", jobs=1, progress=None):
    """Carry out functions whose calls of ``train`` are to be one stack; yield what each returns as
    it ends.

    Each runs in a thread, one at a time up to its ``train``: building networks draws on torch's one
    random state. Runs whose networks, losses and settings are equal but for seed, documents, alpha
    and temperature are then trained at once, and go on.

    Args:
        functions: callables without arguments; what they raise is raised here, and what a stack
            raises in each of its functions.
        device: where the stacks are trained, whatever ``device`` the calls of ``train`` name.
        jobs: how many functions go on at a time after their training.
        progress: text for the progress bars, None for no bar.

    >>> from snnl_lib.models import FeedForwardNet
    >>> from snnl_lib.experiments.text import cross_entropy
    >>> x, y = torch.eye(4).repeat(8, 1), torch.arange(4).repeat(8)
    >>> def loss_of(seed):
    ...     model = build(FeedForwardNet, 4, 4, hidden_sizes=(16,), seed=seed)
    ...     return round(train(model, x, y, cross_entropy, epochs=3, seed=seed).curve["loss"].iloc[-1], 3)
    >>> list(together([lambda: loss_of(42), lambda: loss_of(73)])) == [loss_of(42), loss_of(73)]
    True
    """
    news, seats = queue.SimpleQueue(), []

    def ended(seat):
        if seat.error is not None:
            raise seat.error
        return [] if seat.waiting else [seat.result]

    try:
        for function in functions:
            seats.append(_Seat(function, news))
            seats[-1].start()
            yield from ended(news.get())
        while waiting := [seat for seat in seats if seat.waiting]:
            kinds = {}
            for seat in waiting:
                kinds.setdefault(seat.waiting.kind(), []).append(seat)
            for kind in kinds.values():
                started = time.perf_counter()
                try:
                    answers = train_stack([seat.waiting for seat in kind], device, progress)
                except (RuntimeError, ValueError, MemoryError) as error:
                    answers = [error] * len(kind)
                share, under_way = (time.perf_counter() - started) / len(kind), 0
                for seat, answer in zip(kind, answers, strict=True):
                    if under_way == jobs:
                        yield from ended(news.get())
                        under_way -= 1
                    seat.size = len(kind)
                    seat.go_on(answer, share)
                    under_way += 1
                for _ in range(under_way):
                    yield from ended(news.get())
    finally:  # whoever still waits is sent home
        for seat in seats:
            if seat.waiting:
                seat.go_on(SystemExit())


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
