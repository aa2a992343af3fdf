"""Turn an answer into a report: observe every probe, compute the points, then write the text.

The points are final before a mistake is named, a property is described, a smaller input is searched
or an example is drawn. If one of these steps raises an error, the report uses plain
words.
"""

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.correct_results import correct_observation
from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.example import Example, example_of
from course_lib.checks.judge.explain import explain
from course_lib.checks.judge.findings import (
    NOTHING_KNOWN,
    findings_of,
    note_on_state,
    notes_of,
)
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.report import Finding, Report
from course_lib.checks.judge.score import BEYOND_A_LIMIT, beyond_a_limit, score_of
from course_lib.checks.judge.shrink import Observer
from course_lib.checks.judge.violations import (
    NotComparable,
    Outcomes,
    Prepared,
    Violation,
    find_violations,
    forbidden_in,
)
from course_lib.checks.observe.call import observe_all
from course_lib.checks.observe.global_state import random_states_kept
from course_lib.checks.observe.observation import Observation, Subject, subject_of
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.record import a_or_an
from course_lib.checks.observe.remote import REFUSAL, courses_versions_refuse

NOT_WORDED = (
    "The check could not describe your result, so this report is shorter than usual. Your points "
    "are not affected."
)


@dataclass(frozen=True)
class _Verdict:
    """The outcome and the points of an answer, and the differences that decide them."""

    exercise: Exercise
    prepared: Prepared
    seen: Mapping[str, Observation]
    outcomes: Outcomes
    violations: Sequence[Violation] = ()
    outcome: str = "correct"
    score: float = 1.0
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)

    def report(self, *args: Any, **more: Any) -> Report:
        return Report.on(self.exercise, self.outcome, self.score, *args, parts=self.parts, **more)


def judge_answer(
    exercise: Exercise, obj: Any, *, seed: object = None, subject: Subject | None = None
) -> Report:
    """Judge any object as an answer to an exercise, as `course_lib.checks.grade` does.

    For an integration, the caller has put the answers in place (`notebook/_judged_here.py`).
    `subject` describes the answer if more is known than the object tells.
    """
    if missing := [name for name in exercise.chain if obj.get(name) is None]:
        return still_missing(exercise, missing)
    if exercise.place.takes_all:
        subject = None
    else:
        obj = obj[exercise.chain[-1]] if exercise.chain else obj
        subject = subject or subject_of(obj)

    def observe(probes: Sequence[Probe]) -> Mapping[str, Observation]:
        with courses_versions_refuse(exercise.chain or (exercise.name,)):
            return observe_all(obj, probes)

    return judge_observed(exercise, str(seed), subject, None, observe)


def judge_observed(
    exercise: Exercise,
    seed: str,
    subject: Subject | None,
    seen: Mapping[str, Observation] | None,
    observe_more: Observer | None = None,
    touched: str = "",
) -> Report:
    """Judge observations, which may come from another process and may be malformed.

    Args:
        exercise: the exercise, or a lesson's integration.
        seed: the seed of the probes (`prepare`).
        subject: the description of the answer; None for an integration that takes all answers.
        seen: an observation for each probe that was reached, by the probe's name; None if
            `observe_more` has yet to observe them.
        observe_more: observes further probes. Without it, there is no search for the known mistake
            or a smaller failing input. The points do not depend on it.
        touched: the code that could change a count or look inside an object, or an empty string.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for tiny inputs, threads cost more than they save
    try:
        with random_states_kept(), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook may turn them into errors
            if subject is not None and (report := _unusable(exercise, subject)):
                return report
            prepared = prepare(exercise, seed)
            if seen is None:
                assert observe_more is not None
                seen = observe_more([probe for probe, _ in prepared])
            if report := _not_written(exercise, subject, prepared, seen):
                return report
            if touched:
                seen = {name: replace(one, spent={}) for name, one in seen.items()}
            verdict = _judge_all(exercise, prepared, seen, touched)
            try:
                report = _worded(verdict, seed, observe_more)
                report.text()  # what cannot be shown later counts as not worded
                report.html()
                return report
            except Exception:  # the points are final
                return _in_plain_words(verdict)
    except Exception as error:
        return Report.checker_failed(exercise, error)
    finally:
        torch.set_num_threads(threads)


def still_missing(exercise: Exercise, missing: Sequence[str]) -> Report:
    """Return the report for an exercise that needs answers which are still missing."""
    why = f"It needs your own {', '.join(f'`{name}`' for name in missing)}."
    return Report.not_attempted(exercise, why + " Run those cells and their checks first.")


def _not_written(
    exercise: Exercise,
    subject: Subject | None,
    prepared: Prepared,
    seen: Mapping[str, Observation],
) -> Report | None:
    """Return a report for an answer that is the course's version or still a stub."""
    if any(one.raised and one.raised.message == REFUSAL for one in seen.values()):
        return Report.course_version(exercise)
    return _still_a_stub(exercise, subject, seen.get(prepared[0][0].name, Observation()))


