"""Names the mistake: compares with what every known wrong model does on the same probes.

A model explains a violation if it makes the same violation with the same numbers. It is ruled
out if it would have made a violation of values that the student did not make.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.checks.compare import arrays_agree, tolerance_for
from course_lib.checks.exercise import Mistake
from course_lib.checks.judge import Expected, Violation, mutated
from course_lib.checks.observe import Observation
from course_lib.checks.probe import Probe
from course_lib.checks.record import Recorded

Outcomes = Mapping[str, tuple[Observation, list[Violation]]]


@dataclass(frozen=True)
class Explanation:
    """A mistake and the violations it reproduces, as (probe name, aspect).

    It is `partial` if it gives the student's numbers in some problems and others elsewhere:
    one of several mistakes in the same code.
    """

    mistake: Mistake
    explained: frozenset[tuple[str, str]]
    partial: bool = False


def explain(
    runs: Sequence[tuple[Probe, Expected]],
    replays: Sequence[tuple[Mistake, Outcomes]],
    student: Outcomes,
) -> list[Explanation]:
    """The mistakes that together reproduce the most of what went wrong, the largest first.

    Args:
        runs: the probes with what was expected.
        replays: what each known mistake does on them, by probe name; asked for as needed.
        student: the observation and violations of each probe, by probe name.

    Returns:
        At most two explanations, of which the first reproduces at least half of the violations
        in the part that matters most; else one partial explanation of at least a third of the wrong
        values (and two of them);
        empty if nothing known gives the student's numbers.
    """
    failing = _violations(student)
    # What failed comes first, wrong values before all: that settles most.
    order = sorted(student, key=lambda n: ((n, "values") not in failing, not student[n][1]))
    candidates = [
        Explanation(mistake, explained)
        for mistake, replayed in replays
        if (explained := _reproduced(runs, replayed, student, failing, order))
    ]
    named: list[Explanation] = []
    remaining = set(failing)
    while candidates and len(named) < 2:
        best = max(candidates, key=lambda found: len(found.explained & remaining))
        share = len(best.explained & remaining)
        if share == 0 or (not named and not _is_telling(best, failing)):
            break
        named.append(best)
        remaining -= best.explained
        candidates.remove(best)
    return named or _partial(runs, replays, student, failing, order)


def _partial(runs, replays, student: Outcomes, failing, order: list[str]) -> list[Explanation]:
    """The mistake that gives the most of the student's numbers, and others elsewhere."""
    least = max(2, math.ceil(_wrong_values(failing) / 3))
    found = [
        Explanation(mistake, explained, partial=True)
        for mistake, replayed in replays
        if (explained := _reproduced(runs, replayed, student, failing, order, least))
    ]
    return sorted(found, key=lambda one: -len(one.explained))[:1]


def _reproduced(
    runs, replayed: Outcomes, student: Outcomes, failing, order: list[str], least: int = 0
) -> frozenset[tuple[str, str]]:
    """The violations that a mistake reproduces, or none once it is ruled out.

    Looks at one probe after the other, as each has to be run. With `least`, the mistake may give
    other numbers where the student's are wrong too, if that many wrong values are reproduced.
    """
    explained = set()
    left = _wrong_values(failing)
    is_mutating = any(aspect == "mutated" for _, aspect in failing)
    for name in order:
        keys = _violations({name: replayed[name]})
        same = {key for key in failing & keys if _same(key, runs, student, replayed)}
        others = {
            (name, aspect)  # where the student's call raised, there are no numbers to compare
            for _, aspect in keys - same
            if aspect in _NUMBERS and (aspect == "raised" or (name, "raised") not in failing)
        }
        if others and (not least or not others <= failing):
            return frozenset()
        if (name, "mutated") in keys - same and ((name, "mutated") in failing or not is_mutating):
            return frozenset()  # it changes another argument, or the student none at all
        explained |= same
        left -= (name, "values") in failing
        if _wrong_values(explained) + left < least:
            return frozenset()
    return frozenset(explained)


