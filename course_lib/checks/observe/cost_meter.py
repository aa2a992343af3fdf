"""Measure what a student's code does while it runs: torch calls, Python steps, bytes and functions.

`Watch` notes which of the course's solutions take part. This module runs beside the student's code,
so it imports the standard library and torch only.
"""

import collections
import contextlib
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable
from cProfile import Profile
from typing import Any, Self

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

COURSE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_SOLUTIONS = tuple(os.path.join(COURSE, package, "") for package in ("attention", "fused"))


class Calls(TorchFunctionMode):
    """Count the torch functions called, which doubles the time that small ones take."""

    def __init__(self) -> None:
        super().__init__()
        self.names: collections.Counter[str] = collections.Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:
        name = getattr(func, "__name__", type(func).__name__)
        if name not in ("__get__", "__set__"):
            self.names[name] += 1
        return func(*args, **(kwargs or {}))


class Watch:
    """Note which of the course's solutions ran.

    The profiler is the one written in C: calling a hook of ours for each event would take as long
    as all else that is observed.
    """

    def __init__(self) -> None:
        self.solutions: set[str] = set()
        self._profiler = Profile(subcalls=False, builtins=False)

    def __enter__(self) -> Self:
        self._previous = sys.getprofile()
        with contextlib.suppress(ValueError):  # Python 3.12 allows one, and there is another
            self._profiler.enable()
        return self

    def __exit__(self, *exc_info) -> None:
        self._profiler.disable()
        if isinstance(self._previous, Profile):
            self._previous.enable()
        elif self._previous is not None:
            sys.setprofile(self._previous)
        for entry in self._profiler.getstats():
            code = entry.code
            if not isinstance(code, types.CodeType) or not code.co_flags & inspect.CO_OPTIMIZED:
                continue  # written in C, or what an import runs
            if code.co_filename.startswith(_SOLUTIONS):
                self.solutions.add(code.co_qualname.split(".")[0])


_PATHS = sysconfig.get_paths()
LIBRARIES = tuple({_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Steps:
    """Count the Python steps of a student's code, so that a loop shows even where torch sees none.

    A step is a line that runs, or a jump back to one, outside the libraries. A loop over plain
    numbers, a comprehension and a recursion all take more steps for a larger input, and one call
    for everything does not. `count` holds the steps after the `with` block.

    Args:
        ours: folders besides the libraries whose lines are not the student's.
    """

    def __init__(self, ours: tuple[str, ...]):
        self.count, self._ours = 0, (*LIBRARIES, *ours, "<frozen")

    def __enter__(self) -> Self:
        self._previous = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc_info) -> None:
        # coverage counts lines as we do, so it counts none while we do
        sys.settrace(self._previous)  # pragma: no cover - coverage is off here

    def _trace(self, frame, event, _arg) -> Callable | None:  # pragma: no cover - so it is here
        if event == "call" and frame.f_code.co_filename.startswith(self._ours):
            return None
        self.count += event in ("call", "line")
        return self._trace


# fmt: off
_FUNCTIONS = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "elu", "erf",
    "erfc", "erfinv", "exp", "exp2", "expm1", "gelu", "glu", "lgamma", "log", "log10", "log1p",
    "log2", "log_sigmoid_forward", "logaddexp", "logaddexp2", "logcumsumexp", "logit",
    "logsumexp", "mish", "pow", "sigmoid", "silu", "sin", "sinh", "softplus", "tan", "tanh",
    "_softmax", "_log_softmax",
}
# fmt: on
_CHEAP_POWERS = (-2, -1, -0.5, 0.5, 1, 2, 3)  # torch multiplies, divides and takes roots


class Spending(TorchDispatchMode):
    """Measure the memory and the exp-like functions of the torch operations in a `with` block.

    Every operation counts, in the forward and in the backward pass, wherever in Python it is
    called. Views cost nothing, and neither does what was there before.

    Args:
        free: tensors that were there before, also in lists and dicts.

    Attributes:
        peak: the most bytes that were alive at once, beyond the free ones.
        functions: of how many numbers exp, tanh and their like were taken.
    """

    def __init__(self, free: Iterable = ()):
        super().__init__()
        self.peak, self.functions = 0, 0
        self._free = {storage._cdata: storage for storage in map(_storage, _tensors(*free))}
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}  # some are over by now
        self._at_most = 0  # bytes of all in there

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, a second's work, to tell it to keep out

    def alive(self) -> int:
        """Return the bytes that are alive now."""
        self._alive = {k: (ref, n) for k, (ref, n) in self._alive.items() if not ref.expired()}
        self._at_most = sum(size for _, size in self._alive.values())
        return self._at_most

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> Any:
        results = func(*args, **(kwargs or {}))
        made = _tensors(results)
        name = func.overloadpacket.__name__.rstrip("_")
        if name in _FUNCTIONS and not (name == "pow" and _is_cheap(args[1])):
            self.functions += sum(tensor.numel() for tensor in made)
        for storage in map(_storage, made + _tensors(*args, kwargs)):
            key = storage._cdata
            if key not in self._free and key not in self._alive:
                self._alive[key] = StorageWeakRef(storage), storage.nbytes()
                self._at_most += storage.nbytes()
        if self._at_most > self.peak:  # to find out what is over takes long
            self.peak = max(self.peak, self.alive())
        return results


def _tensors(*trees) -> list[torch.Tensor]:
    """Return the tensors among these and in nested lists, tuples and dicts."""
    found, waiting = [], list(trees)
    for item in waiting:  # which grows
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
    return found


def _is_cheap(exponent) -> bool:
    return not isinstance(exponent, torch.Tensor) and exponent in _CHEAP_POWERS


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
