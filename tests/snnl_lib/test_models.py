"""The networks: shapes, names and values of the hidden layers, initial weights, bad sizes."""

import math
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from snnl_lib.losses import composite_loss
from snnl_lib.models import Autoencoder, ConvNet, FeedForwardNet, hidden_layers
from snnl_lib.training import binary_cross_entropy, build

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)  # models and inputs below are drawn from the global generator


def parameters(model):
    return [(name, parameter.detach()) for name, parameter in model.named_parameters()]


def count(model):
    return sum(parameter.numel() for _, parameter in parameters(model))


# ---------------------------------------------------------------- shapes and names


def shapes(hidden):
    return [(name, tuple(values.shape)) for name, values in hidden.items()]


def test_classifier_returns_logits_and_its_hidden_layers_from_the_input_upwards():
    logits, hidden = FeedForwardNet(11, 4, [7, 5, 2])(torch.randn(3, 11))
    assert logits.shape == (3, 4)
    assert shapes(hidden) == [("hidden1", (3, 7)), ("hidden2", (3, 5)), ("hidden3", (3, 2))]


def test_classifier_has_two_layers_of_500_by_default_as_in_section_2_1():
    assert count(FeedForwardNet(300, 4)) == 300 * 500 + 500 + 500 * 500 + 500 + 500 * 4 + 4


def test_autoencoder_is_that_of_section_2_3_and_names_its_hidden_layers():
    model = Autoencoder(300)
    output, hidden = model(torch.rand(3, 300))
    assert output.shape == (3, 300)
    widths = {"encoder1": 500, "encoder2": 500, "encoder3": 2000, "code": 128}
    widths |= {"decoder1": 2000, "decoder2": 500, "decoder3": 500}
    assert shapes(hidden) == [(name, (3, width)) for name, width in widths.items()]
    sizes = [300, 500, 500, 2000, 128, 2000, 500, 500, 300]
    assert count(model) == sum(a * b + b for a, b in pairwise(sizes))


def test_2048_values_leave_the_convolution_whatever_the_number_of_features():
    widths = {"conv": 2048, "hidden1": 2048, "hidden2": 1024, "hidden3": 512}  # Sec. 2.2
    for in_features, kernel, stride in (
        (300, 48, 4),  # means of word vectors
        (4096, 64, 64),  # InferSent
        (64, 1, 1),
        (127, 64, 1),
        (128, 2, 2),
    ):
        model = ConvNet(in_features, 4)
        assert (model.conv.kernel_size, model.conv.stride) == ((kernel,), (stride,))
        assert model.conv.padding == (0,)
        logits, hidden = model(torch.randn(3, in_features))
        assert logits.shape == (3, 4)
        assert shapes(hidden) == [(name, (3, width)) for name, width in widths.items()]


def test_convolution_takes_other_numbers_of_filters_positions_layers_and_a_kernel():
    model = ConvNet(300, 4, (10, 7), filters=8, positions=256)
    logits, hidden = model(torch.randn(3, 300))
    assert logits.shape == (3, 4) and (model.conv.kernel_size, model.conv.stride) == ((45,), (1,))
    assert shapes(hidden) == [("conv", (3, 2048)), ("hidden1", (3, 10)), ("hidden2", (3, 7))]
    for kernel in (1, 3, 65):
        model = ConvNet(300, 4, (10,), filters=5, positions=64, kernel=kernel)
        assert (model.conv.kernel_size, model.conv.stride) == ((kernel,), (1,))
        assert model(torch.randn(3, 300))[1]["conv"].shape == (3, 5 * 64)


# ---------------------------------------------------------------- values


def test_hidden_values_of_the_classifier_are_taken_after_the_relu_and_the_output_before_a_softmax():
    model, x = FeedForwardNet(6, 3, (5, 4)), torch.randn(8, 6)
    (w1, b1), (w2, b2), (w3, b3) = (
        (layer.weight, layer.bias) for layer in (*model.hidden, model.output)
    )
    for bias in (b1, b2, b3):  # zero biases would hide a layer that forgets its own
        torch.nn.init.normal_(bias)
    logits, hidden = model(x)
    first = (x @ w1.T + b1).clamp(min=0)
    second = (first @ w2.T + b2).clamp(min=0)
    assert (first == 0).any() and (first > 0).any()
    torch.testing.assert_close(hidden["hidden1"], first)
    torch.testing.assert_close(hidden["hidden2"], second)
    torch.testing.assert_close(logits, second @ w3.T + b3)


