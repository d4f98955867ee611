"""The chapter on the loss in one's own training keeps its word: its examples run as printed, and
its table is that of the code it speaks of.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import NCALoss

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = json.loads((ROOT / "book" / "17_the_loss_in_practice.ipynb").read_text())
PAGE = "\n\n".join(
    "".join(cell["source"])
    if cell["cell_type"] == "markdown"
    else f"```python\n{''.join(cell['source'])}\n```"
    for cell in CHAPTER["cells"]
)
EXAMPLES = {
    part.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)
    for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]
}


def code_of(title):
    return "\n\n".join(EXAMPLES[title])


def carried_out(title):
    scope = {"__name__": title}
    exec(code_of(title), scope)
    return scope


def test_every_example_that_the_chapter_does_not_run_is_carried_out_here():
    texts = ["".join(c["source"]) for c in CHAPTER["cells"] if c["cell_type"] == "markdown"]
    parts = re.split(r"^##+ ", "\n\n".join(texts), flags=re.MULTILINE)
    opening = re.search(r"^```python\n(.*?)^```$", parts[0], re.DOTALL | re.MULTILINE)[1]
    assert all(line in code_of("A plain training loop") for line in opening.splitlines())
    assert [part.partition("\n")[0] for part in parts[1:] if "```python" in part] == [
        "sentence-transformers",
        "pytorch-metric-learning",
        "Several processes",
    ]


def test_a_plain_training_loop_disentangles():
    after = carried_out("A plain training loop")["after"]
    assert 0 < after[10] < after[1] < after[0]


@pytest.mark.slow  # that the trainer can use the loss is tested with the integrations
def test_the_trainer_of_sentence_transformers_disentangles_texts(newsgroups4):
    scope = carried_out("sentence-transformers")
    assert 0 < scope["last"] < 0.8 * scope["first"]
    assert len(scope["trainer"].state.log_history) > 0


@pytest.mark.slow  # two ranks that gather are tested with the integrations
def test_several_processes_disentangle_rows(tmp_path):
    (tmp_path / "train.py").write_text(code_of("Several processes"))
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *start],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (told,) = re.findall(r"loss of all 64 rows: (\S+) before, (\S+) after", done.stdout)
    assert float(told[1]) < float(told[0])


def test_the_monitor_sees_the_layers_disentangle(capsys):
    history = carried_out("Entanglement, layer by layer")["monitor"].history
    assert [row["epoch"] for row in history] == list(range(11))
    assert all(history[-1][layer] < history[0][layer] for layer in ("1", "3"))
    assert history[-1]["3"] < history[-1]["1"]  # the classes part on the way to the output
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.filterwarnings("ignore:more than half")
def test_pytorch_metric_learning_calls_the_loss_like_its_own():
    loss = carried_out("pytorch-metric-learning")["SoftNearestNeighbors"](0.1)
    features, labels = torch.randn(32, 5, dtype=torch.float64), torch.arange(32) % 4
    theirs = NCALoss(softmax_scale=10, distance=CosineSimilarity())
    torch.testing.assert_close(loss(features, labels, None), theirs(features, labels))
    with pytest.raises(ValueError, match="leave the miner out"):
        loss(features, labels, (labels, labels, labels))
