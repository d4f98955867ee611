"""The command line: ``python -m snnl_lib list | missing | run | merge | pack | nli | data``."""

import argparse
import math
import os
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path

# Before torch and numpy are imported: one thread a process, as the records promise.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from snnl_lib import SnnlError, data, embeddings, experiments, full_disk_told, results
from snnl_lib.data import pack
from snnl_lib.embeddings import backbones, nli, words
from snnl_lib.experiments.short_texts import RANKINGS


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m snnl_lib", description="Runs and records of the executable book."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser(
        "run", help="run an experiment's missing and stale runs and write their records"
    )
    run.add_argument(
        "experiment",
        help="a name from `list`, all, or paper: Tables 1-4 and Figures 1-2 of the text paper",
    )
    _common(run)
    run.add_argument("--models", nargs="+", help="only these models")
    run.add_argument("--embeddings", nargs="+", help="only these embeddings")
    run.add_argument("--pack", type=Path, help="take the data from a file of `pack`")
    run.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    run.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="runs side by side, one process and one thread each (default: 1)",
    )
    run.add_argument(
        "--stack",
        type=int,
        help="runs trained together, as one network with an axis of runs (default: 15 on a GPU, else 1)",
    )
    run.add_argument(
        "--keys",
        nargs="+",
        help="only the runs whose records have these names, recorded or not; * stands for anything",
    )
    run.add_argument(
        "--costly",
        action="store_true",
        help="also the runs that take hours on a CPU core, and are left to a GPU unless asked for",
    )
    run.add_argument(
        "--again", action="store_true", help="also repeat runs that are already recorded"
    )

    merging = commands.add_parser(
        "merge",
        help="take the records that other machines made into results/; exit status 1 if some contradict ours or are refused",
    )
    merging.add_argument("folder", nargs="+", type=Path, help="a results folder of another machine")

    packing = commands.add_parser(
        "pack",
        help="write what experiments need, MiniLM too, in float16, into one file (not to be committed), for `run --pack` without spaCy, network or git",
    )
    packing.add_argument("experiment", nargs="+", help="names from `list`, all, or paper")
    packing.add_argument("out", type=Path, help="the file to write")
    packing.add_argument("--dataset", default="auto", help="a name from `data` (default: auto)")

    nli = commands.add_parser(
        "nli",
        help="train the encoder of infersent-nli and tell its accuracy on SNLI; with any option a small version, not kept",
    )
    nli.add_argument("--units", type=int, help="LSTM units a direction (default: 2048)")
    nli.add_argument("--epochs", type=int)
    nli.add_argument("--pairs", type=int, help="only so many training pairs")
    nli.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")

    commands.add_parser("list", help="list the experiments")
    missing = commands.add_parser(
        "missing",
        help="list runs that have no record, or a stale one; exit status 1 if there are any",
    )
    missing.add_argument(
        "experiment", nargs="?", default="all", help="a name from `list`, or paper (default: all)"
    )
    _common(missing)

    dataset = commands.add_parser("data", help="list the data sets, or fetch one")
    dataset.add_argument(
        "action", nargs="?", choices=["fetch"], help="fetch: get a data set into the cache"
    )
    dataset.add_argument("name", nargs="?", help="the data set, or the data package, to fetch")
    return parser


def _common(parser):
    parser.add_argument(
        "--profile",
        default="full",
        help=f"one of {', '.join(experiments.PROFILES)} (default: full)",
    )
    parser.add_argument(
        "--dataset",
        default="auto",
        help="a name from `data`; auto: each experiment's own, and of texts AG News if at hand, else the embedded default",
    )
    parser.add_argument(
        "--seeds",
        nargs="+",
        default=None,
        help="whole numbers (default: each experiment's own, the paper's five or more)",
    )


def _seeds(args):
    return None if args.seeds is None else experiments.parse_seeds(",".join(args.seeds))


def _names(given):
    """Spell out ``all`` and ``paper``; every name once."""
    groups = {"all": experiments.EXPERIMENTS, "paper": experiments.PAPER}
    return dict.fromkeys(name for word in given for name in groups.get(word, [word]))


def _status(args):
    names = _names([args.experiment])
    rows = [
        row
        for name in names
        for row in experiments.status(name, args.profile, args.dataset, _seeds(args))
    ]
    if not rows:
        raise _no_runs(args.experiment, args.dataset)
    return rows


def _no_runs(experiment, dataset):
    return SnnlError(
        f"{experiment} has no runs on {dataset}: leave --dataset out to see which data it takes"
    )