def test_before_relu_hands_out_what_goes_into_it_and_leaves_the_output_as_it_is():
    x = torch.randn(8, 6)
    after, before = (
        build(FeedForwardNet, 6, 3, (5, 4), before_relu=flag, seed=1) for flag in (False, True)
    )
    (logits, hidden), (same, raw) = after(x), before(x)
    assert torch.equal(logits, same) and list(raw) == list(hidden)
    for name, values in raw.items():
        assert (values < 0).any()
        assert torch.equal(values.clamp(min=0), hidden[name])


def test_convolution_is_a_sliding_product_with_each_filter_then_the_relu():
    model, x = ConvNet(11, 3, (5,), filters=2, positions=4), torch.randn(6, 11)
    torch.nn.init.normal_(model.conv.bias)  # a zero bias would hide a layer that forgets its own
    # Stride 11 // 4 = 2; from 3 * 2 to the end there are 5 features.
    windows, weight = x.unfold(1, 5, 2), model.conv.weight[:, 0]
    expected = torch.einsum("bpk,fk->bfp", windows, weight) + model.conv.bias[:, None]
    assert expected.shape == (6, 2, 4) and (expected < 0).any()
    torch.testing.assert_close(model(x)[1]["conv"], expected.clamp(min=0).flatten(1))


def test_pooling_takes_the_largest_of_each_stretch_of_the_padded_convolution():
    model, x = ConvNet(12, 3, (5,), filters=2, positions=4, kernel=3), torch.randn(6, 12)
    windows = F.pad(x, (1, 1)).unfold(1, 3, 1)
    expected = torch.einsum("bpk,fk->bfp", windows, model.conv.weight[:, 0]).clamp(min=0)
    expected = expected.unflatten(2, (4, 3)).amax(dim=3)
    torch.testing.assert_close(model(x)[1]["conv"], expected.flatten(1))


def test_the_rest_of_the_convolutional_network_is_the_feed_forward_one():
    model, x = ConvNet(300, 4, (10, 7)), torch.randn(3, 300)
    logits, hidden = model(x)
    same, layers = model.dense(hidden["conv"])
    assert torch.equal(logits, same)
    assert all(torch.equal(hidden[name], values) for name, values in layers.items())


def test_every_feature_moves_the_output_of_the_convolution_the_last_one_too():
    # A stride that does not divide the features would pass over the last ones with a kernel of the
    # same length.
    for in_features, kernel in product((300, 4096, 301, 363), (None, 3)):
        x = torch.randn(1, in_features, requires_grad=True)
        model = ConvNet(in_features, 4, (5,), kernel=kernel)
        features = model.conv(x[:, None])  # the pooling and the ReLU may drop a feature by chance
        (gradient,) = torch.autograd.grad(features.square().sum(), x)
        assert (gradient != 0).all()
        moved = x.detach().clone()
        moved[0, -1] += 100
        assert not torch.equal(model(x)[1]["conv"], model(moved)[1]["conv"])


def test_hidden_values_of_the_autoencoder_come_after_relu_or_logistic_and_the_output_before_it():
    model, x = Autoencoder(6, (5, 4), 3), torch.rand(8, 6)
    layers = [*model.encoder, model.code, *model.decoder, model.output]
    for layer in layers:
        torch.nn.init.normal_(layer.bias)
    output, hidden = model(x)
    for (name, values), layer in zip(hidden.items(), layers, strict=False):
        linear = x @ layer.weight.T + layer.bias
        x = 1 / (1 + torch.exp(-linear)) if name == "code" else linear.clamp(min=0)
        torch.testing.assert_close(values, x, msg=lambda text, name=name: f"{name}: {text}")
    torch.testing.assert_close(output, x @ model.output.weight.T + model.output.bias)
    assert output.min() < 0  # logits: binary cross entropy applies the logistic function itself


def test_a_linear_code_is_not_bounded_and_is_what_the_decoder_sees():
    x = torch.randn(8, 6)
    bounded, linear = (
        build(Autoencoder, 6, (5, 4), 3, linear_code=flag, seed=1) for flag in (False, True)
    )
    (output, hidden), (other, values) = bounded(x), linear(x)
    assert list(values) == list(hidden)
    assert torch.equal(values["encoder2"], hidden["encoder2"]), (
        "the same weights, the same way to the code"
    )
    torch.testing.assert_close(torch.sigmoid(values["code"]), hidden["code"])
    assert values["code"].min() < 0 and not torch.allclose(output, other)
    torch.testing.assert_close(values["decoder1"], torch.relu(linear.decoder[0](values["code"])))


