"""`course grade`: from what was submitted to gradebook, autograded/ and feedback/.

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
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import nbformat

from course_lib.grading.course import Course, quiet_nbgrader, write_atomically
from course_lib.grading.executors import Executor, executor, shard_of
from course_lib.grading.graded import GradedLesson, GradedSubmission
from course_lib.grading.graded_cells import read_notebook
from course_lib.grading.intake.submissions import Submission, find_submissions
from course_lib.grading.jobs import Job, Result
from course_lib.grading.ledger import Entry
from course_lib.grading.plan import Run, log_lines, open_run, plan, receive, unchanged
from course_lib.grading.publishing.publish import Publisher
from course_lib.grading.report.read_grades import read_lesson
from course_lib.grading.settings import Progress, Settings
from course_lib.workspace.errors import GradingError
from course_lib.workspace.locks import only_one
from course_lib.workspace.progress import Step


def grade(
    root: Path,
    lesson: str,
    *,
    students: Sequence[str] | None = None,
    progress: Progress | None = None,
    settings: Settings | None = None,
) -> GradedLesson:
    """Grade what was submitted for a lesson and write feedback.

    Args:
        root: the course folder, which holds nbgrader_config.py.
        lesson: slug of the lesson, for example "02_masked_softmax".
        students: only these; everyone if None.
        progress: called with a `Step` for each submission; its text is a line for a terminal.
        settings: executor, sandbox and limits.

    Returns:
        The whole lesson as it is in the gradebook afterwards.

    Raises:
        GradingError: nothing can be graded; the message names the file and the remedy.
    """
    started = time.monotonic()
    settings = settings or Settings()
    with quiet_nbgrader():
        run = open_run(Course(root), lesson, settings)
        with _alone(run.course), _imports_frozen():
            submissions = _chosen(run, students)
            run.course.ensure_assignment(lesson, run.notebook)
            known = _grade(run, submissions, progress or (lambda step: None))
            summary = read_lesson(run.course, lesson, known=known)
    return replace(summary, seconds=time.monotonic() - started)


@contextlib.contextmanager
def _imports_frozen() -> Iterator[None]:
    """Nothing looks for garbage through all that is there already: a tenth of a driver's time."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _alone(course: Course) -> Iterator[None]:
    """Nobody else grades this course meanwhile.

    Raises:
        GradingError: someone does.
    """

    def refuse() -> NoReturn:
        raise GradingError(
            f"{course.root} is being graded by another process: wait until it is done"
        )

    course.private.mkdir(exist_ok=True)
    with only_one(course.private / "grade.lock", waiting=refuse):
        yield


def _chosen(run: Run, students: Sequence[str] | None) -> list[Submission]:
    """The submissions of these students that are in this machine's share."""
    found = find_submissions(run.course.step("submitted"), run.lesson, students)
    mine = set(shard_of([s.student for s in found], run.settings.shard))
    return [submission for submission in found if submission.student in mine]


def _grade(
    run: Run, submissions: Sequence[Submission], progress: Progress
) -> dict[str, GradedSubmission]:
    """Grade and publish; return what the graded notebooks say, by student."""
    read: dict[str, GradedSubmission] = {}
    tally = _Tally(run.lesson, len(submissions), progress)
    with Publisher(run.course, run.lesson).open() as publisher:

        def finish(entry: Entry) -> None:
            grades = _finish(run, entry, publisher)
            if grades is not None:
                read[entry.student] = grades
            tally.count(entry, grades)

        graded = publisher.graded()
        known = {student for student, is_current in graded.items() if is_current}
        jobs = _jobs(run, submissions, known, finish)
        anyone_new = any(s.notebook and not run.ledger.get(s.student).state for s in submissions)
        at_once = run.lesson if anyone_new else ""
        meanwhile = publisher.get_ready if anyone_new else lambda: None
        with contextlib.closing(_execute(run.settings, jobs, at_once, meanwhile)) as results:
            for result in results:
                entry = receive(run, result)
                _write_log(run, entry, result)
                finish(entry)
        for student in graded.keys() - known - {s.student for s in submissions}:
            if again := unchanged(run, run.ledger.get(student), known):
                _finish(run, again, publisher)
        for entry in publisher.write_pages(run.ledger):
            run.ledger.published(entry)
    return read


def _jobs(
    run: Run, submissions: Iterable[Submission], known: set[str], finish: Callable[[Entry], None]
) -> Iterator[Job]:
    """A job for each submission that has to run; the others are finished at once."""
    for submission in submissions:
        planned = plan(run, submission, known)
        if isinstance(planned, Job):
            yield planned
        else:
            finish(planned)


def _execute(
    settings: Settings, jobs: Iterator[Job], at_once: str, meanwhile: Callable[[], None]
) -> Generator[Result, None, None]:
    """Run jobs; no worker is started for a class that has not changed.

    Args:
        settings: executor, sandbox and limits.
        jobs: made as they are asked for.
        at_once: a lesson whose workers come up before the first job is made, for there will be
            one; "" if there may be none.
        meanwhile: called while they do.
    """
    with contextlib.ExitStack() as stack:
        workers = stack.enter_context(_workers(settings, at_once)) if at_once else None
        meanwhile()
        for first in jobs:
            workers = workers or stack.enter_context(_workers(settings))
            yield from workers.run(itertools.chain([first], jobs))


def _workers(settings: Settings, lesson: str = "") -> contextlib.closing[Executor]:
    made = executor(
        settings.executor,
        sandbox=settings.sandbox,
        limits=settings.limits,
        workers=settings.workers,
        lesson=lesson,
    )
    return contextlib.closing(made)


def _finish(run: Run, entry: Entry, publisher: Publisher) -> GradedSubmission | None:
    """Publish a graded submission, or clear a blank one; return what its graded notebook says."""
    if entry.state == "blank":
        publisher.leave_blank(entry.student)
        run.ledger.put(entry)
        return None
    if entry.state == "published":
        notebook = run.course.read_graded(entry.student, run.lesson)
        return read_notebook(notebook, entry.student) if notebook else None
    notebook = nbformat.v4.reads(entry.notebook)  # written by us
    grades = read_notebook(notebook, entry.student)
    publisher.publish(entry.student, entry.notebook, notebook, grades)
    return grades


def _write_log(run: Run, entry: Entry, result: Result) -> None:
    """What happened to one submission in its newest run."""
    student = result.student
    path = run.course.log_path(student, run.lesson)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"{student!r}, {run.lesson}, {time.strftime('%Y-%m-%d %H:%M:%S%z')}"
    text = "\n".join([head, *log_lines(entry, result)])
    write_atomically(path, text.encode("utf-8", "backslashreplace").decode() + "\n")


_WORDS = {"graded": "graded", "published": "unchanged", "blank": "not gradable"}


class _Tally:
    """Counts what is done and tells it."""

    def __init__(self, lesson: str, total: int, tell: Progress) -> None:
        self.lesson, self.total, self.tell = lesson, total, tell
        self.counts: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.started = time.monotonic()
        tell(Step(lesson, 0, total, f"{total} submissions"))

    def count(self, entry: Entry, grades: GradedSubmission | None) -> None:
        """Count one more submission."""
        self.counts[_WORDS[entry.state]] += 1
        if grades is not None and entry.state == "graded":
            self.outcomes.update(one.outcome for one in grades.rows)
        done = self.counts.total()
        left = (time.monotonic() - self.started) / done * (self.total - done)
        counts, outcomes = dict(self.counts), dict(self.outcomes)
        self.tell(Step(self.lesson, done, self.total, entry.student, counts, outcomes, left))
