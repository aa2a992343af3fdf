"""Say which exercise is still to be written, if a cell calls a stub.

A stub raises a NotImplementedError without a message, and its traceback shows only the stub.
"""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Any

from course_lib.exercises import names


def name_unwritten_exercises(shell: Any) -> None:
    """Make an IPython shell show one sentence in place of the traceback of a stub."""
    shell.set_custom_exc((NotImplementedError,), _show)


def _show(
    shell: Any, kind: type, error: BaseException, trace: TracebackType, tb_offset: int | None = None
) -> None:
    frame = [frame for frame, _ in traceback.walk_tb(trace)][-1]
    name = frame.f_code.co_qualname.partition(".")[0]
    if str(error) or name not in names() or frame.f_globals is not shell.user_ns:
        shell.showtraceback((kind, error, trace), running_compiled_code=True)
        return
    said = f"`{name}` is still to be written: do its exercise, then run this cell again."
    error.args = (said,)  # front ends and nbconvert show it, too
    shell._showtraceback(kind, error, [said])
