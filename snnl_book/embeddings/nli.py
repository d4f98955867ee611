"""How ``infersent-nli`` is trained, on which pairs, and where its weights are cached.

``sentences`` imports torch and this module does not, so that naming an encoder stays quick.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from snnl_book import data
from snnl_book.data import readers
from snnl_book.embeddings.words import VECTORS_PACKAGE, word_rows

UNITS = 2048  # a direction: sentence vectors have 4,096 numbers
RECIPE = {
    "units": UNITS,
    "hidden": 512,
    "epochs": 3,
    "batch_size": 256,
    "learning_rate": 5e-4,
    "seed": 42,
    "precision": "bfloat16",  # of products on a CPU; a GPU computes in float32
}
"""The settings of ``infersent-nli``. It is trained by Adam; the best epoch on SNLI dev is kept."""

PAIRS = {
    "train": "0a964b8b1a6cdad189eb308ae1d29c519d0ade0da24ab3630ed8b28cd2bd0987",
    "dev": "4c4cdb13d058b080912d9438b26d22874a68d19d9ce3d55fb42d44ef317b1f5d",
    "test": "ae036f536db737f8ff1bd5236631d7d7b4a836eb0bf1694e5dbfe1a692fcc017",
}
PAIR_SOURCES = ("snli", "snli-cad", "mnli", "sick")  # those with three human-made labels


def pairs_fingerprint() -> str:
    """Return a name for the inference pairs that ``infersent-nli`` is trained on."""
    return hashlib.sha256(json.dumps([PAIRS, PAIR_SOURCES]).encode()).hexdigest()[:8]


def pairs_folder() -> Path:
    """Return the folder of the inference pairs. Raises DataError if there is none."""
    files = [f"{split}.parquet" for split in PAIRS]
    columns = "columns premise, hypothesis, label (and source in train)"
    advice = f"put {', '.join(files[:-1])} and {files[-1]} with {columns} there"
    advice = f"{advice}, or use infersent-random"
    return data.folder_with(files, "snli", data.DataError, "the inference pairs", advice)


def load_pairs() -> dict:
    """Load the inference pairs as frames ``train``, ``dev`` and ``test``.

    Each has ``premise``, ``hypothesis`` and ``label``: 0 entailment, 1 neutral, 2 contradiction.
    dev and test are SNLI's own; train is the part of the file from ``PAIR_SOURCES`` (48,523 pairs).
    Raises DataError if the files are not under ``SNNL_DATA`` or the cache.
    """
    folder = pairs_folder()
    frames = {}
    for split, checksum in PAIRS.items():
        data.verify(folder / f"{split}.parquet", f"sha256:{checksum}")
        frames[split] = readers.read_parquet(folder / f"{split}.parquet")
    is_human_made = frames["train"]["source"].isin(PAIR_SOURCES)
    frames["train"] = frames["train"][is_human_made].reset_index(drop=True)
    return frames


def pairs_as_rows() -> dict[str, tuple[list, list, np.ndarray]]:
    """Return the pairs of ``load_pairs`` as ``sentences.train_nli`` takes them.

    A sentence is an array of row numbers in the table of word vectors. Words are lower-cased and
    consist of letters and digits; stop words stay, and words without a vector are skipped. A pair
    with an empty sentence is dropped.
    """
    pairs = {}
    for split, frame in load_pairs().items():
        premises, hypotheses = (
            [rows[rows >= 0] for rows in word_rows(frame[side].tolist(), split=data.words)]
            for side in ("premise", "hypothesis")
        )
        usable = [i for i in range(len(frame)) if len(premises[i]) and len(hypotheses[i])]
        labels = frame["label"].to_numpy(dtype=np.int64)[usable]
        pairs[split] = [premises[i] for i in usable], [hypotheses[i] for i in usable], labels
    return pairs


def trained_key() -> str:
    """Return a name for the encoder, from ``RECIPE``, the pairs and the word vectors."""
    settings = [RECIPE, pairs_fingerprint(), data.package_fingerprint(VECTORS_PACKAGE)]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def trained_files() -> tuple[Path, Path]:
    """Return the Paths of the trained encoder's weights and of its scores as JSON."""
    stem = data.cache_dir() / "infersent" / f"nli-{trained_key()}"
    return stem.with_suffix(".pt"), stem.with_suffix(".json")


def trained_scores() -> dict[str, float]:
    """Return the accuracies of the trained encoder on SNLI.

    Raises DataError if their file is missing or damaged.
    """
    _, scores = trained_files()
    try:
        return json.loads(scores.read_text())
    except (OSError, ValueError) as error:
        advice = "train the encoder again with `python -m snnl_book nli`"
        raise data.DataError(f"{scores} is missing or damaged: {advice}") from error
