"""Soft nearest neighbor loss: the library under the executable book.

Import what you need from its module, for example ``from snnl_lib.losses import soft_nearest_neighbor_loss``;
importing the package itself loads nothing heavy.
"""

__version__ = "0.1.0"


class SnnlError(Exception):
    """Something the user can put right. The message is one sentence that says what was wrong and what to do."""
