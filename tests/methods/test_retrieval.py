"""Ranking tasks: what they hold, that nothing damaged is taken for good, and that what is scored is
the cosine of each query to its own candidates.
"""

import gzip
import hashlib
import json
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from conftest import git_name
from sklearn.feature_extraction.text import TfidfVectorizer

from snnl_book import data, experiments
from snnl_book.data import DataError, Retrieval, catalogue, load_retrieval
from snnl_book.methods import retrieval
from snnl_book.methods.retrieval import delete_words, denoise, evaluate
from snnl_lib import SnnlError
from snnl_lib.metrics import query_scores

trecqa_at_hand = pytest.mark.skipif(
    data.locate("trecqa") is None, reason="TREC-QA is not on this machine: set SNNL_DATA"
)


def word_counts(texts):
    counter = TfidfVectorizer(token_pattern=r"\S+", use_idf=False, norm=None)
    return counter.fit_transform(texts).toarray()


# ---------------------------------------------------------------- TREC-QA


@trecqa_at_hand
def test_trecqa_holds_the_usable_questions_of_the_literature():
    form = data.locate("trecqa")[0]
    assert form.documents == (81, 95)
    task = load_retrieval("trecqa")
    assert len(task.queries) == len(set(task.queries)) == 68
    assert sum(map(len, task.candidates)) == 1442
    assert sum(map(len, task.relevant)) == 248
    rows = np.unique(np.concatenate(task.candidates))
    assert len(set(task.texts)) == len(task.texts) == len(rows)
    for candidates, relevant in zip(task.candidates, task.relevant, strict=True):
        assert 0 < len(relevant) < len(candidates) == len(np.unique(candidates))
    assert "SNNL_DATA" in task.source or "cache" in task.source


@trecqa_at_hand
def test_the_two_published_forms_of_trecqa_hold_the_same_and_have_one_fingerprint(
    tmp_path, monkeypatch
):
    form, folder, _, parts = data.read("trecqa")
    content = [[(asked, told, right.tolist()) for asked, told, right in part] for part in parts]
    fingerprint = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]
    assert {own.fingerprint for own in data.describe("trecqa").forms} == {fingerprint}
    if "dev.parquet" not in form.files:
        pytest.skip("TREC-QA is here as CSV")
    before = load_retrieval("trecqa")
    (tmp_path / "trecqa").mkdir()
    for name in ("dev", "test"):
        frame = pd.read_parquet(folder / f"{name}.parquet")[["question", "label", "answer"]]
        frame.columns = ["qtext", "label", "atext"]
        path = tmp_path / "trecqa" / f"{name}.csv"
        frame.to_csv(path, index=False, lineterminator="\r\n")
    monkeypatch.setenv("SNNL_DATA", str(tmp_path))
    task = load_retrieval("trecqa")  # whose checksums are those of the CSV files
    assert task.source == "dev and test pairs as CSV, from SNNL_DATA"
    assert (task.queries, task.texts) == (before.queries, before.texts)
    for one, other in ((task.candidates, before.candidates), (task.relevant, before.relevant)):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# ---------------------------------------------------------------- AskUbuntu: the published
# layout, in small


TEXTS = """9\thow do i enable updates ?\tupdate manager offers me updates .
11\thow do i install flash ?\ti have had problems with flash
12\tinstalling a plugin\t
13\tmy screen is black\tit is\tblack
14\tautomatic updates\tno
15\tcafé wifi\tno\x0bno\x1cno
16\thow do i install flash ?\tonce more
"""
DEV = "9\t14\t14 13 12\t3.5 2.5 1.5\n11\t\t9 12\t2.0 1.0\n13\t15\t15\t1.0\n"
TEST = "14\t9 9\t13 9 12 13\t4.0 3.0 2.0 4.0\n11\t12 16\t15 12 9\t3.0 2.0 1.0\n"


@pytest.fixture
def askubuntu(empty_cache, tmp_path, monkeypatch):
    """A small AskUbuntu under SNNL_DATA, its text file the one whose checksum stands in the
    catalogue.
    """
    folder = tmp_path / "data" / "askubuntu"
    folder.mkdir(parents=True)
    content = gzip.compress(TEXTS.encode())
    (folder / "text_tokenized.txt.gz").write_bytes(content)
    (folder / "dev.txt").write_text(DEV)
    (folder / "test.txt").write_text(TEST)
    entry = data.describe("askubuntu")
    files = entry.forms[0].files | {"text_tokenized.txt.gz": f"git:{git_name(content)}"}
    entry = replace(entry, forms=(replace(entry.forms[0], files=files),))
    monkeypatch.setattr(catalogue, "entries", lambda: {"askubuntu": entry})
    monkeypatch.setenv("SNNL_DATA", str(tmp_path / "data"))
    return folder


