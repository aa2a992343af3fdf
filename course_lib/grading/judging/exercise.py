"""One exercise of a notebook: observed in the student's guest, judged here.

Each step takes a `Session` and returns what happened.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nbformat import NotebookNode

from course_lib.checks.judge.exercise import Exercise
from course_lib.checks.judge.grade import judge_observed, still_missing
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.report import Finding, Report
from course_lib.checks.judge.shrink import Observer
from course_lib.checks.observe.codec import CodecError, decode
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.probe import Array, Probe
from course_lib.checks.observe.remote import REPLY_TYPES, Reply, Request
from course_lib.exercises import find
from course_lib.grading.graded_cells import ANSWER, grade_id, is_check
from course_lib.grading.jobs import Job
from course_lib.grading.judging.session import LOST, Session
from course_lib.grading.sandbox.guests import Ran

# What ended an exercise before it could be judged: the outcome, and what its student reads.
ENDINGS = {
    "time": (
        "timed_out",
        "it did not end within {seconds:.0f} s of processor time (an endless loop?)",
    ),
    "waiting": (
        "timed_out",
        "it did not end within {seconds:.0f} s in which it only slept or waited",
    ),
    "memory": ("out_of_memory", "it used more than {memory:.1f} GB of memory"),
    "processes": ("crashed", "it started more than {processes} processes"),
    "output": ("timed_out", "it printed more than {output:.0f} MB"),
    "crash": ("crashed", "it ended its process (a crash, or an exit)"),
    "silent": ("crashed", "after it ran, this notebook gave no readable answer"),
}
# Endings that an earlier exercise may have prepared: these are tried once more without it.
MAYBE_ANOTHERS = ("silent", "crash", "memory", "processes")
Unnamed = dict[str, Callable[[], Report]]


def judge_twice(
    session: Session, job: Job, name: str, index: int, unnamed: Unnamed | None = None
) -> Report:
    """Return the report on an exercise; try it again where other exercises may be to blame.

    With `unnamed`, no known mistake is looked for: that gets, by name, what does it later.
    """
    answer = answer_of(session, name)
    if answer in session.harmful:
        return _stopped(session, name, session.harmful[answer])
    if session.only is not None and (more := needed(session, name)) - session.only - {name}:
        session.renew(index, only=session.only | more)
    judged = observe_and_judge(session, job, name, index, unnamed=unnamed)
    if judged in MAYBE_ANOTHERS or (session.crowded and not _is_right(judged)):
        session.renew(index, only=needed(session, name))
        judged = observe_and_judge(session, job, name, index, unnamed=unnamed)
    if isinstance(judged, Report) and judged.outcome == "raised":
        # An earlier cell may have deleted what the lesson imports, torch for example.
        session.run(_lesson_imports(session.cells[:index]), index, history=False)
        judged = observe_and_judge(session, job, name, index, unnamed=unnamed)
    if session.only is not None:
        session.only.add(name)
    if isinstance(judged, str):
        return _stopped(session, name, judged)
    session.stopped.discard(name)
    return judged


def _stopped(session: Session, name: str, ending: str) -> Report:
    """Return the report on an exercise that ended before it could be judged."""
    limits = session.limits
    outcome, words = ENDINGS[ending]
    sentence = words.format(
        seconds=limits.cell_seconds,
        memory=limits.memory / 1e9,
        processes=limits.processes,
        output=limits.output / 1e6,
    )
    message = f"Stopped, because {sentence}. The other exercises are judged as usual."
    return Report.on(find(name), outcome, 0.0, [Finding(outcome, message, "", "values")])


def _is_right(judged: Report | str) -> bool:
    return isinstance(judged, Report) and judged.outcome == "correct"


def needed(session: Session, name: str) -> set[str]:
    """The exercises whose answers an exercise is judged by, and those that these build on."""
    judged = find(name).chain or (name,)
    return {*judged, *session.uses.before(judged)}


def answer_of(session: Session, name: str) -> int | None:
    """The place of an exercise's answer among the cells."""
    answers = (i for i, c in enumerate(session.cells) if grade_id(c) == f"{name}{ANSWER}")
    return next(answers, None)


def right_with_other_inputs(session: Session, job: Job, name: str, index: int) -> bool:
    """Whether another draw of inputs finds nothing wrong with an answer that lost points."""
    again = observe_and_judge(session, job, name, index, variant="/again", unnamed={})
    return isinstance(again, Report) and again.outcome == "correct"


