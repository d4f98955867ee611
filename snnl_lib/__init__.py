"""Soft nearest neighbor loss: the library under the executable book.

Import what you need from its module, for example ``from snnl_lib.losses import soft_nearest_neighbor_loss``;
importing the package itself loads nothing heavy.
"""

import contextlib
import glob
import os
import tempfile
import time
from pathlib import Path

__version__ = "0.1.0"


class SnnlError(Exception):
    """Something the user can put right. The message is one sentence that says what was wrong and what to do."""


@contextlib.contextmanager
def whole_file(path: Path):
    """Open a binary file for writing that takes its place at ``path`` once it is complete: a reader sees it whole or not at all.

    What a killed process left of the same file goes when it is an hour old: by then nobody is still writing it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.stem)}*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > 3600:
                left.unlink()
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
