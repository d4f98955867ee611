"""What is kept on disk so that nothing long is computed twice.

- ``Checkpoint``: a training under way, from which a killed process goes on to the same bits.
- ``cached``: a finished artefact (vectors, the weights of a network), computed once.
- ``cached_rows``: vectors kept batch by batch, which many calls share.

A file is whole or not there. A damaged one is a CacheError that names it, and removing it is all
there is to do.
"""

import contextlib
import hashlib
import io
import json
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from snnl_lib import SnnlError, told_as, whole_file

SECONDS_BETWEEN = 600.0
"""How long a training goes on at most before it saves what it has reached, the seconds of a step or
an epoch aside.
"""
CHECKSUM = hashlib.sha256().digest_size  # bytes, before what an artefact's file holds


class CacheError(SnnlError):
    """A cached file that is damaged or cannot be written."""


def device_suffix(device: str) -> str:
    """Return what a cached file's name adds for the type of device that computed it.

    >>> device_suffix("cpu"), device_suffix("cuda:1")
    ('', '-cuda')
    """
    kind = str(device).partition(":")[0]
    return "" if kind == "cpu" else f"-{kind}"


def file_fingerprint(path: Path) -> str:
    """Name a file, such as one of weights, by the first 8 hex digits of its sha256."""
    status = path.stat()
    return _sha256_of_file(path, status.st_size, status.st_mtime_ns)[:8]


@lru_cache(maxsize=100)
def _sha256_of_file(path, size, modified):  # gigabytes are read once, unless they have changed
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _written(path):
    """Open a file as ``whole_file`` does; a folder that refuses is a CacheError."""
    try:
        with whole_file(path) as file:
            yield file
    except OSError as error:
        advice = "make room, or set SNNL_CACHE to a folder you can write to"
        raise CacheError(f"{path} could not be written ({error.strerror}): {advice}") from error


# ---------------------------------------------------------------- training under way


class Checkpoint:
    """All that settles how a training goes on, in one file.

    ``parts`` are what changes during the training: modules, optimisers and schedulers (anything
    with a ``state_dict``), generators of torch or numpy, parameters. The states of torch's own
    random sources are kept too. ``of`` names the training, so that no other goes on from its file.
    ``path=None`` keeps nothing, and all calls do nothing.

    >>> import torch
    >>> weight, path = torch.nn.Parameter(torch.zeros(2)), getfixture("tmp_path") / "training.pt"
    >>> Checkpoint(path, weight=weight).save(step=3)
    >>> other = torch.nn.Parameter(torch.ones(2))
    >>> Checkpoint(path, weight=other).restore(), bool((other == 0).all())
    ({'step': 3}, True)
    """

    def __init__(self, path: Path | str | None, of: str = "", **parts):
        self.path, self.of = None if path is None else Path(path), of
        self.parts, self._last_saved = parts, time.monotonic()

    def restore(self) -> dict:
        """Put all parts back to where they were when the file was written.

        Returns what ``save`` was given, or nothing if there is no file. Raises CacheError if
        the file is damaged or of another training.
        """
        if self.path is None or not self.path.exists():
            return {}
        import torch

        what, advice = f"the checkpoint {self.path}", "remove it, and the training starts anew"
        # A damaged file can raise nearly anything.
        with told_as(CacheError, f"{what} is damaged", advice):
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
            of = saved.get("of", "")
        if of != self.of:
            raise CacheError(f"{what} is of another training: {advice}, or name another file")
        with told_as(CacheError, f"{what} is damaged", advice):
            for name, part in self.parts.items():
                _put_back(part, saved["parts"][name])
            torch.set_rng_state(saved["random"])
            if saved["random, GPUs"]:
                torch.cuda.set_rng_state_all(saved["random, GPUs"])
            return saved["progress"]

    def save_if_due(self, **progress) -> bool:
        """Save if the last time is ``SECONDS_BETWEEN`` ago, and tell whether it was."""
        due = self.path is not None and time.monotonic() - self._last_saved >= SECONDS_BETWEEN
        if due:
            self.save(**progress)
        return due

    def save(self, **progress) -> None:
        """Write the file: the parts, and what else the training needs to go on.

        ``progress`` may hold numbers (of numpy too), texts, tensors, and lists and dictionaries of
        these. Raises CacheError if the folder refuses.
        """
        if self.path is None:
            return
        import torch

        saved = {
            "parts": {name: _state(part) for name, part in self.parts.items()},
            "progress": _plain(progress),
            "of": self.of,
            "random": torch.get_rng_state(),
            "random, GPUs": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        with _written(self.path) as file:
            torch.save(saved, file)
        self._last_saved = time.monotonic()

    def remove(self) -> None:
        """Remove the file, once what the training made is kept elsewhere."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _plain(value):
    """Turn numpy's scalars into Python's, which ``torch.load`` reads back without running code."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {_plain(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value


def _without_slack(value):
    """Copy tensors that are views of a larger storage, all of which would be saved with them."""
    import torch

    if isinstance(value, torch.Tensor):
        is_view = value.untyped_storage().nbytes() > value.numel() * value.element_size()
        return value.clone() if is_view else value
    if isinstance(value, dict):
        return {name: _without_slack(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_without_slack, value))
    return value


def _state(part):
    if isinstance(part, np.random.Generator):
        return json.dumps(part.bit_generator.state)
    if hasattr(part, "get_state"):  # a generator of torch
        return part.get_state()
    return part.state_dict() if hasattr(part, "state_dict") else part.detach()


def _put_back(part, state):
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = json.loads(state)
    elif hasattr(part, "set_state"):
        part.set_state(state)
    elif hasattr(part, "load_state_dict"):
        part.load_state_dict(state)
    else:
        part.detach().copy_(state)


# ---------------------------------------------------------------- finished artefacts


class Artefact(NamedTuple):
    """What ``cached`` returns: the value, and how long it took whoever computed it."""

    value: Any
    seconds: float


def key(facts) -> str:
    """Name by 16 hex digits what settles an artefact: all that could make it another one.

    ``facts`` are what JSON can hold, and arrays.

    >>> key({"seed": 42, "epochs": 3}) == key({"epochs": 3, "seed": 42}) != key({"seed": 42})
    True
    """
    text = json.dumps(facts, sort_keys=True, default=_as_json)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_json(array):
    """Stand in JSON for an array: its texts, or the checksum of its numbers."""
    if array.dtype.hasobject:
        return array.tolist()
    return [array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).hexdigest()]


