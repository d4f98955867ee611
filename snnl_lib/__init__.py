"""The soft nearest neighbor loss, networks to train with it, and scores to evaluate them.

Import each name from its module, for example ``from snnl_lib.losses import
soft_nearest_neighbor_loss``. Importing the package alone is fast, because it does not load torch.
The package ``snnl_book`` reproduces the papers.
"""

__version__ = "0.1.0"


class SnnlError(Exception):
    """An error that the user can fix; the message says what is wrong and what to do."""
