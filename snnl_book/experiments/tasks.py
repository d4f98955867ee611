"""The documents, images or points of one run, and the parameters of a chapter."""

import os
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import numpy as np

from snnl_book import data, embeddings, results
from snnl_book.experiments import plan
from snnl_book.experiments.cells import DRAWN, PAPER_SEEDS, PROFILES, TEXTS, ExperimentError
from snnl_book.experiments.devices import check_device
from snnl_book.experiments.images import DIMENSIONS
from snnl_lib.seeds import named_seed


@dataclass(frozen=True)
class Parameters:
    """A chapter's parameters: it runs ``seeds`` live, and shows the seeds ``shown`` (None: all).

    ``named``: whether the reader named the seeds.
    """

    profile: str
    seeds: tuple[int, ...]
    dataset: str
    device: str
    shown: tuple[int, ...] | None = None
    named: bool = False

    def __str__(self):
        seeds = ", ".join(str(seed) for seed in self.seeds)
        versions = textwrap.fill(results.versions(), 80)
        choices = f"profile {self.profile}, seeds {seeds}, data set {self.dataset}"
        return f"{choices}\n{results.device_name(self.device)}\n{versions}"


def parameters(namespace: dict, kind: str = "texts") -> Parameters:
    """Check a chapter's parameters, and return them.

    Call it as ``parameters(globals())`` right after the cell that papermill overrides. ``kind`` is
    the kind of data that the chapter is about: ``texts``, ``short texts`` or ``images``. It decides
    which data set ``auto`` is. Prints a warning in a notebook if SNNL_RESULTS replaces
    the book's records.

    Raises ExperimentError or DataError for an unknown name or a wrong value. papermill itself only
    warns of a misspelled parameter, and the chapter would run with the default instead.
    """
    names = ("dataset", "device", "profile", "seeds")
    names_of_notebooks = ("In", "Out", "exit", "quit", "get_ipython", "open", "parameters")
    for name, value in namespace.items():
        is_private = name.startswith("_") or isinstance(value, ModuleType)
        if not is_private and name not in (*names, *names_of_notebooks):
            raise ExperimentError(f"unknown parameter {name!r}: a chapter takes {', '.join(names)}")
    profile, seeds = namespace["profile"], namespace["seeds"]
    plan.known_value("profile", profile, PROFILES)
    dataset = data.resolve(namespace["dataset"], kind)
    _check_kind(dataset, kind)
    device = check_device(namespace["device"])
    folder = os.environ.get("SNNL_RESULTS")
    if folder and "get_ipython" in namespace:
        print(f"The records come from {folder} (SNNL_RESULTS), not from the book. Where runs are")
        print("missing, numbers show as a dash or nan, and sentences may be wrong.")
    if seeds in ([], "", "[]"):
        return Parameters(profile, PAPER_SEEDS[:1], dataset, device)
    seeds = plan.parse_seeds(seeds)
    shown = seeds if profile == "full" else None
    return Parameters(profile, seeds, dataset, device, shown, named=True)


def _check_kind(dataset, kind):
    """Raise ExperimentError if a data set is not of the kind that a chapter is about."""
    actual = data.describe(dataset).kind
    if actual != kind:
        names = data.available_datasets()
        fitting = ", ".join(name for name in names if data.describe(name).kind == kind)
        problem = f"the data set {dataset!r} holds {actual}, but this chapter is about {kind}"
        raise ExperimentError(f"{problem}: choose auto or one of {fitting}")


@dataclass(frozen=True)
class Task:
    """The vectors and labels of one run.

    ``empty_train`` and ``empty_test`` count the documents that were left out because they have no
    known word. ``train_rows`` and ``test_rows`` are the rows of the others in the corpus.
    """

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int
    empty_train: int
    empty_test: int
    train_rows: np.ndarray | None = None
    test_rows: np.ndarray | None = None


_load = lru_cache(maxsize=2)(data.load_dataset)


