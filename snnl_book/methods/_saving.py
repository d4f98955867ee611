"""What all estimators here share: scikit-learn's parameters, and folders in which they are kept.

A folder holds numbers as safetensors and all else as JSON, and nothing that runs when it is read.
"""

import json
import os
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from snnl_book import full_disk_told, require, told_as
from snnl_book.cache import key
from snnl_book.recipes import Recipe
from snnl_lib import SnnlError, __version__

FACTS, TENSORS = "snnl_model.json", "model.safetensors"
KEPT = ("n_features_in_", "feature_names_in_", "labels_", "diverged")
"""What of a fitted estimator is kept as it is, where there is such a thing."""


def check_place(folder) -> Path:
    """Return a folder's full path; raise SnnlError if it holds what ``save`` must not replace, or
    cannot be written.
    """
    folder = Path(folder).resolve()
    theirs = folder.exists() and not (folder / FACTS).is_file()
    if theirs and (not folder.is_dir() or any(folder.iterdir())):
        advice = "name another folder, or remove it"
        raise SnnlError(f"{folder} is there, and is no model saved before: {advice}")
    with full_disk_told(folder):
        tempfile.TemporaryFile(dir=next(p for p in folder.parents if p.exists())).close()
    return folder


@contextmanager
def as_it_was_on_error(estimator):
    """Leave an estimator as it was, fitted or not, where the block raises an error."""
    before = dict(vars(estimator))
    try:
        yield
    except Exception:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


class Estimator(TransformerMixin, BaseEstimator):
    """What can be saved and loaded.

    A subclass says what of it is kept (``_saved_parts``), and takes it back (``_load_parts``).
    """

    def save(self, folder) -> None:
        """Keep what was fitted in a ``folder``, for ``load``: parameters and weights, no pickle.

        It is there as a whole or not at all, and takes the place of a model saved there before.
        Losses and embeddings of the training are not kept. Raises NotFittedError before ``fit``,
        SnnlError for a folder that holds anything else or cannot be written.
        """
        require("safetensors")
        from safetensors.torch import save_file

        self._check_fitted()
        folder = check_place(folder)
        tensors, facts = self._saved_parts()
        tensors = {name: torch.as_tensor(value).detach().cpu() for name, value in tensors.items()}
        tensors = {name: value.contiguous() for name, value in tensors.items()}
        facts = {"class": type(self).__name__, "snnl_lib": __version__} | facts
        facts["parameters"] = self.get_params(deep=False)
        facts["kept"] = {name: vars(self)[name] for name in KEPT if name in vars(self)}
        with full_disk_told(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as place:
                new = Path(place) / "new"
                new.mkdir()
                save_file(tensors, new / TENSORS)
                (new / FACTS).write_text(json.dumps(facts, default=_plain, indent=1))
                self._save_further(new)
                if folder.exists():
                    os.replace(folder, Path(place) / "old")
                os.replace(new, folder)

    @classmethod
    def load(cls, folder, device="cpu"):
        """Return the estimator that ``save`` has kept in a ``folder``, on a ``device``.

        It predicts and transforms as before. Raises SnnlError for a folder that holds no such
        model, one of another class, or one that is damaged.
        """
        require("safetensors")
        from safetensors.torch import load_file

        folder, name = Path(folder).resolve(), cls.__name__
        if not (folder / FACTS).is_file():
            raise SnnlError(f"{folder} holds no {name}: name a folder that {name}.save has written")
        with told_as(SnnlError, f"{folder / FACTS} is damaged", "save the model again"):
            facts = json.loads((folder / FACTS).read_text())
            kind, parameters, kept = facts["class"], facts["parameters"], facts["kept"]
        if kind != name:
            raise SnnlError(f"{folder} holds a {kind}, no {name}: load it with {kind}.load")
        with told_as(SnnlError, f"the {name} in {folder} is damaged", "save it again", why=repr):
            model = cls(**{key: _own(value) for key, value in parameters.items()})
            model.device = device
            for key, value in kept.items():
                setattr(model, key, np.array(value) if isinstance(value, list) else value)
            model._load_parts(load_file(folder / TENSORS, device=str(device)), facts, folder)
        return model

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _save_further(self, folder):
        """Keep in the folder what neither tensors nor JSON can hold."""

    def _training(self, **data):
        """Name the training that a checkpoint is of, by the parameters and what else settles it."""
        passing = ("device", "progress", "checkpoint")
        own = {
            name: own for name, own in self.get_params(deep=False).items() if name not in passing
        }
        own = json.dumps(own, default=_plain, sort_keys=True)
        return key(data | {"class": type(self).__name__, "parameters": own})

    def _check_fitted(self):
        advice = "call fit first, or load a saved one"
        check_is_fitted(self, msg=f"this %(name)s is not fitted: {advice}")

    def _validated(self, X, reset=False, **labels):
        """Return X as a float32 array [N, D] of finite numbers, of the fitted width.

        With ``y`` among the ``labels`` both are returned. Raises ValueError in one sentence.
        """
        if not reset:
            self._check_fitted()
        try:
            found = validate_data(self, X, reset=reset, **labels)
        except ValueError as error:
            reason = str(error).split("\n")[0].rstrip(".:")
            wanted = "X must be finite numbers [N, D]" + (", and y labels [N]" if labels else "")
            raise ValueError(f"{reason}: {wanted}") from None
        X, *y = found if labels else [found]
        X = X.astype(np.float32, copy=False)
        return (X, *y) if labels else X


def _plain(value):
    """Return what JSON can hold in place of a value that it cannot."""
    if is_dataclass(value):
        return asdict(value)
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def _own(value):
    """Undo what JSON makes of a parameter."""
    if isinstance(value, dict):
        return Recipe(**value)
    return tuple(value) if isinstance(value, list) else value
