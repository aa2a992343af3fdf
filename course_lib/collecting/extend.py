"""`course extend`: store one student's due date in nbgrader's own field."""

import difflib
from pathlib import Path

from nbgrader.api import MissingEntry

from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.intake.ordinary_files import one_line
from course_lib.grading.intake.timestamps import UnclearTimeError, parse_time
from course_lib.workspace.errors import UsageError


def extend(root: Path, lesson: str, student: str, until: str) -> str:
    """Move one student's due date, and return a sentence about it.

    Raises:
        UsageError: the student, the date or the lesson's due date is not known.
    """
    course = ClassFolder(root)
    try:
        moment = parse_time(until)
    except UnclearTimeError as error:
        raise UsageError(f"--to {one_line(until)} {error}") from error
    except ValueError as error:
        raise UsageError(
            f'--to {one_line(until)!r} is not a date; write it like "2026-03-05 23:59 UTC"'
        ) from error
    with quiet_nbgrader():
        release = course.read_release(lesson)[1]
        with course.gradebook() as gradebook:
            try:
                due = gradebook.find_assignment(lesson).duedate
            except MissingEntry:
                due = None
            if due is None:
                raise UsageError(
                    f"{lesson} has no due date yet: nbgrader db assignment add {lesson} "
                    '--duedate="YYYY-MM-DD HH:MM UTC"'
                )
            if moment < due:
                raise UsageError(
                    f"--to {moment:%Y-%m-%d %H:%M} UTC is before the due date of the class, "
                    f"{due:%Y-%m-%d %H:%M} UTC: name a later one"
                )
            known = {one.id for one in gradebook.students}
        folders = course.step("submitted").glob(f"*/{lesson}")
        known |= {folder.parent.name for folder in folders}
        if student not in known:
            near = difflib.get_close_matches(student, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"nbgrader db student add {student}"
            raise UsageError(f"there is no student {one_line(student)} here; {hint}")
        course.ensure_assignment(lesson, release)  # the extension's row refers to its cells
        with course.gradebook() as gradebook:
            gradebook.update_or_create_student(student)
            extension = moment - due if moment > due else None
            gradebook.update_or_create_submission(lesson, student, extension=extension)
    if extension is None:
        return f"{student}: {lesson} is due with the class again, {due:%Y-%m-%d %H:%M} UTC"
    return (
        f"{student}: {lesson} is due {moment:%Y-%m-%d %H:%M} UTC, and {due:%Y-%m-%d %H:%M} UTC "
        f"for the class; now or later: course grade {lesson}"
    )
