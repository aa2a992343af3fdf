"""Compute the points that an answer earns from its violations."""

from collections.abc import Iterable

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.violations import HYGIENE, Outcomes, Prepared, Violation
from course_lib.checks.observe.probe import Probe

SHARES = {"values": 0.5, "edges": 0.25, "gradients": 0.15, "hygiene": 0.1}
MOST_OF_A_FLAWED_PART = 0.6
MOST_BEYOND_A_LIMIT = 1 / 3
MOST_WITH_A_LOOP = 0.5
BEYOND_A_LIMIT = (
    "This exercise is about what your code spends; beyond the limit, each part of the points "
    "earns at most a third."
)
_HALF = ({"attributes"}, {"kind"})  # correct numbers, but not stored or in another container


def shares_of(exercise: Exercise, probes: Iterable[Probe]) -> dict[str, float]:
    """Return each part's share of the points, rounded to tenths of a point.

    The share of parts without probes goes to values.
    """
    present = {probe.part for probe in probes} | {"hygiene"}
    tenths = round(10 * exercise.points)
    exact = {
        part: share
        for part, share in (exercise.marking.shares or SHARES).items()
        if part in present
    }
    shares = {part: round(share * tenths) / tenths for part, share in exact.items()}
    shares["values"] += 1.0 - sum(shares.values())
    return shares


def score_of(
    exercise: Exercise, prepared: Prepared, outcomes: Outcomes, extra: list[Violation]
) -> tuple[float, dict[str, tuple[float, float]]]:
    """Return the score 0..1 and, for each part, (earned, possible) as shares of 1.

    A part earns its share if all of its probes pass. Otherwise it earns up to
    `MOST_OF_A_FLAWED_PART` of it, in proportion to the probes that pass. A probe counts half if the
    numbers are correct and only an attribute or the kind of the result is wrong. Hygiene is scaled
    by the rest, because returning a constant is hygienic, too.
    """
    passed: dict[str, list[float]] = {}
    for probe, _ in prepared:
        wrong = {v.aspect for v in outcomes[probe.name][1] if v.part != "hygiene"}
        passes = 0.5 if wrong in _HALF else float(not wrong)
        passed.setdefault(probe.part, []).append(passes)
    dirty = {v.aspect for _, found in outcomes.values() for v in found if v.aspect in HYGIENE}
    shares = shares_of(exercise, (probe for probe, _ in prepared))
    earned = {part: sum(passes) / len(passes) for part, passes in passed.items()}
    for part, passes in passed.items():
        if not (exercise.marking.each_counts or all(passes)):
            earned[part] *= MOST_OF_A_FLAWED_PART
    if not any(passed["values"]):  # edge cases may pass by chance
        earned = {part: share / 4 for part, share in earned.items()}
    elsewhere = sum(shares[part] * earned[part] for part in passed) / (1 - shares["hygiene"])
    earned["hygiene"] = max(0.0, 1.0 - 0.5 * len(dirty)) * min(1.0, 2 * elsewhere)
    factor = min((_factor_of(exercise, v.problem.id) for v in extra), default=1.0)
    if beyond_a_limit(outcomes):
        factor *= MOST_BEYOND_A_LIMIT
    parts = {part: (factor * share * earned[part], share) for part, share in shares.items()}
    return min(sum(earned for earned, _ in parts.values()), 0.99), parts


def _factor_of(exercise: Exercise, broken: str) -> float:
    """Return the share of the points that is left if a rule of the statement is broken."""
    if broken == "uncounted":  # every rule counts as broken
        if exercise.rules.forbidden or exercise.rules.needs_loops:
            return 0.0
        return MOST_WITH_A_LOOP if exercise.rules.no_loops else 1.0
    return MOST_WITH_A_LOOP if broken in ("loops", "out_of_torch") else 0.0


def beyond_a_limit(outcomes: Outcomes) -> bool:
    """Return whether a probe of the values exceeds its cost limit."""
    found = [v for _, violations in outcomes.values() for v in violations]
    return any(v.part == "values" and v.aspect.startswith("spent_") for v in found)
