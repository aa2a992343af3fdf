"""Report work that an LMS marks as late without giving the time, so that it gets no penalty."""

from collections.abc import Iterable
from pathlib import Path

from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.intake.ordinary_files import one_line
from course_lib.grading.intake.timestamps import read_stamp


def late_notices(root: Path, lessons: Iterable[str]) -> dict[str, str]:
    """Return a notice for each lesson with work that Canvas marks as late without a time."""
    course, notices = ClassFolder(root), {}
    for lesson in lessons:
        students = course.collected(lesson).items()
        late = sorted(student for student, about in students if about["late"])
        submitted = course.step("submitted")
        late = [one for one in late if not read_stamp(submitted / one / lesson).text]
        if late:
            called = "1 submission" if len(late) == 1 else f"{len(late)} submissions"
            names = ", ".join(map(one_line, late))
            place = f"{submitted.name}/STUDENT/{lesson}/timestamp.txt"
            notices[lesson] = (
                f"{lesson}: Canvas marked {called} as late ({names}) but gave no time, so "
                "no lateness or penalty was computed. To apply one, write the time that Canvas "
                f"shows into {place} and run course grade"
            )
    return notices
