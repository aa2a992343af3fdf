"""Tell from an error that a disk is full, and which one."""

import errno
import os
import shutil
import tempfile

_FULL = (errno.ENOSPC, errno.EDQUOT)
# Some errors about full disks have only a message, such as those of SQLite, shutil and tempfile.
_SAY_FULL = ("disk is full", "No usable temporary", *map(os.strerror, _FULL))


def full_disk(error: BaseException | None) -> str | None:
    """Return which disk is full if that caused an error, or None."""
    while error is not None:
        is_full = False
        if isinstance(error, OSError) and (is_full := error.errno in _FULL) and error.filename:
            return f"the disk of {os.fsdecode(error.filename)} is full"
        if is_full or any(text in str(error) for text in _SAY_FULL):
            folders = os.getcwd(), tempfile.tempdir or os.environ.get("TMPDIR", "")
            free = {one: shutil.disk_usage(one).free for one in folders if os.path.isdir(one)}
            folder = min(free, key=free.__getitem__)
            return f"a disk is full, probably that of {folder} ({free[folder] / 1e6:.1f} MB free)"
        error = error.__cause__ or error.__context__
    return None
