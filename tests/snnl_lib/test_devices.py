"""What the loss and the training promise on every device: digits, memory, and one graph."""

import pytest
import torch

from snnl_lib import _pairs, devices
from snnl_lib.losses import reference_loss, soft_nearest_neighbor_loss
from snnl_lib.models import ConvNet
from snnl_lib.training import build, cross_entropy, forward, train

BACKENDS = torch.backends
MATMUL = {"cuda": BACKENDS.cuda.matmul, "mkldnn": BACKENDS.mkldnn.matmul}
CONVOLUTION = {"cuda": BACKENDS.cudnn.conv, "mkldnn": BACKENDS.mkldnn.conv}


@pytest.fixture
def reduced_precision():
    """The user allows torch to round products of float32."""
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision("highest")


def batch(rows=12, features=5, offset=0.0):
    generator = torch.Generator().manual_seed(0)
    return offset + torch.randn(rows, features, generator=generator), torch.arange(rows) % 3


def gradient(loss, features, *arguments, **options):
    features = features.clone().requires_grad_()
    loss(features, *arguments, **options).backward()
    return features.grad


# ---------------------------------------------------------------- float32 digits


def precisions(operations):
    return {name: operation.fp32_precision for name, operation in operations.items()}


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_loss_multiplies_exactly_whatever_the_user_allows(
    reduction, reduced_precision, monkeypatch
):
    seen, compute = [], _pairs._losses_and_gradients

    def watched(*arguments):
        seen.append(precisions(MATMUL))
        return compute(*arguments)

    monkeypatch.setattr(_pairs, "_losses_and_gradients", watched)
    before = precisions(MATMUL)
    features, labels = batch()
    loss = soft_nearest_neighbor_loss(features.requires_grad_(), labels, reduction=reduction)
    loss.sum().backward()
    assert seen == [{"cuda": "ieee", "mkldnn": "ieee"}] * (1 if reduction == "mean" else 2)
    assert precisions(MATMUL) == before != seen[0]


def test_training_and_evaluation_compute_convolutions_exactly(reduced_precision, monkeypatch):
    seen, run = [], ConvNet.forward

    def watched(self, x):
        seen.append(precisions(MATMUL) | precisions(CONVOLUTION))
        return run(self, x)

    monkeypatch.setattr(ConvNet, "forward", watched)
    before = precisions(CONVOLUTION)
    x, y = batch(features=8)
    model = build(ConvNet, 8, 3, (4,), filters=2, positions=4, seed=0)
    train(model, x, y, cross_entropy, epochs=1, seed=0)
    forward(model, x)
    assert seen == [{"cuda": "ieee", "mkldnn": "ieee"}] * 2
    assert precisions(CONVOLUTION) == before != seen[0]


def test_a_precision_that_was_inherited_stays_so(monkeypatch):
    monkeypatch.setattr(torch.backends, "fp32_precision", "tf32")
    soft_nearest_neighbor_loss(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    torch.backends.fp32_precision = "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"


def test_precision_is_restored_after_an_error(reduced_precision):
    before = precisions(MATMUL)
    with pytest.raises(ValueError, match="stop"), devices.exact_layers():
        raise ValueError("stop")
    assert precisions(MATMUL) == before


# ---------------------------------------------------------------- squared distances


@pytest.mark.parametrize("chunk_size", [None, 5])
@pytest.mark.parametrize(("offset", "tolerance"), [(0.0, 1e-5), (3000.0, 2e-3)])
def test_without_float64_the_gradient_of_squared_distances_is_right_too(
    chunk_size, offset, tolerance, monkeypatch
):
    features, labels = batch(offset=offset)
    options = {"distance": "sqeuclidean"}
    expected = gradient(reference_loss, features.double(), labels, 0.5, **options).float()
    monkeypatch.setattr(_pairs, "has_float64", lambda device: False)
    found = gradient(
        soft_nearest_neighbor_loss, features, labels, 0.5, chunk_size=chunk_size, **options
    )
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_the_gradient_of_squared_distances_does_not_come_from_autograd(monkeypatch):
    def refused(*arguments, **options):
        raise AssertionError("the derivative of cdist holds a table [B, R, D] on a GPU")

    features, labels = batch()
    features.requires_grad_()
    for reduction in ("mean", "none"):
        loss = soft_nearest_neighbor_loss(
            features, labels, reduction=reduction, distance="sqeuclidean"
        )
        with monkeypatch.context() as patch:
            patch.setattr(torch.autograd, "grad", refused)
            loss.sum().backward()
    assert features.grad.isfinite().all()


@pytest.mark.parametrize(
    ("distance", "backend"),
    [("cosine", "aot_eager"), ("sqeuclidean", "eager"), ("sqeuclidean", "aot_eager")],
)
@pytest.mark.parametrize(
    "options", [{}, {"chunk_size": 5}, {"reduction": "none"}, {"ignore_index": 1}], ids=str
)
def test_compiled_in_one_graph_it_has_the_same_value_and_gradient(options, distance, backend):
    def loss(x, y, temperature):
        return soft_nearest_neighbor_loss(x, y, temperature, distance=distance, **options)

    torch.compiler.reset()
    compiled = torch.compile(loss, backend=backend, fullgraph=True)
    features, labels = batch()
    inputs = features.requires_grad_(), torch.tensor(0.3, requires_grad=True)
    results = []
    for function in (compiled, loss):
        value = function(inputs[0], labels, inputs[1])
        results.append([value, *torch.autograd.grad(value.sum(), inputs)])
    torch.testing.assert_close(*results)


# ---------------------------------------------------------------- what a device lacks


def test_float64_features_are_refused_where_the_device_has_no_float64():
    x, y = torch.rand(4, 64, dtype=torch.float64), torch.tensor([0, 0, 1, 1])
    model = build(ConvNet, 64, 2, (4,), filters=2, seed=0)
    assert devices.has_float64("cpu") and devices.has_float64("cuda:1")
    assert not devices.has_float64("mps")
    with pytest.raises(
        ValueError, match=r"^features must be float32, because mps does not support float64$"
    ):
        train(model, x, y, cross_entropy, epochs=1, seed=0, device="mps")


def test_an_accelerator_keeps_its_random_state(monkeypatch):
    class Module:
        state = torch.tensor([3])

        def get_rng_state(self):
            return self.state

        def set_rng_state(self, state):
            self.state = state

    class SeveralDevices(Module):
        def get_rng_state_all(self):
            return [self.state]

        def set_rng_state_all(self, states):
            (self.state,) = states

    for module in (Module(), SeveralDevices()):
        monkeypatch.setattr(torch, "get_device_module", lambda device, module=module: module)
        with devices.kept_random_states("cpu"):
            module.state = torch.tensor([4])
        assert module.state == 4, "a training on the CPU leaves the accelerator alone"
        with devices.kept_random_states("cuda"):
            module.state = torch.tensor([5])
        assert module.state == 4
