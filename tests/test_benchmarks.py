"""``make bench``: a small run of it writes whole tables, whose rivals compute what they are said
to.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import infersent_control, rivals, steps
from benchmarks.__main__ import compare_steps, in_turn
from snnl_book.embeddings.sentences import random_encoder
from snnl_lib.losses import soft_nearest_neighbor_loss

ROOT = Path(__file__).resolve().parent.parent


def test_the_usual_formula_and_ncaloss_are_equation_4():
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 6, generator=random), torch.arange(40) % 4
    expected = soft_nearest_neighbor_loss(x, y, 0.5).item()
    for name in ("usual formula", "NCALoss"):
        assert rivals.LOSSES[name](x, y, 0.5).item() == pytest.approx(expected, rel=1e-5)
    # The mean outside of the logarithm is never smaller.
    assert rivals.LOSSES["SupConLoss"](x, y, 0.5).item() > expected


def test_all_sides_take_turns_in_an_order_drawn_by_lot():
    order = []
    found = in_turn({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, "cpu")
    assert len(found["a"]) == len(found["b"]) == 60
    assert len(order) == 122, "and one turn of each beforehand is not counted"
    turns = [tuple(order[i : i + 2]) for i in range(0, len(order), 2)]
    assert set(turns) == {("a", "b"), ("b", "a")}


@pytest.mark.slow  # its parts are tested one by one
def test_a_small_benchmark_writes_times_and_memory_of_all_sides(tmp_path):
    small = "-m benchmarks loss --sizes 64 --features 16 --turns 2 --out".split()
    command = [sys.executable, *small, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("B 64, D 16: bound ")
    table = pd.read_csv(tmp_path / "loss-cpu.csv")
    assert set(table["loss"]) == {"bound", "ours", "usual formula", "NCALoss", "SupConLoss"}
    assert (table["seconds"] > 0).all()
    assert (table["turns"] == 2).all() and (table["threads"] == 1).all()
    assert table.set_index("loss")["memory"].drop("bound").notna().all()
    assert table["device"].str.startswith("CPU").all()
    assert [path.name for path in tmp_path.iterdir()] == ["loss-cpu.csv"]


@pytest.mark.slow
def test_steps_are_compared_with_their_matrix_products_and_with_rivals(tmp_path, packages):
    compare_steps("cpu", (2, 2), tmp_path / "step-cpu.csv")
    table = pd.read_csv(tmp_path / "step-cpu.csv").set_index("step")
    assert table.index.tolist() == ["ClusterBERT", "AE(D)"]
    assert table["rival"].tolist() == ["DenoisingAutoEncoderLoss", "usual formula"]
    assert table["share"].between(0.1, 1.2).all()
    assert (table[["seconds", "bound", "rival_seconds", "ratio"]] > 0).all(axis=None)
    assert (table["turns"] == 2).all()
    assert table["device"].str.startswith("CPU").all()


def test_a_rival_that_is_not_installed_is_said_to_be_so(monkeypatch):
    monkeypatch.setitem(
        steps.STEPS, "ClusterBERT", (lambda device: {"bound": [1.0], "ours": [2.0]}, 1, "TheirLoss")
    )
    row = next(steps.compare("cpu", lambda sides, *_: sides, None))
    assert row["rival"] == "TheirLoss: sentence-transformers is not installed"
    assert row["share"] == 0.5
    assert math.isnan(row["ratio"])


@pytest.mark.slow  # executes a chapter
def test_the_cost_of_a_chapter_is_measured_by_executing_it_and_others_keep_their_rows(tmp_path):
    path = tmp_path / "bench" / "chapters-cpu.csv"
    path.parent.mkdir()
    path.write_text("chapter,seconds\n06_clustering_metrics,1\n09_loss_or_labels,2\n")
    command = [sys.executable, "-m", "benchmarks.chapters", "06_clustering_metrics"]
    environment = os.environ | {"SNNL_RESULTS": str(tmp_path)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    found = pd.read_csv(path).set_index("chapter")
    assert set(found.index) == {"06_clustering_metrics", "09_loss_or_labels"}
    assert found.loc["09_loss_or_labels", "seconds"] == 2
    measured = found.loc["06_clustering_metrics"]
    assert measured["seconds"] > 2 and measured["memory"] > 100 and measured["commit"]


@pytest.mark.parametrize(
    ("pooling", "pooled"),
    [
        (infersent_control.PaddedInferSent, lambda states: states.amax(dim=0).clamp(min=0)),
        (infersent_control.MeanInferSent, lambda states: states.mean(dim=0)),
    ],
)
def test_encoders_that_pool_in_another_way_pool_the_states_of_the_same_lstm(pooling, pooled):
    encoder = random_encoder(word_size=5, units=3)
    words, lengths = torch.randn(2, 6, 5), torch.tensor([6, 2])
    with torch.no_grad():
        found = infersent_control.pooled_by(encoder, pooling)(words, lengths)
        expected = [
            pooled(encoder.enc_lstm(document[None, :length])[0][0])
            for document, length in zip(words, lengths, strict=True)
        ]
        assert not torch.allclose(encoder(words, lengths), torch.stack(expected), atol=1e-3)
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-6)


def test_a_document_read_in_parts_is_the_mean_of_its_parts():
    vectors = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=np.float32)
    found = infersent_control.averaged(vectors, np.array([0, 2, 0]), 3)
    np.testing.assert_array_equal(found, [[3, 4], [0, 0], [3, 4]])
