"""Find the lessons that students may still have to hand in, about which `course bundle` warns."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader


def open_lessons(root: Path, given: Iterable[str], solved: Iterable[str]) -> dict[str, str]:
    """Return the lessons among `solved` that are open, each with the reason.

    A lesson is open until its due date has passed for everyone, extensions included. A lesson
    without a due date is open if it is handed out now. It is also open if it was handed out before
    and submitted/ holds no work for it yet.

    Args:
        root: the class folder.
        given: the lessons that are handed out now. Zips in bundles/ hold the earlier ones.
        solved: the lessons whose solutions are handed out.
    """
    course, found = ClassFolder(root), {}
    zips = [re.split(r"[_.]", path.name) for path in (root / "bundles").glob("*.zip")]
    dues = _due_dates(course)
    for lesson in solved:
        due = dues.get(lesson)
        if due is not None:
            if due > datetime.now(UTC).replace(tzinfo=None):
                found[lesson] = f"due {due:%Y-%m-%d %H:%M} UTC"
            continue
        is_collected = any(course.step("submitted").glob(f"*/{lesson}"))
        was_given = any(lesson[:2] in parts for parts in zips)
        if lesson in given or (was_given and not is_collected):
            found[lesson] = "handed out, without a due date in the gradebook"
    return found


def _due_dates(course: ClassFolder) -> dict[str, datetime]:
    """Return the latest due date of each lesson, extensions included."""
    kind, _, path = course.coursedir("").db_url.partition(":///")
    if kind == "sqlite" and not Path(path).is_file():  # opening would create the database
        return {}
    dues = {}
    with quiet_nbgrader(), course.gradebook() as gradebook:
        for one in gradebook.assignments:
            if one.duedate is not None:
                later = [submission.duedate for submission in one.submissions]
                dues[one.name] = max([one.duedate, *later])
    return dues
