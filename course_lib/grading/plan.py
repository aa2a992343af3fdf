"""What one submission needs: nothing, to be published, to be left blank, or a job for a worker.

Of a submission whose check changed, only what depends on that check is judged again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.grading.course import Course, parse_graded
from course_lib.grading.fingerprints import checks_digests, key_of, seed_of, work_of
from course_lib.grading.graded_cells import check_cells
from course_lib.grading.intake.gate import IntakeError
from course_lib.grading.intake.parser import Pouring
from course_lib.grading.intake.submissions import Submission, choose, python_files, read_bytes
from course_lib.grading.jobs import Job, Result
from course_lib.grading.judging.plain_tests import digests_of, restore, tests_of
from course_lib.grading.ledger import MAX_ATTEMPTS, Entry, Ledger
from course_lib.grading.regrade import take_over
from course_lib.grading.settings import Settings


@dataclass(frozen=True)
class Run:
    """What all submissions of a run have in common.

    Attributes:
        release: the lesson's release notebook as text.
        notebook: the same, parsed once; never changed.
        tests: ordinary tests with what the release hides of them.
        seed: the secret from which each submission's own is made.
        pouring: reads submissions; to be closed.
    """

    course: Course
    lesson: str
    settings: Settings
    ledger: Ledger
    release: str
    notebook: NotebookNode
    tests: Mapping[str, str]
    seed: str
    pouring: Pouring

    @functools.cached_property
    def checks(self) -> Mapping[str, str]:
        """Digest of each check's sources, made while workers come up: half a second's work."""
        return {**checks_digests(self.lesson), **digests_of(self.tests)}


@dataclass(frozen=True)
class Settled:
    """A submission that no kernel has to run (any more).

    Attributes:
        entry: its state is "published" (nothing is left to do), "graded" (to be published) or
            "blank".
        notebook: the graded one, where it was read.
    """

    entry: Entry
    notebook: NotebookNode | None = None


def open_run(course: Course, lesson: str, settings: Settings) -> Run:
    """Read what a run needs to know once.

    Raises:
        GradingError: the lesson has no release notebook, or a damaged one.
    """
    release, notebook = course.read_release(lesson)
    tests = tests_of(course, lesson, notebook)
    return Run(
        course,
        lesson,
        settings,
        Ledger(course.ledger_path(lesson)),
        release,
        notebook,
        tests,
        course.check_seed(),
        Pouring(lesson, notebook),
    )


def plan(run: Run, submission: Submission, known: set[str]) -> Settled | Job:
    """Decide what a submission needs; a job is noted in the ledger as begun.

    Args:
        run: what is the same for the whole class.
        submission: as it was found.
        known: students of whom the gradebook has grades, with their lateness as it is now.
    """
    entry = run.ledger.get(submission.student)
    submission = choose(submission, run.pouring.has_answers)
    try:
        data = read_bytes(_notebook_of(submission))
        key = key_of(data, run.release, run.seed, run.settings.limits)
        same = _same_checks(run, entry, key)
        if len(same) == len(run.checks) and (done := unchanged(run, entry, known)):
            return done
        _refuse_poison(run, entry, key)
        return _begin(run, submission, entry, data, key, same)
    except IntakeError as error:
        return Settled(left_blank(replace(entry, notices=submission.notices), str(error)))


def _notebook_of(submission: Submission) -> Path:
    if submission.problem or submission.notebook is None:
        raise IntakeError(submission.problem or "no notebook")
    return submission.notebook


def _same_checks(run: Run, entry: Entry, key: str) -> set[str]:
    """The exercises that were graded before as they would be now."""
    if entry.key != key or entry.state not in ("graded", "published") or run.settings.force:
        return set()
    return {name for name, digest in run.checks.items() if entry.checks.get(name) == digest}


def unchanged(run: Run, entry: Entry, known: set[str]) -> Settled | None:
    """What is left to do for graded work; None if it is none, or its graded notebook was lost."""
    if entry.state == "graded":
        return Settled(entry)
    if entry.state != "published":
        return None
    notebook = run.course.read_graded(entry.student, run.lesson)
    if notebook is None or entry.student in known:
        return Settled(entry, notebook) if notebook else None
    # The gradebook was lost, another machine graded this share, or the lateness has changed.
    again = replace(entry, state="graded", notebook=nbformat.v4.writes(notebook))
    return Settled(run.ledger.put(again), notebook)


def _refuse_poison(run: Run, entry: Entry, key: str) -> None:
    again = entry.key == key and entry.checks == run.checks and not run.settings.force
    if again and entry.attempts >= MAX_ATTEMPTS:
        raise IntakeError(
            f"it ended the grader {entry.attempts} times: look at it, then grade it with --force"
        )


def _begin(
    run: Run, submission: Submission, entry: Entry, data: bytes, key: str, same: set[str]
) -> Job:
    """Pour the answers into the release, and note that work on them begins."""
    work = work_of(data)
    was_graded = entry.state == "published" or entry.regraded
    regraded = was_graded and entry.work == work and not run.settings.force
    modules = python_files(submission.folder)
    read = run.pouring.poured(data, _notebook_of(submission).name, modules)
    notebook, notices = read.notebook, (*submission.notices, *read.notices)
    restore(notebook, run.tests)
    notebook.metadata.setdefault("course", {})["notices"] = list(notices)
    earlier = _earlier_checks(run, entry) if same or regraded else ()
    settled = take_over(notebook, earlier, same)
    run.ledger.start(
        submission.student,
        key,
        run.checks,
        work=work,
        regraded=regraded,
        notices=notices,
        same=read.same,
        flagged={name: why for name, why in entry.flagged.items() if name in settled},
    )
    kept = tuple(earlier) if regraded else ()
    student, seed = submission.student, seed_of(run.seed, submission.student, work)
    return Job(student, run.lesson, key, notebook, seed, tuple(sorted(settled)), kept)


def _earlier_checks(run: Run, entry: Entry) -> tuple[NotebookNode, ...]:
    """The check cells of the notebook as it was graded the last time, if that can be read."""
    if entry.notebook:
        notebook = parse_graded(entry.notebook)
    else:
        notebook = run.course.read_graded(entry.student, run.lesson)
    return tuple(check_cells(notebook)) if notebook else ()


def receive(run: Run, result: Result) -> Settled:
    """Put a worker's result into the ledger; what a fault prevented is left blank."""
    entry = run.ledger.get(result.student)
    attempts = max(entry.attempts, result.attempts)
    entry = replace(entry, attempts=attempts, seconds=result.seconds)
    if result.fault:
        return Settled(left_blank(entry, result.fault))
    graded = replace(
        entry,
        key=result.key,
        state="graded",
        problem=None,
        flagged=entry.flagged | result.flagged,
        notebook=result.notebook,
    )
    return Settled(run.ledger.put(graded))


def left_blank(entry: Entry, problem: str) -> Entry:
    """An entry that says why its submission has no grade."""
    return replace(entry, state="blank", problem=problem, notebook="")


def log_lines(entry: Entry, result: Result) -> Iterable[str]:
    """What happened to one submission, for anyone who looks into it."""
    yield from (f"note: {notice}" for notice in entry.notices)
    yield from result.log
    if result.fault:
        yield f"blank: {result.fault}"
