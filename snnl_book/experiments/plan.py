"""Which runs there are, which of them are recorded, and what the others need: the plan of the book.

``EXPERIMENTS`` is the registry: an experiment is a line in its family's file, and a family a line
in ``FAMILIES``. Nothing here imports what takes seconds, torch above all.
"""

import contextlib
import ctypes
import json
import statistics
import sys
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from snnl_book import answers, data, embeddings, lacks, results
from snnl_book.experiments import classification, images, labels, maps, short_texts, text_clustering
from snnl_book.experiments.cells import DRAWN, PROFILES, Experiment
from snnl_book.experiments.draws import FURTHER_DRAWS, drawn_for
from snnl_book.results import Spec
from snnl_lib import SnnlError

FAMILIES = (classification, text_clustering, labels, maps, images, short_texts)
EXPERIMENTS: dict[str, Experiment] = {
    name: experiment for family in FAMILIES for name, experiment in family.EXPERIMENTS.items()
}
PAPER = ("classification", "clustering", "lexicon", "tsne")
"""What ``run paper`` repeats: Tables 1-4 and Figures 1-2 of the text paper."""


class ExperimentError(SnnlError):
    """An unknown experiment, profile, seed, data set or device."""


# ---------------------------------------------------------------- which runs there are


def specs(experiment: str, profile: str = "full", dataset: str = "auto", seeds=None) -> list[Spec]:
    """List the run specs of an experiment, cell by cell for each seed.

    ``dataset``: ``auto`` takes the experiment's own data sets, and for texts the paper's if at
    hand, else the embedded default; the name of a corpus takes the runs on texts, with it; the name
    of a set of images or of short texts the runs on that; there may be none. Runs on ``digits``,
    which none of the papers has, are meant by name alone. ``seeds``: default, the experiment's own.
    Raises ExperimentError or DataError for a name it does not know.
    """
    settings = named("profile", profile, PROFILES)
    grid = named("experiment", experiment, EXPERIMENTS)
    corpus = data.resolve(dataset)
    kind = data.describe(corpus).kind

    def meant(own):
        return own != images.EMBEDDED if dataset == "auto" else _runs_on(own, corpus, kind)

    cells = [cell for cell in grid.cells(settings) if meant(cell.dataset)]
    asked = None if seeds is None else parse_seeds(seeds)
    seeds_of = [_seeds_of(cell, grid.seeds, asked) for cell in cells]
    in_order = dict.fromkeys(chain(asked or grid.seeds, *seeds_of))
    return [
        _spec((experiment, profile, cell.dataset or corpus), cell, seed, settings, grid)
        for seed in in_order
        for cell, own in zip(cells, seeds_of, strict=True)
        if seed in own
    ]


def _seeds_of(cell, usual, asked):
    """Return the seeds that a cell is run for: those asked for, or else its own or the usual."""
    if isinstance(cell.seeds, tuple):
        return asked or cell.seeds
    if asked:
        return asked[: cell.seeds]
    draws = FURTHER_DRAWS if cell.drawn_anew else ()
    return (*usual[: cell.seeds], *draws)


def _spec(where, cell, seed, profile, grid):
    settings = {"n_test": profile["n_test"]} | cell.settings
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()}
    temperature, n_train = cell.temperature, cell.n_train or profile["n_train"]
    names = (*where, cell.embedding, cell.model, cell.alpha, temperature if cell.alpha else "none")
    settings = tuple(sorted(settings.items()))
    revision = cell.revision or grid.revision
    return Spec(*names, seed, n_train, revision, settings, cell.needs, cell.label, cell.seconds)


def _runs_on(named, asked, kind):
    """Tell if a cell with a data set of its own, or none, is meant by the name of a data set.

    Points are meant by any, texts by any corpus, images and short texts by their own name.
    """
    if named == DRAWN:
        return True
    return not named or data.describe(named).kind == "texts" if kind == "texts" else named == asked


def named(kind: str, name: str, known: dict):
    """Return an experiment, or a profile's settings. Raises ExperimentError for an unknown name."""
    if name not in known:
        raise ExperimentError(f"there is no {kind} {name!r}: choose one of {', '.join(known)}")
    return known[name]


def parse_seeds(seeds) -> tuple[int, ...]:
    """Read seeds given as a list, one integer or text such as ``"42,73"``.

    Raises ExperimentError for anything else, or a repeated seed.
    """

    def is_seed(seed):
        return isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32

    given = seeds
    try:
        if isinstance(seeds, str):
            seeds = [int(part) for part in seeds.strip("[]() ").split(",")]
        seeds = tuple([seeds] if isinstance(seeds, int) else seeds)
        valid = len(seeds) > 0 and all(map(is_seed, seeds))
    except (TypeError, ValueError):
        valid = False
    if not valid:
        wanted = 'whole numbers from 0 to 4294967295, as a list, one number or "42,73"'
        raise ExperimentError(f"seeds must be {wanted}, got {given!r}")
    if len(set(seeds)) < len(seeds):
        raise ExperimentError(f"seeds must differ, got {list(seeds)}")
    return seeds


