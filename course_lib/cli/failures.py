"""End a verb that cannot go on with one sentence instead of a traceback."""

import _thread
import contextlib
import io
import os
import shlex
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator

from course_lib.workspace.errors import long_tmpdir, of_pythonpath
from course_lib.workspace.full_disk import full_disk


def explained(error: Exception) -> str:
    """Describe an unexpected error and say what to do, or where to read the details."""
    if found := full_disk(error):
        return f"{found}; make room and run the same command again. Finished work is kept"
    if isinstance(error, OSError) and error.filename is not None:
        remedy = "check that it exists and that you may read and write it"
        return f"{os.fsdecode(error.filename)}: {error.strerror}; {remedy}"
    if "AF_UNIX path too long" in str(error) and (found := long_tmpdir()):
        return f"{found}, and call again"
    if found := of_pythonpath(error):
        return f"{found} and call again"
    text = "".join(traceback.format_exception(error))
    what = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    what = what.encode(errors="backslashreplace").decode()
    failed = (
        f"an error in the course itself ({what[:300]}); finished work is kept. Please report it"
    )
    try:
        descriptor, log = tempfile.mkstemp(prefix="course-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{shlex.join(sys.argv)}\n{text}")
    except OSError as problem:
        return f"{failed}. No log could be written: {full_disk(problem) or problem}"
    return f"{failed} with {log}"


@contextlib.contextmanager
def no_lost_interrupt() -> Iterator[None]:
    """Deliver Ctrl-C even in destructors and weakref callbacks, where Python drops it."""
    before = sys.unraisablehook

    def hook(unraisable) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            threading.Timer(0.05, _interrupt).start()  # a hook cannot raise
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _interrupt() -> None:
    thread = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and thread is not None:  # interrupts a blocking call
        signal.pthread_kill(thread, signal.SIGINT)
    else:
        _thread.interrupt_main()


def print_anything() -> None:
    """Escape characters that the encoding of stdout or stderr lacks, such as cp1252 on Windows."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flushed(code: int) -> int:
    """Flush the output. A reader that closed the pipe, as `head` does, is not an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # Python flushes once more when it ends
        os.dup2(nowhere, sys.stdout.fileno())
        return code or 1
    return code
