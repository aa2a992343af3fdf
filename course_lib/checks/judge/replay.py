"""Replay the known mistakes of an exercise on the probes that an answer failed."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from course_lib.checks.judge.definitions import Exercise, Mistake
from course_lib.checks.judge.diagnose import Outcomes
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.violations import Violation, judge
from course_lib.checks.observe.call import observe
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.probe import Probe
from course_lib.reference import Expected


@functools.lru_cache(maxsize=64)
def replays(exercise: Exercise, seed: str) -> tuple[tuple[Mistake, Outcomes], ...]:
    """Return each known mistake of an exercise with what it does on the probes of a seed."""
    runs = prepare(exercise, seed)
    return tuple(
        (mistake, Replay(exercise, model, runs))
        for mistake in exercise.mistakes
        for model in (mistake.model, *mistake.twins)
    )


class Pair:
    """Two known mistakes at once; their model is made when it is first looked at.

    Attributes:
        members: what each of the two does alone.
    """

    def __init__(self, exercise: Exercise, runs, *members: tuple[Mistake, Outcomes]):
        self._exercise, self._runs = exercise, runs
        self._mistakes = [mistake for mistake, _ in members]
        self.members = [outcomes for _, outcomes in members]

    @functools.cached_property
    def mistake(self) -> Mistake:
        one, other = self._mistakes
        return one.together_with(other)

    @functools.cached_property
    def outcomes(self) -> Outcomes:
        return Replay(self._exercise, self.mistake.model, self._runs)


@functools.lru_cache(maxsize=64)
def pairs(exercise: Exercise, seed: str) -> tuple[Pair, ...]:
    """Return all pairs of known mistakes that can be made at once."""
    runs, known = prepare(exercise, seed), {}
    for mistake, outcomes in replays(exercise, seed):
        known.setdefault(mistake.id, (mistake, outcomes))  # without twins
    return tuple(
        Pair(exercise, runs, one, other)
        for one, other in itertools.combinations(known.values(), 2)
        if one[0].goes_with(other[0])
    )


class Replay(Mapping):
    """What a known mistake does, probe by probe: run when first asked for, then kept.

    Most mistakes differ from the student's in the first number, so few probes are ever run.
    """

    def __init__(self, exercise: Exercise, model: Callable, runs: Sequence[tuple[Probe, Expected]]):
        self._exercise, self._model = exercise, model
        self._runs = {probe.name: (probe, expected) for probe, expected in runs}
        self._seen: dict[str, tuple[Observation, list[Violation]]] = {}

    def __getitem__(self, name: str) -> tuple[Observation, list[Violation]]:
        if name not in self._seen:
            probe, expected = self._runs[name]
            seen = observe(self._model, probe, watched=False)
            self._seen[name] = seen, judge(self._exercise, probe, expected, seen)
        return self._seen[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)
