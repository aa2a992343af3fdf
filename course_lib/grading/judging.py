"""The cells of a rebuilt notebook, one after the other: run it, or observe and judge a check.

Each step takes a `Session` and returns what happened; `grade_cells` writes it into the notebook.
"""

from __future__ import annotations

import ast
import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from nbformat import NotebookNode

from course_lib.authoring.paste import solution_source
from course_lib.checks.judge.example import Example
from course_lib.checks.judge.exercise import Exercise
from course_lib.checks.judge.grade import judge_observed, still_missing
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.report import Report
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.remote import Reply, Request
from course_lib.exercises import find
from course_lib.grading.check_outputs import outputs_of, outputs_of_ending
from course_lib.grading.graded_cells import (
    ANSWER,
    grade_id,
    is_check,
    is_plain_test,
    is_run,
    read_check,
)
from course_lib.grading.jobs import Job
from course_lib.grading.kernels.client import Ran
from course_lib.grading.observation_reply import plausible, reply_in
from course_lib.grading.plain_tests import shown_of_test
from course_lib.grading.predecessors import Uses
from course_lib.grading.shown import Shown
from course_lib.grading.submission_kernel import LOST, CannotJudge, Session

# Endings that an earlier exercise may have prepared: these are tried once more without it.
_MAYBE_ANOTHERS = ("silent", "crash", "memory", "processes", "disk")


def grade_cells(session: Session, job: Job, notebook: NotebookNode) -> dict[str, str]:
    """Run every cell in order; the notebook's outputs are changed in place.

    Returns:
        Exercises for a person to look at, with the reason.

    Raises:
        KernelFault: a kernel was lost, and not by what ran in it.
        CannotJudge: no other attempt would end otherwise.
    """
    flagged, shown, verdicts = {}, Shown(notebook), {}
    for index, cell in enumerate(notebook.cells):
        if not is_run(cell):
            continue
        session.check_budget()
        if not is_check(cell):
            shown.keep(cell, _run_cell(session, index, cell))
            continue
        if is_plain_test(cell):
            cell.outputs = shown_of_test(
                _run_cell(session, index, cell), session.harmful.get(index)
            )
            continue
        name = grade_id(cell)
        cell.execution_count = index + 1
        if name in job.settled:
            session.remember(name, index)
            continue
        verdicts[name] = judged = _judge_twice(session, job, name, index)
        if _is_unexplained(judged) and _right_with_other_inputs(session, job, name, index):
            flagged[name] = "wrong with one set of inputs, right with another"
        cell.outputs = _check_outputs(session, cell, judged)
    _judge_beside_ours(session, job, notebook, verdicts)
    shown.write()
    return flagged


def _judge_beside_ours(
    session: Session, job: Job, notebook: NotebookNode, verdicts: Mapping[str, Report | str]
) -> None:
    """Judge once more what failed and builds on what failed, with the course's version of that.

    The solutions are in that kernel beside the student's code, so nothing but points leaves it.
    """
    if all(_score(judged) >= 1.0 for judged in verdicts.values()):
        return
    uses, failed = Uses(notebook.cells), set()
    for index, cell in enumerate(notebook.cells):
        if not is_check(cell) or is_plain_test(cell):
            continue
        name = grade_id(cell)
        first = verdicts.get(name)
        if first is None:  # settled
            failed |= {name} if read_check(cell).outcome != "correct" else set()
            continue
        if _score(first) >= 1.0:
            continue
        ours = _sources_of(failed, uses, find(name).chain or (name,))
        failed.add(name)
        if not ours:
            continue
        try:
            session.check_budget()
        except CannotJudge:  # what was judged within the budget stays
            return
        answer = _answer_of(session, name)
        session.close()
        session.ours = ours
        session.harmful = {i: why for i, why in session.harmful.items() if i != answer}
        second = _judge_twice(session, job, name, index)
        if _is_judged(second) and _score(second) > _score(first):
            failed -= {name} if _score(second) >= 1.0 else set()
            cell.outputs = _check_outputs(session, cell, _with_points_of(second, first, ours))


def _sources_of(failed: Collection[str], uses: Uses, names: Collection[str]) -> dict[str, str]:
    """The course's source of each failed exercise that some answers build on, or its own does."""
    ours: dict[str, str] = {}
    while new := [n for n in uses.before({*names, *ours}) if n in failed]:
        ours |= {name: solution_source(name) for name in new}
        uses = uses.with_sources(ours.values())
    return ours


def _with_points_of(second: Report, first: Report | str, ours: Collection[str]) -> Report:
    """The points of a judgement, and of all that it says nothing else."""
    names = ", ".join(f"`{name}`" for name in ours)
    note = f"graded with the course's {names} in place of yours"
    taken = replace(second, findings=[], mistake=None, tally="", example=Example(), notes=[note])
    if second.outcome != "correct" and _is_judged(first):
        taken = replace(taken, findings=first.findings, example=first.example)
    return taken


def _is_judged(judged: Report | str) -> TypeGuard[Report]:
    return isinstance(judged, Report) and judged.outcome in ("correct", "incorrect", "raised")


def _score(judged: Report | str) -> float:
    return judged.score if isinstance(judged, Report) else 0.0


