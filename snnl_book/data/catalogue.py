"""The catalogue of data sets, read from catalogue.toml."""

import hashlib
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import util
from pathlib import Path

from snnl_book.data.places import package_pins, wheel_name
from snnl_book.data.readers import READERS, Split


@dataclass(frozen=True)
class Form:
    """One published form of a data set: its files and how to read them.

    ``files`` maps names to checksums (``algorithm:hex``, or None if the publisher gives none).
    ``reader`` takes their paths in this order and returns train and test. For a ranking task it
    returns dev and test, each a list of (query, its candidates, whether each is relevant).
    ``documents`` counts the two parts as published. The files are at ``url``, or the only file is
    the wheel of ``package``, or they are in the folder ``system`` of an installed package.

    Forms with the same ``content`` (``content_sha256``) have the same documents in the same order,
    and one fingerprint. The content is checked if a file has no checksum.
    """

    description: str
    files: dict[str, str | None]
    reader: Callable
    documents: tuple[int, int]
    url: str | None = None
    package: str | None = None
    system: Path | None = None
    content: str | None = None

    @property
    def fingerprint(self) -> str:
        """8 hex digits that identify this form's content in records."""
        described = " ".join([self.description, *filter(None, self.files.values())])
        return (self.content or hashlib.sha256(described.encode()).hexdigest())[:8]


@dataclass(frozen=True)
class Entry:
    """A data set in the catalogue.

    ``kind`` is ``texts``, ``short texts``, ``words``, ``images`` or ``retrieval``. ``folder`` names
    the folder of its files in ``SNNL_DATA`` and in the cache, or is None if the data set's name
    does.
    """

    title: str
    class_names: tuple[str, ...]
    terms: str
    forms: tuple[Form, ...] = ()
    kind: str = "texts"
    folder: str | None = None


def content_sha256(split: Split) -> str:
    """Return the sha256 of ``[texts, labels]`` as JSON, for documents without a file checksum."""
    return hashlib.sha256(json.dumps([split.texts, split.labels.tolist()]).encode()).hexdigest()


@cache
def entries() -> dict[str, Entry]:
    """Read the library's catalogue: name -> entry."""
    return parse(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))


def parse(text: str) -> dict[str, Entry]:
    """Read a catalogue, written as the first lines of catalogue.toml say: name -> entry."""
    return {name: _entry(table) for name, table in tomllib.loads(text).items()}


def _entry(table):
    forms = tuple(_form(form) for form in table["forms"])
    return Entry(**table | {"class_names": tuple(table["class_names"]), "forms": forms})


def _form(table):
    checksums = table.get("files", {}).items()
    files = {file: None if checksum == "none" else checksum for file, checksum in checksums}
    if package := table.get("package"):  # its wheel is the form's only file
        files = {wheel_name(package): f"sha256:{package_pins()[package][1]}"}
    parsed = {"reader": READERS[table["reader"]], "documents": tuple(table["documents"])}
    if "system" in table:
        parsed["system"] = _installed(table["system"])
    return Form(**table | parsed | {"files": files})


def _installed(folder):
    """Return the Path of a folder that is absolute or within an installed Python package."""
    package, _, inside = folder.partition("/")
    return Path(util.find_spec(package).origin).parent / inside if package else Path(folder)
