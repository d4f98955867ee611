"""The base of all estimators here: scikit-learn's parameters, saving and loading.

A model is saved as a folder with numbers in safetensors and everything else in JSON. Nothing in it
runs when it is loaded.
"""

import json
import os
import tempfile
import warnings
from dataclasses import asdict, is_dataclass
from functools import wraps
from pathlib import Path

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from snnl_book import require
from snnl_book.cache import key
from snnl_book.recipes import Recipe
from snnl_lib import SnnlError, __version__

FACTS = "snnl_model.json"
TENSORS = "model.safetensors"
KEPT = ("n_features_in_", "feature_names_in_", "labels_", "diverged")
"""Attributes of a fitted estimator that are saved in JSON as they are, if it has them."""


def check_place(folder) -> Path:
    """Return a folder's full path.

    Raises SnnlError if the folder holds anything but a saved model, and OSError if it cannot be
    written.
    """
    folder = Path(folder).resolve()
    is_saved_model = (folder / FACTS).is_file()
    is_empty_folder = folder.is_dir() and not any(folder.iterdir())
    if folder.exists() and not is_saved_model and not is_empty_folder:
        advice = "name another folder, or remove this one"
        raise SnnlError(f"{folder} exists and is not a saved model: {advice}")
    existing_parent = next(parent for parent in folder.parents if parent.exists())
    tempfile.TemporaryFile(dir=existing_parent).close()  # raises OSError if that is forbidden
    return folder


def saved_class(folder) -> str:
    """Return the name of the class whose model was saved in a folder.

    Raises SnnlError if the folder holds no model, or a damaged one.
    """
    return _facts(folder)["class"]


def _facts(folder):
    """Return what is saved in JSON of a model, its class included. Raises as ``saved_class``."""
    path = Path(folder).resolve() / FACTS
    if not path.is_file():
        raise SnnlError(f"{path.parent} holds no model: name a folder to which one was saved")
    try:
        facts = json.loads(path.read_text())
        facts["class"]  # raises KeyError or TypeError in a file that save did not write
    except (ValueError, KeyError, TypeError) as error:
        raise SnnlError(f"{path} is damaged ({error!r}): save the model again") from error
    return facts


def as_it_was_on_error(fit):
    """Wrap a ``fit`` so that the estimator keeps its attributes if it fails or is interrupted.

    A training that broke down (``diverged``) causes a warning.
    """

    @wraps(fit)
    def fit_or_restore(estimator, *args, **options):
        before = dict(vars(estimator))
        try:
            fit(estimator, *args, **options)
        except BaseException:
            vars(estimator).clear()
            vars(estimator).update(before)
            raise
        if diverged := vars(estimator).get("diverged"):
            sentence = f"the training broke down ({diverged}), so the result means nothing"
            warnings.warn(sentence, stacklevel=2)
        return estimator

    return fit_or_restore


