"""The parameters of chapters, and the draw of the documents of a run."""

from collections import Counter

import numpy as np
import pytest
import torch
from conftest import with_gpus

from snnl_book import embeddings, experiments
from snnl_book.data import Dataset
from snnl_book.data.readers import Split
from snnl_book.experiments import ExperimentError, check_device, load_task, parameters, tasks
from snnl_lib import SnnlError

# ---------------------------------------------------------------- parameters


GOOD = {"profile": "tiny", "seeds": [42, 73], "dataset": "newsgroups4", "device": "cpu"}


def test_a_chapters_parameters_are_checked_and_returned():
    notebook = {
        "__name__": "__main__",
        "_ih": [],
        "In": [],
        "Out": {},
        "get_ipython": print,
        "exit": 0,
        "quit": 0,
        "open": open,
        "parameters": parameters,
        "np": np,
    }
    found = parameters(notebook | GOOD)
    assert (found.profile, found.seeds, found.dataset, found.device) == (
        "tiny",
        (42, 73),
        "newsgroups4",
        "cpu",
    )
    assert parameters(GOOD | {"seeds": "42,73"}) == found


def test_without_seeds_42_runs_live_and_the_tables_show_all():
    for none in ([], "", "[]"):
        found = parameters(GOOD | {"seeds": none, "profile": "full"})
        assert (found.seeds, found.shown) == ((42,), None)


def test_seeds_choose_those_of_the_tables_in_profile_full_alone():
    assert parameters(GOOD | {"profile": "full"}).shown == (42, 73)
    assert parameters(GOOD).shown is None and parameters(GOOD).seeds == (42, 73)


def test_a_chapters_data_set_auto_is_resolved(empty_cache):
    assert parameters(GOOD | {"dataset": "auto"}).dataset == "newsgroups4"
    assert parameters(GOOD | {"dataset": "auto"}, "short texts").dataset == "newsgroups20_openings"


def test_a_list_of_words_is_no_corpus_for_a_chapter():
    with pytest.raises(ExperimentError, match="holds words, but this chapter is about texts"):
        parameters(GOOD | {"dataset": "opinion_lexicon"})


def test_a_chapter_on_short_texts_takes_short_texts_alone():
    assert parameters(GOOD | {"dataset": "bbc_sentences"}, "short texts").dataset == "bbc_sentences"
    fitting = (
        "stackoverflow, biomedical, searchsnippets, googlenews, bbc_sentences,"
        " ag_news_descriptions, newsgroups20_openings"
    )
    refused = (
        "the data set 'newsgroups4' holds texts, but this chapter is about short texts: choose"
        f" auto or one of {fitting}$"
    )
    with pytest.raises(ExperimentError, match=refused):
        parameters(GOOD, "short texts")
    with pytest.raises(
        ExperimentError,
        match="the data set 'stackoverflow' holds short texts, but this chapter is about texts",
    ):
        parameters(GOOD | {"dataset": "stackoverflow"})


WRONG = [
    ({"seed": 42}, "unknown parameter 'seed': a chapter takes dataset, device, profile, seeds"),
    ({"profile": "fast"}, "no profile 'fast': choose one of tiny, quick, full"),
    ({"profile": None}, "no profile None"),
    ({"dataset": "agnews"}, "no data set 'agnews': choose one of ag_news, newsgroups4"),
    ({"dataset": "mnist"}, "'mnist' holds images, .* about texts: choose auto or one of ag_news, "),
    ({"dataset": 4}, "no data set 4"),
    ({"device": "gpu"}, "the device 'gpu' is not available here: choose one of auto, cpu$"),
    ({"device": 0}, "the device 0 is not available here"),
    ({"seeds": "a,b"}, "seeds must be whole numbers from 0 to 4294967295, .* got 'a,b'"),
    ({"seeds": [42, 42]}, r"seeds must differ, got \[42, 42\]"),
]


def test_chapters_know_whether_seeds_were_named():
    assert parameters(GOOD | {"seeds": [42]}).named
    assert not parameters(GOOD | {"seeds": []}).named


def test_a_wrong_parameter_of_a_chapter_is_an_error_that_names_what_is_allowed():
    for change, message in WRONG:
        with pytest.raises(SnnlError, match=message):
            parameters(GOOD | change)


