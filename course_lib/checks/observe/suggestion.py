"""What an exception says, with the name that was probably meant.

Python adds that name where it prints a traceback, for a module as large as torch not even there.
Runs beside the student's code: standard library only.
"""

import builtins
import contextlib
import difflib
import functools

_CLOSE = 0.7


def message_of(error: BaseException) -> str:
    """The message of an exception; "" where it cannot be printed."""
    try:
        text = str(error)
    except BaseException:
        return ""
    near = ""
    with contextlib.suppress(BaseException):  # an object may be asked which names it has
        near = _near(error)
    return f"{text.rstrip('.')}. Did you mean: '{near}'?" if near else text


def _near(error: BaseException) -> str:
    """A name close to the one that was not found; "" if there is none, or nothing was missing."""
    kind = type(error)
    if not issubclass(kind, AttributeError | NameError) or not isinstance(error.name, str):
        return ""
    names = dir(error.obj) if issubclass(kind, AttributeError) else _seen_by(error)
    if error.name in names:
        return ""
    shown = [n for n in names if not n.startswith("_") or error.name.startswith("_")]
    return _closest(error.name, tuple(shown))


@functools.lru_cache(maxsize=16)  # an answer fails with every problem of a check alike
def _closest(name: str, names: tuple[str, ...]) -> str:
    return next(iter(difflib.get_close_matches(name, names, 1, _CLOSE)), "")


def _seen_by(error: NameError) -> list[str]:
    """The names that the line could have used."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    return sorted({*frame.f_locals, *frame.f_globals, *vars(builtins)})
