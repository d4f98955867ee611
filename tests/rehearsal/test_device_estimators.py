"""Every estimator on a pretend accelerator: fit, predict, save and load give the CPU's results."""

import sys
from dataclasses import replace

import numpy as np
import pretend
import pytest
import torch

from snnl_book.embeddings import sentences, transformers
from snnl_book.embeddings.backbones import tokenize
from snnl_book.methods import DEC, IDEC, N2D, SCCL, ClusterBERT, DisentangledAutoencoder, VaDE
from snnl_book.methods.deep_clustering import n2d
from snnl_book.recipes import Recipe
from snnl_lib.training import take_step

RANDOM = np.random.default_rng(0)
LABELS = np.arange(30) % 2
POINTS = (0.3 + 0.4 * LABELS[:, None] + 0.02 * RANDOM.random((30, 6))).astype(np.float32)
TEXTS = [f"sort the {name} list" for name in ("first", "second", "long", "short", "old")]
TEXTS += [f"read a {name} file line by line" for name in ("small", "large", "new", "wide")]
SHORT = Recipe(
    warm_up=1, adaptation_epochs=1, reclusterings=1, clustering_epochs=1, hardening_epochs=1
)


@pytest.fixture
def backbone(small_roberta):
    """The path of a small RoBERTa."""
    return str(small_roberta / "backbones" / "roberta-base")


def results_of(model, data, folder, device):
    """Return what a fitted estimator computes, and require the same of the saved and loaded one."""
    model.save(folder / device)
    loaded = type(model).load(folder / device, device=device)
    for network in (part for part in vars(loaded).values() if isinstance(part, torch.nn.Module)):
        assert {value.device.type for value in network.parameters()} == {device}
    results = [np.asarray(model.transform(data))]
    if hasattr(model, "predict"):
        results += [np.asarray(model.labels_), model.predict(data)]
        assert np.array_equal(loaded.predict(data), results[-1])
        assert np.array_equal(loaded.labels_, results[1])
    assert np.allclose(loaded.transform(data), results[0], atol=1e-6)
    return results


def test_the_disentangled_autoencoder(on_both, tmp_path):
    def compute(device):
        sizes = {"hidden_sizes": (8, 6), "code_size": 3}
        model = DisentangledAutoencoder(epochs=2, device=device, seed=0, **sizes)
        labels = [None if label == 1 else label for label in LABELS]
        return results_of(model.fit(POINTS, labels), POINTS, tmp_path, device)

    on_both(compute)


SETTINGS = {
    DEC: {"max_steps": 3, "update_interval": 1, "tolerance": 0.0},
    IDEC: {"max_steps": 3, "update_interval": 2},
    VaDE: {"epochs": 2},
    N2D: {},
}


@pytest.mark.parametrize("method", SETTINGS, ids=lambda method: method.__name__)
def test_deep_clustering(method, on_both, tmp_path, monkeypatch):
    def first_units(vectors, seed, n_components, **settings):  # UMAP never sees the device
        return None, vectors[:, :n_components]

    monkeypatch.setattr(n2d, "fit_umap", first_units)

    def compute(device):
        settings = {"pretrain_epochs": 2, "code_size": 3, "seed": 0, "device": device}
        settings["checkpoint"] = tmp_path / f"{device}-checkpoint.pt"
        model = method(2, **settings, **SETTINGS[method]).fit(POINTS)
        return results_of(model, POINTS, tmp_path, device)

    on_both(compute)


def test_clusterbert(on_both, tmp_path, backbone):
    def compute(device):
        settings = {"recipe": SHORT, "seed": 0, "device": device}
        model = ClusterBERT(2, backbone, folder=tmp_path / f"{device}-stages", **settings)
        model.fit(TEXTS, others=["java"])
        found = results_of(model, TEXTS, tmp_path, device)
        again = ClusterBERT(2, backbone, folder=tmp_path / f"{device}-stages", **settings)
        again.fit(TEXTS, others=["java"])  # from the checkpoint of the last stage
        assert np.array_equal(again.embeddings["hardening"], model.embeddings["hardening"])
        losses = model.curve[["reconstruction", "clustering"]].to_numpy()
        return [*found, losses, *model.embeddings.values()]

    on_both(compute, rtol=5e-2, atol=1e-3)  # the head of centroids enlarges rounding errors


