"""Grading a class: intake -> run -> judge -> record -> report.

`intake` finds submissions and reads them without trust, `rebuild` pours the answers into
the release, `run` drives nbgrader's own converters, `verdict` says what a check cell is
worth, `records` reads everything back as rows, `report` and `demo` show it, `exports` hands it on.
"""

from importlib import import_module

_PUBLIC = {
    "ExportRequest": "exports",
    "GradeSummary": "records",
    "GradingError": "intake",
    "demo": "demo_course",
    "export": "exports",
    "grade": "run",
    "write_report": "report",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    """Import late: nbgrader alone takes more than a second."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    globals()[name] = value  # a submodule of the same name must not shadow the function
    return value
