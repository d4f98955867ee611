"""TSDAE, ClusterBERT's Eq. 1: an embedding learns to write a text of which it saw some words.

Wang et al., *TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised
Sentence Embedding Learning*, 2021.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from snnl_book.embeddings.backbones import Pieces
from snnl_book.embeddings.transformers import SentenceEncoder, load_language_model


def kept_words(count: int, ratio: float, random: np.random.Generator) -> np.ndarray:
    """Draw which of a text's words stay when each is deleted with probability ``ratio``.

    ``count`` is the number of words, 1 or more; ``ratio`` lies in [0, 1]; ``random`` draws. Where
    none would stay, one does, drawn too (Wang et al., 2021). Returns a bool array [count].

    >>> kept_words(3, 1.0, np.random.default_rng(42)).sum()
    np.int64(1)
    """
    kept = random.random(count) >= ratio
    kept[random.integers(count)] |= not kept.any()
    return kept


def delete_words(ids: np.ndarray, words: np.ndarray, ratio: float, random) -> np.ndarray:
    """Delete words of a text, all pieces of a word at once, and return the pieces that stay.

    ``ids`` and ``words`` are those of one text of ``Pieces``, int arrays [L]; ``ratio`` and
    ``random`` are as in ``kept_words``. A text without words stays empty.

    >>> ids, words = np.array([4542, 1010, 2153]), np.array([0, 1, 1])
    >>> delete_words(ids, words, 0.5, np.random.default_rng(0))
    array([4542])
    """
    return ids[kept_words(words[-1] + 1, ratio, random)[words]] if len(ids) else ids


class _KnownPieces(nn.Module):
    """A word embedding whose rows ``known`` alone learn, as no loss of their texts moves others."""

    def __init__(self, whole, known):
        super().__init__()
        order = np.r_[known, np.setdiff1d(np.arange(len(whole)), known)]
        rows, others = whole[order].tensor_split([len(known)])
        self.weight, self.others = nn.Parameter(rows.clone()), nn.Buffer(others)
        self.place = nn.Buffer(torch.from_numpy(order.argsort()).to(whole.device))  # of a piece

    def forward(self, ids):
        place, rows = self.place[ids], (self.weight, self.others)  # the others: of new texts only
        return F.embedding(place, rows[0] if place.max() < len(rows[0]) else torch.cat(rows))

    def whole(self):
        """Return the rows [V, D] of all pieces in the order of their numbers."""
        return torch.cat([self.weight, self.others])[self.place]


class _KeptPieces(nn.Module):
    """An output layer of the first rows of a word embedding's ``weight``."""

    def __init__(self, weight, count):
        super().__init__()
        self.weight, self.bias = weight, nn.Parameter(torch.zeros(count))

    def forward(self, hidden):
        return F.linear(hidden, self.weight[: len(self.bias)], self.bias)


class Decoder(nn.Module):
    """The decoder of TSDAE: the encoder's own layers, made causal, and in each one attention more.

    That attention looks at the sentence embedding and nothing else. All weights that the encoder
    has are shared with it (Wang et al., 2021); ``new_parameters`` (name -> parameter) are the
    others, which start at random. The output layer knows the pieces that occur in the texts alone,
    which are all that can be a target; these are also all that learn in the word embedding, which
    it changes in the encoder.

    Args:
        name: a backbone.
        encoder: of the same backbone, by ``load_encoder``.
        pieces: of all texts that will be written.

    Raises:
        BackboneError: weights that are not here, or a kind of transformer that cannot decode: BERT
            and RoBERTa can.

    >>> from snnl_book.embeddings.backbones import tokenize
    >>> from snnl_book.embeddings.transformers import load_encoder
    >>> pieces = tokenize(["rain again", "wind"], "minilm")
    >>> encoder, batch = load_encoder("minilm"), pieces.batch(pieces.ids)
    >>> decoder = Decoder("minilm", encoder, pieces)
    >>> decoder(encoder(*batch), *batch).shape  # Eq. 1 of both texts
    torch.Size([])
    """

    def __init__(self, name: str, encoder: SentenceEncoder, pieces: Pieces):
        super().__init__()
        kept = np.unique(np.concatenate([*pieces.ids, [pieces.end]]))
        known = list(dict.fromkeys([*kept, pieces.start, pieces.pad]))
        words = _KnownPieces(encoder.transformer.get_input_embeddings().weight.detach(), known)
        language_model = load_language_model(name)
        self.transformer = language_model.base_model
        for transformer in (encoder.transformer, self.transformer):
            transformer.set_input_embeddings(words)
        shared = dict(encoder.transformer.named_parameters())
        for path, _ in list(self.transformer.named_parameters()):
            if path in shared:
                module, _, attribute = path.rpartition(".")
                setattr(self.transformer.get_submodule(module), attribute, shared[path])
        for layer in self.transformer.encoder.layer:  # of one vector the weight is 1 in any case
            layer.crossattention.self.query = layer.crossattention.self.key = nn.Identity()
        language_model.set_output_embeddings(_KeptPieces(words.weight, len(kept)))
        self.head = language_model.cls if hasattr(language_model, "cls") else language_model.lm_head
        self.place = words.place  # of a piece, in the output layer
        encoders = set(shared.values())
        named = self.named_parameters()
        self.new_parameters = {name: value for name, value in named if value not in encoders}

    def hidden(self, embedding, ids, mask):
        """Return the hidden states [B, L, D] that predict the piece after each of the ``ids``.

        They see ``ids`` [B, L] up to there, where ``mask`` [B, L] is 1, and the sentence
        ``embedding`` [B, D].
        """
        seen = torch.ones(len(ids), 1, dtype=mask.dtype, device=mask.device)
        before = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
        beside = {"encoder_hidden_states": embedding[:, None], "encoder_attention_mask": seen}
        return self.transformer(**before, **beside).last_hidden_state

    def forward(self, embedding, ids, mask):
        """Return Eq. 1 of a batch, a number: the cross entropy of each piece of the clean texts.

        Each piece of ``ids`` [B, L] is told from those before it and the ``embedding`` [B, D];
        ``mask`` [B, L] is 1 where there is text. The mean is over all pieces of the batch. In the
        paper it is over texts, and whether a text's sum is divided by its length is not said.
        """
        hidden, wanted = self.hidden(embedding, ids[:, :-1], mask[:, :-1]), mask[:, 1:].bool()
        return F.cross_entropy(self.head(hidden[wanted]).float(), self.place[ids[:, 1:][wanted]])
