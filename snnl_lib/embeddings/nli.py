"""What tells InferSent's encoders apart before one is loaded: the inference pairs and the recipe of
``infersent-nli``, the published weights.

The encoders themselves are in ``infersent``, which imports torch.
"""

import hashlib
import json
from pathlib import Path

from snnl_lib import data
from snnl_lib.data import readers

UNITS = 2048  # a direction: sentence vectors have 4,096 numbers
RECIPE = {
    "units": UNITS,
    "hidden": 512,
    "epochs": 6,
    "batch_size": 256,
    "learning_rate": 5e-4,
    "seed": 42,
}
"""How ``infersent-nli`` is trained: Adam, the epoch with the best accuracy on SNLI dev is kept."""

PAIRS = {
    "train": "0a964b8b1a6cdad189eb308ae1d29c519d0ade0da24ab3630ed8b28cd2bd0987",
    "dev": "4c4cdb13d058b080912d9438b26d22874a68d19d9ce3d55fb42d44ef317b1f5d",
    "test": "ae036f536db737f8ff1bd5236631d7d7b4a836eb0bf1694e5dbfe1a692fcc017",
}
PAIR_SOURCES = ("snli", "snli-cad", "mnli", "sick")  # those with three-way labels given by people


def pairs_fingerprint() -> str:
    """Name the inference pairs that ``infersent-nli`` is trained on."""
    return hashlib.sha256(json.dumps([PAIRS, PAIR_SOURCES]).encode()).hexdigest()[:8]


def pairs_folder() -> Path:
    """Find the folder of the inference pairs. Raises DataError if there is none."""
    places = [folder for folder in (data.user_folder("snli"), data.cache_dir() / "snli") if folder]
    folder = next(
        (
            place
            for place in places
            if all((place / f"{split}.parquet").exists() for split in PAIRS)
        ),
        None,
    )
    if folder is None:
        raise data.DataError(
            f"the inference pairs are not on this machine (looked in {' and '.join(map(str, places))}): put train.parquet, dev.parquet and test.parquet "
            "with columns premise, hypothesis, label (and source in train) there, or use infersent-random"
        )
    return folder


def load_pairs() -> dict:
    """Load natural-language-inference pairs: ``train``, ``dev`` and ``test`` as frames with
    ``premise``, ``hypothesis`` and ``label``.

    Labels are 0 entailment, 1 neutral, 2 contradiction. dev and test are SNLI's own; train is the
    part of the file from ``PAIR_SOURCES`` (48,523 pairs). Raises DataError if the files are not
    under ``SNNL_DATA`` or the cache.
    """
    folder = pairs_folder()
    frames = {}
    for split, checksum in PAIRS.items():
        data.verify(folder / f"{split}.parquet", f"sha256:{checksum}")
        frames[split] = readers.read_parquet(folder / f"{split}.parquet")
    frames["train"] = frames["train"][frames["train"]["source"].isin(PAIR_SOURCES)].reset_index(
        drop=True
    )
    return frames


def weights_fingerprint(path: Path) -> str:
    """Return the first 8 hex digits of the sha256 of a file of weights (no checksum of the
    published ones is published).
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:8]
