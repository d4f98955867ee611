"""One file that carries data: what comes out is what went in, and it is all that a machine without
spaCy, network and git needs.
"""

import functools
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import forget_datasets

from snnl_lib import SnnlError, __main__, cache, data, embeddings, experiments, results
from snnl_lib.__main__ import main
from snnl_lib.data import DataError, places, preprocessing, use_pack
from snnl_lib.data.readers import Images, Split
from snnl_lib.embeddings import backbones, nli, sentences, words
from snnl_lib.embeddings import transformers as encoders
from snnl_lib.experiments import draws, packing, short_texts
from snnl_lib.methods.clusterbert import ClusterBERT
from snnl_lib.methods.retrieval import load_retrieval

ROOT = Path(__file__).resolve().parents[2]
TINY = ("--profile", "tiny", "--dataset", "newsgroups4", "--seeds", "42", "--device", "cpu")


@pytest.fixture(autouse=True)
def no_pack_stays_open(monkeypatch):
    """What a pack changes is undone after each test: what SNNL_DATA names, and the data sets that
    were remembered from before or since.
    """
    monkeypatch.setenv("SNNL_DATA", os.environ.get("SNNL_DATA", ""))
    forget_datasets(monkeypatch)


@pytest.fixture
def open_pack(tmp_path, monkeypatch):
    """Put a pack into use: nothing is remembered or cached that was made without it, and nothing is
    there that it has to bring.
    """

    def use(path):
        def fails(*args, **kwargs):
            raise AssertionError("the pack has all that is needed")

        monkeypatch.setenv("SNNL_CACHE", str(tmp_path / "beside the pack"))
        for module, name in ((words, "table"), (preprocessing, "stop_words")):
            fresh = functools.cache(getattr(module, name).__wrapped__)
            monkeypatch.setattr(module, name, fresh)
        monkeypatch.setattr(data, "stop_words", preprocessing.stop_words)
        monkeypatch.setattr(words, "vocabulary", fails)
        monkeypatch.setattr(results, "commit", fails)
        forget_datasets(monkeypatch)
        use_pack(path)

    return use


@pytest.fixture(scope="session")
def packed(packages, tmp_path_factory):
    """A pack of the real corpus that is always at hand."""
    path = tmp_path_factory.mktemp("pack") / "deep" / "newsgroups4.npz"
    assert (
        main(["pack", "clustering-readings", str(path), "--dataset", "newsgroups4"]) == 0
    )  # it needs no inference pairs
    return path


# ---------------------------------------------------------------- what went in comes out


def test_a_pack_gives_the_same_texts_labels_bits_fingerprint_and_commit(
    packed, newsgroups4, own_cache, open_pack
):
    rows = np.r_[0:300, 5000:5300]
    expected = {
        split: embeddings.embed([getattr(newsgroups4, split).texts[i] for i in rows], "spacy")
        for split in ("train", "test")
    }  # before it is opened
    fingerprint, commit = experiments.fingerprint("newsgroups4", "spacy"), results.commit()
    open_pack(packed)
    (spec,) = experiments.specs("clustering", "tiny", "newsgroups4", 42)[:1]
    corpus = data.load_dataset("newsgroups4")
    for split in ("train", "test"):
        found, original = getattr(corpus, split), getattr(newsgroups4, split)
        assert (
            found.texts == original.texts
            and np.array_equal(found.labels, original.labels)
            and found.labels.dtype == np.int64
        )
        vectors = embeddings.embed([found.texts[i] for i in rows], "spacy")
        np.testing.assert_array_equal(vectors, expected[split])
    assert (corpus.name, corpus.class_names, corpus.terms, corpus.fingerprint) == (
        newsgroups4.name,
        newsgroups4.class_names,
        newsgroups4.terms,
        newsgroups4.fingerprint,
    )
    assert corpus.source.endswith(", from a pack")
    assert (
        experiments.fingerprint("newsgroups4", "spacy") == fingerprint
        and experiments.run(spec, "cpu").commit == commit != "unknown"
    )


def test_the_commit_is_that_of_the_machine_that_wrote_the_pack(made_up, open_pack):
    (spec,) = experiments.specs("clustering", "tiny", "newsgroups4", 42)[:1]
    open_pack(made_up)
    record = experiments.run(spec, "cpu")
    assert record.commit == "0123456789ab+changes"
    assert set(record.frame()["commit"]) == {record.commit}


