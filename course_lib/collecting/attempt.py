"""`course grade --attempt`: take an earlier version of a student's work that `collect` kept."""

import hashlib
import json
from pathlib import Path

from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.intake.ordinary_files import one_line
from course_lib.grading.intake.timestamps import STAMP, read_stamp
from course_lib.workspace.errors import UsageError
from course_lib.workspace.files import write_atomically


def use_attempt(root: Path, lesson: str, student: str, attempt: int) -> str:
    """Put a version into submitted/ with the time of its arrival, and return a sentence about it.

    Versions are numbered from the oldest. The version that was there is kept as well.

    Raises:
        UsageError: there is no such version. The message lists the versions.
    """
    course = ClassFolder(root)
    folder = course.private / "collected"
    note = folder / f"{lesson}.json"
    known = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else {"students": {}}
    about = known["students"].get(student)
    place = course.step("submitted") / student / lesson / f"{lesson}.ipynb"
    if about is None or not place.is_file():
        raise UsageError(f"nothing of {lesson} was collected from {one_line(student)}")
    versions = [(folder / name).read_bytes() for name in about["earlier"]]
    if (there := place.read_bytes()) not in versions:
        name = f"{lesson}/{student}/{len(versions) + 1}.ipynb"
        write_atomically(folder / name, there)
        about["earlier"].append(name)
        versions.append(there)
    digests = [hashlib.sha256(version).hexdigest() for version in versions]
    first = about.setdefault("first", {})
    if time := read_stamp(place.parent).text:
        first.setdefault(hashlib.sha256(there).hexdigest(), time)
    times = [first.get(one, "") for one in digests]
    listed = [
        f"{n} {f'of {time}' if time else '(time unknown)'}" for n, time in enumerate(times, 1)
    ]
    if attempt > len(versions):
        raise UsageError(f"{one_line(student)} has no version {attempt}, but {', '.join(listed)}")
    # Canvas says only of the newest version whether it is late.
    about["late_newest"] = about.get("late_newest", about["late"])
    about["late"] = about["late_newest"] and digests[attempt - 1] == about["sha256"]
    write_atomically(note, json.dumps(known, indent=1))
    write_atomically(place, versions[attempt - 1])
    place.with_name(STAMP).unlink(missing_ok=True)
    if time := times[attempt - 1]:
        write_atomically(place.with_name(STAMP), f"{time}\n")
    return f"{one_line(student)}: version {listed[attempt - 1]} is graded, of {len(versions)}"
