"""What carries the runs of ``plan`` out, one by one or as stacks that train together.

A run is a plain function or a generator (``cells.Experiment.run``). A generator yields

- a ``Training``: it is sent the History, or ``Diverged`` is thrown in;
- a ``Shared`` training, which several runs use: it is sent what the file of it holds, and the
  seconds that it took;
- a function without arguments: what it makes is sent; several runs use it, too.

What is shared is trained or made once, and its seconds are not those of a run.
"""

import copy
import inspect
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from snnl_lib import data, results
from snnl_lib.experiments import draws, packing, plan, short_texts
from snnl_lib.experiments.cells import DRAWN, TEXTS
from snnl_lib.experiments.tasks import Parameters, Task, load_task
from snnl_lib.results import Outcome, Record, Spec

FAILURES = (RuntimeError, ValueError, ArithmeticError, MemoryError)
"""What breaks off a run, and is recorded as its reason; anything else is a mistake of ours."""


@dataclass
class _Run:
    """A run under way: what it waits for (``request``), and its own seconds so far."""

    spec: Spec
    task: Task
    steps: object
    request: object = None
    outcome: Outcome | None = None
    seconds: float = 0.0
    stack: int = 1

    def go_on(self, answer=None, error=None):
        """Carry the run on to its next request, or to its outcome."""
        started = time.perf_counter()
        try:
            self.request = self.steps.throw(error) if error else self.steps.send(answer)
        except StopIteration as end:
            self.request, self.outcome = None, end.value
        except FAILURES as broken:
            self.request, self.outcome = None, _outcome_of(broken)
        self.seconds += time.perf_counter() - started


def _outcome_of(error):
    """The one place that turns an exception of a run into its outcome."""
    from snnl_lib.training import Diverged

    if isinstance(error, Diverged):
        return Outcome({}, error.curve, "diverged", str(error))
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return Outcome({}, status="failed", reason=reason)


def _steps(function, *arguments):
    """Make a generator of a run, whether it is one or a plain function."""
    result = function(*arguments)
    return (yield from result) if inspect.isgenerator(result) else result


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
    (record,) = _carry_out([spec], plan.check_device(device), progress)
    return record


def run_all(
    specs: list[Spec],
    device: str = "auto",
    jobs: int = 1,
    progress: bool = False,
    stack: int = 1,
    folder: Path | None = None,
) -> Iterator[Record]:
    """Carry out runs, write each record as it finishes (to ``folder``, or where records of its
    profile are) and yield it.

    ``jobs`` processes work side by side, one torch thread each. With a ``stack`` of more than one,
    up to so many runs that are alike are trained together. Interrupting loses only the runs under
    way. Raises RecordError before the first if records cannot be written.
    """
    for profile in {spec.profile for spec in specs}:  # or what refuses would after the work
        results.check_folder(folder or results.results_dir(profile))
    groups = _groups(specs, stack)
    if jobs == 1:
        for group in groups:
            yield from _written(group, device, progress, folder)
        return
    for name in {spec.dataset for spec in specs} - {DRAWN}:
        data.load_dataset(name)  # fetched once, before the workers start
    if any(spec.embedding == "infersent-nli" for spec in specs):
        from snnl_lib.embeddings import sentences

        sentences.trained_weights(device)  # and trained once
    import joblib
    from joblib.externals.loky import get_reusable_executor

    calls = (joblib.delayed(_carry_out_and_write)(group, device, folder) for group in groups)
    options = {"return_as": "generator_unordered", "batch_size": 1, "initializer": _leave_ctrl_c}
    parallel = joblib.Parallel(jobs, **options)(calls)
    try:
        for records in parallel:
            yield from records
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib's own, on runs that Ctrl-C has cancelled
            parallel.close()
        # Workers left over would carry out the next call's runs in this call's environment,
        # and write the records to this call's folder.
        get_reusable_executor().shutdown(wait=True)


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


def _groups(specs, stack):
    """Part runs into groups that may train as one stack, in the order of their first runs."""
    alike: dict[tuple, list[Spec]] = {}
    for spec in specs:
        steps = spec.get("epochs"), spec.get("steps_per_epoch")
        kind = (spec.experiment, spec.dataset, spec.embedding, spec.n_train, *steps)
        alike.setdefault(kind if stack > 1 else (spec,), []).append(spec)
    return [
        group[start : start + stack]
        for group in alike.values()
        for start in range(0, len(group), stack)
    ]


