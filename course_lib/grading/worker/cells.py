"""Run the cells of a rebuilt notebook in a guest, in order, and judge its checks here.

Answers that build on a wrong one are judged again with the course's version in its place.
"""

import re
from collections.abc import Collection
from dataclasses import replace

from nbformat import NotebookNode

from course_lib.authoring.paste import solution_source
from course_lib.checks.judge.example import Example
from course_lib.checks.judge.report import Report
from course_lib.exercises import find
from course_lib.grading.cell_kinds import grade_id, is_check, is_plain_test, is_used
from course_lib.grading.jobs import Job
from course_lib.grading.worker.judge_checks import judge_with_retries
from course_lib.grading.worker.renewable_guest import OverBudget, RenewableGuest
from course_lib.grading.write_checks import room_for_outputs, shown_of_cell, shown_of_test


def grade_cells(guest: RenewableGuest, job: Job, notebook: NotebookNode) -> dict[str, Report]:
    """Run every cell in order, and return the reports by exercise.

    Outputs are written in place, except those of judged checks.
    """
    reports: dict[str, Report] = {}
    errors: list[str] = []
    room = room_for_outputs(notebook)
    for index, cell in enumerate(notebook.cells):
        if not is_used(cell):
            continue
        guest.check_budget()
        name = grade_id(cell)
        if is_check(cell) and not is_plain_test(cell):
            cell.execution_count = index + 1
            reports[name] = judge_with_retries(guest, job, name, index)
            continue
        ran = guest.run_cell(index)
        cell.execution_count = ran.count
        if is_check(cell):
            cell.outputs = shown_of_test(ran, guest.harmful.get(index))
        else:
            errors += [output.get("evalue", "") for output in ran.outputs]
            room -= ran.size
            cell.outputs = shown_of_cell(ran, room)
    _judge_beside_ours(guest, job, notebook, reports)
    for name, report in list(reports.items()):
        report = report.without_repeats(reports[n] for n in find(name).chain if n in reports)
        reports[name] = _with_files(report, job.beside, errors)
        mistake = f" ({report.mistake})" if report.mistake else ""
        points = f"{report.points:g} of {report.max_points:g}"
        guest.note(f"check {name}: {report.outcome}{mistake}, {points}")
    return reports


def _judge_beside_ours(
    guest: RenewableGuest, job: Job, notebook: NotebookNode, reports: dict[str, Report]
) -> None:
    """Judge again failed answers that build on failed ones, given the course's versions.

    This guest has the solutions beside the student's code, so only points may leave it. The
    course's version of an exercise is lent if another one builds on the exercise, if the student
    attempted it, and if it is not optional. A notice names what was lent.
    """
    failed: set[str] = set()
    for index, cell in enumerate(notebook.cells):
        name = grade_id(cell)
        first = reports.get(name) if is_check(cell) else None
        if first is None or first.outcome in ("correct", "checker_failed"):
            continue
        ours = _sources_of(guest, failed, find(name).chain or (name,))
        if first.outcome != "not_attempted" and not first.starred:
            failed.add(name)
        if not ours:
            continue
        try:
            guest.check_budget()
            guest.put_in_place(ours, name)
            second = judge_with_retries(guest, job, name, index, explain=False)
        except OverBudget:  # the results so far stay
            return
        if _is_judged(second) and second.score > first.score:
            if second.score >= 1.0:
                failed.discard(name)
            reports[name] = _with_points_of(second, first, ours)
            lent = ", ".join(f"`{each}`" for each in ours)
            notice = f"{name}: graded with the course's {lent}, as the student's own code is wrong"
            guest.notices[index] = "; ".join(filter(None, [guest.notices.get(index), notice]))


def _sources_of(guest: RenewableGuest, failed: set[str], names: Collection[str]) -> dict[str, str]:
    """Return the course's source of each failed exercise on which some answers may build."""
    needed = list(names)  # grows during the loop
    for name in needed:
        needed += [one for one in find(name).builds_on if one not in needed]
    ours: dict[str, str] = {}
    lendable = failed & {*needed}
    while new := [n for n in guest.builds_on({*names, *ours}, ours.values()) if n in lendable]:
        ours |= {name: solution_source(name) for name in new}
    return ours


def _with_points_of(second: Report, first: Report, ours: Collection[str]) -> Report:
    """Return the report of a second judgement, reduced to its points."""
    names = ", ".join(f"`{name}`" for name in ours)
    note = f"graded with the course's {names} in place of yours"
    taken = replace(second, findings=[], mistake=None, tally="", example=Example(), notes=[note])
    if second.outcome != "correct" and _is_judged(first):
        taken = replace(taken, findings=first.findings, example=first.example)
    return taken


def _is_judged(report: Report) -> bool:
    return report.outcome in ("correct", "incorrect", "raised")


def _with_files(report: Report, beside: Collection[str], errors: list[str]) -> Report:
    """Name files beside the notebook that the errors of a missing answer refer to."""
    if report.outcome not in ("raised", "not_attempted") or not report.findings:
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
