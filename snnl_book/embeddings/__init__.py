"""Texts to vectors (Secs. 1.1-1.4 of the text paper), cached on disk.

``words`` has tf-idf, mean and SIF-weighted word vectors, ``sentences`` InferSent's encoders, and
``transformers`` pretrained transformers. This module imports none of the packages that compute
them, so that commands that only list runs start quickly.
"""

from functools import partial
from pathlib import Path

import numpy as np

from snnl_book import cache, data
from snnl_book.embeddings import backbones, nli, words
from snnl_book.embeddings.words import VECTORS_PACKAGE
from snnl_lib import SnnlError

TRANSFORMERS = tuple(backbones.BACKBONES) + tuple(
    f"{name}-{pooling}" for name in backbones.BACKBONES for pooling in backbones.POOLINGS
)
METHODS = (
    *("spacy", "spacy-word", "tfidf", "sif", "sif-corpus"),
    *("infersent", "infersent-nli", "infersent-random", "infersent-random1", "infersent-random2"),
    *TRANSFORMERS,
)
PUBLISHED = {  # InferSent's weights and word vectors, and where to get them
    "infersent1.pkl": "https://dl.fbaipublicfiles.com/infersent/infersent1.pkl",
    "glove.840B.300d.txt": "https://nlp.stanford.edu/projects/glove/",
}
REVISION = 5  # part of the cache key: raise it when a change can move an embedding


class EmbeddingError(SnnlError):
    """An unknown embedding, or one whose weights are missing or unusable."""


def embed(
    texts: list,
    method: str,
    *,
    fit_texts: list | None = None,
    max_features=2000,
    device="cpu",
    max_pieces=backbones.MAX_PIECES,
) -> np.ndarray:
    """Turn raw texts into vectors after the paper's preprocessing (Sec. 3.1).

    - ``spacy``: the mean of the 300-d vectors of a document's words. A word without a vector counts
      as zero, as in spaCy's ``Doc.vector``. 65 words such as "number" and "agent", which spaCy
      stores under numbers of its own, count as unknown here.
    - ``spacy-word``: each text is one word, not preprocessed. In spaCy's table most rare words
      share the vector of a more frequent word; here they count as unknown.
    - ``tfidf``: the ``max_features`` most frequent words of ``fit_texts``, weighted by tf-idf, with
      rows of unit length (Sec. 1.2). scikit-learn counts words of two or more characters, without
      stop words.
    - ``sif``: the weighted mean of the same 300-d vectors over all known words. A word's weight is
      1e-3 / (1e-3 + its share of the running words of ``fit_texts``). The common component of
      ``fit_texts`` is removed (``words.sentence_vectors``).
    - ``sif-corpus``: the same with 48-d vectors made from ``fit_texts`` alone, for words that a
      general table confuses.
    - ``infersent``, ``infersent-nli``, ``infersent-random``: 4,096 numbers from a sentence encoder
      over the words' vectors (Sec. 1.4). Vectors are saved in float16 batch by batch, so that an
      interrupted call continues. ``infersent-random1`` and ``infersent-random2`` are the random
      encoder with other weights (``seed_of_random_encoder``).
    - ``minilm``, ``roberta-base``, ``nli-roberta-base``, ``vascl-roberta-large``: a published
      transformer; the texts are not preprocessed. ``minilm-cls`` takes the vector of the first
      piece where ``minilm`` takes the mean (``transformers.SentenceEncoder``).
    - the path of a folder with another transformer, also followed by ``-cls`` or ``-mean``
      (``backbones.parse``).

    Args:
        texts: N strings, as published.
        method: one of the names above.
        fit_texts: the texts whose words ``tfidf`` and ``sif`` count. The default is ``texts``.
        max_features: the largest D of ``tfidf``.
        device: the device of a sentence encoder.
        max_pieces: how many word pieces of a text a transformer reads, start and end included.

    Returns:
        float32 array [N, D]. A document without any known word is a row of zeros, which
        ``has_words`` detects.

    Raises:
        EmbeddingError: an unknown method, or missing weights.
        BackboneError: a folder without settings, tokenizer or weights.
        CacheError: a cache file that is damaged or cannot be written.
        ValueError: an empty list, a text that is not a string, or ``fit_texts`` without a word to
            count or a word vector.

    >>> texts = ["Rain again", "rain, rain and wind", "It is"]
    >>> embed(texts, "tfidf").round(2)
    array([[1.  , 0.  ],
           [0.84, 0.55],
           [0.  , 0.  ]], dtype=float32)
    """
    method = str(method)
    paths = method, method.removesuffix("-cls"), method.removesuffix("-mean")
    is_folder = method not in METHODS and any(Path(path).is_dir() for path in paths)
    if not is_folder and method not in METHODS:
        choice = f"{', '.join(METHODS)}, or give the path of a folder that holds a transformer"
        raise EmbeddingError(f"there is no embedding {method!r}: choose one of {choice}")
    if isinstance(texts, str) or not len(texts):
        raise ValueError(f"texts must be a non-empty list of strings, got {texts!r:.60}")
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise ValueError(f"texts must be strings, got {wrong[0]!r:.60}: leave it out or convert it")
    if method.startswith("infersent"):
        from snnl_book.embeddings import sentences

        return sentences.embed_texts(texts, method, device)
    if method == "spacy-word":
        return words.mean_vectors(words.own_rows(texts))
    if is_folder or method in TRANSFORMERS:
        from snnl_book.embeddings import transformers

        name, pooling = backbones.parse(method)
        facts = {"method": f"{Path(name).name}-{pooling}" if is_folder else method}
        facts["backbone"] = backbones.cache_key(name)
        if max_pieces != backbones.MAX_PIECES:
            facts["pieces"] = max_pieces
        compute = partial(transformers.embed_texts, texts, name, pooling, device, max_pieces)
        return cached_vectors(facts, [texts], compute, device)
    if fit_texts is None or method == "spacy":
        fit_texts = texts
    compute = {
        "spacy": lambda: words.mean_vectors(words.word_rows(texts)),
        "tfidf": lambda: words.tfidf(texts, fit_texts, max_features),
        "sif": lambda: words.sif(texts, fit_texts),
        "sif-corpus": lambda: words.sif(texts, fit_texts, of_corpus=True),
    }[method]
    facts = {"method": method, "vectors": fingerprint(method), "max_features": max_features}
    if method == "tfidf":
        facts["equally frequent"] = "alphabetical"  # once it depended on the processor
    return cached_vectors(facts, [texts, fit_texts], compute)


