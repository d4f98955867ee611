"""One file that carries data sets to a machine without spaCy, network or git: word rows, word
vectors, pixels, short texts, MiniLM, labels and the commit.

``python -m snnl_lib pack EXPERIMENT ... OUT`` writes it, ``python -m snnl_lib run ... --pack OUT``
opens it. Documents are then integer arrays of rows of the packed vector table instead of texts,
which is all that ``spacy`` and ``infersent-...`` need; images, short texts and ranking tasks are as
they were. Since it holds texts and a model, a pack is never committed.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError, whole_file


class PackError(SnnlError):
    """A pack that is damaged, or does not hold what is asked for."""


@dataclass(frozen=True)
class Pack:
    """``vectors`` [V, 300]; ``splits`` name -> (documents or pixels, labels), names such as
    ``ag_news/train``; ``backbones`` name -> file name -> content;
    ``facts`` as they were written; the file."""

    vectors: np.ndarray
    splits: dict[str, tuple[list | np.ndarray, np.ndarray]]
    backbones: dict[str, dict[str, bytes]]
    facts: dict
    path: Path


def opened() -> Pack | None:
    """Return the pack that ``SNNL_PACK`` names, which ``run --pack`` sets for this process and its
    workers; None if there is none. ``data`` and ``embeddings`` look here first."""
    path = os.environ.get("SNNL_PACK")
    return _read(path, Path(path).stat().st_mtime_ns) if path else None


def write_pack(
    path: Path,
    vectors: np.ndarray,
    splits: dict,
    facts: dict,
    backbones: dict[str, dict[str, bytes]] | None = None,
) -> None:
    """Write a pack, whole or not at all; only the vectors that occur are kept, and rows are
    renumbered to them.

    ``splits`` maps a name to (documents, labels), where documents are a list of rows of
    ``vectors``, for images an array [N, 784], for short texts strings, and for a ranking task what
    its form reads; ``backbones`` is as in ``Pack``, ``facts`` anything JSON can hold. Raises
    PackError if the file cannot be written.
    """
    looked_up = {
        name: rows
        for name, (rows, _) in splits.items()
        if isinstance(rows, list) and rows and isinstance(rows[0], np.ndarray)
    }
    used = np.unique(
        np.concatenate([np.zeros(0, dtype=np.int32), *chain.from_iterable(looked_up.values())])
    )
    used = used[used >= 0]
    arrays = {"vectors": vectors[used]}
    for name, (documents, labels) in splits.items():
        if isinstance(documents, np.ndarray):
            arrays[f"{name}/pixels"] = documents
        elif name not in looked_up:
            arrays[f"{name}/texts"] = np.frombuffer(
                json.dumps(documents, default=np.ndarray.tolist).encode(), dtype=np.uint8
            )
        else:
            rows = np.concatenate(documents)
            arrays[f"{name}/rows"] = np.where(rows < 0, -1, np.searchsorted(used, rows)).astype(
                np.int32
            )
            arrays[f"{name}/lengths"] = np.array(
                [len(document) for document in documents], dtype=np.int32
            )
        arrays[f"{name}/labels"] = np.asarray(labels, dtype=np.int16)  # GoogleNews has 152 classes
    for name, files in (backbones or {}).items():
        arrays |= {
            f"backbones/{name}/{file}": np.frombuffer(content, dtype=np.uint8)
            for file, content in files.items()
        }
    arrays["facts"] = np.frombuffer(
        json.dumps(
            facts | {"splits": list(splits), "id": hashlib.sha256(used.tobytes()).hexdigest()[:8]}
        ).encode(),
        dtype=np.uint8,
    )
    try:
        with whole_file(path) as file:
            np.savez_compressed(file, **arrays)
    except OSError as error:
        raise PackError(
            f"the pack {path} could not be written ({error.strerror}): make room, or name another file"
        ) from error


def open_pack(path: Path) -> Pack:
    """Open a pack and use it from now on. Raises PackError if it is not there or damaged."""
    try:
        found = _read(str(path), Path(path).stat().st_mtime_ns)
    except Exception as error:  # a damaged zip archive can raise nearly anything
        raise PackError(
            f"the pack {path} is missing or damaged ({error}): write it again with "
            "`python -m snnl_lib pack`"
        ) from error
    os.environ["SNNL_PACK"] = str(path)
    return found


@lru_cache(maxsize=1)
def _read(path, modified):
    """Read a pack; one that was written anew since is read again."""
    with np.load(path) as arrays:
        facts = json.loads(arrays["facts"].tobytes())
        splits, backbones = {}, {}
        for name in facts.pop("splits"):
            labels = arrays[f"{name}/labels"].astype(np.int64)
            if f"{name}/pixels" in arrays:
                splits[name] = arrays[f"{name}/pixels"], labels
            elif f"{name}/texts" in arrays:
                splits[name] = json.loads(arrays[f"{name}/texts"].tobytes()), labels
            else:
                splits[name] = (
                    np.split(arrays[f"{name}/rows"], np.cumsum(arrays[f"{name}/lengths"])[:-1]),
                    labels,
                )
        for name, file in (key.split("/")[1:] for key in arrays if key.startswith("backbones/")):
            backbones.setdefault(name, {})[file] = arrays[f"backbones/{name}/{file}"].tobytes()
        return Pack(arrays["vectors"], splits, backbones, facts, Path(path))
