"""Re-executes the book: runs without a record, chapters, rendering. `snakemake --cores 2 --config profile=full seeds=42,73`.

What is missing or stale `snnl_book` alone knows; a marker of a finished group of runs only tells Snakemake that there is nothing more to do.
"""

import atexit
import hashlib
import re
import shlex
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout
from snakemake.exceptions import WorkflowError

ROOT = Path(workflow.basedir)
sys.path[:0] = [str(ROOT), str(ROOT / "book" / "_tools")]

import build
from snnl_book import experiments
from snnl_lib import SnnlError

DEFAULTS = {"profile": "quick", "seeds": "", "dataset": "auto", "device": "auto", "experiments": "all"}

DRY_RUN = any(re.fullmatch(r"-\w*n\w*|--dry-?run", argument) for argument in sys.argv)  # changes no file
WORKDIR = build.BUILD  # with Snakemake's own notes in it, so that the checkout stays as it is
if DRY_RUN and not WORKDIR.exists():
    WORKDIR = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, WORKDIR, ignore_errors=True)
elif not DRY_RUN:
    try:
        WORKDIR.mkdir(exist_ok=True)
        (WORKDIR / ".lock").touch()  # shows whether it can be written to
    except OSError as error:
        raise WorkflowError(str(error)) from None


workdir: str(WORKDIR)


# ---------------------------------------------------------------- what is asked for

if unknown := config.keys() - DEFAULTS.keys():
    raise WorkflowError(f"there is no setting {sorted(unknown)[0]!r}: --config takes {', '.join(DEFAULTS)}")
ASKED = {name: default if config.get(name) is None else config[name] for name, default in DEFAULTS.items()}
ASKED = {name: ",".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in ASKED.items()}
NAMES = [*experiments.EXPERIMENTS] if ASKED["experiments"] == "all" else ASKED["experiments"].split(",")
del ASKED["experiments"]
try:
    dataset = experiments.data.resolve(ASKED["dataset"])
    device = experiments.parameters(ASKED, experiments.data.describe(dataset).kind).device
    if not any([experiments.specs(name, "tiny", ASKED["dataset"]) for name in NAMES]):
        raise SnnlError(f"no runs of {', '.join(NAMES)} are on {ASKED['dataset']}: leave dataset out, or name other experiments")
except SnnlError as error:
    raise WorkflowError(str(error)) from None

GPUS = 0 if device == "cpu" else 1  # that a job asks for
CHAPTERS = {path.stem: path for path in build.chapters()}
LIBRARY, SOURCES = [*map(str, build.library()), str(ROOT / "requirements" / "lock.txt")], [*map(str, build.sources())]
DIGEST, PAGE = Path("records.sha256"), str(build.PAGE.relative_to(build.BUILD))
RUN_AS = shlex.join(f"--{name}={value}" for name, value in (ASKED | {"seeds": build.seeds_of_runs(ASKED["profile"], ASKED["seeds"])}).items() if value)
LOCK = FileLock(".lock")  # the system lets go of it when a process dies, however it dies
if workflow.is_main_process and (not DIGEST.exists() or DIGEST.read_text().strip() != build.digest_of_records()):
    if DRY_RUN:
        DIGEST = Path("records.sha256.anew")  # not there, so that the plan has what follows from it
    else:
        DIGEST.write_text(f"{build.digest_of_records()}\n")  # newer than the chapters, which then are executed again


def targets():
    return {*workflow.dag_settings.targets} or {"all"}


@cache
def markers(_=None):
    """The marker of each group of runs in which one has to be made, if runs are asked for."""
    if not workflow.is_main_process or not targets() & {"all", "results"}:
        return []
    found = [Path("runs", ASKED["profile"], *map(str, group)) for group in build.groups(NAMES, **ASKED)]
    old = [path for path in found if path.exists()]  # of an earlier time, whose records are stale or gone
    for path in old:
        if not DRY_RUN:
            path.unlink()
    return [f"{path}-anew" if DRY_RUN and path in old else str(path) for path in found]


wildcard_constraints:
    chapter="|".join(CHAPTERS),
    experiment="|".join(experiments.EXPERIMENTS),
    seed="([0-9]+|all)(-anew)?",


localrules:
    all,
    results,
    book,
    records,


rule all:
    input:
        markers,
        PAGE,


rule results:
    input:
        markers,


rule book:
    input:
        PAGE,


# ---------------------------------------------------------------- how


rule run:
    output:
        touch("runs/{profile}/{experiment}/{dataset}/{embedding}/{seed}"),
    log:
        "logs/{profile}/{experiment}-{dataset}-{embedding}-{seed}.txt",
    params:
        named=lambda wildcards: "{dataset}-{embedding}-*-s{seed}-*".format(**dict(wildcards.items()) | ({"seed": "*"} if wildcards.seed == "all" else {})),
    resources:
        mem_mb=5000,
        gpu=GPUS,
    shell:
        "cd {ROOT:q} && {sys.executable:q} -m snnl_book run {wildcards.experiment} {RUN_AS} --embeddings {wildcards.embedding} --keys {params.named:q} > {build.BUILD:q}/{log:q} 2>&1 && echo runs of {wildcards.experiment} on {wildcards.dataset}/{wildcards.embedding}: recorded"


rule records:
    input:
        markers,
    output:
        DIGEST,
    shell:
        "{sys.executable:q} {ROOT:q}/book/_tools/build.py digest > {output:q}"


rule chapter:
    input:
        lambda wildcards: str(CHAPTERS[wildcards.chapter]),
        LIBRARY,
        DIGEST,
    output:
        "executed/{chapter}.ipynb",
    log:
        notebook="logs/{chapter}.ipynb",
    params:
        given=lambda wildcards: build.arguments(CHAPTERS[wildcards.chapter], ASKED),
        data=lambda wildcards: build.data_behind(CHAPTERS[wildcards.chapter], ASKED["dataset"]),
        # The date of the output comes after an edit that was made while the chapter was executed.
        source=lambda wildcards: hashlib.sha256(CHAPTERS[wildcards.chapter].read_bytes()).hexdigest(),
    resources:
        mem_mb=5000,
        gpu=GPUS,
    shell:
        "{sys.executable:q} {ROOT:q}/book/_tools/build.py chapter {input[0]:q} {log.notebook:q} {params.given}"


rule render:
    input:
        expand("executed/{chapter}.ipynb", chapter=CHAPTERS),
        SOURCES,
    output:
        PAGE,
    log:
        "logs/render.txt",
    shell:
        "{sys.executable:q} {ROOT:q}/book/_tools/build.py render 2>&1 | tee {log:q}"


onstart:
    try:
        LOCK.acquire(timeout=0)
    except Timeout:
        raise WorkflowError(f"another snakemake is at work in {build.BUILD}: wait for it, or stop it") from None
    todo = [(job.rule.name, job.wildcards_dict.get("chapter")) for job in workflow.dag.needrun_jobs()]
    print(build.announcement(todo, workflow.resource_settings.cores), flush=True)