def _judge_all(
    exercise: Exercise, prepared: Prepared, seen: Mapping[str, Observation], touched: str
) -> _Verdict:
    """Compute the outcome and the points from the differences alone.

    Observations earn nothing if this function raises an error on them. If the observations of a
    correct answer also raise an error, the check itself is at fault.

    Raises:
        Exception: the check itself is at fault.
    """
    try:
        verdict = _judge(exercise, prepared, seen, touched)
    except Exception as error:
        problem, nothing = NotComparable(error=error), Observation()
        outcomes = {
            probe.name: (
                nothing,
                [Violation(probe, "values", problem, probe.part, expected, nothing)],
            )
            for probe, expected in prepared
        }
        verdict = _scored(exercise, prepared, {}, outcomes, [])
    if error := _first_error(verdict):
        right = {probe.name: correct_observation(exercise, probe, e) for probe, e in prepared}
        if _first_error(_judge(exercise, prepared, right)):
            raise error
    return verdict


def _first_error(verdict: _Verdict) -> Exception | None:
    """Return the first error that a comparison raised."""
    problems = (violation.problem for violation in verdict.violations)
    return next((p.error for p in problems if isinstance(p, NotComparable)), None)


def _judge(
    exercise: Exercise,
    prepared: Prepared,
    seen: Mapping[str, Observation],
    touched: str = "",
) -> _Verdict:
    outcomes: dict[str, tuple[Observation, list[Violation]]] = {}
    for probe, expected in prepared:
        observed = seen.get(probe.name, Observation())
        if probe.name in seen:
            found = find_violations(exercise, probe, expected, observed)
        else:
            stopped = Problem("stopped", "The check stopped before this test.")
            found = [Violation(probe, "raised", stopped, probe.part, expected, observed)]
        outcomes[probe.name] = observed, found
    extra = forbidden_in(exercise, prepared, seen, touched)
    return _scored(exercise, prepared, seen, outcomes, extra)


def _scored(
    exercise: Exercise,
    prepared: Prepared,
    seen: Mapping[str, Observation],
    outcomes: Outcomes,
    extra: list[Violation],
) -> _Verdict:
    violations = [v for _, found in outcomes.values() for v in found] + extra
    if not violations:
        return _Verdict(exercise, prepared, seen, outcomes)
    outcome = "raised" if _all_raised(prepared, outcomes) else "incorrect"
    points = score_of(exercise, prepared, outcomes, extra)
    return _Verdict(exercise, prepared, seen, outcomes, violations, outcome, *points)


def _worded(verdict: _Verdict, seed: str, observe_more: Observer | None) -> Report:
    """Return the full report with the mistake, a description, and an input that fails."""
    exercise, prepared, violations = verdict.exercise, verdict.prepared, verdict.violations
    tally = exercise.marking.tally(prepared, verdict.outcomes) if exercise.marking.tally else ""
    notes = notes_of(verdict.seen)
    if not violations:
        return verdict.report(tally=tally, notes=notes)
    seen = verdict.seen
    complete = {name: found for name, found in verdict.outcomes.items() if name in seen}
    broken = [violation for violation in violations if violation.aspect == "forbidden"]
    explanation = explain(exercise, seed, complete, broken, replay=observe_more is not None)
    findings, shown = findings_of(exercise, list(violations), explanation, prepared, observe_more)
    return verdict.report(
        findings,
        mistake=explanation and explanation.mistake.id,
        tally=tally,
        example=Example() if shown is None else example_of(exercise, shown),
        notes=[BEYOND_A_LIMIT] * beyond_a_limit(verdict.outcomes) + note_on_state(seen) + notes,
    )