def test_a_pack_is_said_to_be_written_with_its_size_and_parts(made_up_corpus, tmp_path, capsys):
    assert (
        main(
            [
                "pack",
                "clustering-rivals",
                "classification-rivals",
                str(tmp_path / "out.npz"),
                "--dataset",
                "newsgroups4",
            ]
        )
        == 0
    )
    assert re.fullmatch(
        rf"{tmp_path}/out.npz: 2\d\.\d MB, newsgroups4, word vectors\n", capsys.readouterr().out
    )


def test_without_the_inference_pairs_a_pack_says_what_it_leaves_out(
    made_up_corpus, tmp_path, monkeypatch, capsys, open_pack
):
    def load_pairs():
        raise data.DataError("the inference pairs are not on this machine")

    monkeypatch.setattr(nli, "load_pairs", load_pairs)
    assert (
        main(["pack", "classification", str(tmp_path / "out.npz"), "--dataset", "newsgroups4"]) == 0
    )
    first, second = capsys.readouterr().out.splitlines()
    assert first == "without the runs on infersent-nli: the inference pairs are not on this machine"
    assert second.endswith(" MB, newsgroups4, word vectors")
    open_pack(tmp_path / "out.npz")
    (spec, *_) = specs_of("infersent-nli")
    assert experiments.unmet(spec) == "the inference pairs are not on this machine"


# ---------------------------------------------------------------- the file, with documents made
# up for it

TABLE = {
    "vectors": np.random.default_rng(0).normal(size=(4, 300)).astype(np.float32),
    "rows": {"rain": 0, "drizzle": 0, "sun": 1, "cat": 2, "dog": 3},
    "owners": ["rain", "sun", "cat", "dog"],
}
TRAIN = Split(["Rain, cat and rain", "And", "xyzzy sun", "xyzzy"], np.array([0, 3, 1, 2]))
TEST = Split(["dog", "drizzle!"], np.array([3, 0]))
NEWSGROUPS4 = data.describe("newsgroups4").forms[0].fingerprint
VECTORS = f"packages/{places.wheel_name(embeddings.VECTORS_PACKAGE)}"


def write_pack(path, **folders):
    """Write a pack of tables, folder -> columns."""
    files = {"commit.txt": b"0123456789ab+changes", "stop-words": ["and"]}
    for folder, columns in folders.items():
        files |= {f"{folder}/{name}": content for name, content in columns.items()}
    with path.open("wb") as file:
        packing.write_files(file, files)


@pytest.fixture
def made_up(tmp_path):
    path, folder = tmp_path / "pack.npz", f"newsgroups4/{NEWSGROUPS4}"
    parts = {f"{folder}/train": vars(TRAIN), f"{folder}/test": vars(TEST)}
    write_pack(path, **parts, **{f"{VECTORS}/table": TABLE})
    return path


def test_documents_of_a_pack_are_the_means_of_its_vectors(made_up, open_pack):
    open_pack(made_up)
    corpus = data.load_dataset("newsgroups4")
    found = embeddings.embed(corpus.train.texts, "spacy")
    rain, sun, cat, _ = TABLE["vectors"]
    nothing = np.zeros(300)  # as an unknown word counts, and a stop word not at all
    np.testing.assert_allclose(
        found, [(2 * rain + cat) / 3, nothing, sun / 2, nothing], rtol=0, atol=1e-6
    )
    assert embeddings.has_words(found).tolist() == [True, False, True, False]
    own = embeddings.embed(["rain", "drizzle"], "spacy-word")
    np.testing.assert_allclose(own, [rain, nothing], atol=1e-6)


def test_a_pack_cut_off_anywhere_is_an_error_that_names_it(made_up):
    whole = made_up.read_bytes()
    for length in range(0, len(whole), 53):
        made_up.write_bytes(whole[:length])
        with pytest.raises(DataError, match="is missing or damaged") as caught:
            use_pack(made_up)
        assert str(made_up) in str(caught.value) and not places.pack_in_use()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
