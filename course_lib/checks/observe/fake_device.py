"""A fake device, whose tensors claim to be elsewhere but are computed on the CPU.

A GPU refuses to mix its tensors with those of the CPU, and few students have one. These tensors
refuse in the same way and contain numbers. Tensors on torch's "meta" device and in FakeTensorMode
contain none, and their first use takes a second of imports. FakeTensorMode also needs a build of
torch with CUDA for its "cuda" tensors. This runs beside the student's code.
"""

import itertools
import linecache
import sys
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.checks.observe.cost_meter import LIBRARIES
from course_lib.checks.observe.observation import OnTheCpu

NAME = "meta"  # a device in every build of torch, without computations
MIXED_UP = "is not on the device of the others"  # differs from torch's own message
# A GPU also allows these to mix, and `index` only for indices.
_MIXING = ("_to_copy", "copy_", "index", "index_put", "index_put_", "_pack_padded_sequence")
_FROM_NUMBERS = (torch.tensor, torch.as_tensor, torch.asarray)
_TO_NUMPY = (torch.Tensor.numpy, torch.Tensor.__array__)


class Refused(RuntimeError):
    """A call mixes devices. `seen` tells where its tensor on the CPU comes from, if known."""

    def __init__(self, seen: OnTheCpu | None = None):
        super().__init__(f"Tensor on device cpu {MIXED_UP}, {NAME}!")
        self.seen = seen


class Elsewhere(TorchFunctionMode):
    """A context in which the device `NAME` computes, and refuses tensors on the CPU.

    Calls that have nothing to do with that device run as usual, because torch cannot create
    instances of subclasses of `torch.Tensor`, such as `CausalBias`, in a dispatch mode. Tensors on
    the CPU remember the line of the student's code that made them (`made_by`).
    """

    def __enter__(self) -> Self:
        self._computing, self._outside = _Computing(), sys._getframe(1)
        return super().__enter__()

    def _calling(self) -> Iterator[tuple[FrameType, int]]:
        """Yield the frames and lines of the current call in this context, the innermost first."""
        calls = traceback.walk_stack(sys._getframe(1))
        return itertools.takewhile(lambda call: call[0] is not self._outside, calls)

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor on that device."""
        return _Moved(tensor.detach())

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:
        kwargs = kwargs or {}
        if func in _OF_A_TENSOR:
            return func(*args, **kwargs)
        is_there, here = _found_in(args, kwargs)
        if not is_there:
            result = func(*args, **kwargs)
            if made := _found_in(result)[1]:
                by = made_by(here) if here else _line_of("made", self._calling())
                mark(made, by)
            return result
        if func in _TO_NUMPY:
            raise Refused(_line_of("numpy", self._calling()))
        if func in _FROM_NUMBERS and not _found_in(args)[0]:  # torch would lose the numbers
            return self.moved(func(*args, **kwargs | {"device": "cpu"}))
        try:
            with self._computing:
                result = func(*args, **kwargs)
        except Refused as refused:
            raise Refused(made_by(here)) from refused
        if not isinstance(result, _Moved) and (left := _found_in(result)[1]):
            mark(left, _line_of("moved", self._calling()))
        return result


# fmt: off
_OF_A_TENSOR = {
    *(getattr(torch.Tensor, name).__get__ for name in (
        "device", "dtype", "grad_fn", "is_leaf", "is_meta", "is_sparse", "itemsize", "layout",
        "ndim", "requires_grad", "shape",
    )),
    *(getattr(torch.Tensor, name) for name in (
        "__len__", "dim", "is_complex", "is_contiguous", "is_floating_point", "numel",
        "requires_grad_", "size", "stride",
    )),
}
# fmt: on


def made_by(tensors: Iterable[torch.Tensor]) -> OnTheCpu | None:
    """Return where the first tensor on the CPU comes from whose origin is known."""
    return next(filter(None, (vars(tensor).get(_MADE_BY) for tensor in tensors)), None)


def mark(tensors: Iterable[torch.Tensor], origin: OnTheCpu | None) -> None:
    """Remember where tensors on the CPU come from."""
    for tensor in tensors:
        setattr(tensor, _MADE_BY, origin)


_MADE_BY = "_made_on_the_cpu_by"  # an attribute of tensors


def on_the_cpu(*trees: Any) -> list[torch.Tensor]:
    """Return the tensors on the CPU among these and in nested lists, tuples and dicts."""
    return _found_in(*trees)[1]


def line_that_uses(refused: Refused) -> OnTheCpu | None:
    """Return the student's line that mixed the devices, if a line of theirs did."""
    return _line_of("used", reversed([*traceback.walk_tb(refused.__traceback__)]))


