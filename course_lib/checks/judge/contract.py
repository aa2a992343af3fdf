"""Check the contract of a result: its type, its shape with named axes, its dtype and device."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from course_lib.checks.judge.comparisons import Cause, Problem
from course_lib.checks.judge.definitions import Returned
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.probe import Dtype, Probe
from course_lib.checks.observe.record import Recorded, a_or_an

_KINDS = {
    "tensor": "a torch.Tensor",
    "array": "a numpy.ndarray",
    "float": "a Python float",
    "int": "a Python int",
    "bool": "a Python bool",
    "str": "a str",
    "dict": "a dict",
}
_HELD = {"bool": ("b", "bool"), "int": ("iu", "whole numbers")}  # NumPy's kinds, and in words
_WRITTEN_AS = {
    "generator": "Does your function `yield` where it should `return`?",
    "coroutine": "Is there an `async` before your `def`?",
}
_ACCEPTED = {"float": ("float", "int"), "int": ("int",), "bool": ("bool",)}


def _parts(returns: Sequence[Returned], recorded: Recorded) -> list[tuple[Returned, Recorded]]:
    """Return pairs of each returned value's contract and the value itself."""
    if len(returns) == 1:
        return [(returns[0], recorded)]
    nothing = Recorded("none", "nothing")
    return [(contract, recorded.items.get(i, nothing)) for i, contract in enumerate(returns)]


def wrong_type(returns: Sequence[Returned], expected: Any, recorded: Recorded) -> Problem | None:
    if recorded.kind == "none" and expected is not None:
        hint = "Is a `return` missing on some path, or does your code return None on purpose?"
        return Cause("returned_none", "Your code returned None.", hint)
    several = recorded.kind in ("tuple", "list") and len(recorded.items) == len(returns)
    if len(returns) > 1 and not several:  # a list is unpacked like a tuple
        names = ", ".join(contract.name for contract in returns)
        return Problem("wrong_type", f"Expected a tuple ({names}); got {describe(recorded)}.")
    wanted: Any = [expected] if len(returns) == 1 else expected
    for (contract, got), want in zip(_parts(returns, recorded), wanted, strict=True):
        if problem := _wrong_kind(contract, want, got):
            return problem
    return None


def _wrong_kind(contract: Returned, want, got: Recorded) -> Problem | None:
    if want is None:
        if got.kind == "none":
            return None
        return Cause("not_none", f"The result must be None; got {describe(got)}.")
    wrong = got.kind not in _ACCEPTED.get(contract.kind, (contract.kind,))
    if not wrong and got.data is None and got.kind not in ("dict", "str"):
        cannot = f"The numbers of `{contract.name}` cannot be read: it is {describe(got)}"
        where = f" on the device {got.device}." if got.device not in ("", "cpu") else "."
        return Problem("unreadable_numbers", cannot + where)
    if wrong:
        return Problem(
            "wrong_type",
            f"`{contract.name}` must be {_KINDS[contract.kind]}; got {describe(got)}.",
            _WRITTEN_AS.get(got.type_name, ""),
        )
    if contract.kind == "dict":
        missing = [key for key in want if key not in got.items]
        if missing or any(got.items[key].data is None for key in want):
            return Cause("wrong_keys", f"The dict must hold numbers for {', '.join(want)}.")
        return None
    if contract.kind in ("tensor", "array"):
        kinds, words = _HELD.get(contract.dtype, ("f", "floating point numbers"))
        if got.numbers.dtype.kind not in kinds:
            message = f"`{contract.name}` must hold {words}; yours holds {got.dtype}."
            return Problem("wrong_dtype_kind", message)
    return None


def converted(returns: Sequence[Returned], recorded: Recorded) -> Recorded | None:
    """Convert recorded numbers to the container that the contract asks for, if possible."""
    changed = [_converted(contract, got) for contract, got in _parts(returns, recorded)]
    if any(part is None for part in changed):
        return None
    if len(returns) == 1:
        return changed[0]
    return replace(recorded, items=dict(enumerate(changed)))


