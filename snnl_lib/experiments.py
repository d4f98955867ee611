"""Every table and figure of the papers as a grid of run specs, and ``run(spec)``, which turns one into a record."""

import contextlib
import math
import os
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from types import ModuleType

import joblib
import numpy as np
import torch

from snnl_lib import SnnlError, clustering, data, embeddings, images, lacks, pack, results, short_texts, text
from snnl_lib.results import Record, Spec
from snnl_lib.training import named_seed, stack_of_this_run, together

PAPER_SEEDS = (42, 1234, 73, 1024, 31415926)
MORE_SEEDS = (*PAPER_SEEDS, 7, 11, 13, 17, 19)  # for what costs seconds a run

DRAWN = "gaussian"
"""The data set of ``annealing``: points that each run draws from its own seed."""
TEXTS = "texts"
"""In place of an embedding: what trains a backbone reads the texts themselves."""

_TEXT = {
    # documents are upper bounds; "full" is the paper's protocol
    "tiny": dict(n_train=300, n_test=200, classification_epochs=2, convolution_epochs=1, clustering_epochs=2, lexicon_epochs=2),
    "quick": dict(n_train=2000, n_test=1000, classification_epochs=10, convolution_epochs=2, clustering_epochs=5, lexicon_epochs=10),
    "full": dict(n_train=20_000, n_test=None, classification_epochs=30, convolution_epochs=50, clustering_epochs=30, lexicon_epochs=50),
}
_MORE = {
    "tiny": dict(kmeans_starts=2, tsne_iterations=300, label_sizes=(100,), sentence_vectors=False),
    "quick": dict(kmeans_starts=10, tsne_iterations=500, label_sizes=(100, 300, 1000), sentence_vectors=False),
    "full": dict(kmeans_starts=10, tsne_iterations=1000, label_sizes=(100, 300, 1000, 3000, 10_000), sentence_vectors=True),
}
_IMAGES = {
    "tiny": dict(image_train=300, image_test=200, image_epochs=2, more_epochs=3, pretrain_epochs=2, vade_epochs=2, deep_steps=4,
                 image_tsne_iterations=300, image_labels=(100,), annealing_epochs=3),
    "quick": dict(image_train=2000, image_test=1000, image_epochs=6, more_epochs=12, pretrain_epochs=10, vade_epochs=5, deep_steps=80,
                  image_tsne_iterations=500, image_labels=(100, 300, 1000), annealing_epochs=50),
    "full": dict(image_train=10_000, image_test=None, image_epochs=30, more_epochs=100, pretrain_epochs=200, vade_epochs=200, deep_steps=8000,
                 image_tsne_iterations=5000, image_labels=(100, 300, 1000, 3000), annealing_epochs=50),
}  # fmt: skip
_ONCE = dict(batch_size=16, warm_up=1, adaptation_epochs=1, reclusterings=1, clustering_epochs=1, hardening_epochs=1)
_SHORT = {
    "tiny": dict(short_documents=60, short_all=80, short_recipe=_ONCE, idec_epochs=2, sccl_steps=2, sccl_needs=""),
    "quick": dict(short_documents=250, short_all=600, short_recipe=_ONCE, idec_epochs=20, sccl_steps=5, sccl_needs=""),
    "full": dict(short_documents=2000, short_all=short_texts.ALL, short_recipe={}, idec_epochs=150, sccl_steps=1000, sccl_needs="ten hours on a CPU core"),
}
PROFILES = {name: _TEXT[name] | _MORE[name] | _IMAGES[name] | _SHORT[name] for name in _TEXT}


class ExperimentError(SnnlError):
    """An unknown experiment, profile, seed, data set or device."""


@dataclass(frozen=True)
class Experiment:
    """A named grid: ``cells(profile)`` gives what is run for each seed, ``run`` carries one spec out."""

    title: str
    revision: int  # raise by hand when a change can move a number; see tests/test_golden.py
    metrics: tuple[str, ...]
    cells: Callable
    run: Callable
    seeds: tuple[int, ...] = PAPER_SEEDS


def _both(*grids):
    return lambda profile: chain.from_iterable(grid(profile) for grid in grids)