def _in_plain_words(verdict: _Verdict) -> Report:
    """Return a short report with only the first difference and without a question."""
    findings = []
    for violation in verdict.violations[:1]:
        problem, says = violation.problem, violation.probe.says
        message = problem.message or f"{says} {NOTHING_KNOWN}"
        findings = [Finding(problem.id, message, "", violation.part)]
    notes = [BEYOND_A_LIMIT] * beyond_a_limit(verdict.outcomes) + [NOT_WORDED]
    return verdict.report(findings, notes=notes)


def _still_a_stub(exercise: Exercise, subject: Subject | None, first: Observation) -> Report | None:
    """Return a report for an answer that is still a stub or has no `forward`."""
    raised = first.raised
    if raised is None or raised.type_name != "NotImplementedError":
        return None
    if exercise.is_class and not raised.lines:  # torch's placeholder for `forward`
        return Report.saying(
            exercise,
            "incorrect",
            "no_forward",
            "Your class has no method `forward`, so there is nothing to run when the module is "
            "called.",
            "Is it spelled like that, and is its `def` indented as far as that of `__init__`?",
        )
    line = raised.lines[-1][2] if raised.lines else ""
    if line and "NotImplementedError" not in line:  # torch raises it too
        return None
    if raised.unreached:
        return Report.saying(
            exercise,
            "incorrect",
            "unreached",
            "Your code stands below `raise NotImplementedError()`, so it never runs.",
            "Delete that line, run the cell again, then this check.",
        )
    return _not_attempted(exercise, subject, "It still raises NotImplementedError.")


def _all_raised(prepared: Prepared, outcomes: Outcomes) -> bool:
    """Return whether an error in the answer itself kept every probe from having a result."""
    for probe, _ in prepared:
        seen, found = outcomes[probe.name]
        # Then the error is the check's: it could not make the call, or refused its result.
        ours = seen.raised is not None and (
            seen.raised.phase == "inject" or seen.raised.type_name == "NotAsRequested"
        )
        raised = any(violation.aspect == "raised" for violation in found) and not ours
        if not (raised or probe.raises):
            return False
    return True


def _unusable(exercise: Exercise, subject: Subject) -> Report | None:
    """Return a report for an object that cannot be an answer, or None if it may be one."""
    if subject.error:
        said = " ".join(subject.error[:600].split())
        message = f"Your cell stopped before it defined `{exercise.name}`: {said}"
        if subject.there:
            message += f". An earlier `{exercise.name}` is still there; this check did not use it."
        hint = "Fix that, run the cell again, then this check."
        return Report.saying(exercise, "raised", "cell_stopped", message, hint)
    if not subject.there or subject.instead:
        return _not_attempted(exercise, subject, f"There is no `{exercise.name}` yet.")
    if subject.home.startswith("course_lib.attention"):
        return Report.course_version(exercise)
    fits = subject.is_class == exercise.is_class or (
        subject.is_class and exercise.rules.may_be_class
    )
    if fits and subject.is_callable:
        return None
    wanted = "a class" if exercise.is_class else "a function"
    got = f"the class {subject.name}" if subject.is_class else a_or_an(subject.name)
    message = f"`{exercise.name}` must be {wanted}; got {got}."
    hint = "Did you assign a result to this name, or add or forget a pair of parentheses?"
    return Report.saying(exercise, "incorrect", "wrong_kind_of_answer", message, hint)


def _not_attempted(exercise: Exercise, subject: Subject | None, why: str) -> Report:
    """Return the report for a missing answer, with a name that it may have instead."""
    subject = subject or Subject()
    names = [n for n in subject.others if n.isidentifier() and len(n) <= 80]
    plain = {_plain(name): name for name in names if name not in exercise.place.not_its_name}
    close = [_plain(name) for name in subject.instead if name in plain.values()]
    if len(close) != 1:
        close = difflib.get_close_matches(_plain(exercise.name), plain, 1, 0.8)
    if not close:
        return Report.not_attempted(exercise, why)
    message = f"You have `{plain[close[0]]}`; the exercise asks for `{exercise.name}`."
    hint = "Rename it, run its cell again, then this check."
    return Report.saying(exercise, "not_attempted", "renamed", message, hint)


def _plain(name: str) -> str:
    return name.replace("_", "").casefold()
