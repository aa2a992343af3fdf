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
from course_lib.grading.graded_cells import check_cells, grade_id
from course_lib.grading.intake.gate import IntakeError, utf8
from course_lib.grading.intake.read import has_answers, read_bytes
from course_lib.grading.intake.submissions import Submission, choose
from course_lib.grading.jobs import Job, Result
from course_lib.grading.judging.plain_tests import digests_of, tests_of
from course_lib.grading.ledger import MAX_ATTEMPTS, Entry, Ledger
from course_lib.grading.publishing.check_outputs import fill_checks
from course_lib.grading.regrade import keep_points
from course_lib.grading.settings import Settings


@dataclass(frozen=True)
class Run:
    """What all submissions of a run have in common.

    Attributes:
        release: the lesson's release notebook as text.
        notebook: the same, parsed once; never changed.
        tests: ordinary tests with what the release hides of them.
        seed: the secret from which each submission's own is made.
    """

    course: Course
    lesson: str
    settings: Settings
    ledger: Ledger
    release: str
    notebook: NotebookNode
    tests: Mapping[str, str]
    seed: str

    @functools.cached_property
    def checks(self) -> Mapping[str, str]:
        """Digest of each check's sources, made while workers come up: half a second's work."""
        return {**checks_digests(self.lesson), **digests_of(self.tests)}


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
    )


def plan(run: Run, submission: Submission, known: set[str]) -> Entry | Job:
    """Decide what a submission needs; a job is noted in the ledger as begun.

    Args:
        run: what is the same for the whole class.
        submission: as it was found.
        known: students of whom the gradebook has grades, with their lateness as it is now.
    """
    entry = run.ledger.get(submission.student)
    submission = choose(submission, functools.partial(has_answers, run.lesson, run.notebook))
    try:
        data = read_bytes(_notebook_of(submission))
        key = key_of(data, run.release, run.seed, run.settings.limits)
        same = _same_checks(run, entry, key)
        if len(same) == len(run.checks) and (done := unchanged(run, entry, known)):
            return done
        _refuse_poison(run, entry, key)
        return _begin(run, submission, entry, data, key, same)
    except IntakeError as error:
        return left_blank(replace(entry, notices=submission.notices), str(error))


def _notebook_of(submission: Submission) -> Path:
    if submission.problem or submission.notebook is None:
        raise IntakeError(submission.problem or "no notebook")
    return submission.notebook


def _same_checks(run: Run, entry: Entry, key: str) -> set[str]:
    """The exercises that were graded before as they would be now."""
    if entry.key != key or entry.state not in ("graded", "published") or run.settings.force:
        return set()
    return {name for name, digest in run.checks.items() if entry.checks.get(name) == digest}


def unchanged(run: Run, entry: Entry, known: set[str]) -> Entry | None:
    """What is left to do for graded work; None if it is none, or its graded notebook was lost."""
    if entry.state == "graded":
        return entry
    if entry.state != "published":
        return None
    notebook = run.course.read_graded(entry.student, run.lesson)
    if notebook is None or entry.student in known:
        return entry if notebook else None
    # The gradebook was lost, another machine graded this share, or the lateness has changed.
    again = replace(entry, state="graded", notebook=nbformat.v4.writes(notebook, indent=None))
    return run.ledger.put(again)


def _refuse_poison(run: Run, entry: Entry, key: str) -> None:
    again = entry.key == key and entry.checks == run.checks and not run.settings.force
    if again and entry.attempts >= MAX_ATTEMPTS:
        raise IntakeError(
            f"it ended the grader {entry.attempts} times: look at it, then grade it with --force"
        )


def _begin(
    run: Run, submission: Submission, entry: Entry, data: bytes, key: str, same: set[str]
) -> Job:
    """Return the job, and note that work on it begins."""
    work, name = work_of(data), _notebook_of(submission).name
    was_graded = entry.state == "published" or entry.regraded
    regraded = was_graded and entry.work == work and not run.settings.force
    earlier = _earlier_checks(run, entry) if same else ()
    same &= {grade_id(cell) for cell in earlier}
    flagged = {name: why for name, why in entry.flagged.items() if name in same}
    about = {"work": work, "regraded": regraded, "flagged": flagged}
    run.ledger.start(submission.student, key, run.checks, notices=submission.notices, **about)
    return Job(
        submission.student,
        run.lesson,
        key,
        data,
        run.release,
        seed_of(run.seed, submission.student, work),
        name,
        run.tests,
        earlier,
        frozenset(same),
        frozenset(utf8(path.name) for path in submission.folder.iterdir()),
    )


def _earlier_checks(run: Run, entry: Entry) -> tuple[NotebookNode, ...]:
    """The check cells of the notebook as it was graded the last time, if that can be read."""
    if entry.notebook:
        notebook = parse_graded(entry.notebook)
    else:
        notebook = run.course.read_graded(entry.student, run.lesson)
    return tuple(check_cells(notebook)) if notebook else ()


def receive(run: Run, result: Result) -> Entry:
    """Put a worker's result into the ledger; leave blank what could not be graded."""
    entry = run.ledger.get(result.student)
    entry = replace(
        entry,
        attempts=max(entry.attempts, result.attempts),
        seconds=result.seconds,
        notices=(*entry.notices, *result.notices),
        same=result.same_as_course,
    )
    if result.fault or result.notebook is None:
        return left_blank(entry, result.fault or "not graded")
    result.notebook.metadata.setdefault("course", {})["notices"] = list(entry.notices)
    fill_checks(result.notebook, result.reports)
    if entry.regraded and (before := run.course.read_graded(entry.student, run.lesson)):
        kept = keep_points(check_cells(before), result.notebook)
        result.flagged |= kept
        result.log += [f"{name}: {why}" for name, why in kept.items()]
    graded = replace(
        entry,
        key=result.key,
        state="graded",
        problem=None,
        flagged=entry.flagged | result.flagged,
        notebook=nbformat.v4.writes(result.notebook, indent=None),
    )
    return run.ledger.put(graded)


def left_blank(entry: Entry, problem: str) -> Entry:
    """An entry that says why its submission has no grade."""
    return replace(entry, state="blank", problem=problem, notebook="")


def log_lines(entry: Entry, result: Result) -> Iterable[str]:
    """What happened to one submission, for anyone who looks into it."""
    yield from (f"note: {notice}" for notice in entry.notices)
    yield from result.log
    if result.fault:
        yield f"blank: {result.fault}"
