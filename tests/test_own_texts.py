"""Texts of one's own: files, the number of clusters, clusters and what is in them."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from snnl_book import own_texts
from snnl_book.own_texts import TextsError, number
from snnl_lib import SnnlError

WINES = ["red wine", "a dry red wine", "white wine", "wine from the south"]
LISTS = ["sort a list", "a sorted list", "append to a list", "the length of a list"]
TEXTS = [f"{text} {word}" for text in WINES + LISTS for word in ("today", "again", "please")]
TOPICS = np.repeat([0, 1], 12)


def test_a_text_is_read_as_it_stands_in_the_file(tmp_path):
    rows = [(1, "red, dry"), (2, ""), (3, "NA")]
    lines = "\n".join(json.dumps({"id": i, "title": title}) for i, title in rows)
    for name, content in {
        "texts.csv": 'id,title\n1,"red, dry"\n2,\n3,NA\n',
        "texts.tsv": "id\ttitle\n1\tred, dry\n2\t\n3\tNA\n",
        "texts.jsonl": lines,
    }.items():
        (tmp_path / name).write_text(content)
        table, column = own_texts.read_table(tmp_path / name, "title")
        assert column == "title" and table["title"].tolist() == ["red, dry", "", "NA"]


def test_a_date_a_number_and_an_odd_line_end_stay_as_they_are(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"date": 1366329600000, "id": "007", "title": "wine"}\n')
    table, _ = own_texts.read_table(tmp_path / "a.jsonl", "title")
    assert table.iloc[0].tolist() == [1366329600000, "007", "wine"]
    (tmp_path / "a.txt").write_bytes("\ufeffred\x0bwine\u2028dry\r\n\nsort\n".encode())
    table, _ = own_texts.read_table(tmp_path / "a.txt")
    assert table["text"].tolist() == ["red\x0bwine\u2028dry", "", "sort"]


def test_lines_and_an_only_column_need_no_name(tmp_path):
    (tmp_path / "a.txt").write_text("red, dry\nsort, a list\n")
    table, column = own_texts.read_table(tmp_path / "a.txt")
    assert (column, table[column].tolist()) == ("text", ["red, dry", "sort, a list"])
    (tmp_path / "a.csv").write_text("said\nyes\n")
    assert own_texts.read_table(tmp_path / "a.csv")[1] == "said"


@pytest.mark.parametrize(
    ("name", "content", "column", "told"),
    [
        ("a.csv", None, None, "could not be read"),
        ("a.csv", "", None, "could not be read"),
        ("a.csv", "id,title\n1,x\n", None, "name the column of the texts: choose one of id, title"),
        ("a.csv", "id,title\n1,x\n", "titles", "it has no column 'titles'"),
        ("a.csv", "id,title\n1,\n2, \n", "title", "has no text in its column title"),
        ("a.jsonl", "{", None, "line 1 is not JSON (Expecting property name"),
        ("a.csv", "id,title\n1,x\n2,x,y,z\n", None, "Expected 2 fields in line 3, saw 4"),
        ("a.xls", "x", None, "does not end in one of .csv"),
        ("a.csv.zip", "x", None, "rename, unpack or convert it"),
        ("a.csv.gz", b"\x1f\x8b\x08", None, "a.csv.gz could not be read (Compressed file ended"),
        ("a.txt", b"caf\xe9", None, "it is not in UTF-8 (byte 0xe9 at 3): name its encoding"),
        ("a.txt", b"a\0b\0", None, "it holds null characters"),
        ("a.jsonl", '["x"]\n{"a": "x"}', None, "line 2 is an object: give a list for each text"),
        ("a.jsonl", "1\n", None, "line 1 is the value 1: give an object"),
        ("a.jsonl", "\n", None, "it is empty"),
        ("a.json", '{"a": ["x"]}', None, "it does not hold a list"),
        ("a.jsonl", '{"a": "x"}\n{"a": {"b": "x"}}', "a", "row 2 has an object in its column a"),
        ("a.jsonl", '{"a": ["x"]}', "a", "row 1 has a list in its column a, and not a text"),
    ],
)
def test_a_file_that_cannot_serve_is_told_in_one_sentence(tmp_path, name, content, column, told):
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(TextsError) as error:
        own_texts.read_table(tmp_path / name, column)
    assert told in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "~"])
@pytest.mark.parametrize("name", ["a.csv", "a.TSV"])
def test_the_separator_is_recognised_or_given(tmp_path, name, separator):
    rows = [["id", "title"], ["1", "red, dry; wine"], ["2", "a"], ["", ""], ["3", "sort | a list"]]
    lines = [separator.join(f'"{field}"' for field in row) for row in rows]
    (tmp_path / name).write_text("\r\n".join(lines))
    separators = {"separator": "~"} if separator == "~" else {}
    table, _ = own_texts.read_table(tmp_path / name, "title", **separators)
    assert table.to_numpy().tolist() == rows[1:]


def test_commas_within_texts_do_not_hide_another_separator(tmp_path):
    (tmp_path / "a.csv").write_text("id;title, long\n1;wine, red, dry\n2;sort\n3;a list\n")
    assert own_texts.read_table(tmp_path / "a.csv", "id")[0]["id"].tolist() == ["1", "2", "3"]
    (tmp_path / "a.csv").write_text("sep=;\nid;title\n1;wine\n")
    assert own_texts.read_table(tmp_path / "a.csv", "title")[0].shape == (1, 2)


@pytest.mark.parametrize(
    ("name", "separator", "told"),
    [("a.csv", ";;", "must be one character"), ("a.txt", ";", "is for .csv and .tsv files")],
)
def test_a_separator_that_cannot_be_is_refused(tmp_path, name, separator, told):
    (tmp_path / name).write_text("id;title\n1;x\n")
    with pytest.raises(TextsError, match=told):
        own_texts.read_table(tmp_path / name, "title", separator=separator)


def test_gzip_and_every_encoding_are_read(tmp_path):
    content = "title\ncafé\nnaïve\n"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(content.encode()))
    (tmp_path / "b.csv").write_bytes(content.encode("utf-16"))
    (tmp_path / "c.csv").write_bytes(content.encode("cp1252"))
    for name, encoding in (("a.csv.gz", None), ("b.csv", None), ("c.csv", "cp1252")):
        table, _ = own_texts.read_table(tmp_path / name, encoding=encoding)
        assert table["title"].tolist() == ["café", "naïve"]
    with pytest.raises(TextsError, match="there is no encoding 'utf-9'"):
        own_texts.read_table(tmp_path / "c.csv", encoding="utf-9")


def test_an_excel_sheet_is_read_as_it_stands(tmp_path):
    pytest.importorskip("openpyxl")
    path, others = tmp_path / "a.xlsx", pd.DataFrame({"more": ["x"]})
    rows = pd.DataFrame({"id": ["007", "8"], "title": ["wine", "NA"]})
    with pd.ExcelWriter(path) as file:
        rows.to_excel(file, sheet_name="mine", index=False)
        others.to_excel(file, sheet_name="other", index=False)
    with pytest.warns(own_texts.TextsWarning, match="only the first sheet, mine, was read"):
        table, _ = own_texts.read_table(path, "title")
    assert table.to_numpy().tolist() == rows.to_numpy().tolist()
    path.write_text("title")
    with pytest.raises(TextsError, match="it is not an Excel file"):
        own_texts.read_table(path)


def test_excel_without_its_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(SnnlError, match="openpyxl is not installed: it comes with the extra excel"):
        own_texts.read_table(tmp_path / "a.xlsx")


def test_half_an_emoji_is_replaced_and_counted(tmp_path):
    lines = [{"title": "wine \ud83c", "by": "\ud83c\udf77"}, {"title": "list", "by": "\udf77"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.warns(own_texts.TextsWarning, match="2 values hold half a character"):
        table, _ = own_texts.read_table(tmp_path / "a.jsonl", "title")
    assert table["title"].tolist() == ["wine \ufffd", "list"]
    assert table["by"].tolist() == ["\U0001f377", "\ufffd"]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.jsonl", '[0, "wine"]\n[1, "list"]', ["0", "1"]),
        ("a.json", '[{"id": 0, "1": "wine"},\n {"id": 1, "1": "list"}]', ["id", "1"]),
        ("a.jsonl", '"wine"\n"list"', ["text"]),
    ],
)
def test_columns_of_json_have_names_that_can_be_given(tmp_path, name, content, columns):
    (tmp_path / name).write_text(content)
    table, column = own_texts.read_table(tmp_path / name, columns[-1])
    assert [*table.columns] == columns and table[column].tolist() == ["wine", "list"]


def blobs(k, each=40, seed=0):
    centers = 12 * np.eye(k)[np.repeat(np.arange(k), each)]
    return centers + np.random.default_rng(seed).normal(size=centers.shape)


def test_k_is_that_of_clusters_that_lie_apart():
    for k in (2, 10):
        table = own_texts.silhouettes(blobs(k), seed=3)
        assert own_texts.best_k(table) == k
        assert table["k"].max() <= k * 40 / number.LEAST_TEXTS_PER_CLUSTER
        assert table["silhouette"].between(-1, 1).all()


def test_k_is_chosen_by_directions_and_neither_by_lengths_nor_by_order():
    vectors = blobs(5)
    longer = vectors * np.random.default_rng(1).uniform(1, 50, size=(len(vectors), 1))
    mixed = vectors[np.random.default_rng(2).permutation(len(vectors))]
    for same in (longer, mixed):
        assert own_texts.best_k(own_texts.silhouettes(same, seed=3)) == 5


def test_of_many_vectors_a_part_chooses_k(monkeypatch):
    monkeypatch.setattr(number, "SAMPLE_SIZE", 120)
    table = own_texts.silhouettes(blobs(4, each=100), seed=3)
    assert table["k"].max() == 6 and own_texts.best_k(table) == 4


def test_too_few_vectors_and_vectors_all_alike_choose_no_k():
    with pytest.raises(TextsError, match="at least 40 texts, got 39: name k"):
        own_texts.silhouettes(blobs(3, each=13))
    with pytest.warns(match="distinct clusters"):
        table = own_texts.silhouettes(np.ones((60, 3)))
    with pytest.raises(TextsError, match="all texts are alike"):
        own_texts.best_k(table)


@pytest.mark.parametrize("method", ["tfidf", "sif-corpus", "minilm"])
def test_texts_on_two_topics_fall_into_them_by_every_method(method):
    found = own_texts.cluster_texts(TEXTS, 2, method, seed=1)
    assert len(found.vectors) == len(TEXTS) and found.model is None
    agree = (found.clusters == TOPICS).mean()
    assert max(agree, 1 - agree) > 0.9


def test_the_seed_settles_the_clusters():
    first, same, other = (
        own_texts.cluster_texts(TEXTS, 6, "tfidf", seed=seed).clusters.tolist()
        for seed in (1, 1, 2)
    )
    assert first == same != other


@pytest.mark.parametrize(
    ("texts", "k", "method", "told"),
    [
        (TEXTS, 2, "bert", "there is no method 'bert': choose one of tfidf, sif-corpus"),
        ([], 2, "tfidf", "texts must be strings that are not empty"),
        (["a word", " "], 2, "tfidf", "texts must be strings that are not empty"),
        (["a word", None], 2, "tfidf", "texts must be strings that are not empty"),
        (TEXTS, 25, "tfidf", "from 1 to the number of texts (24), got 25"),
        (TEXTS, 2.0, "tfidf", "got 2.0"),
        (TEXTS, True, "tfidf", "got True"),
    ],
)
def test_what_cannot_be_clustered_is_told(texts, k, method, told):
    with pytest.raises((TextsError, ValueError), match=told):
        own_texts.cluster_texts(texts, k, method)


def test_clusters_are_shown_with_their_own_words_and_the_texts_in_their_middle():
    vectors = np.zeros((len(TEXTS), 2))
    vectors[:, 0], vectors[:, 1] = TOPICS, np.tile([5.0, 0.0, -5.0], 8)
    clusters = np.where(TOPICS == 1, 0, 7)
    clusters[0] = 0  # one of the wines
    shown = own_texts.describe_clusters(TEXTS, clusters, vectors, words=2, nearest=2)
    assert shown["cluster"].tolist() == [0, 7] and shown["size"].tolist() == [13, 11]
    assert shown["words"][0][0] == "list" and shown["words"][1][0] == "wine"
    assert all(text.endswith("again") for text in shown["nearest"][1])


def test_texts_of_stop_words_alone_are_described_by_them():
    shown = own_texts.describe_clusters(["of", "no", "no"], np.array([0, 1, 1]), np.eye(3), words=1)
    assert shown["words"].tolist() == [["no"], ["of"]]
    nothing = own_texts.describe_clusters(["", " "], np.array([0, 1]), np.eye(2))
    assert nothing["words"].tolist() == [[], []]


def test_minutes_are_those_measured_with_the_most_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("SNNL_RESULTS", str(tmp_path))
    assert np.isnan(own_texts.typical_minutes(100, "minilm"))
    (tmp_path / "bench").mkdir()
    rows = [("minilm", 300, 60.0), ("minilm", 3000, 300.0), ("tfidf", 9000, 1.0)]
    table = pd.DataFrame(rows, columns=["method", "texts", "seconds"])
    table.to_csv(tmp_path / "bench" / "own-texts-cpu.csv", index=False)
    assert own_texts.typical_minutes(6000, "minilm") == pytest.approx(10)
    assert np.isnan(own_texts.typical_minutes(6000, "clusterbert"))


def test_a_row_of_more_fields_than_the_header_is_refused_and_not_taken_apart(tmp_path):
    for name, separator in (("a.csv", ","), ("a.tsv", "\t")):
        (tmp_path / name).write_text(f"text\ngood red wine{separator} dry\nsort a list\n")
        with pytest.raises(TextsError, match="a row has more fields than the header: quote"):
            own_texts.read_table(tmp_path / name)


def test_numbers_of_json_lines_stay_what_they_are(tmp_path):
    rows = [f'{{"text": "wine", "id": {10**17 + 1}}}', '{"text": "list"}']
    rows += ["", f'{{"text": "row", "id": {2**70}}}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    table, _ = own_texts.read_table(tmp_path / "a.jsonl", "text")
    assert table["id"].dropna().tolist() == [10**17 + 1, 2**70] and len(table) == 3


def test_texts_without_a_word_to_count_are_told_as_such():
    with pytest.raises(ValueError, match=r"no text has a word of two letters .*another method"):
        own_texts.cluster_texts(["1", "a", "the"], 2, "tfidf")
