"""The reproduction of the papers: data, embeddings, methods, experiments, records and verdicts.

Import what you need from its module; importing the package itself loads nothing heavy. The method
itself, loss, networks and scores, is the package ``snnl_lib``.
"""

import contextlib
import errno
import importlib.util

from snnl_lib import SnnlError

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
"""What this package imports beyond what snnl_lib needs: the name of the package that brings a
module, and the extra of pyproject.toml that brings the package.
"""


_REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
_REFUSED |= {errno.EEXIST, errno.ENOTDIR, errno.EISDIR}


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
