"""A pretend accelerator, to rehearse a GPU on a machine that has none.

A tensor on the device ``pretend`` holds a tensor of the CPU, and computes with it. Like a tensor on
CUDA it does not mix with tensors of the CPU, except for single numbers, and does not become a numpy
array. So code that leaves a tensor on the wrong device fails here as it would there.

``accelerator()`` is a block in which torch has this device. ``waits()`` lists the calls in a block
for which a GPU would have to finish its work first.
"""

import contextlib

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _DummyPrivateUse1Hook,
    _setup_privateuseone_for_python_backend,
)

aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default, aten._copy_from.default}
"""The only functions that take tensors of both devices."""
WAITS = {
    aten._local_scalar_dense.default: "item",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten.equal.default: "equal",
    aten._unique2.default: "unique",
    aten.unique_dim.default: "unique",
}
_switch = {"on": False}
_waits: list[str] = []


class Module(_DummyBackendModule):
    """What ``torch.pretend`` is; its random numbers are those of the CPU."""

    def is_available(self):
        return _switch["on"]

    def get_rng_state_all(self):
        return [torch.get_rng_state()]

    def set_rng_state_all(self, states):
        torch.set_rng_state(*states)

    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]


class Hook(_DummyPrivateUse1Hook):
    def is_available(self):
        return _switch["on"]


_setup_privateuseone_for_python_backend("pretend", backend_module=Module(), hook=Hook())
DEVICE = torch.device("pretend:0")


class Tensor(torch.Tensor):
    """A tensor on the pretend device; ``inside`` is the tensor of the CPU that it holds."""

    @staticmethod
    def __new__(cls, inside):
        layout = {"strides": inside.stride(), "storage_offset": inside.storage_offset()}
        layout |= {"dtype": inside.dtype, "device": DEVICE}
        tensor = torch.Tensor._make_wrapper_subclass(cls, inside.size(), **layout)
        tensor.inside = inside
        return tensor

    def __reduce_ex__(self, protocol):  # a file holds what is inside, to be loaded on the CPU
        return self.detach().inside.__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _compute(function, args, kwargs or {})


def _is_pretend(device):
    return device is not None and torch.device(device).type == "pretend"


def _compute(function, args, kwargs):
    """Carry out a function of torch on what is inside its arguments, and wrap the results."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    ours = [tensor for tensor in tensors if isinstance(tensor, Tensor)]
    others = [tensor for tensor in tensors if not isinstance(tensor, Tensor) and tensor.dim()]
    if ours and others and function not in COPIES:
        raise RuntimeError(f"{function}: expected all tensors on {DEVICE}, got one on the CPU")
    device = kwargs.get("device")
    if ours:
        _note_wait(function, args, device)
    wrapped = bool(ours) if device is None else _is_pretend(device)
    if _is_pretend(device):
        kwargs = kwargs | {"device": "cpu"}

    def inside(leaf):
        return leaf.inside if isinstance(leaf, Tensor) else leaf

    result = function(*tree_map(inside, args), **tree_map(inside, kwargs))
    if function is aten.copy_.default:
        return args[0]
    same = {id(tensor.inside): tensor for tensor in ours}  # functions in place return an argument

    def outside(leaf):
        if not isinstance(leaf, torch.Tensor) or not wrapped:
            return leaf
        return same.get(id(leaf)) if id(leaf) in same else Tensor(leaf)

    return tree_map(outside, result)


def _note_wait(function, args, device):
    if function in WAITS:
        _waits.append(WAITS[function])
    elif function is aten._to_copy.default and device is not None and not _is_pretend(device):
        _waits.append("cpu")
    elif function in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default):
        masks = (index for index in args[1] if index is not None)
        if any(index.dtype in (torch.bool, torch.uint8) for index in masks):
            _waits.append("boolean index")


class _Dispatched(TorchDispatchMode):
    """Carries out the functions that make a tensor on the device from nothing."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _compute(function, args, kwargs or {})


class _PastTheDispatcher(TorchFunctionMode):
    """Carries out what torch does with data of Python or numpy before it dispatches."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in (torch.tensor, torch.as_tensor) and _is_pretend(kwargs.get("device")):
            learns = kwargs.pop("requires_grad", False)
            made = function(*args, **kwargs | {"device": "cpu"})
            return made.to(DEVICE).requires_grad_(learns)
        if function is torch.Tensor.new_tensor and isinstance(args[0], Tensor):
            return torch.tensor(args[1], dtype=args[0].dtype).to(DEVICE)
        if function is torch.Tensor.tolist and isinstance(args[0], Tensor):
            _waits.append("tolist")
            return args[0].detach().inside.tolist()
        if function is torch.Tensor.numpy and isinstance(args[0], Tensor):
            raise TypeError(f"a tensor on {DEVICE} does not become a numpy array")
        if function is torch.lstm and isinstance(args[0], Tensor):
            return _lstm(*args[:3])
        return function(*args, **kwargs)


def _lstm(inputs, start, weights):
    """One direction of an LSTM on inputs [B, T, D], for which torch asks a GPU's own kernel."""
    hidden, cell = (state[0] for state in start)
    of_inputs, of_hidden, *biases = weights
    outputs = []
    for x in inputs.unbind(dim=1):
        gates = F.linear(x, of_inputs, biases[0]) + F.linear(hidden, of_hidden, biases[1])
        into, kept, new, out = gates.chunk(4, dim=1)
        cell = kept.sigmoid() * cell + into.sigmoid() * new.tanh()
        hidden = out.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), hidden[None], cell[None]


@contextlib.contextmanager
def accelerator():
    """Let torch have the device within the block; yields its name."""
    _switch["on"] = True
    # A module that moves to CUDA keeps its parameters' identity, and shared ones stay shared.
    swap, to = torch.__future__.set_swap_module_params_on_conversion, torch.nn.Module.to

    def swapped_to(module, *args, **kwargs):
        swap(True)
        try:
            return to(module, *args, **kwargs)
        finally:
            swap(False)

    torch.nn.Module.to = swapped_to
    try:
        with _Dispatched(), _PastTheDispatcher():
            yield "pretend"
    finally:
        _switch["on"] = False
        torch.nn.Module.to = to


@contextlib.contextmanager
def waits():
    """Yield a list of the calls in the block that wait for the device, by name."""
    _waits.clear()
    yield _waits
