"""Texts of one's own: files, the number of clusters, clusters and what is in them."""

import gzip
import json
import re

import numpy as np
import pandas as pd
import pytest
from spacy.util import get_lang_class

from snnl_book import own_texts
from snnl_book.embeddings import embed
from snnl_book.methods import ClusterBERT, _texts
from snnl_book.own_texts import TextsError, number, page, words
from snnl_book.recipes import Recipe
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
        ("a.csv", None, None, "(No such file or directory): give the path of an existing file"),
        ("a.csv", "", None, "it is empty: give a file of texts"),
        ("a.txt", "\n \n", None, "it is empty: give a file of texts"),
        (
            "a.csv",
            "id,title\n1,x\n",
            None,
            "several columns, so it needs --column: choose one of id",
        ),
        ("a.csv", "id,title\n1,x\n", "titles", "it has no column 'titles'"),
        ("a.csv", "id,title\n1,\n2, \n", "title", "has no text in the column title"),
        ("a.jsonl", "{", None, "line 1 is not JSON (Expecting property name"),
        ("a.csv", "id,title\n1,x\n2,x,y,z\n", None, "Expected 2 fields in line 3, saw 4: close"),
        ("a.csv", "id,title\n1,x,y\n2,x\n", None, "a row has more fields than the header: close"),
        ("a.tsv", "text\nred wine\t dry\nlist\n", None, "a row has more fields than the header"),
        ("a.csv", "id, title\n1,x\n", "title", "choose one of id, ' title'"),
        ("a.xls", "x", None, "does not end in one of .csv"),
        ("a.csv.zip", "x", None, "rename, unpack or convert it"),
        ("a.csv.gz", b"\x1f\x8b\x08", None, "a.csv.gz could not be read (Compressed file ended"),
        ("a.txt", b"caf\xe9", None, "it is not in UTF-8 (byte 0xe9 at 3): name its encoding"),
        ("a.txt", b"a\0b\0", None, "it contains null characters"),
        ("a.txt", "a\né".encode("utf-16-le"), None, "name its encoding, such as --encoding utf-16"),
        ("a.jsonl", '["x"]\n{"a": "x"}', None, "line 2 is an object: give a list for each text"),
        ("a.jsonl", "1\n", None, "line 1 is the value 1: give an object"),
        ("a.jsonl", "\n", None, "it is empty"),
        ("a.json", '{"a": ["x"]}', None, "it does not hold a list"),
        ("a.json", '"x"\n"y"\n', None, "rename it to .jsonl"),
        ("a.jsonl", '[\n"x"\n]', None, "rename it to .json"),
        ("a.jsonl", '{"a": "x"}\n{"a": {"b": "x"}}', "a", "row 2 has an object in the column a"),
        ("a.jsonl", '{"a": ["x"]}', "a", "row 1 has a list in the column a, not a text"),
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
    [("a.csv", ";;", "must be one character"), ("a.txt", ";", "only to .csv and .tsv files")],
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
    for encoding, problem in (
        ("utf-9", "there is no encoding 'utf-9'"),
        ("ascii", "it is not in ASCII .*: name its encoding, such as --encoding utf-8"),
    ):
        with pytest.raises(TextsError, match=problem):
            own_texts.read_table(tmp_path / "c.csv", encoding=encoding)


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
    with pd.ExcelWriter(path) as file:
        rows[:0].to_excel(file, sheet_name="cover", index=False)
        rows.to_excel(file, sheet_name="mine", index=False)
    assert own_texts.read_table(path, "title")[0]["title"].tolist() == ["wine", "NA"]
    rows[:0].to_excel(path)
    with pytest.raises(TextsError, match="it is empty"):
        own_texts.read_table(path)
    days = pd.to_datetime(["2024-01-01", None, "2024-02-29"])
    times = days + pd.to_timedelta([0, 0, 90], "min")
    pd.DataFrame({"day": days, "time": times, "title": "wine"}).to_excel(path, index=False)
    table, _ = own_texts.read_table(path, "title")
    assert table["day"].tolist() == ["2024-01-01", "", "2024-02-29"]
    assert table["time"].tolist() == ["2024-01-01 00:00:00", "", "2024-02-29 01:30:00"]
    path.write_text("title")
    with pytest.raises(TextsError, match="it is not an Excel file"):
        own_texts.read_table(path)


def test_excel_without_its_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(
        SnnlError, match="openpyxl is not installed: install it with the extra excel"
    ):
        own_texts.read_table(tmp_path / "a.xlsx")