def _line_of(kind: str, calls: Iterable[tuple[FrameType, int]]) -> OnTheCpu | None:
    """Return the first line outside of libraries, and a tensor there on the device, if any."""
    own = (call for call in calls if not call[0].f_code.co_filename.startswith(LIBRARIES))
    frame, number = next(own, (None, 0))
    if frame is None:
        return None
    text = linecache.getline(frame.f_code.co_filename, number).strip()[:200]
    while frame.f_back is not None and frame.f_code.co_name in _INSIDE_OF_ANOTHER:
        frame = frame.f_back
    names = (_name_of(name, value) for name, value in frame.f_locals.items())
    return OnTheCpu(kind, text, next(filter(None, names), ""))


_INSIDE_OF_ANOTHER = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")


def _name_of(name: str, value: Any) -> str:
    """Return the expression for a tensor on the device that a variable holds, or ""."""
    if isinstance(value, list | tuple) and value:
        name, value = f"{name}[0]", value[0]
    return name if isinstance(value, _Moved) else ""


def _found_in(*trees: Any) -> tuple[bool, list[torch.Tensor]]:
    """Return whether the device or a tensor on it is among these, and all tensors on the CPU."""
    is_there, here, waiting = False, [], list(trees)
    for item in waiting:  # grows during the loop
        if isinstance(item, torch.Tensor):
            if isinstance(item, _Moved) or item.device.type == NAME:
                is_there = True
            else:
                here.append(item)
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, torch.device | str):
            is_there |= str(item).partition(":")[0] == NAME
    return is_there, here


class _Computing(TorchDispatchMode):
    """Compute with the numbers of the moved tensors."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> Any:
        homes: dict[int, torch.Tensor] = {}
        staying = []

        def numbers_of(tensor: torch.Tensor) -> torch.Tensor:
            if isinstance(tensor, _Moved):
                homes[id(tensor.numbers)] = tensor
                return tensor.numbers
            if tensor.device.type == NAME:  # a constant, or made where no mode was active
                numbers = torch.zeros(tensor.shape, dtype=tensor.dtype)
                homes[id(numbers)] = _Moved(numbers)
                return numbers
            if tensor.dim():
                staying.append(tensor)
            return tensor

        given = [_mapped(value, numbers_of) for value in args]
        options = {name: _mapped(value, numbers_of) for name, value in (kwargs or {}).items()}
        if homes and staying:
            name = func.overloadpacket.__name__
            if name not in _MIXING or (name == "index" and not isinstance(args[0], _Moved)):
                raise Refused
        device = options.get("device")
        goes = bool(homes) if device is None else torch.device(device).type == NAME
        if goes and device is not None:
            options["device"] = torch.device("cpu")
        results = func(*given, **options)
        if not goes:
            return results
        if torch.Tag.inplace_view in func.tags:  # such as `squeeze_`; change the shape here, too
            with no_dispatch():
                func(*args, **(kwargs or {}))

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            if tensor._is_zerotensor():  # forward-mode derivatives make them, without a storage
                tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
            return _Moved(tensor)

        # In-place operations return the same tensor object.
        return _mapped(results, lambda t: homes[id(t)] if id(t) in homes else moved(t))


class _Moved(torch.Tensor):
    """A tensor on the device; `numbers` holds its numbers."""

    def __new__(cls, numbers: torch.Tensor) -> Self:
        options = {"dtype": numbers.dtype, "device": NAME, "requires_grad": False}
        given = cls, numbers.shape, numbers.stride()
        if not torch.is_inference_mode_enabled():
            return torch.Tensor._make_wrapper_subclass(*given, **options)
        with torch.inference_mode(False):  # otherwise autograd accepts no views of it
            return torch.Tensor._make_wrapper_subclass(*given, **options)

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


def _mapped(tree, change) -> Any:
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, list | tuple):
        return type(tree)([_mapped(item, change) for item in tree])
    return tree
