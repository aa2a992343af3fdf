"""Prepare the probes of an exercise and what the oracle expects, before any answer is seen."""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.checks.judge.diagnose import Outcomes
from course_lib.checks.judge.exercise import Exercise, Mistake
from course_lib.checks.judge.violations import Violation, judge
from course_lib.checks.observe.call import observe
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.probe import Array, Probe
from course_lib.reference import Expected

CHECK_VERSION = "1"


@functools.lru_cache(maxsize=64)
def prepare(exercise: Exercise, seed: str) -> tuple[tuple[Probe, Expected], ...]:
    """Return the probes of an exercise for a seed, each with what the oracle expects."""
    digest = hashlib.sha256(f"{seed}/{exercise.name}/{CHECK_VERSION}".encode()).digest()
    probes = exercise.probes(np.random.default_rng(list(digest)))
    assert len({probe.name for probe in probes}) == len(probes), "probe names must differ"
    if exercise.forbidden or exercise.no_loops or exercise.needs_loops:
        probes = [dataclasses.replace(probe, counted=True) for probe in probes]
    return tuple((probe, expect(exercise, probe)) for probe in probes)


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


def expect(exercise: Exercise, probe: Probe) -> Expected:
    """Ask the oracle, and differentiate it by central differences where gradients count."""
    if probe.raises:
        return Expected(None)
    inputs = {name: _plain(value) for name, value in probe.inputs().items()}
    state = {name: np.array(value, dtype=np.float64) for name, value in probe.state.items()}
    expected = _ask(exercise, probe, inputs, state)
    gradients = {}
    if probe.grad_outputs is not None:
        wanted = {n for n, a in probe.inputs().items() if isinstance(a, Array) and a.requires_grad}
        at = _weighted(expected, probe)
        for name, value in [*inputs.items(), *state.items()]:
            if name in wanted or name in state:
                gradients[name] = _differentiate(exercise, probe, inputs, state, value, at)
    return dataclasses.replace(expected, gradients=gradients)


def _ask(exercise, probe, inputs, state) -> Expected:
    args = [inputs[name] for name in probe.args]
    kwargs = {name: inputs[name] for name in probe.kwargs}
    if probe.construct is None:
        return exercise.oracle(*args, **kwargs)
    construct = {name: _plain(value) for name, value in probe.construct.items()}
    return exercise.oracle(construct, state, *args, **kwargs)


def _differentiate(exercise, probe, inputs, state, variable, at: float) -> np.ndarray:
    """Return central differences of sum(grad_outputs * first output), one number at a time.

    Where the slopes to the left and to the right differ, a kink (of a ReLU, say) may lie within the
    step, and a smaller step is taken: beside a kink there is one derivative, and PyTorch has it.
    """
    gradient = np.zeros(variable.shape)
    for index in np.ndindex(variable.shape):
        kept = variable[index]
        for step in _STEPS:
            variable[index] = kept + step
            right = (_weighted(_ask(exercise, probe, inputs, state), probe) - at) / step
            variable[index] = kept - step
            left = (at - _weighted(_ask(exercise, probe, inputs, state), probe)) / step
            variable[index] = kept
            gradient[index] = (left + right) / 2
            if not abs(right - left) > _SMOOTH * max(1.0, abs(gradient[index])):
                break
    return gradient


_STEPS = (1e-5, 1e-6, 1e-7)  # the last still leaves eight digits of a float64
_SMOOTH = 1e-4  # a second derivative of 10 at the first step


def _weighted(expected: Expected, probe: Probe) -> float:
    outputs = expected.outputs
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    return float(np.sum(first * probe.grad_outputs))


def _plain(value) -> Any:
    """Return an argument as the oracle takes it: arrays in float64, the rest unchanged."""
    if isinstance(value, Array):
        kind = value.data.dtype.kind
        return np.array(value.data, dtype=np.float64) if kind == "f" else np.array(value.data)
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    return getattr(value, "name", value) if not hasattr(value, "options") else value