def test_half_an_emoji_is_replaced_and_counted(tmp_path):
    lines = [{"title": "wine \ud83c", "by": "\ud83c\udf77"}, {"title": "list", "by": "\udf77"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.warns(own_texts.TextsWarning, match="replaced 2 half characters by \ufffd"):
        table, _ = own_texts.read_table(tmp_path / "a.jsonl", "title")
    assert table["title"].tolist() == ["wine \ufffd", "list"]
    assert table["by"].tolist() == ["\U0001f377", "\ufffd"]
    for name in ("a.csv", "a.txt", "a.jsonl"):
        text = '"wine \ud83c"\n"list"\n'
        (tmp_path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.warns(own_texts.TextsWarning, match="replaced 1 half character by \ufffd"):
            table, column = own_texts.read_table(tmp_path / name)
        assert "wine \ufffd" in [column, *table[column].str.strip('"')]


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
        assert table["silhouette"].between(-1, 1).all() and own_texts.stands_out(table)


def test_k_is_chosen_by_directions_and_neither_by_lengths_nor_by_order():
    vectors = blobs(5)
    longer = vectors * np.random.default_rng(1).uniform(1, 50, size=(len(vectors), 1))
    mixed = vectors[np.random.default_rng(2).permutation(len(vectors))]
    for same in (longer, mixed):
        assert own_texts.best_k(own_texts.silhouettes(same, seed=3)) == 5


def test_vectors_without_clusters_have_no_number_that_stands_out():
    vectors = np.random.default_rng(0).normal(size=(400, 30)) * np.linspace(1, 2, 30)
    table = own_texts.silhouettes(vectors)
    assert not own_texts.stands_out(table)
    assert (table["silhouette"] - table["chance"]).abs().max() < number.CLEAR


def test_of_many_vectors_a_part_chooses_k(monkeypatch):
    monkeypatch.setattr(number, "SAMPLE_SIZE", 120)
    table = own_texts.silhouettes(blobs(4, each=100), seed=3)
    assert table["k"].max() == 6 and own_texts.best_k(table) == 4


def test_too_few_vectors_and_vectors_all_alike_choose_no_k():
    with pytest.raises(TextsError, match="at least 40 texts, got 39: set k"):
        own_texts.silhouettes(blobs(3, each=13))
    table = own_texts.silhouettes(np.ones((60, 3)))
    with pytest.raises(TextsError, match="all texts are alike"):
        own_texts.best_k(table)


@pytest.mark.parametrize("method", ["tfidf", "sif-corpus", "minilm"])
def test_texts_on_two_topics_fall_into_them_by_every_method(method):
    found = own_texts.cluster_texts(TEXTS, 2, method, seed=1)
    assert len(found.vectors) == len(TEXTS) and (found.model is None) == (method != "minilm")
    agree = (found.clusters == TOPICS).mean()
    assert max(agree, 1 - agree) > 0.9


def test_a_text_far_from_its_clusters_mean_is_an_outlier():
    texts = [*TEXTS, "the volcano erupted on the fourth of July and nobody was hurt"]
    found = own_texts.cluster_texts(texts, 2, "minilm")
    mean = found.vectors[found.clusters == found.clusters[-1]].mean(axis=0)
    assert found.distances[-1] == pytest.approx(np.linalg.norm(found.vectors[-1] - mean), rel=1e-4)
    assert found.outliers[-1] and found.outliers.sum() <= 3
    assert not own_texts.cluster_texts(TEXTS, 24, "tfidf").outliers.any()


@pytest.mark.parametrize("method", ["tfidf", "minilm"])
def test_fewer_distinct_texts_than_clusters_are_reported(method):
    texts = ["the same text"] * 70 + ["another  wine"] * 7
    with pytest.warns(UserWarning) as caught:
        found = own_texts.cluster_texts(texts, 3, method)
    sentence = "found 2 clusters instead of 3: the texts have 2 distinct vectors"
    assert [str(warning.message) for warning in caught] == [sentence]
    assert len({*found.clusters[:70]}) == len({*found.clusters[70:]}) == 1


def test_equal_texts_share_a_cluster_if_there_are_more_clusters_than_distinct_texts():
    words = "wine beer sea lake red blue sort list file read plot line json text".split()
    distinct = [" ".join(words[(i + 3 * j) % 14] for j in range(4)) for i in range(10)]
    texts = [distinct[i * i % 10] for i in range(100)]
    with pytest.warns(UserWarning, match="found 6 clusters instead of 25"):
        clusters = own_texts.cluster_texts(texts, 25, "tfidf").clusters
    assert len({*zip(texts, clusters.tolist(), strict=True)}) == len({*texts}) == 6


def test_texts_that_are_cut_are_counted_and_more_pieces_read_them_whole():
    long = "wine " * 300
    texts = [*TEXTS, long + "red", long + "list"]
    with pytest.warns(own_texts.TextsWarning, match=f"2 of {len(texts)} texts are longer than 256"):
        cut = own_texts.cluster_texts(texts, 2)
    assert (cut.vectors[-1] == cut.vectors[-2]).all()
    whole = own_texts.cluster_texts(texts, 2, pieces=400)
    assert (whole.vectors[-1] != whole.vectors[-2]).any()
    beginnings = ["wine " * 130 + last for last in ("red", "list")]
    first, second = own_texts.embed_texts(beginnings, "minilm")
    assert (first != second).any(), "more than the 128 of the experiments"
    for pieces in (2, 513, 3.0):
        with pytest.raises(TextsError, match="from 3 to 512"):
            own_texts.cluster_texts(TEXTS, 2, pieces=pieces)


def test_half_an_emoji_within_python_is_no_obstacle():
    assert len(own_texts.cluster_texts(["wine \ud83c", "list", "row"], 2).clusters) == 3


def test_a_saved_model_places_new_texts_and_knows_outliers(tmp_path):
    found = own_texts.cluster_texts(TEXTS, 2)
    found.model.save(tmp_path / "model")
    new = [TEXTS[0], TEXTS[-1], "the volcano erupted on the fourth of July and nobody was hurt"]
    placed = own_texts.predict_clusters(new, tmp_path / "model")
    assert placed.clusters[:2].tolist() == found.clusters[[0, -1]].tolist()
    assert placed.outliers.tolist() == [False, False, True]
    assert placed.model.max_pieces == own_texts.PIECES
    with pytest.raises(SnnlError, match="holds no model"):
        own_texts.predict_clusters(new, tmp_path)


def test_a_saved_clusterbert_reads_new_texts_once(tmp_path, monkeypatch):
    short = Recipe(warm_up=0, adaptation_epochs=1)
    model = ClusterBERT(2, "minilm", short, seed=42).fit(TEXTS, stages=1)
    model.save(tmp_path / "model")
    encode, read = _texts.encode, []
    noting = lambda *args, **options: read.append(1) or encode(*args, **options)  # noqa: E731
    monkeypatch.setattr(_texts, "encode", noting)
    placed = own_texts.predict_clusters(TEXTS, tmp_path / "model")
    assert len(read) == 1
    assert placed.clusters.tolist() == model.labels_.tolist()
    np.testing.assert_allclose(placed.vectors, model.embeddings["domain adaptation"], atol=1e-5)


def test_minilms_vectors_have_length_1():
    found = own_texts.cluster_texts(TEXTS, 2)
    raw = embed(TEXTS, "minilm", max_pieces=own_texts.PIECES)
    lengths = np.linalg.norm(raw, axis=1)
    assert lengths.std() > 0.1
    for vectors in (found.vectors, own_texts.embed_texts(TEXTS, "minilm")):
        np.testing.assert_allclose(vectors * lengths[:, None], raw, atol=1e-4)


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
        ([], 2, "tfidf", "texts must be a non-empty list of strings"),
        (["a word", " "], 2, "tfidf", "texts must be non-empty strings"),
        (["a word", None], 2, "tfidf", "got None at index 1"),
        (pd.DataFrame({"title": TEXTS, "text": TEXTS}), 2, "tfidf", "pass one column"),
        (TEXTS, 25, "tfidf", r"from 1 to the number of texts \(24\), got 25"),
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


def test_a_text_that_occurs_several_times_is_shown_once():
    texts, vectors = ["wine", "wine", "red wine", "list"], np.array([[0.0], [0.0], [0.3], [1.0]])
    shown = own_texts.describe_clusters(texts, np.zeros(4, int), vectors, nearest=3)
    assert shown["nearest"][0] == ["red wine", "wine", "list"]


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


def test_texts_without_a_word_to_count_are_told_as_such():
    with pytest.raises(TextsError, match=r"no text has a word of two letters .*another method"):
        own_texts.cluster_texts(["1", "a", "the"], 2, "tfidf")


# ---------------------------------------------------------------- words


GERMAN = ["die Rechnung ist nicht bezahlt", "der Wein wurde auf dem Berg gelesen"]


def test_stop_words_are_those_of_the_texts_languages():
    assert {"der", "wurde", "auf"} <= words.stop_words([text.lower().split() for text in GERMAN])
    english = words.stop_words([text.lower().split() for text in TEXTS])
    assert "the" in english and "wurde" not in english
    both = [text.lower().split() for text in [*GERMAN, "this is the list", "a list of the wines"]]
    assert {"the", "wurde"} <= words.stop_words(both)


def test_the_lists_of_stop_words_are_those_of_spacys_languages():
    lists = words._stop_words_by_language()
    assert lists.keys() == {*words.LANGUAGES}
    for language in ("de", "fr", "uk"):
        expected = get_lang_class(language).Defaults.stop_words
        assert lists[language] == {word.lower() for word in expected}


def test_a_series_is_described_by_its_positions_and_not_by_its_own_labels(tmp_path):
    texts, clusters, vectors = ["a list", "red wine"], np.array([0, 1]), np.eye(2)
    series = pd.Series(texts, index=[1, 0])
    shown = own_texts.describe_clusters(series, clusters, vectors, omit=["A"])
    assert shown["nearest"].tolist() == [["a list"], ["red wine"]]
    assert shown["words"][0] == ["list"]


def test_a_list_of_ones_own_replaces_the_stop_words(tmp_path):
    (tmp_path / "words.txt").write_text("WINE\n\nred\n")
    omit = own_texts.read_stop_words(tmp_path / "words.txt")
    shown = own_texts.describe_clusters(["the red wine"], np.array([0]), np.eye(1), omit=omit)
    assert shown["words"][0] == ["the"]
    with pytest.raises(TextsError, match="could not be read"):
        own_texts.read_stop_words(tmp_path / "nowhere.txt")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["我喜欢红酒", "红酒很好", "排序的列表", "列表排序"], ["红酒", "列表"]),
        (["赤ワインです", "白ワインですか", "リストをソート", "リスト"], ["ワイ", "リス"]),
        (["ไวน์แดง", "ไวน์ขาว", "เรียงรายการ", "รายการ"], ["ไวน", "ราย"]),
        (["हिन्दी किताब", "हिन्दी", "सूची", "सूची क्रम"], ["हिन्दी", "सूची"]),
    ],
)
def test_scripts_without_spaces_and_with_marks_have_words(texts, expected):
    found, counts = words.count_words(texts)
    weights = words.word_weights(counts, np.array([0, 0, 1, 1]))
    for word, row in zip(expected, weights, strict=True):
        assert row[found.tolist().index(word)] == row.max()


