"""Soft nearest neighbor loss: the library under the executable book.

Import what you need from its module, for example ``from snnl_lib.losses import
soft_nearest_neighbor_loss``; importing the package itself loads nothing heavy.
"""

import contextlib
import errno
import glob
import importlib.util
import os
import tempfile
import time
from pathlib import Path

__version__ = "0.1.0"


EXTRAS = {
    "spacy": ("spaCy", "text"),
    "pyarrow": ("pyarrow", "text"),
    "umap": ("umap-learn", "text"),
    "transformers": ("transformers", "transformers"),
    "safetensors": ("safetensors", "transformers"),
    "huggingface_hub": ("huggingface-hub", "transformers"),
    "matplotlib": ("matplotlib", "book"),
    "seaborn": ("seaborn", "book"),
    "plotly": ("plotly", "book"),
    "markdown_it": ("markdown-it-py", "book"),
}
"""What the library imports beyond its minimal dependencies: the name of the package, and the extra
of pyproject.toml that brings it.
"""


_REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
_REFUSED |= {errno.EEXIST, errno.ENOTDIR, errno.EISDIR}


class SnnlError(Exception):
    """Something the user can put right. The message is one sentence that says what was wrong and
    what to do.
    """


def lacks(module: str) -> str:
    """Say which extra brings a module of ``EXTRAS`` if it is not installed, else nothing."""
    if importlib.util.find_spec(module):
        return ""
    package, extra = EXTRAS[module]
    how = f"it comes with the extra {extra}, in a checkout by `pip install .[{extra}]`"
    return f"{package} is not installed: {how}"


def require(module: str) -> None:
    """Raise SnnlError, which names the extra to install, unless a module of ``EXTRAS`` is there."""
    if sentence := lacks(module):
        raise SnnlError(sentence)


@contextlib.contextmanager
def told_as(kind: type[SnnlError], what: str, advice: str, *, of=Exception, why=None):
    """Raise an error of a ``kind`` in place of those ``of`` another: what was wrong and what to do.

    In parentheses between the two stands ``why(error)``; default: what the system said of a file,
    or else the error's name.
    """
    try:
        yield
    except of as error:
        reason = why(error) if why else getattr(error, "strerror", None) or type(error).__name__
        raise kind(f"{what} ({reason}): {advice}") from error


@contextlib.contextmanager
def full_disk_told(place="a file"):
    """Raise SnnlError in place of an OSError of a full disk or a place that refuses.

    ``place`` is named where the error names none.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        done, advice = "written", "make room, or take a folder that you can write to"
        if error.errno in (errno.EACCES, errno.EPERM):
            done, advice = "opened", "check its permissions, or take a folder of your own"
        refused = f"{error.filename or place} could not be {done} ({error.strerror})"
        raise SnnlError(f"{refused}: {advice}") from error


@contextlib.contextmanager
def whole_file(path: Path):
    """Open a binary file for writing that takes its place at ``path`` once it is complete: a reader
    sees it whole or not at all.

    What a killed process left of the same file goes when it is an hour old: by then nobody is still
    writing it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.stem)}*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > 3600:
                left.unlink()
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.stem}", suffix=".tmp", delete=False
    ) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
