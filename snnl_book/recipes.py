"""ClusterBERT's settings, and a check of numbers. This module imports nothing slow."""

import math
from dataclasses import dataclass
from numbers import Integral, Real

STAGES = ("start", "domain adaptation", "clustering", "hardening")
"""The stages of ClusterBERT's training, in their order."""


def check_numbers(settings: dict, names: str, kind=Real, low=0, high=math.inf) -> None:
    """Raise ValueError unless each named setting is a finite number from ``low`` to ``high``.

    ``names`` are separated by spaces. ``kind`` is Real, or Integral for whole numbers.
    """
    for name in names.split():
        value = settings[name]
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        if not (is_number and low <= value <= high and value < math.inf):
            noun = "a whole number" if kind is Integral else "a finite number"
            bounds = f"of at least {low}" if high == math.inf else f"from {low} to {high}"
            raise ValueError(f"{name} must be {noun} {bounds}, got {value!r}")


@dataclass(frozen=True)
class Recipe:
    """How ClusterBERT is trained.

    The paper (App. 1.2.3) fixes Adam, its rate, the epochs of stages 1 and 3 and both lambdas, and
    names a grid for stage 2. Raises ValueError for a number that is out of its range.

    Args:
        pooling: the sentence embedding: ``cls`` as in the paper, or ``mean``.
        deletion: share of the words that are deleted from what the encoder reads, in [0, 1], 0.6 as
            in TSDAE; one word always stays.
        batch_size: the paper has 8, which scored no higher in our runs (Chapter 15).
        learning_rate: for the pretrained parameters of the backbone.
        new_rate: for new parameters: the decoder's attention to the embedding, its output layer,
            and the clustering head.
        warm_up: epochs before stage 1 that train only the new part of the decoder, so that its
            random start does not damage the encoder.
        adaptation_epochs: of stage 1.
        reclusterings: how often stage 2 clusters; the paper's grid is 1 or 2 times 2 or 4 epochs.
        clustering_epochs: of stage 2, after each clustering.
        hardening_epochs: of stage 3.
        clustering_weight, hardening_weight: lambda of Eq. 4 in stages 2 and 3, in [0, 1]; 1 leaves
            reconstruction out.
        frozen: how many of the first layers are not trained, nor the embeddings below them; 0
            trains all.
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

    def __post_init__(self):
        settings = vars(self)
        check_numbers(settings, "batch_size reclusterings clustering_epochs", Integral, 1)
        check_numbers(settings, "warm_up adaptation_epochs hardening_epochs frozen", Integral)
        check_numbers(settings, "learning_rate new_rate")
        check_numbers(settings, "deletion clustering_weight hardening_weight", high=1)
