"""The cells of a rebuilt notebook, one after the other: run it, or observe and judge a check.

What builds on a wrong answer is judged once more with the course's version in its place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from nbformat import NotebookNode

from course_lib.authoring.paste import solution_source
from course_lib.checks.judge.example import Example
from course_lib.checks.judge.report import Report
from course_lib.exercises import find
from course_lib.grading.graded_cells import (
    ANSWER,
    grade_id,
    is_check,
    is_plain_test,
    is_run,
    read_check,
)
from course_lib.grading.jobs import Job
from course_lib.grading.judging.exercise import (
    MAYBE_ANOTHERS,
    Unnamed,
    answer_of,
    judge_twice,
    needed,
    right_with_other_inputs,
)
from course_lib.grading.judging.plain_tests import shown_of_test
from course_lib.grading.judging.predecessors import Uses
from course_lib.grading.judging.session import LOST, CannotJudge, Session
from course_lib.grading.publishing.check_outputs import Shown
from course_lib.grading.sandbox.guests import Ran


def grade_cells(
    session: Session, job: Job, notebook: NotebookNode, shown: Shown
) -> tuple[dict[str, Report], dict[str, str]]:
    """Run every cell in order; the outputs of all but the judged checks are written in place.

    Args:
        session: the student's guest.
        job: holds the seed, and which checks need not be judged again.
        notebook: rebuilt from the student's.
        shown: takes what its cells put out.

    Returns:
        The reports by exercise, and exercises for a person to look at, with the reason.

    Raises:
        GuestLost: a guest was lost, and not by what ran in it.
        CannotJudge: no other attempt would end otherwise.
    """
    flagged: dict[str, str] = {}
    reports: dict[str, Report] = {}
    unnamed: Unnamed = {}
    errors: list[str] = []
    for index, cell in enumerate(notebook.cells):
        if not is_run(cell):
            continue
        session.check_budget()
        if not is_check(cell):
            ran = _run_cell(session, index, cell)
            errors += [output.get("evalue", "") for output in ran.outputs]
            shown.keep(cell, ran)
            continue
        if is_plain_test(cell):
            ran = _run_cell(session, index, cell)
            cell.outputs = shown_of_test(ran, session.harmful.get(index))
            continue
        name = grade_id(cell)
        cell.execution_count = index + 1
        if name in job.same:
            session.remember(name, index)
            continue
        later: Unnamed | None = {} if _builds_on_wrong(session.uses, reports, name) else None
        reports[name] = report = judge_twice(session, job, name, index, later)
        if later and report.score < 1.0:
            unnamed |= later
        elif _is_unexplained(report) and right_with_other_inputs(session, job, name, index):
            flagged[name] = "wrong with one set of inputs, right with another"
    _judge_beside_ours(session, job, notebook, reports, unnamed)
    reports |= {name: judge() for name, judge in unnamed.items()}
    reports = {name: _with_files(one, job.beside, errors) for name, one in reports.items()}
    for report in reports.values():
        session.journal.note(_line(report))
    return reports, flagged


def _line(report: Report) -> str:
    mistake = f" ({report.mistake})" if report.mistake else ""
    points = f"{report.points:g} of {report.max_points:g}"
    return f"check {report.exercise}: {report.outcome}{mistake}, {points}"


def _builds_on_wrong(uses: Uses, reports: Mapping[str, Report], name: str) -> bool:
    """Whether an answer names one that lost points, or puts such together.

    The former is judged again beside the course's version, and most often nobody asks then which
    mistake this one made; neither needs other inputs to say why it is wrong.
    """
    wrong = {known for known, report in reports.items() if report.score < 1.0}
    chain = find(name).chain
    built_on = uses.before(chain or (name,)) if wrong else []
    return not wrong.isdisjoint({*chain, *built_on})


def _judge_beside_ours(
    session: Session,
    job: Job,
    notebook: NotebookNode,
    reports: dict[str, Report],
    unnamed: Unnamed,
) -> None:
    """Judge once more what failed and builds on what failed, with the course's version of that.

    The solutions are in that guest beside the student's code, so nothing but points leaves it.
    What has all of them then needs no name for its mistake: it is taken out of `unnamed`.
    """
    if all(report.score >= 1.0 for report in reports.values()):
        return
    uses, failed = session.uses, set()
    for index, cell in enumerate(notebook.cells):
        if not is_check(cell) or is_plain_test(cell):
            continue
        name = grade_id(cell)
        first = reports.get(name)
        if first is None:  # graded before
            failed |= {name} if read_check(cell).outcome != "correct" else set()
            continue
        if first.score >= 1.0:
            continue
        ours = _sources_of(failed, uses, find(name).chain or (name,))
        failed.add(name)
        if not ours:
            continue
        try:
            session.check_budget()
        except CannotJudge:  # what was judged within the budget stays
            return
        _put_in_place(session, ours, name)
        second = judge_twice(session, job, name, index, {})
        if _is_judged(second) and second.score > first.score:
            if second.score >= 1.0:
                failed.discard(name)
                unnamed.pop(name, None)
            elif name in unnamed:
                first = unnamed.pop(name)()
            reports[name] = _with_points_of(second, first, ours)


def _put_in_place(session: Session, ours: dict[str, str], name: str) -> None:
    """The next guest runs the course's answers in place of some, and tries this one's again."""
    session.close()
    session.ours = ours
    if (answer := answer_of(session, name)) is not None:
        session.harmful.pop(answer, None)


def _sources_of(failed: Collection[str], uses: Uses, names: Collection[str]) -> dict[str, str]:
    """The course's source of each failed exercise that some answers build on, or its own does."""
    ours: dict[str, str] = {}
    while new := [n for n in uses.before({*names, *ours}) if n in failed]:
        ours |= {name: solution_source(name) for name in new}
        uses = uses.with_sources(ours.values())
    return ours


