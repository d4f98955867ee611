"""TSDAE, ClusterBERT's Eq. 1: a decoder predicts a text from the embedding of a noisy copy.

Wang et al., *TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised
Sentence Embedding Learning*, 2021.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from snnl_book.embeddings.backbones import Pieces
from snnl_book.embeddings.transformers import SentenceEncoder, load_language_model, to_device


def kept_words(count: int, ratio: float, random: np.random.Generator) -> np.ndarray:
    """Draw which of a text's words stay if each is deleted with probability ``ratio``.

    ``count`` is the number of words, 1 or more; ``ratio`` lies in [0, 1]; ``random`` draws. If all
    would be deleted, a random one stays (Wang et al., 2021). Returns a bool array [count].

    >>> kept_words(3, 1.0, np.random.default_rng(42)).sum()
    np.int64(1)
    """
    stays = random.random(count) >= ratio
    survivor = random.integers(count)
    if not stays.any():
        stays[survivor] = True
    return stays


def delete_words(ids: np.ndarray, words: np.ndarray, ratio: float, random) -> np.ndarray:
    """Delete words of a text, each with all its pieces, and return the pieces that stay.

    ``ids`` and ``words`` are those of one text of ``Pieces``, int arrays [L]; ``ratio`` and
    ``random`` are as in ``kept_words``. A text without words stays empty.

    >>> ids, words = np.array([4542, 1010, 2153]), np.array([0, 1, 1])
    >>> delete_words(ids, words, 0.5, np.random.default_rng(0))
    array([4542])
    """
    return ids[kept_words(words[-1] + 1, ratio, random)[words]] if len(ids) else ids


class _KnownPieces(nn.Module):
    """A word embedding in two parts: the rows of the pieces in the texts, and the others.

    Only the first part learns, because no loss of the texts moves the others. In training, all
    pieces must be known ones.
    """

    def __init__(self, table, known):
        super().__init__()
        order = np.r_[known, np.setdiff1d(np.arange(len(table)), known)]
        rows, others = table[order].tensor_split([len(known)])
        self.weight = nn.Parameter(rows.clone())
        self.others = nn.Buffer(others)
        self.row_of_piece = nn.Buffer(torch.from_numpy(order.argsort()).to(table.device))

    def forward(self, ids):
        rows = self.weight if self.training else torch.cat([self.weight, self.others])
        return F.embedding(self.row_of_piece[ids], rows)

    def whole(self):
        """Return the rows [V, D] of all pieces in the order of their numbers."""
        return torch.cat([self.weight, self.others])[self.row_of_piece]


class _OutputLayer(nn.Module):
    """An output layer that shares the first ``count`` rows of a word embedding's ``weight``."""

    def __init__(self, weight, count):
        super().__init__()
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(count))

    def forward(self, hidden):
        return F.linear(hidden, self.weight[: len(self.bias)], self.bias)


def _causal_mask(mask):
    """Return which positions each position attends to, bool [B, 1, L, L], from ``mask`` [B, L].

    Without padding it is None: attention is causal anyway. transformers would make the same mask,
    but ask the device whether there is padding, and so wait for it in each step.
    """
    if mask.all():
        return None
    causal = torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool).tril()
    return causal & mask[:, None, None].bool()


class Decoder(nn.Module):
    """The decoder of TSDAE: the encoder's layers made causal, each with one more attention.

    The additional attention sees only the sentence embedding. The decoder shares all weights of the
    encoder (Wang et al., 2021). ``new_parameters`` (name -> parameter) are the other weights, which
    start at random. The output layer only has the pieces that occur in the texts, because no others
    can be a target. In the word embedding, which the decoder replaces in the encoder too, only
    these pieces learn.

    Args:
        name: a backbone.
        encoder: an encoder of the same backbone, from ``load_encoder``.
        pieces: the pieces of all texts that the decoder is trained to write.

    Raises:
        BackboneError: weights that are not on this machine, or a transformer that cannot decode
            (BERT and RoBERTa can).

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
        targets = np.unique(np.concatenate([*pieces.ids, [pieces.end]]))
        known = list(dict.fromkeys([*targets, pieces.start, pieces.pad]))
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
        language_model.set_output_embeddings(_OutputLayer(words.weight, len(targets)))
        self.head = language_model.cls if hasattr(language_model, "cls") else language_model.lm_head
        self.row_of_piece = words.row_of_piece  # also its class in the output layer
        encoders = set(shared.values())
        named = self.named_parameters()
        self.new_parameters = {name: value for name, value in named if value not in encoders}

    def hidden(self, embedding, ids, mask):
        """Return the hidden states [B, L, D] that predict the piece after each of the ``ids``.

        Each sees the ``ids`` [B, L] up to its own position, where ``mask`` [B, L] is 1, and the
        sentence ``embedding`` [B, D]. ``ids`` and ``mask`` lie on the CPU.
        """
        device = embedding.device
        allowed = _causal_mask(mask)
        return self.transformer(
            input_ids=to_device(ids, device),
            attention_mask=None if allowed is None else to_device(allowed, device),
            encoder_hidden_states=embedding[:, None],
            use_cache=False,
        ).last_hidden_state

    def forward(self, embedding, ids, mask):
        """Return Eq. 1 of a batch, a number: the cross entropy of each piece of the clean texts.

        Each piece of ``ids`` [B, L] is predicted from those before it and the ``embedding`` [B, D];
        ``mask`` [B, L] is 1 where there is text. ``ids`` and ``mask`` lie on the CPU. The mean is
        over all pieces of the batch. In the paper it is over texts, and the paper does not say
        whether a text's sum is divided by its length.
        """
        hidden = self.hidden(embedding, ids[:, :-1], mask[:, :-1])
        is_text = mask[:, 1:].bool()
        positions = to_device(is_text.flatten().nonzero()[:, 0], embedding.device)
        pieces = to_device(ids[:, 1:][is_text], embedding.device)
        logits = self.head(hidden.flatten(0, 1)[positions]).float()
        return F.cross_entropy(logits, self.row_of_piece[pieces])
