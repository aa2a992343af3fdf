"""What a report says of what went wrong: each thing once, the most telling first."""

import contextlib

from course_lib.checks.judge.example import (
    Example,
    example_of,
    importance,
    shown_first,
    with_numbers,
)
from course_lib.checks.judge.expected import Expected
from course_lib.checks.judge.report import Finding
from course_lib.checks.judge.reproduce import Explanation
from course_lib.checks.judge.violations import Violation
from course_lib.checks.observe.observation import Observation

_MAX_FINDINGS = 4


_NUMBERS_RIGHT = " What it holds is right."


_POINTERS = {
    "values": "Work that entry out by hand: which numbers go into it?",
    "gradients": "Does every step keep the graph, and does none write into a tensor it needs?",
    "attributes": "Which tensor do you keep, and at which point of the call?",
}


def by_name(runs) -> dict[str, Expected]:
    return {probe.name: expected for probe, expected in runs}


_TELLING = ("values", "kind", "shape", "type", "raised"), ("gradients", "attributes", "mutated")


def example_for(exercise, violations, runs, outcomes) -> Example:
    """The smallest input that fails, with the student's result beside the definition's."""
    for aspects in _TELLING:
        telling = [v for v in violations if v.aspect in aspects and v.probe.name in outcomes]
        if telling:
            name = (first := min(telling, key=shown_first)).probe.name
            with contextlib.suppress(Exception):  # what cannot be shown decides nothing
                return example_of(exercise, first, by_name(runs)[name], outcomes[name][0])
    return Example()


def findings_of(
    exercise, violations, explanations: list[Explanation], outcomes, expected
) -> list[Finding]:
    """Named mistakes first, then properties, then what is left, each thing said once."""
    findings, explained = [], set()
    for found in explanations:
        part = next(v.part for v in violations if (v.probe.name, v.aspect) in found.explained)
        mistake = found.mistake
        message = mistake.message
        if not found.is_whole:
            message = (
                f"In {found.num_explained} of the {found.num_failing} problems that fail, your "
                f"results are exactly those of this mistake: {message}"
            )
        findings.append(Finding(mistake.id, message, mistake.hint, part))
        explained |= found.explained
    left = [v for v in violations if (v.probe.name, v.aspect) not in explained]
    if any(v.aspect == "values" for v in left):
        findings += _violated_properties(exercise, left, outcomes)
    said = {finding.id for finding in findings}
    misled = {v.probe.name for v in violations if v.aspect in ("type", "shape", "values")}
    for violation in sorted(left, key=lambda v: _order(v, misled)):  # the smallest of each kind
        problem = violation.problem
        follows = violation.aspect == "gradients" or problem.id == "attribute_values"
        if follows and violation.probe.name in misled:
            continue  # wrong outputs have other gradients and weights: nothing new is said
        if problem.id not in said and len(findings) < _MAX_FINDINGS:
            said.add(problem.id)
            name = violation.probe.name
            message = with_numbers(exercise, violation, expected[name], outcomes[name][0])
            message += _NUMBERS_RIGHT if violation.aspect == "kind" else ""
            hint = problem.hint or _POINTERS.get(violation.aspect, "")
            findings.append(Finding(problem.id, message, hint, violation.part))
    return findings


def _order(violation: Violation, misled: set[str]) -> tuple:
    """What is said first; where the numbers are right, a changed argument is why the rest fails."""
    return bool(misled) or violation.aspect != "mutated", importance(violation)


def about_first(explanations: list[Explanation], violations: list[Violation]) -> list[Violation]:
    """The violations that the first finding is about, for the example beneath it."""
    explained = explanations[0].explained if explanations else ()
    return [v for v in violations if (v.probe.name, v.aspect) in explained] or violations


def _violated_properties(exercise, violations, outcomes) -> list[Finding]:
    """The first property that a failing probe of the values breaks, with the student's numbers."""
    failing = [v for v in violations if v.aspect == "values"]
    for prop in exercise.properties:
        for violation in sorted(failing, key=importance):
            seen = outcomes[violation.probe.name][0]
            recorded = seen.attributes.get(prop.of) if prop.of else seen.outputs
            sentence = prop.violated(violation.probe, recorded)
            if sentence:
                return [Finding(prop.id, sentence, prop.hint, violation.part)]
    return []


def notes_of(seen: dict[str, Observation]) -> list[str]:
    """Warnings and stderr: reported, never held against anyone."""
    notes = []
    for observation in seen.values():
        notes += [f"Your code warned: {text}" for text in observation.warnings]
        if observation.stderr.strip():
            notes.append("Your code wrote to stderr: " + observation.stderr.strip()[:200])
    return list(dict.fromkeys(notes))[:3]
