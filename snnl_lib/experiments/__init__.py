"""What carries the runs of ``grids`` out: ``run(spec)`` turns one into a record, ``status`` says
which are recorded and what the others need.

What a run imports, torch above all, takes seconds: here it is imported where a run starts, and
``status`` does without.
"""

import contextlib
import ctypes
import importlib
import json
import math
import os
import sys
import textwrap
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from types import ModuleType

import numpy as np

from snnl_lib import SnnlError, data, embeddings, lacks, results
from snnl_lib.data import pack
from snnl_lib.experiments.grids import (
    EXPERIMENTS,
    PAPER,
    ExperimentError,
    parse_seeds,
    profile_settings,
    specs,
)
from snnl_lib.experiments.image_grids import DIMENSIONS
from snnl_lib.experiments.settings import DRAWN, MORE_SEEDS, PAPER_SEEDS, PROFILES, TEXTS  # noqa: F401
from snnl_lib.experiments.short_text_grids import RANKINGS, TRAINED
from snnl_lib.results import Record, Spec

# ---------------------------------------------------------------- parameters of a chapter or a
# command


@dataclass(frozen=True)
class Parameters:
    profile: str
    seeds: tuple[int, ...]
    dataset: str
    device: str

    def __str__(self):
        seeds = ", ".join(str(seed) for seed in self.seeds)
        return f"profile {self.profile}, seeds {seeds}, data set {self.dataset}\n{device_name(self.device)}\n{textwrap.fill(results.versions(), 80)}"


def check_device(device: str) -> str:
    """Return the torch device for ``auto``, ``cpu``, ``cuda`` or ``cuda:N``. Raises ExperimentError
    for another name or one that is not there.
    """
    cuda = _cuda()
    if device == "auto":
        return "cuda" if cuda else "cpu"
    gpus = cuda.device_count() if cuda else 0
    if (
        device == "cpu"
        or (gpus and device == "cuda")
        or device in [f"cuda:{index}" for index in range(gpus)]
    ):
        return device
    raise ExperimentError(
        f"the device {device!r} is not available here: choose auto, cpu or, with an NVIDIA GPU, cuda"
    )


def _cuda():
    """Return ``torch.cuda`` if there is a GPU for it, else None; without NVIDIA's driver there is
    none, and torch need not be imported to say so.
    """
    if "torch" not in sys.modules and not gpu_driver():
        return None
    import torch

    return torch.cuda if torch.cuda.is_available() else None


@cache
def gpu_driver() -> bool:
    """Tell whether the driver of a GPU that torch calls cuda, NVIDIA's or AMD's, is on this
    machine.
    """
    for name in ("libcuda.so.1", "nvcuda.dll"):
        with contextlib.suppress(OSError):
            return bool(ctypes.CDLL(name))
    return Path("/dev/kfd").exists()


