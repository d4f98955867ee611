"""The command line, ``python -m snnl_book``: list, missing, run, merge, pack, nli, data, claims and
cluster.

``--help`` says what each does.
"""

import argparse
import math
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

# Before torch and numpy are imported: one thread a process, as the records promise.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from snnl_book import data, embeddings, experiments, full_disk_told, own_texts, results
from snnl_book.embeddings import nli
from snnl_lib import SnnlError
from snnl_lib.checkpoint import whole_file

NAMES = "a name from `list`, all, or paper: Tables 1-4 and Figures 1-2 of the text paper"
DEVICES = "auto, cpu or cuda (default: auto)"


def _parser():  # noqa: PLR0915 - a list of commands and arguments, without a branch
    parser = argparse.ArgumentParser(
        prog="python -m snnl_book", description="Runs and records of the executable book."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, function, about):
        added = commands.add_parser(name, help=about)
        added.set_defaults(function=function)
        return added.add_argument

    add = command("run", _run, "run missing and stale runs and write their records")
    add("experiment", help=NAMES)
    _add_common(add)
    add("--models", nargs="+", help="only these models; * stands for anything, as in what follows")
    add("--embeddings", nargs="+", help="only these embeddings")
    add("--device", default="auto", help=DEVICES)
    add("--jobs", type=int, default=1, help="processes side by side, of one thread (default: 1)")
    add("--keys", nargs="+", help="only the runs whose records have these names")
    costly = "also the runs that take hours on a CPU core, and are left to a GPU unless asked for"
    add("--costly", action="store_true", help=costly)
    add("--again", action="store_true", help="also repeat runs that are already recorded")
    about = "also repeat finished runs whose record lacks the answer for each document"
    add("--answers", action="store_true", help=about)

    about = "take the records that other machines made into results/"
    add = command("merge", _merge, f"{about}; exit status 1 if some contradict ours or are refused")
    add("folder", nargs="+", type=Path, help="a results folder of another machine")

    about = (
        "copy what experiments need, MiniLM too, in float16, into a folder (not to be committed) "
    )
    about += "that SNNL_DATA names on a machine without spaCy, network or git"
    add = command("pack", _pack, about)
    add("experiment", nargs="+", help="names from `list`, all, or paper")
    add("folder", type=Path, help="the folder to write")
    add("--dataset", default="auto", help="a name from `data` (default: auto)")

    about = "train the encoder of infersent-nli and tell its accuracy on SNLI"
    add = command("nli", _nli, f"{about}; with any option a small version, not kept")
    add("--units", type=int, help="LSTM units a direction (default: 2048)")
    add("--epochs", type=int)
    add("--pairs", type=int, help="only so many training pairs")
    add("--device", default="auto", help=DEVICES)

    command("list", _list, "list the experiments")
    about = "count the runs that have no record, or a stale one, or list those of an experiment; "
    about += "exit status 1 if there are any"
    add = command("missing", _missing, about)
    add("experiment", nargs="?", help=f"{NAMES} (default: count those of all)")
    _add_common(add)

    add = command("data", _data, "list the data sets, or fetch one")
    add("action", nargs="?", choices=["fetch"], help="fetch: get a data set into the cache")
    add("name", nargs="?", help="the data set, or the data package, to fetch")

    add = command(
        "cluster", _cluster, "cluster texts of your own, and show what is in each cluster"
    )
    add("texts", type=Path, help="a file of texts: .csv, .tsv, .jsonl, or .txt with one a line")
    add("--column", help="the column of the texts (default: the only one)")
    add("--k", default="auto", help="how many clusters (default: auto, by the silhouette)")
    known = "; ".join(f"{name}: {about}" for name, about in own_texts.METHODS.items())
    add("--method", default="minilm", help=f"{known} (default: minilm)")
    add("--seeds", nargs="+", default=["42"], help="the first makes the clusters, the others say "
        "how far they agree with it (default: 42)")  # fmt: skip
    add("--out", type=Path, help="write the table here (.csv), with a column cluster")
    add("--save", type=Path, help="keep the model in this folder (clusterbert)")
    add("--model", type=Path, help="no new clusters: those of a model that was kept")
    add("--device", default="auto", help=DEVICES)

    add = command("claims", _claims, "print the papers' claims with their verdicts")
    add("name", nargs="*", help="names of claims (default: all)")
    add("--paper", help="only this paper's: text, image or ClusterBERT")
    return parser


def _add_common(add):
    profiles = ", ".join(experiments.PROFILES)
    add("--profile", default="full", help=f"one of {profiles} (default: full)")
    own = "auto: each experiment's own, and of texts AG News if at hand, else the embedded default"
    add("--dataset", default="auto", help=f"a name from `data`; {own}")
    own = "each experiment's own, the paper's five or more"
    add("--seeds", nargs="+", default=None, help=f"whole numbers (default: {own})")