def cached_vectors(facts: dict, corpora: list[list], compute, device="cpu") -> np.ndarray:
    """Return the array that ``compute()`` makes from some texts, from the cache if possible.

    The facts, the texts (``corpora``) and the type of device determine the array and its file's
    name, which starts with ``facts["method"]``.
    """
    import torch

    name = f"{facts['method']}-{cache.key([REVISION, facts, *map(list, corpora)])}"
    path = data.cache_dir() / "embeddings" / f"{name}{cache.device_suffix(device)}.bin"
    return cache.cached(path, lambda: torch.from_numpy(compute())).value.numpy()


def has_words(embedding: np.ndarray) -> np.ndarray:
    """Return which rows of an embedding [N, D] are not all zeros, as bool array [N].

    The other rows are documents without a known word.

    >>> has_words(embed(["Rain again", "rain, rain and wind", "It is"], "tfidf"))
    array([ True,  True, False])
    """
    return np.any(embedding != 0, axis=1)


def fingerprint(method: str) -> str:
    """Return a name for the files behind an embedding, for the fingerprint of a record.

    Raises SnnlError if they are not on this machine.
    """
    if method in ("tfidf", "sif-corpus", "pixels"):
        return method
    if method in TRANSFORMERS:
        return backbones.fingerprint(backbones.parse(method)[0])
    if method == "infersent":
        weights, _ = published_files()
        return f"{cache.file_fingerprint(weights)}-glove"
    vectors = data.package_fingerprint(VECTORS_PACKAGE)
    if method.startswith("infersent-random"):
        return f"{vectors}-random{seed_of_random_encoder(method)}"
    if method == "infersent-nli":
        if not nli.trained_files()[0].exists():
            nli.pairs_folder()  # to train it on
        return f"{vectors}-{nli.trained_key()}"
    return vectors


def seed_of_random_encoder(method: str) -> int:
    """Return the seed of a random encoder's weights: the number that ends the ``method``, or 0.

    >>> seed_of_random_encoder("infersent-random"), seed_of_random_encoder("infersent-random2")
    (0, 2)
    """
    return int(method.removeprefix("infersent-random") or 0)


def published_files() -> tuple:
    """Return the Paths of the published InferSent weights and GloVe vectors.

    Users provide them; their licence and their size of 5 GB rule out a download. Raises
    EmbeddingError if they are missing.
    """
    files = " and ".join(f"{name} ({address})" for name, address in PUBLISHED.items())
    advice = f"put {files} there, or use infersent-random or infersent-nli"
    title = "the published InferSent weights"
    folder = data.folder_with(PUBLISHED, "infersent", EmbeddingError, title, advice)
    return tuple(folder / name for name in PUBLISHED)