def spelt_out(task):
    """Each query with its candidates in words, the relevant ones apart."""
    for query, rows, relevant in zip(task.queries, task.candidates, task.relevant, strict=True):
        candidates = [task.texts[row] for row in rows]
        yield query, candidates, [candidates[place] for place in relevant]


def test_askubuntu_is_read_by_titles_without_the_queries_that_have_nothing_to_tell_apart(askubuntu):
    test = load_retrieval("askubuntu")
    screen, enable, plugin = (
        "my screen is black",
        "how do i enable updates ?",
        "installing a plugin",
    )
    flash, wifi = "how do i install flash ?", "café wifi"
    # A repeated candidate counts once; a similar question outside the candidates is one as well.
    assert list(spelt_out(test)) == [
        ("automatic updates", [screen, enable, plugin], [enable]),
        (flash, [wifi, plugin, enable, flash], [plugin, flash]),
    ]
    assert test.source == "titles of the published questions, from SNNL_DATA"
    # The plugin and the wifi are equal.
    precision = (1 + (1 + (2 / 3 + 2 / 4) / 2) / 2) / 2
    assert scored(test, word_counts) == pytest.approx({"map": precision, "mrr": 1})


def test_a_list_of_askubuntu_in_another_layout_is_an_error_that_names_the_line(askubuntu):
    path = askubuntu / "dev.txt"
    content = path.read_text()
    for line in (
        "9\t14\t14 13 12",  # cut short
        "9\t14\t14 13 1\t3.5 2.5 1.5",  # 1 has no text
        "9 11\t14\t14 13 12\t3.5 2.5 1.5",
        "",
        "<html>",
    ):
        path.write_text("\n".join([content.splitlines()[0], line, content]))
        with pytest.raises(SnnlError, match=r"line 2 of .*dev.txt is not in the published format"):
            load_retrieval("askubuntu")


# ---------------------------------------------------------------- names


def test_only_ranking_tasks_are_loaded_as_such_and_no_other_way():
    with pytest.raises(DataError, match="'ag_news': choose one of trecqa, askubuntu"):
        load_retrieval("ag_news")
    with pytest.raises(DataError, match=r"load it with snnl_book.data.load_retrieval"):
        data.load_dataset("trecqa")
    assert experiments.specs("clustering", dataset="trecqa") == []


# ---------------------------------------------------------------- a text and its noised copy


LONG = [" ".join(f"w{i}.{j}" for j in range(100)) for i in range(200)]


def test_words_are_deleted_at_the_ratio_asked_for_and_keep_their_order():
    ratio, task = 0.3, denoise(LONG, ratio=0.3, seed=3)
    kept = [query.split() for query in task.queries]
    lengths = [len(words) for words in kept]
    deviation = math.sqrt(100 * ratio * (1 - ratio))
    assert np.mean(lengths) == pytest.approx(70, abs=4 * deviation / math.sqrt(200))
    assert np.std(lengths) == pytest.approx(deviation, rel=0.2), "each word by itself"
    for words, text in zip(kept, task.texts, strict=True):
        numbers = [int(word.split(".")[1]) for word in words]
        assert numbers == sorted(numbers) and set(words) <= set(text.split())
    assert task.queries == denoise(LONG, ratio=0.3, seed=3).queries
    assert task.queries != denoise(LONG, ratio=0.3, seed=4).queries


def test_one_word_is_left_if_all_would_be_deleted():  # and any can be: test_tsdae.py
    assert all(len(query.split()) == 1 for query in denoise(LONG, ratio=1).queries)
    random = np.random.default_rng(0)
    lengths = [len(delete_words("one two three", 0.6, random).split()) for _ in range(3000)]
    assert np.mean(lengths) == pytest.approx(3 * 0.4 + 0.6**3, abs=0.06) and min(lengths) == 1


def test_texts_that_cannot_be_noised_are_refused():
    for texts, ratio, named in (
        (["rain", "rain"], 0.6, "at least two distinct texts"),
        (["rain", " \n"], 0.6, r"must have at least one word.* got ' \\n' and 0.6"),
        (["rain", "wind"], 1.1, r"ratio must lie in \[0, 1\], got 'rain' and 1.1"),
        (["rain", "wind"], math.nan, "and nan"),
    ):
        with pytest.raises(ValueError, match=named):
            denoise(texts, ratio=ratio)


# ---------------------------------------------------------------- evaluate


def scored(task, embed):
    """The means over the queries."""
    return {name: np.mean(values) for name, values in evaluate(task, embed).items()}


