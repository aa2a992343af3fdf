"""`course release`: the zip that an instructor hands out, which works by itself.

`contents` says which files are in it, `student_project` makes those that a clone has otherwise;
here they are checked, packed and put in place. The same course gives the same bytes.
"""

import hashlib
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from course_lib.workspace.errors import ReleaseError

FOLDER = "attention-course"  # the same for each lesson: unzipped over it, the next week adds to it
INTO = "bundles"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first date that a zip can hold


@dataclass(frozen=True)
class Bundle:
    """A written zip: where, for which lessons, with the solutions of which."""

    path: Path
    lessons: tuple[str, ...]
    solutions: tuple[str, ...]
    files: int
    bytes: int
    sha256: str

    def as_dict(self) -> dict:
        """The same as plain data."""
        return {**asdict(self), "path": str(self.path)}

    def text(self) -> str:
        """What was made, for a terminal."""
        held = f"solutions of {', '.join(self.solutions) or 'no lesson'}"
        return f"{self.path}: {self.files} files, {self.bytes / 1000:.0f} kB, {held}"


def release(
    root: Path,
    lessons: Sequence[str],
    *,
    up_to: str | None = None,
    into: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Bundle:
    """Write the bundle of one or several lessons.

    Args:
        root: the course folder.
        lessons: slugs of the lessons to hand out.
        up_to: the solutions of this lesson and of later ones are left out, with all that belongs
            to later lessons only; every solution is in the bundle if None.
        into: folder for the zip; `bundles` in the course folder if None.
        progress: called with a line of text before each step.

    Raises:
        ReleaseError: a lesson was edited by hand, is not built, or comes after `up_to`.
    """
    from course_lib.authoring.builder import check_release, replace_files
    from course_lib.authoring.inputs import Course
    from course_lib.bundle.contents import contents, solved

    say = progress or (lambda line: None)
    course = Course.at(root)
    late = [slug for slug in lessons if up_to is not None and slug > up_to]
    if late:
        raise ReleaseError(
            f"{late[0]} comes after {up_to} and needs its solutions; name a later lesson: "
            f"course release {' '.join(lessons)} --up-to {late[-1]}"
        )
    for slug in lessons:
        say(f"{slug}: comparing the release with its source notebook")
        if drifts := check_release(course, slug):
            raise ReleaseError(str(drifts[0]))
    say("packing")
    files = contents(course, lessons, up_to)
    data = packed(files)
    path = (root / INTO if into is None else into) / f"{bundle_name(lessons)}.zip"
    replace_files({path: data})
    held = tuple(solved(course, up_to))
    digest = hashlib.sha256(data).hexdigest()
    return Bundle(path, tuple(lessons), held, len(files), len(data), digest)


def bundle_name(lessons: Sequence[str]) -> str:
    """Name a bundle by its lesson, or by the numbers of several."""
    return lessons[0] if len(lessons) == 1 else "_".join(["lessons", *(s[:2] for s in lessons)])


def packed(files: dict[str, bytes]) -> bytes:
    """Pack files by name into a zip that depends on nothing else: no date, owner or order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}", _LONG_AGO)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return buffer.getvalue()
