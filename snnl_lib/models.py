"""The networks of the text paper (Secs. 2.1-2.3).

Each returns (output, hidden): hidden is a dictionary from the name of a layer to its tensor. Hidden
layers have Kaiming normal weights (He et al., 2015) and ReLU, output layers Xavier uniform weights
(Glorot and Bengio, 2010); biases start at zero. The papers name the initialisers but not whether
they are normal or uniform; these are their authors' own forms.
"""

from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from numbers import Integral

import torch
from torch import nn


def _as_hidden(layer):
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer


def _hidden_layers(sizes):
    return nn.ModuleList(_as_hidden(nn.Linear(a, b)) for a, b in pairwise(sizes))


def output_layer(in_features, out_features):
    """Return a linear layer with the weights of an output layer."""
    layer = nn.Linear(in_features, out_features)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _run(layers, x, name, before_relu):
    """Run x through ReLU layers; returns the last value, and each one's by name and number."""
    hidden = {}
    for i, layer in enumerate(layers, start=1):
        z = layer(x)
        x = torch.relu(z)
        hidden[f"{name}{i}"] = z if before_relu else x
    return x, hidden


def _check_sizes(**sizes):
    for name, size in sizes.items():
        for value in size if isinstance(size, (tuple, list)) else (size,):
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be whole numbers above 0, got {size!r}")


class FeedForwardNet(nn.Module):
    """A classifier of fully connected ReLU layers (Eq. 1, Sec. 2.1).

    The paper has two of 500 units on spaCy vectors and one of 500 on InferSent. ``forward(x)``
    takes [B, in_features] and returns the class logits [B, classes] (the softmax of the paper is
    inside the cross entropy of Eq. 2) and ``{"hidden1": [B, hidden_sizes[0]], ...}``, values after
    the ReLU. ``before_relu=True`` hands out the values before it instead. Raises ValueError for a
    size that is not a whole number above 0.

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
        x, hidden = _run(self.hidden, x, "hidden", self.before_relu)
        return self.output(x), hidden


_DENSE = 2048, 1024, 512  # units after the convolution


class ConvNet(nn.Module):
    """A classifier with one 1-D convolution over the features of an embedding (Sec. 2.2).

    Layers of ``hidden_sizes`` units follow, 2048, 1024 and 512 in the paper, which gives neither
    filters, kernel, stride nor pooling. Here ``filters`` x ``positions`` = 2,048 values leave the
    convolution whatever the number of features: the stride is in_features // positions and the
    kernel just long enough to end at the last feature (4 and 48 for 300 features, 64 and 64 for
    4,096). With a ``kernel`` the stride is 1, the convolution is padded to the input's length, and
    max pooling brings it down to ``positions``.

    ``forward(x)`` takes [B, in_features], in_features >= positions, and returns the class logits
    [B, classes] and the hidden layers ``conv`` [B, filters * positions], ``hidden1`` [B, 2048],
    ``hidden2`` [B, 1024], ``hidden3`` [B, 512], after the ReLU. Raises ValueError for a size that
    is not a whole number above 0, for in_features < positions, and for an input of another width.

    >>> logits, hidden = ConvNet(300, 4)(torch.zeros(2, 300))
    >>> {name: layer.shape[1] for name, layer in hidden.items()}
    {'conv': 2048, 'hidden1': 2048, 'hidden2': 1024, 'hidden3': 512}
    """

    def __init__(
        self, in_features, classes, hidden_sizes=_DENSE, *, filters=32, positions=64, kernel=None
    ):
        super().__init__()
        _check_sizes(in_features=in_features, filters=filters, positions=positions)
        _check_sizes(kernel=1 if kernel is None else kernel)
        if in_features < positions:
            wanted = f"at least positions = {positions}"
            raise ValueError(f"in_features must be {wanted}, got {in_features}")
        self.in_features, stride, padding, width = in_features, 1, "same", kernel
        if kernel is None:
            stride, padding = in_features // positions, 0
            width = in_features - (positions - 1) * stride
        self.conv = _as_hidden(nn.Conv1d(1, filters, width, stride, padding))
        self.pool = nn.Identity() if kernel is None else nn.AdaptiveMaxPool1d(positions)
        self.dense = FeedForwardNet(filters * positions, classes, hidden_sizes)

    def forward(self, x):
        # A convolution takes any width, and would pass over the rest.
        if x.shape[1] != self.in_features:
            raise ValueError(f"features must be [B, {self.in_features}], got {tuple(x.shape)}")
        x = self.pool(torch.relu(self.conv(x[:, None]))).flatten(1)
        logits, hidden = self.dense(x)
        return logits, {"conv": x} | hidden


class Autoencoder(nn.Module):
    """The autoencoder d-500-500-2000-128-2000-500-500-d of Sec. 2.3.

    ``hidden_sizes`` are those on the way to the code of ``code_size`` units, and reversed on the
    way back. ``forward(x)`` takes [B, in_features] and returns the reconstruction's logits
    [B, in_features] (their logistic function is the reconstruction; the binary cross entropy of
    Eq. 3 takes the logits) and the hidden layers ``encoder1..3`` and ``decoder1..3`` (after the
    ReLU) and ``code`` [B, code_size] (after the logistic function, in (0, 1)).

    ``linear_code=True`` leaves the code as it is before that function; ``before_nonlinearity=True``
    hands out all hidden layers before theirs. Raises ValueError for a size that is not a whole
    number above 0.

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
        self.linear_code, self.before_nonlinearity = linear_code, before_nonlinearity
        _check_sizes(in_features=in_features, hidden_sizes=hidden_sizes, code_size=code_size)
        down, up = [in_features, *hidden_sizes], [code_size, *reversed(hidden_sizes)]
        self.encoder, self.code = _hidden_layers(down), output_layer(down[-1], code_size)
        self.decoder, self.output = _hidden_layers(up), output_layer(up[-1], in_features)

    def encode(self, x):
        """Return the code [B, code_size] of x [B, in_features], and the hidden layers up to it."""
        x, hidden = _run(self.encoder, x, "encoder", self.before_nonlinearity)
        z = self.code(x)
        code = z if self.linear_code else torch.sigmoid(z)
        return code, hidden | {"code": z if self.before_nonlinearity else code}

    def decode(self, code):
        """Return the logits [B, in_features] of a code [B, code_size], and the hidden layers."""
        x, hidden = _run(self.decoder, code, "decoder", self.before_nonlinearity)
        return self.output(x), hidden

    def forward(self, x):
        code, encoded = self.encode(x)
        output, decoded = self.decode(code)
        return output, encoded | decoded