@pytest.mark.parametrize("bit", [0x01, 0x40])
def test_a_flipped_bit_anywhere_in_a_pack_never_gives_other_data(made_up, bit):
    # Some bytes of a zip file carry nothing (time stamps, version numbers): there the pack
    # may open as it was.
    def content():
        places._opened.cache_clear()  # two writes may bear the same time
        archive = places.open_pack(made_up).root
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}

    expected, whole, refused = content(), made_up.read_bytes(), 0
    positions = range(0, len(whole), 13)
    for position in positions:
        damaged = bytearray(whole)
        damaged[position] ^= bit
        made_up.write_bytes(damaged)
        try:
            found = content()
        except DataError as error:
            refused += 1
            assert str(made_up) in str(error)
        else:
            assert found == expected, f"byte {position}"
    assert refused > len(positions) / 2


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.unlink(),
        lambda path: path.write_text("<html>"),
        lambda path: np.save(path.open("wb"), TABLE["vectors"]),
        lambda path: np.savez(path, **TABLE),
        lambda path: (path.unlink(), path.mkdir()),
    ],
)
def test_a_file_of_something_else_is_one_sentence_that_names_it_and_says_how_to_get_a_pack(
    made_up, capsys, write
):
    write(made_up)
    assert main(["run", "clustering", *TINY, "--pack", str(made_up)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: the pack {made_up} is missing or damaged (") and said.endswith(
        "write it again with `python -m snnl_lib pack`\n"
    )


def test_a_file_of_something_else_that_snnl_data_names_is_the_same_sentence(tmp_path, monkeypatch):
    (tmp_path / "train.csv").write_text("text,label\n")
    monkeypatch.setenv("SNNL_DATA", str(tmp_path / "train.csv"))
    with pytest.raises(DataError, match=r"the pack .*train\.csv is missing or damaged"):
        data.locate("newsgroups4")


def test_a_pack_that_cannot_be_written_is_one_sentence_that_names_it(
    made_up_corpus, tmp_path, capsys
):
    (tmp_path / "file").touch()
    assert (
        main(["pack", "clustering", str(tmp_path / "file" / "out.npz"), "--dataset", "newsgroups4"])
        == 2
    )
    assert capsys.readouterr().err.startswith(
        f"error: the pack {tmp_path}/file/out.npz could not be written ("
    )


def test_an_interrupted_write_leaves_the_old_pack_and_nothing_else(
    made_up, made_up_corpus, monkeypatch
):
    def half_a_save(file, files):
        file.write(b"PK half of it")
        raise KeyboardInterrupt

    before = made_up.read_bytes()
    monkeypatch.setattr(packing, "write_files", half_a_save)
    with pytest.raises(KeyboardInterrupt):
        packing.write(specs_of("spacy"), made_up)
    assert made_up.read_bytes() == before and [
        path for path in made_up.parent.iterdir() if path.is_file()
    ] == [made_up]


# ---------------------------------------------------------------- what a pack does not hold


def test_what_neither_a_pack_nor_the_cache_holds_is_not_at_hand_and_not_fetched(
    made_up, open_pack, capsys
):
    open_pack(made_up)
    assert data.locate("newsgroups20") is None and data.resolve("auto") == "newsgroups4"
    (spec,) = experiments.specs("clustering", "full", "newsgroups4", 42)[:1]
    embedded = "spacy", "sif", "tfidf", "sif-corpus", "infersent-random"
    needed = {
        "infersent": "the published InferSent weights",
        "infersent-nli": "the inference pairs",
        "minilm": "the weights of minilm",
        "roberta-base": "the weights of roberta-base",
    }
    found = {name: experiments.unmet(replace(spec, embedding=name)) for name in embedded}
    assert found == dict.fromkeys(embedded, "")
    found = {name: experiments.unmet(replace(spec, embedding=name)) for name in needed}
    assert found == {name: f"{what} are not on this machine" for name, what in needed.items()}
    (spec,) = experiments.specs("clustering", "tiny", "newsgroups20", 42)[:1]
    assert experiments.unmet(spec) == "the data set newsgroups20 is not on this machine"
    others = "--profile", "tiny", "--dataset", "newsgroups20", "--pack", str(made_up)
    assert main(["run", "clustering", *others]) == 2
    said = f"error: the data set 'newsgroups20' is not at hand (looked in the pack {made_up} and "
    assert capsys.readouterr().err.startswith(said)


def test_without_word_vectors_in_a_pack_what_is_made_of_them_is_not_at_hand(tmp_path, open_pack):
    folder = f"newsgroups4/{NEWSGROUPS4}"
    parts = {f"{folder}/train": vars(TRAIN), f"{folder}/test": vars(TEST)}
    write_pack(tmp_path / "pack.npz", **parts)
    open_pack(tmp_path / "pack.npz")
    for method in ("spacy", "sif", "infersent-random"):
        (spec,) = experiments.specs("clustering", "full", "newsgroups4", 42)[:1]
        said = "the word vectors are not on this machine"
        assert experiments.unmet(replace(spec, embedding=method)) == said


def specs_of(embedding):
    return [
        spec
        for spec in experiments.specs("classification", "full", "newsgroups4", 42)
        if spec.embedding == embedding
    ]


@pytest.mark.parametrize("method", ["infersent", "infersent-nli", "minilm"])
def test_an_embedding_that_a_pack_cannot_make_is_an_error_that_names_it(made_up, open_pack, method):
    open_pack(made_up)
    with pytest.raises(SnnlError, match=rf"\(looked in .*{re.escape(str(made_up))}"):
        embeddings.embed(data.load_dataset("newsgroups4").train.texts, method)


# ---------------------------------------------------------------- images


@pytest.fixture
def made_up_images(packages, monkeypatch):
    """Random pixels under the name and checksum of MNIST; the other sets of images are out of
    reach.
    """
    random, form, original = np.random.default_rng(0), data.describe("mnist").forms[0], data.read
    splits = [
        Images(random.integers(0, 256, (size, 784), dtype=np.uint8), np.arange(size) % 10)
        for size in (400, 250)
    ]

    def read(name):
        if places.pack_in_use():
            return original(name)
        if name == "mnist":
            return form, Path(), "made up", splits
        raise data.DataError(f"the data set {name!r} is out of reach")

    monkeypatch.setattr(data, "read", read)
    return data.load_dataset("mnist")


def test_images_come_out_of_a_pack_as_they_went_in_and_those_out_of_reach_are_named(
    made_up_images, tmp_path, capsys, open_pack
):
    assert main(["pack", "images", str(tmp_path / "out.npz")]) == 0
    *without, written = capsys.readouterr().out.splitlines()
    assert without == [
        f"without the runs on {name}: the data set {name!r} is out of reach"
        for name in ("emnist_balanced", "fashion_mnist")
    ]
    assert written.endswith("MB, mnist")
    open_pack(tmp_path / "out.npz")
    found = data.load_dataset("mnist")
    for split in ("train", "test"):
        images, original = getattr(found, split), getattr(made_up_images, split)
        assert isinstance(images, Images) and images.pixels.dtype == np.uint8
        np.testing.assert_array_equal(images.pixels, original.pixels)
        np.testing.assert_array_equal(images.labels, original.labels)


def test_a_run_on_packed_images_gives_the_same_bits(made_up_images, tmp_path, open_pack):
    (spec,) = [
        spec for spec in experiments.specs("images", "tiny", "mnist", 42) if spec.model == "supcon"
    ]
    expected = experiments.run(spec, "cpu").metrics
    assert main(["pack", "images", str(tmp_path / "out.npz")]) == 0
    open_pack(tmp_path / "out.npz")
    record = experiments.run(spec, "cpu")
    assert (
        record.metrics == expected and record.fingerprint == f"{made_up_images.fingerprint}-pixels"
    )


# ---------------------------------------------------------------- short texts, ranking tasks and
# MiniLM

SHORT = ("--dataset", "newsgroups20_openings")


@pytest.fixture(scope="session")
def packed_texts(packages, tmp_path_factory):
    """A pack of the real short texts that are always at hand, of MiniLM, and of TREC-QA where that
    is at hand.
    """
    path = tmp_path_factory.mktemp("pack") / "texts.npz"
    assert main(["pack", "clusterbert", "retrieval", str(path), *SHORT]) == 0
    return path


def test_short_texts_and_ranking_tasks_come_out_of_a_pack_as_they_went_in(packed_texts, open_pack):
    tasks = {
        (name, split): load_retrieval(name, split)
        for name in ("trecqa",)
        if data.locate(name)
        for split in ("dev", "test")
    }
    original, places = (
        data.load_dataset(SHORT[1]),
        [(SHORT[1], name) for name in ("minilm", "minilm-cls", "tfidf", "sif-corpus")],
    )
    fingerprints = [experiments.fingerprint(*place) for place in places]
    open_pack(packed_texts)
    found = data.load_dataset(SHORT[1])
    assert (
        found.train.texts == original.train.texts
        and len(found.test) == 0
        and found.class_names == original.class_names
    )
    np.testing.assert_array_equal(found.train.labels, original.train.labels)
    assert [
        experiments.fingerprint(*place) for place in places
    ] == fingerprints and None not in fingerprints
    for (name, split), task in tasks.items():
        same = load_retrieval(name, split)
        assert (same.queries, same.texts) == (task.queries, task.texts)
        for rows, before in ((same.candidates, task.candidates), (same.relevant, task.relevant)):
            assert all(np.array_equal(a, b) for a, b in zip(rows, before, strict=True))


def test_a_pack_has_room_for_the_152_classes_of_googlenews_and_for_queries_with_what_is_relevant(
    tmp_path, open_pack
):
    labels, ranked = (
        np.arange(152),
        [
            ("Who?", ["He did.", "“Never”"], np.array([True, False])),
            ("When?", ["Then."], np.array([False])),
        ],
    )
    texts, nothing = ["rain \udcff"] * 152, np.zeros(0, np.int64)
    news, questions = (
        f"{name}/{data.describe(name).forms[0].fingerprint}" for name in ("googlenews", "trecqa")
    )
    folders = {f"{news}/train": {"texts": texts, "labels": labels}}
    folders |= {f"{news}/test": {"texts": [], "labels": nothing}}
    folders |= {f"{questions}/train": {"rankings": []}, f"{questions}/test": {"rankings": ranked}}
    write_pack(tmp_path / "pack.npz", **folders)
    open_pack(tmp_path / "pack.npz")
    corpus, task = data.load_dataset("googlenews"), load_retrieval("trecqa")
    assert corpus.train.texts == texts and corpus.train.labels.tolist() == labels.tolist()
    assert (task.queries, task.texts, task.candidates[0].tolist(), task.relevant[0].tolist()) == (
        ["Who?"],
        ["He did.", "“Never”"],
        [0, 1],
        [0],
    )


def test_minilm_comes_out_of_a_pack_rounded_to_float16_which_moves_no_embedding_far(
    packed_texts, own_cache, open_pack
):
    texts = data.load_dataset(SHORT[1]).train.texts[:200]
    pieces, weights, before = (
        backbones.tokenize(texts, "minilm"),
        encoders.load_encoder("minilm").state_dict(),
        embeddings.embed(texts, "minilm"),
    )
    torch.manual_seed(0)
    decoder = encoders.load_language_model("minilm").state_dict()
    open_pack(packed_texts)
    backbones._tokenizer.cache_clear()
    same = backbones.tokenize(texts, "minilm")
    assert all(
        np.array_equal(a, b)
        for a, b in zip(same.ids + same.words, pieces.ids + pieces.words, strict=True)
    )
    assert (same.start, same.end, same.pad, same.cut) == (
        pieces.start,
        pieces.end,
        pieces.pad,
        pieces.cut,
    )
    torch.manual_seed(0)  # for what the weights lack
    for found, expected in (
        (encoders.load_encoder("minilm").state_dict(), weights),
        (encoders.load_language_model("minilm").state_dict(), decoder),
    ):
        assert found.keys() == expected.keys()
        for name, own in expected.items():
            assert found[name].dtype == own.dtype and any(
                torch.equal(found[name], each) for each in (own, own.half().to(own.dtype))
            ), name
    after = embeddings.embed(texts, "minilm")
    cosines = (
        (after * before).sum(axis=1)
        / np.linalg.norm(after, axis=1)
        / np.linalg.norm(before, axis=1)
    )
    assert not np.array_equal(after, before) and cosines.min() > 1 - 1e-5


def test_what_comes_of_rounded_weights_and_of_the_published_ones_is_cached_apart(
    packed_texts, tmp_path, monkeypatch, open_pack
):
    (spec,) = [
        spec
        for spec in experiments.specs("clusterbert", "tiny", SHORT[1], 42)
        if (spec.model, spec["clusterer"]) == ("sccl", "kmeans")
    ]
    model, task = (
        ClusterBERT(2, folder=tmp_path),
        experiments.Task(np.array(["rain"]), None, None, None, 2, 0, 0),
    )
    model.pieces, model._others = backbones.tokenize(["rain"], "minilm"), None
    monkeypatch.setattr(embeddings, "cached_vectors", lambda facts, *_: facts)
    monkeypatch.setattr(cache, "cached", lambda path, compute: (torch.tensor([hash(path)]), 0.0))

    def names():
        return [
            embeddings.embed(["rain"], "minilm")["backbone"],
            short_texts.contrast(spec, task, "cpu", None)[0].item(),
            *(model._checkpoint(number) for number in (1, 2, 3)),
        ]

    before = names()
    open_pack(packed_texts)
    assert not set(before) & set(names())


# ---------------------------------------------------------------- sentence vectors and inference
# pairs


@pytest.fixture
def made_up_corpus(packages, monkeypatch):
    """A few texts in place of the real corpus, which takes seconds to look up; the words and their
    vectors are real.
    """
    train, test = (
        Split(["Rain and sun!", "a cat, a dog", "of the"], np.array([0, 1, 2])),
        Split(["xyzzyplugh rain", "dogs bark"], np.array([0, 3])),
    )
    form, read = data.describe("newsgroups4").forms[0], data.read
    monkeypatch.setattr(
        data,
        "read",
        lambda name: (
            read(name) if places.pack_in_use() else (form, Path(), "made up", (train, test))
        ),
    )
    frame = pd.DataFrame(
        {
            "premise": [
                "It rains on the cat.",
                "A dog barks at me",
                "The sun is out",
                "xyzzyplugh!",
            ],
            "hypothesis": ["It rains", "A cat barks", "Nobody is here", "A dog"],
            "label": [0, 1, 2, 0],
        }
    )
    for name, made_up in (
        ("load_pairs", dict.fromkeys(("train", "dev", "test"), frame)),
        ("pairs_folder", Path("made up")),
    ):
        of_pack = getattr(nli, name)
        monkeypatch.setattr(
            nli, name, lambda f=of_pack, made_up=made_up: f() if places.pack_in_use() else made_up
        )
    return data.load_dataset("newsgroups4")


@pytest.fixture
def small_encoders(own_cache, monkeypatch):
    random_encoder = sentences.random_encoder
    monkeypatch.setattr(nli, "UNITS", 4)
    monkeypatch.setattr(sentences, "random_encoder", lambda seed: random_encoder(seed, 300, 4))
    monkeypatch.setattr(
        nli,
        "RECIPE",
        {"units": 4, "hidden": 3, "epochs": 2, "batch_size": 2, "learning_rate": 0.01, "seed": 42}
        | {"precision": "bfloat16"},
    )
    return own_cache


def test_inference_pairs_come_out_of_a_pack_as_they_went_in(made_up_corpus, tmp_path, open_pack):
    original = nli.pairs_as_rows()
    assert (
        main(["pack", "classification", str(tmp_path / "out.npz"), "--dataset", "newsgroups4"]) == 0
    )
    open_pack(tmp_path / "out.npz")
    found = nli.pairs_as_rows()
    assert found.keys() == original.keys() == {"train", "dev", "test"}
    for split, (*sides, labels) in found.items():
        assert labels.tolist() == original[split][2].tolist() == [0, 1, 2]
        for side, before in zip(sides, original[split][:2], strict=True):
            for rows, same in zip(side, before, strict=True):
                np.testing.assert_array_equal(rows, same)


@pytest.mark.parametrize("method", ["infersent-random", "infersent-nli"])
def test_sentence_vectors_from_a_pack_have_the_bits_of_those_without_it(
    made_up_corpus, small_encoders, tmp_path, method, open_pack
):
    assert (
        main(["pack", "classification", str(tmp_path / "out.npz"), "--dataset", "newsgroups4"]) == 0
    )
    expected, fingerprint, facts = (
        embeddings.embed(made_up_corpus.train.texts, method),
        embeddings.fingerprint(method),
        draws.encoder_scores(method),
    )
    open_pack(tmp_path / "out.npz")
    assert embeddings.fingerprint(method) == fingerprint
    found = embeddings.embed(data.load_dataset("newsgroups4").train.texts, method)
    assert embeddings.has_words(found).tolist() == [True, True, False]
    np.testing.assert_array_equal(found, expected)
    assert draws.encoder_scores(method) == facts


def test_infersent_nli_is_trained_from_a_pack_alone_to_the_same_weights(
    made_up_corpus, small_encoders, tmp_path, open_pack
):
    scores = sentences.train_infersent_nli()
    (weights,) = (small_encoders / "infersent").glob("*.pt")
    expected = sentences.load_encoder(weights).state_dict()
    assert (
        main(["pack", "classification", str(tmp_path / "out.npz"), "--dataset", "newsgroups4"]) == 0
    )
    open_pack(tmp_path / "out.npz")
    assert sentences.train_infersent_nli() == pytest.approx(scores)
    (again,) = (tmp_path / "beside the pack" / "infersent").glob("*.pt")
    found = sentences.load_encoder(again).state_dict()
    assert again.name == weights.name
    assert all(torch.equal(found[name], value) for name, value in expected.items())


# ---------------------------------------------------------------- a bare machine

BARE = """
import os
from importlib.machinery import PathFinder

NOT_HERE = {
    "spacy", "transformers", "matplotlib", "seaborn", "IPython", "ipykernel", "jupyter_core",
    "jupyter_client", "jupyterlab", "nbformat", "nbclient", "myst_nb", "papermill", "pooch",
    "platformdirs", "pyarrow", "requests", "git", "umap", "pynndescent", "numba",
    "sentence_transformers", "datasets", "accelerate", "dill", "multiprocess", "xxhash",
} - {os.environ.get("ALSO_HERE")}

find_here = PathFinder.find_spec


def find_spec(name, path=None, target=None):
    return None if name.split(".")[0] in NOT_HERE else find_here(name, path, target)


PathFinder.find_spec = find_spec
"""


@pytest.fixture
def bare(tmp_path):
    """Run Python in a process of its own on a machine as a pack is meant for: no spaCy, no git, no
    network, no data.
    """
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BARE)
    (tmp_path / "empty").mkdir()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("SNNL_")
    }
    environment |= {
        "PYTHONPATH": str(folder),
        "PATH": str(tmp_path / "empty"),
        "SNNL_CACHE": str(tmp_path / "empty" / "cache"),
    }
    environment |= dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9/"
    )

    def run(*arguments, **more):
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_the_bare_machine_is_bare(bare):
    status, _, error = bare("-c", "import spacy")
    assert status == 1 and "No module named 'spacy'" in error
    status, _, error = bare("-c", "import subprocess; subprocess.run(['git', '--version'])")
    assert status == 1 and "No such file or directory: 'git'" in error


