"""The command ``cluster``: texts of one's own, from a file to clusters and a saved model."""

import csv
import errno
import functools
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from snnl_book import cluster_command, own_texts
from snnl_book.__main__ import main
from snnl_book.methods import clusterbert


@pytest.fixture
def wines(tmp_path):
    """A file with forty texts on wine, forty on lists, and two rows without a text."""
    rows = [f"wine {colour} {year}" for colour in ("red", "white") for year in range(1990, 2010)]
    rows += [f"list {deed} {size}" for deed in ("sorted", "appended") for size in range(20)]
    path = tmp_path / "texts.csv"
    lines = ["id,title", *(f"{i},{text}" for i, text in enumerate(rows)), "80,", "81, "]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_cluster_shows_what_is_in_each_cluster_and_writes_the_table(command, packages, wines):
    out = wines.with_name("out.csv")
    asked = ("--column", "title", "--k", "2", "--method", "tfidf", "--out", out)
    status, output, _ = command("cluster", str(wines), *map(str, asked))
    assert status == 0 and "80 texts, and 2 rows without a text" in output
    first, second = (line.split() for line in output.splitlines() if re.match(r" +\d +\d+  ", line))
    assert {first[1], second[1]} == {"40"} and {"wine,", "list,"} <= {*first, *second}
    with out.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["id"] for row in rows] == [str(i) for i in range(82)]
    assert len({row["cluster"] for row in rows[:40]}) == 1
    assert rows[0]["cluster"] != rows[40]["cluster"] and rows[80]["cluster"] == ""


def test_cluster_chooses_k_and_compares_seeds(command, packages, wines):
    asked = ("--column", "title", "--method", "tfidf", "--seeds", "1", "2")
    status, output, _ = command("cluster", str(wines), *asked)
    assert status == 0
    assert re.search(
        r"^k: \d, which has the largest silhouette of those tried \(2: 0\.\d+", output, re.M
    )
    assert re.search(r"^seed 2: adjusted Rand index with seed 1: ", output, re.M)
    assert re.search(
        r"^seed 2: (every cluster is found again|not found again .*: \d)", output, re.M
    )


def test_clusters_that_another_seed_splits_are_named():
    first, second = np.array([0] * 8 + [3] * 8), np.array([5] * 8 + [1] * 4 + [2] * 4)
    assert cluster_command._returning(first, first) == "every cluster is found again"
    assert cluster_command._returning(first, second).endswith("below 0.75): 3 (0.50)")


TITLE = ("--column", "title")
REFUSED = [
    (("--k", "2"), "it has several columns, so it needs --column: choose one of id, title"),
    *(
        (
            (*TITLE, "--k", k),
            f"auto or a whole number from 1 to the number of texts (80), got '{k}'",
        )
        for k in ("many", "²", "81")
    ),
    ((*TITLE, "--method", "bert"), "there is no method 'bert'"),
    ((*TITLE, "--seeds", "two"), "seeds must be whole numbers"),
    ((*TITLE, "--sep", "::"), "the separator must be one character"),
    ((*TITLE, "--encoding", "utf-9"), "there is no encoding 'utf-9'"),
    ((*TITLE, "--out", "out.txt"), "--out must be a .csv file"),
    ((*TITLE, "--out", "nowhere/out.csv"), "in an existing folder"),
    ((*TITLE, "--out", "{folder}/d.csv"), "--out must be a .csv file"),
    ((*TITLE, "--report", "a.pdf"), "--report must be an .html file"),
    ((*TITLE, "--stop-words", "nowhere.txt"), "the stop words nowhere.txt could not be read"),
    ((*TITLE, "--k", "2", "--pieces", "1"), "must be a whole number from 3 to 512, got 1"),
    ((*TITLE, "--save", "model", "--method", "tfidf"), "--save needs --method minilm or clusterb"),
    ((*TITLE, "--model", "nowhere"), "nowhere"),
    ((*TITLE, "--model", "nowhere", "--k", "auto"), "keeps its own settings: leave out --k"),
    ((*TITLE, "--model", "nowhere", "--pieces", "64", "--seeds", "42"), "out --seeds, --pieces"),
    ((*TITLE, "--out", "{folder}/texts.csv"), "--out would overwrite the texts in"),
    ((*TITLE, "--method", "clusterbert", "--save", "README.md"), "exists and is not a saved model"),
]


def test_what_cannot_be_done_is_refused_before_the_work(refused, wines, monkeypatch):
    wines.with_name("d.csv").mkdir()
    for arguments, message in REFUSED:
        arguments = (argument.format(folder=wines.parent) for argument in arguments)
        assert message in refused("cluster", str(wines), *arguments)
    monkeypatch.setattr(own_texts, "cluster_texts", None)
    taken = wines.with_name("taken.csv")
    taken.write_text("title,cluster\nred wine,mine\nwhite wine,mine\n")
    message = refused("cluster", str(taken), *TITLE, "--k", "2", "--out", str(taken) + ".csv")
    assert "has a column cluster" in message


