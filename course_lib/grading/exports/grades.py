"""What is exported: the people of the gradebook, and the lessons that someone submitted."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from course_lib.grading.adapters.nbgrader import assignments_of, students_of
from course_lib.grading.course import Course
from course_lib.grading.exports.shown import listed
from course_lib.grading.graded import GradedLesson
from course_lib.grading.report.read_grades import read_lesson
from course_lib.workspace.errors import ExportError


@dataclass(frozen=True)
class Person:
    """A student of the gradebook."""

    id: str
    last_name: str = ""
    first_name: str = ""
    email: str = ""


def read_people(course: Course) -> list[Person]:
    """Everyone in the gradebook, in order of their ids."""
    with course.gradebook() as gradebook:
        people = [
            Person(s.id, s.last_name or "", s.first_name or "", s.email or "")
            for s in students_of(gradebook)
        ]
    return sorted(people, key=lambda person: person.id)


def need_gradebook(course: Course) -> None:
    """Look for the gradebook without making an empty one.

    Raises:
        ExportError: there is none.
    """
    kind, _, path = course.coursedir("").db_url.partition(":///")
    if kind == "sqlite" and not Path(path).is_file():
        raise ExportError(f"there is no gradebook {path}; grade first: course grade LESSON")


def graded_lessons(course: Course) -> list[str]:
    """Lessons for which someone is in the gradebook.

    Raises:
        ExportError: there is none.
    """
    with course.gradebook() as gradebook:
        found = sorted(a.name for a in assignments_of(gradebook) if a.num_submissions)
    if not found:
        raise ExportError(f"{course.root}: no lesson is graded yet: course grade LESSON")
    return found


def read_submitted(course: Course, lesson: str) -> GradedLesson:
    """Read a lesson that someone submitted, with reasons where points are missing.

    Raises:
        ExportError: nobody's submission of it is in the gradebook.
    """
    found = read_lesson(course, lesson, brief=True)
    if found.students:
        return replace(found, title=_title(course, lesson))
    with course.gradebook() as gradebook:
        others = listed(a.name for a in assignments_of(gradebook) if a.num_submissions)
    has = f" (graded: {others})" if others else ""
    raise ExportError(f"{lesson} is not graded yet{has}: course grade {lesson}")


def _title(course: Course, lesson: str) -> str:
    """The heading of the released notebook; "" where it cannot be read."""
    try:
        path = course.step("release") / lesson / f"{lesson}.ipynb"
        first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]
        heading = "".join(first).splitlines()[0]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return heading.lstrip("# ").strip() if heading.startswith("#") else ""