@pytest.mark.slow  # the stack above and the bits of what is packed are tested always
def test_a_bare_machine_gives_the_same_scores_from_a_pack_with_workers_too(
    packed, bare, packages, results_folder, tmp_path, monkeypatch, capsys
):
    only = ("run", "all", *TINY, "--models", "pca", "knn", "supcon")
    assert main(only) == 0
    expected = results.load_results(profile="tiny")
    status, said, error = bare(
        "-m",
        "snnl_lib",
        *only,
        "--pack",
        str(packed),
        "--jobs",
        "2",
        SNNL_RESULTS=str(tmp_path / "bare"),
    )
    assert (
        (status, error) == (0, "")
        and said.startswith("4 runs to do, 0 recorded\n")
        and "[4/4]" in said
    )
    monkeypatch.setenv("SNNL_RESULTS", str(tmp_path / "bare"))
    found = results.load_results(profile="tiny")
    names = [
        "key",
        "metric",
        "value",
        "experiment",
        "n_train",
        "n_test",
        "status",
        "commit",
        "fingerprint",
        "settings",
    ]
    assert found[names].equals(expected[names]) and expected["commit"].ne("unknown").all()
    capsys.readouterr()
    assert main(only) == 0 and capsys.readouterr().out == "0 runs to do, 4 recorded\n", (
        "and they count here as what they are"
    )


