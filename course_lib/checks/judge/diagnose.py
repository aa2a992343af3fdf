"""Names the mistake: asks what every known wrong model does on the same probes."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from course_lib.checks.judge.exercise import Mistake
from course_lib.checks.judge.reproduce import Answer, Explanation, Outcomes, Replays
from course_lib.checks.observe.probe import Probe
from course_lib.reference import Expected


def explain(
    runs: Sequence[tuple[Probe, Expected]],
    replays: Replays,
    student: Outcomes,
    seconds: float | None = None,
    pairs: Callable[[], Sequence] = tuple,
) -> list[Explanation]:
    """The mistakes that together reproduce the most of what went wrong, the largest first.

    Args:
        runs: the probes with what was expected.
        replays: what each known mistake does on them, by probe name; asked for as needed, the
            most likely first.
        student: the observation and violations of each probe, by probe name.
        seconds: of processor time, after which no further mistake is tried; any time if None.
        pairs: two known mistakes at once (`checks.judge.prepare.pairs`), asked for where no single
            one reproduces everything.

    Returns:
        The first mistake that reproduces everything, or the first pair. If there is none: at most
        two, of which the first reproduces at least half of the violations in the part that matters
        most; else one that gives at least a third of the wrong values (and two of them), and other
        wrong values elsewhere; empty if nothing tried gives the student's numbers. Where the
        results are words, or single bools, which many mistakes share, only one that explains
        everything counts.
    """
    answer = Answer(runs, student, seconds)
    whole = answer.whole(replays)
    if whole or answer.says_little:
        return whole
    return answer.whole(_likely_first(pairs(), answer)) or _in_parts(replays, answer)


def _likely_first(pairs: Sequence, answer: Answer) -> Iterator[tuple[Mistake, Outcomes]]:
    """The pairs that may be it, with what they do; those that hide nothing of each other first."""
    others = []
    for pair in pairs:
        if answer.is_half_time:  # the rest is for what a single mistake explains in part
            return
        if (apart := answer.may_be(*pair.members)) is not None:
            if apart:
                yield pair.mistake, pair.outcomes
            else:
                others.append(pair)
    for pair in itertools.takewhile(lambda pair: not answer.is_half_time, others):
        yield pair.mistake, pair.outcomes


def _in_parts(replays: Replays, answer: Answer) -> list[Explanation]:
    """Mistakes that reproduce some of what went wrong."""
    named: list[Explanation] = []
    remaining = answer.failing
    while remaining and len(named) < 2:
        wanted = remaining if named else answer.numbers
        least = 1 if named else math.ceil(len(wanted) / 2)
        candidates = answer.explanations(replays, wanted, least)
        if not candidates:
            break
        named.append(max(candidates, key=lambda found: len(found.explained & remaining)))
        remaining = remaining - named[-1].explained
    return named or _partial(replays, answer)


def _partial(replays: Replays, answer: Answer) -> list[Explanation]:
    """The mistake that gives the most of the student's numbers, and others elsewhere."""
    wanted = frozenset(key for key in answer.failing if key[1] == "values")
    least = max(2, math.ceil(len(wanted) / 3))
    found = answer.explanations(replays, wanted, least, partial=True)
    return sorted(found, key=lambda one: -len(one.explained))[:1]