def _with_points_of(second: Report, first: Report, ours: Collection[str]) -> Report:
    """The points of a judgement, and of all that it says nothing else."""
    names = ", ".join(f"`{name}`" for name in ours)
    note = f"graded with the course's {names} in place of yours"
    taken = replace(second, findings=[], mistake=None, tally="", example=Example(), notes=[note])
    if second.outcome != "correct" and _is_judged(first):
        taken = replace(taken, findings=first.findings, example=first.example)
    return taken


def _is_judged(report: Report) -> bool:
    return report.outcome in ("correct", "incorrect", "raised")


def _run_cell(session: Session, index: int, cell: NotebookNode) -> Ran:
    """Run a cell that is not a check, and record why if it ended the guest."""
    ran = session.run(cell.source, index)
    if ran.left:
        session.notices[index] = (
            f"{_place(index, cell)} asked the interpreter to end: later cells ran"
        )
    died = ran.state == "died" and session.ending_of(ran) in MAYBE_ANOTHERS
    if died or (session.crowded and ran.state != "ok"):
        name = grade_id(cell)
        own = needed(session, name.removesuffix(ANSWER)) if name.endswith(ANSWER) else None
        session.renew(index, own)
        ran = session.run(cell.source, index)
    cell.execution_count = ran.count
    why = ""
    if ran.state in LOST:
        session.harmful[index] = session.ending_of(ran)
        why = f" ({session.harmful[index]})"
        session.notices[index] = (
            f"{_place(index, cell)} ended its process{why}: all other cells ran again without it"
        )
        session.close()  # what stopped in time may still fill the memory
    if ran.state != "ok":
        name = grade_id(cell) or cell.get("id", "")
        session.journal.note(f"cell {index + 1} {name}: {ran.state}{why} after {ran.seconds:.2f} s")
    return ran


def _place(index: int, cell: NotebookNode) -> str:
    return f"cell {index + 1} ({name})" if (name := grade_id(cell)) else f"cell {index + 1}"


def _is_unexplained(report: Report) -> bool:
    """Return whether an answer is wrong and no known mistake gives what it gives."""
    return _is_judged(report) and report.outcome != "correct" and report.mistake is None


def _with_files(report: Report, beside: Collection[str], errors: list[str]) -> Report:
    """Name the files beside the notebook whose absence errors tell, where an answer is missing."""
    if report.outcome not in ("raised", "not_attempted"):
        return report
    first, *others = report.findings
    said = "\n".join((*errors, first.message))
    asked = {f"{module}.py" for module in re.findall(r"No module named '(\w+)", said)}
    asked |= set(re.findall(r"'([^'\n]+)'", said))
    if unused := sorted(asked & {*beside}):
        told = " ".join(f"`{name}` was handed in, but is not used." for name in unused)
        hint = "Grading runs the notebook alone. Put the code of that file into one of its cells."
        first = replace(first, message=f"{first.message.rstrip('.')}. {told}", hint=hint)
    return replace(report, findings=[first, *others])
