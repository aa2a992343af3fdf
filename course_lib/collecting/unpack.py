"""Unpack a download from an LMS. Archives that students handed in may be hostile.

A member of an archive is written under a new name, so the name in the archive never becomes a path.
"""

import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC, EROFS
from pathlib import Path
from typing import IO, NamedTuple

from course_lib.grading.intake.ordinary_files import MAX_BYTES
from course_lib.grading.intake.submissions import LEFT_BY_PROGRAMS
from course_lib.workspace.text import one_line

MAX_ARCHIVE = 50_000_000  # bytes of an archive inside another; also bounds its table of contents
MAX_DEPTH = 3  # levels of archives inside archives
_MAX_FOLDERS = 50  # levels of folders, because Python walks through them by recursion
CONCERNS_ALL = (ENOSPC, EDQUOT, EROFS)  # other errors concern one file
Parts = tuple[str, ...]  # a path in the download


class Found(NamedTuple):
    """A file of a download, or the reason why it is left out."""

    path: Path = Path()
    changed: float = 0.0  # the time that a student's archive gives, or 0
    problem: str = ""


@dataclass
class Room:
    """The size that may still be unpacked from a student's archive and the archives in it."""

    files: int = 5_000
    bytes: int = 500_000_000


class _LeftOutError(Exception):
    """A part of an archive is not unpacked. The arguments are those of `_leave_out`."""


class Download:
    """The files of a folder or an archive by their paths in it. Archives in it become folders.

    Links and files beyond a limit are left out with a reason. Files that systems, editors and
    Jupyter put beside the work are left out without one.

    Args:
        source: the folder or the archive. It is only read.
        scratch: an empty folder for what is unpacked.
    """

    def __init__(self, source: Path, scratch: Path) -> None:
        self.files: dict[Parts, Found] = {}
        self._scratch = scratch
        if source.is_dir():
            self._add_folder(source)
        else:
            room = Room(1_000_000, shutil.disk_usage(scratch).free)
            self._attempt((), self._unpack, source, (), room, 0)

    def _add_folder(self, source: Path) -> None:
        def refused(error: OSError) -> None:
            parts = Path(error.filename).relative_to(source).parts
            self._leave_out(parts, f"cannot be read ({error.strerror})")

        for folder, folders, names in os.walk(source, onerror=refused):
            parts = Path(folder).relative_to(source).parts
            folders[:] = [name for name in folders if not LEFT_BY_PROGRAMS.fullmatch(name)]
            if folders and len(parts) >= _MAX_FOLDERS:
                self._leave_out((*parts, folders[0]), f"lies in more than {_MAX_FOLDERS} folders")
                folders.clear()
            for name in (name for name in names if not LEFT_BY_PROGRAMS.fullmatch(name)):
                path, place = Path(folder, name), (*parts, name)
                self.files[place] = Found(path)
                if path.suffix.lower() == ".zip" and path.is_file() and not path.is_symlink():
                    del self.files[place]
                    self._attempt(place, self._unpack, path, place, Room(), 1)

    def _attempt(self, parts: Parts, step: Callable[..., None], *arguments: object) -> None:
        """Run a step of unpacking, and leave out its files if the step fails.

        A full disk raises. Any other exception is a fault of the file, because zipfile raises many
        types of exceptions for damaged files.
        """
        try:
            step(*arguments)
        except _LeftOutError as error:
            self._leave_out(parts, *error.args)
        except Exception as error:
            why = "is damaged"
            if isinstance(error, OSError) and error.errno:
                if error.errno in CONCERNS_ALL:
                    raise
                why = f"cannot be read ({error.strerror})"
            self._leave_out(parts, why)

    def _leave_out(
        self, parts: Parts, why: str, remedy: str = "ask for the notebook itself"
    ) -> None:
        name = one_line(parts[-1]) if parts else "the download"
        remedy = remedy if parts else "download it again"
        self.files[parts] = Found(problem=f"{name} {why}: {remedy}")

    def _unpack(self, file: Path | IO[bytes], parts: Parts, room: Room, depth: int) -> None:
        """Unpack an archive; `depth` 0 is the LMS's own archive."""
        before = len(self.files)
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                name = member.filename.replace("\\", "/")
                names = [part for part in name.split("/") if part not in ("", ".", "..")]
                if not names or name[-1] == "/" or any(map(LEFT_BY_PROGRAMS.fullmatch, names)):
                    continue
                room.files -= 1
                if room.files < 0 or room.bytes < member.file_size <= MAX_BYTES:
                    raise _LeftOutError("holds too much to be unpacked")
                place = (*parts, *names)
                self._attempt(place, self._take, archive, member, place, room, depth)
        if len(self.files) == before:  # its owner would be in no line
            raise _LeftOutError("holds no file")

    def _take(
        self,
        archive: zipfile.ZipFile,
        member: zipfile.ZipInfo,
        place: Parts,
        room: Room,
        depth: int,
    ) -> None:
        """Write one file of an archive, or unpack it."""
        is_archive = place[-1].lower().endswith(".zip")
        size, most = member.file_size, MAX_ARCHIVE if is_archive else MAX_BYTES
        if member.external_attr >> 28 not in (0, 0o10):  # the file type on Unix
            raise _LeftOutError("is a link or no ordinary file")
        if member.flag_bits & 1:
            raise _LeftOutError("has a password")
        if size > most:
            why = f"has {size / 1e6:,.0f} MB, more than {most / 1e6:.0f}"
            raise _LeftOutError(why, "ask for it with its outputs cleared")
        if is_archive and depth == MAX_DEPTH:
            raise _LeftOutError("lies in too many archives")
        room.bytes -= size
        with (
            archive.open(member) as packed,
            tempfile.NamedTemporaryFile(dir=self._scratch, delete=is_archive) as file,
        ):
            shutil.copyfileobj(packed, file)
            if is_archive:
                self._unpack(file, place, room if depth else Room(), depth + 1)
                return
        # Files that an LMS packs carry the time of the download.
        changed = time.mktime((*member.date_time, 0, 0, -1)) if depth else 0.0
        self.files[place] = Found(Path(file.name), changed)
