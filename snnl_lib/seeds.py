"""Seeds of named random sources, which make runs repeatable and paired.

This module does not import torch, so that the command that lists the runs starts at once.
"""

import zlib

import numpy as np

BATCH_SIZE = 256
"""The number of samples in a batch, unless a paper or a method asks for another."""


def named_seed(seed: int, name: str) -> int:
    """Return the seed of one random source of a run, a whole number in [0, 2³²).

    ``seed`` is the run's seed, and ``name`` one of its sources: ``"subset"``, ``"weights"``,
    ``"batches"``, ``"kmeans"`` and others. Separate sources keep runs paired: for the same seed,
    the baseline and the method draw the same subset, weights and batches.

    >>> named_seed(42, "weights"), named_seed(42, "batches")
    (1366180961, 1106088122)
    """
    return int(np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)[0])
