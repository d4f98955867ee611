"""``python -m benchmarks.infersent_control``: why k-means finds fewer classes in our InferSent.

*Orig.* of the text paper (PCA to 128 components, k-means on the 7,600 test documents of AG News) is
repeated with small encoders, one change at a time: how the encoder is trained, which words it
reads, how it pools, and how its vectors are scaled. ``results/notes/infersent-control.csv`` has one
row per change. Small encoders have 128 units per direction instead of 2,048, so that each trains in
minutes. Compare a change with the small encoder of the same training, not with the records.

The answer: the maximum over the words costs the classes. It grows with the number of words, so the
first principal component follows a document's length, and k-means splits documents by length. The
mean of the same states, vectors of length 1, or vectors without that component all score higher,
whether the encoder is trained or not. The published encoder takes the maximum too, so this is no
mistake of ours, and no row here explains why its score in the paper is high. Encoders of full size
have not been checked yet (``--changes infersent-random ...``).
"""

import argparse
import os
import re
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from snnl_book import data, embeddings, results
from snnl_book.embeddings import nli, sentences, words
from snnl_book.experiments import codes, draws, tasks
from snnl_book.experiments.cells import TEXTS
from snnl_book.experiments.runner import one_thread
from snnl_lib import metrics
from snnl_lib.seeds import named_seed

from . import _files

DATASET, SEED, N_TRAIN, UNITS = "ag_news", 42, 10_000, 128
SMALL = {"units": UNITS, "precision": "float32", "seed": SEED}
COLUMNS = ["change", "documents", "accuracy", "nmi", "nli_dev_acc", "length_correlation"]

# ---------------------------------------------------------------- variants of the encoder


class PaddedInferSent(sentences.InferSent):
    """The encoder whose maximum includes one position of padding, a zero, as published.

    InferSent's first version pools over the padding too, so that every sentence but the longest of
    a batch has no number below zero.
    """

    def forward(self, words, lengths):
        return super().forward(words, lengths).clamp(min=0)


