"""Plan what one submission needs: nothing, publishing, a blank entry, or a job for a worker.

Points of the same work that rise are taken at once. Points that would fall stay, with the report
that gave them, and the exercise is flagged; `--force` takes the new points.
"""

import functools
from collections.abc import Collection, Iterator
from dataclasses import replace

import nbformat
from nbformat import NotebookNode

from course_lib.exercises import points_set_by_the_class
from course_lib.exercises.course_file import FILE, other_points
from course_lib.grading.class_folder import ClassFolder, parse_graded
from course_lib.grading.graded_cells import check_cells, grade_id, read_check
from course_lib.grading.intake.gate import IntakeError, utf8
from course_lib.grading.intake.read import has_answers, read_bytes
from course_lib.grading.intake.submissions import Submission, choose
from course_lib.grading.jobs import Job, Result, Settings
from course_lib.grading.ledger import (
    Entry,
    Ledger,
    checks_digest,
    key_of,
    same_work,
    seed_of,
    work_of,
)
from course_lib.workspace.errors import UsageError


class LessonToGrade:
    """What all submissions of a run have in common."""

    def __init__(self, course: ClassFolder, lesson: str, settings: Settings) -> None:
        self.course, self.lesson, self.settings = course, lesson, settings
        self.release, self.notebook = course.read_release(lesson)  # as text, and parsed once
        checks = check_cells(self.notebook)
        counted = {grade_id(cell): cell.metadata["nbgrader"]["points"] for cell in checks}
        if name := other_points(counted, points_set_by_the_class(course.root)):
            what = f"{FILE} gives {name} other points or another star than the release of {lesson}"
            raise UsageError(f"{what}: run `course build {lesson}`, then grade again")
        self.tests = course.read_tests(lesson, self.notebook)
        self.ledger = Ledger(course.ledger_path(lesson))
        self.seed = course.check_seed()  # from which each submission's own is made

    def key(self, data: bytes) -> str:
        """Return what the result of a submission is kept under."""
        checks = checks_digest(self.lesson)  # half a second's work, while workers come up
        return key_of(data, self.release, self.seed, self.settings.limits, self.tests, checks)


def plan(task: LessonToGrade, submission: Submission, known: Collection[str]) -> Entry | Job:
    """Decide what a submission needs.

    Of the `known` students the gradebook has grades, with their lateness as it is now.
    """
    student, entry = submission.student, task.ledger.get(submission.student)
    submission = choose(submission, functools.partial(has_answers, task.lesson, task.notebook))
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
    """Return the entry to publish for work graded before; None if it must be graded."""
    if entry.state != "published":
        return entry if entry.state == "graded" else None
    notebook = task.course.read_graded(entry.student, task.lesson)
    if notebook is None or entry.student in known:
        return entry if notebook else None
    # The gradebook was lost, another machine graded this share, or the lateness has changed.
    again = replace(entry, state="graded", notebook=nbformat.v4.writes(notebook, indent=None))
    return task.ledger.put(again)


def receive(task: LessonToGrade, job: Job, result: Result) -> Entry:
    """Put a worker's result into the ledger; leave blank what could not be graded."""
    notices = (*job.notices, *result.notices)
    entry = Entry(job.student, job.key, notices=notices, seconds=result.seconds)
    if result.fault or result.notebook is None:
        problem = result.fault or "not graded"
        return replace(entry, state="blank", problem=problem, is_final=result.is_final)
    before = task.ledger.get(job.student)
    is_known = before.state in ("graded", "published") and same_work(before.key, job.key)
    if is_known and not task.settings.force:
        earlier = task.course.read_graded(job.student, task.lesson)
        earlier = parse_graded(before.notebook) if before.notebook else earlier
        notices += tuple(_keep_points(result.notebook, earlier) if earlier else ())
    result.notebook.metadata.setdefault("course", {})["notices"] = list(notices)
    text = nbformat.v4.writes(result.notebook, indent=None)
    return task.ledger.put(replace(entry, state="graded", notices=notices, notebook=text))


def _keep_points(notebook: NotebookNode, before: NotebookNode) -> Iterator[str]:
    """Put back the outputs of checks that gave more points; yield a notice for each."""
    earlier = {grade_id(cell): cell for cell in check_cells(before)}
    for cell in check_cells(notebook):
        if (old := earlier.get(grade_id(cell))) is None:
            continue
        was, now = read_check(old), read_check(cell)
        if was.points is None or now.points is None or was.max_points != now.max_points:
            continue
        if now.points < was.points - 1e-6:
            cell.outputs = old.outputs
            yield (
                f"{now.exercise}: graded again, this same work would get {now.points:g} instead "
                f"of {was.points:g} points, which it keeps; --force takes the new points"
            )
