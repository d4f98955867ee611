"""The documents, images or points of one run, and what a chapter is asked to run."""

import textwrap
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import numpy as np

from snnl_book import data, embeddings, results
from snnl_book.experiments import plan
from snnl_book.experiments.cells import DRAWN, PAPER_SEEDS, PROFILES, TEXTS
from snnl_book.experiments.images import DIMENSIONS
from snnl_book.experiments.plan import ExperimentError
from snnl_lib.seeds import named_seed


@dataclass(frozen=True)
class Parameters:
    """What a chapter runs live (``seeds``), and the seeds that its tables show (None: all)."""

    profile: str
    seeds: tuple[int, ...]
    dataset: str
    device: str
    shown: tuple[int, ...] | None = None

    def __str__(self):
        seeds = ", ".join(str(seed) for seed in self.seeds)
        versions = textwrap.fill(results.versions(), 80)
        asked = f"profile {self.profile}, seeds {seeds}, data set {self.dataset}"
        return f"{asked}\n{results.device_name(self.device)}\n{versions}"


def parameters(namespace: dict, kind: str = "texts") -> Parameters:
    """Check a chapter's parameters.

    Call it as ``parameters(globals())`` right after the cell that papermill overrides. ``kind``
    says what the chapter is about, ``texts``, ``short texts`` or ``images``; it settles what the
    data set ``auto`` is.

    Raises ExperimentError for an unknown parameter name (papermill itself only warns), a wrong type
    or a value out of range.
    """
    notebook_names = {"In", "Out", "exit", "quit", "get_ipython", "open", "parameters"}
    known = {"profile", "seeds", "dataset", "device"}
    wrong = [
        f"unknown parameter {name!r}"
        for name, value in namespace.items()
        if not (name in known | notebook_names or name[0] == "_" or isinstance(value, ModuleType))
    ]
    wrong += [f"missing parameter {name!r}" for name in sorted(known) if name not in namespace]
    if wrong:
        raise ExperimentError(f"{wrong[0]}: a chapter takes {', '.join(sorted(known))}")
    for name in ("profile", "dataset", "device"):
        if not isinstance(namespace[name], str):
            raise ExperimentError(f"{name} must be text, got {namespace[name]!r}")
    plan.named("profile", namespace["profile"], PROFILES)
    dataset = data.resolve(namespace["dataset"], kind)
    held = data.describe(dataset).kind
    if held != kind:
        names = data.available_datasets()
        fitting = ", ".join(name for name in names if data.describe(name).kind == kind)
        wrong = f"the data set {dataset!r} holds {held}, and this chapter is about {kind}"
        raise ExperimentError(f"{wrong}: choose auto or one of {fitting}")
    profile, device = namespace["profile"], plan.check_device(namespace["device"])
    given = namespace["seeds"] not in ([], "", "[]")
    seeds = plan.parse_seeds(namespace["seeds"]) if given else PAPER_SEEDS[:1]
    shown = seeds if given and profile == "full" else None
    return Parameters(profile, seeds, dataset, device, shown)


@dataclass(frozen=True)
class Task:
    """The vectors and labels of one run.

    ``empty_train`` and ``empty_test`` count the documents that had no known word and were left out;
    ``train_rows`` and ``test_rows`` say where the others stand in the corpus.
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

    def drawn(name, count, most):
        return np.random.default_rng(named_seed(seed, name)).permutation(count)[:most]

    if dataset == DRAWN:
        random = np.random.default_rng(named_seed(seed, "points"))
        points = random.normal(size=(n_train, DIMENSIONS)).astype(np.float32)
        nothing = np.zeros(0, dtype=np.int64)
        return Task(points, np.zeros(n_train, dtype=np.int64), points[:0], nothing, 1, 0, 0)
    corpus = _load(dataset)
    classes = len(corpus.class_names)
    train_rows = drawn("subset", len(corpus.train), n_train)
    if not len(corpus.test):  # short texts, which are clustered whole
        # They are embedded in the corpus's order, so that all seeds share what the cache holds,
        # but stand in the drawn one: a corpus is sorted by class, and a method that breaks ties by
        # the order of rows would read the labels.
        rows, place = np.unique(train_rows, return_inverse=True)
        vectors, known = _embedded(corpus.train, rows, embedding, None, device)
        each = vectors[place], corpus.train.labels[train_rows]
        empty = int((~known).sum())
        return Task(*each, *each, classes, empty, empty, train_rows, train_rows)
    test_rows = np.arange(len(corpus.test))
    if n_test is not None:
        test_rows = drawn("test subset", len(corpus.test), n_test)
    if isinstance(corpus.train, data.Images):
        parts = []
        for split, rows in ((corpus.train, train_rows), (corpus.test, test_rows)):
            parts += [split.pixels[rows] / np.float32(255), split.labels[rows]]
        return Task(*parts, classes, 0, 0, train_rows, test_rows)
    train_texts = [corpus.train.texts[row] for row in train_rows]
    parts, empty, kept_rows = [], [], []
    splits = ((corpus.train, train_rows, None), (corpus.test, test_rows, train_texts))
    for split, rows, fit_texts in splits:
        vectors, known = _embedded(split, rows, embedding, fit_texts, device)
        parts += [vectors[known], split.labels[rows][known]]
        empty.append(int((~known).sum()))
        kept_rows.append(rows[known])
    return Task(*parts, classes, *empty, *kept_rows)


def _embedded(split, rows, embedding, fit_texts, device):
    """Return what stands for texts in a task, and which of them say something (bool [N])."""
    texts = [split.texts[row] for row in rows]
    if embedding == TEXTS:
        return np.array(texts, dtype=object), np.ones(len(texts), dtype=bool)
    vectors = embeddings.embed(texts, embedding, fit_texts=fit_texts, device=device)
    return vectors, embeddings.has_words(vectors)