class MeanInferSent(sentences.InferSent):
    """The encoder that takes the mean of the states instead of their maximum."""

    def forward(self, words, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            words, lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = torch.nn.utils.rnn.pad_packed_sequence(
            self.enc_lstm(packed)[0], batch_first=True
        )
        return states.sum(dim=1) / lengths[:, None]


def pooled_by(encoder, pooling):
    """Give an encoder's weights to one that pools in another way."""
    variant = pooling(encoder.enc_lstm.input_size, encoder.units)
    variant.load_state_dict(encoder.state_dict())
    return variant.eval()


# ---------------------------------------------------------------- training pairs


@cache
def pairs_of_sources(sources=nli.PAIR_SOURCES):
    """Look up the pairs of these sources: {split: (premises, hypotheses, labels)}."""
    with patch.object(nli, "PAIR_SOURCES", sources):
        return nli.pairs_as_rows()


def first_pairs(count, sources=nli.PAIR_SOURCES):
    """Draw so many training pairs, the same for every call; dev and test stay whole."""
    pairs = dict(pairs_of_sources(sources))
    premises, hypotheses, labels = pairs["train"]
    random = np.random.default_rng(named_seed(SEED, "subset"))
    rows = random.permutation(len(labels))[:count]
    pairs["train"] = [premises[i] for i in rows], [hypotheses[i] for i in rows], labels[rows]
    return pairs


def pairs_without_stop_words():
    """Look up the pairs' words after the preprocessing of documents."""
    with patch.object(data, "words", lambda text: data.preprocess(text).split()):
        return nli.pairs_as_rows()


@contextmanager
def changed_code(pooling=None, optimizer=None):
    """Train with another encoder class or another optimiser than ``sentences`` has."""
    encoder, adam = pooling or sentences.InferSent, optimizer or torch.optim.Adam
    with patch.object(sentences, "InferSent", encoder), patch("torch.optim.Adam", adam):
        yield


def trained(name, pairs=pairs_of_sources, pooling=None, optimizer=None, **recipe):
    """Return (a small encoder, its accuracy on SNLI dev), trained once and kept in the cache."""
    path = data.cache_dir() / "infersent-control" / f"{name.replace(' ', '-')}.pt"
    if not path.exists():
        with changed_code(pooling, optimizer):
            encoder, scores = sentences.train_nli(
                pairs(), words.word_vectors(), progress=print, **SMALL | recipe
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save((encoder.state_dict(), scores), path)
    weights, scores = torch.load(path, weights_only=True)
    encoder = (pooling or sentences.InferSent)(units=UNITS)
    encoder.load_state_dict(weights)
    return encoder.eval(), scores["nli_dev_acc"]


def one_epoch(name, **options):
    """Train a small encoder for one epoch instead of three."""
    return trained(name, epochs=1, **options)


# ---------------------------------------------------------------- documents to vectors


@cache
def task():
    """Load the documents of the recorded run with this seed, as texts."""
    return tasks.load_task(DATASET, TEXTS, SEED, N_TRAIN, None)


@cache
def document_rows(part, reading):
    """Look up the words of the documents of ``train_x`` or ``test_x``.

    Returns (rows of each text, number of the document that each text belongs to).
    """
    texts = list(getattr(task(), part))
    owners = range(len(texts))
    if reading == "one sentence at a time":
        parts = [re.split(r"(?<=[.!?;])\s+", text) for text in texts]
        owners = [i for i, sentences_ in enumerate(parts) for _ in sentences_]
        texts = [sentence for sentences_ in parts for sentence in sentences_]
    split = {"split": data.words} if reading == "all words" else {}
    rows = [found[found >= 0] for found in words.word_rows(texts, **split)]
    known = [i for i, found in enumerate(rows) if len(found)]
    return [rows[i] for i in known], np.array(owners)[known]


def encoded(encoder, part, reading):
    """Encode documents, the mean over the texts that a document is read as: float32 [N, D]."""
    rows, owners = document_rows(part, reading)
    vectors = np.zeros((len(rows), 2 * encoder.units), dtype=np.float32)
    for index, batch in sentences.encode(encoder, rows, words.word_vectors()):
        vectors[index] = batch
    return averaged(vectors, owners, len(getattr(task(), part)))


def averaged(vectors, owners, count):
    """Average the rows of each owner; an owner without any is zeros."""
    sums = np.zeros((count, vectors.shape[1]), dtype=np.float32)
    np.add.at(sums, owners, vectors)
    return sums / np.maximum(np.bincount(owners, minlength=count), 1)[:, None]


def pooled_words(pool, part):
    """Pool the word vectors of documents without any encoder."""
    rows, owners = document_rows(part, "preprocessed")
    vectors = np.stack([pool(words.word_vectors()[found], axis=0) for found in rows])
    return averaged(vectors, owners, len(getattr(task(), part)))


def unit_length(train_x, test_x):
    """Scale each vector to length 1."""
    return tuple(x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train_x, test_x))


def without_first_component(train_x, test_x):
    """Remove the training vectors' first principal component, which follows a document's length."""
    from sklearn.decomposition import PCA

    (direction,) = PCA(1, random_state=0).fit(train_x).components_
    return tuple(x - np.outer(x @ direction, direction) for x in (train_x, test_x))


# ---------------------------------------------------------------- scores


def scores(train_x, test_x):
    """Score *Orig.*: PCA on the training vectors, k-means on the test vectors' components."""
    from sklearn.cluster import KMeans

    part = tasks.Task(train_x, task().train_y, test_x, task().test_y, task().classes, 0, 0)
    components = codes.fitted_pca(codes.COMPONENTS, part, SEED).transform(test_x)
    clustering = KMeans(part.classes, n_init=10, random_state=named_seed(SEED, "kmeans"))
    found = metrics.clustering_scores(components, clustering.fit_predict(components), part.test_y)
    rows, owners = document_rows("test_x", "preprocessed")
    lengths = np.zeros(len(test_x))
    lengths[owners] = [len(row) for row in rows]
    correlation = abs(np.corrcoef(components[:, 0], lengths)[0, 1])
    return {"accuracy": found["acc"], "nmi": found["nmi"], "length_correlation": correlation}


def of_encoder(encoder, reading="preprocessed", pooling=None, scaling=None):
    """Score an encoder on documents read, pooled and scaled in some way."""
    encoder, dev = encoder if isinstance(encoder, tuple) else (encoder, np.nan)
    encoder = pooled_by(encoder, pooling) if pooling else encoder
    vectors = [encoded(encoder, part, reading) for part in ("train_x", "test_x")]
    found = scores(*(scaling(*vectors) if scaling else vectors))
    return found | {"nli_dev_acc": dev, "units": encoder.units}


def of_embedding(method, scaling=None):
    """Score an embedding of the records, of full size, with its vectors scaled in some way."""
    parts = [list(part) for part in (task().train_x, task().test_x)]
    vectors = [embeddings.embed(texts, method) for texts in parts]
    dev = draws.encoder_scores(method).get("nli_dev_acc", np.nan)
    found = scores(*(scaling(*vectors) if scaling else vectors))
    return found | {"nli_dev_acc": dev, "units": nli.UNITS}


def of_words(pool):
    """Score pooled word vectors."""
    return scores(*(pooled_words(pool, part) for part in ("train_x", "test_x")))


def random_encoder(units=UNITS):
    """Build the random encoder of the records, small unless told otherwise."""
    return sentences.random_encoder(units=units)


SGD = {"optimizer": torch.optim.SGD, "learning_rate": 0.1, "batch_size": 64}
ALL_SOURCES = ("snli", "snli-cad", "mnli", "sick", "mpe", "breaking-nli", "joci")
ENCODERS = {
    "random": random_encoder,
    "random, 512 units": lambda: random_encoder(512),
    "1 epoch": lambda: one_epoch("1 epoch"),
    "1 epoch, a quarter of the pairs": lambda: one_epoch(
        "quarter", pairs=lambda: first_pairs(12_129)
    ),
    "1 epoch, padding counts in the maximum": lambda: one_epoch("padded", pooling=PaddedInferSent),
    "1 epoch, 10,000 pairs of SNLI": lambda: one_epoch(
        "snli", pairs=lambda: first_pairs(10_000, ("snli",))
    ),
    "1 epoch, 10,000 pairs of MultiNLI": lambda: one_epoch(
        "mnli", pairs=lambda: first_pairs(10_000, ("mnli",))
    ),
    "1 epoch, SGD at 0.1 with batches of 64": lambda: one_epoch("sgd", **SGD),
    "1 epoch, pairs without stop words": lambda: one_epoch(
        "no stop words", pairs=pairs_without_stop_words
    ),
    "1 epoch, all 99,271 pairs": lambda: one_epoch(
        "all pairs", pairs=lambda: pairs_of_sources(ALL_SOURCES)
    ),
    "1 epoch, other initial weights": lambda: one_epoch("other weights", seed=1234),
    "3 epochs": lambda: trained("3 epochs"),
}
READINGS = {
    "all words, stop words too": {"reading": "all words"},
    "one sentence at a time, averaged": {"reading": "one sentence at a time"},
    "padding counts in the maximum": {"pooling": PaddedInferSent},
    "mean instead of maximum": {"pooling": MeanInferSent},
    "standardised features": {"scaling": codes.standardize},
    "vectors of length 1": {"scaling": unit_length},
    "first principal component removed": {"scaling": without_first_component},
}
CHANGES = {
    "no encoder: mean of the word vectors": lambda: of_words(np.mean),
    "no encoder: maximum of the word vectors": lambda: of_words(np.max),
}
for encoder in ("random", "1 epoch"):
    CHANGES[encoder] = lambda name=encoder: of_encoder(ENCODERS[name]())
    for reading, options in READINGS.items():
        CHANGES[f"{encoder}; {reading}"] = lambda name=encoder, options=options: of_encoder(
            ENCODERS[name](), **options
        )
CHANGES |= {
    name: lambda name=name: of_encoder(ENCODERS[name]())
    for name in ENCODERS
    if name not in ("random", "1 epoch")
}
SCALINGS = {name: of for name, of in READINGS.items() if "scaling" in of}
for method in ("infersent-random", "infersent-nli"):
    CHANGES[method] = lambda method=method: of_embedding(method)
    for scaling, options in SCALINGS.items():
        CHANGES[f"{method}; {scaling}"] = lambda method=method, options=options: of_embedding(
            method, **options
        )

# ---------------------------------------------------------------- the file


def write(changes):
    """Rewrite the rows of the given changes as they are made; other rows stay."""
    path = results.results_dir("full") / "notes" / "infersent-control.csv"
    path.parent.mkdir(exist_ok=True)
    facts = {"documents": len(task().test_x), "n_train": N_TRAIN, "seed": SEED}
    facts |= {"settings": "PCA to 128 components, k-means with 10 starts on the test documents"}
    facts |= {"versions": results.versions(), "commit": results.commit()}
    for change in changes:
        row = {"change": change, "nli_dev_acc": np.nan, "units": 0} | CHANGES[change]() | facts
        table = _files.with_row(path, row, "change")
        place = [*CHANGES].index
        table = table.sort_values("change", key=lambda names: names.map(place))
        table = table[COLUMNS + [name for name in table if name not in COLUMNS]]
        results.write_atomically(path, table.to_csv(index=False, float_format="%.4f"))
        print({name: row.get(name) for name in COLUMNS}, flush=True)


def main():
    """Make all rows, or only those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    small = [change for change in CHANGES if not change.startswith("infersent")]
    about = "default: those of small encoders; full size takes an hour, infersent-nli more"
    parser.add_argument("--changes", nargs="*", default=small, choices=[*CHANGES], help=about)
    with one_thread():
        write(parser.parse_args().changes)


if __name__ == "__main__":
    main()