def _run_cell(session: Session, index: int, cell: NotebookNode) -> Ran:
    """Run a cell that is no check; note what ended the kernel."""
    ran = session.run(cell.source, index)
    if ran.state == "died" and session.ending_of(ran) in _MAYBE_ANOTHERS:
        session.renew(index)
        ran = session.run(cell.source, index)
    cell.execution_count = ran.count
    why = ""
    if ran.state in LOST:
        session.harmful[index] = session.ending_of(ran)
        why = f" ({session.harmful[index]})"
        session.close()  # what stopped in time may still fill the memory
    if ran.state != "ok":
        name = grade_id(cell) or cell.get("id", "")
        session.journal.note(f"cell {index + 1} {name}: {ran.state}{why} after {ran.seconds:.2f} s")
    return ran


def _judge_twice(session: Session, job: Job, name: str, index: int) -> Report | str:
    """The report on an exercise, or how it ended; tried again where others may be to blame."""
    answer = _answer_of(session, name)
    if answer in session.harmful:
        return session.harmful[answer]
    if session.only is not None and (more := _needed(session, name)) - session.only - {name}:
        session.renew(index, only=session.only | more)
    judged = observe_and_judge(session, job, name, index)
    if judged in _MAYBE_ANOTHERS:
        session.renew(index, only=_needed(session, name))
        judged = observe_and_judge(session, job, name, index)
    if isinstance(judged, Report) and judged.outcome == "raised":
        # An earlier cell may have deleted what the lesson imports, torch for example.
        session.run(_lesson_imports(session.cells[:index]), index, silent=True)
        judged = observe_and_judge(session, job, name, index)
    if isinstance(judged, Report):
        session.stopped.discard(name)
    if session.only is not None:
        session.only.add(name)
    return judged


def _needed(session: Session, name: str) -> set[str]:
    """The exercises whose answers an exercise is judged by, and those that these build on."""
    judged = find(name).chain or (name,)
    return {*judged, *Uses(session.cells).before(judged)}


def _answer_of(session: Session, name: str) -> int | None:
    answers = (i for i, c in enumerate(session.cells) if grade_id(c) == f"{name}{ANSWER}")
    return next(answers, None)


def _is_unexplained(judged: Report | str) -> bool:
    """Whether an answer is wrong and no known mistake gives what it gives."""
    wrong = isinstance(judged, Report) and judged.outcome in ("incorrect", "raised")
    return wrong and judged.mistake is None


def _right_with_other_inputs(session: Session, job: Job, name: str, index: int) -> bool:
    again = observe_and_judge(session, job, name, index, variant="/again", name_mistakes=False)
    return isinstance(again, Report) and again.outcome == "correct"


def observe_and_judge(
    session: Session,
    job: Job,
    name: str,
    index: int,
    *,
    variant: str = "",
    name_mistakes: bool = True,
) -> Report | str:
    """The report on an exercise; or how its observation ended, a key of `ENDINGS`.

    Args:
        session: the student's kernel, which only observes.
        job: holds the seed.
        name: of the exercise.
        index: of its check cell.
        variant: added to the seed, for other inputs.
        name_mistakes: look for known mistakes, too.
    """
    exercise, seed = find(name), f"{job.seed}{variant}"
    probes = [probe for probe, _ in prepare(exercise, seed)]
    number = hashlib.sha256(f"{job.key}/{name}/{seed}".encode()).hexdigest()
    request = Request(name, probes, tuple(exercise.chain), exercise.takes_all, number)
    ran = session.observe(request, index)
    reply = reply_in(ran, number) if ran.state in ("ok", "error") else None
    if reply is None:
        ending = session.ending_of(ran)
        if ran.state in LOST:
            session.stopped.add(name)
            session.close()
        return ending
    started = time.monotonic()
    judged = _judge(exercise, seed, probes, reply, name_mistakes)
    session.journal.spend("judge", time.monotonic() - started)
    return judged


def _judge(
    exercise: Exercise, seed: str, probes: list[Probe], reply: Reply, name_mistakes: bool
) -> Report | str:
    """The report on what a kernel says it saw, or "silent" where it cannot have seen that."""
    if reply.missing:
        return still_missing(exercise, reply.missing)
    if not plausible(reply, probes):
        return "silent"
    if any(s.raised and s.raised.type_name == "MemoryError" for s in reply.seen.values()):
        return "memory"
    return judge_observed(exercise, seed, reply.subject, reply.seen, name_mistakes=name_mistakes)


def _lesson_imports(cells: Sequence[NotebookNode]) -> str:
    """What the lesson itself imports in some cells, but for the course's own solutions."""
    found = []
    for cell in cells:
        about = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and about.get("locked") and not is_check(cell):
            tree = ast.parse(cell.source)
            found += [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    return "\n".join(ast.unparse(node) for node in found)


def _check_outputs(
    session: Session, cell: NotebookNode, judged: Report | str
) -> list[NotebookNode]:
    """What the check cell shows of a report, or of how the exercise ended."""
    name = grade_id(cell)
    if isinstance(judged, str):
        session.journal.note(f"check {name}: stopped ({judged})")
        return outputs_of_ending(name, judged, cell.metadata["nbgrader"]["points"], session.limits)
    mistake = f" ({judged.mistake})" if judged.mistake else ""
    points = f"{judged.points:g} of {judged.max_points:g}"
    session.journal.note(f"check {name}: {judged.outcome}{mistake}, {points}")
    return outputs_of(judged)