def _leave_ctrl_c():
    """Leave Ctrl-C to the process that started the workers, which ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _carry_out_and_write(specs, device, folder):
    """What a worker does, which can send a list, and no generator."""
    return list(_written(specs, device, False, folder))


def _written(specs, device, progress, folder):
    """Write each record as its run ends, and yield it."""
    for record in _carry_out(specs, plan.check_device(device), progress):
        results.write_record(record, folder)
        yield record


def _carry_out(specs, device, progress) -> Iterator[Record]:
    """Carry out runs whose trainings meet in stacks; yield each record as its run ends.

    Runs that train nothing, or whose training is not of the others' kind, go their way alone.
    """
    with one_thread():
        runs, label = [], _label(specs) if progress else None
        for spec in specs:
            run = _begin(spec, device, label if len(specs) == 1 else None)
            run.go_on()
            _make(run)
            if run.outcome:
                yield _record(run, device)
            else:
                runs.append(run)
        while runs:
            kind = _kind(runs[0].request)
            group = [run for run in runs if _kind(run.request) == kind]
            for run, answer, error in _answers(group, device, label):
                run.go_on(answer, error)
                _make(run)
                if run.outcome:
                    runs.remove(run)
                    yield _record(run, device)


def _label(specs):
    spec = specs[0]
    if len(specs) == 1:
        return str(spec)
    return f"{spec.experiment}: {len(specs)} runs on {spec.dataset}/{spec.embedding}"


def _begin(spec, device, progress):
    """Draw a run's documents; nothing of it is carried out yet, and its seconds begin."""
    experiment = plan.EXPERIMENTS[spec.experiment]
    reads_texts = spec.model in short_texts.TRAINED or spec.experiment == "retrieval"
    embedding = TEXTS if reads_texts else draws.drawn_for(spec.embedding, spec.seed)
    task = load_task(spec.dataset, embedding, spec.seed, spec.n_train, spec["n_test"], device)
    return _Run(spec, task, _steps(experiment.run, spec, task, device, progress))


def _make(run):
    """Answer all that a run asks to be made for it and others; its seconds are not the run's."""
    while callable(run.request):
        try:
            answer, error = run.request(), None
        except FAILURES as broken:
            answer, error = None, broken
        run.go_on(answer, error)


def _kind(request):
    """What has to be equal for requests to be answered together."""
    from snnl_lib.training import Shared

    if isinstance(request, Shared):
        return "shared", request.training.kind()
    return "own", request.kind()


def _answers(group, device, progress):
    """Train what runs of one kind wait for: each run, with what to send or to throw in."""
    if _kind(group[0].request)[0] == "shared":
        yield from _shared_answers(group, device, progress)
        return
    started = time.perf_counter()
    answers = train_together([run.request for run in group], device, progress)
    share = (time.perf_counter() - started) / len(group)
    for run, (history, error) in zip(group, answers, strict=True):
        run.seconds += share
        run.stack = history.stack if history else 1
        yield run, history, error


def _shared_answers(group, device, progress):
    """Train what is not kept yet, each once however many runs use it, and hand out what is kept."""
    from snnl_lib.cache import cached

    missing = {run.request.path: run.request for run in group if not run.request.path.exists()}
    errors, kept = {}, set()
    if missing:
        started = time.perf_counter()
        answers = train_together([shared.training for shared in missing.values()], device, progress)
        share = (time.perf_counter() - started) / len(missing)
        for shared, (history, error) in zip(missing.values(), answers, strict=True):
            if error is None:
                cached(shared.path, lambda: shared.keep(history), seconds=share)  # noqa: B023
                kept.update(filter(None, (shared.training.checkpoint, history.checkpoint)))
            errors[shared.path] = error
        for checkpoint in kept:  # once all is kept: a stack has one for all of its trainings
            checkpoint.unlink(missing_ok=True)
    for run in group:
        error = errors.get(run.request.path)
        yield run, None if error else cached(run.request.path, None), error


def train_together(trainings, device, progress=None):
    """Train networks of one kind as a stack: for each its History, and what broke it or None.

    There is no History where an error ended the stack. One that runs out of memory is halved and
    tried again.
    """
    import torch

    from snnl_lib.training import Diverged, train_stack

    starts = [copy.deepcopy(training.model.state_dict()) for training in trainings]
    try:
        histories = train_stack(trainings, device, progress)
    except FAILURES as error:
        out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if len(trainings) == 1 or not (out_of_memory or "alloc" in str(error)):
            return [(None, error)] * len(trainings)
    else:
        return [
            (history, Diverged(history.diverged, history.curve) if history.diverged else None)
            for history in histories
        ]
    for training, start in zip(trainings, starts, strict=True):
        for name, value in training.model.named_parameters():
            value.data = start[name]
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    half = len(trainings) // 2
    parts = trainings[:half], trainings[half:]
    return [answer for part in parts for answer in train_together(part, device, progress)]


def _record(run, device):
    """Make the record of a run that has ended."""
    spec, task, outcome = run.spec, run.task, run.outcome
    metrics = plan.EXPERIMENTS[spec.experiment].metrics
    scores = dict.fromkeys(metrics, np.nan) | outcome.metrics
    scores |= {"empty_train": task.empty_train, "empty_test": task.empty_test}
    scores |= draws.encoder_scores(spec.embedding)
    if outcome.shared_seconds is not None:
        scores["shared_seconds"] = round(outcome.shared_seconds, 2)
    where = plan.device_names(spec, device) + draws.weights_remark(spec.embedding)
    if run.stack > 1:
        where += f", in a stack of {run.stack}"
    return Record(
        spec,
        plan.fingerprint_of(spec),
        scores,
        n_train=len(task.train_x),
        n_test=len(task.test_x),
        seconds=run.seconds,
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