def test_a_place_that_cannot_be_written_is_refused_before_the_work(refused, wines, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(options["dir"]))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(own_texts, "cluster_texts", None)
    for option, name in (("--out", "a.csv"), ("--report", "a.html"), ("--save", "model")):
        asked = (*TITLE, "--k", "2", "--method", "clusterbert", option, str(wines.with_name(name)))
        message = refused("cluster", str(wines), *asked)
        assert "Permission denied" in message and str(wines.parent) in message


def test_blank_lines_of_an_only_column_are_rows_without_a_text(command, packages, tmp_path):
    (tmp_path / "one.csv").write_text("title\nred wine\n\nsort a list\n\nwhite wine\n")
    out = tmp_path / "out.csv"
    asked = ("--k", "2", "--method", "tfidf", "--out", str(out))
    status, output, _ = command("cluster", str(tmp_path / "one.csv"), *asked)
    assert status == 0 and "3 texts, and 2 rows without a text" in output
    with out.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["title"] for row in rows] == ["red wine", "", "sort a list", "", "white wine"]
    assert [bool(row["cluster"]) for row in rows] == [True, False] * 2 + [True]


def test_a_saved_model_gives_new_texts_their_clusters(
    command, packages, own_cache, wines, tmp_path, monkeypatch
):
    brief = {"warm_up": 0, "adaptation_epochs": 1, "clustering_epochs": 1, "hardening_epochs": 1}
    brief = functools.partial(clusterbert.Recipe, reclusterings=1, **brief)
    monkeypatch.setattr(clusterbert, "Recipe", brief)
    model, asked = tmp_path / "model", ("--column", "title", "--out")
    outs = [str(tmp_path / name) for name in ("first.csv", "later.csv")]
    made = ("--k", "2", "--method", "clusterbert", "--save", str(model))
    assert command("cluster", str(wines), *asked, outs[0], *made)[0] == 0
    assert command("cluster", str(wines), *asked, outs[1], "--model", str(model))[0] == 0
    first, later = (Path(out).read_text() for out in outs)
    assert first == later


def test_texts_of_stop_words_alone_are_clustered_and_written(command, packages, tmp_path):
    (tmp_path / "a.txt").write_text("no\nnone\nnothing\n" * 5)
    out = tmp_path / "out.csv"
    assert command("cluster", str(tmp_path / "a.txt"), "--k", "3", "--out", str(out))[0] == 0
    with out.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) == 15 and len({(row["text"], row["cluster"]) for row in rows}) == 3


def test_no_code_page_of_a_terminal_loses_the_work(packages, results_folder, tmp_path):
    path, out = tmp_path / "日本.csv", tmp_path / "out.csv"
    path.write_text('title\n"wine \U0001f377\r\nred\u2028dry"\nsort a list\n日本語\n', "utf-8")
    arguments = ["cluster", str(path), "--k", "2", "--method", "tfidf", "--out", str(out)]
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    command = [sys.executable, "-m", "snnl_book", *arguments]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    listed = done.stdout.decode("cp1252").splitlines()
    assert len(listed) == 2 + 2 * 2 and any("wine ? red dry" in line for line in listed)
    assert out.read_text("utf-8").startswith("title,cluster,distance,outlier\n")


def test_the_table_is_there_before_anything_is_printed(wines, packages, monkeypatch):
    out, printed = wines.with_name("out.csv"), []

    def note(*values, file=None, **options):
        if file is None:
            printed.append(out.exists())

    monkeypatch.setattr("builtins.print", note)
    arguments = ["cluster", str(wines), *TITLE, "--k", "2", "--method", "tfidf", "--out", str(out)]
    assert main(arguments) == 0 and printed and all(printed)


