"""The networks of the text paper (Agarap, 2021, Secs. 2.1-2.3).

Each network returns (output, hidden), where ``hidden`` is a dict from the name of each hidden layer
to its tensor. Layers with a ReLU start from Kaiming normal weights (He et al., 2015). Output layers
and the code layer of the autoencoder start from Xavier uniform weights (Glorot and Bengio, 2010).
All biases start at zero. The paper names these initialisers, but does not say whether they are
normal or uniform; we use the forms that their inventors proposed.
"""

from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from numbers import Integral

import torch
from torch import nn


def _hidden_layer(layer):
    """Initialise a layer that has a ReLU, and return it."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer


def _hidden_layers(sizes):
    return nn.ModuleList(_hidden_layer(nn.Linear(a, b)) for a, b in pairwise(sizes))


def output_layer(in_features, out_features):
    """Return a linear layer with Xavier uniform weights and a bias of zero."""
    layer = nn.Linear(in_features, out_features)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _run_hidden_layers(layers, x, name, before_relu):
    """Apply linear layers, each with a ReLU, to x.

    Returns the last value, and a dict of the values of all layers, before or after their ReLU.
    """
    hidden = {}
    for number, layer in enumerate(layers, start=1):
        linear = layer(x)
        x = torch.relu(linear)
        hidden[f"{name}{number}"] = linear if before_relu else x
    return x, hidden


def _check_sizes(**sizes):
    for name, size in sizes.items():
        several = name == "hidden_sizes"
        values = size if several else [size]
        if not isinstance(values, (tuple, list)) or not all(map(_is_size, values)):
            expected = "a list of whole numbers" if several else "a whole number"
            raise ValueError(f"{name} must be {expected} above 0, got {size!r}")


def _is_size(value):
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= 1


class FeedForwardNet(nn.Module):
    """A classifier made of fully connected layers with ReLUs (Eq. 1, Sec. 2.1).

    The paper uses two hidden layers of 500 units for averaged spaCy word vectors, and one such
    layer for InferSent sentence vectors. ``hidden_sizes`` lists the number of units in each hidden
    layer.

    ``forward(x)`` takes a tensor [B, in_features]. It returns the logits [B, classes] and the
    hidden layers ``{"hidden1": [B, hidden_sizes[0]], ...}``. Their values are taken after the ReLU,
    or before it with ``before_relu=True``. The paper's softmax is part of
    ``training.cross_entropy`` (Eq. 2). Raises ValueError if a size is not a whole number above 0.

    >>> logits, hidden = FeedForwardNet(300, 4)(torch.zeros(2, 300))
    >>> logits.shape, list(hidden)
    (torch.Size([2, 4]), ['hidden1', 'hidden2'])
    """

    def __init__(self, in_features, classes, hidden_sizes=(500, 500), *, before_relu=False):
        super().__init__()
        _check_sizes(in_features=in_features, classes=classes, hidden_sizes=hidden_sizes)
        self.before_relu = before_relu
        sizes = [in_features, *hidden_sizes]
        self.hidden = _hidden_layers(sizes)
        self.output = output_layer(sizes[-1], classes)

    def forward(self, x):
        x, hidden = _run_hidden_layers(self.hidden, x, "hidden", self.before_relu)
        return self.output(x), hidden


_DENSE_SIZES = (2048, 1024, 512)  # units of the layers after the convolution


class ConvNet(nn.Module):
    """A classifier with one 1-D convolution over the features of an embedding (Sec. 2.2).

    Fully connected layers of ``hidden_sizes`` units follow; the default sizes are the paper's.

    The paper does not give the number of filters, the kernel size, the stride or the pooling. Here,
    the convolution returns ``filters`` x ``positions`` values (2,048 by default) for any number of
    features. Its stride is in_features // positions, and its kernel is just long enough for the
    last position to reach the last feature. The stride is 4 and the kernel size 48 for 300
    features; both are 64 for 4,096. If you set ``kernel``, it is the kernel size and the stride is
    1. The input is then padded so that the output has the same length, and max pooling reduces the
    output to ``positions`` values per filter.

    ``forward(x)`` takes a tensor [B, in_features] with in_features >= positions. It returns the
    logits [B, classes] and the hidden layers after the ReLU: ``conv`` [B, filters * positions],
    ``hidden1`` [B, hidden_sizes[0]], and so on. Raises ValueError if a size is not a whole number
    above 0, if in_features < positions, or if x does not have in_features columns.

    >>> logits, hidden = ConvNet(300, 4)(torch.zeros(2, 300))
    >>> {name: layer.shape[1] for name, layer in hidden.items()}
    {'conv': 2048, 'hidden1': 2048, 'hidden2': 1024, 'hidden3': 512}
    """

    def __init__(
        self,
        in_features,
        classes,
        hidden_sizes=_DENSE_SIZES,
        *,
        filters=32,
        positions=64,
        kernel=None,
    ):
        super().__init__()
        _check_sizes(in_features=in_features, filters=filters, positions=positions)
        _check_sizes(kernel=1 if kernel is None else kernel)
        if in_features < positions:
            expected = f"at least positions = {positions}"
            raise ValueError(f"in_features must be {expected}, got {in_features}")
        self.in_features = in_features
        if kernel is None:
            stride = in_features // positions
            width = in_features - (positions - 1) * stride
            convolution = nn.Conv1d(1, filters, width, stride)
            self.pool = nn.Identity()
        else:
            convolution = nn.Conv1d(1, filters, kernel, padding="same")
            self.pool = nn.AdaptiveMaxPool1d(positions)
        self.conv = _hidden_layer(convolution)
        self.dense = FeedForwardNet(filters * positions, classes, hidden_sizes)

    def forward(self, x):
        # A convolution takes any width, and would ignore the features it does not reach.
        if x.shape[1] != self.in_features:
            raise ValueError(f"features must be [B, {self.in_features}], got {tuple(x.shape)}")
        x = self.pool(torch.relu(self.conv(x[:, None]))).flatten(1)
        logits, hidden = self.dense(x)
        return logits, {"conv": x} | hidden


class Autoencoder(nn.Module):
    """The autoencoder of Sec. 2.3: d-500-500-2000-128-2000-500-500-d units; d is ``in_features``.

    ``hidden_sizes`` lists the number of units in each hidden layer of the encoder; the decoder has
    the same sizes in reverse order. The code, between encoder and decoder, has ``code_size`` units.

    ``forward(x)`` takes a tensor [B, in_features]. It returns the logits [B, in_features] of the
    reconstruction, and the hidden layers. The reconstruction is the logistic function of the
    logits; ``training.binary_cross_entropy`` (Eq. 3) applies this function itself. The hidden
    layers are ``encoder1`` to ``encoder3`` and ``decoder1`` to ``decoder3`` after the ReLU, and
    ``code`` [B, code_size] after the logistic function, in (0, 1).

    With ``linear_code=True``, no logistic function is applied to the code. With
    ``before_nonlinearity=True``, the hidden layers are returned before their ReLU or logistic
    function. Raises ValueError if a size is not a whole number above 0.

    >>> output, hidden = Autoencoder(300)(torch.zeros(2, 300))
    >>> output.shape, hidden["code"].shape, list(hidden)[:4]
    (torch.Size([2, 300]), torch.Size([2, 128]), ['encoder1', 'encoder2', 'encoder3', 'code'])
    """

    def __init__(
        self,
        in_features,
        hidden_sizes=(500, 500, 2000),
        code_size=128,
        *,
        linear_code=False,
        before_nonlinearity=False,
    ):
        super().__init__()
        _check_sizes(in_features=in_features, hidden_sizes=hidden_sizes, code_size=code_size)
        self.linear_code = linear_code
        self.before_nonlinearity = before_nonlinearity
        encoder_sizes = [in_features, *hidden_sizes]
        decoder_sizes = [code_size, *reversed(hidden_sizes)]
        self.encoder = _hidden_layers(encoder_sizes)
        self.code = output_layer(encoder_sizes[-1], code_size)
        self.decoder = _hidden_layers(decoder_sizes)
        self.output = output_layer(decoder_sizes[-1], in_features)

    def encode(self, x):
        """Return the code [B, code_size] of x [B, in_features], and all hidden layers up to the
        code."""
        x, hidden = _run_hidden_layers(self.encoder, x, "encoder", self.before_nonlinearity)
        linear = self.code(x)
        code = linear if self.linear_code else torch.sigmoid(linear)
        hidden["code"] = linear if self.before_nonlinearity else code
        return code, hidden

    def decode(self, code):
        """Return the logits of the reconstruction, and the hidden layers of the decoder.

        ``code`` is [B, code_size], and the logits are [B, in_features].
        """
        x, hidden = _run_hidden_layers(self.decoder, code, "decoder", self.before_nonlinearity)
        return self.output(x), hidden

    def forward(self, x):
        code, encoded = self.encode(x)
        output, decoded = self.decode(code)
        return output, encoded | decoded


def _version(value):
    """Return torch's count of the in-place changes to a tensor, or None if there is no count."""
    return None if value.is_inference() else value._version


