"""What grids of runs and training share, and no import that takes time: ClusterBERT's recipe, and
the named random sources that make runs repeatable and paired.
"""

import zlib
from dataclasses import dataclass

import numpy as np

BATCH_SIZE = 256
"""Samples in a batch, wherever a paper or a recipe does not ask for another number."""

STAGES = ("start", "domain adaptation", "clustering", "hardening")
"""What ClusterBERT does to a backbone, one after the other."""


@dataclass(frozen=True)
class Recipe:
    """How ClusterBERT is trained.

    The paper (App. 1.2.3) fixes Adam, its rate, the epochs of stages 1 and 3 and both lambdas, and
    names a grid for stage 2.

    Args:
        pooling: the sentence embedding: ``cls`` as in the paper, or ``mean``.
        deletion: share of the words that are deleted from what the encoder reads, in [0, 1], 0.6 as
            in TSDAE; one word always stays.
        batch_size: the paper has 8.
        learning_rate: of what the backbone brings along.
        new_rate: of what it does not: the decoder's attention to the embedding and its output
            layer, and the clustering head.
        warm_up: epochs before stage 1 in which only the new part of the decoder learns, so that its
            random start does not spoil the encoder it shares.
        adaptation_epochs: of stage 1.
        reclusterings: how often stage 2 clusters; the paper's grid is 1 or 2 times 2 or 4 epochs.
        clustering_epochs: of stage 2, after each clustering.
        hardening_epochs: of stage 3.
        clustering_weight, hardening_weight: lambda of Eq. 4 in stages 2 and 3, in [0, 1]; 1 leaves
            reconstruction out.
        frozen: how many layers stay as they are, from the first on, with the embeddings under them;
            0 trains all.
    """

    pooling: str = "cls"
    deletion: float = 0.6
    batch_size: int = 32
    learning_rate: float = 2e-5
    new_rate: float = 1e-3
    warm_up: int = 1
    adaptation_epochs: int = 2
    reclusterings: int = 2
    clustering_epochs: int = 2
    hardening_epochs: int = 2
    clustering_weight: float = 0.8
    hardening_weight: float = 0.75
    frozen: int = 0


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