def _at_least_one(**numbers):
    for name, value in numbers.items():
        if value < 1:
            raise SnnlError(f"--{name} must be 1 or more, got {value}")


def _seeds(args):
    return None if args.seeds is None else experiments.parse_seeds(",".join(args.seeds))


def _names(given):
    """Spell out ``all`` and ``paper``; every name once."""
    groups = {"all": experiments.EXPERIMENTS, "paper": experiments.PAPER}
    return dict.fromkeys(name for word in given for name in groups.get(word, [word]))


def _no_runs(experiment, dataset):
    advice = "leave --dataset out to see which data it takes"
    return SnnlError(f"{experiment} has no runs on {dataset}: {advice}")


def _status(args):
    asked = args.profile, args.dataset, _seeds(args)
    rows = [row for name in _names([args.experiment]) for row in experiments.status(name, *asked)]
    if not rows:
        raise _no_runs(args.experiment, args.dataset)
    return rows


# ---------------------------------------------------------------- run


def _run(args):
    device = experiments.check_device(args.device)
    _at_least_one(jobs=args.jobs)
    rows = _status(args)
    if args.keys:  # names of records hold the fingerprint of the data, which are fetched first
        experiments.runnable([row.spec for row in rows], device, True)
    rows = _only(rows, args)
    todo = {
        row.spec: row
        for row in rows
        if args.again or row.verdict != "done" or (args.answers and not row.answered)
    }
    specs = experiments.runnable([*todo], device, args.costly)
    here = {*specs}
    left = [experiments.unmet(spec, device, args.costly) for spec in todo if spec not in here]
    for reason, count in Counter(left).items():
        print(f"{count} {'run' if count == 1 else 'runs'} cannot be made here: {reason}")
    print(f"{len(specs)} runs to do, {len(rows) - len(todo)} recorded")
    if not specs:
        return 0
    names, folder = sorted({spec.dataset for spec in specs}), results.results_dir(args.profile)
    print(f"on {', '.join(names)}; records go to {folder}", flush=True)
    seconds = np.array([todo[spec].seconds for spec in specs])
    typical = seconds[seconds > 0].mean() if (seconds > 0).any() else 1
    costs = dict(zip(specs, np.where(seconds > 0, seconds, typical), strict=True))
    return _carry_out(specs, costs, device, args.jobs)


def _only(rows, args):
    """Keep the runs that all filters name: models, embeddings and keys of records."""
    kept = rows
    for kind, wanted, of in (
        ("model", args.models, lambda spec: spec.model),
        ("embedding", args.embeddings, lambda spec: spec.embedding),
        ("key", args.keys, experiments.key),
    ):
        if not wanted:
            continue
        known = {row.spec: of(row.spec) or "" for row in rows}
        for name in wanted:
            if not any(fnmatchcase(value, name) for value in known.values()):
                choice = ", ".join(sorted({*known.values()}))
                if kind == "key":
                    choice = "the names of its records, as of this profile, data set and seeds"
                raise SnnlError(
                    f"there is no {kind} {name!r} in {args.experiment}: choose from {choice}"
                )
        kept = [row for row in kept if any(fnmatchcase(known[row.spec], name) for name in wanted)]
    if not kept:
        raise SnnlError(f"no run of {args.experiment} has all that is named: name less at once")
    return kept


def _carry_out(specs, costs, device, jobs):
    """Run specs and say of each what came of it; the exit status.

    ``costs`` say how long runs take beside each other.
    """
    failures, done, started, total = 0, 0.0, time.monotonic(), sum(costs.values())
    records = experiments.run_all(specs, device, jobs, sys.stderr.isatty())
    for count, record in enumerate(records, start=1):
        done += costs[record.spec]
        left = math.ceil((time.monotonic() - started) * (total / done - 1) / 60)
        outcome = record.status + (f" ({record.reason})" if record.reason else "")
        name = "acc" if "acc" in record.metrics else next(iter(record.metrics))
        score = f"{name} {record.metrics[name]:.4f}, {record.seconds:.0f} s"
        more = f"; about {left} min left" if count < len(specs) else ""
        print(f"[{count}/{len(specs)}] {record.spec}: {outcome}, {score}{more}", flush=True)
        failures += record.status == "failed"
    return 1 if failures else 0


# ---------------------------------------------------------------- the other commands


def _missing(args):
    counted, args.experiment = args.experiment is None, args.experiment or "all"
    rows = [row for row in _status(args) if row.verdict != "done"]
    for row in () if counted else rows:
        added = f"  [not run: {row.unmet}]" if row.unmet else ""
        if row.seconds > 0 and not row.unmet:
            added = f"  [about {math.ceil(row.seconds / 60)} min on a CPU core]"
        print(f"{row.verdict}  {row.spec.experiment}: {row.spec}{added}")
    for line in _counted(rows) if counted else ():
        print(line)
    print(f"{len(rows)} missing or stale")
    return 1 if rows else 0