EXPERIMENTS = {
    "classification": Experiment("Text classification (text paper, Tables 1-2)", 1, ("acc", "f1_micro", "f1_macro", "snn"),
        text.classification_cells, text.run_classification),
    "classification-readings": Experiment("What the text paper leaves open about classification", 1, ("acc", "f1_micro", "f1_macro", "snn"),
        text.reading_cells, text.run_classification),
    "classification-rivals": Experiment("Other uses of the same labels", 1, ("acc", "f1_micro", "f1_macro"), text.rival_cells, text.run_rival),
    "clustering": Experiment("Text clustering (text paper, Tables 3-4)", 1, ("dbi", "sil", "chs", "nmi", "ari", "acc", "snn"),
        clustering.clustering_cells, clustering.run_clustering),
    "clustering-readings": Experiment("What the text paper leaves open about clustering", 1, ("dbi", "sil", "chs", "nmi", "ari", "acc", "snn"),
        clustering.reading_cells, clustering.run_clustering),
    "clustering-rivals": Experiment("Other uses of the same labels, and clusterings without labels", 1, ("dbi", "sil", "chs", "nmi", "ari", "acc"),
        clustering.rival_cells, clustering.run_rival),
    "labels": Experiment("Clustering accuracy against the number of labels", 1, ("dbi", "sil", "chs", "nmi", "ari", "acc"),
        _both(clustering.label_cells, short_texts.label_cells, images.label_cells), clustering.run_labels),
    "lexicon": Experiment("Words of an opinion lexicon (text paper, Figure 1)", 1, ("acc", "neighbours", "train_acc", "train_neighbours"),
        clustering.lexicon_cells, clustering.run_lexicon),
    "tsne": Experiment("The codes on a plane (text paper, Figure 2; ClusterBERT paper, Figure 1), and in space (image paper)", 1, ("kl", "neighbours"),
        _both(clustering.tsne_cells, images.tsne_cells, short_texts.tsne_cells), clustering.run_tsne),
    "annealing": Experiment("Gradient descent on the loss alone, at falling and at fixed temperatures (image paper)", 1,
        ("loss", "common", "neighbours", "sil", "epochs_to_pure"), images.annealing_cells, images.run_annealing, MORE_SEEDS),
    "images": Experiment("Clustering images: disentangled codes and deep clustering (image paper)", 1,
        ("dbi", "sil", "chs", "nmi", "ari", "acc", "snn"), images.image_cells, images.run_images, MORE_SEEDS[:9]),
    "clusterbert": Experiment("Short texts clustered without labels (ClusterBERT paper, Tables 2-3, Figure 3, Table 5)", 1, short_texts.METRICS,
        short_texts.clusterbert_cells, short_texts.run_clusterbert),
    "clusterbert-ablation": Experiment("ClusterBERT without reconstruction (Figure 4), and what its paper leaves open", 1, short_texts.METRICS,
        short_texts.ablation_cells, short_texts.run_clusterbert),
    "retrieval": Experiment("Does an embedding keep its meaning? (ClusterBERT paper, Figure 4)", 1, ("map", "mrr"),
        short_texts.retrieval_cells, short_texts.run_retrieval),
}  # fmt: skip


PAPER = ("classification", "clustering", "lexicon", "tsne")
"""What ``run paper`` repeats: Tables 1-4 and Figures 1-2 of the text paper."""


# ---------------------------------------------------------------- the grid


def specs(experiment: str, profile: str = "full", dataset: str = "auto", seeds=None) -> list[Spec]:
    """List the run specs of an experiment.

    ``dataset``: ``auto`` takes the experiment's own data sets, and for texts the paper's if at hand, else the embedded default; the name of
    a corpus takes the runs on texts, with it; the name of a set of images or of short texts the runs on that; there may be none.
    ``seeds``: default, the experiment's own. Raises ExperimentError or DataError for a name it does not know.
    """
    settings, grid = _profile(profile), _experiment(experiment)
    corpus, found = data.resolve(dataset), []
    kind = data.describe(corpus).kind
    cells = [cell for cell in grid.cells(settings) if dataset == "auto" or _runs_on(cell.dataset, corpus, kind)]
    for index, seed in enumerate(grid.seeds if seeds is None else parse_seeds(seeds)):
        for cell in cells:
            if cell.seeds is not None and index >= cell.seeds:
                continue
            own = {"n_test": settings["n_test"]} | cell.settings
            own = tuple(sorted((name, tuple(value) if isinstance(value, list) else value) for name, value in own.items()))
            temperature = cell.temperature if cell.alpha else "none"
            named = (experiment, profile, cell.dataset or corpus, cell.embedding, cell.model, cell.alpha, temperature, seed)
            found.append(Spec(*named, cell.n_train or settings["n_train"], grid.revision, own, cell.needs))
    return found