def _run(args):
    device = experiments.check_device(args.device)
    if args.pack:
        pack.open_pack(args.pack)
    stack = args.stack if args.stack is not None else 15 if device.startswith("cuda") else 1
    for name, value in (("jobs", args.jobs), ("stack", stack)):
        if value < 1:
            raise SnnlError(f"--{name} must be 1 or more, got {value}")
    if args.keys:
        return _run_keys(args, device)
    rows = _status(args)
    for kind, wanted in (("model", args.models), ("embedding", args.embeddings)):
        known = {getattr(spec, kind) for spec, _, _ in rows}
        if wanted and (unknown := [name for name in wanted if name not in known]):
            raise SnnlError(
                f"there is no {kind} {unknown[0]!r} in {args.experiment}: choose from {', '.join(sorted(known))}"
            )
        rows = [row for row in rows if not wanted or getattr(row[0], kind) in wanted]
    todo = [spec for spec, verdict, _ in rows if args.again or verdict != "done"]
    specs = experiments.runnable(todo, device, args.costly)
    if len(specs) < len(todo):
        print(f"{len(todo) - len(specs)} runs cannot be made here: see `missing`")
    print(f"{len(specs)} runs to do, {len(rows) - len(todo)} recorded")
    if not specs:
        return 0
    return _carry_out(specs, device, args.jobs, stack)


def _carry_out(specs, device, jobs, stack=1):
    """Run specs and say of each what came of it; the exit status."""
    failures, started, costs = (
        0,
        time.monotonic(),
        dict(zip(specs, experiments.costs(specs), strict=True)),
    )
    total, done = sum(costs.values()), 0.0
    for i, record in enumerate(
        experiments.run_all(specs, device, jobs, sys.stderr.isatty(), stack), start=1
    ):
        done += costs[record.spec]
        left = (time.monotonic() - started) * (total / done - 1) / 60
        outcome = record.status + (f" ({record.reason})" if record.reason else "")
        name = "acc" if "acc" in record.metrics else next(iter(record.metrics))
        more = f"; about {math.ceil(left)} min left" if i < len(specs) else ""
        print(
            f"[{i}/{len(specs)}] {record.spec}: {outcome}, {name} {record.metrics[name]:.4f}, {record.seconds:.0f} s{more}",
            flush=True,
        )
        failures += record.status == "failed"
    return 1 if failures else 0


def _run_keys(args, device):
    """Carry out the runs that are named, without a look at what else is recorded."""
    named = {
        experiments.key(spec): spec
        for name in _names([args.experiment])
        for spec in experiments.specs(name, args.profile, args.dataset, _seeds(args))
    }
    asked = {
        key: spec
        for key, spec in named.items()
        if key and any(fnmatchcase(key, name) for name in args.keys)
    }
    if unknown := [name for name in args.keys if not any(fnmatchcase(key, name) for key in asked)]:
        raise SnnlError(
            f"{args.experiment} has no run whose record is {unknown[0]}: the profile, the data set and the seeds must be those that it was named with"
        )
    specs = [*asked.values()]
    if reasons := [
        reason for spec in specs if (reason := experiments.unmet(spec, device, args.costly))
    ]:
        raise SnnlError(f"{args.experiment}: {reasons[0]}")
    return _carry_out(specs, device, args.jobs)


def _missing(args):
    rows = [row for row in _status(args) if row[1] != "done"]
    here = [spec for spec, _, needs in rows if not needs]
    took = dict(zip(here, experiments.typical_seconds(here), strict=True))
    for spec, verdict, needs in rows:
        cost = (
            f"  [about {math.ceil(took[spec] / 60)} min on a CPU core]"
            if took.get(spec, math.nan) > 0
            else ""
        )
        print(
            f"{verdict}  {spec.experiment}: {spec}" + (f"  [not run: {needs}]" if needs else cost)
        )
    print(f"{len(rows)} missing or stale")
    return 1 if rows else 0


def _merge(args):
    refused = 0
    for folder in args.folder:
        found = results.merge(folder)
        for line in (*found.refused, *found.conflicts):
            print(line, file=sys.stderr)
        counts = (
            ("added", found.added),
            ("in place of failed or older ones", found.replaced),
            ("there already", found.there),
        )
        counts += (("in conflict", found.conflicts), ("refused", found.refused))
        print(f"{folder}: " + ", ".join(f"{len(names)} {what}" for what, names in counts if names))
        refused += len(found.conflicts) + len(found.refused)
    return 1 if refused else 0


