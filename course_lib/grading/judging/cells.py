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
from course_lib.checks.observe.remote import Request
from course_lib.exercises import find
from course_lib.grading.graded_cells import grade_id, is_check, is_plain_test, is_run
from course_lib.grading.jobs import Job
from course_lib.grading.judging.exercise import (
    Verdict,
    judge_twice,
    right_with_other_inputs,
    settled,
)
from course_lib.grading.judging.plain_tests import shown_of_test
from course_lib.grading.judging.predecessors import Uses
from course_lib.grading.judging.session import CannotJudge, Session
from course_lib.grading.publishing.check_outputs import Shown


def grade_cells(
    session: Session, job: Job, notebook: NotebookNode
) -> tuple[dict[str, Report], dict[str, str]]:
    """Run every cell in order; the outputs of all but the judged checks are written in place.

    Args:
        session: the student's guest.
        job: holds the seed, and which checks need not be judged again.
        notebook: rebuilt from the student's.

    Returns:
        The reports by exercise, and exercises for a person to look at, with the reason.

    Raises:
        GuestLost: a guest was lost, and not by what ran in it.
        CannotJudge: no other attempt would end otherwise.
    """
    flagged: dict[str, str] = {}
    verdicts: dict[str, Verdict] = {}
    errors: list[str] = []
    shown = Shown(notebook)
    for index, cell in enumerate(notebook.cells):
        if not is_run(cell):
            continue
        session.check_budget()
        name = grade_id(cell)
        if is_check(cell) and not is_plain_test(cell):
            cell.execution_count = index + 1
            if name in job.same:  # remember the answer as it is now, for the integration
                session.observe(Request(name, []), index)
                continue
            verdict = judge_twice(session, job, name, index)
            if verdict.report.outcome == "correct":
                verdict = settled(verdict.report)
            elif not _builds_on_wrong(session.uses, verdicts, name):
                verdict = settled(verdict.named(True))
                unknown = _is_judged(verdict.report) and verdict.report.mistake is None
                if unknown and right_with_other_inputs(session, job, name, index):
                    flagged[name] = "wrong with one set of inputs, right with another"
            verdicts[name] = verdict
            continue
        ran = session.run_cell(index)
        cell.execution_count = ran.count
        if is_check(cell):
            cell.outputs = shown_of_test(ran, session.harmful.get(index))
        else:
            errors += [output.get("evalue", "") for output in ran.outputs]
            shown.keep(cell, ran)
    _judge_beside_ours(session, job, notebook, verdicts)
    reports = {name: verdict.named(False) for name, verdict in verdicts.items()}
    reports = {name: _with_files(one, job.beside, errors) for name, one in reports.items()}
    for name, report in reports.items():
        mistake = f" ({report.mistake})" if report.mistake else ""
        points = f"{report.points:g} of {report.max_points:g}"
        session.note(f"check {name}: {report.outcome}{mistake}, {points}")
    return reports, flagged


def _builds_on_wrong(uses: Uses, verdicts: Mapping[str, Verdict], name: str) -> bool:
    """Whether an answer names one that lost points, or puts such together.

    The former is judged again beside the course's version, and most often nobody asks then which
    mistake this one made; neither needs other inputs to say why it is wrong.
    """
    wrong = {known for known, verdict in verdicts.items() if verdict.report.score < 1.0}
    chain = find(name).chain
    built_on = uses.before(chain or (name,)) if wrong else []
    return not wrong.isdisjoint({*chain, *built_on})


def _judge_beside_ours(
    session: Session, job: Job, notebook: NotebookNode, verdicts: dict[str, Verdict]
) -> None:
    """Judge once more what failed and builds on what failed, with the course's version of that.

    The solutions are in that guest beside the student's code, so nothing but points leaves it.
    """
    if all(verdict.report.score >= 1.0 for verdict in verdicts.values()):
        return
    failed: set[str] = set()
    for index, cell in enumerate(notebook.cells):
        if not is_check(cell) or is_plain_test(cell):
            continue
        name = grade_id(cell)
        if name not in verdicts:  # graded before
            failed |= set() if job.same.get(name) else {name}
            continue
        first = verdicts[name]
        if first.report.score >= 1.0:
            continue
        ours = _sources_of(failed, session.uses, find(name).chain or (name,))
        failed.add(name)
        if not ours:
            continue
        try:
            session.check_budget()
        except CannotJudge:  # what was judged within the budget stays
            return
        session.put_in_place(ours, name)
        second = judge_twice(session, job, name, index).report
        if _is_judged(second) and second.score > first.report.score:
            if second.score >= 1.0:
                failed.discard(name)
            verdicts[name] = settled(_with_points_of(second, first, ours))


def _sources_of(failed: Collection[str], uses: Uses, names: Collection[str]) -> dict[str, str]:
    """The course's source of each failed exercise that some answers build on, or its own does."""
    ours: dict[str, str] = {}
    while new := [n for n in uses.before({*names, *ours}, ours.values()) if n in failed]:
        ours |= {name: solution_source(name) for name in new}
    return ours


def _with_points_of(second: Report, first: Verdict, ours: Collection[str]) -> Report:
    """The points of a judgement, and of all that it says nothing else."""
    names = ", ".join(f"`{name}`" for name in ours)
    note = f"graded with the course's {names} in place of yours"
    taken = replace(second, findings=[], mistake=None, tally="", example=Example(), notes=[note])
    if second.outcome != "correct" and _is_judged(first.report):
        named = first.named(False)
        taken = replace(taken, findings=named.findings, example=named.example)
    return taken


def _is_judged(report: Report) -> bool:
    return report.outcome in ("correct", "incorrect", "raised")


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
