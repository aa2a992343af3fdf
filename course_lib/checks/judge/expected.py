"""What the oracle says of a probe: outputs, gradients by central differences, attributes."""

import dataclasses
from typing import Any

import numpy as np

from course_lib.checks.judge.exercise import Exercise
from course_lib.checks.observe.probe import Array, Probe
from course_lib.reference import Expected


def expect(exercise: Exercise, probe: Probe) -> Expected:
    """Asks the oracle, and differentiates it by central differences where gradients count."""
    if probe.raises:
        return Expected(None)
    inputs = {name: _plain(value) for name, value in probe.inputs().items()}
    state = {name: np.array(value, dtype=np.float64) for name, value in probe.state.items()}
    expected = _ask(exercise, probe, inputs, state)
    gradients = {}
    if probe.grad_outputs is not None:
        wanted = {n for n, a in probe.inputs().items() if isinstance(a, Array) and a.requires_grad}
        for name, value in [*inputs.items(), *state.items()]:
            if name in wanted or name in state:
                gradients[name] = _differentiate(exercise, probe, inputs, state, value)
    return dataclasses.replace(expected, gradients=gradients)


def _ask(exercise, probe, inputs, state) -> Expected:
    args = [inputs[name] for name in probe.args]
    kwargs = {name: inputs[name] for name in probe.kwargs}
    if probe.construct is None:
        return exercise.oracle(*args, **kwargs)
    return exercise.oracle(dict(probe.construct), state, *args, **kwargs)


def _differentiate(exercise, probe, inputs, state, variable, step=1e-5) -> np.ndarray:
    """Central differences of sum(grad_outputs * first output), one number at a time."""
    gradient = np.zeros(variable.shape)
    for index in np.ndindex(variable.shape):
        kept, sums = variable[index], []
        for shifted in (kept + step, kept - step):
            variable[index] = shifted
            outputs = _ask(exercise, probe, inputs, state).outputs
            first = outputs[0] if isinstance(outputs, tuple) else outputs
            sums.append(float(np.sum(first * probe.grad_outputs)))
        variable[index] = kept
        gradient[index] = (sums[0] - sums[1]) / (2 * step)
    return gradient


def _plain(value) -> Any:
    """The oracle's view of an argument: arrays in float64, other things as the probe has them."""
    if isinstance(value, Array):
        kind = value.data.dtype.kind
        return np.array(value.data, dtype=np.float64) if kind == "f" else np.array(value.data)
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    return getattr(value, "name", value) if not hasattr(value, "options") else value
