"""The soft nearest neighbor loss, the networks it trains, and the scores that judge them.

Import what you need from its module, for example ``from snnl_lib.losses import
soft_nearest_neighbor_loss``. Importing the package itself loads nothing heavy. The reproduction of
the papers is in the package ``snnl_book``.
"""

import sys

__version__ = "0.1.0"


class SnnlError(Exception):
    """An error that the user can fix. The message says what is wrong and what to do."""


class _Moved:
    """An import hook that names the new place of modules that were here before version 0.1."""

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
