"""From an object to a report: observe every probe, judge, name the mistake, count the points."""

import contextlib
import difflib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.diagnose import Outcomes, explain
from course_lib.checks.judge.findings import (
    example_for,
    findings_of,
    notes_of,
)
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.replay import pairs, replays
from course_lib.checks.judge.report import Finding, Report
from course_lib.checks.judge.score import BEYOND_A_LIMIT, beyond_a_limit, score_of
from course_lib.checks.judge.shrink import Observer
from course_lib.checks.judge.violations import Violation, forbidden_in, judge
from course_lib.checks.observe.call import observe_all
from course_lib.checks.observe.global_state import random_states_kept
from course_lib.checks.observe.observation import Observation, Raised, Subject, subject_of
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.record import a_or_an
from course_lib.reference import Expected

Runs = Sequence[tuple[Probe, Expected]]  # the probes, with what is expected of each


def grade(
    exercise: Exercise,
    obj: Any,
    *,
    seed: object = None,
    subject: Subject | None = None,
    naming_seconds: float | None = None,
) -> Report:
    """Grade any object as an answer to an exercise, without showing anything.

    Args:
        exercise: the exercise, or a lesson's integration (`course_lib.exercises.find`).
        obj: the answer: a function, a class, or whatever a student wrote; for an
            integration a dict with an answer for each exercise of the chain, whose other names
            the caller has put in place (`notebook/_judged_here.py` does).
        seed: any value; the same seed gives the same inputs.
        subject: what the answer is, where more is known than the object tells.
        naming_seconds: processor time for finding out which known mistake it is; all it takes if
            not given. The points do not depend on it.

    Returns:
        A `Report`; nothing that the answer does makes this raise.
    """
    seed = str(seed)
    with _quietly():
        try:
            if missing := [name for name in exercise.chain if obj.get(name) is None]:
                return still_missing(exercise, missing)
            if exercise.chain and not exercise.takes_all:
                obj = obj[exercise.chain[-1]]
            subject = None if exercise.takes_all else subject or subject_of(obj)
            if subject is not None and (report := _unusable(exercise, subject)):
                return report
            observer = functools.partial(observe_all, obj)
            seen = observer([probe for probe, _ in prepare(exercise, seed)])
            report = _judge_all(exercise, seed, seen, observer, naming_seconds=naming_seconds)
            return _by_its_name(exercise, subject, report)
        except Exception as error:  # a fault of ours costs no points
            return Report.checker_failed(exercise, error)


def judge_observed(
    exercise: Exercise,
    seed: str,
    subject: Subject | None,
    seen: Mapping[str, Observation],
    *,
    observe_more: Observer | None = None,
    name_mistakes: bool = True,
) -> Report:
    """Judge what was observed in another process.

    Args:
        exercise: the exercise, or a lesson's integration.
        seed: what the probes were drawn with (`prepare`).
        subject: what the answer is; None for an integration that takes all answers.
        seen: an observation for each probe that was reached, by the probe's name.
        observe_more: observes further probes there, to find a smaller input that fails.
        name_mistakes: without it only outcome and score are wanted, which takes less time.

    Returns:
        A `Report`; what was observed may hold anything and does not make this raise.
    """
    with _quietly():
        try:
            if subject is not None and (report := _unusable(exercise, subject)):
                return report
            report = _judge_all(exercise, seed, dict(seen), observe_more, name_mistakes)
            return _by_its_name(exercise, subject, report)
        except Exception as error:
            return Report.checker_failed(exercise, error)


def still_missing(exercise: Exercise, missing: Sequence[str]) -> Report:
    """Return the report for an exercise that needs answers which are still missing."""
    why = f"It needs your own {', '.join(f'`{name}`' for name in missing)}."
    return Report.not_attempted(exercise, why + " Run those cells and their checks first.")


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Use one thread, as waking another takes longer than tiny problems; draws leave no trace."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with random_states_kept():
            yield
    finally:
        torch.set_num_threads(threads)


def _judge_all(
    exercise: Exercise,
    seed: str,
    seen: dict[str, Observation],
    observe_more: Observer | None,
    name_mistakes: bool = True,
    naming_seconds: float | None = None,
) -> Report:
    """Judge the observations of all probes of a seed."""
    runs = prepare(exercise, seed)
    own = {name for observation in seen.values() for name in observation.own}
    if own & set(exercise.chain or (exercise.name,)):
        return Report.own_version(exercise)
    if report := _still_a_stub(exercise, seen[runs[0][0].name]):
        return report
    outcomes = _outcomes(exercise, runs, seen)
    extra = forbidden_in(exercise, runs, seen)
    violations = [v for _, found in outcomes.values() for v in found] + extra
    tally = exercise.tally(runs, outcomes)
    if not violations:
        return Report.correct(exercise, notes_of(seen), tally)
    explanations = []
    if name_mistakes:
        known, both = replays(exercise, seed), lambda: pairs(exercise, seed)
        complete = {name: outcome for name, outcome in outcomes.items() if name in seen}
        explanations = explain(runs, known, complete, naming_seconds, both)
    earned, parts = score_of(exercise, runs, outcomes, extra)
    findings, shown = findings_of(
        exercise,
        violations,
        explanations,
        outcomes,
        runs,
        observe_more if name_mistakes else None,
    )
    return Report.on(
        exercise,
        "raised" if _all_raised(runs, outcomes) else "incorrect",
        earned,
        findings=findings,
        mistake=explanations[0].mistake.id if explanations else None,
        parts=parts,
        tally=tally,
        example=example_for(exercise, shown),
        notes=[BEYOND_A_LIMIT] * beyond_a_limit(outcomes) + notes_of(seen),
    )


