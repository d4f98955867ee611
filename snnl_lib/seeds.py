"""Seeds that make the random choices of a run repeatable.

This module does not import torch, so the command that lists the runs starts quickly.
"""

import zlib
from numbers import Integral

import numpy as np

BATCH_SIZE = 256
"""The number of samples in a batch, unless a paper or a method uses another."""


def named_seed(seed: int, name: str) -> int:
    """Return the seed, an integer in [0, 2³²), for one source of randomness in a run.

    ``seed`` is the run's seed, and ``name`` identifies the source, such as ``"subset"``,
    ``"weights"``, ``"batches"`` or ``"kmeans"``. Each source has its own seed. A baseline and a
    method with the same ``seed`` therefore use the same subset, initial weights and batches, and
    can be compared seed by seed. Raises ValueError if ``seed`` is not a whole number of at least 0.

    >>> named_seed(42, "weights"), named_seed(42, "batches")
    (1366180961, 1106088122)
    """
    if not (isinstance(seed, Integral) and seed >= 0):
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
    return int(np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)[0])
