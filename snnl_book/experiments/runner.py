"""Carry out the runs of ``plan``, one by one or in several processes, and record them."""

import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from snnl_book import data, results
from snnl_book.experiments import devices, draws, packing, plan, short_texts
from snnl_book.experiments.cells import DRAWN, TEXTS
from snnl_book.experiments.tasks import Parameters, half_unseen, load_task
from snnl_book.results import Outcome, Record, Spec

FAILURES = (RuntimeError, ValueError, ArithmeticError, MemoryError)
"""Errors that a run can meet, which are recorded as its reason; others are mistakes in the code."""


def _outcome_of(error):
    """Return the outcome of a run that an exception ended."""
    from snnl_lib.training import Diverged

    if isinstance(error, Diverged):
        return Outcome({}, error.curve, "diverged", str(error))
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return Outcome({}, status="failed", reason=reason)


@contextmanager
def one_thread():
    """Compute in one thread, as records promise, in torch, scikit-learn and numpy."""
    import sklearn.cluster  # noqa: F401 - only libraries that are loaded can be limited
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield


# ---------------------------------------------------------------- runs


def run(spec: Spec, device: str = "auto", progress: bool = False) -> Record:
    """Carry out one run: draw and embed the documents, train, evaluate.

    The status of the record says whether the run diverged, collapsed or ended with an error. Sets
    torch to one thread.
    """
    device = devices.check_device(device)
    experiment = plan.EXPERIMENTS[spec.experiment]
    with one_thread():
        reads_texts = spec.model in short_texts.TRAINED or spec.experiment == "retrieval"
        embedding = TEXTS if reads_texts else draws.drawn_for(spec.embedding, spec.seed)
        task = load_task(spec.dataset, embedding, spec.seed, spec.n_train, spec["n_test"], device)
        if spec.get("unseen") == "half":
            task = half_unseen(task, spec.seed)
        started = time.perf_counter()
        try:
            outcome = experiment.run(spec, task, device, str(spec) if progress else None)
        except FAILURES as error:
            outcome = _outcome_of(error)
        seconds = time.perf_counter() - started - outcome.waited
    return _record(spec, task, outcome, seconds, device)


def run_all(
    specs: list[Spec],
    device: str = "auto",
    jobs: int = 1,
    progress: bool = False,
    folder: Path | None = None,
) -> Iterator[Record]:
    """Carry out runs, and write and yield each record as its run finishes.

    Args:
        jobs: how many processes work in parallel, with one thread each.
        folder: where records are written, in place of the folder of their profile.

    An interruption loses only the runs under way. Raises RecordError before the first run if
    records cannot be written.
    """
    for profile in {spec.profile for spec in specs}:
        results.check_folder(folder or results.results_dir(profile))
    if jobs > 1:
        yield from _run_in_processes(specs, device, jobs, folder)
        return
    for spec in specs:
        yield _run_and_write(spec, device, progress, folder)


def _run_in_processes(specs, device, jobs, folder):
    import joblib
    from joblib.externals.loky import get_reusable_executor

    _prepare_shared(specs, device)
    calls = (joblib.delayed(_run_and_write)(spec, device, False, folder) for spec in specs)
    options = {"return_as": "generator_unordered", "batch_size": 1, "initializer": _ignore_ctrl_c}
    parallel = joblib.Parallel(jobs, **options)(calls)
    try:
        # `yield from` would close joblib's generator before its warning is silenced below.
        for record in parallel:  # noqa: UP028
            yield record
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib warns of runs that Ctrl-C has cancelled
            parallel.close()
        # Workers that stay alive would carry out the runs of the next call in the environment of
        # this one, and write its records to this call's folder.
        get_reusable_executor().shutdown(wait=True)


def _prepare_shared(specs, device):
    """Fetch data sets and train the shared encoder once, before the workers start."""
    for name in {spec.dataset for spec in specs} - {DRAWN}:
        data.load_dataset(name)
    if any(spec.embedding == "infersent-nli" for spec in specs):
        from snnl_book.embeddings import sentences

        sentences.trained_weights(device)


def _run_and_write(spec, device, progress, folder):
    record = run(spec, device, progress)
    results.write_record(record, folder)
    return record


def _ignore_ctrl_c():
    """Ignore Ctrl-C in a worker, because the process that started it ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def make_missing(chapter: Parameters, *names: str, dataset: str = "", only=None) -> None:
    """Make the runs of experiments with a chapter's seeds that are not recorded yet.

    Prints a line for each run, and counts those that cannot be made here by their reason. Records
    go to ``results.chapters_dir``.

    Args:
        chapter: the parameters of the chapter.
        names: the experiments.
        dataset: the data set, if it is not the chapter's own.
        only: a function of a spec that is true for the runs to make (default: all).
    """
    profile, seeds, device = chapter.profile, chapter.seeds, chapter.device
    dataset = dataset or chapter.dataset
    for name in names:
        with suppress(data.DataError):  # the reasons printed below name it
            plan.runnable(plan.specs(name, profile, dataset, seeds), device)
        rows = plan.status(name, profile, dataset, seeds, device, by_chapters=True)
        rows = [row for row in rows if row.verdict != "done" and (only is None or only(row.spec))]
        todo = [row.spec for row in rows if not row.unmet]
        for record in run_all(todo, device, folder=results.chapters_dir(profile)):
            print(f"{record.spec}: {record.status}, {record.seconds:.0f} s")
        for reason, count in Counter(row.unmet for row in rows if row.unmet).items():
            print(f"{name}: {count} runs with these seeds cannot be carried out here: {reason}")


def _record(spec, task, outcome, seconds, device):
    """Make the record of a run that has ended."""
    metrics = plan.EXPERIMENTS[spec.experiment].metrics
    scores = {
        **dict.fromkeys(metrics, np.nan),
        **outcome.metrics,
        "empty_train": task.empty_train,
        "empty_test": task.empty_test,
        **draws.encoder_scores(spec.embedding),
    }
    if outcome.shared_seconds is not None:
        scores["shared_seconds"] = round(outcome.shared_seconds, 2)
    device_names = devices.device_names(spec, device) + draws.weights_remark(spec.embedding)
    return Record(
        spec,
        plan.fingerprint_of(spec),
        scores,
        n_train=len(task.train_x),
        n_test=len(task.test_x),
        seconds=seconds,
        device=device_names,
        status=outcome.status,
        reason=outcome.reason,
        curve=outcome.curve,
        points=outcome.points,
        answers=outcome.answers,
        documents={"": (task.test_rows, task.test_y), "train_": (task.train_rows, task.train_y)},
        device_type=devices.device_type(spec, device),
        commit=packing.commit(),
    )
