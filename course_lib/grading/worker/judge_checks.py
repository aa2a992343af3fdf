"""Judge checks in this process, from what the guest observes of the answers."""

import ast
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nbformat import NotebookNode

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.prepare import is_read, prepare
from course_lib.checks.judge.report import Finding, Report
from course_lib.checks.judge.shrink import Observer
from course_lib.checks.judge.verdict import judge_observed, still_missing
from course_lib.checks.observe.codec import CodecError, decode
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.remote import REPLY_TYPES, Reply, Request
from course_lib.exercises import find
from course_lib.grading.cell_kinds import ANSWER, grade_id, is_check
from course_lib.grading.jobs import Job
from course_lib.grading.sandbox.confinement import Limits
from course_lib.grading.sandbox.guests import GuestLost
from course_lib.grading.worker.renewable_guest import MAYBE_ANOTHERS, CannotJudge, RenewableGuest

# Outcomes of exercises that ended before they could be judged, with the message for the student.
ENDINGS = {
    "time": (
        "timed_out",
        "it did not end within {seconds:.0f} s of CPU time (an endless loop?)",
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


def judge_with_retries(
    guest: RenewableGuest, job: Job, name: str, index: int, *, explain: bool = True
) -> Report:
    """Judge the exercise whose check has this index, and retry if other cells may be to blame.

    Without `explain`, do not look for known mistakes or smaller failing inputs.
    """
    harmful = {grade_id(guest.cells[at]): ending for at, ending in guest.harmful.items()}
    if ending := harmful.get(f"{name}{ANSWER}"):
        return _stopped(guest.limits, name, ending)
    probes = [probe for probe, _ in prepare(find(name), job.seed)]
    touched = guest.touched(name, index) if is_read(find(name), probes) else ""
    if touched:
        guest.notices[index] = f"{name}: {touched} could falsify a result, so it needs a look"
    about = {"explain": explain, "touched": touched}
    judge = functools.partial(observe_and_judge, guest, job, name, index, **about)
    judged = judge()
    is_right = isinstance(judged, Report) and judged.outcome == "correct"
    if judged in MAYBE_ANOTHERS or (guest.crowded and not is_right):
        guest.renew(index, only=guest.needed(name))
        judged = judge()
    if isinstance(judged, Report) and judged.outcome == "raised":
        # An earlier cell may have deleted the lesson's imports, such as torch.
        guest.run(_lesson_imports(guest.cells[:index]), index, history=False)
        judged = judge()
    guest.leave_out(set())
    return _stopped(guest.limits, name, judged) if isinstance(judged, str) else judged


def _stopped(limits: Limits, name: str, ending: str) -> Report:
    """Return the report on an exercise that ended before it could be judged."""
    outcome, words = ENDINGS[ending]
    sentence = words.format(
        seconds=limits.cell_seconds,
        memory=limits.memory / 1e9,
        processes=limits.processes,
        output=limits.output / 1e6,
    )
    message = f"Stopped, because {sentence}. The other exercises are judged as usual."
    return Report.on(find(name), outcome, 0.0, [Finding(outcome, message, "", "values")])


def observe_and_judge(
    guest: RenewableGuest,
    job: Job,
    name: str,
    index: int,
    *,
    explain: bool = True,
    touched: str = "",
) -> Report | str:
    """Return the report on an exercise, or the key of `ENDINGS` that says how it ended."""
    exercise = find(name)
    probes = [probe for probe, _ in prepare(exercise, job.seed)]
    number = hashlib.sha256(f"{job.key}/{name}/{job.seed}".encode()).hexdigest()
    request = Request(name, probes, tuple(exercise.chain), exercise.place.takes_all, number)
    reply = _replied(guest, request, index)
    if isinstance(reply, str):
        return reply

    def observe_more(more: Sequence[Probe]) -> Mapping[str, Observation]:
        """Observe more probes. No points depend on them. Return nothing if the guest is lost."""
        try:
            seen = _replied(guest, replace(request, probes=list(more)), index, counts=False)
        except (GuestLost, CannotJudge):
            guest.close()
            return {}
        return seen.seen if isinstance(seen, Reply) else {}

    with guest.timed("judge"):
        return judge_reply(exercise, job.seed, reply, observe_more if explain else None, touched)


def judge_reply(
    exercise: Exercise,
    seed: str,
    reply: Reply,
    observe_more: Observer | None = None,
    touched: str = "",
) -> Report | str:
    """Return the report on a plausible reply, or a key of `ENDINGS`."""
    if reply.missing:
        return still_missing(exercise, reply.missing)
    if any(seen.raised and seen.raised.type_name == "MemoryError" for seen in reply.seen.values()):
        return "memory"
    return judge_observed(exercise, seed, reply.subject, reply.seen, observe_more, touched)


def _replied(
    guest: RenewableGuest, request: Request, index: int, *, counts: bool = True
) -> Reply | str:
    """Return the guest's reply to a request, or the key of `ENDINGS` that says how it ended."""
    text, ending = guest.observe(request, index, counts=counts)
    try:
        reply = decode(text, Reply, REPLY_TYPES) if text is not None else None
    except CodecError:
        return ending
    if reply is None or reply.number != request.number:
        return ending
    return reply if is_plausible(reply, request.probes) else "silent"


def is_plausible(reply: Reply, probes: list[Probe]) -> bool:
    """Return whether observing these probes could give this reply."""
    if reply.missing:
        return True
    if reply.subject and not reply.subject.is_callable:
        return not reply.seen
    asked = {probe.name: probe for probe in probes}
    if probes[0].name not in reply.seen or not reply.seen.keys() <= asked.keys():
        return False
    return all(seen.is_possible(asked[name]) for name, seen in reply.seen.items())


def _lesson_imports(cells: Sequence[NotebookNode]) -> str:
    """Return the lesson's own imports in some cells, except the course's solutions."""
    found = []
    for cell in cells:
        about = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and about.get("locked") and not is_check(cell):
            tree = ast.parse(cell.source)
            found += [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    return "\n".join(ast.unparse(node) for node in found)
