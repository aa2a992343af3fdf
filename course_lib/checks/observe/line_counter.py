"""Counts the Python steps of a student's code, so that a loop shows even where torch sees none.

Runs beside the student's code: standard library only. A step is a line that runs, or a jump back
to one, outside the libraries; a loop over plain numbers, a comprehension and a recursion all
make more of them for a larger problem, one call for everything does not.
"""

import sys
import sysconfig
from collections.abc import Callable
from typing import Self

_PATHS = sysconfig.get_paths()
LIBRARIES = tuple({_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class Steps:
    """Context manager; `count` holds the steps afterwards.

    Args:
        enabled: without it nothing is counted and nothing slowed down.
        ours: folders besides the libraries whose lines are not the student's.
    """

    def __init__(self, enabled: bool, ours: tuple[str, ...]):
        self.count, self.enabled, self._ours = 0, enabled, (*LIBRARIES, *ours, "<frozen")

    def __enter__(self) -> Self:
        self._previous = sys.gettrace()
        if self.enabled:
            sys.settrace(self._trace)
        return self

    def __exit__(self, *exc_info) -> None:
        if self.enabled:  # coverage counts lines as we do, so it counts none while we do
            sys.settrace(self._previous)  # pragma: no cover - coverage is off here

    def _trace(self, frame, event, _arg) -> Callable | None:  # pragma: no cover - so it is here
        if event == "call" and frame.f_code.co_filename.startswith(self._ours):
            return None
        self.count += event in ("call", "line")
        return self._trace
