"""What a record says of its origin: package versions, commit and device; and the record folders."""

import contextlib
import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from snnl_lib import SnnlError

_PACKAGE = Path(__file__).resolve().parent
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "spacy", "transformers", "umap-learn")
"""Packages that can change a score."""


class RecordError(SnnlError):
    """A record is damaged or cannot be written."""


@cache
def versions(device_type: str = "cpu") -> str:
    """List the versions of everything that can change a score on this type of device."""
    parts = [f"python {platform.python_version()}"]
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            parts.append(f"{name} {metadata.version(name)}")
    if device_type in ("cuda", "xpu"):
        import torch

        driver = getattr(torch.version, device_type) or torch.version.hip
        parts.append(f"{device_type} {driver}")
    return "; ".join(parts)


@cache
def commit() -> str:
    """Return the commit of the checkout, with ``+changes`` if one of the packages differs from it.

    Returns ``unknown`` outside a checkout of this project. An installed package may lie inside
    another repository, whose commit would be wrong.
    """
    root = _PACKAGE.parent
    if not ((root / ".git").exists() and (root / "pyproject.toml").exists()):
        return "unknown"

    def git(*args):
        command = ["git", *args]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--", _PACKAGE.name, "snnl_lib")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}+changes" if changed else head


def device_name(device: str) -> str:
    """Describe a device for a record.

    A preloaded library is named as well, because it can replace any arithmetic.
    """
    if device != "cpu":
        import torch

        names = torch.get_device_module(device)
        return names.get_device_name(device) if hasattr(names, "get_device_name") else device
    processor = ""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as file:
        models = (line.split(":")[1].strip() for line in file if line.startswith("model name"))
        processor = next((f" ({model})" for model in models), "")
    preloaded = os.environ.get("LD_PRELOAD", "")
    library = f", with {Path(preloaded).name}" if preloaded else ""
    return f"CPU, one thread{processor}{library}"


def results_dir(profile: str = "full") -> Path:
    """Return the folder of a profile's records.

    Records of the profile ``full`` are in ``results/``, those of the others in
    ``_build/results/<profile>``. ``SNNL_RESULTS`` names another folder for both. Outside a
    checkout the full records are those in the wheel, and the others are below the working
    directory. Raises RecordError if SNNL_RESULTS is not the absolute path of a folder that can be
    read or made.

    >>> results_dir("quick").name
    'quick'
    """
    if os.environ.get("SNNL_RESULTS"):
        full = Path(os.environ["SNNL_RESULTS"])
        if not full.is_absolute():
            problem = "is not an absolute path, and chapters run in another folder"
            raise RecordError(f"SNNL_RESULTS names {full}, which {problem}: give the whole path")
        if full.exists() and not (full.is_dir() and os.access(full, os.R_OK | os.X_OK)):
            advice = "set SNNL_RESULTS to a folder that you can write to"
            raise RecordError(
                f"SNNL_RESULTS names {full}, which is not a readable folder: {advice}"
            )
        others = full / "_build"
    elif (_PACKAGE.parent / "pyproject.toml").exists():
        full, others = _PACKAGE.parent / "results", _PACKAGE.parent / "_build" / "results"
    else:
        full, others = _PACKAGE / "results", Path.cwd() / "_build" / "results"
    return full if profile == "full" else others / profile


def chapters_dir(profile: str = "full") -> Path:
    """Return the folder for the records that a chapter makes, never the committed ``results``.

    ``profile`` is the one that the chapter runs in.

    >>> chapters_dir("tiny") == results_dir("tiny")
    True
    """
    if profile != "full" or os.environ.get("SNNL_RESULTS"):
        return results_dir(profile)
    return results_dir("tiny").with_name("full")
