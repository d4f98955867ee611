"""Describe clusters by their sizes, words and texts, in any language."""

import importlib.util
import re
import runpy
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from snnl_book.own_texts.tables import TextsError

if TYPE_CHECKING:  # importing pandas would slow down the command line
    import pandas as pd

LANGUAGES = "en de fr es it pt nl sv da nb fi pl cs hu ro tr el ru uk".split()
"""The languages whose stop words are recognised, where spaCy is installed."""
SECOND_LANGUAGE = 0.15  # the least share of the texts
LOOKED_AT = 2000  # texts, to guess the languages
MOST_WORDS = 20_000
MANY_TEXTS = 100  # so many that a word of a single text names no cluster

# Scripts that put no space between words, and how many characters count as a word in them.
RUNS = {
    2: re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"),  # Han and kana
    3: re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"),  # Thai, Lao, Burmese, Khmer
}
PARTICLES = re.compile("[\u3040-\u309f]+|.?[的了是这那你他她们吗呢吧].?")
"""Pieces that name nothing: Japanese endings in hiragana, and Chinese particles."""

MAIL = re.compile(
    r"""^\s*(?:from|to|cc|bcc|date|sent|reply-to|message-id|organi[sz]ation|lines|distribution
            |nntp-posting-host|x-newsreader|references|von|an|gesendet|datum|de|à|envoyé
            ):.*$                                                # a header
    | ^\s*(?:subject|betreff|objet|asunto)\s*:(?:\s*(?:re|aw|fwd?)\s*:)*  # not its content
    | \bin\ article\s+\S*.{0,120}?\b(?:writes|wrote|says)\b      # in article 12 joe@x.org writes
    | ^.{0,120}\b(?:writes|wrote|schrieb|a\ écrit|escribió)\s*:  # on Monday Joe wrote:
    | \S+@\S+ | https?://\S+ | www\.\S+
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
MAIL_WORDS = """
    article writes wrote subject re fwd edu com org net gov mil cs posting host nntp newsreader
    organization distribution apr mar
""".split()
"""What is left of addresses and headers where a corpus has lost their punctuation."""
MAIL_SHARE = 0.05  # the least share of texts that "write" or quote an "article"


class _Letters(dict):
    """A table for ``str.translate`` that keeps letters, marks and digits, and blanks the rest."""

    def __missing__(self, code):
        category = unicodedata.category(chr(code))
        self[code] = chr(code) if category[0] in "LMN" else " "
        return self[code]


_LETTERS = _Letters()


def text_words(text: str) -> list[str]:
    """Return the words of a text, in lower case: what can name a cluster.

    A word has two or more characters and a letter among them. Scripts without spaces are cut into
    pieces of two or three characters. Addresses and headers of mails are left out.

    >>> text_words("From: joe@example.org\\nSubject: Red wine, 2 bottles")
    ['red', 'wine', 'bottles']
    >>> text_words("機械学習の本")
    ['機械', '械学', '学習', '習の', 'の本']
    """
    words = []
    for word in MAIL.sub(" ", text).lower().translate(_LETTERS).split():
        size, run = next(((n, run) for n, run in RUNS.items() if run.search(word)), (0, None))
        if run:
            for match in run.findall(word):
                pieces = [match[i : i + size] for i in range(max(1, len(match) - size + 1))]
                words += [piece for piece in pieces if _can_name(piece)]
            word = run.sub("", word)
        if len(word) > 1 and any(c.isalpha() for c in word):
            words.append(word)
    return words


def _can_name(piece):
    """Return whether a piece of a script without spaces starts a character and is no particle."""
    return unicodedata.category(piece[0])[0] != "M" and not PARTICLES.fullmatch(piece)


def stop_words(documents: Sequence[Sequence[str]]) -> set[str]:
    """Return the stop words of the languages in which documents, lists of words, are written.

    The languages are guessed among ``LANGUAGES`` by counting their stop words. Without spaCy it is
    English. Documents that look like mails add ``MAIL_WORDS``.

    >>> found = stop_words([["der", "wein", "ist", "rot"], ["die", "liste", "wird", "sortiert"]])
    >>> "wird" in found, "wein" in found
    (True, False)
    """
    lists = _stop_words_by_language()
    documents = documents[:LOOKED_AT]
    counts = Counter(word for document in documents for word in document)
    votes, totals = Counter(), Counter()
    for language, words in lists.items():
        totals[language] = sum(counts[word] for word in words)
    for document in documents:
        hits = {name: sum(word in words for word in document) for name, words in lists.items()}
        most = max(hits.values())
        best = [name for name, count in hits.items() if count == most]
        if most and len(best) == 1:
            votes[best[0]] += 1
    spoken = {max(totals, key=totals.get)}
    spoken |= {name for name, count in votes.items() if count >= SECOND_LANGUAGE * len(documents)}
    found = set().union(*(lists[name] for name in spoken))
    mails = sum("article" in document or "writes" in document for document in documents)
    return found | set(MAIL_WORDS) if mails > MAIL_SHARE * len(documents) else found


def _stop_words_by_language():
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    lists = {"en": set(ENGLISH_STOP_WORDS)}
    if spacy := importlib.util.find_spec("spacy"):
        # Importing spaCy and these languages takes seconds; each list is a file of its own.
        folder = Path(spacy.origin).parent / "lang"
        for language in LANGUAGES:
            words = runpy.run_path(str(folder / language / "stop_words.py"))["STOP_WORDS"]
            lists.setdefault(language, set()).update(word.lower() for word in words)
    return lists


def read_stop_words(path: Path) -> set[str]:
    """Read a file with a stop word per line, in UTF-8. Raises TextsError if it cannot be read.

    >>> path = getfixture("tmp_path") / "words.txt"
    >>> _ = path.write_text("der\\nDie\\n")
    >>> sorted(read_stop_words(path))
    ['der', 'die']
    """
    try:
        return {line.strip().lower() for line in path.read_text("utf-8-sig").split("\n")} - {""}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not in UTF-8"
        advice = "give a file with one word per line"
        raise TextsError(f"the stop words {path} could not be read ({reason}): {advice}") from error


def count_words(texts: Sequence[str], omit: Iterable[str] | None = None):
    """Return the words of N texts, and how often each text has each, a sparse matrix [N, words].

    ``omit`` are stop words; by default those of the texts' languages. Texts that have no other
    words are described by their stop words. Of 100 texts or more, words of a single text are left
    out.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    documents = [text_words(text) for text in texts]
    omit = stop_words(documents) if omit is None else {word.lower() for word in omit}
    kept = [[word for word in document if word not in omit] for document in documents]
    if not any(kept):
        kept = documents
    if not any(kept):
        return np.array([], dtype=str), np.zeros((len(texts), 0))
    if len(texts) >= MANY_TEXTS:
        frequency = Counter(word for document in kept for word in set(document))
        repeated = [[word for word in document if frequency[word] > 1] for document in kept]
        kept = repeated if any(repeated) else kept
    vectorizer = CountVectorizer(analyzer=list, max_features=MOST_WORDS)
    counts = vectorizer.fit_transform(kept)
    return vectorizer.get_feature_names_out(), counts


def class_tfidf(counts, clusters: np.ndarray) -> np.ndarray:
    """Return how well each word names each cluster: class-based TF-IDF, [clusters, words].

    ``counts`` [N, words] are those of ``count_words`` and ``clusters`` [N] numbers; the rows of the
    result follow the sorted numbers. A word's share of the cluster's words is multiplied by the
    logarithm of 1 + A / f, where f is how often all texts have it and A the mean number of words
    in a cluster (Grootendorst, 2022, BERTopic).

    >>> class_tfidf(np.array([[2, 1], [0, 1]]), np.array([0, 1])).round(2).tolist()
    [[0.46, 0.23], [0.0, 0.69]]
    """
    numbers = np.unique(clusters)
    per_cluster = np.array([np.asarray(counts[clusters == c].sum(axis=0)).ravel() for c in numbers])
    sizes = per_cluster.sum(axis=1, keepdims=True)
    idf = np.log1p(sizes.mean() / np.maximum(per_cluster.sum(axis=0), 1))
    return per_cluster / np.maximum(sizes, 1) * idf


def word_weights(counts, clusters: np.ndarray) -> np.ndarray:
    """Return how well each word names each cluster, [clusters, words]; arguments as in class_tfidf.

    It is class-based TF-IDF times the share of the word's texts that are in the cluster, so that a
    word of several clusters names none. ``benchmarks.cluster_words`` compares it with others.

    >>> word_weights(np.array([[2, 1], [0, 1]]), np.array([0, 1])).round(2).tolist()
    [[0.46, 0.12], [0.0, 0.35]]
    """
    present = counts > 0
    texts = [present[clusters == c].sum(axis=0) for c in np.unique(clusters)]
    texts = np.array([np.asarray(row).ravel() for row in texts])
    return class_tfidf(counts, clusters) * texts / np.maximum(texts.sum(axis=0), 1)


def describe_clusters(
    texts: Sequence[str],
    clusters: np.ndarray,
    vectors: np.ndarray,
    *,
    words: int = 5,
    nearest: int = 3,
    omit: Iterable[str] | None = None,
) -> "pd.DataFrame":
    """Describe each cluster by its size, words and texts: a row per cluster, the largest first.

    ``texts`` are N strings, ``clusters`` [N] their clusters, ``vectors`` [N, D] what was clustered.
    Columns are ``cluster``, ``size``, ``words`` and ``nearest``. ``words`` lists the words with the
    largest ``word_weights``, without the stop words ``omit`` (by default those of the texts' own
    languages). ``nearest`` lists the distinct texts that are nearest to the cluster's mean, by
    Euclidean distance.

    >>> texts = ["a list", "lists, a list", "red wine", "a red wine"]
    >>> shown = describe_clusters(texts, np.array([0, 0, 1, 1]), np.eye(4), words=1, nearest=1)
    >>> shown[["size", "words"]].to_numpy().tolist()
    [[2, ['list']], [2, ['red']]]
    """
    import pandas as pd

    texts = list(texts)  # a Series counts by its own labels
    names, counts = count_words(texts, omit)
    weights = word_weights(counts, clusters)
    rows = []
    numbers, sizes = np.unique(clusters, return_counts=True)
    for row, (cluster, size) in enumerate(zip(numbers, sizes, strict=True)):
        top = np.argsort(-weights[row], kind="stable")[:words]
        members = np.flatnonzero(clusters == cluster)
        distances = np.linalg.norm(vectors[members] - vectors[members].mean(axis=0), axis=1)
        closest = members[np.argsort(distances, kind="stable")]
        rows.append(
            {
                "cluster": int(cluster),
                "size": int(size),
                "words": [str(names[i]) for i in top if weights[row, i] > 0],
                "nearest": list(dict.fromkeys(texts[i] for i in closest))[:nearest],
            }
        )
    return pd.DataFrame(rows).sort_values("size", ascending=False, kind="stable", ignore_index=True)