def _still_a_stub(exercise: Exercise, first: Observation) -> Report | None:
    """Return a report for an answer that is still a stub or has no `forward`."""
    if first.raised is None or first.raised.type_name != "NotImplementedError":
        return None
    if exercise.is_class and not first.raised.lines:  # torch's own, in the place of `forward`
        return _rejected(exercise, _NO_FORWARD)
    if _is_own(first.raised) and first.raised.unreached:
        return _rejected(exercise, _UNREACHED)
    if _is_own(first.raised):
        return Report.not_attempted(exercise, "It still raises NotImplementedError.")
    return None


def _outcomes(exercise: Exercise, runs: Runs, seen: Mapping[str, Observation]) -> Outcomes:
    """Return observation and violations of each probe; what was not reached counts as not done."""
    outcomes = {
        probe.name: (seen[probe.name], judge(exercise, probe, expected, seen[probe.name]))
        for probe, expected in runs
        if probe.name in seen
    }
    for probe, _ in runs:
        if probe.name not in outcomes:
            stopped = Violation(probe, "raised", Problem("stopped", "Not reached."), probe.part)
            outcomes[probe.name] = (Observation(), [stopped])
    return outcomes


def _all_raised(runs: Runs, outcomes: Outcomes) -> bool:
    """Return whether an error in the answer itself kept every probe from having a result.

    Weights that could not be put in are none: the answer was never called.
    """
    return all(
        any(violation.aspect == "raised" for violation in outcomes[probe.name][1])
        and not _never_called(outcomes[probe.name][0])
        for probe, _ in runs
        if not probe.raises
    )


def _never_called(seen: Observation) -> bool:
    return seen.raised is not None and seen.raised.phase == "inject"


def _unusable(exercise: Exercise, subject: Subject) -> Report | None:
    """Return a report for an object that cannot be an answer, or None if it can be tried."""
    if subject.error:
        return Report.stopped(exercise, subject.error, stale=subject.there)
    if not subject.there or subject.defined:
        nothing = Report.not_attempted(exercise, f"There is no `{exercise.name}` yet.")
        return _by_its_name(exercise, subject, nothing)
    if subject.home.startswith("course_lib.attention"):
        return Report.own_version(exercise)
    wanted = "a class" if exercise.is_class else "a function"
    fits = subject.is_class == exercise.is_class or (subject.is_class and exercise.may_be_class)
    if not fits or not subject.is_callable:
        got = f"the class {subject.name}" if subject.is_class else a_or_an(subject.name)
        message = f"`{exercise.name}` must be {wanted}; got {got}."
        hint = "Did you assign a result to this name, or add or forget a pair of parentheses?"
        return _rejected(exercise, Finding("wrong_kind_of_answer", message, hint, "values"))
    return None


def _by_its_name(exercise: Exercise, subject: Subject | None, report: Report) -> Report:
    """Add the likely name of the answer to a report that found nothing to grade."""
    nothing = any(finding.id == "not_attempted" for finding in report.findings)
    if subject is None or not nothing:
        return report
    free = [n for n in (*subject.defined, *subject.others) if n.isidentifier()]
    free = [n for n in free if len(n) <= 80 and n not in exercise.not_its_name]
    if len(subject.defined) == 1 and subject.defined[0] in free:
        return Report.renamed(exercise, subject.defined[0])
    plain = {_plain_name(name): name for name in free}
    close = difflib.get_close_matches(_plain_name(exercise.name), plain, 1, 0.8)
    return Report.renamed(exercise, plain[close[0]]) if close else report


def _plain_name(name: str) -> str:
    return name.replace("_", "").casefold()


def _rejected(exercise: Exercise, finding: Finding) -> Report:
    return Report.on(exercise, "incorrect", 0.0, [finding])


_NO_FORWARD = Finding(
    "no_forward",
    "Your class has no method `forward`, so there is nothing to run when the module is called.",
    "Is it spelled like that, and is its `def` indented as far as that of `__init__`?",
    "values",
)


_UNREACHED = Finding(
    "unreached",
    "Your code stands below `raise NotImplementedError()`, so it never runs.",
    "Delete that line, run the cell again, then this check.",
    "values",
)


def _is_own(raised: Raised) -> bool:
    """Return whether the line that raised is a `raise`, as in a stub; torch raises it too."""
    line = raised.lines[-1][2] if raised.lines else ""
    return not line or "NotImplementedError" in line