class Estimator(TransformerMixin, BaseEstimator):
    """An estimator with ``save`` and ``load``.

    A subclass returns its tensors and facts in ``_saved_parts`` and restores them in
    ``_load_parts``.
    """

    def save(self, folder) -> None:
        """Save parameters and weights in a ``folder``, for ``load``; no pickle is used.

        The folder is written completely or not at all, and replaces a model saved there before.
        Losses and embeddings of the training are not saved. Raises NotFittedError before ``fit``,
        SnnlError for a folder that holds anything but a saved model, and OSError for one that
        cannot be written.
        """
        require("safetensors")
        from safetensors.torch import save

        self._check_fitted()
        folder = check_place(folder)
        tensors, facts = self._saved_parts()
        tensors = {name: torch.as_tensor(value).detach().cpu() for name, value in tensors.items()}
        tensors = {name: value.contiguous() for name, value in tensors.items()}
        facts = {"class": type(self).__name__, "snnl_lib": __version__} | facts
        facts["parameters"] = self.get_params(deep=False)
        facts["kept"] = {name: vars(self)[name] for name in KEPT if name in vars(self)}
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
            new = Path(temporary) / "new"
            new.mkdir()
            (new / TENSORS).write_bytes(save(tensors))  # save_file ignores the umask
            (new / FACTS).write_text(json.dumps(facts, default=_plain, indent=1))
            self._save_further(new)
            if folder.exists():
                os.replace(folder, Path(temporary) / "old")
            os.replace(new, folder)

    @classmethod
    def load(cls, folder, device="cpu"):
        """Return the estimator that ``save`` wrote into a ``folder``, on a ``device``.

        It predicts and transforms as before. Raises SnnlError if the folder holds no model, a model
        of another class, or a damaged one, and if the device is not available.
        """
        require("safetensors")
        from safetensors.torch import load_file

        folder = Path(folder).resolve()
        name = cls.__name__
        facts = _facts(folder)
        if facts["class"] != name:
            problem = f"{folder} holds a model of class {facts['class']}, not {name}"
            raise SnnlError(f"{problem}: load it with {facts['class']}.load")
        try:
            torch.empty(0, device=device)
        except Exception as error:  # torch raises several types
            reason = str(error).split("\n")[0].rstrip(".")
            problem = f"the device {str(device)!r} is not available ({reason})"
            raise SnnlError(f'{problem}: choose another, such as "cpu"') from error
        try:
            parameters = facts["parameters"]
            model = cls(**{key: _from_json(value) for key, value in parameters.items()})
            model.device = device
            for attribute, value in facts["kept"].items():
                setattr(model, attribute, np.array(value) if isinstance(value, list) else value)
            tensors = load_file(folder / TENSORS)
            tensors = {name: value.to(device) for name, value in tensors.items()}
            model._load_parts(tensors, facts, folder)
        except Exception as error:  # damaged tensors can raise nearly any error
            problem = f"the {name} in {folder} is damaged ({error!r})"
            raise SnnlError(f"{problem}: save it again") from error
        return model

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _save_further(self, folder):
        """Write further files into the folder; a subclass may need some."""

    def _training(self, **data):
        """Return a name for a training, from its parameters and ``data``, for its checkpoint."""
        parameters = self.get_params(deep=False)
        for without_effect in ("device", "progress", "checkpoint"):
            parameters.pop(without_effect, None)
        parameters = json.dumps(parameters, default=_plain, sort_keys=True)
        return key(data | {"class": type(self).__name__, "parameters": parameters})

    def _check_fitted(self):
        advice = "call fit first, or load a saved one"
        check_is_fitted(self, msg=f"this %(name)s is not fitted: {advice}")

    def _validated(self, X, reset=False, dtype=np.float32, **labels):
        """Return X as an array [N, D] of finite numbers, as wide as the fitted X.

        Its type is ``dtype``; None keeps floats of 32 bits or more, and makes floats of all others.
        With ``y`` among the ``labels``, X and y are returned. Raises ValueError in one sentence.
        """
        if not reset:
            self._check_fitted()
        try:
            validated = validate_data(self, X, reset=reset, **labels)
            X, *y = validated if labels else (validated,)
            with np.errstate(over="raise"):
                X = X.astype(dtype or np.promote_types(X.dtype, np.float32), copy=False)
        except (ValueError, FloatingPointError) as error:
            reason = str(error).split("\n")[0].rstrip(".:")
            advice = "X must be finite numbers [N, D]" + (", and y labels [N]" if labels else "")
            raise ValueError(f"{reason}: {advice}") from None
        return (X, *y) if labels else X


def _plain(value):
    """Return a value that JSON can hold in place of one that it cannot."""
    if is_dataclass(value):
        return asdict(value)
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def _from_json(value):
    """Return a parameter as it was before JSON: a Recipe from a dictionary, a tuple from a list."""
    if isinstance(value, dict):
        return Recipe(**value)
    return tuple(value) if isinstance(value, list) else value
