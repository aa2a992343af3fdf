"""Find the known mistake that reproduces the student's numbers."""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from course_lib.checks.judge.comparisons import (
    UNEXPECTED,
    error_of,
    missing_from,
    same_record,
    same_records,
)
from course_lib.checks.judge.exercise import Mistake
from course_lib.checks.judge.violations import HYGIENE, Violation, mutated
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.probe import Probe
from course_lib.reference import Expected

Outcomes = Mapping[str, tuple[Observation, list[Violation]]]
Replays = Iterable[tuple[Mistake, Outcomes]]  # what each known mistake does, run as it is asked for


@dataclass(frozen=True)
class Explanation:
    """A mistake and the violations it reproduces, as (probe name, aspect).

    Attributes:
        num_explained: how many of the probes that fail it explains in full.
        num_failing: how many fail.
    """

    mistake: Mistake
    explained: frozenset[tuple[str, str]]
    num_explained: int = 0
    num_failing: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it explains all that is wrong."""
        return self.num_explained == self.num_failing


class Answer:
    """What a student's answer did, with which each mistake is compared.

    Attributes:
        failing: its violations, as (probe name, aspect).
        results: those that are not of the hygiene, or all if there are no others.
        numbers: those of them that matter most: wrong results, or all if no result is wrong.
    """

    def __init__(
        self,
        runs: Sequence[tuple[Probe, Expected]],
        outcomes: Outcomes,
        seconds: float | None = None,
    ) -> None:
        self._until = math.inf if seconds is None else time.process_time() + seconds
        self._half_time = math.inf if seconds is None else self._until - seconds / 2
        self.probes = {probe.name: probe for probe, _ in runs}
        self.outcomes = outcomes
        self.failing = frozenset(
            (name, violation.aspect) for name, (_, found) in outcomes.items() for violation in found
        )
        others = frozenset(key for key in self.failing if key[1] not in HYGIENE)
        self.results = others or self.failing
        self.numbers = frozenset(k for k in self.failing if k[1] in _NUMBERS) or self.failing
        self.is_mutating = any(aspect == "mutated" for _, aspect in self.failing)
        self.says_little = all(_says_little(outcomes[name][0]) for name, _ in self.failing)

    def whole(self, replays: Replays) -> list[Explanation]:
        """The first mistake that reproduces everything, in a list; an empty one without it."""
        return self.explanations(replays, self.results, len(self.results), stop_at_first=True)

    def explanations(
        self,
        replays: Replays,
        wanted: frozenset[tuple[str, str]],
        least: int,
        *,
        partial: bool = False,
        stop_at_first: bool = False,
    ) -> list[Explanation]:
        """The mistakes that reproduce at least so many of the wanted violations.

        With `partial`, a mistake may give other numbers where the student's are wrong too.
        """
        if len(wanted) < least:
            return []
        ordered = self._in_order(wanted)
        found: list[Explanation] = []
        for mistake, replayed in replays:
            if time.process_time() > self._until or (found and stop_at_first):
                break
            explained = self._reproduced_by(replayed, ordered, len(wanted) - least, partial)
            if explained:
                one = self._explanation(mistake, explained)
                found += [one] if one.num_explained and self._is_cause(one) else []
        return found

    @property
    def is_half_time(self) -> bool:
        """Whether half of the time for naming is over."""
        return time.process_time() > self._half_time

    def may_be(self, *members: Outcomes) -> bool | None:
        """Whether mistakes may be made together here, by what each does alone on a few probes.

        Not (None) where neither does anything alone and the answer is wrong, or one does and the
        answer is right. Where one alone does something, both together mostly do just that; False
        where they would not.
        """
        apart = True
        wrong = [name for name, keys in self._in_order(self.results).items() if keys]
        right = [name for name in self.outcomes if not self.outcomes[name][1]]
        for name in (*wrong[:_FEW_WRONG], *right[:_FEW_RIGHT]):
            active = [theirs for theirs in members if _numbers_of(theirs[name][1])]
            failing = {(name, aspect) for aspect in _numbers_of(self.outcomes[name][1])}
            if bool(active) != bool(failing):
                return None
            if len(active) == 1:
                alone = active[0]
                apart &= all(self._is_same(key, alone[name][0], alone) for key in failing)
        return apart

    def _in_order(self, wanted: frozenset[tuple[str, str]]) -> dict[str, set[tuple[str, str]]]:
        """What is wanted of each probe: wrong values first, which settle most, then what else is
        wanted; what takes long last."""
        places: dict[str, set[tuple[str, str]]] = {name: set() for name in self.outcomes}
        for key in wanted:
            places[key[0]].add(key)
        slow = {name for name, (seen, _) in self.outcomes.items() if seen.seconds > _LONG}
        names = sorted(
            places, key=lambda n: (n in slow, (n, "values") not in wanted, not places[n])
        )
        return {name: places[name] for name in names}

    def _is_cause(self, found: Explanation) -> bool:
        """Whether a mistake changes arguments as the student does, where nothing else is wrong.

        What breaks the gradients is then the change itself, not a mistake with the same error.
        """
        only_follows = self.is_mutating and not any(key[1] in _RESULTS for key in self.failing)
        return not only_follows or any(aspect == "mutated" for _, aspect in found.explained)

    def _explanation(self, mistake: Mistake, explained: frozenset) -> Explanation:
        """With the number of failing probes it explains; hygiene is a matter of its own."""
        left = {name for name, _ in self.results - explained}
        failed = {name for name, _ in self.results}
        return Explanation(mistake, explained, len(failed - left), len(failed))

    def _reproduced_by(
        self, replayed: Outcomes, places: dict[str, set], spare: int, partial: bool
    ) -> frozenset[tuple[str, str]]:
        """The violations that a mistake reproduces, or none once it is ruled out.

        Looks at one probe after the other, as each has to be run, until more of the violations
        wanted there are missed than can be spared.
        """
        explained = set()
        for name, wanted in places.items():
            seen, found = replayed[name]
            keys = {(name, violation.aspect) for violation in found}
            same = {key for key in self.failing & keys if self._is_same(key, seen, replayed)}
            if keys != same and self._rules_out(name, keys - same, partial):
                return frozenset()
            explained |= same
            spare -= len(wanted - same)
            if spare < 0:
                return frozenset()
        return frozenset(explained)

    def _rules_out(self, name: str, others: set[tuple[str, str]], partial: bool) -> bool:
        """Whether violations that the student did not make, or made otherwise, are too much."""
        if (name, "mutated") in others and (
            (name, "mutated") in self.failing or not self.is_mutating
        ):
            return True  # it changes another argument, or the student none at all
        numbers = {
            (name, aspect)  # where the student's call raised, there are no numbers to compare
            for _, aspect in others
            if aspect in _NUMBERS and (aspect == "raised" or (name, "raised") not in self.failing)
        }
        return bool(numbers) and (not partial or not numbers <= self.failing)

    def _is_same(self, key: tuple[str, str], theirs: Observation, replayed: Outcomes) -> bool:
        """Whether both made this violation with the same numbers."""
        name, aspect = key
        probe, ours = self.probes[name], self.outcomes[name][0]
        if aspect == "raised":
            return self._raises_the_same(ours, theirs, replayed)
        if aspect in ("values", "shape", "type", "kind"):
            return same_record(probe, ours.outputs, theirs.outputs)
        if aspect == "gradients":
            wrong = {violation.aspect for violation in replayed[name][1]}
            return ((name, "values") in self.failing) == ("values" in wrong) and same_records(
                probe, ours.gradients, theirs.gradients, 1e-5
            )
        if aspect == "attributes":
            return same_records(probe, ours.attributes, theirs.attributes)
        if aspect == "parameters":
            return ours.parameters == theirs.parameters
        if aspect == "mutated":
            return mutated(probe, ours) == mutated(probe, theirs)
        return True

    def _raises_the_same(self, ours, theirs, replayed: Outcomes) -> bool:
        """The same error, or the same calls of all fail in some way."""
        if any(seen.raised and seen.raised.phase == "inject" for seen in (ours, theirs)):
            return missing_from(ours) == missing_from(theirs)
        errors = [error_of(seen) for seen in (ours, theirs)]
        if errors[0] == errors[1] or None in errors or UNEXPECTED in errors:
            return errors[0] == errors[1]
        failing = {name for name, aspect in self.failing if aspect == "raised"}
        return failing != set(self.outcomes) and all(
            (name in failing)
            == any(violation.aspect == "raised" for violation in replayed[name][1])
            for name in self.outcomes
        )


def _says_little(seen: Observation) -> bool:
    """Whether a result is words or bools only, which say little about how they came about."""
    if seen.raised is not None or seen.outputs is None:
        return False
    parts = seen.outputs.items.values() or [seen.outputs]
    return all(part.kind in ("bool", "str") for part in parts)


_RESULTS = ("type", "kind", "shape", "values", "parameters")
_LONG = 0.005  # seconds for one call
_FEW_WRONG, _FEW_RIGHT = 4, 10  # probes
_NUMBERS = ("raised", *_RESULTS)


def _numbers_of(found: Sequence[Violation]) -> list[str]:
    return [violation.aspect for violation in found if violation.aspect in _NUMBERS]


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
