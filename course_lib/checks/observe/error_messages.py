"""Return the message of an exception, with the name that was probably meant.

Python adds such a name only when it prints a traceback, and not for modules as large as torch. This
runs beside the student's code and uses only the standard library.
"""

import builtins
import contextlib
import difflib
import functools
import traceback

_CLOSE = 0.7


def message_of(error: BaseException | str) -> str:
    """Return the message of an exception or a warning, or "" if it cannot be printed."""
    try:
        text = str.__str__(str(error))  # not a subclass, whose methods may raise
    except BaseException:
        return ""
    near = ""
    with contextlib.suppress(BaseException):  # `dir` may run the student's code
        near = _near(error) if isinstance(error, BaseException) else ""
    return f"{text.rstrip('.')}. Did you mean: '{near}'?" if near else text


def _near(error: BaseException) -> str:
    """Return a name close to the missing one, or "" if there is none."""
    kind = type(error)  # `__class__` may lie
    if not issubclass(kind, AttributeError | NameError):
        return ""
    name = getattr(error, "name", None)
    if not isinstance(name, str):
        return ""
    is_attribute = issubclass(kind, AttributeError)
    names = dir(getattr(error, "obj", None)) if is_attribute else _seen_by(error)
    if name in names:
        return ""
    shown = [n for n in names if not n.startswith("_") or name.startswith("_")]
    return _closest(name, tuple(shown))


@functools.lru_cache(maxsize=16)  # all probes of a check often fail alike
def _closest(name: str, names: tuple[str, ...]) -> str:
    return next(iter(difflib.get_close_matches(name, names, 1, _CLOSE)), "")


def _seen_by(error: BaseException) -> list[str]:
    """Return the names in scope at the line that raised the error."""
    *_, frame = (None, *(frame for frame, _ in traceback.walk_tb(error.__traceback__)))
    if frame is None:
        return []
    return sorted({*frame.f_locals, *frame.f_globals, *vars(builtins)})
