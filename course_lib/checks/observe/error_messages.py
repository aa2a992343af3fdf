"""What an exception says, with the name that was probably meant.

Python adds that name where it prints a traceback, for a module as large as torch not even there.
Runs beside the student's code: standard library only.
"""

import builtins
import contextlib
import difflib
import functools
import traceback

_CLOSE = 0.7


def message_of(error: BaseException) -> str:
    """Return the message of an exception; "" where it cannot be printed."""
    try:
        text = str(error)
    except BaseException:
        return ""
    near = ""
    with contextlib.suppress(BaseException):  # an object may be asked which names it has
        near = _near(error)
    return f"{text.rstrip('.')}. Did you mean: '{near}'?" if near else text


def _near(error: BaseException) -> str:
    """Return a name close to the one that was not found, or "" if there is none."""
    kind = type(error)  # the object itself is not asked what it is: its class may lie
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


@functools.lru_cache(maxsize=16)  # an answer fails alike with every probe of a check
def _closest(name: str, names: tuple[str, ...]) -> str:
    return next(iter(difflib.get_close_matches(name, names, 1, _CLOSE)), "")


def _seen_by(error: BaseException) -> list[str]:
    """Return the names in scope where the error was raised."""
    *_, frame = (None, *(frame for frame, _ in traceback.walk_tb(error.__traceback__)))
    if frame is None:
        return []
    return sorted({*frame.f_locals, *frame.f_globals, *vars(builtins)})
