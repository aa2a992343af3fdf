"""How many points an answer earns, from what went wrong with which probe."""

from course_lib.checks.judge import HYGIENE

SHARES = {"values": 0.5, "edges": 0.25, "gradients": 0.15, "hygiene": 0.1}
MOST_OF_A_FLAWED_PART = 0.5
MOST_BEYOND_A_LIMIT = 1 / 3
BEYOND_A_LIMIT = (
    "What your code spends is what this exercise is about; beyond the limit, each part of the "
    "points earns at most a third."
)


def score_of(exercise, runs, outcomes, extra) -> tuple[float, dict[str, tuple[float, float]]]:
    """The score 0..1 and, for each part, (earned, possible) as shares of 1.

    A part earns the share of its probes that pass, and at most half once one fails: a check that
    looks in twenty places must not make a mistake cheap, unless each place is a question of its
    own. A probe half passes if only what the call should have stored is wrong. Where no probe of
    the values passes, nothing is earned at all: a constant does not mutate its input either. What
    a probe of the values may spend at most is what the exercise is for: beyond it no part earns
    more than a third.
    """
    passed: dict[str, list[float]] = {}
    for probe, _ in runs:
        wrong = {v.aspect for v in outcomes[probe.name][1] if v.part != "hygiene"}
        passes = 0.5 if wrong == {"attributes"} else float(not wrong)
        passed.setdefault(probe.part, []).append(passes)
    dirty = {v.aspect for _, found in outcomes.values() for v in found if v.aspect in HYGIENE}
    shares = {part: share for part, share in SHARES.items() if part in passed or part == "hygiene"}
    shares["values"] += 1.0 - sum(shares.values())
    most = MOST_BEYOND_A_LIMIT if beyond_a_limit(outcomes) else 1.0
    parts = {}
    for part, share in shares.items():
        if part == "hygiene":
            earned = max(0.0, 1.0 - 0.5 * len(dirty))
        else:
            earned = sum(passed[part]) / len(passed[part])
            if min(passed[part]) < 1 and not exercise.each_counts:
                earned = min(earned, MOST_OF_A_FLAWED_PART)
        parts[part] = (share * min(earned, most), share)
    if not any(passed["values"]) or extra:
        parts = {part: (0.0, share) for part, (_, share) in parts.items()}
    return min(sum(earned for earned, _ in parts.values()), 0.99), parts


def beyond_a_limit(outcomes) -> bool:
    """Whether a probe of the values spends more than it may."""
    found = [v for _, violations in outcomes.values() for v in violations]
    return any(v.part == "values" and v.aspect.startswith("spent_") for v in found)
