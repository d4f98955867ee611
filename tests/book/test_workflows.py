"""GitHub's workflows keep to the Makefile and to the versions of Python that the project takes;
what the Makefile says before it starts.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from conftest import outside_of_make
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = {path.stem: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
LOADED = {name: yaml.safe_load(path.read_text()) for name, path in WORKFLOWS.items()}
STEPS = [
    (name, step)
    for name, workflow in LOADED.items()
    for job in workflow["jobs"].values()
    for step in job["steps"]
]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_the_workflows_are_what_github_takes():
    assert set(WORKFLOWS) == {"test", "book", "weekly"}
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
    ]
    done = subprocess.run([*check, *WORKFLOWS.values()], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_workflow_runs_make_with_targets_and_variables_that_there_are():
    commands = [step["run"] for _, step in STEPS if "run" in step]
    assert {"make lint", "make test", "make check-book"} <= {*commands}
    for command in commands:
        target, *variables = command.split()[1:]
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
        for variable in variables:
            name = variable.partition("=")[0]
            assert re.search(rf"^{name} \?=", MAKEFILE, re.MULTILINE)


def test_tests_run_on_the_oldest_and_the_newest_python_that_the_project_takes():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    takes = SpecifierSet(project["requires-python"])
    versions = [f"3.{minor}" for minor in range(30) if takes.contains(f"3.{minor}")]
    matrix = LOADED["test"]["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == [versions[0], versions[-1]]
    others = {
        step["with"]["python-version"]
        for name, step in STEPS
        if "setup-python" in step.get("uses", "") and name != "test"
    }
    assert others <= set(versions) and len(others) == 2
    assert f"(3, {versions[0][2:]}) <= sys.version_info[:2] <= (3, {versions[-1][2:]})" in MAKEFILE


def commands_of_env(*variables):
    """What `make env` would run in a fresh checkout."""
    always = ["make", "--always-make", "--dry-run", f"PYTHON3={sys.executable}", "env", *variables]
    options = {"cwd": ROOT, "env": outside_of_make(), "capture_output": True, "text": True}
    return subprocess.run(always, check=True, **options).stdout


def test_an_empty_lock_takes_the_newest_of_everything_and_otherwise_all_is_pinned():
    locked, newest = commands_of_env(), commands_of_env("LOCK=")
    assert "-r requirements.txt -c requirements/lock.txt\n" in locked and "newest" not in locked
    assert "requirements/lock.txt" not in newest
    assert "-r .venv/newest.txt -e '.[text,transformers,book,batch]'\n" in newest
    (pins,) = re.findall(r"^(sed -E '.+' requirements\.txt) >", newest, re.MULTILINE)
    left = subprocess.check_output(pins, shell=True, cwd=ROOT, text=True)
    names = re.findall(r"^([\w-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert re.findall(r"^([\w-]+) +#", left, re.MULTILINE) == names and "==" not in left


@pytest.mark.parametrize("command", ["check-book", "check-chapters"])
def test_without_a_browser_nothing_is_built_before_that_is_said(command, tmp_path):
    done = subprocess.run(
        [shutil.which("make"), command],
        cwd=ROOT,
        env=outside_of_make() | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    said = "error: Chromium is not installed: apt-get install chromium\n"
    assert (done.returncode, done.stdout) == (2, said)
