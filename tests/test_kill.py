"""A pulled plug: processes killed with SIGKILL at random and at the worst moments, two at once on
one folder, and what a rerun makes of it.
"""

import functools
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from snnl_book import results

ROOT = Path(__file__).resolve().parent.parent
RUN = "-m snnl_book run clustering --profile tiny --dataset newsgroups4 --device cpu".split()
RUN += ["--seeds", "42", "73"]
KILLS = 30


@pytest.fixture
def moments():
    """Random numbers whose seed is told, so that a failure can be repeated: set SNNL_KILL_SEED to
    it.
    """
    seed = int(os.environ.get("SNNL_KILL_SEED", random.SystemRandom().randrange(2**32)))
    print(f"the moments come from the seed {seed}")
    return random.Random(seed)


def start(*arguments, cwd=ROOT, preexec_fn=None, **environment):
    """Start Python as the leader of a process group of its own."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=preexec_fn,
    )


def finish(process, timeout=900):
    said, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, said
    return said


def kill_after(process, seconds):
    """Kill a process and all that it started; tells whether it was still at work."""
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    return False


def numbers():
    """What is recorded, to the last bit, but for what differs between any two runs."""
    found = results.load_results(profile="tiny").drop(columns=["seconds", "created"])
    return found.sort_values(["key", "metric"]).to_csv(index=False)


# ---------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def uninterrupted(packages, tmp_path_factory):
    """The records of undisturbed runs from an empty cache, and the seconds that they took."""
    place = tmp_path_factory.mktemp("uninterrupted")
    (place / "cache").mkdir()
    (place / "cache" / "packages").symlink_to(packages.resolve(), target_is_directory=True)
    started = time.monotonic()
    finish(start(*RUN, SNNL_RESULTS=str(place / "results"), SNNL_CACHE=str(place / "cache")))
    seconds = time.monotonic() - started
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SNNL_RESULTS", str(place / "results"))
        return numbers(), seconds


@pytest.mark.slow  # one moment, the worst, is tested always below
def test_runs_killed_at_random_moments_go_on_and_end_with_the_same_bits(
    uninterrupted, own_cache, results_folder, moments
):
    def recorded():  # refuses a record that is not whole
        return results.load_results(profile="tiny")["key"].nunique()

    expected, seconds = uninterrupted
    for _ in range(KILLS):  # in the start, the embedding, a training or the writing of a record
        before = {path: path.stat().st_mtime_ns for path in results_folder.rglob("*.csv")}
        kill_after(start(*RUN), moments.uniform(0.2, 1) * seconds)
        assert all(path.stat().st_mtime_ns == then for path, then in before.items()), "made again"
        if recorded() == 8:
            shutil.rmtree(results_folder)
            shutil.rmtree(own_cache / "embeddings", ignore_errors=True)
    left = recorded()
    said = finish(start(*RUN))
    assert f"runs to do: {8 - left}, recorded: {left}" in said
    assert numbers() == expected


SUICIDE = """
import os, signal, sys
from snnl_lib import checkpoint

def whole_file(path, plain=checkpoint.whole_file):
    import contextlib

    @contextlib.contextmanager
    def open_it():
        with plain(path) as file:
            write = file.write

            class Torn:
                name = file.name

                def write(self, content):
                    write(content[: len(content) // 2])
                    file.flush()
                    os.kill(os.getpid(), signal.SIGKILL)

                def __getattr__(self, name):
                    return getattr(file, name)

            yield Torn() if os.environ["TORN"] in str(path) else file

    return open_it()

checkpoint.whole_file = whole_file
sys.argv = ["snnl_book", *sys.argv[1:]]
from snnl_book.__main__ import main
sys.exit(main())
"""


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in (".curve.csv", "embeddings")]


@pytest.mark.parametrize("torn", [".csv", *SLOW])
def test_a_process_that_dies_in_the_middle_of_a_file_leaves_nothing_that_is_read(
    uninterrupted, own_cache, results_folder, tmp_path, torn
):
    (tmp_path / "suicide.py").write_text(SUICIDE)
    process = start(tmp_path / "suicide.py", *RUN[2:], TORN=torn, PYTHONPATH=str(ROOT))
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    hidden = (path for folder in (results_folder, own_cache) for path in folder.rglob(".*"))
    assert any(path.suffix == ".tmp" and path.is_file() for path in hidden), "it did die there"
    # The first run has no curve, and was finished.
    finished = torn == ".curve.csv"
    assert results.load_results(profile="tiny")["key"].nunique() == finished
    finish(start(*RUN))
    assert numbers() == uninterrupted[0]


# ---------------------------------------------------------------- a disk that takes no more


def test_a_disk_that_takes_no_more_is_one_sentence_and_leaves_nothing_half_written(
    own_cache, results_folder
):
    bytes_a_file = (500, 500)
    no_room = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, bytes_a_file)
    process = start(*RUN, preexec_fn=no_room)
    said, _ = process.communicate(timeout=300)
    last = said.strip().splitlines()[-1]
    assert process.returncode == 2 and "Traceback" not in said, said
    assert last.startswith("error: ") and "free some disk space" in last
    assert not [path for folder in (results_folder, own_cache) for path in folder.rglob("*.tmp")]
    assert results.load_results(profile="tiny").empty
