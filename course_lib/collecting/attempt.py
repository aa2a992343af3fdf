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
        UsageError: the student has no such version. The message lists those that exist.
    """
    course = ClassFolder(root)
    folder, name = course.private / "collected", one_line(student)
    place = course.step("submitted") / student / lesson / f"{lesson}.ipynb"
    if student not in course.collected(lesson) or not place.is_file():
        raise UsageError(f"nothing of {lesson} was collected from {name}")
    known = course.noted(f"collected/{lesson}")
    about = known["students"][student]
    versions = [(folder / path).read_bytes() for path in about["earlier"]]
    if (there := place.read_bytes()) not in versions:
        about["earlier"].append(f"{lesson}/{student}/{len(versions) + 1}.ipynb")
        write_atomically(folder / about["earlier"][-1], there)
        versions.append(there)
    digests = [hashlib.sha256(version).hexdigest() for version in versions]
    first = about.setdefault("first", {})
    if time := read_stamp(place.parent).text:
        first.setdefault(hashlib.sha256(there).hexdigest(), time)
    times = [first.get(one, "") for one in digests]
    labels = [
        f"{n} {f'of {time}' if time else '(time unknown)'}" for n, time in enumerate(times, 1)
    ]
    if attempt > len(versions):
        raise UsageError(f"{name} has no version {attempt}, but {', '.join(labels)}")
    # Canvas says only of the newest version whether it is late.
    about["late_newest"] = about.get("late_newest", about["late"])
    about["late"] = about["late_newest"] and digests[attempt - 1] == about["sha256"]
    write_atomically(folder / f"{lesson}.json", json.dumps(known, indent=1))
    write_atomically(place, versions[attempt - 1])
    place.with_name(STAMP).unlink(missing_ok=True)
    if time := times[attempt - 1]:
        write_atomically(place.with_name(STAMP), f"{time}\n")
    return f"{name}: version {labels[attempt - 1]} is graded, of {len(versions)}"
