"""Show one sentence in place of a traceback that would not help the reader.

A stub raises a NotImplementedError without a message, and its traceback shows only the stub. An
error of the course, such as a model that cannot be downloaded, is a sentence that names the fix.
"""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Any

from course_lib.exercises import names
from course_lib.workspace.errors import CourseError


def show_sentences(shell: Any) -> None:
    """Make an IPython shell show one sentence for a stub and for an error of the course."""
    shell.set_custom_exc((NotImplementedError, CourseError), _show)


def _show(
    shell: Any, kind: type, error: BaseException, trace: TracebackType, tb_offset: int | None = None
) -> None:
    frame = [frame for frame, _ in traceback.walk_tb(trace)][-1]
    name = frame.f_code.co_qualname.partition(".")[0]
    said = str(error)
    if not said and name in names() and frame.f_globals is shell.user_ns:
        said = f"`{name}` is still to be written: do its exercise, then run this cell again."
        error.args = (said,)  # front ends and nbconvert show it, too
    elif not isinstance(error, CourseError):
        shell.showtraceback((kind, error, trace), running_compiled_code=True)
        return
    shell._showtraceback(kind, error, [said])