def _counted(rows):
    """Say how many runs of each experiment are to do, and of all together what keeps the others."""
    for name in dict.fromkeys(row.spec.experiment for row in rows):
        of_name = [row for row in rows if row.spec.experiment == name]
        here = [row for row in of_name if not row.unmet]
        known = [row.seconds for row in here if row.seconds > 0]
        hours = f"{max(sum(known) / 3600, 0.1):.1f} CPU hours"
        took = f" ({len(known)} of them, by runs like them, in at most {hours})" if known else ""
        yield f"{name}: {len(here)} can be made here{took}, {len(of_name) - len(here)} cannot"
    # What a run costs that waits for its data is told by the list; here it would part the reasons.
    reasons = Counter(row.unmet.partition("; and it")[0] for row in rows if row.unmet)
    for reason, count in reasons.most_common():
        yield f"{count} {'run' if count == 1 else 'runs'} cannot be made here: {reason}"
    if rows:
        yield "`missing NAME` lists those of an experiment, `missing all` every one"


def _merge(args):
    refused = 0
    for folder in args.folder:
        merged = results.merge(folder)
        for line in (*merged.refused, *merged.conflicts):
            print(line, file=sys.stderr)
        whats = "added", "in place of failed or older ones", "there already", "in conflict"
        counts = zip((*whats, "refused"), merged, strict=True)
        said = ", ".join(f"{len(names)} {what}" for what, names in counts if names)
        print(f"{folder}: {said}")
        refused += len(merged.conflicts) + len(merged.refused)
    return 1 if refused else 0


def _pack(args):
    from snnl_book.experiments import packing

    names = _names(args.experiment)
    specs = [s for name in names for s in experiments.specs(name, "full", args.dataset)]
    if not specs:
        raise _no_runs(" ".join(args.experiment), args.dataset)
    content = ", ".join(packing.write(specs, args.folder))
    size = sum(path.stat().st_size for path in args.folder.rglob("*") if path.is_file())
    print(f"{args.folder}: {size / 2**20:.1f} MB, {content}")
    return 0


def _nli(args):
    from snnl_book.embeddings import sentences

    given = {name: getattr(args, name) for name in ("units", "epochs", "pairs")}
    changes = {name: value for name, value in given.items() if value is not None}
    _at_least_one(**changes)
    scores = sentences.train_infersent_nli(device=experiments.check_device(args.device), **changes)
    print(", ".join(f"{name} {value:.4g}" for name, value in scores.items()))
    return 0


def _data(args):
    if args.action == "fetch":
        return _fetch(args.name)
    for name in data.available_datasets():
        entry, found = data.describe(name), data.locate(name)
        form = found[0] if found else entry.forms[0]
        fetched = f"yes, from {found[2]} ({found[1]})" if found else ""
        here = fetched or f"no (python -m snnl_book data fetch {name})"
        first, second = form.documents
        ranked, what = entry.kind == "retrieval", _things(entry.kind)
        count = f"{first:,} {'dev' if ranked else 'train'}, {second:,} test"
        count = count if second else f"{first:,}, clustered whole"
        count += "" if ranked else f"; {len(entry.class_names)} classes"
        print(f"{name}: {entry.title}")
        for said, text in (("at hand", here), (what, count)):
            print(f"  {said + ':':<11}{text}")
        print(f"  form:      {form.description}\n  terms:     {entry.terms}")
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


def _things(kind):
    """What a data set of a kind consists of."""
    return {"retrieval": "queries", "images": "images"}.get(kind, "documents")


def _fetch(name):
    if not name:
        known = ", ".join(data.available_datasets() + data.available_packages())
        raise SnnlError(f"name a data set or a package: {known}")
    if name in data.available_packages():
        print(f"{name}: verified, in {data.package_path(name)}")
        return 0
    _, folder, place, parts = data.read(name)
    what = _things(data.describe(name).kind)
    count = " + ".join(f"{len(part):,}" for part in parts if len(part))
    print(f"{name}: {count} {what}, verified, in {folder} ({place})")
    return 0


def _list(args):
    for name, experiment in experiments.EXPERIMENTS.items():
        cells = [*experiment.cells(experiments.PROFILES["full"])]
        vectors = ", ".join(dict.fromkeys(cell.embedding for cell in cells))
        models = ", ".join(dict.fromkeys(cell.model for cell in cells))
        print(f"{name}: {experiment.title}")
        print(f"  embeddings {vectors}; models {models}; revision {experiment.revision}")
    return 0


