"""The soft nearest neighbor loss, networks to train with it, and scores to evaluate them.

Import each name from its module, for example ``from snnl_lib.losses import
soft_nearest_neighbor_loss``. Importing the package alone is fast, because it does not load torch.
The package ``snnl_book`` reproduces the papers.
"""

import sys

__version__ = "0.1.0"


class SnnlError(Exception):
    """An error that the user can fix; the message says what is wrong and what to do."""


class _Moved:
    """An import hook that gives the new location of modules moved out of this package."""

    MODULES = (
        "answers cache data embeddings experiments methods own_texts paper recipes report results"
    )

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        package, _, module = name.partition(".")
        if package == __name__ and module in cls.MODULES.split():
            raise ModuleNotFoundError(f"{name} is now snnl_book.{module}: import it from there")


sys.meta_path.append(_Moved)


def __getattr__(name):
    if name in _Moved.MODULES.split():
        raise ImportError(f"snnl_lib.{name} is now snnl_book.{name}: import it from there")
    raise AttributeError(f"module 'snnl_lib' has no attribute {name!r}")