def _version(value):
    return None if value.is_inference() else value._version


@contextmanager
def hidden_layers(model, layers):
    """Collect hidden layers of any torch module while it runs, for ``losses.composite_loss``.

    Args:
        model: a torch module; its forward passes are left as they are.
        layers: names of its submodules, as in ``model.named_modules()``; or a dict from such a name
            to a function that takes what the submodule returned and picks the tensor [B, ...] out
            of it.

    Yields a dict from layer name to tensor, filled afresh by each call of the model. The hooks are
    gone when the block is left, also by an exception. Raises ValueError for a name the model does
    not have, TypeError where a layer does not return a tensor, and RuntimeError where a layer ran
    twice or not at all in a call, or was changed in place after it ran.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> with hidden_layers(model, ["1"]) as hidden:
    ...     output = model(torch.zeros(5, 4))
    >>> hidden["1"].shape
    torch.Size([5, 3])
    """
    modules = dict(model.named_modules())
    unknown = [name for name in layers if not name or name not in modules]
    if isinstance(layers, str) or unknown or not layers:
        names = [name for name in modules if name]
        raise ValueError(f"layers must name submodules out of {names}, got {layers!r}")
    hidden, versions = {}, {}

    def keep(name, module, inputs, result):
        value = layers[name](result) if isinstance(layers, dict) else result
        if not isinstance(value, torch.Tensor):
            advice = f"give layers={{{name!r}: a function that picks the tensor}}"
            kind = type(value).__name__
            raise TypeError(f"layer {name!r} returned {kind}, not a tensor: {advice}")
        if name in hidden:
            problem = "ran twice in one call of the model: which of its values is meant?"
            raise RuntimeError(f"layer {name!r} {problem}")
        hidden[name], versions[name] = value, _version(value)

    def check(*_):
        for name in layers:
            if name not in hidden:
                raise RuntimeError(f"layer {name!r} did not run in this call of the model")
            if _version(hidden[name]) != versions[name]:
                problem = "was changed in place after it ran, as by nn.ReLU(inplace=True)"
                raise RuntimeError(f"layer {name!r} {problem}: name the layer that did it instead")

    with ExitStack() as hooks:
        for name in layers:
            hooks.enter_context(modules[name].register_forward_hook(partial(keep, name)))
        hooks.enter_context(model.register_forward_pre_hook(lambda *_: hidden.clear()))
        hooks.enter_context(model.register_forward_hook(check))
        yield hidden