# ---------------------------------------------------------------- what is at hand


def check_device(device: str) -> str:
    """Return the torch device for ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises ExperimentError for another name or one that is not there.
    """
    cuda = _cuda()
    if device == "auto":
        return "cuda" if cuda else "cpu"
    gpus = cuda.device_count() if cuda else 0
    if device == "cpu" or (gpus and device in ("cuda", *(f"cuda:{gpu}" for gpu in range(gpus)))):
        return device
    advice = "choose auto, cpu or, with an NVIDIA GPU, cuda"
    raise ExperimentError(f"the device {device!r} is not available here: {advice}")


def _cuda():
    """Return ``torch.cuda`` if there is a GPU for it, else None.

    Without a driver there is none, and torch need not be imported to say so.
    """
    if "torch" not in sys.modules and not gpu_driver():
        return None
    import torch

    return torch.cuda if torch.cuda.is_available() else None


ON_CPU = {"original", "pca", "points", "lda", "logreg", "logreg-predictions", "svm", "knn"}
ON_CPU |= {"kmeans", "spherical-kmeans", "umap", "gmm"}
"""Models that are computed on the CPU whatever the device, because torch has no part in them."""


def trains_on(spec: Spec, device: str) -> str:
    """Return the device that computes a run's model when ``device`` is asked for."""
    alone = spec.model == "plain" and not spec.get("clusterer", "").endswith("idec")
    return "cpu" if alone or spec.model in ON_CPU else device


def embeds_on(spec: Spec, device: str) -> str:
    """Return the device that computes a run's vectors when ``device`` is asked for."""
    encoded = spec.embedding in embeddings.TRANSFORMERS or spec.embedding.startswith("infersent")
    return device if encoded else "cpu"


def device_type(spec: Spec, device: str) -> str:
    """Return the type of device that a run's record is of (``results.device_type_of``).

    It is ``cpu`` only if neither the model nor the vectors were computed elsewhere.
    """
    places = trains_on(spec, device), embeds_on(spec, device)
    return next((place.partition(":")[0] for place in places if place != "cpu"), "cpu")


def device_names(spec: Spec, device: str) -> str:
    """Describe for a record what computed a run: its model, and its vectors if elsewhere."""
    trained, embedded = trains_on(spec, device), embeds_on(spec, device)
    name = results.device_name(trained)
    return (
        name
        if trained == embedded or embedded == "cpu"
        else (f"{name}; vectors by {results.device_name(embedded)}")
    )


@cache
def gpu_driver() -> bool:
    """Tell whether the driver of a GPU that torch calls cuda, NVIDIA's or AMD's, is here."""
    for name in ("libcuda.so.1", "nvcuda.dll"):
        with contextlib.suppress(OSError):
            return bool(ctypes.CDLL(name))
    return Path("/dev/kfd").exists()


def fingerprint(dataset: str, embedding: str, task: str | None = None) -> str | None:
    """Name the data behind a run, or None if they are not all at hand.

    The corpus, the embedding's resource, and a ranking task with data of its own.
    """
    if dataset == DRAWN:
        return "drawn"
    names = [name for name in (dataset, *short_texts.RANKINGS) if name in (dataset, task)]
    forms = [data.locate(name) for name in names]
    if None in forms:
        return None
    with contextlib.suppress(SnnlError):  # vectors, weights or inference pairs
        corpus, *ranked = [form.fingerprint for form, *_ in forms]
        return "-".join([corpus, embeddings.fingerprint(embedding), *ranked])


def key(spec: Spec) -> str | None:
    """Name the record that a run made here would have, or None if its data is not at hand."""
    found = fingerprint_of(spec)
    return found and spec.key(found)


def fingerprint_of(spec: Spec) -> str | None:
    """Name the data behind a run, or None if they are not all at hand."""
    return fingerprint(*_needed(spec)[:3])


def unmet(spec: Spec, device: str = "auto", costly: bool = False) -> str:
    """Say what a run needs that is not on this machine, or nothing.

    Or what it costs, if it is left out for that on a CPU (unless ``costly``).
    """
    return _unmet(*_needed(spec), device, costly)


def _needed(spec):
    """What a run needs: data set, embedding, ranking task, modules, and what it costs if it is left
    out for that."""
    mapped = spec.model in ("umap", "n2d") or spec.get("clusterer", "").startswith("umap")
    modules = ("umap",) if mapped else ()
    if spec.model in short_texts.TRAINED or spec.embedding in embeddings.TRANSFORMERS:
        modules += ("transformers",)
    elif not embeddings.words.table_file().exists() and (
        spec.embedding == "sif" or spec.embedding.startswith(("spacy", "infersent"))
    ):
        modules += ("spacy",)  # for word vectors
    embedding = drawn_for(spec.embedding, spec.seed)
    return spec.dataset, embedding, spec.get("task"), modules, spec.needs


