"""The base of the estimators that take texts: a transformer, and how it is saved."""

import numpy as np
import torch
from sklearn.base import ClusterMixin

from snnl_book.embeddings.backbones import MAX_PIECES, load_tokenizer, tokenize, whole_characters
from snnl_book.embeddings.transformers import encode, load_encoder
from snnl_book.methods._saving import Estimator

BACKBONE = "backbone"  # a folder within a saved model, in the format of transformers


def checked_texts(texts) -> list[str]:
    """Return texts as a list, with half an emoji replaced by U+FFFD.

    Raises ValueError for anything but a non-empty list of strings.
    """
    wanted = "texts must be a non-empty list of strings"
    if isinstance(texts, dict) or getattr(texts, "ndim", 1) != 1:
        advice = "pass one column, such as df['title']"
        raise ValueError(f"{wanted}, got an object of type {type(texts).__name__}: {advice}")
    if isinstance(texts, str) or not hasattr(texts, "__len__") or not len(texts):
        raise ValueError(f"{wanted}, got {texts!r:.60}")
    texts = list(texts)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"{wanted}, got {text!r:.60} at index {index}")
    return [whole_characters(text) for text in texts]


class TextEstimator(ClusterMixin, Estimator):
    """An estimator with an ``encoder`` that assigns embeddings to clusters by ``_assign``."""

    max_pieces = MAX_PIECES

    @property
    def _device(self):
        return torch.device(self.device)

    def predict(self, texts: list[str]) -> np.ndarray:
        """Return the clusters of any N texts, as int array [N] of numbers in [0, k).

        Raises ValueError for anything but a list of texts, NotFittedError before ``fit``.
        """
        return self._assign(self.transform(texts))

    def transform(self, texts: list[str]) -> np.ndarray:
        """Return the embeddings of any N texts after the last stage, as float32 array [N, D].

        Raises as ``predict``.
        """
        self._check_fitted()
        return encode(self.encoder, self._cut(texts), device=self.device)

    def _cut(self, texts, anew=False):
        """Return the texts as pieces, cut by the tokenizer of the fit unless ``anew``."""
        texts = checked_texts(texts)
        if anew or not hasattr(self, "_tokenizer"):
            self._tokenizer = load_tokenizer(self.backbone)
        return tokenize(texts, self.backbone, self._tokenizer, self.max_pieces)

    def _save_further(self, folder):
        from safetensors.torch import save

        transformer = self.encoder.transformer
        weights = transformer.state_dict()
        words = transformer.get_input_embeddings()
        if hasattr(words, "whole"):  # ClusterBERT's word embedding has two parts
            name = next(name for name, part in transformer.named_modules() if part is words)
            weights = {
                key: value for key, value in weights.items() if not key.startswith(f"{name}.")
            }
            weights[f"{name}.weight"] = words.whole()
        transformer.config.architectures = [type(transformer).__name__]
        transformer.config.save_pretrained(folder / BACKBONE)
        self._tokenizer.save_pretrained(folder / BACKBONE)
        weights = {name: value.cpu().contiguous() for name, value in weights.items()}
        content = save(weights, {"format": "pt"})  # save_file ignores the umask
        (folder / BACKBONE / "model.safetensors").write_bytes(content)

    def _load_parts(self, tensors, facts, folder):
        backbone = str(folder / BACKBONE)
        self._tokenizer = load_tokenizer(backbone)
        self.encoder = load_encoder(backbone, facts["pooling"]).to(self.device)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "diverged")
