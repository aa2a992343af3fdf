"""A device that is not there: tensors that say they live elsewhere, computed on the CPU.

A GPU refuses to mix its tensors with those of the CPU, and few students have one. These refuse in
the same way and hold real numbers. Tensors of torch's own "meta" device hold none, and their first
use takes a second of imports. Runs beside the student's code: standard library and torch only.
"""

from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "meta"  # a device that every torch knows and nothing is computed on
REFUSAL = "is not on the device of the others"  # torch's own words are others
_MIXING = ("_to_copy", "copy_", "index", "index_put", "index_put_")  # which a GPU allows, too


class Elsewhere(TorchDispatchMode):
    """Context manager in which the device `NAME` computes and refuses tensors of the CPU."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler to tell it to keep out

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor on that device."""
        return _Moved(tensor.detach())

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
        # What was changed in place stays the same tensor.
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

    # As torch documents it for wrapper subclasses; its stub knows only the method.
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None) -> Any:
        with Elsewhere() as mode:
            return mode.__torch_dispatch__(func, types, args, kwargs)


def _numbers_of(tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, _Moved):
        return tensor.numbers
    if tensor.device.type == NAME:  # `torch.tensor(..., device=...)` loses them on its way here
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