def test_before_the_nonlinearity_hidden_layers_come_before_their_own_and_the_output_stays():
    x, names = torch.randn(8, 6), ["encoder1", "encoder2", "code", "decoder1", "decoder2"]
    for linear_code in (False, True):
        options = {"linear_code": linear_code, "seed": 1}
        (output, hidden), (same, raw) = (
            build(Autoencoder, 6, (5, 4), 3, before_nonlinearity=before, **options)(x)
            for before in (False, True)
        )
        assert torch.equal(output, same) and list(raw) == list(hidden) == names
        for name, values in raw.items():
            nonlinearity = torch.relu
            if name == "code":
                nonlinearity = torch.nn.Identity() if linear_code else torch.sigmoid
            assert (values < 0).any() and torch.equal(nonlinearity(values), hidden[name]), name


def test_hidden_values_belong_to_the_one_forward_pass():
    for model, width in (
        (FeedForwardNet(6, 3, (20, 15)), 6),
        (Autoencoder(6, (20, 15), 10), 6),
        (ConvNet(64, 3, (20, 15)), 64),
    ):
        output, hidden = model(torch.rand(8, width))
        # Each tensor must lie on the way to the output: a copy would have no gradient from it.
        gradients = torch.autograd.grad(
            output.square().sum(), list(hidden.values()), retain_graph=True
        )
        for name, gradient in zip(hidden, gradients, strict=True):
            assert gradient.abs().max() > 0, name
        # A loss on the first hidden layer reaches the weight and bias before it, and no others.
        next(iter(hidden.values())).square().sum().backward()
        names, weights = zip(*model.named_parameters(), strict=True)
        reached = [weight.grad is not None for weight in weights]
        assert reached == [True, True] + [False] * (len(names) - 2)


# ---------------------------------------------------------------- initial weights


def hidden_and_output_layers(model):
    if isinstance(model, FeedForwardNet):
        return list(model.hidden), [model.output]
    if isinstance(model, ConvNet):
        return [model.conv, *model.dense.hidden], [model.dense.output]
    # Sec. 2.3: encoder and decoder each have an output layer.
    return [*model.encoder, *model.decoder], [model.code, model.output]


@pytest.fixture(scope="module", params=["classifier", "autoencoder", "convolution"])
def model(request):
    if request.param == "classifier":
        return build(FeedForwardNet, 400, 100, seed=3)
    if request.param == "autoencoder":
        return build(Autoencoder, 400, seed=3)
    # So many filters and so wide a kernel that there are enough weights to look at.
    return build(ConvNet, 500, 400, (600, 400), filters=500, positions=2, seed=3)


def test_hidden_layers_start_from_kaiming_normal_weights(model):
    for layer in hidden_and_output_layers(model)[0]:
        # Standard normal, if He et al. were followed.
        standard = layer.weight / math.sqrt(2 / layer.weight[0].numel())
        assert layer.weight.numel() >= 100_000
        assert standard.mean().item() == pytest.approx(0, abs=0.01)
        assert standard.std().item() == pytest.approx(1, rel=0.01)
        within_1 = (standard.abs() < 1).float().mean().item()
        assert within_1 == pytest.approx(0.6827, abs=0.01)  # a uniform one would give 0.577
        assert standard.abs().max() > 3.5


def test_output_layers_start_from_xavier_uniform_weights(model):
    for layer in hidden_and_output_layers(model)[1]:
        # Uniform on [-1, 1].
        unit = layer.weight / math.sqrt(6 / (layer.in_features + layer.out_features))
        assert 1 - 1e-3 <= unit.abs().max().item() <= 1 + 1e-6
        assert unit.std().item() == pytest.approx(1 / math.sqrt(3), rel=0.01)
        assert unit.mean().item() == pytest.approx(0, abs=0.01)


def test_biases_start_at_zero(model):
    biases = [parameter for name, parameter in parameters(model) if name.endswith("bias")]
    assert len(biases) == sum(map(len, hidden_and_output_layers(model)))
    assert all(torch.equal(bias, torch.zeros_like(bias)) for bias in biases)


