"""Plan what one submission needs: nothing, publishing, a blank entry, or a job for a worker."""

from collections.abc import Collection
from dataclasses import replace

import nbformat

from course_lib.exercises import points_set_by_the_class
from course_lib.grading.cell_kinds import check_cells, grade_id
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.intake.ordinary_files import IntakeError, read_bytes
from course_lib.grading.intake.parsing import OneStudent
from course_lib.grading.intake.submissions import Submission, choose
from course_lib.grading.jobs import Job, Settings
from course_lib.grading.ledger import Entry, Ledger, checks_digest, key_of, seed_of, work_of
from course_lib.workspace.course_toml import FILE, other_points
from course_lib.workspace.errors import GradingError, UsageError
from course_lib.workspace.text import utf8


class LessonToGrade:
    """What all submissions of a run have in common."""

    def __init__(self, course: ClassFolder, lesson: str, settings: Settings) -> None:
        self.course, self.lesson, self.settings = course, lesson, settings
        if settings.sandbox != "off" and (problem := course.exposed()):
            raise GradingError(problem)
        self.release, self.notebook = course.read_release(lesson)  # as text and parsed
        checks = check_cells(self.notebook)
        counted = {grade_id(cell): cell.metadata["nbgrader"]["points"] for cell in checks}
        if name := other_points(counted, points_set_by_the_class(course.root)):
            what = f"{FILE} gives {name} other points or another star than the release of {lesson}"
            raise UsageError(f"{what}: run `course build {lesson}`, then grade again")
        self.tests = course.read_tests(lesson, self.notebook)
        self.ledger = Ledger(course.ledger_path(lesson))
        self.seed = course.check_seed()  # each submission's seed is derived from it

    def key(self, data: bytes) -> str:
        """Return the ledger key of a submission's result."""
        checks = checks_digest(self.lesson)  # takes half a second, while workers start
        return key_of(data, self.release, self.seed, self.settings.limits, self.tests, checks)


def plan(task: LessonToGrade, submission: Submission, known: Collection[str]) -> Entry | Job:
    """Decide what a submission needs. Grades of `known` students are current in the gradebook."""
    student, entry = submission.student, task.ledger.get(submission.student)
    submission = choose(submission, OneStudent(task.lesson, task.release).has_answers)
    notices = submission.notices
    try:
        if submission.problem or submission.notebook is None:
            raise IntakeError(submission.problem or "no notebook")
        data = read_bytes(submission.notebook)
    except IntakeError as error:
        return Entry(student, state="blank", problem=str(error), notices=notices)
    key = task.key(data)
    if entry.key == key and not task.settings.force:
        done = entry if entry.is_final else unchanged(task, entry, known)
        if done:
            return done
    return Job(
        student,
        task.lesson,
        key,
        data,
        task.release,
        seed_of(task.seed, student, work_of(data)),
        submission.notebook.name,
        task.tests,
        notices,
        frozenset(utf8(path.name) for path in submission.folder.iterdir()),
    )


def unchanged(task: LessonToGrade, entry: Entry, known: Collection[str]) -> Entry | None:
    """Return the entry to publish for work graded before, or None if it must be graded."""
    if entry.state != "published":
        return entry if entry.state == "graded" else None
    notebook = task.course.read_graded(entry.student, task.lesson)
    if notebook is None or entry.student in known:
        return entry if notebook else None
    # The gradebook was lost, another machine graded this, or the lateness has changed.
    again = replace(entry, state="graded", notebook=nbformat.v4.writes(notebook, indent=None))
    return task.ledger.put(again)
