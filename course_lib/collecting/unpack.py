"""Unpack a download from an LMS. Archives that students handed in may be hostile."""

import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from nbgrader.plugins import ExtractorPlugin

from course_lib.grading.intake.ordinary_files import MAX_BYTES, one_line
from course_lib.grading.intake.submissions import LEFT_BY_PROGRAMS

MAX_ARCHIVE = 50_000_000  # bytes of an archive inside another; also bounds its table of contents
MAX_DEPTH = 3  # levels of archives inside archives
MAX_FOLDERS = 50  # levels of folders, because Python walks through them by recursion
_LARGE = "has {:,.0f} MB, more than {:.0f}: ask for it with its outputs cleared"
_LINK = "is a link or no ordinary file: ask for the file itself"
_DEEP = f"lies in more than {MAX_FOLDERS} folders: ask for the notebook itself"
CONCERNS_ALL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # other errors concern one file
_REFUSED = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EACCES, errno.EPERM, errno.EIO)


@dataclass
class Room:
    """The size that may still be unpacked from a student's archive and the archives in it."""

    files: int = 5_000
    bytes: int = 500_000_000


class _LeftOutError(Exception):
    """A part of an archive is not unpacked; the message says why."""


class SafeExtractor(ExtractorPlugin):
    """nbgrader's extractor with limits, for `course collect` and `nbgrader zip_collect`.

    An archive becomes a folder of the same name. Links, paths that lead out of the archive and
    files beyond a limit are left out, and so are files that systems, editors and Jupyter put beside
    the work. `problems` maps the path of each omission to its reason.
    """

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.problems: dict[Path, str] = {}

    def extract(self, archive_path: str, extracted_path: str) -> None:
        """Unpack the archives of a folder into another one, and copy all other files."""
        self.unpack_folder(Path(archive_path), Path(extracted_path), is_class=True)

    def unpack_folder(self, source: Path, into: Path, *, is_class: bool = False) -> None:
        """Unpack a folder. If `is_class`, archives directly in it may hold a whole class."""

        def refused(error: OSError) -> None:
            place = into / Path(error.filename).relative_to(source)
            self._leave_out(
                place, f"cannot be read ({error.strerror}): ask for the notebook itself"
            )

        into.mkdir(parents=True, exist_ok=True)
        for folder, folders, names in os.walk(source, onerror=refused):
            place = into / Path(folder).relative_to(source)
            folders[:] = [name for name in folders if not LEFT_BY_PROGRAMS.fullmatch(name)]
            if folders and len(place.relative_to(into).parts) >= MAX_FOLDERS:
                self._leave_out(place / folders[0], _DEEP)
                folders.clear()
            for path in (Path(folder, n) for n in names if not LEFT_BY_PROGRAMS.fullmatch(n)):
                if path.suffix.lower() == ".zip" and path.is_file() and not path.is_symlink():
                    self.unpack(path, place / path.name, is_class=is_class and place == into)
                else:
                    self._attempt(place / path.name, self._copy, path, place / path.name)

    def _copy(self, path: Path, place: Path) -> None:
        """Copy an ordinary file of a folder."""
        if path.is_symlink() or not path.is_file():
            raise _LeftOutError(_LINK)
        if (size := path.stat().st_size) > MAX_BYTES:
            raise _LeftOutError(_LARGE.format(size / 1e6, MAX_BYTES / 1e6))
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        os.utime(place, (0, 0))

    def unpack(self, archive: Path, place: Path, *, is_class: bool) -> None:
        """Unpack an archive, of a student or of a whole class, into a folder."""
        room = Room(1_000_000, shutil.disk_usage(place.parent).free) if is_class else Room()
        self._attempt(place, self._unpack, archive, place, room, 0 if is_class else 1)

    def _attempt(self, place: Path, step: Callable[..., None], *arguments: object) -> None:
        """Run a step of unpacking, and leave out its files if the step fails.

        A full disk raises. Any other exception is a fault of the file, because zipfile raises many
        types of exceptions for damaged files.
        """
        try:
            step(*arguments)
        except _LeftOutError as error:
            self._leave_out(place, str(error))
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            if number in CONCERNS_ALL:
                raise
            with contextlib.suppress(OSError, ValueError):
                place.unlink()  # remove what was written of the file
            why = "is damaged or has a password"
            if number in _REFUSED:
                why = f"cannot be read or stored here ({os.strerror(number)})"
            self._leave_out(place, f"{why}: ask for the notebook itself")

    def _leave_out(self, place: Path, why: str) -> None:
        self.log.info("%s %s", place, why)
        self.problems.setdefault(place, f"{one_line(place.name)} {why}")

    def _unpack(self, file: Path | IO[bytes], place: Path, room: Room, depth: int) -> None:
        """Unpack an archive into a folder; `depth` 0 is the LMS's own archive."""
        place.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                name = member.filename.replace("\\", "/")
                parts = PurePosixPath(name).parts
                if not parts:
                    self._leave_out(place / "..", "has a file without a name")
                elif ".." in parts or re.match(r"/|[A-Za-z]:/", name):
                    self._leave_out(place / "..", "is a path that leads out of its archive")
                elif len(parts) > MAX_FOLDERS:
                    self._leave_out(place / parts[0], _DEEP)
                elif not (name.endswith("/") or any(map(LEFT_BY_PROGRAMS.fullmatch, parts))):
                    inner = place.joinpath(*parts)
                    room.files -= 1
                    if room.files < 0 or room.bytes < member.file_size <= MAX_BYTES:
                        raise _LeftOutError("holds too much to be unpacked: ask for the notebook")
                    self._attempt(inner, self._take, archive, member, inner, room, depth)
        told = any(one.is_relative_to(place) for one in self.problems)
        if not (told or any(place.iterdir())):  # its owner would be in no line
            raise _LeftOutError("holds no file: ask for the notebook itself")

    def _take(
        self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: Path, room: Room, depth: int
    ) -> None:
        """Write one file of an archive, or unpack it."""
        is_archive = place.suffix.lower() == ".zip"
        size, most = member.file_size, MAX_ARCHIVE if is_archive else MAX_BYTES
        if member.external_attr >> 28 not in (0, 0o10):  # the file type on Unix
            raise _LeftOutError(_LINK)
        if size > most:
            raise _LeftOutError(_LARGE.format(size / 1e6, most / 1e6))
        if is_archive and depth == MAX_DEPTH:
            raise _LeftOutError("lies in too many archives: ask for the notebook itself")
        room.bytes -= size
        place.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(member) as packed:
            if is_archive:
                with tempfile.TemporaryFile() as file:
                    shutil.copyfileobj(packed, file)
                    self._unpack(file, place, room if depth else Room(), depth + 1)
                return
            with place.open("wb") as out:
                shutil.copyfileobj(packed, out)
        # Files that an LMS packs carry the time of the download.
        changed = time.mktime((*member.date_time, 0, 0, -1)) if depth else 0
        os.utime(place, (changed, changed))
