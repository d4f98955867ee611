"""Files that are whole or not there, and the state of a training under way in one of them."""

import contextlib
import glob
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError

SECONDS_BETWEEN = 600.0
"""How long a training goes on at most before it saves its state, apart from the seconds of a step
or an epoch.
"""


class CacheError(SnnlError):
    """A checkpoint or cached file that is damaged or cannot be written."""


@contextlib.contextmanager
def whole_file(path: Path):
    """Open a binary file for writing that takes its place at ``path`` once it is complete: a reader
    sees it whole or not at all.

    What a killed process left of the same file is removed when it is an hour old: by then nobody is
    still writing it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.stem)}*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > 3600:
                left.unlink()
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.stem}", suffix=".tmp", delete=False
    ) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def cache_file(path: Path):
    """Open a file as ``whole_file`` does; raise CacheError if it cannot be written."""
    try:
        with whole_file(path) as file:
            yield file
    except OSError as error:
        advice = "make room, or set SNNL_CACHE to a folder you can write to"
        raise CacheError(f"{path} could not be written ({error.strerror}): {advice}") from error


def key(facts) -> str:
    """Name by 16 hex digits what settles an artefact: all that could make it another one.

    ``facts`` are what JSON can hold, and arrays.

    >>> key({"seed": 42, "epochs": 3}) == key({"epochs": 3, "seed": 42}) != key({"seed": 42})
    True
    """
    text = json.dumps(facts, sort_keys=True, default=_as_json)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_json(array):
    """Return what JSON holds in place of an array: its texts, or the checksum of its numbers."""
    if array.dtype.hasobject:
        return array.tolist()
    return [array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).hexdigest()]


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
        self.path = None if path is None else Path(path)
        self.of = of
        self.parts = parts
        self._last_saved = time.monotonic()

    def restore(self) -> dict:
        """Put all parts back to where they were when the file was written.

        Returns what ``save`` was given, or nothing if there is no file. Raises CacheError if
        the file is damaged or of another training.
        """
        if self.path is None or not self.path.exists():
            return {}
        import torch

        advice = "remove it, and the training starts anew"
        try:  # a damaged file can raise nearly anything
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
            if saved.get("of", "") == self.of:
                for name, part in self.parts.items():
                    _put_back(part, saved["parts"][name])
                torch.set_rng_state(saved["random"])
                if saved["random, GPUs"]:
                    torch.cuda.set_rng_state_all(saved["random, GPUs"])
                return saved["progress"]
        except Exception as error:
            reason = f"the checkpoint {self.path} is damaged ({type(error).__name__})"
            raise CacheError(f"{reason}: {advice}") from error
        reason = f"the checkpoint {self.path} is of another training"
        raise CacheError(f"{reason}: {advice}, or name another file")

    def save_if_due(self, **progress) -> bool:
        """Save if the last time is ``SECONDS_BETWEEN`` ago; return whether it was."""
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
        with cache_file(self.path) as file:
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