def test_initial_weights_depend_on_the_seed_alone():
    for model_class, *arguments in (
        (FeedForwardNet, 6, 3, (5, 4)),
        (Autoencoder, 6, (5, 4), 3),
        (ConvNet, 64, 3, (5, 4)),
    ):
        models = []
        for state, seed in ((1, 42), (2, 42), (2, 43)):
            torch.manual_seed(state)  # whatever ran before must not matter
            models.append(parameters(build(model_class, *arguments, seed=seed)))
        for (name, first), (_, second), (_, other) in zip(*models, strict=True):
            assert torch.equal(first, second)
            assert name.endswith("bias") or not torch.equal(first, other)


def test_building_a_model_leaves_the_global_random_state_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build(FeedForwardNet, 6, 3, seed=42)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_building_a_model_leaves_the_random_state_of_the_gpu_as_it_was():
    torch.cuda.manual_seed_all(5)
    before = torch.cuda.get_rng_state()
    build(FeedForwardNet, 6, 3, seed=42)
    assert torch.equal(torch.cuda.get_rng_state(), before)


# ---------------------------------------------------------------- bad sizes


def test_a_size_that_is_no_whole_number_above_0_raises_and_is_shown():
    for name, make in (
        ("in_features", lambda value: FeedForwardNet(value, 3)),
        ("classes", lambda value: FeedForwardNet(6, value)),
        ("hidden_sizes", lambda value: FeedForwardNet(6, 3, (5, value))),
        ("in_features", lambda value: Autoencoder(value)),
        ("hidden_sizes", lambda value: Autoencoder(6, (value, 5))),
        ("code_size", lambda value: Autoencoder(6, (5,), value)),
        ("in_features", lambda value: ConvNet(value, 3)),
        ("classes", lambda value: ConvNet(64, value, (5,))),
        ("hidden_sizes", lambda value: ConvNet(64, 3, (5, value))),
        ("filters", lambda value: ConvNet(64, 3, filters=value)),
        ("positions", lambda value: ConvNet(64, 3, positions=value)),
        ("kernel", lambda value: ConvNet(64, 3, kernel=0 if value is None else value)),
    ):
        for value in (0, -1, 2.5, "3", True, None):
            with pytest.raises(ValueError, match=f"{name} .*got"):
                make(value)
    for sizes in (5, None, np.array([5, 5])):
        for model in (
            partial(FeedForwardNet, 6, 3),
            partial(ConvNet, 64, 3),
            partial(Autoencoder, 6),
        ):
            with pytest.raises(ValueError, match=r"hidden_sizes must be a list of .* above 0, got"):
                model(hidden_sizes=sizes)
    with pytest.raises(ValueError, match=r"in_features must be a whole number .* got \[3, 4\]"):
        FeedForwardNet([3, 4], 2)


def test_a_convolution_refuses_too_few_features_and_an_input_of_another_width():
    for kernel in (None, 3):
        with pytest.raises(ValueError, match=r"in_features .*64, got 63"):
            ConvNet(63, 3, kernel=kernel)
        model = ConvNet(300, 4, (5,), kernel=kernel)
        for width in (64, 299, 301, 600):  # a convolution alone would take 301
            with pytest.raises(ValueError, match=rf"\[B, 300\], got \(4, {width}\)"):
                model(torch.rand(4, width))


def test_output_of_the_autoencoder_fits_binary_cross_entropy_of_equation_3():
    model, x = Autoencoder(6, (5,), 2), torch.rand(4, 6)
    output, _ = model(x)
    p = torch.sigmoid(output)
    by_hand = -(x * p.log() + (1 - x) * (1 - p).log()).mean()
    torch.testing.assert_close(binary_cross_entropy(output, x, None), by_hand)


# ---------------------------------------------------------------- hidden layers of any module


def sequential(**relu):
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(**relu), torch.nn.Linear(3, 2))


def hooks(model):
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


