"""Find the known mistake that reproduces the student's numbers."""

import functools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from course_lib.checks.judge.comparisons import same_record, same_records
from course_lib.checks.judge.definitions import Exercise, Mistake
from course_lib.checks.judge.in_any import in_any
from course_lib.checks.judge.of_the_result import OfTheResult
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.violations import (
    HYGIENE,
    Outcomes,
    Prepared,
    Violation,
    find_violations,
)
from course_lib.checks.observe.call import observe
from course_lib.checks.observe.observation import Observation

Replays = Iterable[tuple[Mistake, Outcomes]]  # known mistakes with their results, lazily
LEAST = 0.75  # share of failing probes that a mistake must explain to be named


@dataclass(frozen=True)
class Explanation:
    """A mistake and the violations it reproduces, as (probe name, aspect).

    `probes` are the failing probes that the mistake explains, of `num_failing`. `says_little` means
    that the results are only words or Python bools, which other mistakes may also give.
    """

    mistake: Mistake
    explained: frozenset[tuple[str, str]]
    probes: frozenset[str]
    num_failing: int
    says_little: bool = False

    @property
    def num_explained(self) -> int:
        return len(self.probes)

    @property
    def is_whole(self) -> bool:
        """Return whether this mistake explains all failing probes."""
        return self.num_explained == self.num_failing


class Answer:
    """The observations of a student's answer, compared with those of each known mistake."""

    def __init__(self, prepared: Prepared, outcomes: Outcomes) -> None:
        self._probes = {probe.name: probe for probe, _ in prepared}
        self._outcomes = outcomes
        self._failing = frozenset(
            (name, violation.aspect) for name, (_, found) in outcomes.items() for violation in found
        )
        self._is_mutating = any(aspect == "mutated" for _, aspect in self._failing)
        self._wanted = self._to_explain()
        failing = [name for name, keys in self._wanted.items() if keys]
        self.failing = frozenset(failing)
        self._num_failing = len(failing)
        self._least = max(1, math.ceil(LEAST * len(failing)))
        self._says_little = all(_says_little(outcomes[name][0]) for name in failing)
        if self._says_little:  # too many mistakes give them
            self._least = max(1, len(failing))

    def explanations(self, replays: Replays, *, whole: bool = False) -> list[Explanation]:
        """Return the mistakes that explain the most failing probes, if they explain enough."""
        least, best = max(1, self._num_failing) if whole else self._least, []
        for mistake, replayed in replays:
            if any(one.mistake.id == mistake.id for one in best):  # another of its answers fits
                continue
            found = self._explanation(mistake, replayed, least)
            if found is None:
                continue
            best = [one for one in best if one.num_explained == found.num_explained] + [found]
            least = found.num_explained
        most = max((len(one.explained) for one in best), default=0)
        return [one for one in best if len(one.explained) == most]

    def _to_explain(self) -> dict[str, set[tuple[str, str]]]:
        """Return the violations of each probe that a mistake must reproduce, wrong values first."""
        places: dict[str, set[tuple[str, str]]] = {name: set() for name in self._outcomes}
        others = {key for key in self._failing if key[1] not in HYGIENE}
        if any(key[1] != "attributes" for key in others):
            others = {key for key in others if key[1] != "attributes"}
        for key in others or self._failing:
            places[key[0]].add(key)
        for name, keys in places.items():
            places[name] = {key for key in keys if key[1] in _NUMBERS} or keys

        def order(name: str) -> tuple[bool, bool, bool]:
            is_call = self._probes[name].scenario == "call"  # the cheapest scenario
            return (name, "values") not in places[name], not places[name], not is_call

        return {name: places[name] for name in sorted(places, key=order)}

    def _explanation(self, mistake: Mistake, replayed: Outcomes, least: int) -> Explanation | None:
        """Return what a mistake explains, or None if it explains fewer than `least` probes."""
        explained: set[tuple[str, str]] = set()
        probes = set(self.failing)
        for name, wanted in self._wanted.items():
            seen, found = replayed[name]
            keys = {(name, violation.aspect) for violation in found}
            same = {key for key in self._failing & keys if self._is_same(key, seen, replayed)}
            if self._rules_out(name, keys - same):
                return None
            explained |= same
            if wanted - same:
                probes.remove(name)
            if len(probes) < least:
                return None
        # If the answer's only fault is that it changes its arguments, this also causes wrong
        # gradients. Another mistake must not be named for them.
        only_mutates = self._is_mutating and not any(key[1] in _RESULTS for key in self._failing)
        if only_mutates and all(aspect != "mutated" for _, aspect in explained):
            return None
        # On inputs where a mistake raises, an unrelated slip may raise, too.
        if all(aspect == "raised" for _, aspect in explained) and not all(
            _same_error(self._outcomes[name][0], replayed[name][0]) for name, _ in explained
        ):
            return None
        keys = frozenset(explained), frozenset(probes)
        return Explanation(mistake, *keys, self._num_failing, self._says_little)

    def _rules_out(self, name: str, others: set[tuple[str, str]]) -> bool:
        """Return whether a mistake causes violations that the student's answer does not have."""
        numbers = {
            (name, aspect)  # no numbers if the answer raised
            for _, aspect in others
            if aspect in _NUMBERS and (aspect == "raised" or (name, "raised") not in self._failing)
        }
        return not numbers <= self._failing

    def _is_same(self, key: tuple[str, str], theirs: Observation, replayed: Outcomes) -> bool:
        """Return whether answer and mistake cause this violation with the same numbers."""
        name, aspect = key
        probe, ours = self._probes[name], self._outcomes[name][0]
        if aspect == "raised":
            return self._raises_the_same(ours, theirs, replayed)
        if aspect in ("values", "shape", "type", "kind"):
            return same_record(probe, ours.outputs, theirs.outputs)
        if aspect == "gradients":
            wrong = {violation.aspect for violation in replayed[name][1]}
            return ((name, "values") in self._failing) == ("values" in wrong) and same_records(
                probe, ours.gradients, theirs.gradients
            )
        if aspect == "attributes":
            return same_records(probe, ours.attributes, theirs.attributes)
        if aspect == "parameters":
            return ours.parameters == theirs.parameters
        if aspect == "dtype":
            return _dtypes(ours) == _dtypes(theirs)
        return True

    def _raises_the_same(self, ours: Observation, theirs: Observation, replayed: Outcomes) -> bool:
        """Return whether both raised the same error or failed in the same calls."""
        same = _same_error(ours, theirs, 3)
        errors = [_error_of(seen)[:3] for seen in (ours, theirs)]
        injecting = any(seen.raised and seen.raised.phase == "inject" for seen in (ours, theirs))
        if same or injecting or () in errors or _UNEXPECTED in errors:
            return same
        failing = {name for name, aspect in self._failing if aspect == "raised"}
        return failing != set(self._outcomes) and all(
            (name in failing)
            == any(violation.aspect == "raised" for violation in replayed[name][1])
            for name in self._outcomes
        )


