"""Probes: what to call, as plain data that can be sent to another process.

A probe holds NumPy arrays, numbers and names. The observer turns an `Array` into a tensor, a
`Dtype` into a torch dtype, and a `Built` into the object that `observe/scenarios.py` makes of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Array:
    """An array argument, whose floating data is float64 unless it says otherwise.

    Args:
        kind: "tensor" for torch, "numpy" for NumPy.
        strided: hand it over non-contiguous (axes in reverse order, every second element).
        requires_grad: ask for its gradient (floating tensors only).
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

    A report calls it `says`, or by its name.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""


@dataclass(frozen=True)
class Probe:
    """One call of the student's object and what to note about it.

    Args:
        name: short id, unique within the exercise.
        says: what must hold here, in words a student understands; shown when it does not.
        part: the share of the points it belongs to: "values", "edges" or "gradients".
        args: positional arguments, by the name that the report uses.
        construct: for classes, the constructor's keyword arguments.
        state: for classes, the weights to inject, by parameter name ("W_q.weight").
        training: for classes, call in train mode instead of eval mode.
        grad_outputs: run backward from the (first) output with this gradient.
        attributes: names of attributes to note after the call.
        compare: the comparison that judges it (`checks.judge.comparisons`).
        tolerance: absolute and relative tolerance, where the usual one does not fit.
        raises: name of the exception that the call must raise.
        scenario: how the object is driven (`observe/scenarios.py`).
        seed: the global torch and NumPy seeds set before the call.
        loops: the group of probes, alike but for their sizes, whose work in Python is compared.
        counted: note which torch functions are called, and how often; it slows all down.
        dtype: floating dtype of the tensors, where it is not that of the data.
        at_most: what the call may spend besides its arguments: "peak" bytes alive at once, "kept"
            bytes alive afterwards, "functions" of how many numbers exp and its like may be taken.
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
    seed: int = 70_103  # no number that an answer would seed with
    loops: str = ""
    counted: bool = False
    dtype: str | None = None
    at_most: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return how many numbers a reader has to look at."""
        return self.num_inputs + sum(a.size for a in self.state.values())

    @property
    def num_inputs(self) -> int:
        """Return how many numbers the arguments hold, without injected weights."""
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
    """Return a torch tensor argument; Python numbers become float64, whole ones int64."""
    return Array(np.asarray(data), "tensor", strided, requires_grad)


def array(data, *, strided: bool = False) -> Array:
    """Return a NumPy array argument."""
    return Array(np.asarray(data), "numpy", strided)
