"""The devices of this machine, and which of them computes a run.

Nothing here imports torch, which takes seconds to load, unless this machine has a GPU.
"""

import contextlib
import ctypes
import platform
import sys
from functools import cache
from pathlib import Path

from snnl_book import embeddings, results
from snnl_book.experiments.cells import ExperimentError
from snnl_book.results import Spec


def check_device(device: str) -> str:
    """Return the torch device for ``auto``, ``cpu``, or the accelerator that torch has here.

    An accelerator is ``cuda`` (NVIDIA and AMD), ``mps`` (Apple) or ``xpu`` (Intel); ``cuda:1`` is
    the second of several. Raises ExperimentError for another name, or for a device that is not on
    this machine.
    """
    accelerators = _accelerators()
    if device == "auto":
        return (*accelerators, "cpu")[0]
    if device in ("cpu", *accelerators):
        return device
    advice = f"choose one of {', '.join(('auto', 'cpu', *accelerators))}"
    raise ExperimentError(f"the device {device!r} is not available here: {advice}")


def _accelerators() -> tuple[str, ...]:
    """Return the names of all accelerators, such as ``cuda``, ``cuda:0`` and ``cuda:1``.

    Without a driver there is none, and torch need not be imported to know that.
    """
    if "torch" not in sys.modules and not gpu_driver():
        return ()
    from torch import accelerator

    if not accelerator.is_available():
        return ()
    name = accelerator.current_accelerator().type
    return (name, *(f"{name}:{number}" for number in range(accelerator.device_count())))


ON_CPU = {"original", "pca", "points", "lda", "lda-predictions", "logreg", "logreg-predictions"}
ON_CPU |= {"svm", "knn", "kmeans", "spherical-kmeans", "umap", "gmm"}
"""Models that always run on the CPU, because they do not use torch."""


def trains_on(spec: Spec, device: str) -> str:
    """Return the device that computes a run's model when ``device`` is asked for."""
    only_vectors = spec.model == "plain" and not spec.get("clusterer", "").endswith("idec")
    return "cpu" if only_vectors or spec.model in ON_CPU else device


def embeds_on(spec: Spec, device: str) -> str:
    """Return the device that computes a run's vectors when ``device`` is asked for."""
    encoded = spec.embedding in embeddings.TRANSFORMERS or spec.embedding.startswith("infersent")
    return device if encoded else "cpu"


def device_type(spec: Spec, device: str) -> str:
    """Return the type of device in the name of a run's record.

    It is ``cpu`` only if both the model and the vectors are computed on the CPU.
    """
    devices = trains_on(spec, device), embeds_on(spec, device)
    return next((each.partition(":")[0] for each in devices if each != "cpu"), "cpu")


def device_names(spec: Spec, device: str) -> str:
    """Describe the device of a run's model, and the device of its vectors if it differs."""
    trained, embedded = trains_on(spec, device), embeds_on(spec, device)
    name = results.device_name(trained)
    if embedded in (trained, "cpu"):
        return name
    return f"{name}; vectors by {results.device_name(embedded)}"


@cache
def gpu_driver() -> bool:
    """Return whether this machine has the driver of a GPU that torch may use.

    Importing torch to ask takes seconds, which ``missing`` would take too.
    """
    for name in ("libcuda.so.1", "nvcuda.dll", "libze_loader.so.1", "ze_loader.dll"):
        with contextlib.suppress(OSError):
            return bool(ctypes.CDLL(name))
    on_apple = (platform.system(), platform.machine()) == ("Darwin", "arm64")
    return on_apple or Path("/dev/kfd").exists()  # the driver of AMD's GPUs
