"""`course feedback`: an archive of feedback pages, with the names by which an LMS knows them.

`course collect` recorded the name that the LMS gave each student's file or folder. An LMS finds the
student of a page as follows:

- Canvas: infer_comment_context_from_filename in its model of assignments. It splits a name at
  underscores. The first two parts that are numbers identify the user and the attachment. The page
  becomes a comment, under the name of the file that the student handed in.
- Moodle: mod/assign/feedback/file/importziplib.php. A name begins with
  NAME_NUMBER_assignsubmission_file_, whether the download had folders or not.
"""

import io
import os
import zipfile
from pathlib import Path

from course_lib.collecting.layouts import NAMES
from course_lib.grading.adapters.nbgrader import Gradebook, LatePenalties, one_transaction
from course_lib.grading.class_folder import ClassFolder, quiet_nbgrader
from course_lib.grading.graded import ABSENT, COMPLETE, INCOMPLETE
from course_lib.grading.ledger import Ledger
from course_lib.grading.publishing.publish import Publisher
from course_lib.grading.read_grades import read_lesson
from course_lib.workspace.errors import UsageError
from course_lib.workspace.files import write_atomically
from course_lib.workspace.text import one_line

_UPLOAD = {
    "canvas": 'upload it in the gradebook, at this assignment, with "Re-Upload Submissions"',
    "moodle": 'upload it in the assignment, with "Upload multiple feedback files in a zip"',
    None: "it has a folder for each student",
}


def feedback(
    root: Path, lesson: str, to: str | None = None, *, pending: bool = False
) -> tuple[int, list[str]]:
    """Write everyone's feedback pages into an archive in exports/.

    Return the exit code (3 if the archive lacks somebody's page) and a line for each student.
    Pages with answers that a person has yet to grade are left out unless `pending`. `to` is
    "canvas" or "moodle", which can import the archive, or None for a folder for each student.
    """
    course = ClassFolder(root)
    found = course.step("feedback").glob(f"*/{lesson}/{lesson}.html")
    pages = {path.parent.parent.name: path for path in found}
    if not pages:
        raise UsageError(f"{lesson} has no feedback pages yet: course grade {lesson}")
    collected = course.collected(lesson)
    names = {}  # in the archive, if the LMS can tell from the name whose page it is
    for student in pages:
        entry = collected.get(student, {}).get("entry", "")
        if to is None:
            names[student] = f"{student}/{lesson}.html"
        elif match := NAMES[to].fullmatch(entry):
            at = match.start("original")  # -1 for a folder of Moodle 4.1 and later
            names[student] = f"{entry[:at] if at >= 0 else f'{entry}_'}{lesson}.html"
    if not names:
        raise UsageError(
            f"nothing of {lesson} was collected from {to}, so it is unknown how {to} names the "
            f"students: course collect {lesson} ZIP, or leave out --to"
        )
    ledger = Ledger(course.ledger_path(lesson))
    with quiet_nbgrader(), course.only_one(), course.gradebook() as gradebook:
        renewed = _renew(course, lesson, gradebook, ledger)
        enrolled = {student.id for student in gradebook.students}
        summary = read_lesson(course, lesson, brief=True)
    waiting, placed, left = summary.waiting, {}, {}
    for student in sorted({*enrolled, *pages, *(one.student for one in summary.students)}):
        if student not in pages:
            why = summary.of(student).reason
            left[student] = why or f"its page is missing: course grade {lesson}"
        elif student in waiting and not pending:
            left[student] = f"pending: {', '.join(waiting[student])}"
        elif student in names:
            placed[student] = names[student]
        else:
            page = os.path.relpath(pages[student], course.root)
            group, by = collected.get(student, {}).get("group", ("", ""))
            why = f"{by} gets the page of the group {group}" if by else f"not collected from {to}"
            left[student] = f"{why}: send {page} yourself"
    packed, name = io.BytesIO(), f"{lesson}_feedback{f'_{to}' if to else ''}.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for student, place in placed.items():
            archive.write(pages[student], place)
    write_atomically(course.root / "exports" / name, packed.getvalue())
    rows = placed | {student: f"NO PAGE: {why}" for student, why in left.items()}
    width = max(len(one_line(student, 40)) for student in rows)
    lines = [f"{lesson}, for {to}" if to else lesson]
    lines += [
        f"  {one_line(one, 40):<{width}}  {one_line(said, 400)}" for one, said in rows.items()
    ]
    if renewed:
        lines.append(f"written again, since a person gave points or comments: {renewed}")
    if count := len(waiting.keys() & pages):
        is_in = "among the pages" if pending else "left out; --pending packs them, too"
        lines.append(f"pending, since a person has yet to grade an answer: {count}, {is_in}")
    lines.append(f"exports/{name}, pages: {len(placed)}; {_UPLOAD[to]}")
    is_complete = all(why == ABSENT for why in left.values())
    return COMPLETE if is_complete else INCOMPLETE, lines


def _renew(course: ClassFolder, lesson: str, gradebook: Gradebook, ledger: Ledger) -> int:
    """Take what a person gave since the last grade into penalties and pages; count the pages."""
    penalties, publisher = LatePenalties(course.config), Publisher(course, lesson, gradebook)
    with one_transaction(gradebook):
        for work in gradebook.assignment_submissions(lesson):
            if ledger.get(work.student_id).state in ("published", "kept"):
                for one in work.notebooks:
                    one.late_submission_penalty = penalties.penalty(one)
    publisher.graded()
    return publisher.write_pages(ledger)
