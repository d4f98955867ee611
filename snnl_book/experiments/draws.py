"""Which embedding a run uses, and what its record says about it.

A run on ``infersent-random`` with seed 1 or 2 has an encoder of its own. All other seeds share one
random encoder, so that only their documents and networks differ.
"""

from snnl_book.embeddings import TRANSFORMERS, backbones, nli

FURTHER_DRAWS = {1: "infersent-random1", 2: "infersent-random2"}
"""The random encoder of each seed that does not share the first one."""


def drawn_for(embedding: str, seed: int) -> str:
    """Return the embedding of a run: the planned one, or another draw of ``infersent-random``.

    >>> drawn_for("infersent-random", 42), drawn_for("infersent-random", 2)
    ('infersent-random', 'infersent-random2')
    """
    return FURTHER_DRAWS.get(seed, embedding) if embedding == "infersent-random" else embedding


def encoder_scores(embedding: str) -> dict[str, float]:
    """Return the scores of an encoder that we trained, which a record adds to those of the run."""
    return nli.trained_scores() if embedding == "infersent-nli" else {}


def weights_remark(embedding: str) -> str:
    """Return what a record adds to its device if the weights were rounded, else an empty text."""
    if embedding in TRANSFORMERS and backbones.is_rounded(backbones.parse(embedding)[0]):
        return ", with weights rounded to float16"
    return ""
