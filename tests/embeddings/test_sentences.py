"""The sentence encoder: against an LSTM written out by hand, files of weights, and its training on
a task made up for it.
"""

import re

import numpy as np
import pytest
import torch

from snnl_book.embeddings.sentences import (
    EncoderError,
    InferSent,
    encode,
    load_encoder,
    random_encoder,
    save_encoder,
    train_nli,
)

WORDS, SIZE, UNITS = 12, 5, 3


@pytest.fixture
def table():
    """Invented word vectors: the arithmetic is what is looked at."""
    return np.random.default_rng(0).normal(size=(WORDS, SIZE)).astype(np.float32)


@pytest.fixture
def encoder():
    return random_encoder(1, SIZE, UNITS)


def documents(*texts):
    return [np.array(text, dtype=np.int32) for text in texts]


def vectors(encoder, texts, table, **options):
    """Put the batches of ``encode`` back in order."""
    found = np.full((len(texts), 2 * encoder.enc_lstm.hidden_size), np.nan, dtype=np.float32)
    seen = []
    for index, batch in encode(encoder, texts, table, **options):
        assert batch.dtype == np.float32
        found[index] = batch
        seen += index.tolist()
    assert sorted(seen) == list(range(len(texts))), "each document once"
    return found


# ---------------------------------------------------------------- against an LSTM by hand


