"""What accelerators need in addition: exact float32 products, and their random states."""

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
    """Return a block in which matrix products of float32 keep all their digits.

    Users may allow torch to use TensorFloat-32 or bfloat16 instead, which keep three digits or two.
    A graph of ``torch.compile`` cannot switch: it keeps the setting under which it was compiled.
    """
    return nullcontext() if torch.compiler.is_compiling() else _exact(_PRODUCTS)


def exact_layers():
    """Return a block in which convolutions and LSTMs keep all digits too (``exact_products``).

    On CUDA they use TensorFloat-32 unless they are told not to.
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
            operation.fp32_precision = precision


def has_float64(device) -> bool:
    """Return whether a device computes in float64: Apple's GPUs and some of Intel's do not."""
    device = torch.device(device)
    if device.type == "xpu":
        return bool(torch.xpu.get_device_properties(device).has_fp64)
    return device.type != "mps"


def random_states() -> list[torch.Tensor]:
    """Return the state of each accelerator's random generator, an empty list without one."""
    if not torch.accelerator.is_available():
        return []
    accelerator = torch.get_device_module(torch.accelerator.current_accelerator())
    if hasattr(accelerator, "get_rng_state_all"):
        return accelerator.get_rng_state_all()
    return [accelerator.get_rng_state()]  # MPS has a single device


def set_random_states(states: list[torch.Tensor]) -> None:
    """Set the states that ``random_states`` returned, if this machine has as many accelerators."""
    if len(states) != len(random_states()):
        return
    accelerator = torch.get_device_module(torch.accelerator.current_accelerator())
    if hasattr(accelerator, "set_rng_state_all"):
        accelerator.set_rng_state_all(states)
    else:
        for state in states:
            accelerator.set_rng_state(state)


@contextmanager
def kept_random_states(device):
    """Restore torch's random states, of the CPU and of the device's type, at the end of a block."""
    on_cpu = torch.device(device).type == "cpu"  # asking an accelerator would start it
    states = [] if on_cpu else random_states()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            if states:
                set_random_states(states)