def test_sccl(on_both, tmp_path, backbone):
    def compute(device):
        settings = {"steps": 2, "batch_size": 5, "seed": 0, "device": device}
        model = SCCL(2, backbone, checkpoint=tmp_path / f"{device}.pt", **settings).fit(TEXTS)
        return [*results_of(model, TEXTS, tmp_path, device), model.curve.to_numpy()]

    on_both(compute, rtol=5e-2, atol=1e-3)  # the head of centroids enlarges rounding errors


# ---------------------------------------------------------------- waiting for the device

STEPS = {  # settings of a fit, and how many passes over the data it takes
    DEC: ({"max_steps": 6, "update_interval": 9, "pretrain_epochs": 1}, 1),
    VaDE: ({"epochs": 2, "pretrain_epochs": 1}, 2),
    SCCL: ({"steps": 5, "batch_size": 3}, 1),
    ClusterBERT: ({"recipe": replace(SHORT, batch_size=2)}, 4),
}


@pytest.mark.parametrize("method", STEPS, ids=lambda method: method.__name__)
def test_no_step_waits_for_the_device(method, monkeypatch, backbone):
    """Only between two passes over the data does the computer wait for the device."""
    waits_before_steps = []

    def watched(optimizer, loss):
        waits_before_steps.append(len(waits))
        take_step(optimizer, loss)

    monkeypatch.setattr(sys.modules[method.__module__], "take_step", watched)
    settings, passes = STEPS[method]
    on_texts = method in (SCCL, ClusterBERT)
    with pretend.accelerator() as device, pretend.waits() as waits:
        model = method(2, *([backbone] if on_texts else []), seed=0, device=device, **settings)
        model.fit(TEXTS if on_texts else np.tile(POINTS, (20, 1)))  # several batches
    waited = np.diff(waits_before_steps) > 0
    assert len(waited) >= 4 and waited.sum() < passes


# ---------------------------------------------------------------- encoders


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_transformer_embeds_texts(pooling, on_both, backbone):
    pieces = tokenize(TEXTS, backbone)

    def compute(device):
        encoder = transformers.load_encoder(backbone, pooling)
        return transformers.encode(encoder, pieces, device=device, batch_size=4)

    on_both(compute)


def test_infersent_is_trained_and_embeds_texts(on_both):
    table = RANDOM.normal(size=(20, 4)).astype(np.float32)
    documents = [RANDOM.integers(20, size=length).astype(np.int32) for length in (3, 1, 5, 2, 4)]
    pairs = dict.fromkeys(("train", "dev", "test"), (documents, documents[::-1], np.arange(5) % 3))

    def compute(device):
        recipe = {"units": 3, "hidden": 4, "epochs": 1, "batch_size": 2, "precision": "float32"}
        encoder, scores = sentences.train_nli(pairs, table, device=device, **recipe)
        vectors = np.zeros((5, 6), dtype=np.float32)
        for rows, batch in sentences.encode(encoder, documents, table, device=device):
            vectors[rows] = batch
        return [vectors, scores]

    on_both(compute)


def test_off_the_cpu_infersent_is_trained_in_float32(monkeypatch):
    seen, run = [], sentences.InferSent.forward

    def watched(self, words, lengths):
        seen.append((torch.is_autocast_enabled("pretend"), torch.is_autocast_enabled("cpu")))
        return run(self, words, lengths)

    monkeypatch.setattr(sentences.InferSent, "forward", watched)
    table, document = np.eye(3, dtype=np.float32), np.array([0, 1], dtype=np.int32)
    pairs = dict.fromkeys(("train", "dev", "test"), ([document], [document], [0]))
    recipe = {"units": 2, "hidden": 2, "epochs": 1, "precision": "bfloat16"}
    with pretend.accelerator() as device:
        sentences.train_nli(pairs, table, device=device, **recipe)
    assert {*seen} == {(False, False)}