MAILS = [
    "From: joe@example.org\nSubject: Re: hockey\nLines: 12\n\nthe goalie saved it",
    "In article <1993@cs.example.edu> ann@example.edu (Ann) writes:\n> hockey is a game",
    "On Monday, 5 Apr 1993, Joe wrote:\n> see https://example.org/apr\nthe goalie is here",
]
FLAT = "re hockey in article apr cs umd edu joe cs umd edu writes the goalie saved it"


@pytest.mark.parametrize("texts", [MAILS, [FLAT] * 3])
def test_headers_of_mails_name_no_cluster(texts):
    found, _ = words.count_words(texts)
    headers = "from subject re lines article writes wrote edu org apr cs example https"
    assert {"hockey", "goalie"} <= {*found} and not {*headers.split()} & {*found}


def test_words_that_all_clusters_share_come_after_their_own():
    texts = ["order wine", "order red wine", "order list", "order a sorted list"]
    shown = own_texts.describe_clusters(texts, np.array([0, 0, 1, 1]), np.eye(4), words=1)
    assert shown["words"].tolist() == [["wine"], ["list"]]


# ---------------------------------------------------------------- a page


def test_a_page_holds_its_data_and_nothing_from_a_network(tmp_path):
    texts = [*TEXTS, "</script><b>wine & \u2028"]
    found = own_texts.cluster_texts(texts, 2, "tfidf")
    own_texts.write_page(tmp_path / "a.html", "DATA <b> of TITLE", texts, found)
    made = (tmp_path / "a.html").read_text("utf-8")
    assert made.count("</script>") == 2 and "<h1>Clusters of DATA &lt;b&gt; of TITLE</h1>" in made
    assert not re.search(r"(src|href)=|https?://|@import", made)
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', made, re.S)[1]
    data = json.loads(data)
    assert sorted(point["t"] for point in data["points"]) == sorted(texts)
    assert sum(cluster["texts"] for cluster in data["clusters"]) == len(texts)
    assert all(0 <= point[axis] <= 1 for point in data["points"] for axis in "xy")


def test_a_page_of_many_texts_says_how_many_are_on_its_map(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "MOST_POINTS", 10)
    found = own_texts.cluster_texts(TEXTS, 2, "tfidf")
    own_texts.write_page(tmp_path / "a.html", "x", TEXTS, found)
    assert "24 texts, of which the map shows 10, 2 clusters" in (tmp_path / "a.html").read_text()
