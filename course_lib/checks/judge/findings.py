"""What a report says of what went wrong: each thing once, the most telling first."""

import contextlib

from course_lib.checks.judge.diagnose import Explanation
from course_lib.checks.judge.example import (
    Example,
    example_of,
    importance,
    shown_first,
    with_numbers,
)
from course_lib.checks.judge.exercise import Property
from course_lib.checks.judge.report import Finding
from course_lib.checks.judge.violations import Violation
from course_lib.checks.observe.observation import Observation
from course_lib.reference import Expected

_MAX_FINDINGS = 4


_UNNAMED = ("wrong_values", "not_a_number", "attribute_values")
_NUMBERS_RIGHT = " What it holds is right."
_OF_THE_CASE = {"raised", "wrong_shape"}  # where only edge cases fail so, the case is the reason


_POINTERS = {
    "values": "Work that entry out by hand: which numbers go into it?",
    "gradients": (
        "Does every step stay in the graph, and does none write into a tensor that it needs?"
    ),
    "attributes": "Which tensor do you store, and at which point in the call?",
}


def by_name(runs) -> dict[str, Expected]:
    return {probe.name: expected for probe, expected in runs}


_TELLING = ("values", "kind", "shape", "type", "raised"), ("gradients", "attributes", "mutated")


def example_for(exercise, violations, runs, outcomes) -> Example:
    """The smallest input that fails, with the student's result beside the definition's."""
    first = most_telling(violations, outcomes)
    if first is not None:
        name = first.probe.name
        with contextlib.suppress(Exception):  # what cannot be shown decides nothing
            return example_of(exercise, first, by_name(runs)[name], outcomes[name][0])
    return Example()


def most_telling(violations, outcomes) -> Violation | None:
    """Return the violation whose numbers tell a reader the most, or None if there is none."""
    for aspects in _TELLING:
        telling = [v for v in violations if v.aspect in aspects and v.probe.name in outcomes]
        if telling:
            return min(telling, key=shown_first)
    return None


def findings_of(
    exercise, violations, explanations: list[Explanation], outcomes, expected
) -> tuple[list[Finding], list[Violation]]:
    """Named mistakes first, then properties, then what is left, each thing said once.

    Returns:
        What to say, and the violations that the first of it is about, for the example beneath.
    """
    findings = [_said_of(found, violations) for found in explanations]
    about = explained_by(explanations[0], violations) if explanations else []
    explained = {key for found in explanations for key in found.explained}
    left = [v for v in violations if (v.probe.name, v.aspect) not in explained]
    known = {mistake.id for mistake in exercise.mistakes}
    if any(v.problem.id in known for v in left):  # a probe of one mistake alone has shown it
        left = [v for v in left if v.problem.id not in _UNNAMED]
    elif broken := violated_property(exercise, left, outcomes):
        prop, violation = broken
        about = about or [violation]
        sentence = prop.broken_by(violation.probe, outcomes[violation.probe.name][0])
        findings.append(Finding(prop.id, sentence or "", prop.hint, violation.part))
    said = {finding.id for finding in findings}
    plain = {v.problem.id for v in violations if v.part == "values"}
    misled = {v.probe.name for v in violations if v.aspect in ("type", "shape", "values")}
    left.sort(key=lambda v: (v.problem.id not in known, *_order(v, misled)))
    for violation in left:  # the smallest of each kind
        problem = violation.problem
        follows = violation.aspect == "gradients" or problem.id == "attribute_values"
        if follows and violation.probe.name in misled:
            continue  # wrong outputs have other gradients and weights: nothing new is said
        if problem.id not in said and len(findings) < _MAX_FINDINGS:
            said.add(problem.id)
            about = about or [violation]
            name = violation.probe.name
            message = with_numbers(exercise, violation, expected[name], outcomes[name][0])
            if violation.part == "edges" and problem.id in _OF_THE_CASE - plain:
                message = f"{violation.probe.says} {message}".strip()
            message += _NUMBERS_RIGHT if violation.aspect == "kind" else ""
            hint = problem.hint or _POINTERS.get(violation.aspect, "")
            findings.append(Finding(problem.id, message, hint, violation.part))
    return findings, about


def _said_of(found: Explanation, violations: list[Violation]) -> Finding:
    """A known mistake, and how much of what fails it explains, where that is not everything."""
    part = next(v.part for v in violations if (v.probe.name, v.aspect) in found.explained)
    message = found.mistake.message
    if not found.is_whole:
        message = (
            f"In {found.num_explained} of the {found.num_failing} problems that fail, your "
            f"results are exactly those of this mistake: {message}"
        )
    return Finding(found.mistake.id, message, found.mistake.hint, part)


def _order(violation: Violation, misled: set[str]) -> tuple:
    """What is said first: of the input that is shown, so that its numbers are those beneath.

    Where the numbers are right, a changed argument is why the rest fails.
    """
    return bool(misled) or violation.aspect != "mutated", shown_first(violation)


def explained_by(explanation: Explanation, violations: list[Violation]) -> list[Violation]:
    return [v for v in violations if (v.probe.name, v.aspect) in explanation.explained]


def violated_property(exercise, violations, outcomes) -> tuple[Property, Violation] | None:
    """Return the first property that a failing probe of the values breaks, and its violation."""
    failing = [v for v in violations if v.aspect == "values"]
    for prop in exercise.properties:
        for violation in sorted(failing, key=importance):
            if prop.broken_by(violation.probe, outcomes[violation.probe.name][0]):
                return prop, violation
    return None


def notes_of(seen: dict[str, Observation]) -> list[str]:
    """Warnings and stderr: reported, never held against anyone."""
    notes = []
    for observation in seen.values():
        notes += [f"Your code warned: {text}" for text in observation.warnings]
        if observation.stderr.strip():
            notes.append("Your code wrote to stderr: " + observation.stderr.strip()[:200])
    return list(dict.fromkeys(notes))[:3]
