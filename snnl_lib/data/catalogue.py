"""The catalogue of data sets: what stands in catalogue.toml, checked key by key."""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import util
from pathlib import Path

from snnl_lib import SnnlError
from snnl_lib.data.places import package_pins, wheel_name
from snnl_lib.data.readers import READERS, Split

KINDS = ("texts", "short texts", "images", "retrieval")
_CHECKSUM = "md5:[0-9a-f]{32}|git:[0-9a-f]{40}|sha256:[0-9a-f]{64}|none"


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
    """A data set in the catalogue; ``kind`` is one of ``KINDS``.

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
    """Read a catalogue, written as the first lines of catalogue.toml say: name -> entry.

    Raises SnnlError that names data set and key, for a key that is unknown or missing and for a
    value that the key cannot have; tomllib.TOMLDecodeError if the text is no TOML.
    """
    return {name: _entry(name, table) for name, table in tomllib.loads(text).items()}


def _entry(name, table):
    required = {"title": ".+", "class_names": [".+"], "terms": ".+", "forms": [dict]}
    _check(name, table, required, {"kind": "|".join(KINDS), "folder": ".+"})
    forms = tuple(_form(name, form) for form in table["forms"])
    return Entry(**table | {"class_names": tuple(table["class_names"]), "forms": forms})


def _form(name, table):
    package = "|".join(package_pins())
    if _fits(table.get("package"), package):  # its wheel is then the form's one file
        wheel, (_, sha256) = wheel_name(table["package"]), package_pins()[table["package"]]
        table = table | {"files": {wheel: f"sha256:{sha256}"}}
    required = {"description": ".+", "reader": "|".join(READERS), "documents": [int, int]}
    optional = {"url": ".+/", "package": package, "system": r"\w*/.+", "content": "[0-9a-f]{64}"}
    _check(name, table, required | {"files": {"": _CHECKSUM}}, optional)
    given = {"reader": READERS[table["reader"]], "documents": tuple(table["documents"])}
    checksums = table["files"].items()
    given["files"] = {file: None if each == "none" else each for file, each in checksums}
    if "system" in table:
        given["system"] = _installed(table["system"])
    return Form(**table | given)


def _installed(folder):
    """Find a folder that is absolute, or begins with the name of an installed Python package."""
    package, _, inside = folder.partition("/")
    return Path(util.find_spec(package).origin).parent / inside if package else Path(folder)


def _check(name, table, required, optional):
    """Raise SnnlError unless a table has all required keys, no unknown ones, and fitting values."""
    shapes = required | optional
    problems = [f"the key {key!r} is unknown" for key in table if key not in shapes]
    for key, shape in shapes.items():
        if key in table and not _fits(table[key], shape):
            problems.append(f"{key!r} cannot be {table[key]!r}")
    problems += [f"the key {key!r} is missing" for key in required if key not in table]
    if problems:
        raise SnnlError(f"catalogue.toml, {name}: {problems[0]}; the file begins with the rules")


def _fits(value, shape):
    """Say whether a value is of a type, a text that matches a pattern, or holds what fits.

    Each value of a list fits the only shape of ``[shape]``, or the one in its place; each of a
    table, which is not empty, fits that of ``{"": shape}``.
    """
    if isinstance(shape, str):
        return isinstance(value, str) and re.fullmatch(shape, value) is not None
    if isinstance(shape, dict):
        return isinstance(value, dict) and value != {} and _fits([*value.values()], [shape[""]])
    if isinstance(shape, list):
        if not isinstance(value, list):
            return False
        shapes = shape * len(value) if len(shape) == 1 else shape
        return len(value) == len(shapes) and all(map(_fits, value, shapes))
    return type(value) is shape
