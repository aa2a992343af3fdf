"""Choose a report's findings: each problem once, the most informative one first."""

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import replace

from course_lib.checks.judge.comparisons import Cause
from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.example import importance, shown_first, with_numbers, wrong_part
from course_lib.checks.judge.explain import Explanation, name_of
from course_lib.checks.judge.report import Finding
from course_lib.checks.judge.shrink import Observer, try_shrink
from course_lib.checks.judge.violations import HYGIENE, Prepared, Violation, described
from course_lib.checks.observe.observation import Observation

_MAX_FINDINGS = 4
_UNNAMED = ("wrong_values", "not_a_number", "attribute_values")
_NUMBERS_RIGHT = " On this input, the value is correct."
_OF_THE_VALUES = ("wrong_values", "precision_lost")
_OF_THE_EDGES = (*_OF_THE_VALUES, "not_a_number", "wrong_shape", "raised")
# Causes whose facts are about one input. Facts of other problems always are.
_ABOUT_ONE_INPUT = (
    "dtype_changed",
    "no_error",
    "other_error",
    "spent_peak",
    "spent_kept",
    "spent_functions",
)
NOTHING_KNOWN = "Your result differs from the one that the definition gives."
_POINTERS = {
    "values": "Which of your steps differs from what the statement asks for?",
    "gradients": (
        "Is your formula correct? Does a step leave the graph, underflow, or overwrite a tensor "
        "that the backward pass needs?"
    ),
    "attributes": "Which tensor do you store, and at which point in the call?",
}
_TELLING = ("values", "kind", "shape", "type", "raised"), ("gradients", "attributes", "mutated")


class _Failures:
    """The failures of an answer. The report shows the first one, `shown`, on a small input."""

    def __init__(
        self,
        exercise: Exercise,
        violations: list[Violation],
        prepared: Prepared,
        observe_more: Observer | None,
    ):
        self._exercise, self._observe_more = exercise, observe_more
        self._all = violations
        self._formula = prepared[0][0].says
        self._plain = [
            v for v in violations if v.aspect not in HYGIENE and v.probe.part == "values"
        ]
        self.shown: Violation | None = None
        self._name = ""  # of the probe that `shown` comes from

    def say(self, violation: Violation, like: list[Violation], mistake=None) -> Violation:
        """Return this failure, on a smaller input if it is the first to be mentioned."""
        if self.shown is not None or not any(violation.aspect in group for group in _TELLING):
            return violation
        self.shown, self._name = violation, violation.probe.name
        if self._observe_more is not None:
            kind = violation.aspect, violation.problem.id, violation.part
            others = [v for v in like if (v.aspect, v.problem.id, v.part) == kind]
            others.remove(violation)
            failures = [violation, *sorted(others, key=importance)]
            small = try_shrink(self._exercise, failures, self._observe_more, mistake)
            self.shown = small or violation
        return self.shown

    def is_elsewhere(self, failure: Violation) -> bool:
        """Return whether a failure has another input than the one that the report shows."""
        return self.shown is not None and failure.probe is not self.shown.probe

    def is_of_one_input(self, failure: Violation) -> bool:
        """Return whether the input that the report shows may lack the problem of this failure."""
        problem = failure.problem
        if not isinstance(problem, Cause) or problem.id in _ABOUT_ONE_INPUT:
            return True
        having = {v.probe.name for v in self._all if v.problem.id == problem.id}
        return failure.aspect in ("raised", "type") and self._name not in having

    def case_of(self, violation: Violation) -> str:
        """Return the probe's sentence, or "" if it cannot be the reason.

        Then plain probes with other sentences fail, or a probe of gradients before its backward
        pass.
        """
        probe, raised = violation.probe, violation.aspect == "raised"
        error = violation.seen.raised
        is_backward = error is not None and error.phase == "backward"
        leaves = any(array.requires_grad for array in probe.arrays().values())
        is_of_gradients = leaves or probe.grad_outputs is not None
        if is_of_gradients and violation.aspect != "gradients" and not is_backward:
            return ""
        plain = {v.probe.says for v in self._plain if not raised or v.aspect == "raised"}
        if not plain <= {probe.says} and probe.says != self._formula:
            return ""
        return probe.says


