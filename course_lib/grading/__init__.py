"""Grading a class: every submission once, whatever happens.

    submitted/ -> plan: intake, rebuild -> executors: runner (kernel, judging) -> ledger -> publish

`plan` decides what a submission needs: `intake` reads it without trust, `rebuild` pours its
answers into the release. A `runner` runs them in a kernel (`submission_kernel`, `kernels`) and
judges what it shows (`judging`). `publish` writes what nbgrader would. `graded_cells` says what a
check cell is worth, `graded` holds a graded submission from there on, `read_grades` reads one
back, `class_report`, `class_table` and `exports` show it and pass it on. docs/architecture.md has
the picture.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "ExportRequest": "exports",
    "GradedLesson": "graded",
    "Settings": "run",
    "demo": "demo_course",
    "export": "exports",
    "grade": "run",
    "write_report": "class_report",
}

__all__ = sorted(_PUBLIC)  # pyright: ignore[reportUnsupportedDunderAll] (from the table)


def __getattr__(name: str) -> Any:
    """Import late: nbgrader alone takes more than a second."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    globals()[name] = value  # a submodule of the same name must not shadow the function
    return value
