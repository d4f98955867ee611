"""The plan of the book: which runs there are, which are recorded, and what the others need.

``EXPERIMENTS`` lists all experiments. Each is a line in the file of its family, and ``FAMILIES``
lists the families. Nothing here imports what takes seconds to load, torch above all.
"""

import contextlib
import json
import math
import statistics
from functools import cache
from itertools import chain
from typing import NamedTuple

from snnl_book import answers, data, embeddings, lacks, results
from snnl_book.experiments import (
    classification,
    images,
    labels,
    maps,
    second_corpus,
    short_texts,
    text_clustering,
)
from snnl_book.experiments.cells import DRAWN, PROFILES, Experiment, ExperimentError
from snnl_book.experiments.devices import check_device, device_type
from snnl_book.experiments.draws import FURTHER_DRAWS, drawn_for
from snnl_book.results import Spec
from snnl_lib import SnnlError

FAMILIES = (classification, text_clustering, labels, maps, images, short_texts)
EXPERIMENTS: dict[str, Experiment] = {
    name: experiment for family in FAMILIES for name, experiment in family.EXPERIMENTS.items()
}
PAPER = ("classification", "clustering", "lexicon", "tsne")
"""The experiments of ``run paper``: Tables 1-4 and Figures 1-2 of the text paper."""


# ---------------------------------------------------------------- which runs there are


def specs(experiment: str, profile: str = "full", dataset: str = "auto", seeds=None) -> list[Spec]:
    """List the specs of an experiment, cell by cell for each seed.

    Args:
        dataset: ``auto`` takes the data sets of the experiment; for texts that is AG News if it is
            on this machine, else the included corpus, and for the main comparisons also
            ``second_corpus.CORPUS``. The name of a corpus selects the runs on
            texts and carries them out on it. The name of a set of images or of short texts selects
            the runs on it, if there are any. ``digits``, which none of the papers uses, must be
            named.
        seeds: those of the experiment by default.

    Raises ExperimentError or DataError for an unknown name.
    """
    sizes = known_value("profile", profile, PROFILES)
    grid = known_value("experiment", experiment, EXPERIMENTS)
    corpus = data.resolve(dataset)
    if dataset == "auto":
        cells = [cell for cell in grid.cells(sizes) if cell.dataset != images.EMBEDDED]
        cells += second_corpus.cells(experiment, grid, sizes)
    else:
        cells = [cell for cell in grid.cells(sizes) if _runs_on(cell, corpus)]
    requested = None if seeds is None else parse_seeds(seeds)
    seeds_of = [_seeds_of(cell, grid.seeds, requested) for cell in cells]
    all_seeds = dict.fromkeys(chain(requested or grid.seeds, *seeds_of))
    return [
        _spec(experiment, profile, cell, seed, cell.dataset or corpus)
        for seed in all_seeds
        for cell, cell_seeds in zip(cells, seeds_of, strict=True)
        if seed in cell_seeds
    ]


def _runs_on(cell, dataset):
    """Return whether a cell belongs to the runs that the name of a data set selects.

    A corpus of texts selects every cell on texts or words, any other data set the cells on
    itself. Cells on drawn points are always selected.
    """
    if cell.dataset == DRAWN:
        return True
    if data.describe(dataset).kind == "texts":
        return not cell.dataset or data.describe(cell.dataset).kind in ("texts", "words")
    return cell.dataset == dataset


def _seeds_of(cell, default_seeds, requested):
    """Return the seeds of a cell: those the user requested, or else those of the plan."""
    if isinstance(cell.seeds, tuple):
        return requested or cell.seeds
    if requested:
        return requested[: cell.seeds]
    draws = FURTHER_DRAWS if cell.drawn_anew else ()
    return (*default_seeds[: cell.seeds], *draws)


def _spec(experiment, profile, cell, seed, dataset):
    sizes = PROFILES[profile]
    settings = {"n_test": sizes["n_test"]} | cell.settings
    settings = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    return Spec(
        experiment,
        profile,
        dataset,
        cell.embedding,
        cell.model,
        cell.alpha,
        cell.temperature if cell.alpha else "none",
        seed,
        cell.n_train or sizes["n_train"],
        cell.revision or EXPERIMENTS[experiment].revision,
        tuple(sorted(settings.items())),
        cell.needs,
        cell.label,
    )


def known_value(noun: str, name: str, values: dict):
    """Return the value of a name. Raises ExperimentError if it is not in ``values``."""
    if not isinstance(name, str) or name not in values:
        raise ExperimentError(f"there is no {noun} {name!r}: choose one of {', '.join(values)}")
    return values[name]


def parse_seeds(seeds) -> tuple[int, ...]:
    """Read seeds from a list, one integer, or a text such as ``"42,73"``.

    Raises ExperimentError for anything else, or for a repeated seed.
    """
    try:
        values = [seeds] if isinstance(seeds, int) else seeds
        if isinstance(seeds, str):
            values = [int(part) for part in seeds.strip("[]() ").split(",")]
        values = tuple(values)
        valid = values and all(type(seed) is int and 0 <= seed < 2**32 for seed in values)
    except (TypeError, ValueError):
        valid = False
    if not valid:
        allowed = 'whole numbers from 0 to 4294967295, as a list, one number or "42,73"'
        raise ExperimentError(f"seeds must be {allowed}, got {seeds!r}")
    if len(set(values)) < len(values):
        raise ExperimentError(f"seeds must differ, got {list(values)}")
    return values


# ---------------------------------------------------------------- data on this machine


