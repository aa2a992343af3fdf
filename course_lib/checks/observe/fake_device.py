"""A fake device, whose tensors claim to be elsewhere but are computed on the CPU.

A GPU refuses to mix its tensors with those of the CPU, and few students have one. These tensors
refuse in the same way and contain numbers. Tensors on torch's "meta" device contain none, and their
first use takes a second of imports. This runs beside the student's code and uses only the standard
library and torch.
"""

import contextlib
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "meta"  # a device in every build of torch, without computations
REFUSAL = "is not on the device of the others"  # differs from torch's own message
_MIXING = ("_to_copy", "copy_", "index", "index_put", "index_put_")  # a GPU also allows these


class Elsewhere(TorchFunctionMode):
    """A context in which the device `NAME` computes, and refuses tensors on the CPU.

    Calls that have nothing to do with that device run as usual, because torch cannot create
    instances of subclasses of `torch.Tensor`, such as `CausalBias`, in a dispatch mode.
    """

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor on that device."""
        return _Moved(tensor.detach())

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:
        kwargs = kwargs or {}
        with _Computing() if _is_there([args, kwargs]) else contextlib.nullcontext():
            return func(*args, **kwargs)


def _is_there(given: Any) -> bool:
    """Return whether the arguments of a call contain the device or a tensor on it."""
    if isinstance(given, dict | list | tuple):
        return any(map(_is_there, given.values() if isinstance(given, dict) else given))
    if isinstance(given, torch.Tensor):
        return given.device.type == NAME
    return isinstance(given, torch.device | str) and str(given).partition(":")[0] == NAME


class _Computing(TorchDispatchMode):
    """Compute with the numbers of the moved tensors."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        given: list[torch.Tensor] = []
        _mapped([args, kwargs], given.append)
        moved = [tensor for tensor in given if tensor.device.type == NAME]
        staying = [tensor for tensor in given if tensor.device.type != NAME and tensor.dim()]
        if moved and staying and func.overloadpacket.__name__ not in _MIXING:
            raise RuntimeError(f"Tensor on device cpu {REFUSAL}, {NAME}!")
        goes = bool(moved) if device is None else torch.device(device).type == NAME
        if goes and device is not None:
            kwargs["device"] = torch.device("cpu")
        homes = {id(t.numbers): t for t in moved if isinstance(t, _Moved)}
        results = func(*_mapped(args, _numbers_of), **_mapped(kwargs, _numbers_of))
        if not goes:
            return results
        # In-place operations return the same tensor object.
        return _mapped(results, lambda t: homes[id(t)] if id(t) in homes else _Moved(t))


class _Moved(torch.Tensor):
    """A tensor on the device; `numbers` holds its numbers."""

    def __new__(cls, numbers: torch.Tensor) -> Self:
        options = {"dtype": numbers.dtype, "device": NAME, "requires_grad": False}
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, numbers.stride(), **options)

    def __init__(self, numbers: torch.Tensor):
        self.numbers = numbers

    def tolist(self) -> Any:
        """Convert to a list, which torch does not support for tensor subclasses."""
        return self.numbers.tolist()

    # Documented by torch for wrapper subclasses, but missing in its stub.
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None) -> Any:
        with _Computing() as mode:
            return mode.__torch_dispatch__(func, types, args, kwargs)


def _numbers_of(tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, _Moved):
        return tensor.numbers
    if tensor.device.type == NAME:  # `torch.tensor(..., device=...)` has lost the numbers
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    return tensor


def _mapped(tree, change) -> Any:
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _mapped(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_mapped(item, change) for item in tree)
    return tree
