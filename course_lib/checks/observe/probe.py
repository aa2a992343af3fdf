"""Describe calls of an answer as plain data that can be sent to another process.

A probe holds NumPy arrays, numbers and names. The observer turns an `Array` into a tensor, a
`Dtype` into a torch dtype, and a `Built` into the object that `observe/scenarios.py` makes of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Array:
    """An array argument, whose floating data is float64 by default.

    Args:
        kind: "tensor" for torch, "numpy" for NumPy.
        strided: make it non-contiguous (axes in reverse order, every second element).
        requires_grad: record its gradient (floating tensors only).
    """

    data: np.ndarray
    kind: str = "tensor"
    strided: bool = False
    requires_grad: bool = False


@dataclass(frozen=True)
class Dtype:
    """A torch dtype argument, by name: `Dtype("float16")`."""

    name: str


@dataclass(frozen=True)
class Built:
    """An argument that must be made where it is used: `Built("generator", {"seed": 3})`.

    `says` is its description in a report, by default its name.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""


MOST_WEIGHTS = 16  # that a report shows


@dataclass(frozen=True)
class Probe:
    """One call of the student's object, and what to record about it.

    Args:
        name: short id, unique within the exercise.
        says: the requirement in words that a student understands, shown if it fails.
        part: the share of the points it belongs to: "values", "edges" or "gradients".
        args: positional arguments, by the name that the report uses.
        construct: for classes, the constructor's keyword arguments.
        state: for classes, the weights to inject, by parameter name ("W_q.weight").
        training: for classes, call in train mode instead of eval mode.
        grad_outputs: run backward from the (first) output with this gradient.
        attributes: names of attributes to record after the call.
        compare: the comparison with the oracle's result (`checks.judge.comparisons`).
        tolerance: absolute and relative tolerance, if it differs from the usual one.
        raises: name of the exception that the call must raise.
        scenario: the way of calling the object (`observe/scenarios.py`).
        seed: the global torch and NumPy seeds set before the call.
        loops: the group of probes, identical except for sizes, whose Python steps are compared.
        counted: record how often each torch function is called, which is slow.
        dtype: floating dtype of the tensors, if it differs from the data's.
        at_most: cost limits of the call, without its arguments: "peak" bytes alive at once, "kept"
            bytes alive afterwards, and "functions" evaluations of exp and similar functions.
        elsewhere: afterwards, call the object again with all tensors on another device.
    """

    name: str
    says: str
    part: str = "values"
    args: Mapping[str, Any] = field(default_factory=dict)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    construct: Mapping[str, Any] | None = None
    state: Mapping[str, np.ndarray] = field(default_factory=dict)
    training: bool = False
    grad_outputs: np.ndarray | None = None
    attributes: tuple[str, ...] = ()
    compare: str = "close"
    tolerance: float | None = None
    raises: str | None = None
    scenario: str = "call"
    seed: int = 70_103  # unlikely to be used by an answer
    loops: str = ""
    counted: bool = False
    dtype: str | None = None
    at_most: Mapping[str, int] = field(default_factory=dict)
    elsewhere: bool = False

    @property
    def size(self) -> int:
        """Return how many numbers a reader has to read."""
        return self.num_inputs + sum(a.size for a in self.state.values())

    @property
    def shows_weights(self) -> bool:
        """Return whether the injected weights are few enough to be shown in a report."""
        return 0 < self.size - self.num_inputs <= MOST_WEIGHTS

    @property
    def num_inputs(self) -> int:
        """Return how many numbers the tensors of the call contain, without injected weights."""
        return sum(_size(value) for value in self.inputs().values())

    def inputs(self) -> dict[str, Any]:
        """Return all arguments by name."""
        return {**self.args, **self.kwargs}

    def arrays(self) -> dict[str, Array]:
        """Return the arguments that are arrays, by name."""
        return {name: a for name, a in self.inputs().items() if isinstance(a, Array)}


def _size(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(_size(item) for item in value)
    return value.data.size if isinstance(value, Array) else 0


def tensor(data, *, strided: bool = False, requires_grad: bool = False) -> Array:
    """Return a torch tensor argument. Python floats become float64, and integers int64."""
    return Array(np.asarray(data), "tensor", strided, requires_grad)


def array(data, *, strided: bool = False) -> Array:
    """Return a NumPy array argument."""
    return Array(np.asarray(data), "numpy", strided)