def observe_and_judge(
    session: Session,
    job: Job,
    name: str,
    index: int,
    *,
    variant: str = "",
    unnamed: Unnamed | None = None,
) -> Report | str:
    """Return the report on an exercise, or how its observation ended, a key of `ENDINGS`.

    Args:
        session: the student's guest, which only observes.
        job: holds the seed.
        name: of the exercise.
        index: of its check cell.
        variant: added to the seed, for other inputs.
        unnamed: gets, by name, what judges once more and looks for known mistakes, too; this
            does if None.
    """
    exercise, seed = find(name), f"{job.seed}{variant}"
    probes = [probe for probe, _ in prepare(exercise, seed)]
    number = hashlib.sha256(f"{job.key}/{name}/{seed}".encode()).hexdigest()
    request = Request(name, probes, tuple(exercise.chain), exercise.takes_all, number)
    ran = session.observe(request, index)
    reply = _reply_in(ran, number)
    if reply is None:
        ending = session.ending_of(ran)
        if ran.state in LOST:
            session.stopped.add(name)
            session.close()
        return ending
    started = time.monotonic()

    def observe_more(more: Sequence[Probe]) -> Mapping[str, Observation]:
        return _observe_more(session, replace(request, probes=list(more)), index)

    judged = _judge(exercise, seed, probes, reply, unnamed is None, observe_more)
    if unnamed is not None:
        unnamed[name] = functools.partial(_judge_naming, session, exercise, seed, probes, reply)
    session.journal.spend("judge", time.monotonic() - started)
    return judged


def _observe_more(session: Session, request: Request, index: int) -> Mapping[str, Observation]:
    """Return observations of further probes, which decide no points; none if the guest is lost."""
    ran = session.observe(request, index)
    reply = _reply_in(ran, request.number)
    if ran.state in LOST:
        session.close()
    if reply is None or not _is_plausible(reply, request.probes):
        return {}
    return reply.seen


def _judge(
    exercise: Exercise,
    seed: str,
    probes: list[Probe],
    reply: Reply,
    name_mistakes: bool,
    observe_more: Observer | None = None,
) -> Report | str:
    """The report on what a guest says it saw, or "silent" where it cannot have seen that."""
    if reply.missing:
        return still_missing(exercise, reply.missing)
    if not _is_plausible(reply, probes):
        return "silent"
    if any(s.raised and s.raised.type_name == "MemoryError" for s in reply.seen.values()):
        return "memory"
    return judge_observed(
        exercise,
        seed,
        reply.subject,
        reply.seen,
        observe_more=observe_more,
        name_mistakes=name_mistakes,
    )


def _judge_naming(
    session: Session, exercise: Exercise, seed: str, probes: list[Probe], reply: Reply
) -> Report:
    judged = _judge(exercise, seed, probes, reply, True)
    return judged if isinstance(judged, Report) else _stopped(session, exercise.name, judged)


def _reply_in(ran: Ran, number: str) -> Reply | None:
    """Return the reply to the request of a number, or None."""
    if ran.state != "ok" or ran.reply is None:
        return None
    try:
        reply = decode(ran.reply, Reply, REPLY_TYPES)
    except CodecError:
        return None
    return reply if reply.number == number else None


def _is_plausible(reply: Reply, probes: list[Probe]) -> bool:
    """Return whether observing these probes can give such a reply; any other was forged."""
    if reply.subject and not reply.subject.is_callable:
        return not reply.seen
    asked = {probe.name: probe for probe in probes}
    if probes[0].name not in reply.seen or not reply.seen.keys() <= asked.keys():
        return False
    return all(
        seen.raised is not None
        or (
            seen.outputs is not None
            and seen.attributes.keys() == set(asked[name].attributes)
            and seen.arguments.keys()
            == {n for n, value in asked[name].inputs().items() if isinstance(value, Array)}
        )
        for name, seen in reply.seen.items()
    )


def _lesson_imports(cells: Sequence[NotebookNode]) -> str:
    """What the lesson itself imports in some cells, but for the course's own solutions."""
    found = []
    for cell in cells:
        about = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and about.get("locked") and not is_check(cell):
            tree = ast.parse(cell.source)
            found += [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    return "\n".join(ast.unparse(node) for node in found)