def _check_layer(name, hidden, states):
    """Raise RuntimeError if a layer did not run, was changed in place, or lacks a gradient.

    ``states`` maps each layer to its version, and to whether it was computed with gradients.
    """
    if name not in hidden:
        problem = "did not run in this call of the model"
        advice = "if the model is compiled, its first call must be inside the `with` block"
        raise RuntimeError(f"layer {name!r} {problem}: {advice}")
    version, had_gradients = states[name]
    if _version(hidden[name]) != version:
        problem = "was changed in place after it ran, for example by nn.ReLU(inplace=True)"
        raise RuntimeError(f"layer {name!r} {problem}: name the layer that changed it")
    # Re-entrant checkpointing attaches a gradient to its output afterwards.
    if torch.is_grad_enabled() and not (had_gradients or hidden[name].requires_grad):
        problem = "was computed without gradients, for example by re-entrant checkpointing"
        advice = "pass use_reentrant=False, or call the model under torch.no_grad()"
        raise RuntimeError(f"layer {name!r} {problem}: {advice}")


@contextmanager
def hidden_layers(model, layers):
    """Collect the hidden layers of any torch module while it runs, for ``losses.composite_loss``.

    Args:
        model: a torch module; its output does not change.
        layers: list of names of its submodules, as in ``model.named_modules()``; or a dict from
            such names to functions that take the result of the submodule and return a tensor
            [B, ...].

    Yields a dict from layer name to tensor. Each call of the model fills the dict again. Call the
    model itself, as in ``model(x)``, not one of its methods. All hooks (callbacks) are removed at
    the end of the ``with`` block, even after an exception.

    Raises:
        ValueError: ``layers`` is empty, or names a submodule that the model does not have.
        TypeError: a layer does not return a tensor.
        RuntimeError: a layer runs twice or not at all in one call of the model, its output is
            changed in place afterwards, or it has no gradient although gradients are enabled.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> with hidden_layers(model, ["1"]) as hidden:
    ...     output = model(torch.zeros(5, 4))
    >>> hidden["1"].shape
    torch.Size([5, 3])
    """
    layers = layers if isinstance(layers, dict | str) else list(layers)
    modules = dict(model.named_modules())
    submodules = [name for name in modules if name]  # the model itself has an empty name
    known = not isinstance(layers, str) and all(name in submodules for name in layers)
    if not known or not layers:
        raise ValueError(f"layers must name some of the submodules {submodules}, got {layers!r}")
    hidden, states = {}, {}
    called = False

    def start(*_):
        nonlocal called
        called = False
        hidden.clear()

    def keep(name, module, inputs, result):
        value = layers[name](result) if isinstance(layers, dict) else result
        if not isinstance(value, torch.Tensor):
            advice = f"pass layers={{{name!r}: a function that returns the tensor}}"
            problem = f"returned {type(value).__name__}, not a tensor"
            raise TypeError(f"layer {name!r} {problem}: {advice}")
        if called:  # activation checkpointing runs layers again in the backward pass
            return
        if name in hidden:
            problem = "ran twice in one call of the model, so its value is ambiguous"
            advice = "name a layer that runs once, or call the model itself, not one of its methods"
            raise RuntimeError(f"layer {name!r} {problem}: {advice}")
        hidden[name] = value
        states[name] = _version(value), torch.is_grad_enabled()

    def check(*_):
        nonlocal called
        called = True
        for name in layers:
            _check_layer(name, hidden, states)

    with ExitStack() as hooks:
        for name in dict.fromkeys(layers):
            hooks.enter_context(modules[name].register_forward_hook(partial(keep, name)))
        hooks.enter_context(model.register_forward_pre_hook(start))
        hooks.enter_context(model.register_forward_hook(check))
        yield hidden
