"""The named random sources that make runs repeatable and paired; importing them takes no time."""

import zlib

import numpy as np

BATCH_SIZE = 256
"""Samples in a batch, wherever a paper or a recipe does not ask for another number."""


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
