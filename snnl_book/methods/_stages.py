"""ClusterBERT's stages: the epochs of each, and a checkpoint for each finished stage."""

import hashlib
import json
import math
from dataclasses import asdict
from pathlib import Path

import torch

from snnl_book.recipes import Recipe
from snnl_lib.checkpoint import CacheError, cache_file

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
    versions = {"torch": torch.__version__, "words": "of the texts"}
    content = json.dumps({**settings, **facts, **versions}, sort_keys=True)
    sha256 = hashlib.sha256(content.encode())
    for texts in (pieces, other_pieces):
        for ids in texts.ids if texts else ():
            sha256.update(ids.tobytes() + b"|")
    if other_pieces:  # the same texts, split otherwise, are another training
        sha256.update(f"{len(pieces)} of them".encode())
    return sha256.hexdigest()[:16]


def save(path: Path, *, weights: dict, rows, seconds, embeddings: dict, clusters) -> None:
    """Write a finished stage: the trained ``weights`` by name, and all results up to this stage.

    Raises CacheError if the file cannot be written.
    """
    saved = {
        "weights": weights,
        "rows": rows,
        "seconds": seconds,
        "embeddings": {name: torch.from_numpy(array) for name, array in embeddings.items()},
        "clusters": None if clusters is None else torch.from_numpy(clusters),
    }
    with cache_file(path) as file:
        torch.save(saved, file)


def load(path: Path, parameters: dict) -> dict:
    """Put the weights of a finished stage into ``parameters``, and return its other results.

    The results have the names that ``save`` takes. Raises CacheError if the file cannot be read, is
    damaged, or holds the weights of another model.
    """
    advice = "remove it to run the stage again"
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        weights, clusters = saved["weights"], saved["clusters"]
        results = {
            "rows": saved["rows"],
            "seconds": saved.get("seconds", math.nan),  # older checkpoints lack it
            "embeddings": {name: tensor.numpy() for name, tensor in saved["embeddings"].items()},
            "clusters": None if clusters is None else clusters.numpy(),
        }
    except (PermissionError, IsADirectoryError) as error:
        raise CacheError(f"the checkpoint {path} could not be read ({error.strerror})") from error
    except Exception as error:  # a damaged file can raise nearly any other exception
        reason = f"the checkpoint {path} is damaged ({type(error).__name__})"
        raise CacheError(f"{reason}: {advice}") from error
    try:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])
    except (KeyError, RuntimeError) as error:
        reason = f"the checkpoint {path} holds the weights of another model ({error})"
        raise CacheError(f"{reason}: {advice}") from error
    return results
