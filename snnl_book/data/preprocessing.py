"""The text paper's preprocessing (Sec. 3.1), and counts of a corpus before and after it."""

import re
from functools import cache
from pathlib import Path

import numpy as np

from snnl_book.data.readers import Split

_ALPHANUMERIC = re.compile(r"[^\W_]+")


@cache
def stop_words() -> frozenset[str]:
    """Return spaCy's English stop words (the paper does not name its list).

    >>> {"the", "rain"} & stop_words()
    {'the'}
    """
    text = Path(__file__).with_name("stop_words.txt").read_text(encoding="utf-8")
    return frozenset(text.partition("\n")[2].split())


def words(text: str) -> list[str]:
    """Split a text into lower-cased words of letters and digits.

    >>> words("It's 5 o'clock")
    ['it', 's', '5', 'o', 'clock']
    """
    return _ALPHANUMERIC.findall(text.lower())


def preprocess(text: str) -> str:
    """Clean a document as in Sec. 3.1 of the text paper.

    The text is lower-cased and split at every character that is not a letter or a digit. Words of
    fewer than 3 characters and English stop words are dropped. Returns the remaining words joined
    by spaces, or an empty string.

    >>> preprocess("I like dancing in the rain!")
    'like dancing rain'
    """
    stop = stop_words()
    return " ".join(word for word in words(text) if len(word) >= 3 and word not in stop)


def count_documents(texts: list[str]) -> dict[str, int]:
    """Count texts, distinct texts and empty texts, before and after preprocessing.

    >>> list(count_documents(["Rain", "rain!", "It is"]).items())[2:]
    [('distinct after preprocessing', 2), ('empty after preprocessing', 1)]
    """
    clean = [preprocess(text) for text in texts]
    return {
        "documents": len(texts),
        "distinct texts": len(set(texts)),
        "distinct after preprocessing": len(set(clean)),
        "empty after preprocessing": clean.count(""),
    }


def corpus_statistics(split: Split) -> dict[str, float]:
    """Describe a split as Table 1 of ClusterBERT does, by counts and the mean length of a text.

    >>> corpus_statistics(Split(["Rain", "Rain", "Thunder"], np.array([0, 0, 1])))
    {'classes': 2, 'documents': 3, 'distinct texts': 2, 'mean characters': 5.0}
    """
    return {
        "classes": len(np.unique(split.labels)),
        "documents": len(split),
        "distinct texts": len(set(split.texts)),
        "mean characters": float(np.mean([len(text) for text in split.texts])),
    }