def _refuse(args, table):
    """Raise SnnlError for what `cluster` cannot do, before it takes any time."""
    if (out := args.out) and (out.suffix != ".csv" or not out.parent.is_dir() or out.is_dir()):
        raise SnnlError(f"--out must be a .csv file in a folder that is there, got {out}")
    if out:
        tempfile.TemporaryFile(dir=out.parent).close()  # or what refuses would after the work
    if out and "cluster" in table.columns:
        raise SnnlError(f"{args.texts} has a column cluster, which --out would lose: rename it")
    if args.model and (args.k, args.method, args.seeds) != ("auto", "minilm", ["42"]):
        raise SnnlError(
            "a model that was kept has a k, a method and a seed: leave out all but --model"
        )
    if args.save and args.method != "clusterbert":
        raise SnnlError("only a model of --method clusterbert is kept by --save: name it, too")
    if args.save:
        from snnl_book.methods._saving import check_place

        check_place(args.save)


def _cluster(args):
    """Cluster a file of texts; what is in each cluster is printed, and the table written."""
    table, column = own_texts.read_table(args.texts, args.column)
    device, (seed, *others), out = experiments.check_device(args.device), _seeds(args), args.out
    _refuse(args, table)
    texts = table[column].fillna("").astype(str).str.strip()
    said = texts[texts != ""]
    blank = f", and {len(texts) - len(said)} rows without a text" if len(said) < len(texts) else ""
    print(f"{args.texts}: {len(said):,} texts{blank}", flush=True)
    if args.model:
        from snnl_book.methods import ClusterBERT

        model = ClusterBERT.load(args.model, device)
        found = own_texts.Clustering(model.predict([*said]), model.transform([*said]), model)
    else:
        found = _found_clusters([*said], args, device, seed, others)
    shown = own_texts.describe_clusters([*said], found.clusters, found.vectors, nearest=1)
    for row in shown.itertuples():
        print(
            f"{row.cluster:>4} {row.size:>6,}  {', '.join(row.words)}\n{'':13}{row.nearest[0][:60]}"
        )
    if args.save:
        found.model.save(args.save)
        print(f"{args.save}: the model; new texts: cluster FILE --model {args.save}")
    if out:
        import pandas as pd

        clusters = pd.Series(found.clusters, said.index, dtype="Int64").reindex(table.index)
        with whole_file(out) as file:
            table.assign(cluster=clusters).to_csv(file, index=False)
        print(f"{out}: the table with a column cluster")
    return 0


def _found_clusters(texts, args, device, seed, others):
    """Choose k if asked, say how long it takes, cluster, and compare the seeds."""
    from sklearn.metrics import adjusted_rand_score

    k, bar = args.k, "ClusterBERT" if sys.stderr.isatty() else None
    if k == "auto":
        tried = own_texts.silhouettes(own_texts.embed_texts(texts, args.method, device), seed=seed)
        k = own_texts.best_k(tried)
        rows = ", ".join(f"{row.k}: {row.silhouette:.3f}" for row in tried.itertuples())
        print(f"k: {k}, of the largest silhouette of the k that were tried ({rows})")
    elif not k.isdecimal():
        raise SnnlError(f"--k must be a whole number or auto, got {k!r}")
    minutes = own_texts.typical_minutes(len(texts), args.method) * (1 + len(others))
    if minutes >= 0.1:  # nan where nothing is recorded
        print(f"about {minutes:.1f} min on one CPU core, going by recorded times", flush=True)
    cluster = partial(own_texts.cluster_texts, texts, int(k), args.method, device=device)
    folder = data.cache_dir() / "clusterbert"
    first, *rest = [cluster(seed=one, progress=bar, folder=folder) for one in (seed, *others)]
    for one, found in zip(others, rest, strict=True):
        agreement = adjusted_rand_score(first.clusters, found.clusters)
        print(f"seed {one}: agrees with seed {seed} by an adjusted Rand index of {agreement:.2f}")
    return first


def _claims(args):
    from snnl_book.report import claims

    table = claims.judge()
    for column, wanted in (("paper", [args.paper] if args.paper else []), ("name", args.name)):
        for name in wanted:
            if name not in {*table[column]}:
                choice = ", ".join(dict.fromkeys(table[column]))
                raise SnnlError(f"there is no {column} {name!r}: choose one of {choice}")
        table = table[table[column].isin(wanted)] if wanted else table
    for claim in table.to_dict("records"):
        print(claims.describe(claim))
    print(f"in all: {claims.in_short(table)}")
    return 0


def main(argv=None) -> int:
    """Run a command; returns the exit status.

    2 with one sentence on standard error where the user can put something right.
    """
    try:
        with full_disk_told():
            try:
                args = _parser().parse_args(argv)
                return args.function(args)
            finally:
                sys.stdout.flush()  # here, where a reader that has gone is no traceback
    except (SnnlError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read has seen enough, as in `data | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted: what was finished is kept, the same command goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    # As Ctrl-C, so that the workers of --jobs end too, and not only their parent.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
