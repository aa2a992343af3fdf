"""What one submission needs: nothing, to be published, to be left blank, or a job for a worker.

Of a submission whose check changed, only what depends on that check is judged again. Points of the
same work that rise are taken at once. Points that would fall stay, with the report that gave them,
and the exercise is flagged; `--force` takes the new points.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import replace

import nbformat
from nbformat import NotebookNode

from course_lib.grading.course import Course, parse_graded
from course_lib.grading.fingerprints import checks_digests, key_of, seed_of, work_of
from course_lib.grading.graded_cells import check_cells, grade_id, is_plain_test, read_check
from course_lib.grading.intake.gate import IntakeError, utf8
from course_lib.grading.intake.read import has_answers, read_bytes
from course_lib.grading.intake.submissions import Submission, choose
from course_lib.grading.jobs import Job, Result, Settings
from course_lib.grading.judging.plain_tests import digests_of, tests_of
from course_lib.grading.ledger import Entry, Ledger


class Run:
    """What all submissions of a run have in common.

    Attributes:
        release: the lesson's release notebook as text.
        notebook: the same, parsed once; never changed.
        tests: ordinary tests with what the release hides of them.
        seed: the secret from which each submission's own is made.

    Raises:
        GradingError: the lesson has no release notebook, or a damaged one.
    """

    def __init__(self, course: Course, lesson: str, settings: Settings) -> None:
        self.course, self.lesson, self.settings = course, lesson, settings
        self.release, self.notebook = course.read_release(lesson)
        self.tests = tests_of(course, lesson, self.notebook)
        self.ledger = Ledger(course.ledger_path(lesson))
        self.seed = course.check_seed()

    @functools.cached_property
    def checks(self) -> Mapping[str, str]:
        """Digest of each check's sources, made while workers come up: half a second's work."""
        return {**checks_digests(self.lesson), **digests_of(self.tests)}


def plan(run: Run, submission: Submission, known: Collection[str]) -> Entry | Job:
    """Decide what a submission needs; a job is noted in the ledger as begun.

    Args:
        run: what is the same for the whole class.
        submission: as it was found.
        known: students of whom the gradebook has grades, with their lateness as it is now.
    """
    entry = run.ledger.get(submission.student)
    submission = choose(submission, functools.partial(has_answers, run.lesson, run.notebook))
    try:
        if submission.problem or submission.notebook is None:
            raise IntakeError(submission.problem or "no notebook")
        data = read_bytes(submission.notebook)
    except IntakeError as error:
        blank = replace(entry, notices=submission.notices, problem=str(error))
        return replace(blank, state="blank", notebook="", is_final=False)
    key, right = key_of(data, run.release, run.seed, run.settings.limits), {}
    if entry.key == key and not run.settings.force:
        if entry.is_final and entry.checks == run.checks:
            return entry
        same: set[str] = set()
        if entry.state in ("graded", "published"):
            same = {name for name, digest in run.checks.items() if entry.checks.get(name) == digest}
        if len(same) == len(run.checks) and (done := unchanged(run, entry, known)):
            return done
        before = {grade_id(cell): read_check(cell) for cell in _checks_before(run, entry)}
        right = {name: before[name].outcome == "correct" for name in same & before.keys()}
    work = work_of(data)
    begun = Entry(
        submission.student,
        key,
        dict(run.checks),
        "started",
        notices=submission.notices,
        flagged={name: why for name, why in entry.flagged.items() if name in right},
        notebook=entry.notebook if right else "",
        work=work,
        regraded=(entry.state == "published" or entry.regraded)
        and entry.work == work
        and not run.settings.force,
    )
    run.ledger.put(begun)
    return Job(
        submission.student,
        run.lesson,
        key,
        data,
        run.release,
        seed_of(run.seed, submission.student, work),
        submission.notebook.name,
        run.tests,
        right,
        frozenset(utf8(path.name) for path in submission.folder.iterdir()),
    )


def unchanged(run: Run, entry: Entry, known: Collection[str]) -> Entry | None:
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


def receive(run: Run, result: Result) -> Entry:
    """Put a worker's result into the ledger; leave blank what could not be graded."""
    entry = run.ledger.get(result.student)
    entry = replace(
        entry,
        seconds=result.seconds,
        notices=(*entry.notices, *result.notices),
    )
    if result.fault or result.notebook is None:
        problem = result.fault or "not graded"
        return replace(entry, state="blank", problem=problem, is_final=result.is_final, notebook="")
    result.notebook.metadata.setdefault("course", {})["notices"] = list(entry.notices)
    kept = _take_over(result.notebook, _checks_before(run, entry), entry.regraded)
    result.log += [f"{name}: {why}" for name, why in kept.items()]
    graded = replace(
        entry,
        state="graded",
        flagged=entry.flagged | result.flagged | kept,
        notebook=nbformat.v4.writes(result.notebook, indent=None),
    )
    return run.ledger.put(graded)


def _checks_before(run: Run, entry: Entry) -> list[NotebookNode]:
    """The check cells of the notebook as it was graded the last time, if that can be read."""
    if entry.notebook:
        notebook = parse_graded(entry.notebook)
    else:
        notebook = run.course.read_graded(entry.student, run.lesson)
    return check_cells(notebook) if notebook else []


def _take_over(
    notebook: NotebookNode, before: Collection[NotebookNode], is_same_work: bool
) -> dict[str, str]:
    """Put back the outputs of checks that were not judged again, or that gave more points before.

    Returns:
        Why a person should look, by exercise.
    """
    earlier, flagged = {grade_id(cell): cell for cell in before}, {}
    for cell in check_cells(notebook):
        if (old := earlier.get(grade_id(cell))) is None:
            continue
        if not cell.outputs and not is_plain_test(cell):
            cell.outputs = old.outputs
        elif is_same_work:
            was, now = read_check(old), read_check(cell)
            if was.points is None or now.points is None or was.max_points != now.max_points:
                continue
            if now.points < was.points - 1e-6:
                cell.outputs = old.outputs
                flagged[now.exercise] = (
                    f"graded again, this same work would get {now.points:g} instead of "
                    f"{was.points:g} points, which it keeps; --force takes the new points"
                )
    return flagged