@pytest.mark.slow
def test_a_bare_machine_with_transformers_fine_tunes_packed_minilm_to_nearly_the_same_scores(
    packed_texts, bare, own_cache, results_folder
):
    only = (
        "--profile",
        "tiny",
        *SHORT,
        "--seeds",
        "42",
        "--device",
        "cpu",
        "--pack",
        str(packed_texts),
    )
    wanted = [
        spec
        for spec in experiments.specs("clusterbert", "tiny", SHORT[1], 42)
        if spec.model == "clusterbert" and not spec.needs
    ]
    wanted = [spec for spec in wanted if "umap" not in spec["clusterer"]]
    status, said, error = bare(
        "-m",
        "snnl_lib",
        "run",
        "clusterbert",
        *only,
        "--models",
        "clusterbert",
        ALSO_HERE="transformers",
        SNNL_RESULTS=str(results_folder),
    )
    assert (status, error) == (0, "")
    assert said.startswith("2 runs cannot be made here: umap-learn is not installed")
    assert "\n2 runs to do, 0 recorded\n" in said
    found = results.load_results(profile="tiny").set_index(["key", "metric"])
    for record in map(experiments.run, wanted, ["cpu"] * 2):
        own = found.loc[record.key]
        assert (
            own["fingerprint"].eq(record.fingerprint).all()
            and own["device"].eq(f"{record.device}, with weights rounded to float16").all()
        )
        assert own["status"].eq("ok").all() and set(own.index) == set(record.metrics)
        scores = {name: score for name, score in record.metrics.items() if name != "shared_seconds"}
        np.testing.assert_allclose(
            own["value"].loc[list(scores)], list(scores.values()), rtol=0.01, atol=0.02
        )
    verdicts = experiments.status("clusterbert", "tiny", SHORT[1], 42)
    assert {row.spec for row in verdicts if row.verdict == "done"} == set(wanted), (
        "and they count here as what they are"
    )