def _runs_on(own, asked, kind):
    """Tell if a cell with a data set of its own, or none, is meant: points by any data set, texts by any corpus, images and short texts by their own name."""
    if own == DRAWN:
        return True
    return not own or data.describe(own).kind == "texts" if kind == "texts" else own == asked


def _experiment(name):
    if name not in EXPERIMENTS:
        raise ExperimentError(f"there is no experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def _profile(name):
    if name not in PROFILES:
        raise ExperimentError(f"there is no profile {name!r}: choose one of {', '.join(PROFILES)}")
    return PROFILES[name]


# ---------------------------------------------------------------- parameters of a chapter or a command


@dataclass(frozen=True)
class Parameters:
    profile: str
    seeds: tuple[int, ...]
    dataset: str
    device: str

    def __str__(self):
        seeds = ", ".join(str(seed) for seed in self.seeds)
        return f"profile {self.profile}, seeds {seeds}, data set {self.dataset}\n{device_name(self.device)}\n{textwrap.fill(results.versions(), 80)}"


def parse_seeds(seeds) -> tuple[int, ...]:
    """Read seeds given as a list, one integer or text such as ``"42,73"``. Raises ExperimentError for anything else, or a repeated seed."""
    try:
        if isinstance(seeds, str):
            seeds = [int(part) for part in seeds.strip("[]() ").split(",")]
        seeds = tuple([seeds] if isinstance(seeds, int) else seeds)
        valid = len(seeds) > 0 and all(isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32 for seed in seeds)
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ExperimentError(f'seeds must be whole numbers from 0 to 4294967295, as a list, one number or "42,73", got {seeds!r}')
    if len(set(seeds)) < len(seeds):
        raise ExperimentError(f"seeds must differ, got {list(seeds)}")
    return seeds


def check_device(device: str) -> str:
    """Return the torch device for ``auto``, ``cpu``, ``cuda`` or ``cuda:N``. Raises ExperimentError for another name or one that is not there."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "cpu" or (gpus and device == "cuda") or device in [f"cuda:{index}" for index in range(gpus)]:
        return device
    raise ExperimentError(f"the device {device!r} is not available here: choose auto, cpu or, with an NVIDIA GPU, cuda")


def parameters(namespace: dict, kind: str = "texts") -> Parameters:
    """Check a chapter's parameters: call it as ``parameters(globals())`` right after the cell that papermill overrides.

    ``kind`` says what the chapter is about, ``texts``, ``short texts`` or ``images``; it settles what the data set ``auto`` is.

    Raises ExperimentError for an unknown parameter name (papermill itself only warns), a wrong type or a value out of range.
    """
    notebook_names = {"In", "Out", "exit", "quit", "get_ipython", "open", "parameters"}
    known = {"profile", "seeds", "dataset", "device"}
    given = [name for name, value in namespace.items() if not name.startswith("_") and not isinstance(value, ModuleType)]
    unknown = [name for name in given if name not in known | notebook_names]
    missing = [name for name in sorted(known) if name not in namespace]
    if unknown or missing:
        raise ExperimentError(f"{'unknown' if unknown else 'missing'} parameter {(unknown or missing)[0]!r}: a chapter takes {', '.join(sorted(known))}")
    for name in ("profile", "dataset", "device"):
        if not isinstance(namespace[name], str):
            raise ExperimentError(f"{name} must be text, got {namespace[name]!r}")
    _profile(namespace["profile"])
    dataset = data.resolve(namespace["dataset"], kind)
    held = data.describe(dataset).kind
    if held != kind:
        fitting = [name for name in data.available_datasets() if data.describe(name).kind == kind]
        raise ExperimentError(f"the data set {dataset!r} holds {held}, and this chapter is about {kind}: choose auto or one of {', '.join(fitting)}")
    return Parameters(namespace["profile"], parse_seeds(namespace["seeds"]), dataset, check_device(namespace["device"]))


# ---------------------------------------------------------------- data of a run


@dataclass(frozen=True)
class Task:
    """The vectors and labels of one run, and how many documents had no known word and were left out."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int
    empty_train: int
    empty_test: int
    train_rows: np.ndarray | None = None  # where the documents stand in the corpus
    test_rows: np.ndarray | None = None


_load = lru_cache(maxsize=2)(data.load_dataset)


@lru_cache(maxsize=2)
def load_task(dataset: str, embedding: str, seed: int, n_train: int, n_test: int | None, device: str = "cpu") -> Task:
    """Draw a run's documents (``text.CHOICES["subset"]``) and embed them. ``n_test=None`` takes the whole test set.

    Short texts are their own test set. With ``TEXTS`` as embedding documents stay texts, and none is left out.
    """
    if dataset == DRAWN:
        points = np.random.default_rng(named_seed(seed, "points")).normal(size=(n_train, images.DIMENSIONS)).astype(np.float32)
        return Task(points, np.zeros(n_train, dtype=np.int64), points[:0], np.zeros(0, dtype=np.int64), 1, 0, 0)
    corpus = _load(dataset)
    train_rows = np.random.default_rng(named_seed(seed, "subset")).permutation(len(corpus.train))[:n_train]
    test_rows = np.arange(len(corpus.test))
    if n_test is not None:
        test_rows = np.random.default_rng(named_seed(seed, "test subset")).permutation(test_rows)[:n_test]
    if not len(corpus.test):  # short texts, which are clustered whole
        rows = np.sort(train_rows)  # all of them come in one order, whatever the seed, and are embedded once
        texts, labels = [corpus.train.texts[i] for i in rows], corpus.train.labels[rows]
        vectors, known = _embedded(texts, embedding, None, device)
        empty = int((~known).sum())
        return Task(vectors, labels, vectors, labels, len(corpus.class_names), empty, empty, rows, rows)
    if isinstance(corpus.train, data.Images):
        parts = [(split.pixels[rows] / np.float32(255), split.labels[rows]) for split, rows in ((corpus.train, train_rows), (corpus.test, test_rows))]
        return Task(*parts[0], *parts[1], len(corpus.class_names), 0, 0, train_rows, test_rows)
    train_texts, test_texts = ([split.texts[i] for i in rows] for split, rows in ((corpus.train, train_rows), (corpus.test, test_rows)))
    train_x, train_kept = _embedded(train_texts, embedding, None, device)
    test_x, test_kept = _embedded(test_texts, embedding, train_texts, device)
    return Task(
        train_x[train_kept], corpus.train.labels[train_rows][train_kept], test_x[test_kept], corpus.test.labels[test_rows][test_kept],
        len(corpus.class_names), int((~train_kept).sum()), int((~test_kept).sum()), train_rows[train_kept], test_rows[test_kept],
    )  # fmt: skip


def _embedded(texts, embedding, fit_texts, device):
    """Return what stands for texts in a task, and which of them say something (bool [N])."""
    if embedding == TEXTS:
        return np.array(texts, dtype=object), np.ones(len(texts), dtype=bool)
    vectors = embeddings.embed(texts, embedding, fit_texts=fit_texts, device=device)
    return vectors, embeddings.has_words(vectors)


# ---------------------------------------------------------------- running


def fingerprint(dataset: str, embedding: str, task: str | None = None) -> str | None:
    """Name the data behind a run (the corpus, the embedding's resource, and a ranking task with data of its own), or None if they are not all at hand."""
    if dataset == DRAWN:
        return "drawn"
    found = [data.locate(name) for name in (dataset, *short_texts.RANKINGS) if name in (dataset, task)]
    if None in found:
        return None
    with contextlib.suppress(SnnlError):  # the published InferSent weights, the inference pairs, or in a pack the texts
        corpus, *ranked = [form.fingerprint for form, *_ in found]
        return "-".join([corpus, embeddings.fingerprint(embedding), *ranked])


def _extras(spec):
    """Give the modules that a run needs beyond the minimal dependencies."""
    if spec.model in ("umap", "n2d") or spec.get("clusterer", "").startswith("umap"):
        yield "umap"
    if spec.model in short_texts.TRAINED or spec.embedding in embeddings.TRANSFORMERS:
        yield "transformers"
    elif not pack.opened and (spec.embedding == "sif" or spec.embedding.startswith(("spacy", "infersent", "tfidf"))):
        yield "spacy"  # stop words and vectors, which a pack brings


def unmet(spec: Spec, device: str = "auto") -> str:
    """Say what a run needs that is not on this machine, or not on this device, or nothing."""
    if spec.dataset != DRAWN and data.locate(spec.dataset) is None:
        return f"the data set {spec.dataset} is not on this machine" + (f"; and it needs a GPU (about {spec.needs})" if spec.needs else "")
    if fingerprint(spec.dataset, spec.embedding) is None:
        what = {"infersent-nli": "the inference pairs", "infersent": "the published InferSent weights", "sif": "the words of the vectors"}
        what |= dict.fromkeys(("tfidf", "sif-corpus"), "the texts")
        what = what.get(spec.embedding, f"the weights of {spec.embedding}")
        return f"{what} are not {'in the pack' if pack.opened else 'on this machine'}"
    if pack.opened and spec.dataset != DRAWN and data.describe(spec.dataset).kind == "texts" and not spec.embedding.startswith(("spacy", "infersent")):
        return "the texts are not in the pack"  # which has word rows in their place
    if spec.get("task") in short_texts.RANKINGS and data.locate(spec["task"]) is None:
        return f"the ranking task {spec['task']} is not on this machine"
    if absent := next(filter(None, map(lacks, _extras(spec))), ""):
        return absent
    if spec.needs and not check_device(device).startswith("cuda"):
        return f"needs a GPU (about {spec.needs})"
    return ""


def runnable(specs: list[Spec], device: str = "auto") -> list[Spec]:
    """Keep the runs that can be made here, on this device; data sets that are not here are fetched.

    Raises DataError where one is out of reach and no run is left.
    """
    refused = None
    for name in {spec.dataset for spec in specs} - {DRAWN}:
        if data.locate(name) is None and not pack.opened:
            try:
                data.fetch(name)
            except data.DataError as error:
                refused = error
    if refused and not any(spec.dataset == DRAWN or data.locate(spec.dataset) for spec in specs):
        raise refused
    return [spec for spec in specs if not unmet(spec, device)]


def run(spec: Spec, device: str = "auto", progress: bool = False) -> Record:
    """Carry out one run: draw and embed the documents, train, evaluate.

    The record's status tells if the run diverged, collapsed or broke off with an error. Sets torch to one thread.
    """
    device, experiment = check_device(device), EXPERIMENTS[spec.experiment]
    torch.set_num_threads(1)
    embedding = TEXTS if spec.model in short_texts.TRAINED or spec.experiment == "retrieval" else spec.embedding
    task, started = load_task(spec.dataset, embedding, spec.seed, spec.n_train, spec["n_test"], device), time.perf_counter()
    try:
        outcome = experiment.run(spec, task, device, str(spec) if progress else None)
    except (RuntimeError, ValueError, ArithmeticError, MemoryError) as error:  # shown as a failed run, never dropped
        outcome = results.Outcome({}, status="failed", reason=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    scores = dict.fromkeys(experiment.metrics, np.nan) | outcome.metrics | {"empty_train": task.empty_train, "empty_test": task.empty_test}
    scores |= embeddings.facts(spec.embedding)
    size, absent = stack_of_this_run()
    rounded = ", with weights rounded to float16" if pack.opened and spec.embedding in embeddings.TRANSFORMERS else ""
    return Record(
        spec, fingerprint(spec.dataset, spec.embedding, spec.get("task")), scores, len(task.train_x), len(task.test_x), time.perf_counter() - started - absent,
        device_name(device) + rounded + (f", in a stack of {size}" if size > 1 else ""), outcome.status, outcome.reason, outcome.curve, outcome.points,
    )  # fmt: skip


def outstanding(experiment: str, profile="full", dataset="auto", seeds=None, device="auto") -> list[Spec]:
    """List the runs of an experiment that have no record, a stale one or a failed one, and can be made here (``runnable``)."""
    return runnable([spec for spec, verdict, _ in status(experiment, profile, dataset, seeds) if verdict != "done"], device)


def run_all(specs: list[Spec], device: str = "auto", jobs: int = 1, progress: bool = False, stack: int = 1) -> Iterator[Record]:
    """Carry out runs, write each record as it finishes and yield it; ``jobs`` processes side by side, one torch thread each.

    With a ``stack`` of more than one, up to so many runs of one experiment, embedding and length are trained together
    (``training.together``), and ``jobs`` of them evaluated at a time. Interrupting loses only the runs under way.
    """
    if stack > 1:
        alike = {}
        for spec in specs:
            alike.setdefault((spec.experiment, spec.dataset, spec.embedding, spec.n_train, spec.get("epochs"), spec.get("steps_per_epoch")), []).append(spec)
        for (experiment, dataset, embedding, *_), group in alike.items():
            for start in range(0, len(group), stack):
                part = group[start : start + stack]
                bar = f"{experiment}: {len(part)} runs on {dataset}/{embedding}" if progress else None
                yield from together([partial(_run_and_write, spec, device, False) for spec in part], check_device(device), jobs, bar)
        return
    if jobs == 1:
        for spec in specs:
            yield _run_and_write(spec, device, progress)
        return
    for name in {spec.dataset for spec in specs} - {DRAWN}:
        data.load_dataset(name)  # fetched once, before the workers start
    if any(spec.embedding == "infersent-nli" for spec in specs):
        embeddings.nli_weights(device)  # and trained once
    packed = pack.opened and pack.opened.path
    calls = (joblib.delayed(_run_and_write)(spec, device, False, packed) for spec in specs)
    records = joblib.Parallel(jobs, return_as="generator_unordered", batch_size=1)(calls)
    try:
        for record in records:  # noqa: UP028 - `yield from` would close it outside of the finally, with the warning
            yield record
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib's own, on runs that Ctrl-C has cancelled
            records.close()


def costs(specs: list[Spec]) -> list[float]:
    """Estimate how long runs take beside each other, from the seconds of recorded runs alike; 1 is their mean, and where none is recorded."""
    records = results.load_results().drop_duplicates("key")
    known = records.groupby(["experiment", "embedding", "model"])["seconds"].median().to_dict()
    found = [known.get((spec.experiment, spec.embedding, spec.model), math.nan) for spec in specs]
    mean = np.nanmean(found) if not np.isnan(found).all() else 1
    return np.nan_to_num(np.array(found) / mean, nan=1.0).tolist()


def _run_and_write(spec, device, progress, packed=None):
    if packed and not pack.opened:  # a worker starts without it
        pack.open_pack(packed)
    record = run(spec, device, progress)
    results.write_record(record)
    return record


def device_name(device: str) -> str:
    """Describe a device for a record; a preloaded library is named, for it can take the place of any arithmetic."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    name, preloaded = "", os.environ.get("LD_PRELOAD", "")
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as file:
        name = next((f" ({line.split(':')[1].strip()})" for line in file if line.startswith("model name")), "")
    return f"CPU, one thread{name}" + (f", with {Path(preloaded).name}" if preloaded else "")


def status(experiment: str, profile="full", dataset="auto", seeds=None) -> list[tuple[Spec, str, str]]:
    """List each spec of an experiment with ``done``, ``stale``, ``failed`` or ``missing``, and what it needs that is not on this machine."""
    wanted = specs(experiment, profile, dataset, seeds)
    names = {spec: (spec.dataset, spec.embedding, spec.get("task")) for spec in wanted}
    known = {name: fingerprint(*name) for name in set(names.values())}
    prints = {spec: known[name] for spec, name in names.items()}
    return [(spec, verdict, unmet(spec)) for spec, verdict in results.judge(wanted, prints).items()]