def _pack(args):
    names = _names(args.experiment)
    specs = [spec for name in names for spec in experiments.specs(name, "full", args.dataset)]
    if not specs:
        raise _no_runs(" ".join(args.experiment), args.dataset)
    splits, facts = {}, {"commit": results.commit(), "corpora": {}, "nli": "", "backbones": {}}
    rankings = {spec.get("task") for spec in specs} & {*RANKINGS}
    for name in sorted(({spec.dataset for spec in specs} | rankings) - {experiments.DRAWN}):
        if (
            name in rankings and data.locate(name) is None
        ):  # runs rank what is at hand, and fetch nothing
            print(f"without the runs on {name}: the ranking task is not on this machine")
            continue
        try:
            form, _, _, parts = data.read(name)
        except data.DataError as error:
            if data.describe(name).kind == "texts":
                raise
            print(f"without the runs on {name}: {error}")
            continue
        facts["corpora"][name], kind = form.fingerprint, data.describe(name).kind
        for split, part in zip(("train", "test"), parts, strict=True):
            if kind == "retrieval":  # the parts are dev and test, and have no classes
                splits[f"{name}/{split}"] = part, []
            elif kind == "images":
                splits[f"{name}/{split}"] = part.pixels, part.labels
            elif kind == "short texts":  # what trains on them reads the texts themselves
                splits[f"{name}/{split}"], facts["stop words"] = (
                    (part.texts, part.labels),
                    sorted(data.stop_words()),
                )
            else:
                rows = words.own_rows if name == "opinion_lexicon" else words.word_rows
                splits[f"{name}/{split}"] = rows(part.texts), part.labels
    if not splits:
        raise SnnlError(
            f"nothing of {' and '.join(names)} fits into a pack: run it where its data is"
        )
    if any(spec.embedding == "infersent-nli" for spec in specs):
        try:
            pairs = nli.pairs_as_rows()
            facts["nli"] = nli.pairs_fingerprint()
        except data.DataError as error:
            print(f"without the runs on infersent-nli: {error}")
            pairs = {}
        for split, (premises, hypotheses, labels) in pairs.items():
            splits[f"nli/{split}"] = (
                [rows for pair in zip(premises, hypotheses, strict=True) for rows in pair],
                np.repeat(labels, 2),
            )
    wanted = sorted(
        {
            backbones.parse(spec.embedding)[0]
            for spec in specs
            if spec.embedding in embeddings.TRANSFORMERS
        }
    )
    files = {
        name: backbones.files_to_pack(name) for name in wanted if backbones.BACKBONES[name].package
    }
    facts["backbones"] = {name: backbones.fingerprint(name) for name in files}
    for name in wanted:
        if name not in files:
            print(f"without the runs on {name}: a pack takes only weights that come in a package")
    pack.write_pack(args.out, words.word_vectors(), splits, facts, files)
    print(f"{args.out}: {args.out.stat().st_size / 2**20:.1f} MB, {', '.join([*splits, *files])}")
    return 0


def _nli(args):
    changes = {
        name: value
        for name in ("units", "epochs", "pairs")
        if (value := getattr(args, name)) is not None
    }
    for name, value in changes.items():
        if value < 1:
            raise SnnlError(f"--{name} must be 1 or more, got {value}")
    from snnl_lib.embeddings import sentences

    scores = sentences.train_infersent_nli(device=experiments.check_device(args.device), **changes)
    print(", ".join(f"{name} {value:.4g}" for name, value in scores.items()))
    return 0


def _data(args):
    if args.action == "fetch":
        if not args.name:
            raise SnnlError(
                f"name a data set or a package: {', '.join(data.available_datasets() + data.available_packages())}"
            )
        if args.name in data.available_packages():
            print(f"{args.name}: verified, in {data.package_path(args.name)}")
            return 0
        _, folder, place, parts = data.read(args.name)
        what = "queries" if data.describe(args.name).kind == "retrieval" else "documents"
        print(
            f"{args.name}: {' + '.join(f'{len(part):,}' for part in parts if len(part))} {what}, verified, in {folder} ({place})"
        )
        return 0
    for name in data.available_datasets():
        entry, found = data.describe(name), data.locate(name)
        form = found[0] if found else entry.forms[0]
        print(f"{name}: {entry.title}")
        print(
            f"  at hand:   {f'yes, from {found[2]} ({found[1]})' if found else f'no (python -m snnl_lib data fetch {name})'}"
        )
        first, second = form.documents
        if entry.kind == "retrieval":
            print(f"  queries:   {first:,} dev, {second:,} test")
        else:
            print(
                f"  documents: {f'{first:,} train, {second:,} test' if second else f'{first:,}, clustered whole'}; {len(entry.class_names)} classes"
            )
        print(f"  form:      {form.description}")
        print(f"  terms:     {entry.terms}")
    for what, look in (
        ("inference pairs, for infersent-nli", nli.pairs_folder),
        ("published InferSent weights", embeddings.published_files),
    ):
        try:
            look()
            print(f"{what}: at hand")
        except SnnlError as error:
            print(error)
    return 0


def _list(args):
    for name, experiment in experiments.EXPERIMENTS.items():
        cells = list(experiment.cells(experiments.PROFILES["full"]))
        of = {
            kind: ", ".join(dict.fromkeys(getattr(cell, kind) for cell in cells))
            for kind in ("embedding", "model")
        }
        print(
            f"{name}: {experiment.title}\n  embeddings {of['embedding']}; models {of['model']}; revision {experiment.revision}"
        )
    return 0


def main(argv=None) -> int:
    """Run a command; returns the exit status, 2 with one sentence on standard error where the user
    can put something right.
    """
    args = _parser().parse_args(argv)
    try:
        with full_disk_told():
            return {
                "run": _run,
                "missing": _missing,
                "pack": _pack,
                "nli": _nli,
                "data": _data,
                "list": _list,
                "merge": _merge,
            }[args.command](args)
    except (SnnlError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: finished runs are recorded, the next `run` goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