def _converted(contract: Returned, got: Recorded) -> Recorded | None:
    data = got.data
    if data is None or data.dtype.kind not in "biuf":
        return None
    if contract.kind in ("float", "int", "bool"):
        if data.size != 1 or (contract.kind == "bool" and data.item() not in (0, 1)):
            return None
        return replace(got, kind=contract.kind, data=data.reshape(()), dtype="", shape=())
    if contract.kind not in ("tensor", "array") or got.kind not in ("tensor", "array"):
        return None
    if contract.dtype == "bool":
        data = data.astype(bool) if np.isin(data, (0, 1)).all() else None
    elif contract.dtype == "int":
        data = data.astype(int) if np.equal(data, np.round(data)).all() else None
    elif data.dtype.kind != "f":
        data = data.astype(float)
    if data is None:
        return None
    stays = data.dtype.kind == "f" and got.numbers.dtype.kind == "f"
    dtype = got.dtype if stays else str(data.dtype)
    return replace(got, kind=contract.kind, data=data, dtype=dtype)


def describe(recorded: Recorded) -> str:
    if recorded.kind in ("tensor", "array"):
        return f"{a_or_an(recorded.type_name)} of {recorded.dtype} and shape {recorded.shape}"
    if recorded.kind in ("tuple", "list"):
        inside = ", ".join(item.type_name for item in recorded.items.values())
        return f"a {recorded.kind} ({inside})"
    return "None" if recorded.kind == "none" else a_or_an(recorded.type_name)


def wrong_shape(returns: Sequence[Returned], expected: Any, recorded: Recorded) -> Problem | None:
    """Return the problem of a shape, with a question about the number, order or size of axes."""
    parts = _parts(returns, recorded)
    wants: Any = [expected] if len(returns) == 1 else expected
    swapped = sorted(map(np.shape, wants)) == sorted(got.shape for _, got in parts)
    for (contract, got), want in zip(parts, wants, strict=True):
        wanted, shape, axes = np.shape(want), tuple(got.shape), contract.axes
        if want is None or contract.kind not in ("tensor", "array") or shape == wanted:
            continue
        if swapped:
            hint = "In which order should you return the results?"
        elif len(shape) != len(wanted):
            hint = "Which step adds or removes an axis?"
        elif sorted(shape) == sorted(wanted):
            hint = "Which axis is which, and which step changes their order or their sizes?"
        else:
            first = next(i for i, size in enumerate(wanted) if size != shape[i])
            named = len(axes) == len(wanted)
            axis = f"`{axes[first]}`" if named else f"number {first} (counted from 0)"
            hint = f"Which step decides the length of axis {axis}?"
        named = f" ({', '.join(axes)})" if axes else ""
        message = f"`{contract.name}` must have shape{named} = {wanted}; yours has {shape}."
        return Problem("wrong_shape", message, hint)
    return None


def wrong_dtype(
    returns: Sequence[Returned], probe: Probe, seen: Observation, outputs: Recorded
) -> Problem | None:
    """Report a floating dtype that differs from the inputs' and costs precision or memory."""
    asked = [value.name for value in probe.inputs().values() if isinstance(value, Dtype)]
    floating = [
        seen.arguments[name].dtype
        for name, array in probe.arrays().items()
        if array.data.dtype.kind == "f" and name in seen.arguments
    ]
    if not asked and not floating:
        return None
    wanted = (asked + floating)[0]
    why = "asked for" if asked else "expected, as in the inputs"
    for contract, got in _parts(returns, outputs):
        is_array = got.kind in ("tensor", "array")
        if contract.dtype == "float" and is_array and got.dtype != wanted:
            return Cause(
                "dtype_changed",
                f"`{contract.name}` came back as {got.dtype}; {wanted} was {why}.",
                "Which step chooses the dtype: a `dtype=`, a conversion, a default or an operand "
                "of another dtype?",
            )
    return None


def wrong_device(
    returns: Sequence[Returned], seen: Observation, outputs: Recorded
) -> Problem | None:
    """Return the problem of a tensor that is on another device than the inputs."""
    given = {seen_input.device for seen_input in seen.arguments.values()} - {""}
    for contract, got in _parts(returns, outputs):
        if got.kind == "tensor" and given and got.device not in given:
            return Cause(
                "device_changed",
                f"`{contract.name}` is on {got.device}, the inputs are on {', '.join(given)}.",
                "Which step makes a tensor without `device=`, or moves one?",
            )
    return None