def cached(path: Path, compute, seconds: float | None = None) -> Artefact:
    """Return what ``compute()`` makes, from the file if an earlier call left it there.

    The value is made of tensors, numbers and texts, in dictionaries and lists: nothing else is read
    back, so that a file runs no code. Tensors come back on the CPU.

    Args:
        path: names all that settles the value, as ``folder / f"autoencoder-{key(facts)}.bin"``
            does. ``path.with_suffix(".under-way.pt")`` is a good place for the checkpoint of a long
            ``compute``.
        compute: called without arguments if there is no file; what it raises is kept nowhere.
        seconds: how long it took, where ``compute`` only hands out what was made before.

    Raises:
        CacheError: the file is damaged or cannot be written.

    >>> import torch
    >>> path = getfixture("tmp_path") / f"squares-{key({'n': 3})}.bin"
    >>> cached(path, lambda: {"squares": torch.arange(3) ** 2, "unit": "m"}).value
    {'squares': tensor([0, 1, 4]), 'unit': 'm'}
    >>> cached(path, lambda: "is not called").value["unit"]
    'm'
    """
    import torch

    if path.exists():
        try:
            content = path.read_bytes()
            if hashlib.sha256(content[CHECKSUM:]).digest() != content[:CHECKSUM]:
                raise ValueError("another checksum")
            saved = io.BytesIO(content[CHECKSUM:])
            return Artefact(*torch.load(saved, map_location="cpu", weights_only=True))
        except Exception as error:  # a file of something else can raise nearly anything
            advice = "remove it, and the next run computes it again"
            raise CacheError(f"the cached file {path} is damaged: {advice}") from error
    started = time.perf_counter()
    value = _without_slack(compute())
    seconds = time.perf_counter() - started if seconds is None else seconds
    artefact = Artefact(value, seconds)
    saved = io.BytesIO()
    torch.save(tuple(artefact), saved)
    with _written(path) as file:
        file.write(hashlib.sha256(saved.getbuffer()).digest())
        file.write(saved.getbuffer())
    return artefact


# ---------------------------------------------------------------- vectors, row by row


def cached_rows(folder: Path, keys: list[str], width: int, compute) -> np.ndarray:
    """Return a vector for each key, computing those that no earlier call has kept in the folder.

    A sentence encoder takes up to a second a document, and each seed draws its own documents out of
    the same corpus. So each batch of vectors becomes a file as soon as it is computed: an
    interrupted call goes on, and several processes may fill one folder.

    Args:
        folder: names what makes the vectors.
        keys: N names of what the vectors stand for; equal keys have one vector.
        width: numbers in a vector.
        compute: called with the positions in ``keys`` of the missing ones, if there are any; yields
            batch by batch (which of these, their vectors [B, width]).

    Returns:
        float32 array [N, width], rounded to float16 whether computed now or before.

    Raises:
        CacheError: a file is damaged or cannot be written.
    """
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(keys):
        positions.setdefault(name, []).append(position)
    vectors, missing = np.zeros((len(keys), width), dtype=np.float32), dict.fromkeys(positions)
    for path in sorted(folder.glob("*.npz")):
        for name, vector in _kept_rows(path, missing):
            vectors[positions[name]] = vector
            del missing[name]
    names = list(missing)
    for index, batch in compute([positions[name][0] for name in names]) if names else ():
        of_batch, rounded = [names[i] for i in index], batch.astype("<f2")
        with _written(folder / f"{key(of_batch)}.npz") as file:
            np.savez(file, keys=of_batch, vectors=rounded)
        for name, vector in zip(of_batch, rounded, strict=True):
            vectors[positions[name]] = vector
    return vectors


def _kept_rows(path, wanted):
    """Return the pairs (key, vector) of a file whose keys are wanted."""
    try:
        with np.load(path) as file:
            found = [
                (row, name) for row, name in enumerate(file["keys"].tolist()) if name in wanted
            ]
            vectors = file["vectors"] if found else ()
            return [(name, vectors[row]) for row, name in found]
    except Exception as error:  # a damaged file can raise nearly anything
        advice = "remove it, and the next run computes it again"
        raise CacheError(f"the cached file {path} is damaged: {advice}") from error
