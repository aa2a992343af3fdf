"""Watches how a student's code works while it runs: torch calls, and solutions that take part.

Runs beside the student's code: standard library and torch only.
"""

import collections
import contextlib
import inspect
import os
import sys
import types
from cProfile import Profile
from typing import Any, Self

from torch.overrides import TorchFunctionMode

COURSE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_SOLUTIONS = tuple(os.path.join(COURSE, package, "") for package in ("attention", "fused"))


class Calls(TorchFunctionMode):
    """Counts the torch functions called, which doubles the time that small ones take."""

    def __init__(self) -> None:
        super().__init__()
        self.names: collections.Counter[str] = collections.Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None) -> Any:
        name = getattr(func, "__name__", type(func).__name__)
        if name not in ("__get__", "__set__"):
            self.names[name] += 1
        return func(*args, **(kwargs or {}))


class Watch:
    """Notes which of the course's solutions ran.

    The profiler is the one written in C: calling a hook of ours for each event would take as long
    as all else that is observed.
    """

    def __init__(self) -> None:
        self.own: set[str] = set()
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
                self.own.add(code.co_qualname.split(".")[0])