def findings_of(
    exercise: Exercise,
    violations: list[Violation],
    explanation: Explanation | None,
    prepared: Prepared,
    observe_more: Observer | None,
) -> tuple[list[Finding], Violation | None]:
    """Return the findings, and the failure to show below them.

    A named mistake comes first, also the name of a `Cause` that is the mistake. Then come types,
    shapes, numbers that are not finite, and values.
    """
    failures = _Failures(exercise, violations, prepared, observe_more)
    findings, telling = [], None
    follows = explanation.also_makes if explanation else lambda violation: False
    cause = explanation.mistake.id if explanation and explanation.is_cause else ""
    known_shown = explanation.shown if explanation and not explanation.is_cause else {}
    explained = {(name, aspect) for name, aspects in known_shown.items() for aspect in aspects}
    if explanation and not cause:
        about = [v for v in violations if (v.probe.name, v.aspect) in explained]
        findings = [_named(explanation, about[0].part)]
        groups = ([v for v in about if v.aspect in aspects] for aspects in _TELLING)
        if group := next(filter(None, groups), None):
            first = min(group, key=lambda v: (v.aspect == "raised", shown_first(v)))
            telling = failures.say(first, about, explanation.mistake)
        error = telling.seen.raised if telling and telling.aspect == "raised" else None
        # If weights could not be injected, the error is not the student's.
        if telling is not None and error is not None and error.phase != "inject":
            message = f"{findings[0].message} {telling.problem.message}"
            findings[0] = replace(findings[0], message=message)
    left = [
        v
        for v in described(exercise, violations)
        if (v.probe.name, v.aspect) not in explained
        and not (v.probe.name in known_shown and v.aspect not in HYGIENE and follows(v))
    ]
    known = {mistake.id for mistake in exercise.mistakes}
    if any(v.problem.id in known for v in left):  # a probe for a single mistake found it
        left = [v for v in left if v.problem.id not in _UNNAMED]
    if any(v.problem.id == "extra_parameters" for v in left):  # their values are random
        left = [v for v in left if v.aspect not in ("values", "gradients")]
    misled = {v.probe.name for v in violations if v.aspect in ("type", "shape", "values")}
    mutating = {v.probe.name for v in violations if v.aspect == "mutated"}
    unchanged = misled - mutating
    if any({v.aspect for v in about} == {"mutated"} for about in by_probe(violations).values()):
        # The changed arguments explain wrong gradients and wrong results of further calls.
        left = [
            v
            for v in left
            if v.aspect == "mutated"
            or v.probe.name not in mutating
            or (v.aspect != "gradients" and v.probe.scenario == "call")
        ]

    def order(v: Violation) -> tuple:
        named = v.problem.id in known or (cause and name_of(v.problem) == cause)
        return not named, _rank(v, unchanged), v.problem.id in _UNNAMED, shown_first(v)

    left.sort(key=order)
    said, is_told = {finding.id for finding in findings}, False
    has_hygiene = any(v.part == "hygiene" for v in left)
    for violation in left:
        problem = violation.problem
        of_outputs = violation.aspect == "gradients" or problem.id == "attribute_values"
        if of_outputs and violation.probe.name in misled and name_of(problem) != cause:
            continue  # these follow from wrong outputs
        if problem.id in _OF_THE_VALUES and is_told:
            continue  # a wrong value may happen to be nearly correct
        if violation.aspect == "values" and not isinstance(problem, Cause):
            is_told |= problem.id not in ("precision_lost", "not_a_number")
        ids = {problem.id, name_of(problem) or problem.id}
        told = {violation.part, *(finding.part for finding in findings)}
        if ids & said or len(findings) >= _MAX_FINDINGS - (has_hygiene and "hygiene" not in told):
            continue
        said |= ids
        failure = failures.say(violation, left)
        problem, elsewhere = failure.problem, failures.is_elsewhere(failure)
        message = problem.message if elsewhere else with_numbers(exercise, failure)
        if elsewhere and not message:
            wrong = wrong_part(exercise, failure) if len(exercise.returns) > 1 else None
            message = NOTHING_KNOWN
            if wrong is not None:
                message += f" Look at {'the ' if ' ' in wrong[0] else ''}{wrong[0]}."
        if elsewhere and failures.is_of_one_input(failure):
            message = _of_another_input(message)
        ids_of_cases = _OF_THE_EDGES if violation.part == "edges" else _OF_THE_VALUES
        is_about_calls = exercise.properties and violation.probe.scenario != "call"
        if problem.id in ids_of_cases or (violation.aspect == "values" and is_about_calls):
            message = f"{failures.case_of(failure)} {message}".strip()
        message = message or NOTHING_KNOWN
        if cause and name_of(problem) == cause and violation.aspect == "raised":
            failing = by_probe(v for v in violations if v.aspect not in HYGIENE).values()
            share = sum(any(v.problem.id == problem.id for v in about) for about in failing)
            if share < len(failing):
                message += "" if message.endswith((".", "?", "!")) else "."
                message += f" This happens on {share} of the {len(failing)} inputs that fail."
        message += _NUMBERS_RIGHT if violation.aspect == "kind" and not elsewhere else ""
        hint = problem.hint or _POINTERS.get(violation.aspect, "")
        if violation.aspect == "shape" and follows(violation):
            message = (
                "On another input, this mistake does not explain the whole difference. "
                f"{violation.probe.says}"
            )
            hint = ""
        hint = "" if any(finding.hint == hint for finding in findings) else hint
        findings.append(Finding(problem.id, message, hint, violation.part))
    return findings, failures.shown


