"""Lesson text to notebooks: `course build` and `course build --check`.

One direction only: percent-format text -> executed nbgrader source notebook -> student release.
read (text -> cells), paste (solution source), assemble (cells -> notebook), execute (outputs),
release (stock nbgrader), builder (what is stale, put in place).
"""

import importlib
from typing import Any

_HOME = {
    "BuildResult": "builder",
    "Course": "inputs",
    "Drift": "builder",
    "build": "builder",
    "check_build": "builder",
    "check_release": "builder",
    "pasted_source": "paste",
    "solution_source": "paste",
}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll] (from the table)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
