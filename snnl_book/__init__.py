"""The reproduction of the papers: data, embeddings, methods, experiments, records and verdicts.

Import what you need from its module; importing the package itself loads nothing heavy. The method
itself, with its loss, networks and scores, is the package ``snnl_lib``.
"""

import importlib.util

from snnl_lib import SnnlError

EXTRAS = {
    "spacy": ("spaCy", "text"),
    "pyarrow": ("pyarrow", "text"),
    "openpyxl": ("openpyxl", "excel"),
    "umap": ("umap-learn", "text"),
    "transformers": ("transformers", "transformers"),
    "safetensors": ("safetensors", "transformers"),
    "huggingface_hub": ("huggingface-hub", "transformers"),
    "matplotlib": ("matplotlib", "book"),
    "seaborn": ("seaborn", "book"),
    "markdown_it": ("markdown-it-py", "book"),
    "adjustText": ("adjustText", "book"),
    "IPython": ("ipython", "book"),
}
"""Optional modules: the package that contains each, and the extra of pyproject.toml to install."""


def lacks(module: str) -> str:
    """Return a sentence that names the extra to install if a module of ``EXTRAS`` is missing."""
    if importlib.util.find_spec(module):
        return ""
    package, extra = EXTRAS[module]
    advice = f"install it with the extra {extra} (in a checkout: `pip install .[{extra}]`)"
    return f"{package} is not installed: {advice}"


def require(module: str) -> None:
    """Raise SnnlError, naming the extra to install, if a module of ``EXTRAS`` is missing."""
    if sentence := lacks(module):
        raise SnnlError(sentence)