@pytest.mark.slow  # the bits of what is packed are tested always
def test_a_bare_machine_counts_words_in_packed_texts_to_the_same_scores_but_for_sif(
    packed_texts, bare, own_cache, results_folder
):
    only = (
        "--profile",
        "tiny",
        *SHORT,
        "--seeds",
        "42",
        "--device",
        "cpu",
        "--pack",
        str(packed_texts),
    )
    wanted = [
        spec
        for spec in experiments.specs("retrieval", "tiny", SHORT[1], 42)
        if spec.embedding in ("tfidf", "sif-corpus")
    ]
    wanted = experiments.runnable(wanted, "cpu")
    status, said, error = bare(
        "-m",
        "snnl_lib",
        "run",
        "retrieval",
        *only,
        "--embeddings",
        "tfidf",
        "sif",
        "sif-corpus",
        SNNL_RESULTS=str(results_folder),
    )
    assert (status, error) == (0, "") and f"\n{len(wanted)} runs to do, 0 recorded\n" in said
    found = results.load_results(profile="tiny").set_index(["key", "metric"])
    for record in map(experiments.run, wanted, ["cpu"] * len(wanted)):
        own = found.loc[record.key]
        assert (
            own["value"].to_dict() == pytest.approx(record.metrics)
            and own["device"].eq(record.device).all()
        )