def by_probe(violations: Iterable[Violation]) -> dict[str, list[Violation]]:
    """Return the violations of each probe that has any."""
    found: dict[str, list[Violation]] = {}
    for violation in violations:
        found.setdefault(violation.probe.name, []).append(violation)
    return found


def _of_another_input(sentence: str) -> str:
    """Return a sentence with numbers of an input that the report does not show."""
    if not sentence.startswith(("NaN", "`")):
        sentence = sentence[:1].lower() + sentence[1:]
    return f"On another input, {sentence}"


def _named(one: Explanation, part: str) -> Finding:
    """Return the finding on the known mistake, with its share of failing probes."""
    message = one.mistake.message
    if one.also_wrong:
        wrong = " and ".join(f"`{name}`" for name in one.also_wrong)
        message += f" On some inputs, a separate mistake makes your {wrong} wrong."
    if not one.is_whole:
        exactly = "exactly " * (not one.also_wrong)
        message = (
            f"On {len(one.shown)} of the {one.num_failing} inputs that fail, your results show "
            f"{exactly}this mistake: {message}"
        )
    elif one.says_little:
        message = f"Your answers are those that this mistake would give: {message}"
    return Finding(one.mistake.id, message, one.mistake.hint, part)


def _rank(violation: Violation, wrong_and_unchanged: set[str]) -> int:
    """Return the rank of a violation: forbidden call, type, shape, error, NaN, values, the rest."""
    problem, aspect = violation.problem, violation.aspect
    if aspect == "forbidden" or (aspect == "mutated" and not wrong_and_unchanged):
        return 0
    if problem.id == "attribute_missing" or aspect in ("parameters", "type", "kind"):
        return 1
    if problem.id == "attribute_shape" or aspect == "shape":
        return 2
    if aspect == "raised" and violation.part == "values":
        return 3
    if aspect == "values":
        return (5 if violation.part == "values" else 7) - (problem.id == "not_a_number")
    return 8


def notes_of(seen: Mapping[str, Observation]) -> list[str]:
    """Return an answer's warnings and stderr, which are reported but cost no points."""
    notes = []
    for observation in seen.values():
        notes += [
            "Your code warned: " + textwrap.shorten(text, 300, placeholder=" ...")
            for text in observation.warnings
        ]
        if observation.stderr.strip():
            notes.append("Your code wrote to stderr: " + observation.stderr.strip()[:200])
    return list(dict.fromkeys(notes))[:3]


def note_on_state(seen: Mapping[str, Observation]) -> list[str]:
    """Return a note that names the variables that calls changed, which no example can show."""
    changed = dict.fromkeys(name for observation in seen.values() for name in observation.kept)
    names = " and ".join(f"`{name}`" for name in [*changed][:2])
    says = f"Your code keeps state in {names} between calls, so an input may fail only after other "
    return [says + "calls."] if changed else []
