"""Counts what torch spends while a student's code runs: bytes alive at once, functions evaluated.

Runs beside the student's code: standard library and torch only. Every operation passes by, in the
forward and in the backward pass, whatever it is called from Python; views cost nothing, and what
was there before costs nothing either.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

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
    """Context manager that notes what the torch operations within cost.

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
        """The bytes that are alive now."""
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
    """The tensors among these and in nested lists, tuples and dicts."""
    found, waiting = [], list(trees)
    for item in waiting:  # which grows
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, _GROUPS):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
    return found


_GROUPS = (list, tuple)


def _is_cheap(exponent) -> bool:
    return not isinstance(exponent, torch.Tensor) and exponent in _CHEAP_POWERS


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
