"""The loss, trainings and integrations on a pretend accelerator give the CPU's results."""

from itertools import product

import pretend
import pytest
import torch
from torch import nn

from snnl_lib import checkpoint, training
from snnl_lib.integrations import EntanglementMonitor, SentenceSoftNearestNeighborLoss
from snnl_lib.losses import (
    SoftNearestNeighborLoss,
    composite_loss,
    soft_nearest_neighbor_loss,
    supervised_contrastive_loss,
)
from snnl_lib.models import Autoencoder, ConvNet, FeedForwardNet
from snnl_lib.training import build, forward, train

ROWS, FEATURES = 24, 16
GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(ROWS, FEATURES, generator=GENERATOR)
Y = torch.arange(ROWS) % 3
BANK = torch.rand(5, FEATURES, generator=GENERATOR), torch.tensor([0, 1, 2, 1, 0])


def small_autoencoder():
    return build(Autoencoder, FEATURES, (8, 6), 4, seed=0)


# ---------------------------------------------------------------- the device itself


def test_the_device_refuses_what_cuda_refuses():
    with pretend.accelerator() as device:
        ours, cpus = torch.ones(3, device=device), torch.ones(3)
        assert (ours + torch.tensor(1.0)).device.type == device, "single numbers mix"
        for mix in (lambda: ours + cpus, lambda: torch.stack([ours, cpus]), lambda: cpus[ours > 0]):
            with pytest.raises(RuntimeError, match="expected all tensors on pretend:0"):
                mix()
        with pytest.raises(TypeError, match="does not become a numpy array"):
            ours.numpy()
    assert not torch.accelerator.is_available()


def test_the_device_notes_what_it_waits_for():
    with pretend.accelerator() as device:
        ours = torch.ones(3, device=device)
        with pretend.waits() as waits:
            ours * 2 + ours.sum()
            assert waits == []
            ours.sum().item()
            ours.tolist()
            ours[ours > 0]
            ours.nonzero()
            ours.cpu()
            assert ours.any()
    assert waits == ["item", "tolist", "boolean index", "nonzero", "cpu", "item"]


# ---------------------------------------------------------------- the loss


