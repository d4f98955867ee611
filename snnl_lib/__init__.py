"""Soft nearest neighbor loss: the library under the executable book.

Import what you need from its module, for example ``from snnl_lib.losses import soft_nearest_neighbor_loss``;
importing the package itself loads nothing heavy.
"""

import contextlib
import os
import tempfile
from pathlib import Path

__version__ = "0.1.0"


class SnnlError(Exception):
    """Something the user can put right. The message is one sentence that says what was wrong and what to do."""


@contextlib.contextmanager
def whole_file(path: Path):
    """Open a binary file for writing that takes its place at ``path`` once it is complete: a reader sees it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.stem}", suffix=".tmp", delete=False) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