def test_without_a_gpu_only_auto_and_cpu_are_devices(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert check_device("auto") == check_device("cpu") == "cpu"
    for device in ("cuda", "cuda:0", "mps", "", "CPU"):
        with pytest.raises(
            ExperimentError,
            match=(f"the device '{device}' is not available here: choose one of auto, cpu$"),
        ):
            check_device(device)


def test_with_two_gpus_those_two_are_devices_and_no_other(monkeypatch):
    with_gpus(monkeypatch, 2)
    assert check_device("auto") == "cuda"
    for device in ("cpu", "cuda", "cuda:0", "cuda:1"):
        assert check_device(device) == device
    for device in ("cuda:2", "cuda:-1", "cuda:one", "cuda:", "cuda:0:0"):
        with pytest.raises(ExperimentError, match=f"the device '{device}' is not available here"):
            check_device(device)


# ---------------------------------------------------------------- the documents of a run


@pytest.fixture
def drawn(newsgroups4, monkeypatch):
    """Draw a task from the real corpus: (seed, n_train, n_test) -> the task and the texts that were
    embedded for it, train and test.
    """

    def draw(seed, n_train=300, n_test=200):
        asked, embed = [], embeddings.embed

        def noting(texts, *args, **kwargs):
            asked.append(list(texts))
            return embed(texts, *args, **kwargs)

        monkeypatch.setattr(tasks, "_load", lambda name: newsgroups4)
        with monkeypatch.context() as patch:
            patch.setattr(embeddings, "embed", noting)
            task = load_task.__wrapped__("newsgroups4", "spacy", seed, n_train, n_test)
        return task, *asked

    return draw


def test_the_same_seed_draws_the_same_documents_and_another_seed_others(drawn):
    task, train, test = drawn(42)
    again, train_again, test_again = drawn(42)
    assert train == train_again and test == test_again
    for name in ("train_x", "train_y", "test_x", "test_y"):
        assert np.array_equal(getattr(task, name), getattr(again, name)), name
    _, train_other, test_other = drawn(73)
    assert len(set(train) & set(train_other)) < 50 and len(set(test) & set(test_other)) < 50


def test_no_test_document_is_trained_on_and_none_is_drawn_twice(drawn, newsgroups4):
    _, train, test = drawn(42)
    assert len(train) == 300 and len(test) == 200
    # Counters, for the corpus itself repeats a few documents.
    assert Counter(train) <= Counter(newsgroups4.train.texts)
    assert Counter(test) <= Counter(newsgroups4.test.texts)
    assert not set(train) & set(test)


def test_each_document_keeps_its_label_and_its_vector(drawn, newsgroups4):
    task, *texts = drawn(42)
    for found, x, y, split in (
        (texts[0], task.train_x, task.train_y, newsgroups4.train),
        (texts[1], task.test_x, task.test_y, newsgroups4.test),
    ):
        label = dict(zip(split.texts, split.labels, strict=True))
        assert [label[text] for text in found] == y.tolist()
        np.testing.assert_array_equal(embeddings.embed(found, "spacy"), x)
    assert task.classes == 4


def test_documents_are_drawn_from_the_whole_corpus(drawn, newsgroups4):
    # Not the first ones: the four classes keep about their shares of the corpus, and the
    # places are spread over it.
    task, train, _ = drawn(42)
    share = np.bincount(newsgroups4.train.labels) / len(newsgroups4.train)
    assert (
        np.abs(np.bincount(task.train_y) / 300 - share).max() < 0.09
    )  # about three standard deviations
    place = {text: i for i, text in enumerate(newsgroups4.train.texts)}
    assert np.abs(np.mean([place[text] for text in train]) / len(place) - 0.5) < 0.05


def test_more_documents_than_there_are_means_all_of_them(monkeypatch, own_cache):
    task = invented_task(monkeypatch, n_train=20_000, n_test=None)
    assert (len(task.train_x), len(task.test_x)) == (3, 2)


def invented_task(monkeypatch, n_train, n_test, embedding="spacy"):
    """Five training and four test documents, some of which say nothing: the arithmetic of leaving
    out is what is looked at.
    """
    train = Split(
        ["rain and sun", "of the", "the cat", "xyzzyplugh", "dogs bark"], np.array([0, 1, 1, 0, 1])
    )
    test = Split(["", "wet rain", "a dog", "!!"], np.array([1, 0, 1, 0]))
    monkeypatch.setattr(
        tasks, "_load", lambda name: Dataset(name, train, test, ("weather", "animals"), "", "", "0")
    )
    return load_task.__wrapped__("invented", embedding, 42, n_train, n_test)


def test_documents_without_a_known_word_are_left_out_and_counted(monkeypatch, own_cache):
    task = invented_task(monkeypatch, n_train=5, n_test=None)
    assert (task.empty_train, task.empty_test) == (2, 2)
    assert sorted(task.train_y.tolist()) == [0, 1, 1] and task.test_y.tolist() == [0, 1]
    assert embeddings.has_words(task.train_x).all()
    np.testing.assert_array_equal(task.test_x, embeddings.embed(["wet rain", "a dog"], "spacy"))


def test_what_reads_texts_gets_those_of_a_corpus_none_left_out_in_the_order_of_the_vectors(
    monkeypatch, own_cache
):
    task, vectors = (
        invented_task(monkeypatch, 5, None, experiments.TEXTS),
        invented_task(monkeypatch, 5, None),
    )
    assert (task.empty_train, task.empty_test, task.classes) == (0, 0, 2)
    assert sorted(task.train_x) == ["dogs bark", "of the", "rain and sun", "the cat", "xyzzyplugh"]
    assert task.test_x.tolist() == ["", "wet rain", "a dog", "!!"]
    assert [
        {"rain and sun": 0, "xyzzyplugh": 0}.get(text, 1) for text in task.train_x
    ] == task.train_y.tolist()
    assert task.test_y.tolist() == [1, 0, 1, 0]
    known = np.isin(task.train_rows, vectors.train_rows)
    np.testing.assert_array_equal(
        embeddings.embed(task.train_x[known].tolist(), "spacy"), vectors.train_x
    )


def test_words_are_counted_in_the_training_documents_of_a_task_alone(
    packages, monkeypatch, newsgroups4
):
    monkeypatch.setattr(tasks, "_load", lambda name: newsgroups4)
    asked = []
    monkeypatch.setattr(
        embeddings,
        "embed",
        lambda texts, method, *, fit_texts, device: (
            asked.append((texts, fit_texts)) or np.ones((len(texts), 2))
        ),
    )
    load_task.__wrapped__("newsgroups4", "sif", 42, 30, 20)
    (train, itself), (test, fitted_on) = asked
    assert (len(train), len(test)) == (30, 20) and itself is None and fitted_on == train


def test_classes_not_seen_in_training_are_drawn_by_the_seed_and_numbered_from_0():
    task = load_task.__wrapped__("digits", "pixels", 42, 500, None)
    splits = set()
    for seed in (42, 73):
        part = tasks.half_unseen(task, seed)
        digits = dict(zip(task.train_rows, task.train_y, strict=True))
        of_test = dict(zip(task.test_rows, task.test_y, strict=True))
        seen = sorted({digits[row] for row in part.train_rows})
        unseen = sorted({of_test[row] for row in part.test_rows})
        assert (len(seen), part.classes) == (5, 5) and sorted(seen + unseen) == [*range(10)]
        assert [seen[y] for y in part.train_y] == [digits[row] for row in part.train_rows]
        assert [unseen[y] for y in part.test_y] == [of_test[row] for row in part.test_rows]
        kept = np.isin(task.test_rows, part.test_rows)
        assert np.array_equal(part.test_x, task.test_x[kept])
        assert np.array_equal(kept, np.isin(task.test_y, unseen))
        splits.add((*seen,))
    assert len(splits) == 2


def test_tf_idf_of_a_task_knows_the_training_words_only(monkeypatch, own_cache):
    train, test = (
        Split(["cat dog", "cat bird"], np.array([0, 1])),
        Split(["cat fish", "fish"], np.array([0, 1])),
    )
    monkeypatch.setattr(
        tasks, "_load", lambda name: Dataset(name, train, test, ("a", "b"), "", "", "0")
    )
    task = load_task.__wrapped__("invented", "tfidf", 42, 2, None)
    assert task.train_x.shape == (2, 3) and task.test_x.shape == (1, 3) and task.empty_test == 1
