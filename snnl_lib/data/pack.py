"""One file that carries data sets to a machine without spaCy, network or git.

It holds word rows and word vectors, pixels, short texts, MiniLM, labels and the commit. ``python -m
snnl_lib pack EXPERIMENT ... OUT`` writes it, ``python -m snnl_lib run ... --pack OUT`` opens it.
Documents are then integer arrays of rows of the packed vector table instead of texts, which is all
that ``spacy`` and ``infersent-...`` need; images, short texts and ranking tasks are as they were.
Since it holds texts and a model, a pack is never committed.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError, told_as, whole_file
from snnl_lib.data.readers import Images, Split

PLACE = "a pack"  # where its data sets are said to be from


class PackError(SnnlError):
    """A pack that is damaged, or does not hold what is asked for."""


@dataclass(frozen=True)
class Pack:
    """What a pack holds.

    ``vectors`` is a float32 array [V, 300]. ``splits`` maps names such as ``ag_news/train`` to
    (documents or pixels, labels), ``backbones`` names of models to file name -> content. ``facts``
    are as they were written; ``path`` is the file.
    """

    vectors: np.ndarray
    splits: dict[str, tuple[list | np.ndarray, np.ndarray]]
    backbones: dict[str, dict[str, bytes]]
    facts: dict
    path: Path

    def locate(self, name: str, forms: tuple) -> tuple | None:
        """Find which form of a data set is packed: (form, the pack's file, ``PLACE``), or None."""
        fingerprint = self.facts["corpora"].get(name)
        packed = [(form, self.path, PLACE) for form in forms if form.fingerprint == fingerprint]
        return packed[0] if packed else None

    def parts(self, name: str, kind: str) -> tuple:
        """Return the two parts of a packed data set of a kind, as its form reads them."""
        make = {"images": Images, "retrieval": lambda rows, _: rows}.get(kind, Split)
        return tuple(make(*self.splits[f"{name}/{part}"]) for part in ("train", "test"))


def opened() -> Pack | None:
    """Return the pack in use, which ``SNNL_PACK`` names; None if there is none.

    ``run --pack`` sets it for this process and its workers; ``data`` and ``embeddings`` look here
    first. Raises PackError if the file is not there or damaged.
    """
    path = os.environ.get("SNNL_PACK")
    return _open(path) if path else None


def open_pack(path: Path) -> Pack:
    """Open a pack and use it from now on. Raises PackError if it is not there or damaged."""
    pack = _open(path)
    os.environ["SNNL_PACK"] = str(path)
    return pack


def _open(path):
    advice = "write it again with `python -m snnl_lib pack`"
    # A damaged zip archive can raise nearly anything.
    with told_as(PackError, f"the pack {path} is missing or damaged", advice, why=str):
        return _read(str(path), Path(path).stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _read(path, modified):
    """Read a pack; one that was written anew since is read again."""
    with np.load(path) as arrays:
        facts = json.loads(arrays["facts"].tobytes())
        splits, backbones = {}, {}
        for name in facts.pop("splits"):
            if f"{name}/pixels" in arrays:
                documents = arrays[f"{name}/pixels"]
            elif f"{name}/texts" in arrays:
                documents = json.loads(arrays[f"{name}/texts"].tobytes())
            else:
                ends = np.cumsum(arrays[f"{name}/lengths"])
                documents = np.split(arrays[f"{name}/rows"], ends[:-1])
            splits[name] = documents, arrays[f"{name}/labels"].astype(np.int64)
        for key in arrays:
            if key.startswith("backbones/"):
                _, name, file = key.split("/")
                backbones.setdefault(name, {})[file] = arrays[key].tobytes()
        return Pack(arrays["vectors"], splits, backbones, facts, Path(path))


def write_pack(path: Path, vectors: np.ndarray, splits: dict, facts: dict, backbones=None) -> None:
    """Write a pack, whole or not at all.

    Only the vectors that occur are kept, and rows are renumbered to them.

    Args:
        path: the file.
        vectors: float array [V, 300].
        splits: name -> (documents, labels), where documents are a list of rows of ``vectors``, for
            images an array [N, D], for short texts strings, and for a ranking task what its form
            reads.
        facts: anything JSON can hold.
        backbones: as in ``Pack``.

    Raises:
        PackError: the file cannot be written.
    """
    looked_up = [documents for documents, _ in splits.values() if _are_word_rows(documents)]
    occurring = np.concatenate([np.zeros(0, np.int32), *chain.from_iterable(looked_up)])
    occurring = np.unique(occurring[occurring >= 0])
    arrays = {"vectors": vectors[occurring]}
    for name, (documents, labels) in splits.items():
        if _are_word_rows(documents):
            rows = np.concatenate(documents)
            renumbered = np.where(rows < 0, -1, np.searchsorted(occurring, rows))
            arrays[f"{name}/rows"] = renumbered.astype(np.int32)
            arrays[f"{name}/lengths"] = np.array(list(map(len, documents)), dtype=np.int32)
        elif isinstance(documents, np.ndarray):
            arrays[f"{name}/pixels"] = documents
        else:
            arrays[f"{name}/texts"] = _json_bytes(documents)
        arrays[f"{name}/labels"] = np.asarray(labels, dtype=np.int16)  # GoogleNews has 152 classes
    for name, files in (backbones or {}).items():
        for file, content in files.items():
            arrays[f"backbones/{name}/{file}"] = np.frombuffer(content, dtype=np.uint8)
    identity = hashlib.sha256(occurring.tobytes()).hexdigest()[:8]
    arrays["facts"] = _json_bytes(facts | {"splits": list(splits), "id": identity})
    what, advice = f"the pack {path} could not be written", "make room, or name another file"
    with told_as(PackError, what, advice, of=OSError), whole_file(path) as file:
        np.savez_compressed(file, **arrays)


def _are_word_rows(documents):
    return isinstance(documents, list) and documents and isinstance(documents[0], np.ndarray)


def _json_bytes(content):
    """Write JSON as an array, which is all that an npz file holds."""
    return np.frombuffer(json.dumps(content, default=np.ndarray.tolist).encode(), dtype=np.uint8)