def test_a_bare_machine_trains_a_stack_from_a_pack_and_keeps_vectors_at_home(
    packed, bare, tmp_path, monkeypatch
):
    only = ("run", "paper", *TINY, "--models", "ffn", "pca", "--stack", "3", "--jobs", "2")
    places = {"SNNL_RESULTS": str(tmp_path / "bare"), "SNNL_CACHE": "", "HOME": str(tmp_path)}
    status, said, error = bare("-m", "snnl_lib", *only, SNNL_DATA=str(packed), **places)
    assert [*(tmp_path / ".cache" / "snnl-book" / "embeddings").glob("spacy-*.bin")]
    assert (
        (status, error) == (0, "")
        and said.startswith("4 runs to do, 0 recorded\n")
        and re.search(r"; about \d+ min left$", said, re.MULTILINE)
    )
    monkeypatch.setenv("SNNL_RESULTS", str(tmp_path / "bare"))
    found = results.load_results(profile="tiny").drop_duplicates("key")
    assert found.groupby("model")["status"].agg("".join).to_dict() == {"ffn": "okokok", "pca": "ok"}
    assert (found["device"].str.endswith(", in a stack of 3") == (found["model"] == "ffn")).all()


def test_paper_and_all_stand_for_experiments_and_none_is_packed_twice():
    assert list(__main__._names(["paper", "tsne", "labels"])) == [
        "classification",
        "clustering",
        "lexicon",
        "tsne",
        "labels",
    ]
    assert list(__main__._names(["all", "tsne"])) == list(experiments.EXPERIMENTS)


