"""Grading a class: every submission once, whatever happens.

    submitted/ -> intake, rebuild -> executors: runner (kernels, judge) -> ledger -> landing

`intake` reads without trust, `rebuild` pours the answers into the release, a `runner` runs them
in a kernel (`kernels`: zygote, sandbox) and judges what it shows, `landing` writes what nbgrader
would. `verdict` says what a check cell is worth, `records` reads everything back, `report`, `demo`
and `exports` show it and hand it on.
"""

from importlib import import_module

_PUBLIC = {
    "ExportRequest": "exports",
    "GradeSummary": "records",
    "Settings": "run",
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
