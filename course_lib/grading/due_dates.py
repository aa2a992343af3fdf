"""Due dates: `course extend`, extensions after a change of clocks, lessons that are still open.

nbgrader stores an extension as a duration, so a clock change would move the due date to another
hour. Therefore .course/extensions/LESSON.json records its zone, its seconds by the clocks there,
and nbgrader's duration: {"ada": {"zone": "Europe/Berlin", "clock": 86400, "extension": 82800}}
"""

import contextlib
import difflib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.intake.timestamps import UnclearTimeError, parse_time
from course_lib.workspace.errors import UsageError
from course_lib.workspace.text import one_line


def extend(root: Path, lesson: str, student: str, until: str) -> str:
    """Move one student's due date, and return a sentence about it."""
    course = ClassFolder(root)
    try:
        moment = parse_time(until)
    except ValueError as error:
        form = 'is not a date; write it like "2026-03-05 23:59 UTC"'
        why = error if isinstance(error, UnclearTimeError) else form
        raise UsageError(f"--to {one_line(until)!r} {why}") from error
    with quiet_nbgrader():
        course.ensure_assignment(lesson, course.read_release(lesson)[1])
        with course.gradebook() as gradebook:
            due = gradebook.find_assignment(lesson).duedate
            known = {one.id for one in gradebook.students}
            known |= {folder.parent.name for folder in course.step("submitted").glob(f"*/{lesson}")}
            if due is None:
                raise UsageError(
                    f"{lesson} has no due date yet: nbgrader db assignment add {lesson} "
                    '--duedate="YYYY-MM-DD HH:MM UTC"'
                )
            of_class = f"{due:%Y-%m-%d %H:%M} UTC"
            if moment < due:
                raise UsageError(
                    f"--to {moment:%Y-%m-%d %H:%M} UTC is before the due date of the class, "
                    f"{of_class}: name a later one"
                )
            if student not in known:
                near = difflib.get_close_matches(student, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"nbgrader db student add {student}"
                raise UsageError(f"there is no student {one_line(student)} here; {hint}")
            gradebook.update_or_create_student(student)
            gradebook.update_or_create_submission(lesson, student, extension=moment - due or None)
    zone, given = _zone_of(course, until), course.noted(f"extensions/{lesson}")
    local, due_there = (one.replace(tzinfo=UTC).astimezone(zone) for one in (moment, due))
    clock = (local - due_there).total_seconds()  # within one zone, Python subtracts clock times
    extension = (moment - due).total_seconds()
    given[student] = {"zone": zone.key, "clock": clock, "extension": extension}
    course.note(f"extensions/{lesson}", given)
    if moment == due:
        return f"{student}: {lesson} is due with the class again, {of_class}"
    return (
        f"{student}: {lesson} is due {moment:%Y-%m-%d %H:%M} UTC, and {of_class} for the class; "
        f"now or later: course grade {lesson}"
    )


def follow_due_date(root: Path, lesson: str) -> list[str]:
    """Keep the local hour of extensions after the class's due date was moved.

    Return a line for each student whose due date is corrected. An extension that was changed by
    any other means than `course extend` is left alone.
    """
    course = ClassFolder(root)
    lines, given = [], course.noted(f"extensions/{lesson}")
    if not given:
        return lines
    with quiet_nbgrader(), course.gradebook() as gradebook:
        assignment = gradebook.find_assignment(lesson)
        known = {one.student_id: one.extension for one in assignment.submissions}
        if assignment.duedate is None:
            return lines
        due = assignment.duedate.replace(tzinfo=UTC)
        for student, about in given.items():
            local = due.astimezone(ZoneInfo(about["zone"])) + timedelta(seconds=about["clock"])
            was, extension = timedelta(seconds=about["extension"]), local.astimezone(UTC) - due
            if known.get(student) == was != extension:
                about["extension"] = extension.total_seconds()
                gradebook.update_or_create_submission(lesson, student, extension=extension)
                lines.append(
                    f"{one_line(student)}: {lesson} is due {due + extension:%Y-%m-%d %H:%M} UTC, "
                    f"at the same hour in {about['zone']} as before"
                )
    course.note(f"extensions/{lesson}", given)
    return lines


def _zone_of(course: ClassFolder, until: str) -> ZoneInfo:
    """Return the time zone that a date names, or else the course's `c.Exchange.timezone`."""
    named = until.split()[-1]
    for name in (named, course.config.get("Exchange", {}).get("timezone", "UTC")):
        with contextlib.suppress(KeyError, ValueError, OSError):
            if name not in ("UTC", "GMT"):
                return ZoneInfo(name)
    return ZoneInfo("UTC")


def open_lessons(root: Path, given: Iterable[str], solved: Iterable[str]) -> dict[str, str]:
    """Return the lessons among `solved` that are open, each with the reason.

    A lesson is open until its due date has passed for everyone, extensions included. A lesson
    without a due date is open if it is `given`, which means handed out now. It is also open if a
    zip in bundles/ was handed out before and submitted/ holds no work for it yet.
    """
    course, dues, found = ClassFolder(root), {}, {}
    if course.has_gradebook:
        with quiet_nbgrader(), course.gradebook() as gradebook:
            for one in gradebook.assignments:
                if one.duedate is not None:
                    dues[one.name] = max([one.duedate, *(work.duedate for work in one.submissions)])
    now = datetime.now(UTC).replace(tzinfo=None)
    for lesson in solved:
        is_collected = any(course.step("submitted").glob(f"*/{lesson}"))
        was_given = any((root / "bundles").glob(f"*{lesson[:2]}[_.]*zip"))
        if lesson in dues:
            if dues[lesson] > now:
                found[lesson] = f"due {dues[lesson]:%Y-%m-%d %H:%M} UTC"
        elif lesson in given or (was_given and not is_collected):
            found[lesson] = "handed out, without a due date in the gradebook"
    return found
