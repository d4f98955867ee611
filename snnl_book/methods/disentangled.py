"""AE(D), the autoencoder whose hidden layers the soft nearest neighbor loss disentangles.

The text paper uses it for codes that cluster well (Sec. 3.4, Eqs. 7 and 8). Here it is a
scikit-learn estimator: ``fit`` trains it on labelled rows, ``transform`` returns codes of any rows.
"""

from dataclasses import KW_ONLY, dataclass

import numpy as np
import pandas as pd
import torch
from sklearn.utils.multiclass import type_of_target

from snnl_book.methods._saving import Estimator, as_it_was_on_error
from snnl_lib.models import Autoencoder
from snnl_lib.seeds import BATCH_SIZE
from snnl_lib.training import binary_cross_entropy, build, forward, train

UNLABELLED = -1


@dataclass(eq=False, repr=False)
class DisentangledAutoencoder(Estimator):
    """An autoencoder trained on reconstruction (Eq. 3) plus alpha times Eq. 4 of its hidden layers.

    The defaults are those of our runs of the text paper's AE(D). After ``fit``: ``curve`` has a row
    for each epoch (``training.train``), ``diverged`` is the reason for an early stop, or an empty
    text, and ``n_features_in_`` is D. ``fit`` checks the parameters and raises ValueError.

    Each feature is scaled to [0, 1], which Eq. 3 needs, by its smallest and largest value in the
    fitted rows. Values of other rows are clipped. The labels None and NaN mean "no label": such
    rows are reconstructed, and Eq. 4 ignores them.

    Args:
        alpha: the weight of Eq. 4. Above 0 it separates the classes; 0 is a plain autoencoder.
        temperature: T of Eq. 4, a number above 0, or ``annealed`` (Eq. 6).
        epochs: passes over the rows.
        code_size: c, units of the code, which lie in (0, 1).
        hidden_sizes: units of the layers on the way to the code, and reversed on the way back.
        learning_rate: of Adam.
        batch_size: rows in a batch; Eq. 4 looks for neighbours within it.
        layers: the layers that Eq. 4 is applied to: ``sum`` (all), ``min`` (the least entangled
            one) or a list of names (``Autoencoder``), such as ``["code"]``.
        seed: determines the initial weights and the order of the rows.
        device: as torch names it.
        progress: the name of a progress bar, None for none.

    >>> x = np.repeat(np.eye(4), 20, axis=0)
    >>> y = np.repeat(["even", "odd", "even", None], 20)
    >>> model = DisentangledAutoencoder(epochs=3, seed=42)
    >>> model.fit(x, y).transform(x).shape
    (80, 128)
    """

    alpha: float = 100.0
    temperature: float | str = "annealed"
    _: KW_ONLY
    epochs: int = 30
    code_size: int = 128
    hidden_sizes: tuple = (500, 500, 2000)
    learning_rate: float = 1e-3
    batch_size: int = BATCH_SIZE
    layers: str | list = "sum"
    seed: int = 0
    device: str = "cpu"
    progress: str | None = None

    @as_it_was_on_error
    def fit(self, X, y):
        """Train on X [N, D] and labels y [N], whole numbers or strings. Returns self.

        Raises ValueError for an X that is empty or not finite, for a y that is not labels, and for
        parameters out of range.
        """
        missing = pd.isna(np.asarray(y))
        if np.ndim(missing) == 1 and missing.any():
            y = np.array([None if pd.isna(label) else label for label in y], dtype=object)
        X, y = self._validated(X, reset=True, dtype=None, y=y)
        labels = self._numbered(y)
        self._low, high = X.min(axis=0), X.max(axis=0)
        self._width = np.where(high > self._low, high - self._low, 1)
        scaled = self._scaled(X)
        hidden = self.hidden_sizes
        sizes = X.shape[1], tuple(hidden) if np.iterable(hidden) else hidden, self.code_size
        names = "epochs seed alpha temperature learning_rate batch_size device progress".split()
        settings = {name: getattr(self, name) for name in names}
        settings["ignore_index"] = UNLABELLED if (labels == UNLABELLED).any() else None
        settings["layers"] = self.layers if isinstance(self.layers, str) else [*self.layers]
        network = build(Autoencoder, *sizes, seed=self.seed)
        history = train(network, scaled, labels, binary_cross_entropy, **settings)
        self.autoencoder = network
        self.curve = history.curve
        self.diverged = history.diverged
        return self

    def transform(self, X):
        """Return the codes of X [N, D], as float32 array [N, c].

        Raises ValueError for an X that is empty, not finite or of another width, NotFittedError
        before ``fit``.
        """
        scaled = self._scaled(self._validated(X, dtype=None))
        return forward(self.autoencoder, scaled, layer="code")

    def _numbered(self, y):
        """Return labels as int64 array [N], with ``UNLABELLED`` for rows without a label."""
        labelled = np.array([label is not None for label in y])
        label_type = type_of_target(y[labelled].tolist()) if labelled.any() else "none"
        if label_type not in ("binary", "multiclass"):
            value = f"{label_type} labels" if labelled.any() else "no labels"
            raise ValueError(f"y must be labels [N], whole numbers or strings, got {value}")
        numbers = np.full(len(y), UNLABELLED)
        numbers[labelled] = np.unique(y[labelled].tolist(), return_inverse=True)[1]
        return numbers

    def _scaled(self, X):
        return np.clip((X - self._low) / self._width, 0, 1).astype(np.float32)

    def _saved_parts(self):
        network = self.autoencoder
        down = [layer.out_features for layer in network.encoder]
        sizes = [self.n_features_in_, down, network.code.out_features]
        scaling = {"low": self._low, "width": self._width}
        return network.state_dict() | scaling, {"sizes": sizes}

    def _load_parts(self, tensors, facts, folder):
        self._low, self._width = (tensors.pop(name).cpu().numpy() for name in ("low", "width"))
        self.autoencoder = Autoencoder(*facts["sizes"]).to(torch.device(self.device)).eval()
        self.autoencoder.load_state_dict(tensors)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "autoencoder")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