def fingerprint(dataset: str, embedding: str, task: str | None = None) -> str | None:
    """Return a name of a run's data, or None if some of it is not on this machine.

    It names the corpus, the resource of the embedding, and a ranking task with data of its own.
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
    """Return the key of a run's record, or None if its data is not on this machine."""
    data_name = fingerprint_of(spec)
    return data_name and spec.key(data_name)


def fingerprint_of(spec: Spec) -> str | None:
    """Return a name of a spec's data, or None if some of it is not on this machine."""
    return fingerprint(*_needs(spec)[:3])


def unmet(spec: Spec, device: str = "auto", costly: bool = False) -> str:
    """Return why a run cannot be made on this machine, or an empty text.

    Unless ``costly``, runs that take hours on a CPU count as impossible there.
    """
    return _unmet(*_needs(spec), device, costly)


def _needs(spec):
    """Return the data set, embedding, ranking task, modules and running time that a run needs."""
    uses_umap = spec.model in ("umap", "n2d") or spec.get("clusterer", "").startswith("umap")
    modules = ("umap",) if uses_umap else ()
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
        running_time = f", and the run takes about {cost}" if cost else ""
        return f"the data set {dataset} is not on this machine{running_time}"
    if fingerprint(dataset, embedding) is None:
        return f"{_RESOURCES.get(embedding, 'the word vectors')} are not on this machine"
    if task in short_texts.RANKINGS and data.locate(task) is None:
        return f"the ranking task {task} is not on this machine"
    if absent := next(filter(None, map(lacks, modules)), ""):
        return absent
    if cost and not costly and check_device(device) == "cpu":
        return f"it takes about {cost}, so it runs only with `run --costly` or on a GPU"
    return ""


# ---------------------------------------------------------------- done and missing runs


class Planned(NamedTuple):
    """A run of the plan, and what is recorded of it.

    Fields:
        verdict: ``done``, ``stale``, ``failed`` or ``missing`` (``results.verdict``).
        unmet: why the run cannot be made here, or an empty text.
        seconds: the median time of the most similar recorded runs, shared training included.
            It is NaN without such runs.
        answered: False for a finished run whose answers were not kept, although its scores count
            documents.
    """

    spec: Spec
    verdict: str
    unmet: str
    seconds: float
    answered: bool = True


def status(
    experiment: str, profile="full", dataset="auto", seeds=None, device="auto", by_chapters=False
) -> list[Planned]:
    """List the ``specs`` of an experiment with what is recorded of each, and what each needs.

    With ``by_chapters`` the runs that chapters made count as well.
    """
    planned = specs(experiment, profile, dataset, seeds)
    # Many runs have the same needs.
    fingerprint_once = cache(fingerprint)
    unmet_once = cache(_unmet)
    needs = {spec: _needs(spec) for spec in planned}
    fingerprints = {spec: fingerprint_once(*needs[spec][:3]) for spec in planned}
    all_runs = results.made(planned, by_chapters, device_type=None)
    recorded = results.runs_of(planned, fingerprints, all_runs)
    seconds = _typical_seconds(planned, all_runs)
    resolved, without_answers = check_device(device), not has_answers(experiment)
    rows = []
    for spec in planned:
        wanted_type = device_type(spec, resolved)
        runs = [run for run in recorded[spec] if by_chapters or run.device_type == wanted_type]
        unmet = unmet_once(*needs[spec], device, False)
        answered = without_answers or any(run.answered for run in runs)
        verdict = results.verdict(spec, runs)
        rows.append(Planned(spec, verdict, unmet, seconds[spec], answered))
    return rows


def has_answers(experiment: str) -> bool:
    """Return whether an experiment's scores count documents, so that its records hold answers."""
    counted = {*answers.COUNTED, *answers.OF_QUERIES}
    return not counted.isdisjoint(EXPERIMENTS[experiment].metrics)


def runnable(specs: list[Spec], device: str = "auto", costly: bool = False) -> list[Spec]:
    """Fetch missing data sets, and return the runs that can be made on this device.

    On a CPU, runs that take hours are kept only if ``costly``. Raises DataError if a data set
    cannot be fetched and no run is left.
    """
    last_error = None
    for name in {spec.dataset for spec in specs} - {DRAWN}:
        if data.locate(name) is None:
            try:
                data.fetch(name)
            except data.DataError as error:
                last_error = error
    if last_error and not any(spec.dataset == DRAWN or data.locate(spec.dataset) for spec in specs):
        raise last_error
    unmet_once = cache(_unmet)
    return [spec for spec in specs if not unmet_once(*_needs(spec), device, costly)]


def _typical_seconds(specs, runs):
    """Return for each spec the median time of the most similar recorded runs (``Planned``)."""
    recorded: dict[tuple, list[float]] = {}
    for run in runs:
        for group in _groups(run.identity):
            recorded.setdefault(group, []).append(run.seconds)
    typical = {}
    for spec in specs:
        groups = [group for group in _groups(spec.identity) if group in recorded]
        typical[spec] = statistics.median(recorded[groups[0]]) if groups else math.nan
    return typical


def _groups(identity):
    """Return the groups of similar runs that a run belongs to, the most similar first.

    All runs of a group train the same model on as many documents for as many epochs.
    """
    experiment, profile, dataset, embedding, model, *_, settings = identity
    settings = json.loads(settings)
    size = settings["n_train"], settings.get("epochs"), settings.get("clusterer")
    group = (experiment, profile, model, *size)
    return (*group, embedding, dataset), (*group, embedding), group
