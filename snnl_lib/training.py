"""One training loop for every network of the book, and the named random sources that make runs repeatable and paired."""

import math
import zlib
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from snnl_lib.losses import annealed_temperature, composite_loss

BATCH_SIZE = 256


def named_seed(seed: int, name: str) -> int:
    """Derive the seed of one named random source (``"subset"``, ``"weights"``, ``"batches"``, ``"kmeans"``, ...) from a run's seed.

    Separate sources keep runs paired: the baseline and the method draw the same subset, weights and batches for a seed.
    """
    return int(np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)[0])


def build(model_class, *args, seed: int, **kwargs):
    """Build a model whose initial weights depend on the seed alone, leaving torch's global random state as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(named_seed(seed, "weights"))  # torch.manual_seed would reseed the GPUs as well
        return model_class(*args, **kwargs)


def _batches(documents, batch_size, generator):
    """Yield batches of indices without end, in a new order each time all have been seen."""
    while True:
        yield from torch.randperm(documents, generator=generator).split(batch_size)


@dataclass
class History:
    """What a training run leaves: ``curve`` (one row an epoch) and, if it stopped early, why (``diverged``)."""

    curve: pd.DataFrame
    diverged: str = ""


def train(
    model, features, labels, primary, *, epochs, seed, alpha=0.0, temperature="annealed", layers="sum", select=None, regularizer=None,
    learning_rate=1e-3, batch_size=BATCH_SIZE, steps_per_epoch=None, device="cpu", after_epoch=None, progress=None,
):  # fmt: skip
    """Train a model on Eq. 7 or 8 with Adam; the last, smaller batch of an epoch is used too.

    Args:
        model: maps a batch [B, D] to (output, hidden); moved to ``device`` and left there, in eval mode.
        features, labels: arrays [N, D] float32 and [N] int.
        primary: (output, batch features, batch labels) -> loss of one value.
        temperature: a number, or ``"annealed"`` (Eq. 6, epochs from 0).
        select: (hidden, output) -> dict of the tensors that the loss sees; default: all hidden layers.
        regularizer: (tensor, labels, temperature) -> loss of one value, summed over what is seen in place of Eq. 4; for rivals.
        steps_per_epoch: default: once over the documents. With another number of steps an epoch goes on over them in new orders, or stops early.
        after_epoch: (model) -> dict of numbers added to the epoch's row.
        progress: text for a progress bar, None for no bar.

    Returns a History whose curve has ``epoch, temperature, loss`` (mean over the epoch's documents of the composite loss),
    ``primary`` and what ``after_epoch`` gave. Stops at the first epoch whose loss is not finite and says so in ``diverged``.
    """
    model.to(device).train()
    features, labels = torch.as_tensor(features, device=device), torch.as_tensor(labels, device=device)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)  # one pass over the weights
    batches = _batches(len(features), batch_size, torch.Generator().manual_seed(named_seed(seed, "batches")))
    history = History(pd.DataFrame())
    rows = []
    # no disabled bar: it too takes a lock between processes, which a worker that is stopped leaves behind
    bar = range(epochs) if progress is None else tqdm(range(epochs), desc=progress, unit="epoch", leave=False)
    for epoch in bar:
        now = annealed_temperature(epoch) if temperature == "annealed" else temperature
        sums, seen_documents = torch.zeros(2, device=device), 0
        for batch in islice(batches, steps_per_epoch or math.ceil(len(features) / batch_size)):
            batch = batch.to(device)
            output, hidden = model(features[batch])
            first = primary(output, features[batch], labels[batch])
            seen = hidden if select is None else select(hidden, output)
            if regularizer is not None:
                loss = first + alpha * sum(regularizer(values, labels[batch], now) for values in seen.values())
            else:  # a NaN is looked for once an epoch below: a look at every step would stall a GPU
                loss = composite_loss(first, seen, labels[batch], alpha=alpha, temperature=now, layers=layers, check_finite=False)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            sums += torch.stack([loss.detach(), first.detach()]) * len(batch)
            seen_documents += len(batch)
        mean_loss, mean_primary = (sums / seen_documents).tolist()
        row = {"epoch": epoch, "temperature": now, "loss": mean_loss, "primary": mean_primary}
        if not np.isfinite(mean_loss):
            history.diverged = f"the loss was {mean_loss} in epoch {epoch}"
        elif not all(weights.isfinite().all() for weights in model.parameters()):  # broken by the last step, so that no loss shows it
            history.diverged = f"the weights were not finite after epoch {epoch}"
        if history.diverged:
            rows.append(row)
            break
        if after_epoch is not None:
            model.eval()
            row |= after_epoch(model)
            model.train()
        rows.append(row)
        if progress is not None:
            bar.set_postfix(loss=f"{mean_loss:.3f}")
    model.eval()
    history.curve = pd.DataFrame(rows)
    return history


@torch.no_grad()
def forward(model, features, *, layer=None, batch_size=1024):
    """Run a trained model over features [N, D] in batches: its output, or one named hidden layer, as a float32 array [N, ...]."""
    device = next(model.parameters()).device
    parts = []
    for batch in torch.as_tensor(features).split(batch_size):
        output, hidden = model(batch.to(device))
        parts.append((output if layer is None else hidden[layer]).float().cpu())
    return torch.cat(parts).numpy()
