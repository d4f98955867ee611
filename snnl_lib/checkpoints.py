"""Checkpoints of long training: what a killed process had reached, from which the next one goes on
to the same bits.
"""

import json
import time
from pathlib import Path

import numpy as np
import torch

from snnl_lib import SnnlError, whole_file

SECONDS_BETWEEN = 600.0
"""How long a training goes on at most before it saves what it has reached, the seconds of a step or
an epoch aside.
"""


class CheckpointError(SnnlError):
    """A checkpoint that is damaged or cannot be written."""


class Checkpoint:
    """All that settles how a training goes on, in one file that is whole or not there.

    ``parts`` are what changes during the training: modules, optimisers and schedulers (anything
    with a ``state_dict``), generators of torch or numpy, parameters. The states of torch's own
    random sources are kept too. ``path=None`` keeps nothing, and all calls do nothing.

    >>> weight, place = torch.nn.Parameter(torch.zeros(2)), getfixture("tmp_path") / "training.pt"
    >>> Checkpoint(place, weight=weight).save(step=3)
    >>> other = torch.nn.Parameter(torch.ones(2))
    >>> Checkpoint(place, weight=other).restore(), bool((other == 0).all())
    ({'step': 3}, True)
    """

    def __init__(self, path: Path | None, **parts):
        self.path, self.parts, self._saved = path, parts, time.monotonic()

    def restore(self) -> dict:
        """Put all parts back to where they were when the file was written; returns what ``save``
        was given, or nothing if there is no file.

        Raises CheckpointError if the file is damaged or of another training.
        """
        if self.path is None or not self.path.exists():
            return {}
        try:
            found = torch.load(self.path, map_location="cpu", weights_only=True)
            for name, part in self.parts.items():
                _put(part, found["parts"][name])
            torch.set_rng_state(found["random"])
            if found["random, GPUs"]:
                torch.cuda.set_rng_state_all(found["random, GPUs"])
            return found["progress"]
        except Exception as error:  # a damaged file can raise nearly anything
            raise CheckpointError(
                f"the checkpoint {self.path} is damaged ({type(error).__name__}): remove it, and the training starts anew"
            ) from error

    def save_if_due(self, **progress) -> bool:
        """Save what ``save`` does if the last time is ``SECONDS_BETWEEN`` ago; tells whether it
        did.
        """
        due = self.path is not None and time.monotonic() - self._saved >= SECONDS_BETWEEN
        if due:
            self.save(**progress)
        return due

    def save(self, **progress) -> None:
        """Write the file: the parts, and what else the training needs to go on (numbers, texts,
        tensors, and lists and dictionaries of these).

        Raises CheckpointError if the folder refuses.
        """
        if self.path is None:
            return
        found = {
            "parts": {name: _taken(part) for name, part in self.parts.items()},
            "progress": progress,
            "random": torch.get_rng_state(),
        }
        found["random, GPUs"] = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        try:
            with whole_file(self.path) as file:
                torch.save(found, file)
        except OSError as error:
            raise CheckpointError(
                f"{self.path} could not be written ({error.strerror}): make room, or name another folder"
            ) from error
        self._saved = time.monotonic()

    def remove(self) -> None:
        """Remove the file, once what the training made is kept elsewhere."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _taken(part):
    if isinstance(part, np.random.Generator):
        return json.dumps(part.bit_generator.state)
    if isinstance(part, torch.Generator):
        return part.get_state()
    return part.detach() if isinstance(part, torch.Tensor) else part.state_dict()


@torch.no_grad()
def _put(part, state):
    if isinstance(part, np.random.Generator):
        part.bit_generator.state = json.loads(state)
    elif isinstance(part, torch.Generator):
        part.set_state(state)
    elif isinstance(part, torch.Tensor):
        part.copy_(state)
    else:
        part.load_state_dict(state)