_RESOURCES = {
    "infersent-nli": "the inference pairs",
    "infersent": "the published InferSent weights",
    **{name: f"the weights of {name}" for name in embeddings.TRANSFORMERS},
}


def _unmet(dataset, embedding, task, modules, cost, device, costly):
    if dataset != DRAWN and data.locate(dataset) is None:
        and_time = f"; and it takes about {cost}" if cost else ""
        return f"the data set {dataset} is not on this machine{and_time}"
    if fingerprint(dataset, embedding) is None:
        return f"{_RESOURCES.get(embedding, 'the word vectors')} are not on this machine"
    if task in short_texts.RANKINGS and data.locate(task) is None:
        return f"the ranking task {task} is not on this machine"
    if absent := next(filter(None, map(lacks, modules)), ""):
        return absent
    if cost and not costly and not check_device(device).startswith("cuda"):
        return f"left out: about {cost} (`run --costly`, or a GPU, makes it)"
    return ""


# ---------------------------------------------------------------- what is to do


class Planned(NamedTuple):
    """A run of the plan, how it stands, and what it takes.

    ``verdict`` is ``done``, ``stale``, ``failed`` or ``missing`` (``results.judge``). ``unmet``
    says why the run cannot be made here, or nothing. ``seconds`` is the median of the recorded runs
    that are most alike, whatever else their machine did, with what they share; where there is none,
    the seconds that the cell names, measured on a part of a run; else NaN. ``answered`` is False
    for a finished run whose answers were not kept, although its scores count documents.
    """

    spec: Spec
    verdict: str
    unmet: str
    seconds: float
    answered: bool = True


def status(
    experiment: str, profile="full", dataset="auto", seeds=None, device="auto", by_chapters=False
) -> list[Planned]:
    """List what is done and what is to do of an experiment: its ``specs`` in their order, with what
    each needs on the device that is not here (``unmet``) and the seconds that it takes. Runs that
    chapters made count if asked for."""
    wanted = specs(experiment, profile, dataset, seeds)
    printed, lacking = cache(fingerprint), cache(_unmet)  # once for runs that need the same
    needed = {spec: _needed(spec) for spec in wanted}
    prints = {spec: printed(*needed[spec][:3]) for spec in wanted}
    made = results.made(wanted, by_chapters, device_type=None)
    asked = check_device(device)
    types = {spec: device_type(spec, asked) for spec in wanted}
    found = {
        spec: [run for run in runs if by_chapters or run.device_type == types[spec]]
        for spec, runs in results.runs_of(wanted, prints, made).items()
    }
    counts = has_answers(experiment)
    rows = []
    for spec, seconds in zip(wanted, _typical_seconds(wanted, made), strict=True):
        verdict = results.verdict(spec, found[spec])
        unmet = lacking(*needed[spec], device, False)
        answered = not counts or any(run.answered for run in found[spec])
        rows.append(Planned(spec, verdict, unmet, seconds, answered))
    return rows


def has_answers(experiment: str) -> bool:
    """Return whether an experiment's scores count documents, so that its records hold answers."""
    counted = {*answers.COUNTED, *answers.OF_QUERIES}
    return not counted.isdisjoint(EXPERIMENTS[experiment].metrics)


def runnable(specs: list[Spec], device: str = "auto", costly: bool = False) -> list[Spec]:
    """Keep the runs that can be made here, on this device; on a CPU the ``costly`` ones only if
    asked for. Data sets that are not here are fetched.

    Raises DataError where one is out of reach and no run is left.
    """
    refused = None
    for name in {spec.dataset for spec in specs} - {DRAWN}:
        if data.locate(name) is None:
            try:
                data.fetch(name)
            except data.DataError as error:
                refused = error
    if refused and not any(spec.dataset == DRAWN or data.locate(spec.dataset) for spec in specs):
        raise refused
    lacking = cache(_unmet)
    return [spec for spec in specs if not lacking(*_needed(spec), device, costly)]


def _typical_seconds(specs, made):
    took: dict[tuple, list[float]] = {}
    for run in made:
        for kind in _kinds(run.identity):
            took.setdefault(kind, []).append(run.seconds)
    alike = [
        next((took[kind] for kind in _kinds(spec.identity) if kind in took), [spec.seconds])
        for spec in specs
    ]
    return [statistics.median(seconds) for seconds in alike]


def _kinds(identity):
    """What a run is one of, from the narrowest kind to the widest; only runs that do the same to as
    many documents are alike."""
    experiment, profile, dataset, embedding, model, *_, settings = identity
    settings = json.loads(settings)
    size = settings["n_train"], settings.get("epochs"), settings.get("clusterer")
    kind = (experiment, profile, model, *size)
    return (*kind, embedding, dataset), (*kind, embedding), kind
