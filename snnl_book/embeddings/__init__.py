"""Texts to vectors (Secs. 1.1-1.4 of the text paper), cached on disk.

``words`` has tf-idf, mean and SIF-weighted word vectors, ``sentences`` InferSent's encoders,
``transformers`` the pretrained ones. What tells them apart needs none of the packages that compute
them, so that listing runs stays quick.
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
PUBLISHED = {  # InferSent's weights and the vectors of the words they know, and where they are from
    "infersent1.pkl": "https://dl.fbaipublicfiles.com/infersent/infersent1.pkl",
    "glove.840B.300d.txt": "https://nlp.stanford.edu/projects/glove/",
}
REVISION = 5  # raise when a change can move an embedding: it is part of the cache key


class EmbeddingError(SnnlError):
    """An unknown embedding, or one whose weights are not there or not what they should be."""


def embed(
    texts: list, method: str, *, fit_texts: list | None = None, max_features=2000, device="cpu"
) -> np.ndarray:
    """Turn raw texts into vectors after the paper's preprocessing (Sec. 3.1).

    - ``spacy``: the mean of the 300-d vectors of a document's words, a word without a vector
      counting as zero, as spaCy's own ``Doc.vector`` does (but for 65 words such as "number" and
      "agent" that spaCy keeps under numbers of their own and that count as unknown here).
    - ``spacy-word``: each text is one word, taken as it is; only a word whose vector is its own has
      one, since the table gives most rarer words the vector of a more frequent neighbour.
    - ``tfidf``: the ``max_features`` most frequent words of ``fit_texts``, weighted by tf-idf, rows
      of unit length (Sec. 1.2), by scikit-learn: words of two characters and more, no stop words.
    - ``sif``: the mean of the same 300-d vectors over all known words, a word weighted by 1e-3 /
      (1e-3 + its share of the running words of ``fit_texts``), less what all ``fit_texts`` have in
      common (``words.sentence_vectors``).
    - ``sif-corpus``: the same with 48-d vectors made from ``fit_texts`` alone, for words that a
      general table confuses.
    - ``infersent``, ``infersent-nli``, ``infersent-random``: 4,096 numbers from a sentence encoder
      over the words' vectors (Sec. 1.4), kept in float16 as they are made, so that an interrupted
      call goes on.
    - ``minilm``, ``roberta-base``, ``nli-roberta-base``, ``vascl-roberta-large``: a transformer as
      published, the texts as they are; ``minilm-cls`` takes the vector of the first piece where
      ``minilm`` takes the mean (``transformers.SentenceEncoder``).
    - the path of a folder with another transformer, also with ``-cls`` or ``-mean`` after it
      (``backbones.parse``).

    Args:
        texts: N strings, as published.
        method: one of the names above.
        fit_texts: what ``tfidf`` and ``sif`` count words in; default: ``texts``.
        max_features: D of ``tfidf``, at most.
        device: where a sentence encoder runs.

    Returns:
        float32 array [N, D]; a document without any known word is a row of zeros, which
        ``has_words`` finds.

    Raises:
        EmbeddingError: an unknown method, weights that are not there.
        BackboneError: a folder without settings, tokenizer or weights.
        CacheError: a cache file that is damaged or cannot be written.
        ValueError: an empty list, or ``fit_texts`` without a word that could be counted or has a
            vector.

    >>> texts = ["Rain again", "rain, rain and wind", "It is"]
    >>> embed(texts, "tfidf").round(2)
    array([[1.  , 0.  ],
           [0.84, 0.55],
           [0.  , 0.  ]], dtype=float32)
    """
    method = str(method)
    paths = method, method.removesuffix("-cls"), method.removesuffix("-mean")
    of_folder = method not in METHODS and any(Path(path).is_dir() for path in paths)
    if not of_folder and method not in METHODS:
        known = f"{', '.join(METHODS)}, or give the path of a transformer's folder"
        raise EmbeddingError(f"there is no embedding {method!r}: choose one of {known}")
    if isinstance(texts, str) or not len(texts):
        raise ValueError(f"texts must be a non-empty list of strings, got {texts!r:.60}")
    if method.startswith("infersent"):
        from snnl_book.embeddings import sentences

        return sentences.embed_texts(texts, method, device)
    if method == "spacy-word":
        return words.mean_vectors(words.own_rows(texts))
    if of_folder or method in TRANSFORMERS:
        from snnl_book.embeddings import transformers

        name, pooling = backbones.parse(method)
        facts = {"method": f"{Path(name).name}-{pooling}" if of_folder else method}
        facts["backbone"] = backbones.cache_key(name)
        compute = partial(transformers.embed_texts, texts, name, pooling, device)
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
    return cached_vectors(facts, [texts, fit_texts], compute)


def cached_vectors(facts: dict, corpora: list[list], compute, device="cpu") -> np.ndarray:
    """Return the array that ``compute()`` makes of some texts, from the cache if it is there.

    The facts, of which ``method`` begins the file's name, the texts and the type of device
    determine the array.
    """
    import torch

    name = f"{facts['method']}-{cache.key([REVISION, facts, *map(list, corpora)])}"
    path = data.cache_dir() / "embeddings" / f"{name}{cache.device_suffix(device)}.bin"
    return cache.cached(path, lambda: torch.from_numpy(compute())).value.numpy()


def has_words(embedding: np.ndarray) -> np.ndarray:
    """Tell which documents say something: the rows of an embedding [N, D] that are not all zeros.

    Returns a bool array [N].

    >>> has_words(embed(["Rain again", "rain, rain and wind", "It is"], "tfidf"))
    array([ True,  True, False])
    """
    return np.any(embedding != 0, axis=1)


def fingerprint(method: str) -> str:
    """Name the resource behind an embedding, for the fingerprint of a record.

    Raises SnnlError if it is not at hand.
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
        return f"{vectors}-random{draw_of(method)}"
    if method == "infersent-nli":
        if not nli.trained_files()[0].exists():
            nli.pairs_folder()  # to train it on
        return f"{vectors}-{nli.trained_key()}"
    return vectors


def draw_of(method: str) -> int:
    """Return the seed of a random encoder's weights, which ends the name of the method.

    >>> draw_of("infersent-random"), draw_of("infersent-random2")
    (0, 2)
    """
    return int(method.removeprefix("infersent-random") or 0)


def published_files() -> tuple:
    """Find the published InferSent weights and GloVe vectors (two Paths).

    The user must bring them: the licence and 5 GB keep them from being fetched. Raises
    EmbeddingError if they are not there.
    """
    what = "the published InferSent weights"
    files = " and ".join(f"{name} ({address})" for name, address in PUBLISHED.items())
    advice = f"put {files} there, or use infersent-random or infersent-nli"
    folder = data.folder_with(PUBLISHED, "infersent", EmbeddingError, what, advice)
    return tuple(folder / name for name in PUBLISHED)