def test_values_of_json_beside_the_texts_are_kept(command, packages, tmp_path):
    path, out = tmp_path / "a.jsonl", tmp_path / "out.csv"
    number = 12345678901234567890  # more digits than a float has
    rows = [{"title": title, "by": {"name": "ü"}} for title in ("red wine", "sort a list")]
    rows = [rows[0] | {"id": number}, rows[1] | {"id": None}, rows[1]]
    path.write_text("\n".join(map(json.dumps, rows)))
    asked = (*TITLE, "--k", "2", "--method", "tfidf", "--out", str(out))
    assert command("cluster", str(path), *asked)[0] == 0
    with out.open(newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    assert [json.loads(row["by"]) for row in rows] == [{"name": "ü"}] * 3
    assert [row["id"] for row in rows] == [str(number), "", ""]


WINE_TITLES = ["red wine, dry", 'wine "Élan"', "sort a list", "список, вино", "葡萄酒品鉴课程"]
WINE_TABLE = pd.DataFrame({"id": range(5), "title": WINE_TITLES})
FILES = {  # how a file is written, and the options that read it
    "utf-16.csv": (WINE_TABLE.to_csv(index=False).encode("utf-16"), TITLE),
    "bars.csv": (WINE_TABLE.to_csv(index=False, sep="|").encode(), TITLE),
    "tabs.csv": (WINE_TABLE.to_csv(index=False, sep="\t").encode(), TITLE),
    "old-mac.csv": (WINE_TABLE.to_csv(index=False).replace("\n", "\r").encode(), TITLE),
    "packed.csv.gz": (gzip.compress(WINE_TABLE.to_csv(index=False).encode()), TITLE),
    "marked.jsonl": (WINE_TABLE.to_json(orient="records", lines=True).encode("utf-8-sig"), TITLE),
    "list.json": (WINE_TABLE.to_json(orient="records").encode(), TITLE),
    "lines.txt": ("\r\n".join(WINE_TITLES).encode("gb18030"), ("--encoding", "gb18030")),
}


def test_files_of_all_forms_give_the_same_clusters_on_a_terminal_of_ascii(
    packages, tmp_path, monkeypatch
):
    out = tmp_path / "out.csv"
    for name, (content, options) in FILES.items():
        terminal = io.TextIOWrapper(io.BytesIO(), "ascii", errors="strict")
        monkeypatch.setattr(sys, "stdout", terminal)
        (tmp_path / name).write_bytes(content)
        asked = ("--k", "2", "--method", "tfidf", "--out", str(out), *options)
        assert main(["cluster", str(tmp_path / name), *asked]) == 0, name
        table = pd.read_csv(out)
        assert table.iloc[:, -4].tolist() == WINE_TITLES, name
        assert table["cluster"].nunique() == 2 and table["distance"].notna().all(), name


def test_minilms_clusters_are_kept_and_reused_with_a_page(command, packages, wines):
    model, out, page = (wines.with_name(name) for name in ("model", "out.csv", "page.html"))
    written = (*TITLE, "--out", str(out), "--report", str(page))
    made = command("cluster", str(wines), *written, "--k", "2", "--save", str(model))
    assert made[0] == 0 and "80 texts, 2 clusters" in page.read_text()
    first = out.read_text()
    assert first.splitlines()[0] == "id,title,cluster,distance,outlier"
    assert first.splitlines()[-1] == "81, ,,,"
    assert command("cluster", str(wines), *written, "--model", str(model))[0] == 0
    assert out.read_text() == first


def test_what_a_user_could_not_see_is_one_line_without_a_path(command, packages, tmp_path):
    (tmp_path / "a.txt").write_text("the very same text\n" * 24)
    status, output, error = command("cluster", str(tmp_path / "a.txt"), "--k", "3")
    assert status == 0 and re.search(r"^ +0 +24  text$", output, re.M)
    warned = [line for line in error.splitlines() if "instead of 3" in line]
    assert warned == ["warning: found 1 cluster instead of 3: the texts have 1 distinct vector"]


def test_words_for_a_missing_value_are_clustered_and_counted(command, packages, tmp_path):
    (tmp_path / "a.txt").write_text("NA\nred wine\nnull\nn/a\nwhite wine\nnan of wine\n\n")
    asked = ("--k", "2", "--method", "tfidf")
    status, output, error = command("cluster", str(tmp_path / "a.txt"), *asked)
    assert status == 0 and "6 texts, and 1 row without a text" in output
    warned = [line for line in error.splitlines() if "NA, N/A" in line]
    found = "3 rows with the text NA, N/A, nan, none or null will be clustered"
    assert warned == [f"warning: {found}: clear these texts to leave them out"]


def test_no_clear_number_of_clusters_is_said_and_seeds_confirm_nothing(
    command, packages, wines, monkeypatch
):
    unclear = pd.DataFrame({"k": [2, 3], "silhouette": [0.07, 0.06], "chance": [0.05, 0.05]})
    monkeypatch.setattr(own_texts, "silhouettes", lambda *a, **options: unclear)
    asked = (*TITLE, "--method", "tfidf", "--seeds", "1", "2")
    _, output, _ = command("cluster", str(wines), *asked)
    assert "no number of clusters stands out (largest silhouette 0.07, against 0.05 for" in output
    assert re.search(r"^seed 2: .*, which does not show that the clusters are real$", output, re.M)
    largest = unclear.assign(silhouette=[0.2, 0.3])
    monkeypatch.setattr(own_texts, "silhouettes", lambda *a, **options: largest)
    _, output, _ = command("cluster", str(wines), *asked)
    assert "3 is the largest number tried: more clusters may fit better" in output
    assert "stands out" not in output and "real" not in output
