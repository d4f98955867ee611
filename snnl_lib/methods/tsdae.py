"""TSDAE: a sentence embedding trained to write its text again, of which the encoder saw only some
words. ClusterBERT's Eq. 1.

Wang et al., *TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised
Sentence Embedding Learning*, 2021.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from snnl_lib.embeddings.backbones import Pieces
from snnl_lib.embeddings.transformers import SentenceEncoder, load_language_model


def kept_words(count: int, ratio: float, random: np.random.Generator) -> np.ndarray:
    """Draw which of a text's words stay (bool [count]) when each is deleted with probability
    ``ratio`` in [0, 1], by ``random``.

    One that is drawn stays where none would (Wang et al., 2021). ``count`` is 1 or more.

    >>> kept_words(3, 1.0, np.random.default_rng(42)).sum()
    np.int64(1)
    """
    kept = random.random(count) >= ratio
    kept[random.integers(count)] |= not kept.any()
    return kept


def delete_words(
    ids: np.ndarray, words: np.ndarray, ratio: float, random: np.random.Generator
) -> np.ndarray:
    """Delete words of a text as ``kept_words`` draws them, all pieces of a word at once, and return
    the pieces that stay.

    ``ids`` and ``words`` are those of one text of ``Pieces``, int arrays [L]; ``ratio`` and
    ``random`` as of ``kept_words``. A text without words stays empty.

    >>> ids, words = np.array([4542, 1010, 2153]), np.array([0, 1, 1])
    >>> delete_words(ids, words, 0.5, np.random.default_rng(0))
    array([4542])
    """
    return ids[kept_words(words[-1] + 1, ratio, random)[words]] if len(ids) else ids


class _KeptPieces(nn.Module):
    """An output layer of the word embedding's own rows, but of some pieces only."""

    def __init__(self, weight, kept):
        super().__init__()
        self.weight, self.bias = weight, nn.Parameter(torch.zeros(len(kept)))
        self.register_buffer("kept", kept, persistent=False)

    def forward(self, hidden):
        return F.linear(hidden, self.weight[self.kept], self.bias)


class Decoder(nn.Module):
    """The decoder of TSDAE: the encoder's own layers, made causal, and in each one attention more,
    to the sentence embedding and nothing else.

    All weights that the encoder has are shared with it (Wang et al., 2021); ``new_parameters``
    (name -> parameter) are the others, which start at random. The output layer knows the pieces
    that occur in the texts alone, which are all that can be a target.

    Args:
        name: a backbone.
        encoder: of the same backbone, by ``load_encoder``.
        pieces: of all texts that will be written.

    Raises:
        BackboneError: weights that are not here, or a kind of transformer that cannot decode: BERT
            and RoBERTa can.

    >>> from snnl_lib.embeddings.backbones import tokenize
    >>> from snnl_lib.embeddings.transformers import load_encoder
    >>> pieces = tokenize(["rain again", "wind"], "minilm")
    >>> encoder, batch = load_encoder("minilm"), pieces.batch(pieces.ids)
    >>> decoder = Decoder("minilm", encoder, pieces)
    >>> decoder(encoder(*batch), *batch).shape  # Eq. 1 of both texts
    torch.Size([])
    """

    def __init__(self, name: str, encoder: SentenceEncoder, pieces: Pieces):
        super().__init__()
        language_model = load_language_model(name)
        kept = torch.as_tensor(
            np.unique(np.concatenate([*pieces.ids, [pieces.end]])).astype(np.int64)
        )
        self.transformer, shared = (
            language_model.base_model,
            dict(encoder.transformer.named_parameters()),
        )
        for path, _ in list(self.transformer.named_parameters()):
            if path in shared:
                module, _, attribute = path.rpartition(".")
                setattr(self.transformer.get_submodule(module), attribute, shared[path])
        language_model.set_output_embeddings(
            _KeptPieces(shared["embeddings.word_embeddings.weight"], kept)
        )
        self.head = language_model.cls if hasattr(language_model, "cls") else language_model.lm_head
        self.register_buffer(
            "place",
            torch.zeros(language_model.config.vocab_size, dtype=torch.int64),
            persistent=False,
        )
        self.place[kept] = torch.arange(len(kept))
        same = set(shared.values())
        self.new_parameters = {
            path: own for path, own in self.named_parameters() if own not in same
        }

    def hidden(self, embedding, ids, mask):
        """Return the hidden states [B, L, D] that predict the piece after each of ``ids`` [B, L]
        from these and the sentence embedding [B, D].
        """
        seen = torch.ones(len(ids), 1, dtype=mask.dtype, device=mask.device)
        found = self.transformer(
            input_ids=ids,
            attention_mask=mask,
            encoder_hidden_states=embedding[:, None],
            encoder_attention_mask=seen,
            use_cache=False,
        )
        return found.last_hidden_state

    def forward(self, embedding, ids, mask):
        """Return Eq. 1 of a batch, a number: the cross entropy of each piece of the clean texts
        ``ids`` [B, L] given those before it and the embedding [B, D].

        The mean is over all pieces of the batch, where the paper's is over texts. ``mask`` [B, L]
        is 1 where there is text.
        """
        hidden, wanted = self.hidden(embedding, ids[:, :-1], mask[:, :-1]), mask[:, 1:].bool()
        return F.cross_entropy(self.head(hidden[wanted]).float(), self.place[ids[:, 1:][wanted]])