def _dtypes(seen: Observation) -> list[str]:
    """Return the dtype of each result."""
    if seen.outputs is None:
        return []
    return [part.dtype for part in seen.outputs.items.values() or [seen.outputs]]


def _same_error(ours: Observation, theirs: Observation, num_words: int | None = None) -> bool:
    """Return whether both errors begin with the same words, or both lack the same parameters."""
    if any(seen.raised and seen.raised.phase == "inject" for seen in (ours, theirs)):
        lacking = [
            seen.without_parameters or sorted((seen.parameters or {}).items())
            for seen in (ours, theirs)
        ]
        return lacking[0] == lacking[1]
    return _error_of(ours)[:num_words] == _error_of(theirs)[:num_words]


def _error_of(seen: Observation) -> tuple[str, ...]:
    """Return the type of an error and the words after the name of the function called."""
    if seen.raised is None:
        return ()
    words = seen.raised.message.split()
    return (seen.raised.type_name, *(words[1:] if words and words[0].endswith("()") else words))


_UNEXPECTED = ("TypeError", "got", "an")  # unexpected keyword argument


def _says_little(seen: Observation) -> bool:
    """Return whether a result is only words or Python bools, which fit many mistakes."""
    if seen.raised is not None or seen.outputs is None:
        return False
    parts = seen.outputs.items.values() or [seen.outputs]
    return all(part.kind in ("bool", "str") for part in parts)


_RESULTS = ("type", "kind", "shape", "values", "parameters")
_NUMBERS = ("raised", *_RESULTS)


class Replay(dict[str, tuple[Observation, list[Violation]]]):
    """A cache of a known mistake's results on each probe, computed when first needed."""

    def __init__(self, exercise: Exercise, model: Callable, prepared: Prepared):
        super().__init__()
        self._exercise, self._model = exercise, model
        self._prepared = {probe.name: (probe, expected) for probe, expected in prepared}

    def __missing__(self, name: str) -> tuple[Observation, list[Violation]]:
        probe, expected = self._prepared[name]
        if isinstance(self._model, OfTheResult):
            self[name] = self._model.observe(self._exercise, probe, expected)
        else:
            seen = observe(self._model, probe, watched=False)
            self[name] = seen, find_violations(self._exercise, probe, expected, seen)
        return self[name]


@functools.lru_cache(maxsize=64)
def _replays(exercise: Exercise, seed: str, which: Callable) -> Replays:
    """Return each mistake of `which(exercise)` with its results on the probes of a seed."""
    prepared = prepare(exercise, seed)
    return tuple(
        (mistake, Replay(exercise, model, prepared))
        for mistake in which(exercise)
        for model in mistake.answers
    )


def explain(
    exercise: Exercise, seed: str, student: Outcomes, caused: Collection[str]
) -> list[Explanation]:
    """Return the known mistakes that give the student's numbers on the most failing probes.

    These are the mistakes that explain all failing probes and give the same numbers. If there are
    none, and some failing probes are not in `caused` (those that one `Cause` explains), return one
    that any exercise allows. Otherwise, return those that explain the same probes, at least `LEAST`
    of the failing ones.
    """
    answer = Answer(prepare(exercise, seed), student)
    known = _replays(exercise, seed, _known)
    if whole := answer.explanations(known, whole=True):
        return whole
    if answer.failing.issubset(caused):
        return []
    if whole := answer.explanations(_replays(exercise, seed, in_any), whole=True):
        return whole[:1]
    found = answer.explanations(known)
    return [one for one in found if one.probes == found[0].probes]


def _known(exercise: Exercise) -> Sequence[Mistake]:
    return exercise.mistakes