def drawn_task(seed=0, queries=23, texts=40):
    random = np.random.default_rng(seed)
    candidates = [random.permutation(texts)[: random.integers(2, 15)] for _ in range(queries)]
    relevant = [
        random.permutation(len(rows))[: random.integers(1, len(rows))] for rows in candidates
    ]
    asked = [f"q{i}" if i % 3 else f"t{i}" for i in range(queries)]  # some queries are texts too
    return Retrieval(asked, [f"t{i}" for i in range(texts)], candidates, relevant, "drawn")


def drawn_vectors(texts):
    return np.array([np.random.default_rng(list(text.encode())).normal(size=6) for text in texts])


def by_hand(task, embed):
    precisions, reciprocals = [], []
    for query, rows, relevant in zip(task.queries, task.candidates, task.relevant, strict=True):
        (q,), texts = embed([query]), embed([task.texts[row] for row in rows])
        cosines = [q @ t / math.sqrt((q @ q) * (t @ t)) for t in texts]
        order = sorted(range(len(rows)), key=lambda i: -cosines[i])
        ranks = [rank for rank, i in enumerate(order, start=1) if i in relevant]
        precisions.append(np.mean([count / rank for count, rank in enumerate(ranks, start=1)]))
        reciprocals.append(1 / ranks[0])
    return {"map": np.mean(precisions), "mrr": np.mean(reciprocals)}


def test_each_query_is_ranked_against_its_own_candidates_by_the_cosine(monkeypatch):
    monkeypatch.setattr(retrieval, "CHUNK", 5)
    task = drawn_task()
    expected = pytest.approx(by_hand(task, drawn_vectors), rel=1e-12)
    longer = lambda texts: drawn_vectors(texts) * np.arange(1, len(texts) + 1)[:, None]  # noqa: E731
    for embed in (drawn_vectors, longer, lambda texts: drawn_vectors(texts).tolist()):
        assert scored(task, embed) == expected


def test_the_order_of_texts_and_candidates_does_not_matter_even_where_vectors_are_equal():
    random = np.random.default_rng(5)
    few = random.normal(size=(3, 37)).astype(np.float32)

    def embed(texts):
        return few[[sum(text.encode()) % 3 for text in texts]]

    task = drawn_task(queries=40)
    before, places = scored(task, embed), random.permutation(40)
    mixes = [random.permutation(len(rows)) for rows in task.candidates]
    pairs = zip(task.candidates, task.relevant, mixes, strict=True)
    candidates, relevant = zip(
        *((np.argsort(places)[rows[mix]], np.argsort(mix)[right]) for rows, right, mix in pairs),
        strict=True,
    )
    texts = [task.texts[row] for row in places]
    shuffled = Retrieval(task.queries, texts, [*candidates], [*relevant], "shuffled")
    same = [[sorted(right) for *_, right in spelt_out(each)] for each in (shuffled, task)]
    assert same[0] == same[1]
    assert scored(shuffled, embed) == before


def test_equal_vectors_are_equal_though_a_matrix_product_may_round_them_differently():
    for count, width in product((7, 41, 113), (37, 50, 300, 384)):
        texts, relevant = [f"t{i}" for i in range(count)], np.array([0, count // 2])
        task = Retrieval(["q"], texts, [np.arange(count)], [relevant], "drawn")
        one, other = np.random.default_rng(width).normal(size=(2, width))
        pair = other, one

        def vectors(texts, pair=pair):
            return np.array([pair[text == "q"] for text in texts])

        expected = query_scores([(np.zeros(count), np.isin(np.arange(count), relevant))])
        assert evaluate(task, vectors) == expected


def test_a_text_without_a_vector_is_like_no_other():
    texts, rows = ["same", "none", "opposite"], [np.arange(3)]
    task = Retrieval(["q"], texts, rows, [np.array([1])], "by hand")
    vectors = {"q": [1.0, 0], "same": [2.0, 0], "none": [0, 0], "opposite": [-1.0, 0]}
    found = scored(task, lambda texts: np.array([vectors[text] for text in texts]))
    assert found == {"map": 0.5, "mrr": 0.5}


def test_anything_but_a_vector_for_each_text_is_refused():
    for embed, named in (
        (lambda texts: np.ones((len(texts) - 1, 2)), "must be equal, got features 1, texts 2"),
        (lambda texts: np.full((len(texts), 2), np.nan), "contain nan"),
        (lambda texts: np.ones(len(texts)), r"shape \(2,\)"),
    ):
        with pytest.raises(ValueError, match=named):
            scored(denoise(["rain", "wind"], ratio=0), embed)
