"""Replay the known mistakes of an exercise on the probes that an answer failed."""

import functools
from collections.abc import Callable

from course_lib.checks.judge.definitions import Exercise, Mistake
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.violations import Outcomes, Prepared, Violation, judge
from course_lib.checks.observe.call import observe
from course_lib.checks.observe.observation import Observation


class Replay(dict[str, tuple[Observation, list[Violation]]]):
    """What a known mistake does, probe by probe: run when first asked for, then kept.

    Most mistakes differ from the student's in the first number, so few probes are ever run.
    """

    def __init__(self, exercise: Exercise, model: Callable, prepared: Prepared):
        super().__init__()
        self._exercise, self._model = exercise, model
        self._prepared = {probe.name: (probe, expected) for probe, expected in prepared}

    def __missing__(self, name: str) -> tuple[Observation, list[Violation]]:
        probe, expected = self._prepared[name]
        seen = observe(self._model, probe, watched=False)
        self[name] = seen, judge(self._exercise, probe, expected, seen)
        return self[name]


@functools.lru_cache(maxsize=64)
def replays(exercise: Exercise, seed: str) -> tuple[tuple[Mistake, Outcomes], ...]:
    """Return each known mistake of an exercise with what it does on the probes of a seed."""
    prepared = prepare(exercise, seed)
    return tuple(
        (mistake, Replay(exercise, model, prepared))
        for mistake in exercise.mistakes
        for model in (mistake.model, *mistake.twins)
    )


@functools.lru_cache(maxsize=1024)
def replay_of_both(
    exercise: Exercise, seed: str, first: str, second: str
) -> tuple[Mistake, Outcomes]:
    """Return two mistakes at once, by their ids, with what they do on the probes of a seed."""
    one, other = (next(m for m in exercise.mistakes if m.id == id) for id in (first, second))
    assert one.build is not None
    model = one.build({**one.changes, **other.changes})
    message = f"Two mistakes at once. {one.message} {other.message}"
    both = Mistake(f"{first}+{second}", model, message, one.hint)
    return both, Replay(exercise, model, prepare(exercise, seed))
