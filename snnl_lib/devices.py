"""Float32 precision and random states on GPUs and other accelerators.

A random state is the state of a device's random number generator.
"""

from contextlib import contextmanager, nullcontext

import torch

_PRODUCTS = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
_LAYERS = (
    torch.backends.cudnn.conv,
    torch.backends.cudnn.rnn,
    torch.backends.mkldnn.conv,
    torch.backends.mkldnn.rnn,
)


def exact_products():
    """Return a context manager under which float32 matrix products keep their full precision.

    Users can allow torch to use TensorFloat-32 instead, which keeps about three decimal digits, or
    bfloat16, which keeps about two. A graph compiled by ``torch.compile`` keeps the precision with
    which it was compiled.

    The setting applies to the whole process. If two threads use this context manager at the same
    time, the first to leave may restore the old setting for both. After the second has left,
    products may keep full precision permanently. A program with several threads should therefore
    turn reduced precision off for the whole process, with
    ``torch.set_float32_matmul_precision("highest")``.
    """
    return nullcontext() if torch.compiler.is_compiling() else _exact(_PRODUCTS)


def exact_layers():
    """Return a context manager like ``exact_products`` that also covers convolutions and LSTMs.

    By default, both use TensorFloat-32 on CUDA.
    """
    return _exact((*_PRODUCTS, *_LAYERS))


@contextmanager
def _exact(operations):
    before = [operation.fp32_precision for operation in operations]
    try:
        for operation in operations:
            operation.fp32_precision = "ieee"
        yield
    finally:
        for operation, precision in zip(operations, before, strict=True):
            inherited = precision == torch.backends.fp32_precision
            operation.fp32_precision = "none" if inherited else precision


def has_float64(device) -> bool:
    """Return whether a device supports float64; Apple's GPUs and some Intel GPUs do not."""
    device = torch.device(device)
    if device.type == "xpu":
        return bool(torch.xpu.get_device_properties(device).has_fp64)
    return device.type != "mps"


def random_states(device) -> list[torch.Tensor]:
    """Return the random states of all accelerators of the same type as ``device``.

    For the CPU, the list is empty and no accelerator is initialised.
    """
    device = torch.device(device)
    if device.type == "cpu":
        return []
    accelerator = torch.get_device_module(device)
    if hasattr(accelerator, "get_rng_state_all"):
        return accelerator.get_rng_state_all()
    return [accelerator.get_rng_state()]  # MPS has a single device


def set_random_states(device, states: list[torch.Tensor]) -> None:
    """Restore the random states that ``random_states`` returned for this device."""
    accelerator = torch.get_device_module(torch.device(device))
    if hasattr(accelerator, "set_rng_state_all"):
        accelerator.set_rng_state_all(states)
    else:
        for state in states:
            accelerator.set_rng_state(state)


@contextmanager
def kept_random_states(device):
    """Restore the random states of the CPU and of ``device`` at the end of a ``with`` block."""
    states = random_states(device)
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            if states:
                set_random_states(device, states)