def test_where_umap_is_not_installed_its_runs_are_told_and_the_others_go_on(packages, monkeypatch):
    todo = experiments.specs("clustering-rivals", "tiny", "newsgroups4", 42)
    assert experiments.runnable(todo) == todo
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "umap" else find(name)
    )
    said = (
        "umap-learn is not installed: it comes with the extra text, in a checkout by `pip install"
        " .[text]`"
    )
    assert {spec.model: experiments.unmet(spec) for spec in todo if experiments.unmet(spec)} == {
        "umap": said
    }
    assert [spec.model for spec in experiments.runnable(todo)] == [
        spec.model for spec in todo if spec.model != "umap"
    ]


def test_words_of_the_lexicon_come_out_of_a_pack_with_the_vectors_of_their_own_and_no_others(
    packages, tmp_path, open_pack, capsys
):
    lexicon = data.load_dataset("opinion_lexicon")
    expected = {
        split: embeddings.embed(getattr(lexicon, split).texts, "spacy-word")
        for split in ("train", "test")
    }
    assert main(["pack", "lexicon", str(tmp_path / "out.npz"), "--dataset", "newsgroups4"]) == 0
    assert capsys.readouterr().out.endswith(" MB, opinion_lexicon, word vectors\n")
    open_pack(tmp_path / "out.npz")
    found = data.load_dataset("opinion_lexicon")
    assert experiments.unmet(experiments.specs("lexicon", "tiny", "newsgroups4", 42)[0]) == ""
    for split, vectors in expected.items():
        np.testing.assert_array_equal(
            embeddings.embed(getattr(found, split).texts, "spacy-word"), vectors
        )
        np.testing.assert_array_equal(getattr(found, split).labels, getattr(lexicon, split).labels)


def test_run_with_a_pack_in_one_process_gives_the_same_scores(
    packed, packages, results_folder, monkeypatch, tmp_path, open_pack
):
    only = ("run", "classification", *TINY, "--models", "ffn")
    assert main(only) == 0
    expected = results.load_results(profile="tiny")
    monkeypatch.setenv("SNNL_RESULTS", str(tmp_path / "packed"))
    open_pack(packed)
    assert main((*only, "--pack", str(packed))) == 0
    found = results.load_results(profile="tiny")
    shown = ["key", "metric", "value"]
    assert found[shown].equals(expected[shown]) and len(found) == 18