@pytest.mark.parametrize("distance", ["cosine", "sqeuclidean"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_and_its_gradients(distance, reduction, on_both):
    options = {"distance": distance, "reduction": reduction}

    def compute(device):
        results = []
        for chunk_size, ignore_index, with_bank, learned, half in product(
            (None, 7), (None, 1), (False, True), (False, True), (False, True)
        ):
            features = X.to(device, copy=True).requires_grad_()
            bank = [part.to(device, copy=True) for part in BANK]
            bank[0].requires_grad_()
            temperature = torch.tensor(0.3, device=device, requires_grad=True)
            references = dict(zip(("references", "reference_labels"), bank, strict=True))
            loss = soft_nearest_neighbor_loss(
                features.half() if half else features,
                Y.to(device),
                temperature if learned else 0.02,
                chunk_size=chunk_size,
                ignore_index=ignore_index,
                **(references if with_bank else {}),
                **options,
            )
            weights = torch.arange(1.0, loss.numel() + 1, device=device).reshape(loss.shape)
            (loss * weights).sum().backward()
            grads = [features.grad, bank[0].grad, temperature.grad]
            results.append([loss.detach(), *(grad for grad in grads if grad is not None)])
        return results

    on_both(compute, rtol=2e-3)  # two units in the last place of float16


def test_the_module_with_a_learnable_temperature_and_the_composite_loss(on_both):
    def compute(device):
        module = SoftNearestNeighborLoss("learnable").to(device)
        features, labels = X.to(device, copy=True).requires_grad_(), Y.to(device)
        hidden = {"first": features, "second": features.square()}
        losses = [module(features, labels), supervised_contrastive_loss(features, labels, 0.5)]
        losses += [
            composite_loss(losses[0], hidden, labels, alpha=2, temperature=0.5, layers=layers)
            for layers in ("sum", "min", ["second"])
        ]
        total = torch.stack(losses)
        total.sum().backward()
        return [total.detach(), features.grad, module.log_temperature.grad]

    on_both(compute)


# ---------------------------------------------------------------- trainings

NETWORKS = {
    "feed-forward": lambda: build(FeedForwardNet, FEATURES, 3, (8,), seed=0),
    "convolution": lambda: build(ConvNet, FEATURES, 3, (4,), filters=2, positions=4, seed=0),
    "convolution with pooling": lambda: build(
        ConvNet, FEATURES, 3, (4,), filters=2, positions=4, kernel=3, seed=0
    ),
    "autoencoder": small_autoencoder,
}
SETTINGS = {
    "annealed": {"alpha": 10},
    "weighted, least entangled layer": {"alpha": 10, "weight": "over T", "layers": "min"},
    "ignored rows": {"alpha": 10, "temperature": 0.5, "ignore_index": 1},
    "of the output": {"alpha": -1, "select": lambda hidden, output: {"output": output}},
    "rival": {"alpha": 1, "regularizer": supervised_contrastive_loss, "temperature": 0.5},
}


def trained(model, device, **settings):
    is_autoencoder = isinstance(model, Autoencoder)
    primary = training.binary_cross_entropy if is_autoencoder else training.cross_entropy

    def after_epoch(model):
        return {"mean": float(forward(model, X).mean())}

    settings = {"epochs": 2, "seed": 0, "batch_size": 10, "after_epoch": after_epoch} | settings
    history = train(model, X, Y, primary, device=device, **settings)
    layer = "code" if is_autoencoder else "hidden1"
    assert not history.diverged
    columns = {name: history.curve[name].tolist() for name in ("loss", "primary", "mean")}
    return [columns, forward(model, X), forward(model, X, layer=layer)]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=[*SETTINGS])
def test_a_training_with(settings, on_both):
    on_both(lambda device: trained(small_autoencoder(), device, **settings))


@pytest.mark.parametrize("network", [*NETWORKS])
def test_a_training_of_the_network(network, on_both):
    on_both(lambda device: trained(NETWORKS[network](), device, alpha=1))


@pytest.mark.parametrize("primary", [training.squared_error, training.squared_error_of_logistic])
def test_a_training_on(primary, on_both):
    def compute(device):
        history = train(small_autoencoder(), X, Y, primary, epochs=1, seed=0, device=device)
        return history.curve["loss"].tolist()

    on_both(compute)


def test_a_training_that_was_interrupted_continues(on_both, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 0.0)

    def compute(device):
        path = tmp_path / f"{device}.pt"
        epochs = []

        def after_epoch(model):
            epochs.append(1)
            if len(epochs) == 3:
                raise KeyboardInterrupt
            return {"mean": 0.0}

        with pytest.raises(KeyboardInterrupt):
            settings = {"alpha": 1, "epochs": 4, "checkpoint": path, "after_epoch": after_epoch}
            trained(small_autoencoder(), device, **settings)
        assert path.exists()
        results = trained(small_autoencoder(), device, **settings)
        assert len(epochs) == 5, "two epochs before, and two after the interruption"
        assert len(results[0]["loss"]) == 4
        return results

    on_both(compute)


def test_a_step_of_training_never_waits_for_the_device(monkeypatch):
    seen, take_step = [], training.take_step

    def watched(optimizer, loss):
        take_step(optimizer, loss)
        seen.append(list(waits))

    monkeypatch.setattr(training, "take_step", watched)
    for settings in SETTINGS.values():
        with pretend.accelerator() as device, pretend.waits() as waits:
            settings = {"epochs": 1, "seed": 0, "batch_size": 10, "device": device} | settings
            train(small_autoencoder(), X, Y, training.binary_cross_entropy, **settings)
        assert waits[-1:] == ["item"], "only the check at the end of an epoch waits"
    assert len(seen) == 3 * len(SETTINGS) and not any(seen)


# ---------------------------------------------------------------- integrations


def test_the_loss_of_sentence_transformers_and_the_monitor(on_both):
    def compute(device):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, 4)).to(device)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.network = network

            def forward(self, features):
                return {"sentence_embedding": self.network(features["x"])}

        loss = SentenceSoftNearestNeighborLoss(Model(), "annealed", epoch=lambda: 2.5).to(device)
        value = loss([{"x": X.to(device)}], Y.to(device))
        value.backward()
        monitor = EntanglementMonitor(network, ["0", "2"], temperature=0.1)
        before = torch.get_rng_state()
        measured = monitor.record([(X.to(device), Y)])  # a loader leaves labels on the CPU
        assert torch.equal(torch.get_rng_state(), before)
        return [value.detach(), network[0].weight.grad, measured]

    on_both(compute)
