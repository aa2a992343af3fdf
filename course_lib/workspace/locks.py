"""A lock between processes that the operating system frees however its holder ends.

Use only the standard library here: `course_lib.setup.bootstrap` runs before anything is installed.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def only_one(path: Path, *, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock file `path`; call `waiting` once if another process holds it."""
    with path.open("a") as file:
        if not _try_lock(file.fileno()):
            waiting()
            while not _try_lock(file.fileno()):
                time.sleep(0.2)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
