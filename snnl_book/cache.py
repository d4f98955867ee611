"""What is kept on disk so that nothing long is computed twice.

- ``cached``: a finished artefact (vectors, the weights of a network), computed once.
- ``cached_rows``: vectors kept batch by batch, which many calls share.

A file is whole or not there. A damaged one is a CacheError that names it, and removing it is all
there is to do.
"""

import hashlib
import io
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from snnl_lib.checkpoint import CacheError as CacheError
from snnl_lib.checkpoint import cache_file
from snnl_lib.checkpoint import key as key

CHECKSUM = hashlib.sha256().digest_size  # bytes, before what an artefact's file holds


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


# ---------------------------------------------------------------- finished artefacts


class Artefact(NamedTuple):
    """What ``cached`` returns: the value, and how long it took whoever computed it."""

    value: Any
    seconds: float


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
    with cache_file(path) as file:
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
        with cache_file(folder / f"{key(of_batch)}.npz") as file:
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
