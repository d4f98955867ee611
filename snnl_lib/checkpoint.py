"""Checkpoints of training runs, and files that are written completely or not at all."""

import contextlib
import glob
import hashlib
import json
import os
import secrets
import tempfile
import time
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError

SECONDS_BETWEEN = 600.0
"""The minimum number of seconds between two saves; a run saves at the end of a step or epoch."""
ENTRIES = {"parts", "progress", "of", "random", "random, GPUs"}
"""The keys of the dict that is stored in the file of a Checkpoint."""
PLAIN_TYPES = None | bool | int | float | str | bytes


class CacheError(SnnlError):
    """Raised if a checkpoint or cached file cannot be used.

    This is the case if the file is damaged, belongs to another run, or cannot be read or written.
    """


@contextlib.contextmanager
def whole_file(path: Path):
    """Open a binary file for writing; it appears at ``path`` only if the ``with`` block succeeds.

    The data first goes to a temporary file. Temporary files left behind by killed processes are
    removed after an hour, by which time no process can still be writing to them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{glob.escape(path.stem)}*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - leftover.stat().st_mtime > 3600:
                leftover.unlink()
    # Opened with open, so that the file's permissions follow the umask; those of tempfile do not.
    with (path.parent / f".{path.stem}{secrets.token_hex(8)}.tmp").open("xb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
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
    except (OSError, RuntimeError) as error:
        # torch.save reports a full disk as a RuntimeError, raised while it handles the OSError.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if not isinstance(cause, OSError):
            raise
        raise _unwritable(path, cause) from error


def _unwritable(path, error):
    advice = "free some disk space, or use a folder that you can write to"
    problem = f"{path} could not be written ({error.strerror})"
    return CacheError(f"{problem}: {advice} (SNNL_CACHE names the book's)")


def key(facts) -> str:
    """Return 16 hex digits that identify a result by everything that it depends on.

    ``facts`` may contain numpy arrays and any values that JSON supports.

    >>> key({"seed": 42, "epochs": 3}) == key({"epochs": 3, "seed": 42}) != key({"seed": 42})
    True
    """
    text = json.dumps(facts, sort_keys=True, default=_as_json)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_json(array):
    """Return the texts of an array, or the type, shape and checksum of a numeric array."""
    if array.dtype.hasobject:
        return array.tolist()
    return [array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).hexdigest()]


class Checkpoint:
    """A file from which an interrupted training run can resume.

    The run then has the same result, bit for bit, as an uninterrupted run. ``parts`` are the
    objects that change during the run: modules, optimisers and schedulers (anything with a
    ``state_dict``), parameters, and random generators of torch or numpy. The file also holds the
    state of torch's global generator for the CPU and, if parts are on an accelerator, for that
    accelerator. ``of`` identifies the training run, so that no other run continues from the file.
    If ``path`` is None, there is no file and the methods do nothing.

    >>> import tempfile, torch
    >>> weight, path = torch.nn.Parameter(torch.zeros(2)), f"{tempfile.mkdtemp()}/training.pt"
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
        """Restore the state of all parts from the file, and return the ``progress`` given to
        ``save``.

        The result is an empty dict if there is no file. Raises CacheError if the file is damaged,
        cannot be read, or belongs to another run, or if its folder cannot be written to.
        """
        if self.path is None or self._is_new():
            return {}
        # Importing torch takes seconds, and most users of this module need only whole_file.
        import torch

        from snnl_lib.devices import random_states, set_random_states

        try:
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
        except (PermissionError, IsADirectoryError) as error:
            problem = f"could not be read ({error.strerror})"
            raise CacheError(f"the checkpoint {self.path} {problem}") from error
        except Exception as error:  # a damaged file can raise nearly any other exception
            raise self._unusable(f"is damaged ({type(error).__name__})") from error
        if not isinstance(saved, dict) or not saved.keys() >= ENTRIES:
            raise self._unusable(
                "is not a checkpoint, or was saved by another version of this library"
            )
        if saved["of"] != self.of:
            raise self._unusable("belongs to another training run")
        if saved["parts"].keys() != self.parts.keys():
            parts = f"{', '.join(saved['parts'])}, but this run has {', '.join(self.parts)}"
            raise self._unusable(f"belongs to another training run: it holds {parts}")
        for name, part in self.parts.items():
            try:
                _put_back(part, saved["parts"][name])
            except Exception as error:
                raise self._unusable(f"does not fit the part {name!r} ({error})") from error
        torch.set_rng_state(saved["random"])
        device = self._device()
        states = random_states(device)
        if states and saved["random, GPUs"]:  # none if the training began on a CPU
            (states[device.index],) = saved["random, GPUs"]
            set_random_states(device, states)
        return saved["progress"]

    def _is_new(self):
        """Return whether there is no file; raise CacheError, not hours later, if none can be."""
        if self.path.exists():
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.path.parent).close()
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return True

    def _unusable(self, problem):
        advice = "remove it to start training from the beginning, or name another file"
        return CacheError(f"the checkpoint {self.path} {problem}: {advice}")

    def _device(self):
        """Return the accelerator that holds a part, or the CPU if it holds all parts."""
        import torch

        for part in self.parts.values():
            for holder in part.parameters() if hasattr(part, "parameters") else [part]:
                device = getattr(holder, "device", None)
                if device is not None and device.type != "cpu":
                    return device
        return torch.device("cpu")

    def save_if_due(self, **progress) -> bool:
        """Save if ten minutes (``SECONDS_BETWEEN``) have passed since the last save.

        Returns whether the parts were saved.
        """
        due = self.path is not None and time.monotonic() - self._last_saved >= SECONDS_BETWEEN
        if due:
            self.save(**progress)
        return due

    def save(self, **progress) -> None:
        """Write the parts and ``progress`` to the file.

        ``progress`` is whatever else the run needs to continue, as keyword arguments such as
        ``epoch=3``. It may contain Python or numpy numbers, strings, tensors, and lists and dicts
        of these. Raises TypeError for other values, CacheError if the file cannot be written.
        """
        if self.path is None:
            return
        import torch

        from snnl_lib.devices import random_states

        device = self._device()
        states = random_states(device)
        saved = {
            "parts": {name: _state(part) for name, part in self.parts.items()},
            "progress": _plain(progress),
            "of": self.of,
            "random": torch.get_rng_state(),
            "random, GPUs": [states[device.index]] if states else [],
        }
        with cache_file(self.path) as file:
            torch.save(saved, file)
        self._last_saved = time.monotonic()

    def remove(self) -> None:
        """Remove the file; call this once the result of the run is saved elsewhere."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _plain(value):
    """Return a value with its numpy scalars replaced by Python's.

    ``torch.load`` reads Python's scalars without running code from the file, but few other values.
    Raises TypeError for the rest, which could be saved and not be read again.
    """
    import torch

    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {_plain(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    if not isinstance(value, PLAIN_TYPES | torch.Tensor):
        expected = "progress must be numbers, strings, tensors, and lists and dicts of these"
        raise TypeError(f"{expected}, got {type(value).__name__}")
    return value


def _state(part):
    if isinstance(part, np.random.Generator):
        return json.dumps(part.bit_generator.state)
    if hasattr(part, "get_state"):  # a torch generator
        return part.get_state()
    return part.state_dict() if hasattr(part, "state_dict") else part.detach()


def _put_back(part, state):
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = json.loads(state)
    elif hasattr(part, "set_state"):
        part.set_state(state)
    elif hasattr(part, "load_state_dict"):
        part.load_state_dict(state)
    elif part.shape != state.shape:  # copy_ would repeat a single number
        raise ValueError(f"shape {tuple(state.shape)}, but this run has {tuple(part.shape)}")
    else:
        part.detach().copy_(state)