_NUMBERS = ("raised", "type", "shape", "values", "parameters")


def _is_telling(found: Explanation, failing: set[tuple[str, str]]) -> bool:
    """Whether it accounts for at least half of the failures of the first aspect that fails."""
    numbers = {key for key in failing if key[1] in _NUMBERS} or failing
    return 2 * len(found.explained & numbers) >= len(numbers)


def _violations(outcomes: Outcomes) -> set[tuple[str, str]]:
    return {(name, v.aspect) for name, (_, found) in outcomes.items() for v in found}


def _wrong_values(keys: Iterable[tuple[str, str]]) -> int:
    return sum(aspect == "values" for _, aspect in keys)


def _raising(outcomes: Outcomes) -> set[str]:
    return {name for name, aspect in _violations(outcomes) if aspect == "raised"}


def _same(key, runs, student: Outcomes, replayed: Outcomes) -> bool:
    """Whether both made this violation with the same numbers."""
    name, aspect = key
    ours, theirs = student[name][0], replayed[name][0]
    probe = next(probe for probe, _ in runs if probe.name == name)
    if aspect == "raised":  # the same error, or the same calls of all fail in some way
        if any(seen.raised and seen.raised.phase == "inject" for seen in (ours, theirs)):
            return _missing(ours) == _missing(theirs)
        errors = [_error(seen) for seen in (ours, theirs)]
        if errors[0] == errors[1] or None in errors or _UNEXPECTED in errors:
            return errors[0] == errors[1]
        failing = _raising(student)
        return failing != set(student) and failing == _raising({n: replayed[n] for n in student})
    if aspect in ("values", "shape", "type"):
        return same_record(probe, ours.outputs, theirs.outputs)
    if aspect == "gradients":
        wrong = [(name, "values") in _violations(found) for found in (student, replayed)]
        return (
            wrong[0] == wrong[1]
            and ours.gradients.keys() == theirs.gradients.keys()
            and all(
                same_record(probe, ours.gradients[k], theirs.gradients[k], 1e-5)
                for k in ours.gradients
            )
        )
    if aspect == "attributes":
        return ours.attributes.keys() == theirs.attributes.keys() and all(
            same_record(probe, ours.attributes[k], theirs.attributes[k]) for k in ours.attributes
        )
    if aspect == "parameters":
        return ours.parameters == theirs.parameters
    if aspect == "mutated":
        return mutated(probe, ours) == mutated(probe, theirs)
    return True


def _error(seen: Observation) -> object:
    """What tells one error from another: its type and how its message begins."""
    if (raised := seen.raised) is None:
        return None
    words = raised.message.split()
    words = words[1:] if words and words[0].endswith("()") else words  # whose function it is
    return raised.type_name, *words[:2]


_UNEXPECTED = ("TypeError", "got", "an")  # unexpected keyword argument


def _missing(seen: Observation) -> object:
    """What tells one module without the asked parameters from another."""
    return seen.without_parameters or sorted((seen.parameters or {}).items())


def same_record(
    probe: Probe, ours: Recorded | None, theirs: Recorded | None, least: float = 0.0
) -> bool:
    """Whether two records hold the same kinds, shapes and numbers."""
    if ours is None or theirs is None or ours.kind != theirs.kind:
        return ours is theirs
    if ours.items.keys() != theirs.items.keys():
        return False
    if ours.items:
        return all(same_record(probe, ours.items[k], theirs.items[k], least) for k in ours.items)
    if ours.data is None or theirs.data is None:
        alike = ours.type_name == theirs.type_name and ours.text == theirs.text
        return ours.data is theirs.data and alike
    if ours.data.dtype.kind != theirs.data.dtype.kind:
        return False
    tolerance = max(tolerance_for(probe, ours), tolerance_for(probe, theirs), least)
    return arrays_agree(np.asarray(theirs.data), np.asarray(ours.data), tolerance)
