"""Observe correct results, and mistakes that change results before they are returned."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.judge.violations import Violation, find_violations
from course_lib.checks.observe.observation import Observation, Raised
from course_lib.checks.observe.probe import Dtype, Probe
from course_lib.checks.observe.record import Recorded, record
from course_lib.reference import Expected

Outcome = tuple[Observation, list[Violation]]


@dataclass(frozen=True)
class ChangedResult:
    """A model that changes the results of the wrong answer `of`, or the correct ones.

    `change` gets the results as an answer would return them.
    """

    change: Callable
    of: Callable | None = None

    def __call__(self, *results: Any) -> Any:
        """Change these results."""
        return self.change(*results)

    def observe(self, exercise: Exercise, probe: Probe, expected: Expected) -> Outcome:
        """Return the observation of an answer that changes correct results.

        If it cannot change them, return that of a correct answer.
        """
        right = correct_observation(exercise, probe, expected)
        if probe.raises:
            return right, []
        seen = self._changed(_correct_results(exercise, probe, expected), probe, expected)
        if seen is None or find_violations(exercise, probe, expected, right):
            return right, []
        return seen, find_violations(exercise, probe, expected, seen)

    def observe_after(
        self, other: Observation, exercise: Exercise, probe: Probe, expected: Expected
    ) -> Observation:
        """Return the observation of an answer that changes the results of `other`.

        If it cannot change them, return `other`.
        """
        outputs, number = other.outputs, len(exercise.returns)
        if outputs is None or (number > 1 and len(outputs.items) != number):
            return other
        parts = list(outputs.items.values()) if number > 1 else [outputs]
        if any(part.data is None for part in parts):
            return other
        return self._changed(list(map(_returned, parts)), probe, expected) or other

    def _changed(self, results: list[Any], probe: Probe, expected: Expected) -> Observation | None:
        try:
            with np.errstate(all="ignore"):
                made = self.change(*results)
        except Exception:
            return None
        return _observed(list(made) if isinstance(made, tuple) else [made], probe, expected)


def _returned(part: Recorded) -> Any:
    """Convert a recorded result back to the type that was returned."""
    if part.kind == "tensor":
        return torch.from_numpy(np.array(part.data)).to(getattr(torch, part.dtype))
    return part.numbers if part.kind == "array" else part.numbers.item()


def correct_observation(exercise: Exercise, probe: Probe, expected: Expected) -> Observation:
    """Return the observation of a correct answer, computed from the oracle's result."""
    if probe.raises:
        return Observation(raised=Raised(probe.raises, ""))
    return _observed(_correct_results(exercise, probe, expected), probe, expected)


def _correct_results(exercise: Exercise, probe: Probe, expected: Expected) -> list[Any]:
    """Return the oracle's results in the form in which an answer would return them."""
    returns = exercise.returns
    outputs = expected.outputs if len(returns) > 1 else (expected.outputs,)
    dtype = _dtype_of(probe)
    results = [_right(*pair, dtype) for pair in zip(returns, outputs, strict=True)]
    for number, result in enumerate(results):
        leads = number == 0 or returns[number].differentiable
        is_floating = isinstance(result, torch.Tensor) and result.is_floating_point()
        if leads and is_floating and probe.grad_outputs is not None:
            result.requires_grad_()
    return results


def _observed(made: list[Any], probe: Probe, expected: Expected) -> Observation:
    has_graph = isinstance(made[0], torch.Tensor) and made[0].requires_grad
    dtype = _dtype_of(probe)
    return Observation(
        record(tuple(made) if len(made) > 1 else made[0]),
        attributes=_recorded(expected.attributes),
        gradients=_recorded(expected.gradients) if has_graph else {},
        arguments={
            name: Recorded(a.kind, "", dtype, a.data.shape, "cpu", a.requires_grad, a.data)
            for name, a in probe.arrays().items()
            if a.data.dtype.kind == "f"
        },
        spent=dict.fromkeys(probe.at_most, 0),
    )


def _recorded(arrays: dict[str, np.ndarray]) -> dict[str, Recorded]:
    return {name: record(torch.tensor(array)) for name, array in arrays.items()}


def _dtype_of(probe: Probe) -> str:
    """Return the dtype that floating results of a probe must have."""
    asked = [value.name for value in probe.inputs().values() if isinstance(value, Dtype)]
    held = [str(a.data.dtype) for a in probe.arrays().values() if a.data.dtype.kind == "f"]
    return (asked + [probe.dtype] * bool(probe.dtype) + held + ["float64"])[0] or "float64"


def _right(contract: Returned, value: Any, dtype: str) -> Any:
    """Convert a result of the oracle to the contract's type."""
    if contract.kind in ("float", "int", "bool"):
        return {"float": float, "int": int, "bool": bool}[contract.kind](value)
    if contract.kind not in ("tensor", "array") or value is None:
        return value
    made = torch.from_numpy(np.array(value))
    made = made.to(getattr(torch, dtype)) if made.is_floating_point() else made
    return made if contract.kind == "tensor" else made.numpy()