def test_hidden_layers_and_gradient_of_a_pass_are_those_of_the_same_network_written_out():
    ours = FeedForwardNet(4, 2, (3,))
    plain = sequential()
    plain.load_state_dict(dict(zip(plain.state_dict(), ours.state_dict().values(), strict=True)))
    x, y = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 0, 1])
    output, expected = ours(x)
    composite_loss(F.cross_entropy(output, y), expected, y, alpha=10, temperature=0.5).backward()
    with hidden_layers(plain, ["1"]) as hidden:
        output = plain(x)
        composite_loss(F.cross_entropy(output, y), hidden, y, alpha=10, temperature=0.5).backward()
    assert torch.equal(hidden["1"], expected["hidden1"])
    for a, b in zip(plain.parameters(), ours.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_hidden_layers_are_filled_afresh_by_each_call_and_in_the_order_named():
    model = sequential()
    with hidden_layers(
        model, {"2": lambda output: 2 * output, "0": lambda output: output}
    ) as hidden:
        model(torch.randn(6, 4))
        model(torch.zeros(5, 4))
    assert {name: tuple(value.shape) for name, value in hidden.items()} == {
        "0": (5, 3),
        "2": (5, 2),
    }
    assert torch.equal(hidden["2"], 2 * model(torch.zeros(5, 4)))


def test_hidden_layers_leave_no_hook_behind_also_after_an_exception():
    model = sequential()
    with pytest.raises(RuntimeError), hidden_layers(model, ["0", "1"]):
        assert hooks(model) == 4
        model(torch.zeros(5, 9))
    assert hooks(model) == 0


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.unused = torch.nn.Linear(4, 4), torch.nn.LSTM(4, 4)

    def forward(self, x):
        return self.layer(self.layer(x))


def test_hidden_layers_refuse_what_would_be_ambiguous():
    for model, layers, error, shown in (
        (sequential(), ["3"], ValueError, r"submodules \['0', '1', '2'\], got \['3'\]"),
        (sequential(), [""], ValueError, "got"),
        (sequential(), [], ValueError, "got"),
        (sequential(), "1", ValueError, "got '1'"),
        (sequential(inplace=True), ["0"], RuntimeError, "'0' was changed in place"),
        (Twice(), ["layer"], RuntimeError, "'layer' ran twice .*not one of its methods"),
        (Twice(), ["unused"], RuntimeError, "'unused' did not run"),
        (Checkpointed(True), ["layer.1"], RuntimeError, "'layer.1' .*pass use_reentrant=False"),
        (torch.nn.Sequential(torch.nn.LSTM(4, 3)), ["0"], TypeError, "'0' returned tuple"),
    ):
        with pytest.raises(error, match=shown), hidden_layers(model, layers):
            model(torch.zeros(5, 4, requires_grad=True))
        assert hooks(model) == 0


def test_a_hidden_layer_may_be_named_twice():
    model = sequential()
    with hidden_layers(model, ["1", "1"]) as hidden:
        model(torch.zeros(5, 4))
    assert list(hidden) == ["1"]


class Checkpointed(torch.nn.Module):
    """A network whose hidden layers are recomputed in the backward pass, or kept (with None)."""

    def __init__(self, use_reentrant):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Tanh())
        self.output, self.use_reentrant = torch.nn.Linear(6, 2), use_reentrant

    def forward(self, x):
        if self.use_reentrant is None:
            return self.output(self.layer(x))
        return self.output(checkpoint(self.layer, x, use_reentrant=self.use_reentrant))


def test_hidden_layers_keep_their_gradient_under_activation_checkpointing():
    x, y = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 0, 1])

    def gradient(use_reentrant, layers):
        model = build(Checkpointed, use_reentrant, seed=1)
        with hidden_layers(model, layers) as hidden:
            primary = model(x.clone().requires_grad_()).square().mean()
            composite_loss(primary, hidden, y, alpha=10, temperature=0.5).backward()
        return model.layer[0].weight.grad

    # The function keeps a tensor for the backward pass, which the recomputation must supply again.
    for use_reentrant, layers in (
        (False, ["layer.1"]),
        (False, {"layer.1": torch.square}),
        (True, ["layer"]),
    ):
        assert torch.equal(gradient(use_reentrant, layers), gradient(None, layers))
    model = Checkpointed(True)
    with torch.no_grad(), hidden_layers(model, ["layer.1"]) as hidden:
        model(x)
    assert torch.equal(hidden["layer.1"], model.layer[:2](x))


def test_hidden_layers_of_a_model_compiled_before_say_what_to_do():
    compiled = torch.compile(sequential(), backend="eager")
    compiled(torch.zeros(5, 4))
    problem = r"did not run .*if the model is compiled, its first call must be inside"
    with pytest.raises(RuntimeError, match=problem), hidden_layers(compiled, ["_orig_mod.1"]):
        compiled(torch.zeros(5, 4))