def logistic(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_hand(words, weights, suffix):
    """Hochreiter and Schmidhuber's cell step by step, in float64; the four gates lie below each
    other as input, forget, cell, output.
    """
    w, u, b, c = (
        weights[f"enc_lstm.{name}_l0{suffix}"].double().numpy()
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    units = u.shape[1]
    h, cell, states = np.zeros(units), np.zeros(units), []
    for word in words:
        gates = w @ word + b + u @ h + c
        i, f, g, o = (gates[k * units : (k + 1) * units] for k in range(4))
        cell = logistic(f) * cell + logistic(i) * np.tanh(g)
        h = logistic(o) * np.tanh(cell)
        states.append(h)
    return np.array(states)


def by_hand(rows, table, encoder):
    words, weights = table[rows].astype(np.float64), encoder.state_dict()
    forward = lstm_by_hand(words, weights, "")
    backward = lstm_by_hand(words[::-1], weights, "_reverse")[::-1]
    return np.concatenate([forward, backward], axis=1).max(axis=0)


def test_a_sentence_is_the_maximum_over_an_lstm_in_either_direction_whatever_its_batch(
    encoder, table
):
    random = np.random.default_rng(1)
    lengths = (5, 1, 9, 3, 3, 20, 2)
    texts = [random.integers(0, WORDS, length).astype(np.int32) for length in lengths]
    expected = np.array([by_hand(rows, table, encoder) for rows in texts])
    # The maximum of a long one comes from several places, so that taking the last state or the
    # mean would be seen, and the order of words matters.
    for other in (texts[2][-1:], texts[2][::-1]):
        assert np.abs(expected[2] - by_hand(other, table, encoder)).max() > 0.01
    order = random.permutation(len(texts))
    for batch_size in (1, 3, 64):
        shuffled = vectors(encoder, [texts[i] for i in order], table, batch_size=batch_size)
        np.testing.assert_allclose(shuffled, expected[order], rtol=0, atol=1e-6)


def test_what_stands_after_the_end_of_a_sentence_does_not_count(encoder, table):
    for padding in (0.0, 1e3, float("nan")):
        words = torch.full((2, 6, SIZE), padding)
        words[0, :2] = torch.from_numpy(table[[1, 2]])
        words[1] = torch.from_numpy(table[[3, 4, 5, 6, 7, 8]])
        with torch.no_grad():
            found = encoder(words, torch.tensor([2, 6]))
            alone = encoder(words[:1, :2], torch.tensor([2]))
        torch.testing.assert_close(found[:1], alone, rtol=0, atol=1e-7)


def test_a_document_without_a_known_word_is_a_row_of_zeros_among_others_and_alone(encoder, table):
    found = vectors(encoder, documents([3], [], [-1, -1], [4]), table)
    assert found.any(axis=1).tolist() == [True, False, False, True]
    np.testing.assert_array_equal(
        vectors(encoder, documents([], [-1]), table), np.zeros((2, 2 * UNITS))
    )


# ---------------------------------------------------------------- an encoder that is never trained


def test_a_random_encoder_has_the_same_bits_for_a_seed_whatever_ran_before():
    made = []
    for state, seed in ((1, 7), (2, 7), (2, 8)):
        torch.manual_seed(state)
        made.append(random_encoder(seed, SIZE, UNITS).state_dict())
    first, second, other = made
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


# ---------------------------------------------------------------- files of weights


def test_an_encoder_is_read_back_to_the_last_bit_with_its_own_size(encoder, table, tmp_path):
    path = tmp_path / "a" / "encoder.pt"
    save_encoder(encoder, path)
    found = load_encoder(path)
    assert not found.training
    assert found.enc_lstm.hidden_size == UNITS
    assert found.enc_lstm.input_size == SIZE
    texts = documents([1, 2, 3], [4])
    assert np.array_equal(vectors(found, texts, table), vectors(encoder, texts, table))
    assert [file.name for file in path.parent.iterdir()] == ["encoder.pt"], (
        "no temporary file stays"
    )


def test_the_old_format_of_the_published_weights_is_read_too(encoder, tmp_path):
    path, weights = tmp_path / "infersent1.pkl", encoder.state_dict()
    torch.save(weights, path, _use_new_zipfile_serialization=False)
    for name, value in load_encoder(path).state_dict().items():
        assert torch.equal(value, weights[name])


class Harmful:
    """What a pickle can do when it is read by something that trusts it."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('code from the file was run')",))


OTHER_TENSORS = {
    "another shape": lambda weights: weights | {"enc_lstm.bias_hh_l0": torch.zeros(5)},
    "one too many": lambda weights: weights | {"enc_lstm.extra": torch.zeros(1)},
    "one direction": lambda weights: {
        name: value for name, value in weights.items() if "reverse" not in name
    },
    "a tensor alone": lambda weights: weights["enc_lstm.bias_hh_l0"],
    "code": lambda weights: Harmful(),
}


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")  # torch, of a tensor alone
def test_a_file_of_something_else_is_an_error_that_names_it_and_runs_none_of_its_code(
    encoder, tmp_path
):
    path = tmp_path / "encoder.pt"
    for change in OTHER_TENSORS.values():
        torch.save(change(dict(encoder.state_dict())), path)
        with pytest.raises(EncoderError, match=re.escape(str(path))):
            load_encoder(path)


# ---------------------------------------------------------------- training on inference

SMALL = {"units": 8, "hidden": 16, "batch_size": 32, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def task():
    """A made-up inference task that a tiny encoder can learn: entailed if a word comes back,
    contradicted if "not" (row 0) comes with it.
    """
    random = np.random.default_rng(0)

    def split(count):
        labels = np.arange(count) % 3
        premises = [random.integers(1, 6, random.integers(1, 4)).astype(np.int32) for _ in labels]
        hypotheses = []
        for premise, label in zip(premises, labels, strict=True):
            other = random.choice(np.setdiff1d(np.arange(1, 6), premise))
            hypotheses.append(
                np.array([[premise[0]], [other], [0, premise[0]]][label], dtype=np.int32)
            )
        return premises, hypotheses, labels

    return {"train": split(600), "dev": split(150), "test": split(150)}, random.normal(
        size=(6, SIZE)
    ).astype(np.float32)


@pytest.fixture(scope="module")
def trained(task):
    lines = []
    encoder, scores = train_nli(*task, epochs=8, progress=lines.append, **SMALL)
    return encoder, scores, lines


def test_a_small_encoder_learns_a_task_that_can_be_learned(trained):
    encoder, scores, lines = trained
    assert scores.keys() == {"nli_dev_acc", "nli_test_acc", "nli_epoch"}
    assert scores["nli_dev_acc"] > 0.7 and scores["nli_test_acc"] > 0.7, "one of three by chance"
    assert type(encoder) is InferSent and not encoder.training and encoder.enc_lstm.hidden_size == 8
    losses = [float(re.search(r"training loss ([\d.]+)", line)[1]) for line in lines]
    assert losses[-1] < 0.7 * losses[0]


def test_the_epoch_with_the_best_dev_accuracy_is_kept(task):
    # Labels drawn by chance, so that the accuracy on dev goes up and down; the case meant has
    # its best epoch between the first and the last.
    whole, table = task
    for seed in range(10):
        random, lines = np.random.default_rng(seed), []
        pairs = {
            name: (*sides, random.permutation(labels)) for name, (*sides, labels) in whole.items()
        }
        encoder, scores = train_nli(pairs, table, epochs=6, progress=lines.append, **SMALL)
        dev = [float(re.search(r"dev accuracy ([\d.]+)", line)[1]) for line in lines]
        best = int(np.argmax(dev))
        if 0 < best < 5 and dev[best] > dev[5]:
            break
    else:
        pytest.fail("none of the cases is the one meant")
    assert scores["nli_epoch"] == best
    assert scores["nli_dev_acc"] == pytest.approx(dev[best], abs=5e-4)
    stopped, same = train_nli(pairs, table, epochs=best + 1, **SMALL)  # a training that ends there
    assert same == scores
    assert all(
        torch.equal(value, stopped.state_dict()[name])
        for name, value in encoder.state_dict().items()
    )


def test_training_gives_the_same_bits_for_a_seed_and_leaves_all_else_as_it_was(task):
    pairs, table = task
    pairs = pairs | {"train": tuple(part[:64] for part in pairs["train"])}
    before, words = torch.get_rng_state(), table.copy()
    first, scores = train_nli(pairs, table, epochs=1, **SMALL)
    assert torch.equal(torch.get_rng_state(), before) and np.array_equal(table, words)
    torch.manual_seed(9)
    second, again = train_nli(pairs, table, epochs=1, **SMALL)
    other, _ = train_nli(pairs, table, epochs=1, seed=43, **SMALL)
    assert scores == again
    assert all(
        torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items()
    )
    assert not torch.equal(first.enc_lstm.weight_hh_l0, other.enc_lstm.weight_hh_l0)


def test_pairs_that_are_not_whole_are_an_error(task):
    pairs, table = task
    for wrong in (
        (documents([1]), documents([-1]), np.array([0])),  # a word without a vector
        (documents([1]), documents([]), np.array([0])),  # a sentence without a word
        (documents([1], [2]), documents([1]), np.array([0, 1])),  # a hypothesis is missing
        (documents([1], [2]), documents([1], [2]), np.array([0])),  # a label is missing
    ):
        for split in ("train", "test"):
            with pytest.raises(ValueError, match=r"must be equal in number, got|must have a word"):
                train_nli(pairs | {split: wrong}, table, epochs=1, **SMALL)
