"""The networks of the text paper (Secs. 2.1 and 2.3). Each returns (output, hidden): hidden maps layer name to tensor.

Hidden layers: Kaiming normal weights (He et al., 2015) and ReLU; output layers: Xavier uniform (Glorot and Bengio, 2010);
biases zero. The papers name the initialisers but not whether they are normal or uniform; these are their authors' own forms.
"""

from itertools import pairwise

import torch
from torch import nn


def _linear(in_features, out_features, *, output=False):
    layer = nn.Linear(in_features, out_features)
    if output:
        nn.init.xavier_uniform_(layer.weight)
    else:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    nn.init.zeros_(layer.bias)
    return layer


def _check_sizes(**sizes):
    for name, size in sizes.items():
        for value in size if isinstance(size, (tuple, list)) else (size,):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be whole numbers above 0, got {size!r}")


class FeedForwardNet(nn.Module):
    """A classifier of fully connected ReLU layers (Eq. 1, Sec. 2.1): 500-500 on spaCy vectors, one layer of 500 on InferSent.

    ``forward(x)`` takes [B, in_features] and returns the class logits [B, classes] (the softmax of the paper is inside the
    cross entropy of Eq. 2) and ``{"hidden1": [B, hidden_sizes[0]], ...}``, values after the ReLU.

    >>> logits, hidden = FeedForwardNet(300, 4)(torch.zeros(2, 300))
    >>> logits.shape, list(hidden)
    (torch.Size([2, 4]), ['hidden1', 'hidden2'])
    """

    def __init__(self, in_features, classes, hidden_sizes=(500, 500)):
        super().__init__()
        _check_sizes(in_features=in_features, classes=classes, hidden_sizes=hidden_sizes)
        sizes = [in_features, *hidden_sizes]
        self.hidden = nn.ModuleList(_linear(a, b) for a, b in pairwise(sizes))
        self.output = _linear(sizes[-1], classes, output=True)

    def forward(self, x):
        hidden = {}
        for i, layer in enumerate(self.hidden, start=1):
            x = hidden[f"hidden{i}"] = torch.relu(layer(x))
        return self.output(x), hidden


class Autoencoder(nn.Module):
    """The autoencoder d-500-500-2000-128-2000-500-500-d of Sec. 2.3.

    ``forward(x)`` takes [B, in_features] and returns the reconstruction's logits [B, in_features] (their logistic function is
    the reconstruction; the binary cross entropy of Eq. 3 takes the logits) and the hidden layers ``encoder1..3`` and
    ``decoder1..3`` (after the ReLU) and ``code`` [B, code_size] (after the logistic function, in (0, 1)).
    """

    def __init__(self, in_features, hidden_sizes=(500, 500, 2000), code_size=128):
        super().__init__()
        _check_sizes(in_features=in_features, hidden_sizes=hidden_sizes, code_size=code_size)
        down, up = [in_features, *hidden_sizes], [code_size, *reversed(hidden_sizes)]
        self.encoder = nn.ModuleList(_linear(a, b) for a, b in pairwise(down))
        self.code = _linear(down[-1], code_size, output=True)
        self.decoder = nn.ModuleList(_linear(a, b) for a, b in pairwise(up))
        self.output = _linear(up[-1], in_features, output=True)

    def forward(self, x):
        hidden = {}
        for i, layer in enumerate(self.encoder, start=1):
            x = hidden[f"encoder{i}"] = torch.relu(layer(x))
        x = hidden["code"] = torch.sigmoid(self.code(x))
        for i, layer in enumerate(self.decoder, start=1):
            x = hidden[f"decoder{i}"] = torch.relu(layer(x))
        return self.output(x), hidden
