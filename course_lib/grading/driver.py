"""Drive `course grade`: fill gradebook, autograded/ and feedback/ from the submissions.

    submitted/ --plan--> jobs --executor--> results --ledger--> published --> pages

Feedback pages are made after all points are in the gradebook. A submission that cannot be graded is
left blank with a reason, and the others are graded. The next run finishes the work of a killed one.
If a student has an earlier result, its points, notebook and page stay. They count if they belong to
the same work. If they belong to an earlier version, the lesson is blank in the tables.

If the same work now earns more points, they are taken at once. If it earns fewer, the old points
and report stay and the exercise is flagged. `--force` takes the new points.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.grading.cell_kinds import check_cells, grade_id
from course_lib.grading.class_folder import ClassFolder, parse_graded, quiet_nbgrader
from course_lib.grading.executors import Executor, executor
from course_lib.grading.graded import GradedLesson
from course_lib.grading.intake import parsing
from course_lib.grading.intake.submissions import Submission, find_submissions
from course_lib.grading.jobs import Job, Result, Settings
from course_lib.grading.ledger import Entry
from course_lib.grading.plan import LessonToGrade, plan, unchanged
from course_lib.grading.publishing.publish import Publisher
from course_lib.grading.read_checks import read_check
from course_lib.grading.read_grades import read_lesson
from course_lib.workspace.files import write_atomically
from course_lib.workspace.steps import Step

Progress = Callable[[Step], None]
_WORDS = {"graded": "graded", "published": "unchanged"}


def grade(
    root: Path,
    lesson: str,
    *,
    students: Sequence[str] | None = None,
    progress: Progress | None = None,
    settings: Settings | None = None,
    pool: Any = None,
) -> GradedLesson:
    """Grade what was submitted for a lesson and write feedback; return the whole lesson.

    Args:
        root: the course folder, which holds nbgrader_config.py.
        lesson: slug of the lesson, for example "02_masked_softmax".
        students: only these; everyone if None.
        progress: called with a `Step` for each submission; its text is a line for a terminal.
        settings: executor, sandbox and limits.
        pool: a running `Executor`. The caller closes it.

    Raises:
        GradingError: nothing can be graded; the message names the file and the remedy.
    """
    started = time.monotonic()
    with quiet_nbgrader(), contextlib.ExitStack() as stack:
        course = ClassFolder(root)
        task = LessonToGrade(course, lesson, settings or Settings())
        stack.enter_context(course.only_one())
        gc.freeze()  # collecting garbage among imported objects takes a tenth of the run
        stack.callback(gc.unfreeze)
        chosen = find_submissions(course.step("submitted"), lesson, students)
        _grade(task, chosen, progress or (lambda step: None), pool)
        summary = read_lesson(course, lesson)
    return replace(summary, seconds=time.monotonic() - started)


def _grade(
    task: LessonToGrade, chosen: Sequence[Submission], progress: Progress, pool: Executor | None
) -> None:
    """Grade and publish."""
    counts = Counter[str]()
    progress(Step(task.lesson, 0, len(chosen), f"{len(chosen)} submissions"))
    with contextlib.ExitStack() as workers:
        task.course.ensure_assignment(task.lesson, task.notebook)
        with task.course.gradebook() as gradebook:
            publisher = Publisher(task.course, task.lesson, gradebook)
            graded = publisher.graded()
            known = {student for student, is_current in graded.items() if is_current}
            begun: dict[str, Job] = {}

            def finish(entry: Entry) -> None:
                _finish(task, entry, publisher)
                counts[_WORDS.get(entry.state, "not gradable")] += 1
                done = counts.total()
                progress(Step(task.lesson, done, len(chosen), entry.student, dict(counts)))

            def jobs() -> Iterator[Job]:
                for submission in chosen:
                    planned = plan(task, submission, known)
                    if isinstance(planned, Job):
                        begun[planned.student] = planned
                        yield planned
                    else:
                        finish(_or_earlier(task, planned, graded))

            waiting = jobs()
            for first in waiting:  # start no worker for a class that has not changed
                if pool is None:
                    pool = executor(task.settings, task.lesson)
                    workers.enter_context(contextlib.closing(pool))
                for result in pool.run(itertools.chain([first], waiting)):
                    entry = _record_result(task, begun.pop(result.student), result)
                    entry = _or_earlier(task, entry, graded)
                    now = time.strftime("%Y-%m-%d %H:%M:%S%z")
                    lines = [f"{entry.student!r}, {task.lesson}, {now}", *result.log]
                    lines[1:1] = [f"note: {notice}" for notice in entry.notices]
                    lines += [f"{entry.state}: {result.fault}"] if result.fault else []
                    log = "\n".join([*lines, ""]).encode("utf-8", "backslashreplace").decode()
                    write_atomically(task.course.log_path(entry.student, task.lesson), log)
                    finish(entry)
            workers.close()
            parsing.stop()
            for student in graded.keys() - known - {s.student for s in chosen}:
                if again := unchanged(task, task.ledger.get(student), known):
                    _finish(task, again, publisher)
            publisher.write_pages(task.ledger)


def _record_result(task: LessonToGrade, job: Job, result: Result) -> Entry:
    """Put a worker's result into the ledger, or leave an ungraded submission blank."""
    notices = (*job.notices, *result.notices)
    entry = Entry(job.student, job.key, notices=notices, seconds=result.seconds)
    if result.fault or result.notebook is None:
        problem = result.fault or "not graded"
        return replace(entry, state="blank", problem=problem, is_final=result.is_final)
    before = task.ledger.get(job.student)
    if before.is_result_of(job.key) and not task.settings.force:
        earlier = task.course.read_graded(job.student, task.lesson)
        earlier = parse_graded(before.notebook) if before.notebook else earlier
        notices += tuple(_keep_points(result.notebook, earlier) if earlier else ())
    result.notebook.metadata.setdefault("course", {})["notices"] = list(notices)
    text = nbformat.v4.writes(result.notebook, indent=None)
    return task.ledger.put(replace(entry, state="graded", notices=notices, notebook=text))


def _or_earlier(task: LessonToGrade, entry: Entry, known: Collection[str]) -> Entry:
    """Change the entry of work that cannot be graded so that an earlier result stays.

    The entry has a notebook only if the notebook must be published. This is the case if the
    lateness of the same work must be recomputed, if a run was killed, or if the gradebook does not
    know the student.
    """
    if entry.state in ("graded", "published"):
        return entry
    before = task.ledger.get(entry.student)
    earlier = task.course.read_graded(entry.student, task.lesson)
    had_points = before.state in ("published", "kept", "outdated") and entry.student in known
    if not (before.notebook or earlier or had_points):
        return entry
    is_kept, text = before.is_result_of(entry.key), before.notebook
    if earlier and not text and (is_kept or entry.student not in known):
        text = nbformat.v4.writes(earlier, indent=None)
    state, is_final = ("kept", False) if is_kept else ("outdated", entry.is_final)
    about = {"state": state, "is_final": is_final, "notebook": text, "shown": before.shown}
    return task.ledger.put(replace(entry, **about))


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


def _finish(task: LessonToGrade, entry: Entry, publisher: Publisher) -> None:
    """Publish a graded submission, or clear a blank one."""
    if entry.state == "blank":
        publisher.leave_blank(entry.student)
        task.ledger.put(entry)
    elif entry.notebook:
        publisher.publish(entry.student, entry.notebook)
