"""`course extend`: store one student's due date in nbgrader's own field.

nbgrader stores an extension as a duration, so a clock change would move the due date to another
hour. Therefore .course/extensions/LESSON.json records the dates of each extension in UTC:

    {"ada": {"zone": "Europe/Berlin", "due": "2026-03-28 22:59:00", "until": "2026-03-29 21:59:00"}}
"""

import contextlib
import difflib
import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from nbgrader.api import MissingEntry

from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.intake.ordinary_files import one_line
from course_lib.grading.intake.timestamps import UnclearTimeError, parse_time
from course_lib.workspace.errors import UsageError
from course_lib.workspace.files import write_atomically


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
    given = course.noted(f"extensions/{lesson}")
    given.pop(student, None)
    if extension is not None:
        given[student] = {"zone": _zone_of(course, until), "due": f"{due}", "until": f"{moment}"}
    _remember(course, lesson, given)
    if extension is None:
        return f"{student}: {lesson} is due with the class again, {due:%Y-%m-%d %H:%M} UTC"
    return (
        f"{student}: {lesson} is due {moment:%Y-%m-%d %H:%M} UTC, and {due:%Y-%m-%d %H:%M} UTC "
        f"for the class; now or later: course grade {lesson}"
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
        due = gradebook.find_assignment(lesson).duedate
        for student, about in given.items():
            was_due, until = (datetime.fromisoformat(about[name]) for name in ("due", "until"))
            with contextlib.suppress(MissingEntry):
                extension = gradebook.find_submission(lesson, student).extension
                if due is None or due == was_due or extension != until - was_due:
                    continue
                zone = ZoneInfo(about["zone"])
                days = _local(until, zone) - _local(was_due, zone)  # by wall-clock time
                moved = (_local(due, zone) + days).replace(tzinfo=zone).astimezone(UTC)
                moment = moved.replace(tzinfo=None)
                about |= {"due": f"{due}", "until": f"{moment}"}
                if moment - due != extension:
                    gradebook.update_or_create_submission(lesson, student, extension=moment - due)
                    lines.append(
                        f"{one_line(student)}: {lesson} is due {moment:%Y-%m-%d %H:%M} UTC, at the "
                        f"same hour in {zone} as before"
                    )
    _remember(course, lesson, given)
    return lines


def _local(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


def _zone_of(course: ClassFolder, until: str) -> str:
    """Return the time zone that a date names, or else the course's `c.Exchange.timezone`."""
    named = until.split()[-1]
    for name in (named, course.config.get("Exchange", {}).get("timezone", "UTC")):
        with contextlib.suppress(KeyError, ValueError, OSError):
            if name not in ("UTC", "GMT"):
                return ZoneInfo(name).key
    return "UTC"


def _remember(course: ClassFolder, lesson: str, given: dict[str, dict[str, str]]) -> None:
    if given != course.noted(f"extensions/{lesson}"):
        note = course.private / "extensions" / f"{lesson}.json"
        write_atomically(note, json.dumps(given, indent=1))
