"""Carries out the runs of ``plan``, one by one or in several processes, and records them."""

import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from snnl_book import data, results
from snnl_book.experiments import draws, packing, plan, short_texts
from snnl_book.experiments.cells import DRAWN, TEXTS
from snnl_book.experiments.tasks import Parameters, load_task
from snnl_book.results import Outcome, Record, Spec

FAILURES = (RuntimeError, ValueError, ArithmeticError, MemoryError)
"""What breaks off a run, and is recorded as its reason; anything else is a mistake of ours."""


def _outcome_of(error):
    """The one place that turns an exception of a run into its outcome."""
    from snnl_lib.training import Diverged

    if isinstance(error, Diverged):
        return Outcome({}, error.curve, "diverged", str(error))
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return Outcome({}, status="failed", reason=reason)


@contextmanager
def one_thread():
    """Compute in one thread, as records promise: in torch, in scikit-learn, in numpy."""
    import sklearn.cluster  # noqa: F401 - what is to be limited has to be loaded
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield


# ---------------------------------------------------------------- runs


def run(spec: Spec, device: str = "auto", progress: bool = False) -> Record:
    """Carry out one run: draw and embed the documents, train, evaluate.

    The record's status tells if the run diverged, collapsed or broke off with an error. Sets torch
    to one thread.
    """
    device, experiment = plan.check_device(device), plan.EXPERIMENTS[spec.experiment]
    with one_thread():
        reads_texts = spec.model in short_texts.TRAINED or spec.experiment == "retrieval"
        embedding = TEXTS if reads_texts else draws.drawn_for(spec.embedding, spec.seed)
        task = load_task(spec.dataset, embedding, spec.seed, spec.n_train, spec["n_test"], device)
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
    """Carry out runs, write each record as it finishes (to ``folder``, or where records of its
    profile are) and yield it.

    ``jobs`` processes work side by side, one torch thread each. Interrupting loses only the runs
    under way. Raises RecordError before the first if records cannot be written.
    """
    for profile in {spec.profile for spec in specs}:  # or what refuses would after the work
        results.check_folder(folder or results.results_dir(profile))
    if jobs == 1:
        for spec in specs:
            yield _run_and_write(spec, device, progress, folder)
        return
    for name in {spec.dataset for spec in specs} - {DRAWN}:
        data.load_dataset(name)  # fetched once, before the workers start
    if any(spec.embedding == "infersent-nli" for spec in specs):
        from snnl_book.embeddings import sentences

        sentences.trained_weights(device)  # and trained once
    import joblib
    from joblib.externals.loky import get_reusable_executor

    calls = (joblib.delayed(_run_and_write)(spec, device, False, folder) for spec in specs)
    options = {"return_as": "generator_unordered", "batch_size": 1, "initializer": _leave_ctrl_c}
    parallel = joblib.Parallel(jobs, **options)(calls)
    try:
        # `yield from` would close joblib's generator before its warning is silenced below.
        for record in parallel:  # noqa: UP028
            yield record
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib's own, on runs that Ctrl-C has cancelled
            parallel.close()
        # Workers left over would carry out the next call's runs in this call's environment,
        # and write the records to this call's folder.
        get_reusable_executor().shutdown(wait=True)


def _run_and_write(spec, device, progress, folder):
    record = run(spec, device, progress)
    results.write_record(record, folder)
    return record


def _leave_ctrl_c():
    """Leave Ctrl-C to the process that started the workers, which ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def make_missing(asked: Parameters, *names: str, dataset: str = "", only=None) -> None:
    """Make the runs of experiments with a chapter's seeds that are not recorded yet.

    They are those of its profile, on its data set or on ``dataset``, and for which ``only`` (a
    function of a spec) is true. Prints a line for each run made, and counts those that cannot be
    made here, with the reason. Records go to ``results.chapters_dir``.
    """
    chosen = asked.profile, dataset or asked.dataset
    for name in names:
        with suppress(data.DataError):  # which the reasons below tell
            plan.runnable(plan.specs(name, *chosen, asked.seeds), asked.device)
        rows = plan.status(name, *chosen, asked.seeds, asked.device, by_chapters=True)
        rows = [row for row in rows if row.verdict != "done" and (only is None or only(row.spec))]
        todo = [row.spec for row in rows if not row.unmet]
        for record in run_all(todo, asked.device, folder=results.chapters_dir(asked.profile)):
            print(f"{record.spec}: {record.status}, {record.seconds:.0f} s")
        for why, count in Counter(row.unmet for row in rows if row.unmet).items():
            print(f"{name}: {count} of these seeds' runs are not made: {why}")


def _record(spec, task, outcome, seconds, device):
    """Make the record of a run that has ended."""
    metrics = plan.EXPERIMENTS[spec.experiment].metrics
    scores = dict.fromkeys(metrics, np.nan) | outcome.metrics
    scores |= {"empty_train": task.empty_train, "empty_test": task.empty_test}
    scores |= draws.encoder_scores(spec.embedding)
    if outcome.shared_seconds is not None:
        scores["shared_seconds"] = round(outcome.shared_seconds, 2)
    where = plan.device_names(spec, device) + draws.weights_remark(spec.embedding)
    return Record(
        spec,
        plan.fingerprint_of(spec),
        scores,
        n_train=len(task.train_x),
        n_test=len(task.test_x),
        seconds=seconds,
        device=where,
        status=outcome.status,
        reason=outcome.reason,
        curve=outcome.curve,
        points=outcome.points,
        answers=outcome.answers,
        rows=task.test_rows,
        labels=task.test_y,
        device_type=plan.device_type(spec, device),
        commit=packing.commit(),
    )
