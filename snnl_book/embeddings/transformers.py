"""Transformers that turn a text into one vector (ClusterBERT paper, Secs. 3.1 and 4.1).

An encoder is a backbone with weights and a pooling, used as published or fine-tuned by
``clusterbert`` and ``sccl``.
"""

import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from snnl_book.embeddings import backbones
from snnl_book.embeddings.backbones import BackboneError, Pieces, open_backbone, tokenize
from snnl_lib.devices import exact_layers
from snnl_lib.training import progress_bar

PACKABLE = {"bert", "roberta", "xlm-roberta", "camembert"}
"""Types of transformer that can read several texts in one row: they only use absolute positions."""
LOADING = {"local_files_only": True, "dtype": torch.float32}


class Packed(NamedTuple):
    """Texts of a batch, several in a row where they fit; all tensors are int64.

    ``pieces`` [R, L, 3] holds for each slot the number of its piece, of its text (from 1; 0 where
    there is none) and of its position in the text. ``slots`` [B, L] says which of the R * L slots
    each piece of the batch is in; padding has slot 0.
    """

    pieces: torch.Tensor
    slots: torch.Tensor


def pack(ids: torch.Tensor, mask: torch.Tensor, first_position: int = 0) -> Packed:
    """Pack the texts of a padded batch into fewer rows, so that less padding is computed.

    ``ids`` and ``mask`` [B, L] are those of ``Pieces.batch``. The longest text comes first, and
    each goes into the first row with room for it. ``first_position`` is the position of a text's
    first piece: BERT counts from 0, RoBERTa from the number after its padding's.

    >>> ids = torch.tensor([[5, 6, 7, 8], [5, 8, 0, 0], [5, 8, 0, 0]])
    >>> pack(ids, (ids > 0).long()).pieces[..., 0]
    tensor([[5, 6, 7, 8],
            [5, 8, 5, 8]])
    """
    count, width = ids.shape
    lengths = mask.sum(dim=1).tolist()
    filled = [0] * count  # slots taken in each row
    starts = [0] * count
    for text in sorted(range(count), key=lengths.__getitem__, reverse=True):
        row = next(row for row, taken in enumerate(filled) if taken + lengths[text] <= width)
        starts[text] = row * width + filled[row]
        filled[row] += lengths[text]
    rows = sum(taken > 0 for taken in filled)
    is_text = mask.bool()
    slots = torch.arange(width) + torch.tensor(starts)[:, None]
    text_and_position = is_text.nonzero() + torch.tensor([1, first_position])
    pieces = torch.zeros(rows * width, 3, dtype=torch.int64)
    pieces[slots[is_text]] = torch.column_stack([ids[is_text], text_and_position])
    return Packed(pieces.unflatten(0, (rows, width)), slots * mask)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a batch from the CPU to a device, without waiting for the device to finish.

    CUDA and XPU take a copy of the batch first. MPS may still read it after it is freed.
    """
    return tensor.to(device, non_blocking=device.type in ("cuda", "xpu"))


class SentenceEncoder(nn.Module):
    """A transformer and its pooling.

    ``cls`` takes the vector of the first piece, which is z = enc(x) of the ClusterBERT paper (Sec.
    3.1). ``mean`` takes the mean over a text's pieces, ends included. ``transformer`` is a model of
    the package transformers that returns ``last_hidden_state`` [B, L, D]. Raises ValueError for
    another ``pooling``.

    >>> pieces = tokenize(["rain again", "wind"], "minilm")
    >>> load_encoder("minilm")(*pieces.batch(pieces.ids)).shape
    torch.Size([2, 384])
    """

    def __init__(self, transformer, pooling="cls"):
        super().__init__()
        if pooling not in backbones.POOLINGS:
            choice = ", ".join(backbones.POOLINGS)
            raise ValueError(f"pooling must be one of {choice}, got {pooling!r}")
        self.transformer = transformer
        self.pooling = pooling

    def forward(self, ids, mask):
        """Return the embeddings [B, D] of the pieces ``ids`` [B, L] where ``mask`` [B, L] is 1.

        Both lie on the CPU, as ``Pieces.batch`` returns them: they are packed there, so that no
        step of a training has to wait for the device.
        """
        device = self.transformer.device
        if self.training and self.transformer.config.model_type in PACKABLE:
            hidden = self._packed(ids, mask, device)
        else:
            hidden = self.transformer(to_device(ids, device), to_device(mask, device))[0]
        if self.pooling == "cls":
            return hidden[:, 0]
        weights = to_device(mask[..., None], device).to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1)

    def _packed(self, ids, mask, device):
        """Return the hidden states [B, L, D] of packed texts; those of padding are arbitrary."""
        padding = self.transformer.embeddings.position_embeddings.padding_idx
        pieces, slots = pack(ids, mask, 0 if padding is None else padding + 1)
        numbers, texts, positions = to_device(pieces, device).unbind(dim=2)
        same_text = texts[:, None, :, None] == texts[:, None, None]
        hidden = self.transformer(numbers, same_text, position_ids=positions)[0]
        return hidden.flatten(0, 1)[to_device(slots, device)]


def load_encoder(name: str, pooling: str | None = None) -> SentenceEncoder:
    """Load a backbone with its published weights, in float32 and in evaluation mode.

    ``name`` is one of ``BACKBONES`` or the path of a folder. ``pooling`` is ``cls`` or ``mean``;
    the default is the one the backbone was trained with. Raises BackboneError for an unknown name
    and for missing or damaged weights, ValueError for an unknown pooling.

    >>> load_encoder("minilm").pooling, load_encoder("minilm", "cls").pooling
    ('mean', 'cls')
    """
    with open_backbone(name) as (transformers, folder):
        try:
            options = {"add_pooling_layer": False, **LOADING}
            transformer = transformers.AutoModel.from_pretrained(folder, **options)
        except Exception as error:  # damaged weights or settings can raise nearly anything
            advice = "remove and fetch them again"
            if backbones.local_folder(name):
                advice = "use a folder to which transformers has saved a BERT or RoBERTa model"
            problem = f"the weights of {name} in {folder} cannot be read ({error!r})"
            raise BackboneError(f"{problem}: {advice}") from error
    return SentenceEncoder(transformer, pooling or backbones.parse(name)[1]).eval()


def load_language_model(name: str):
    """Load a backbone as a causal language model with an attention to a vector from outside.

    Parameters without published weights start at random. Raises BackboneError if the weights are
    missing, or the transformer cannot decode.
    """
    with open_backbone(name) as (transformers, folder):
        # The encoder keeps a configuration of its own: sharing this one would make it causal.
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        config.is_decoder = config.add_cross_attention = True
        try:
            model_class = transformers.AutoModelForCausalLM
            return model_class.from_pretrained(folder, config=config, **LOADING)
        except ValueError as error:
            problem = f"{name} is a model of the type {config.model_type}, which has no decoder"
            raise BackboneError(f"{problem}: use a BERT or RoBERTa model") from error


def embed_texts(
    texts: list[str], name: str, pooling: str, device="cpu", max_pieces=backbones.MAX_PIECES
) -> np.ndarray:
    """Return a backbone's embeddings of texts, cut at ``max_pieces``, as float32 array [N, D].

    Draws a progress bar on a terminal. Raises as ``tokenize`` and ``load_encoder``.
    """
    encoder = load_encoder(name, pooling)
    pieces = tokenize(texts, name, max_pieces=max_pieces)
    progress = name if sys.stderr.isatty() else None
    return encode(encoder, pieces, device=device, progress=progress)


@torch.no_grad()
@exact_layers()
def encode(
    encoder: SentenceEncoder, pieces: Pieces, *, batch_size=64, device="cpu", progress=None
) -> np.ndarray:
    """Return the embeddings of N texts as float32 array [N, D], without dropout.

    Args:
        encoder: is moved to the device. Its training or evaluation mode stays as it was.
        pieces: the texts, from ``tokenize`` with the same backbone.
        batch_size: texts at a time.
        device: as torch names it.
        progress: the name of a progress bar, None for none.

    >>> texts = ["how to sort a list", "sorting lists", "rain is expected"]
    >>> vectors = encode(load_encoder("minilm"), tokenize(texts, "minilm"))
    >>> vectors.shape, bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
    ((3, 384), True)
    """
    was_training = encoder.training
    encoder.to(device).eval()
    # Texts of similar length share a batch. The longest come first: if they do not fit into memory,
    # the error comes at once.
    order = np.argsort([-len(ids) for ids in pieces.ids], kind="stable")
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    embedded = [
        encoder(*pieces.batch([pieces.ids[i] for i in batches[number]])).float().cpu().numpy()
        for number in progress_bar(progress, 0, len(batches), "batch")
    ]
    encoder.train(was_training)
    vectors = np.empty((len(pieces), embedded[0].shape[1]), dtype=np.float32)
    vectors[order] = np.concatenate(embedded)
    return vectors