@lru_cache(maxsize=2)
def load_task(
    dataset: str, embedding: str, seed: int, n_train: int, n_test: int | None, device: str = "cpu"
) -> Task:
    """Draw a run's documents (``classification.CHOICES["subset"]``) and embed them.

    ``n_test=None`` takes the whole test set. Short texts are their own test set, in an order drawn
    from the seed. With ``TEXTS`` as embedding documents stay texts, and none is left out.
    """
    if dataset == DRAWN:
        return _points(seed, n_train)
    corpus = _load(dataset)
    train_rows = _drawn(seed, "subset", len(corpus.train), n_train)
    if not len(corpus.test):
        return _whole_corpus(corpus, train_rows, embedding, device)
    test_rows = np.arange(len(corpus.test))
    if n_test is not None:
        test_rows = _drawn(seed, "test subset", len(corpus.test), n_test)
    if isinstance(corpus.train, data.Images):
        return _images(corpus, train_rows, test_rows)
    return _texts(corpus, train_rows, test_rows, embedding, device)


def _drawn(seed, name, count, size):
    """Draw ``size`` of ``count`` rows, or all if there are fewer, in random order."""
    return np.random.default_rng(named_seed(seed, name)).permutation(count)[:size]


def _points(seed, count):
    random = np.random.default_rng(named_seed(seed, "points"))
    points = random.normal(size=(count, DIMENSIONS)).astype(np.float32)
    no_labels = np.zeros(0, dtype=np.int64)
    return Task(points, np.zeros(count, dtype=np.int64), points[:0], no_labels, 1, 0, 0)


def half_unseen(task: Task, seed: int) -> Task:
    """Return the task of clustering classes that have no example in training.

    The seed draws half of the classes. Training keeps only these, and the test only the others;
    each side numbers its classes from 0.
    """
    drawn = np.random.default_rng(named_seed(seed, "classes")).permutation(task.classes)
    half = task.classes // 2
    sides = []
    for x, y, rows, classes in (
        (task.train_x, task.train_y, task.train_rows, drawn[:half]),
        (task.test_x, task.test_y, task.test_rows, drawn[half:]),
    ):
        kept = np.isin(y, classes)
        sides.append((x[kept], np.searchsorted(np.sort(classes), y[kept]), rows[kept]))
    (train_x, train_y, train_rows), (test_x, test_y, test_rows) = sides
    parts = train_x, train_y, test_x, test_y, task.classes - half
    return Task(*parts, task.empty_train, task.empty_test, train_rows, test_rows)


def _whole_corpus(corpus, drawn_rows, embedding, device):
    """Return the task of clustering short texts, which are both training and test set.

    The texts are embedded in the order of the corpus, so that all seeds share what the cache
    holds, and then put into the drawn order. A corpus is sorted by class, and a method that breaks
    ties by the order of rows would otherwise see the labels.
    """
    rows, position = np.unique(drawn_rows, return_inverse=True)
    vectors, has_words = _embedded(corpus.train, rows, embedding, None, device)
    documents = vectors[position], corpus.train.labels[drawn_rows]
    empty = int((~has_words).sum())
    classes = len(corpus.class_names)
    return Task(*documents, *documents, classes, empty, empty, drawn_rows, drawn_rows)


def _images(corpus, train_rows, test_rows):
    parts = []
    for split, rows in ((corpus.train, train_rows), (corpus.test, test_rows)):
        parts += [split.pixels[rows] / np.float32(255), split.labels[rows]]
    return Task(*parts, len(corpus.class_names), 0, 0, train_rows, test_rows)


def _texts(corpus, train_rows, test_rows, embedding, device):
    """Return the task on texts, without the documents that have no known word."""
    train_texts = [corpus.train.texts[row] for row in train_rows]
    parts = []
    empty = []
    kept_rows = []
    splits = ((corpus.train, train_rows, None), (corpus.test, test_rows, train_texts))
    for split, rows, fit_texts in splits:
        vectors, has_words = _embedded(split, rows, embedding, fit_texts, device)
        parts += [vectors[has_words], split.labels[rows][has_words]]
        empty.append(int((~has_words).sum()))
        kept_rows.append(rows[has_words])
    return Task(*parts, len(corpus.class_names), *empty, *kept_rows)


def _embedded(split, rows, embedding, fit_texts, device):
    """Return the vectors of texts (or the texts), and which have a known word (bool [N])."""
    texts = [split.texts[row] for row in rows]
    if embedding == TEXTS:
        return np.array(texts, dtype=object), np.ones(len(texts), dtype=bool)
    vectors = embeddings.embed(texts, embedding, fit_texts=fit_texts, device=device)
    return vectors, embeddings.has_words(vectors)
