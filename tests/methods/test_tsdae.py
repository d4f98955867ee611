"""TSDAE: words deleted, Eq. 1 of ClusterBERT by hand, and what its decoder can see."""

import numpy as np
import pytest
import torch
from conftest import SHORT_TEXTS as TEXTS

from snnl_book.embeddings.backbones import tokenize
from snnl_book.embeddings.transformers import load_encoder
from snnl_book.methods import tsdae
from snnl_book.methods.tsdae import Decoder, delete_words

# ---------------------------------------------------------------- deletion


def test_words_are_deleted_whole_at_the_rate_that_is_asked_for():
    random, words = np.random.default_rng(0), np.repeat(np.arange(2000), 3)
    for ratio in (0.0, 0.3, 0.6):
        kept = delete_words(np.arange(6000), words, ratio, random)
        shares = np.unique(words[kept], return_counts=True)[1]
        assert (shares == 3).all()  # a word goes or stays with all its pieces
        assert len(shares) / 2000 == pytest.approx(1 - ratio, abs=0.03)
        assert (np.diff(kept) > 0).all()


def test_one_word_always_stays_and_each_can_be_the_one():
    random, ids, words = np.random.default_rng(0), np.array([5, 6, 7, 8]), np.array([0, 0, 1, 2])
    stayed = {tuple(delete_words(ids, words, 1.0, random)) for _ in range(100)}
    assert stayed == {(5, 6), (7,), (8,)}


def test_of_a_text_without_words_nothing_can_be_deleted():
    nothing = np.array([], dtype=np.int32)
    assert delete_words(nothing, nothing, 0.6, np.random.default_rng(0)).size == 0


# ---------------------------------------------------------------- Eq. 1 by hand


@pytest.mark.parametrize("name", ["minilm", "roberta-base"])
def test_the_reconstruction_loss_is_equation_1_one_piece_after_the_other(name, roberta):
    pieces = tokenize(TEXTS, name)
    encoder = load_encoder(name, "cls")
    decoder = Decoder(name, encoder, pieces).eval()
    with torch.no_grad():
        ids, mask = pieces.batch(pieces.ids)
        embedding = encoder(ids, mask)
        logs = []
        for own, z in zip(pieces.ids, embedding, strict=True):
            whole = [pieces.start, *own.tolist(), pieces.end]
            # The next piece from those before, one text and one place at a time.
            for place in range(1, len(whole)):
                seen = torch.tensor([whole[:place]])
                logits = decoder.head(decoder.hidden(z[None], seen, torch.ones_like(seen)))[0, -1]
                logs.append(-logits.log_softmax(dim=0)[decoder.row_of_piece[whole[place]]].item())
        assert decoder(embedding, ids, mask).item() == pytest.approx(np.mean(logs), rel=1e-4)


# ---------------------------------------------------------------- what the decoder can see


@pytest.fixture(params=["minilm", "roberta-base"])
def decoding(request, roberta):
    pieces = tokenize(TEXTS, request.param)
    encoder = load_encoder(request.param, "cls")
    return encoder, Decoder(request.param, encoder, pieces).eval(), pieces


@torch.no_grad()
def test_a_later_piece_does_not_change_an_earlier_prediction(decoding):
    encoder, decoder, pieces = decoding
    ids, mask = pieces.batch(pieces.ids[:1])
    embedding, changed = encoder(ids, mask), ids.clone()
    changed[0, 4] = pieces.ids[1][0] if ids[0, 4] != pieces.ids[1][0] else pieces.ids[1][1]
    first, second = (decoder.hidden(embedding, own, mask) for own in (ids, changed))
    torch.testing.assert_close(first[:, :4], second[:, :4], atol=1e-6, rtol=0)
    assert (first[:, 4:] - second[:, 4:]).abs().amax(dim=2).min() > 1e-4


@torch.no_grad()
def test_nothing_but_the_embedding_reaches_the_decoder(decoding):
    encoder, decoder, pieces = decoding
    first, other = (pieces.batch([pieces.ids[i]]) for i in (0, 3))
    embedding, another = encoder(*first), encoder(*other)
    # What is known before a piece is written: of two texts with one embedding the same, of one
    # text with two embeddings not.
    start, same, different = (
        decoder.hidden(known, *text)[:, 0]
        for known, text in ((embedding, first), (embedding, other), (another, first))
    )
    torch.testing.assert_close(same, start, atol=1e-6, rtol=0)
    assert (different - start).abs().max() > 1e-4


def test_encoder_and_decoder_share_all_weights_but_the_new_ones(decoding):
    encoder, decoder, _ = decoding
    shared, own = (dict(part.transformer.named_parameters()) for part in (encoder, decoder))
    assert all(own[path] is weight for path, weight in shared.items() if path in own)
    for path in decoder.new_parameters:
        path = path.removeprefix("transformer.")
        assert "crossattention" in path or path.startswith("head")
    # The settings are not shared: the encoder reads in both directions.
    assert not encoder.transformer.config.is_decoder


@torch.no_grad()
def test_the_output_layer_knows_the_pieces_of_the_corpus_alone_and_agrees_with_the_whole_one(
    decoding,
):
    encoder, decoder, pieces = decoding
    kept = np.unique(np.concatenate([*pieces.ids, [pieces.end]]))
    ids, mask = pieces.batch(pieces.ids)
    hidden = decoder.hidden(encoder(ids, mask), ids, mask)
    words = encoder.transformer.get_input_embeddings()
    weight = words(torch.arange(len(words.row_of_piece)))  # of the whole vocabulary
    layers, seen = decoder.head.modules(), []
    output = next(layer for layer in layers if isinstance(layer, tsdae._OutputLayer))
    with output.register_forward_hook(lambda _, given, __: seen.append(given[0])):
        logits = decoder.head(hidden)
    assert logits.shape[-1] == len(kept)
    # The biases start at 0.
    torch.testing.assert_close(logits, (seen[0] @ weight.T)[..., kept], atol=1e-5, rtol=0)
