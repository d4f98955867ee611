"""The page on the loss in one's own training keeps its word: its examples run as they stand there,
and its table is that of the code it speaks of.
"""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import NCALoss

from snnl_lib.losses import soft_nearest_neighbor_loss

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "own_training.md").read_text()
EXAMPLES = {
    part.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)
    for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}


def code_of(title):
    (example,) = EXAMPLES[title]
    return example


def carried_out(title):
    scope = {"__name__": title}
    exec(code_of(title), scope)
    return scope


def test_every_example_of_the_page_is_carried_out_here():
    assert [title for title, examples in EXAMPLES.items() if examples] == [
        "A plain training loop",
        "sentence-transformers",
        "Several processes",
        "Entanglement, layer by layer",
        "pytorch-metric-learning",
    ]


def test_a_plain_training_loop_disentangles():
    scope = carried_out("A plain training loop")
    assert 0 < scope["last"] < scope["first"]


@pytest.mark.slow  # that the trainer can use the loss is tested with the integrations
def test_the_trainer_of_sentence_transformers_disentangles_texts(newsgroups4):
    scope = carried_out("sentence-transformers")
    assert 0 < scope["last"] < 0.8 * scope["first"]
    assert len(scope["trainer"].state.log_history) > 0


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
    assert len(capsys.readouterr().out.splitlines()) == 12


@pytest.mark.filterwarnings("ignore:more than half")
def test_pytorch_metric_learning_calls_the_loss_like_its_own():
    loss = carried_out("pytorch-metric-learning")["SoftNearestNeighbors"](0.1)
    features, labels = torch.randn(32, 5, dtype=torch.float64), torch.arange(32) % 4
    theirs = NCALoss(softmax_scale=10, distance=CosineSimilarity())
    torch.testing.assert_close(loss(features, labels, None), theirs(features, labels))
    with pytest.raises(ValueError, match="leave the miner out"):
        loss(features, labels, (labels, labels, labels))


# ---------------------------------------------------------------- cleverhans


def with_a_constant(features, labels, temperature, distance, constant=1e-5):
    """Eq. 4 with a small constant in the denominator and in the logarithm, anchor by anchor."""
    if distance == "cosine":
        features = F.normalize(features)
        distances = 1 - features @ features.T
    else:
        distances = torch.cdist(features, features).square()
    picks = torch.exp(-distances / temperature) * (1 - torch.eye(len(features)))
    shares = picks / (constant + picks.sum(dim=1, keepdim=True))
    return -torch.log(constant + (shares * (labels[:, None] == labels)).sum(dim=1))


@pytest.mark.parametrize(("distance", "temperature"), [("cosine", 0.5), ("sqeuclidean", 100.0)])
def test_the_constant_of_cleverhans_moves_an_ordinary_loss_by_some_1e_5(distance, temperature):
    random = torch.Generator().manual_seed(0)
    features = torch.randn(64, 8, generator=random, dtype=torch.float64)
    labels = torch.arange(64) % 4
    theirs = with_a_constant(features, labels, temperature, distance).mean()
    ours = soft_nearest_neighbor_loss(features, labels, temperature, distance=distance)
    assert 1e-6 < abs(theirs - ours) < 1e-4


def test_the_constant_of_cleverhans_does_what_the_page_says():
    ceiling = -math.log(1e-5)
    assert f"{ceiling:.1f}" == "11.5" and r"$-\log 10^{-5} = 11.5$" in PAGE
    x, labels = torch.eye(4, dtype=torch.float64), torch.tensor([0, 0, 1, 2])
    alone = with_a_constant(x, labels, 1.0, "cosine")[2:]
    torch.testing.assert_close(alone, torch.full_like(alone, ceiling))
    assert with_a_constant(x, torch.zeros(4), 1.0, "cosine").max() < 0  # class mates alone
    far = (100 * x).requires_grad_()  # squared distances of 20,000 temperatures
    losses = with_a_constant(far, labels, 1.0, "sqeuclidean")
    torch.testing.assert_close(losses, torch.full_like(losses, ceiling))
    assert not torch.autograd.grad(losses.sum(), far)[0].any()
    ours = soft_nearest_neighbor_loss(far, labels, distance="sqeuclidean", reduction="none")
    assert ours[:2].allclose(torch.tensor(3.0).log().double())
    assert torch.autograd.grad(ours.sum(), far)[0].any()
