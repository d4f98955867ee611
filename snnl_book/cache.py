"""Files in the cache, so that nothing slow is computed twice.

- ``cached``: a finished artefact, such as vectors or the weights of a network.
- ``cached_rows``: vectors kept batch by batch, which many calls share.

A file is written as a whole or not at all. A damaged file raises a CacheError that names it, and
after its removal the next run computes it again.
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

CHECKSUM = hashlib.sha256().digest_size  # bytes at the beginning of an artefact's file


def device_suffix(device: str) -> str:
    """Return the ending of a cached file's name for a type of device, empty for the CPU.

    >>> device_suffix("cpu"), device_suffix("cuda:1")
    ('', '-cuda')
    """
    device_type = str(device).partition(":")[0]
    return "" if device_type == "cpu" else f"-{device_type}"


def file_fingerprint(path: Path) -> str:
    """Return the first 8 hex digits of a file's sha256."""
    status = path.stat()
    return _sha256_of_file(path, status.st_size, status.st_mtime_ns)[:8]


@lru_cache(maxsize=100)
def _sha256_of_file(path, size, modified):  # gigabytes are read once, unless they have changed
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---------------------------------------------------------------- finished artefacts


class Artefact(NamedTuple):
    """A cached value, and the seconds that its computation took."""

    value: Any
    seconds: float


def _without_slack(value):
    """Copy tensors that are views of a larger storage, because saving a view saves all of it."""
    import torch

    if isinstance(value, torch.Tensor):
        is_view = value.untyped_storage().nbytes() > value.numel() * value.element_size()
        return value.clone() if is_view else value
    if isinstance(value, dict):
        return {name: _without_slack(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_without_slack, value))
    return value


def cached(path: Path, compute) -> Artefact:
    """Return the value of ``compute()``, from the file if an earlier call wrote it.

    The value consists of tensors, numbers and texts in dictionaries and lists. Nothing else is
    read, so that a file cannot run code. Tensors are loaded on the CPU.

    Args:
        path: its name must contain everything that determines the value, as in
            ``folder / f"autoencoder-{key(facts)}.bin"``. The checkpoint of a long ``compute`` can
            be ``path.with_suffix(".under-way.pt")``.
        compute: called without arguments if there is no file. If it raises, nothing is kept.

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
        except Exception as error:  # another kind of file can raise nearly anything
            advice = "remove it, and the next run computes it again"
            raise CacheError(f"the cached file {path} is damaged: {advice}") from error
    started = time.perf_counter()
    value = _without_slack(compute())
    artefact = Artefact(value, time.perf_counter() - started)
    saved = io.BytesIO()
    torch.save(tuple(artefact), saved)
    with cache_file(path) as file:
        file.write(hashlib.sha256(saved.getbuffer()).digest())
        file.write(saved.getbuffer())
    return artefact


# ---------------------------------------------------------------- vectors, row by row


def cached_rows(folder: Path, keys: list[str], width: int, compute) -> np.ndarray:
    """Return a vector for each key, and compute those that are not in the folder yet.

    A sentence encoder takes up to a second per document, and each seed draws its own documents from
    the same corpus. Each batch of vectors is therefore written as soon as it is computed. An
    interrupted call can be resumed, and several processes may fill one folder.

    Args:
        folder: its name must identify the encoder.
        keys: N names of the documents; equal keys share a vector.
        width: the length of a vector.
        compute: called with the positions in ``keys`` of missing vectors, if there are any. It
            yields pairs (indices into these positions, their vectors [B, width]), batch by batch.

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


def _kept_rows(path, keys):
    """Return the pairs (key, vector) of a file whose key is among ``keys``."""
    try:
        with np.load(path) as file:
            names = enumerate(file["keys"].tolist())
            row_of = {row: name for row, name in names if name in keys}
            vectors = file["vectors"] if row_of else ()
            return [(name, vectors[row]) for row, name in row_of.items()]
    except Exception as error:  # a damaged file can raise nearly anything
        advice = "remove it, and the next run computes it again"
        raise CacheError(f"the cached file {path} is damaged: {advice}") from error