def parameters(namespace: dict, kind: str = "texts") -> Parameters:
    """Check a chapter's parameters: call it as ``parameters(globals())`` right after the cell that
    papermill overrides.

    ``kind`` says what the chapter is about, ``texts``, ``short texts`` or ``images``; it settles
    what the data set ``auto`` is.

    Raises ExperimentError for an unknown parameter name (papermill itself only warns), a wrong type
    or a value out of range.
    """
    notebook_names = {"In", "Out", "exit", "quit", "get_ipython", "open", "parameters"}
    known = {"profile", "seeds", "dataset", "device"}
    given = [
        name
        for name, value in namespace.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
    unknown = [name for name in given if name not in known | notebook_names]
    missing = [name for name in sorted(known) if name not in namespace]
    if unknown or missing:
        raise ExperimentError(
            f"{'unknown' if unknown else 'missing'} parameter {(unknown or missing)[0]!r}: a chapter takes {', '.join(sorted(known))}"
        )
    for name in ("profile", "dataset", "device"):
        if not isinstance(namespace[name], str):
            raise ExperimentError(f"{name} must be text, got {namespace[name]!r}")
    profile_settings(namespace["profile"])
    dataset = data.resolve(namespace["dataset"], kind)
    held = data.describe(dataset).kind
    if held != kind:
        fitting = [name for name in data.available_datasets() if data.describe(name).kind == kind]
        raise ExperimentError(
            f"the data set {dataset!r} holds {held}, and this chapter is about {kind}: choose auto or one of {', '.join(fitting)}"
        )
    return Parameters(
        namespace["profile"],
        parse_seeds(namespace["seeds"]),
        dataset,
        check_device(namespace["device"]),
    )


# ---------------------------------------------------------------- data of a run


@dataclass(frozen=True)
class Task:
    """The vectors and labels of one run, and how many documents had no known word and were left
    out.
    """

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
def load_task(
    dataset: str, embedding: str, seed: int, n_train: int, n_test: int | None, device: str = "cpu"
) -> Task:
    """Draw a run's documents (``text.CHOICES["subset"]``) and embed them. ``n_test=None`` takes the
    whole test set.

    Short texts are their own test set. With ``TEXTS`` as embedding documents stay texts, and none
    is left out.
    """
    from snnl_lib.training import named_seed

    if dataset == DRAWN:
        points = (
            np.random.default_rng(named_seed(seed, "points"))
            .normal(size=(n_train, DIMENSIONS))
            .astype(np.float32)
        )
        return Task(
            points,
            np.zeros(n_train, dtype=np.int64),
            points[:0],
            np.zeros(0, dtype=np.int64),
            1,
            0,
            0,
        )
    corpus = _load(dataset)
    train_rows = np.random.default_rng(named_seed(seed, "subset")).permutation(len(corpus.train))[
        :n_train
    ]
    test_rows = np.arange(len(corpus.test))
    if n_test is not None:
        test_rows = np.random.default_rng(named_seed(seed, "test subset")).permutation(test_rows)[
            :n_test
        ]
    if not len(corpus.test):  # short texts, which are clustered whole
        rows = np.sort(
            train_rows
        )  # all of them come in one order, whatever the seed, and are embedded once
        texts, labels = [corpus.train.texts[i] for i in rows], corpus.train.labels[rows]
        vectors, known = _embedded(texts, embedding, None, device)
        empty = int((~known).sum())
        return Task(
            vectors, labels, vectors, labels, len(corpus.class_names), empty, empty, rows, rows
        )
    if isinstance(corpus.train, data.Images):
        parts = [
            (split.pixels[rows] / np.float32(255), split.labels[rows])
            for split, rows in ((corpus.train, train_rows), (corpus.test, test_rows))
        ]
        return Task(*parts[0], *parts[1], len(corpus.class_names), 0, 0, train_rows, test_rows)
    train_texts, test_texts = (
        [split.texts[i] for i in rows]
        for split, rows in ((corpus.train, train_rows), (corpus.test, test_rows))
    )
    train_x, train_kept = _embedded(train_texts, embedding, None, device)
    test_x, test_kept = _embedded(test_texts, embedding, train_texts, device)
    return Task(
        train_x[train_kept],
        corpus.train.labels[train_rows][train_kept],
        test_x[test_kept],
        corpus.test.labels[test_rows][test_kept],
        len(corpus.class_names),
        int((~train_kept).sum()),
        int((~test_kept).sum()),
        train_rows[train_kept],
        test_rows[test_kept],
    )


def _embedded(texts, embedding, fit_texts, device):
    """Return what stands for texts in a task, and which of them say something (bool [N])."""
    if embedding == TEXTS:
        return np.array(texts, dtype=object), np.ones(len(texts), dtype=bool)
    vectors = embeddings.embed(texts, embedding, fit_texts=fit_texts, device=device)
    return vectors, embeddings.has_words(vectors)


# ---------------------------------------------------------------- running


def fingerprint(dataset: str, embedding: str, task: str | None = None) -> str | None:
    """Name the data behind a run (the corpus, the embedding's resource, and a ranking task with
    data of its own), or None if they are not all at hand.
    """
    if dataset == DRAWN:
        return "drawn"
    found = [data.locate(name) for name in (dataset, *RANKINGS) if name in (dataset, task)]
    if None in found:
        return None
    with contextlib.suppress(
        SnnlError
    ):  # the published InferSent weights, the inference pairs, or in a pack the texts
        corpus, *ranked = [form.fingerprint for form, *_ in found]
        return "-".join([corpus, embeddings.fingerprint(embedding), *ranked])


def key(spec: Spec) -> str | None:
    """Name the record that a run made here would have (``Spec.key``), or None if its data is not at
    hand.
    """
    found = fingerprint(spec.dataset, spec.embedding, spec.get("task"))
    return found and spec.key(found)


def unmet(spec: Spec, device: str = "auto", costly: bool = False) -> str:
    """Say what a run needs that is not on this machine, what it costs if it is left out for that
    (unless ``costly``), or nothing.
    """
    return _unmet(*_needed(spec), device, costly)


def _needed(spec):
    """What a run needs: a data set, an embedding, perhaps a ranking task, modules beyond the
    minimal dependencies; what it costs on a CPU core if it is left out there.
    """
    modules = (
        ("umap",)
        if spec.model in ("umap", "n2d") or spec.get("clusterer", "").startswith("umap")
        else ()
    )
    if spec.model in TRAINED or spec.embedding in embeddings.TRANSFORMERS:
        modules += ("transformers",)
    elif not pack.opened() and (
        spec.embedding == "sif" or spec.embedding.startswith(("spacy", "infersent", "tfidf"))
    ):
        modules += ("spacy",)  # stop words and vectors, which a pack brings
    return spec.dataset, spec.embedding, spec.get("task"), modules, spec.needs


def _unmet(dataset, embedding, task, modules, cost, device, costly):
    if dataset != DRAWN and data.locate(dataset) is None:
        return f"the data set {dataset} is not on this machine" + (
            f"; and it takes about {cost}" if cost else ""
        )
    if fingerprint(dataset, embedding) is None:
        what = {
            "infersent-nli": "the inference pairs",
            "infersent": "the published InferSent weights",
            "sif": "the words of the vectors",
        }
        what |= dict.fromkeys(("tfidf", "sif-corpus"), "the texts")
        what = what.get(embedding, f"the weights of {embedding}")
        return f"{what} are not {'in the pack' if pack.opened() else 'on this machine'}"
    if (
        pack.opened()
        and dataset != DRAWN
        and data.describe(dataset).kind == "texts"
        and not embedding.startswith(("spacy", "infersent"))
    ):
        return "the texts are not in the pack"  # which has word rows in their place
    if task in RANKINGS and data.locate(task) is None:
        return f"the ranking task {task} is not on this machine"
    if absent := next(filter(None, map(lacks, modules)), ""):
        return absent
    if cost and not costly and not check_device(device).startswith("cuda"):
        return f"left out: about {cost} (`run --costly`, or a GPU, makes it)"
    return ""


def status(
    experiment: str, profile="full", dataset="auto", seeds=None
) -> list[tuple[Spec, str, str]]:
    """List each spec of an experiment with ``done``, ``stale``, ``failed`` or ``missing``, and why
    it cannot be made here (``unmet``).
    """
    wanted, named, lacking = (
        specs(experiment, profile, dataset, seeds),
        cache(fingerprint),
        cache(_unmet),
    )  # looked up once for runs that need the same
    prints = {spec: named(*_needed(spec)[:3]) for spec in wanted}
    return [
        (spec, verdict, lacking(*_needed(spec), "auto", False))
        for spec, verdict in results.judge(wanted, prints).items()
    ]


def runnable(specs: list[Spec], device: str = "auto", costly: bool = False) -> list[Spec]:
    """Keep the runs that can be made here, on this device, on a CPU the ``costly`` ones only if
    asked for; data sets that are not here are fetched.

    Raises DataError where one is out of reach and no run is left.
    """
    refused = None
    for name in {spec.dataset for spec in specs} - {DRAWN}:
        if data.locate(name) is None and not pack.opened():
            try:
                data.fetch(name)
            except data.DataError as error:
                refused = error
    if refused and not any(spec.dataset == DRAWN or data.locate(spec.dataset) for spec in specs):
        raise refused
    lacking = cache(_unmet)
    return [spec for spec in specs if not lacking(*_needed(spec), device, costly)]


def run(spec: Spec, device: str = "auto", progress: bool = False) -> Record:
    """Carry out one run: draw and embed the documents, train, evaluate.

    The record's status tells if the run diverged, collapsed or broke off with an error. Sets torch
    to one thread.
    """
    import torch

    from snnl_lib.training import stack_of_this_run

    device, experiment = check_device(device), EXPERIMENTS[spec.experiment]
    module, function = experiment.run.split(".")
    carry_out = getattr(importlib.import_module(f"snnl_lib.experiments.{module}"), function)
    torch.set_num_threads(1)
    embedding = TEXTS if spec.model in TRAINED or spec.experiment == "retrieval" else spec.embedding
    task, started = (
        load_task(spec.dataset, embedding, spec.seed, spec.n_train, spec["n_test"], device),
        time.perf_counter(),
    )
    try:
        outcome = carry_out(spec, task, device, str(spec) if progress else None)
    except (
        RuntimeError,
        ValueError,
        ArithmeticError,
        MemoryError,
    ) as error:  # shown as a failed run, never dropped
        outcome = results.Outcome(
            {},
            status="failed",
            reason=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
        )
    scores = (
        dict.fromkeys(experiment.metrics, np.nan)
        | outcome.metrics
        | {"empty_train": task.empty_train, "empty_test": task.empty_test}
    )
    scores |= embeddings.facts(spec.embedding)
    size, absent = stack_of_this_run()
    rounded = (
        ", with weights rounded to float16"
        if pack.opened() and spec.embedding in embeddings.TRANSFORMERS
        else ""
    )
    return Record(
        spec,
        fingerprint(spec.dataset, spec.embedding, spec.get("task")),
        scores,
        len(task.train_x),
        len(task.test_x),
        time.perf_counter() - started - absent,
        device_name(device) + rounded + (f", in a stack of {size}" if size > 1 else ""),
        outcome.status,
        outcome.reason,
        outcome.curve,
        outcome.points,
    )


def outstanding(
    experiment: str, profile="full", dataset="auto", seeds=None, device="auto"
) -> list[Spec]:
    """List the runs of an experiment that have no record, a stale one or a failed one, and can be
    made here (``runnable``).
    """
    return runnable(
        [
            spec
            for spec, verdict, _ in status(experiment, profile, dataset, seeds)
            if verdict != "done"
        ],
        device,
    )


def run_all(
    specs: list[Spec], device: str = "auto", jobs: int = 1, progress: bool = False, stack: int = 1
) -> Iterator[Record]:
    """Carry out runs, write each record as it finishes and yield it; ``jobs`` processes side by
    side, one torch thread each.

    With a ``stack`` of more than one, up to so many runs of one experiment, embedding and length
    are trained together (``training.together``), and ``jobs`` of them evaluated at a time.
    Interrupting loses only the runs under way.
    """
    if stack > 1:
        from snnl_lib.training import together

        alike = {}
        for spec in specs:
            alike.setdefault(
                (
                    spec.experiment,
                    spec.dataset,
                    spec.embedding,
                    spec.n_train,
                    spec.get("epochs"),
                    spec.get("steps_per_epoch"),
                ),
                [],
            ).append(spec)
        for (experiment, dataset, embedding, *_), group in alike.items():
            for start in range(0, len(group), stack):
                part = group[start : start + stack]
                bar = (
                    f"{experiment}: {len(part)} runs on {dataset}/{embedding}" if progress else None
                )
                yield from together(
                    [partial(_run_and_write, spec, device, False) for spec in part],
                    check_device(device),
                    jobs,
                    bar,
                )
        return
    if jobs == 1:
        for spec in specs:
            yield _run_and_write(spec, device, progress)
        return
    for name in {spec.dataset for spec in specs} - {DRAWN}:
        data.load_dataset(name)  # fetched once, before the workers start
    if any(spec.embedding == "infersent-nli" for spec in specs):
        embeddings.nli_weights(device)  # and trained once
    import joblib

    packed = pack.opened() and pack.opened().path
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
    """Estimate how long runs take beside each other, from the seconds of recorded runs alike; 1 is
    their mean, and where none is recorded.
    """
    if len(specs) < 2:  # nothing to compare, and reading all records takes longer than many a run
        return [1.0] * len(specs)
    found = np.array(typical_seconds(specs))
    mean = np.nanmean(found) if not np.isnan(found).all() else 1
    return np.nan_to_num(found / mean, nan=1.0).tolist()


def typical_seconds(specs: list[Spec]) -> list[float]:
    """Estimate how many seconds runs take: the median of those recorded that are most alike,
    whatever else their machine did; NaN where none is.
    """
    took: dict[tuple, list[float]] = {}
    for experiment, profile in {(spec.experiment, spec.profile) for spec in specs}:
        for run in results.runs(experiment, profile):
            for kind in _kinds(run.identity):
                took.setdefault(kind, []).append(run.seconds)
    return [
        float(
            np.median(
                next((took[kind] for kind in _kinds(spec.identity) if kind in took), [math.nan])
            )
        )
        for spec in specs
    ]


def _kinds(identity):
    """What a run is one of, from the narrowest kind to the widest; only runs that do the same to as
    many documents are alike.
    """
    experiment, profile, dataset, embedding, model, *_, settings = identity
    settings = json.loads(settings)
    kind = (experiment, profile, model, settings["n_train"], settings.get("clusterer"))
    return (*kind, embedding, dataset), (*kind, embedding), kind


def _run_and_write(spec, device, progress, packed=None):
    if packed and not pack.opened():  # a worker starts without it
        pack.open_pack(packed)
    record = run(spec, device, progress)
    results.write_record(record)
    return record


def device_name(device: str) -> str:
    """Describe a device for a record; a preloaded library is named, for it can take the place of
    any arithmetic.
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    name, preloaded = "", os.environ.get("LD_PRELOAD", "")
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as file:
        name = next(
            (f" ({line.split(':')[1].strip()})" for line in file if line.startswith("model name")),
            "",
        )
    return f"CPU, one thread{name}" + (f", with {Path(preloaded).name}" if preloaded else "")
