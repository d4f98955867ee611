"""ClusterBERT's stages: the epochs of each, and a name for the checkpoint of each."""

import hashlib
import json
from dataclasses import asdict

import torch

from snnl_book.recipes import Recipe

LATER_SETTINGS = {
    2: {"reclusterings", "clustering_epochs", "clustering_weight"},
    3: {"hardening_epochs", "hardening_weight"},
}
"""The settings of a recipe that first matter in a stage: runs that differ only in these share the
checkpoints of earlier stages.
"""


def epochs(stage: int, recipe: Recipe) -> list[tuple[int, float, bool]]:
    """List a stage's epochs as (number, lambda of Eq. 4, whether new targets come first).

    Epochs of the warm-up have numbers below 0.
    """
    if stage == 1:
        return [(epoch, 0, False) for epoch in range(-recipe.warm_up, recipe.adaptation_epochs)]
    if stage == 2:
        per_clustering = recipe.clustering_epochs
        return [
            (epoch, recipe.clustering_weight, epoch % per_clustering == 0)
            for epoch in range(recipe.reclusterings * per_clustering)
        ]
    return [(epoch, recipe.hardening_weight, True) for epoch in range(recipe.hardening_epochs)]


def digest(stage: int, recipe: Recipe, facts: dict, pieces, other_pieces) -> str:
    """Return 16 hex digits for everything that a stage's result depends on.

    ``facts`` are the model's own. ``pieces`` are the texts trained on, as ``tokenize`` cuts them,
    and ``other_pieces`` those that are only embedded, or None.
    """
    later = {name for first, names in LATER_SETTINGS.items() if first > stage for name in names}
    settings = {name: value for name, value in asdict(recipe).items() if name not in later}
    versions = {"torch": torch.__version__, "words": "of the texts", "file": 2}
    content = json.dumps({**settings, **facts, **versions}, sort_keys=True)
    sha256 = hashlib.sha256(content.encode())
    for texts in (pieces, other_pieces):
        for ids in texts.ids if texts else ():
            sha256.update(ids.tobytes() + b"|")
    if other_pieces:  # the same texts, split otherwise, are another training
        sha256.update(f"{len(pieces)} of them".encode())
    return sha256.hexdigest()[:16]
