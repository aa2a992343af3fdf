"""Run `course grade`: fill gradebook, autograded/ and feedback/ from the submissions.

    submitted/ --plan--> jobs --executor--> results --ledger--> published --> pages

Points land first: feedback pages are made when all of them are in the gradebook. A submission that
cannot be graded is left blank with a reason; the others go on. A run that is killed at any moment
is finished by the next one.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from course_lib.grading.course import Course, quiet_nbgrader
from course_lib.grading.executors import Executor, executor, shard_of
from course_lib.grading.graded import GradedLesson
from course_lib.grading.intake.submissions import Submission, find_submissions
from course_lib.grading.jobs import Job, Result, Settings
from course_lib.grading.ledger import Entry
from course_lib.grading.plan import Run, plan, receive, unchanged
from course_lib.grading.publishing.publish import Publisher
from course_lib.grading.report.read_grades import read_lesson
from course_lib.workspace.errors import GradingError
from course_lib.workspace.files import write_atomically
from course_lib.workspace.locks import only_one
from course_lib.workspace.progress import Step

Progress = Callable[[Step], None]
_WORDS = {"graded": "graded", "published": "unchanged", "blank": "not gradable"}


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

    def refuse() -> NoReturn:
        raise GradingError(
            f"{course.root} is being graded by another process: wait until it is done"
        )

    started = time.monotonic()
    with quiet_nbgrader(), contextlib.ExitStack() as stack:
        course = Course(root)
        run = Run(course, lesson, settings or Settings())
        course.private.mkdir(exist_ok=True)
        stack.enter_context(only_one(course.private / "grade.lock", waiting=refuse))
        gc.freeze()  # a tenth of a driver's time goes into looking for garbage among its imports
        stack.callback(gc.unfreeze)
        found = find_submissions(course.step("submitted"), lesson, students)
        mine = set(shard_of([submission.student for submission in found], run.settings.shard))
        chosen = [submission for submission in found if submission.student in mine]
        _grade(run, chosen, progress or (lambda step: None), pool)
        summary = read_lesson(course, lesson)
    return replace(summary, seconds=time.monotonic() - started)


def _grade(
    run: Run, submissions: Sequence[Submission], progress: Progress, pool: Executor | None
) -> None:
    """Grade and publish."""
    counts, outcomes, started = Counter[str](), Counter[str](), time.monotonic()
    progress(Step(run.lesson, 0, len(submissions), f"{len(submissions)} submissions"))
    with contextlib.ExitStack() as workers:
        run.course.ensure_assignment(run.lesson, run.notebook)
        with run.course.gradebook() as gradebook:
            publisher = Publisher(run.course, run.lesson, gradebook)
            graded = publisher.graded()
            known = {student for student, is_current in graded.items() if is_current}
            begun: dict[str, Job] = {}

            def finish(entry: Entry) -> None:
                outcomes.update(_finish(run, entry, publisher))
                counts[_WORDS[entry.state]] += 1
                done, total = counts.total(), len(submissions)
                left = (time.monotonic() - started) / done * (total - done)
                told = dict(counts), dict(outcomes), left
                progress(Step(run.lesson, done, total, entry.student, *told))

            def jobs() -> Iterator[Job]:
                for submission in submissions:
                    planned = plan(run, submission, known)
                    if isinstance(planned, Job):
                        begun[planned.student] = planned
                        yield planned
                    else:
                        finish(planned)

            waiting = jobs()
            for first in waiting:  # no worker is started for a class that has not changed
                if pool is None:
                    pool = executor(run.settings, run.lesson)
                    workers.enter_context(contextlib.closing(pool))
                for result in pool.run(itertools.chain([first], waiting)):
                    entry = receive(run, begun.pop(result.student), result)
                    _write_log(run, entry, result)
                    finish(entry)
            workers.close()
            for student in graded.keys() - known - {s.student for s in submissions}:
                if again := unchanged(run, run.ledger.get(student), known):
                    _finish(run, again, publisher)
            publisher.write_pages(run.ledger)


def _finish(run: Run, entry: Entry, publisher: Publisher) -> list[str]:
    """Publish a graded submission, or clear a blank one; return the outcomes of its checks."""
    if entry.state == "blank":
        publisher.leave_blank(entry.student)
        run.ledger.put(entry)
    return publisher.publish(entry.student, entry.notebook) if entry.state == "graded" else []


def _write_log(run: Run, entry: Entry, result: Result) -> None:
    """Write what happened to one submission in its newest run."""
    path = run.course.log_path(entry.student, run.lesson)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{entry.student!r}, {run.lesson}, {time.strftime('%Y-%m-%d %H:%M:%S%z')}"]
    lines += [f"note: {notice}" for notice in entry.notices] + result.log
    if result.fault:
        lines.append(f"blank: {result.fault}")
    text = "\n".join(lines).encode("utf-8", "backslashreplace").decode()
    write_atomically(path, text + "\n")
