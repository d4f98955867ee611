"""Transformers that turn a text into one vector (ClusterBERT paper, Secs. 3.1 and 4.1).

An encoder is a backbone with its weights and a pooling. It is used as published, or fine-tuned by
``clusterbert`` and ``sccl``.
"""

import sys

import numpy as np
import torch
from torch import nn

from snnl_book.embeddings import backbones
from snnl_book.embeddings.backbones import BackboneError, Pieces, open_backbone, tokenize
from snnl_lib.training import progress_bar

PACKABLE = {"bert", "roberta", "xlm-roberta", "camembert"}
"""Kinds whose texts may stand several in a row: they know positions by absolute numbers alone."""
AS_IT_LIES = {"local_files_only": True, "dtype": torch.float32}  # how weights are read


class SentenceEncoder(nn.Module):
    """A transformer and its pooling.

    ``cls`` takes the vector of the first piece, which is z = enc(x) of the ClusterBERT paper (Sec.
    3.1), ``mean`` the mean over a text's pieces, ends included. ``transformer`` is a model of
    transformers that returns ``last_hidden_state`` [B, L, D]. Raises ValueError for another
    ``pooling``.

    >>> pieces = tokenize(["rain again", "wind"], "minilm")
    >>> load_encoder("minilm")(*pieces.batch(pieces.ids)).shape
    torch.Size([2, 384])
    """

    def __init__(self, transformer, pooling="cls"):
        super().__init__()
        if pooling not in backbones.POOLINGS:
            known = ", ".join(backbones.POOLINGS)
            raise ValueError(f"pooling must be one of {known}, got {pooling!r}")
        self.transformer, self.pooling = transformer, pooling

    def forward(self, ids, mask):
        """Return the embeddings [B, D] of the pieces ``ids`` [B, L] where ``mask`` [B, L] is 1."""
        packs = self.training and self.transformer.config.model_type in PACKABLE
        hidden = self._packed(ids, mask.bool()) if packs else self.transformer(ids, mask)[0]
        if self.pooling == "cls":
            return hidden[:, 0]
        weights = mask[..., None].to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1)

    def _packed(self, ids, mask):
        """Return the hidden states [B, L, D] of texts read several in a row of L, where they fit.

        So less is computed that nobody reads. What is after the end of a text means nothing.
        """
        lengths, used, (count, width) = mask.sum(dim=1).tolist(), [0] * len(ids), ids.shape
        places = torch.arange(width, device=ids.device).repeat(count, 1)
        for text in sorted(range(count), key=lengths.__getitem__, reverse=True):
            row = next(row for row, taken in enumerate(used) if taken + lengths[text] <= width)
            places[text] += row * width + used[row]
            used[row] += lengths[text]
        packed = ids.new_zeros(sum(map(bool, used)) * width, 3)
        # BERT counts positions from 0, RoBERTa from the one after its padding's.
        padding = self.transformer.embeddings.position_embeddings.padding_idx
        first = 0 if padding is None else padding + 1
        numbers = mask.nonzero() + ids.new_tensor([1, first])
        packed[places[mask]] = torch.column_stack([ids[mask], numbers])
        ids, texts, positions = packed.unflatten(0, (-1, width)).unbind(dim=2)
        same = texts[:, None, :, None] == texts[:, None, None]
        return self.transformer(ids, same, position_ids=positions)[0].flatten(0, 1)[places * mask]


def load_encoder(name: str, pooling: str | None = None) -> SentenceEncoder:
    """Load a backbone with its published weights, in float32 and ready for use (``eval``).

    ``name`` is one of ``BACKBONES`` or the path of a folder. ``pooling`` is ``cls`` or ``mean``;
    default: the one it was trained with. Raises BackboneError for an unknown name and for weights
    that are not here or damaged, ValueError for an unknown pooling.

    >>> load_encoder("minilm").pooling, load_encoder("minilm", "cls").pooling
    ('mean', 'cls')
    """
    with open_backbone(name) as (transformers, folder):
        try:
            options = {"add_pooling_layer": False, **AS_IT_LIES}
            transformer = transformers.AutoModel.from_pretrained(folder, **options)
        except Exception as error:  # damaged weights or settings can raise nearly anything
            advice = "remove and fetch them again"
            if backbones.local_folder(name):
                advice = "take a folder in which transformers has saved a BERT or RoBERTa"
            problem = f"the weights of {name} in {folder} cannot be read ({error!r})"
            raise BackboneError(f"{problem}: {advice}") from error
    return SentenceEncoder(transformer, pooling or backbones.parse(name)[1]).eval()


def load_language_model(name: str):
    """Load a backbone as a causal language model that can also look at a vector from outside.

    What its weights lack starts at random. Raises BackboneError if the weights are not here, or of
    a kind that cannot decode.
    """
    with open_backbone(name) as (transformers, folder):
        # A config of its own: a shared one would make the encoder causal.
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        config.is_decoder = config.add_cross_attention = True
        try:
            model_class = transformers.AutoModelForCausalLM
            return model_class.from_pretrained(folder, config=config, **AS_IT_LIES)
        except ValueError as error:
            problem = f"{name} is a {config.model_type}, which has no decoder"
            raise BackboneError(f"{problem}: take a BERT or RoBERTa") from error


def embed_texts(texts: list[str], name: str, pooling: str, device="cpu") -> np.ndarray:
    """Return a backbone's embeddings of texts as float32 array [N, D].

    Draws a progress bar on a terminal. Raises as ``tokenize`` and ``load_encoder``.
    """
    encoder, pieces = load_encoder(name, pooling), tokenize(texts, name)
    return encode(encoder, pieces, device=device, progress=name if sys.stderr.isatty() else None)


@torch.no_grad()
def encode(
    encoder: SentenceEncoder, pieces: Pieces, *, batch_size=64, device="cpu", progress=None
) -> np.ndarray:
    """Return the embeddings of N texts as float32 array [N, D], without dropout.

    Args:
        encoder: is moved to the device, and is trained or not afterwards as before.
        pieces: of ``tokenize``, with the same backbone.
        batch_size: texts at a time.
        device: as torch names it.
        progress: name of a progress bar, None for none.

    >>> texts = ["how to sort a list", "sorting lists", "rain is expected"]
    >>> vectors = encode(load_encoder("minilm"), tokenize(texts, "minilm"))
    >>> vectors.shape, bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
    ((3, 384), True)
    """
    was_training = encoder.training
    encoder.to(device).eval()
    # Texts of like length go together, the longest first: what does not fit into memory shows at
    # once.
    order = np.argsort([-len(ids) for ids in pieces.ids], kind="stable")
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    embedded = [
        encoder(*pieces.batch([pieces.ids[i] for i in batches[place]], device))
        .float()
        .cpu()
        .numpy()
        for place in progress_bar(progress, 0, len(batches), "batch")
    ]
    encoder.train(was_training)
    vectors = np.empty((len(pieces), embedded[0].shape[1]), dtype=np.float32)
    vectors[order] = np.concatenate(embedded)
    return vectors
