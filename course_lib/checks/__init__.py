"""The check engine: observe a student's object, judge what was observed, say what went wrong.

Everything here is loaded on first use, so that `course_lib.checks.observe` can be imported beside
student code without bringing the judge, the oracle or the catalogue into that process.
"""

import importlib

_HOMES = {
    "check": "session",
    "carry_on": "session",
    "hint": "session",
    "progress": "session",
    "grade": "verdict",
    "exercises": "catalogue",
    "lessons": "catalogue",
    "Report": "report",
    "Finding": "report",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__
