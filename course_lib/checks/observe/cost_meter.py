"""Measure a student's running code: torch calls, Python steps, bytes and function evaluations.

This runs beside the student's code and uses only the standard library, NumPy and torch.
"""

import collections
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode

COURSE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


# Functions that take numbers out of torch, all at once or one by one.
OUT_OF_TORCH = frozenset({"__array__", "__dlpack__", "numpy", "tolist"})
SINGLE_NUMBERS = frozenset({"__float__", "item"})


class Calls(TorchFunctionMode):
    """Count the torch functions called. This doubles the time of calls on small tensors.

    A name is that of the function. It omits the overload and any single underscores around the
    name. It ends in " of 3 axes" (or a higher number) if an argument has that many axes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: collections.Counter[str] = collections.Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:
        name = getattr(func, "__name__", type(func).__name__)
        if name not in ("__get__", "__set__"):
            name = name.partition(".")[0]
            name = name if name.startswith("__") else name.strip("_")
            axes = max((one.dim() for one in _tensors(*args, kwargs)), default=0)
            self.names[f"{name} of {axes} axes" if axes > 2 else name] += 1
        return func(*args, **(kwargs or {}))


# Where files lie that no student wrote.
LIBRARIES = (
    COURSE,
    os.path.dirname(os.__file__),
    os.path.dirname(os.path.dirname(torch.__file__)),
    *np.__path__,
    "<frozen",
)


LOST = -1  # the number of steps if Python stopped counting, as after a RecursionError


class Steps:
    """Count the lines of a student's code that run, which also reveals loops over plain numbers.

    With `calls`, also count the torch functions in code that torch calls back, such as a hook.
    torch suspends its modes in such code. Without `lines`, count only the student's functions that
    run.
    """

    def __init__(self, calls: Calls | None = None, *, lines: bool = True) -> None:
        self.count, self._calls, self._lines = 0, calls, lines
        self._called_back: list = []  # frames in which `calls` was resumed

    def __enter__(self) -> Self:
        self._previous = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc_info) -> None:
        if sys.gettrace() != self._trace:  # pragma: no cover - coverage uses this hook, too
            self.count = LOST
        sys.settrace(self._previous)  # pragma: no cover - so it pauses meanwhile
        while self._called_back:
            self._end_of(self._called_back[-1])

    def _trace(self, frame, event, _arg) -> Callable | None:  # pragma: no cover - as above
        if event == "call":
            if frame.f_code.co_filename.startswith(LIBRARIES):
                return None
            frame.f_trace_lines = self._lines
            if self._calls is not None and self._calls not in _get_current_function_mode_stack():
                self._calls.__enter__()
                self._called_back.append(frame)
        elif event == "return" and frame in self._called_back:
            self._end_of(frame)
        self.count += event in ("call", "line")
        return self._trace

    def _end_of(self, frame) -> None:
        assert self._calls is not None
        self._called_back.remove(frame)
        self._calls.__exit__(None, None, None)


# fmt: off
_FUNCTIONS = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "elu", "erf",
    "erfc", "erfinv", "exp", "exp2", "expm1", "gelu", "glu", "lgamma", "log", "log10", "log1p",
    "log2", "log_sigmoid_forward", "logaddexp", "logaddexp2", "logcumsumexp", "logit",
    "logsumexp", "mish", "pow", "sigmoid", "silu", "sin", "sinh", "softplus", "tan", "tanh",
    "_softmax", "_log_softmax",
}
# fmt: on
_CHEAP_POWERS = (-2, -1, -0.5, 0.5, 1, 2, 3)  # torch uses products, quotients and roots


class Spending(TorchDispatchMode):
    """Measure the memory and the exp-like functions of the torch operations in a `with` block.

    `peak` is the most bytes that were alive at once. Views and the tensors in `free` cost nothing.
    """

    def __init__(self, free: Iterable = ()):
        super().__init__()
        self.peak, self.functions = 0, 0
        self._free = {storage._cdata: storage for storage in map(_storage, _tensors(*free))}
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}  # may include freed ones
        self._at_most = 0  # bytes of all in `_alive`

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes a second

    def alive(self) -> int:
        """Return the bytes that are alive now."""
        self._alive = {k: (ref, n) for k, (ref, n) in self._alive.items() if not ref.expired()}
        self._at_most = sum(size for _, size in self._alive.values())
        return self._at_most

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> Any:
        results = func(*args, **(kwargs or {}))
        made = _tensors(results)
        name = func.overloadpacket.__name__.rstrip("_")
        power = args[1] if name == "pow" else None
        is_cheap = not isinstance(power, torch.Tensor) and power in _CHEAP_POWERS
        if name in _FUNCTIONS and not is_cheap:
            self.functions += sum(tensor.numel() for tensor in made)
        for storage in map(_storage, made + _tensors(*args, kwargs)):
            key = storage._cdata
            if key not in self._free and key not in self._alive:
                self._alive[key] = StorageWeakRef(storage), storage.nbytes()
                self._at_most += storage.nbytes()
        if self._at_most > self.peak:  # counting freed ones is slow
            self.peak = max(self.peak, self.alive())
        return results


def _tensors(*trees) -> list[torch.Tensor]:
    """Return the tensors among these and in nested lists, tuples and dicts."""
    found, waiting = [], list(trees)
    for item in waiting:  # grows during the loop
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
    return found


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
