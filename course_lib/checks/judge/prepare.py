"""Prepare the probes of an exercise and the oracle's results, before any answer is seen."""

import functools
import hashlib
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.violations import Prepared
from course_lib.checks.observe.probe import Array, Probe
from course_lib.reference import Expected


@functools.lru_cache(maxsize=64)
def prepare(exercise: Exercise, seed: str) -> Prepared:
    """Return the probes of an exercise for a seed, each with the oracle's result."""
    digest = hashlib.sha256(f"{seed}/{exercise.name}/1".encode()).digest()
    probes = drawn(exercise, np.random.default_rng(list(digest)))
    assert len({probe.name for probe in probes}) == len(probes), "probe names must differ"
    if is_counted(exercise, probes):
        probes = [replace(probe, counted=True) for probe in probes]
    also = also_elsewhere(exercise, probes)
    probes = [replace(probe, elsewhere=True) if probe in also else probe for probe in probes]
    return tuple((probe, expect(exercise, probe)) for probe in probes)


def drawn(exercise: Exercise, rng: np.random.Generator) -> list[Probe]:
    """Return the probes of an exercise, each with the sentence before it.

    Those without a name get numbers. Arguments that are given by position have the names of the
    oracle's parameters.
    """
    parameters = [*inspect.signature(exercise.oracle).parameters]
    found, says = [], ""
    for probe in exercise.probes(rng):
        if isinstance(probe, str):
            says = probe
            continue
        skipped = 0 if probe.construct is None else 2
        args = {
            parameters[skipped + key] if isinstance(key, int) else key: value
            for key, value in probe.args.items()
        }
        name = probe.name or f"problem_{len(found) + 1}"
        found.append(replace(probe, name=name, says=probe.says or says, args=args))
    return found


def is_counted(exercise: Exercise, probes: Iterable[Probe]) -> bool:
    """Return whether the points depend on counts of calls, steps, bytes or functions."""
    by_rule = exercise.rules.forbidden or exercise.rules.no_loops or exercise.rules.needs_loops
    return bool(by_rule) or any(probe.at_most for probe in probes)


def is_read(exercise: Exercise, probes: Iterable[Probe]) -> bool:
    """Return whether grading reads the answer's source before it uses what was observed.

    The reason is that points depend on counts, or that the answer is a test that could look inside
    the objects it gets instead of calling them.
    """
    is_test = any(probe.scenario in _OF_TESTS for probe in probes)
    return is_test or is_counted(exercise, probes)


_OF_TESTS = ("ask_about_each", "own_tests_on_own_module")


def also_elsewhere(exercise: Exercise, probes: Sequence[Probe]) -> list[Probe]:
    """Return the probes to repeat on another device: the first, and those with other arguments.

    Only answers that take and return tensors must run there. The exercises of an integration have
    been called there before.
    """
    if exercise.chain or not any(returned.kind == "tensor" for returned in exercise.returns):
        return []
    plain = [p for p in probes if p.scenario == probes[0].scenario and not p.raises]
    plain = [probe for probe in plain if probe.num_inputs]
    chosen, passed = plain[:1], _arguments(plain[0]) if plain else frozenset()
    while plain and (most := max(plain, key=lambda p: len(_arguments(p) - passed))):
        if _arguments(most) <= passed:
            break
        chosen.append(most)
        passed |= _arguments(most)
    return chosen


def _arguments(probe: Probe) -> frozenset[str]:
    return frozenset(name for name, value in probe.inputs().items() if value is not None)


def expect(exercise: Exercise, probe: Probe) -> Expected:
    """Call the oracle, and compute central differences if gradients are judged."""
    if probe.raises:
        return Expected(None)
    inputs = {name: _plain(value, probe.dtype) for name, value in probe.inputs().items()}
    state = {name: np.array(value, dtype=np.float64) for name, value in probe.state.items()}
    expected = _ask(exercise, probe, inputs, state)
    gradients = {}
    if probe.grad_outputs is not None:
        wanted = {name for name, array in probe.arrays().items() if array.requires_grad}
        at = _weighted(expected, probe)
        for name, value in [*inputs.items(), *state.items()]:
            if name in wanted or name in state:
                gradients[name] = _differentiate(exercise, probe, inputs, state, value, at)
    return replace(expected, gradients=gradients)


def _ask(exercise, probe, inputs, state) -> Expected:
    args = [inputs[name] for name in probe.args]
    kwargs = {name: inputs[name] for name in probe.kwargs}
    if probe.construct is None:
        return exercise.oracle(*args, **kwargs)
    construct = {name: _plain(value) for name, value in probe.construct.items()}
    return exercise.oracle(construct, state, *args, **kwargs)


def _differentiate(exercise, probe, inputs, state, variable, at: float) -> np.ndarray:
    """Return central differences of sum(grad_outputs * first output) for each number."""
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


_STEPS = (1e-5, 1e-6, 1e-7)  # the last one still leaves eight correct digits
_SMOOTH = 1e-4  # corresponds to a second derivative of 10 at the first step


def _weighted(expected: Expected, probe: Probe) -> float:
    outputs = expected.outputs
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    return float(np.sum(first * probe.grad_outputs))


def _plain(value, dtype: str | None = None) -> Any:
    """Return an argument for the oracle, with arrays in float64 and all else unchanged.

    Numbers that the answer gets in half precision are rounded likewise.
    """
    if isinstance(value, Array):
        data = np.array(value.data)
        if dtype in ("float16", "bfloat16") and data.dtype == np.float64:
            data = torch.from_numpy(data).to(getattr(torch, dtype)).double().numpy()
        return data.astype(np.float64) if data.dtype.kind == "f" else data
    if isinstance(value, list | tuple):
        return type(value)(_plain(item, dtype) for item in value)
    return getattr(value, "name", value) if not hasattr(value, "options") else value
