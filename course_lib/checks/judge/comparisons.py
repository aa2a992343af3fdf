"""Compare recorded results with expected ones.

A comparison gets the probe, the expected result and the recorded outputs. Their types and shapes
have already been checked. It returns a `Problem` or None. An exercise may define its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.checks.judge.definitions import Returned
from course_lib.checks.observe.probe import Dtype, Probe
from course_lib.checks.observe.record import Recorded


@dataclass(frozen=True)
class Problem:
    """A problem: an id for tests and class reports, a fact, and one question or pointer."""

    id: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Cause(Problem):
    """A problem whose fact says what the code does. The mistake's id is `name`, or else `id`."""

    name: str = ""


WRONG_VALUES = Problem("wrong_values", "")  # the report adds the numbers


def tolerance_for(probe: Probe, recorded: Recorded) -> float:
    """Return the largest error that rounding can cause, both absolute and relative.

    An answer may compute in float32 whatever the dtype of its arguments is. A sum of `_TERMS`
    products of numbers up to `_SIZE` then has an error of at most `_TERMS * _SIZE**2` epsilons,
    which a softmax turns into the relative error of a weight. Problems with larger numbers must be
    exact in float32 (`kit.in_eighths`). Half precision is tolerated only if requested.
    """
    if probe.tolerance is not None:
        return probe.tolerance
    if recorded.dtype in _HALF and recorded.dtype in _asked_in(probe):
        return _HALF[recorded.dtype]
    if probe.dtype in _HALF:  # a wrong dtype is a problem of its own
        return _HALF[probe.dtype]
    return _ROUNDING


_TERMS, _SIZE = 8, 3
COARSE = 1e-3  # with a larger tolerance, numbers may fit by chance
_ROUNDING = _TERMS * _SIZE**2 * float(np.finfo(np.float32).eps)  # 8.6e-6
_HALF = {"float16": _TERMS * 2.0**-10, "bfloat16": _TERMS * 2.0**-7}  # torch sums in float32


def _asked_in(probe: Probe) -> set[str | None]:
    """Return the dtypes that the probe asks for."""
    named = {str(value.name) for value in probe.inputs().values() if isinstance(value, Dtype)}
    return named | {probe.dtype} | {str(array.data.dtype) for array in probe.arrays().values()}


def arrays_agree(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> bool:
    """Return whether shapes are equal and numbers close; NaN equals NaN, inf equals inf."""
    if ours.shape != theirs.shape:
        return False
    same = ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()
    return same or not differing(ours, theirs, tolerance).any()


def differing(expected: np.ndarray, data: np.ndarray, tolerance: float) -> np.ndarray:
    """Return True where two arrays of one shape differ by more than the tolerance."""
    expected = expected.astype(float)
    data = data.astype(complex if data.dtype.kind == "c" else float)
    with np.errstate(all="ignore"):  # like np.allclose, but three times as fast
        near = (np.abs(data - expected) <= tolerance * (1 + np.abs(expected))) & np.isfinite(
            expected
        )
        if not near.all():
            near |= (data == expected) | (np.isnan(expected) & np.isnan(data))
    return ~near


def first_visible(expected: np.ndarray, data: np.ndarray, tolerance: float) -> Any:
    """Return the indices of the first entry with a tenth of the largest error, or None."""
    wrong = differing(expected, data, tolerance)
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        errors = np.abs(data.astype(complex) - expected)
    errors = np.where(wrong, np.where(np.isnan(errors), np.inf, errors), -1.0)
    return tuple(np.argwhere(errors >= errors.max() / 10)[0].tolist())


def close(probe: Probe, expected: Any, recorded: Recorded) -> Problem | None:
    """Compare the recorded numbers with the expected ones, within the usual tolerance."""
    if isinstance(expected, dict | tuple):
        items = expected.items() if isinstance(expected, dict) else enumerate(expected)
        problems = (close(probe, part, recorded.items[key]) for key, part in items)
        return next((problem for problem in problems if problem), None)
    if expected is None:
        return None
    if isinstance(expected, str):
        return None if recorded.text == expected else WRONG_VALUES
    expected = np.asarray(expected)
    data = recorded.numbers
    if arrays_agree(expected, data, tolerance_for(probe, recorded)):
        return None
    if data.dtype.kind in "fc" and np.isnan(data).any():
        return Problem("not_a_number", "Your result contains NaN.", _WHERE_NAN)
    return _nearly(expected, data) or WRONG_VALUES


def _nearly(expected: np.ndarray, data: np.ndarray) -> Problem | None:
    """Return the problem for numbers that are correct except for their last digits."""
    if expected.dtype.kind != "f" or data.dtype.kind != "f" or not np.isfinite(expected).all():
        return None
    largest = np.abs(expected).max(initial=0.0)
    with np.errstate(over="ignore"):  # numbers near their dtype's maximum
        error = np.abs(data - expected).max(initial=0.0) / largest if largest else np.inf
    if not 0 < error < _NEARLY:
        return None
    return Problem(
        "precision_lost",
        f"Your largest error is small, about {error:.1g} times the largest number.",
        "Which step approximates, rounds, adds a small constant or computes in a smaller dtype?",
    )


_NEARLY = 1e-3  # relative to the largest number; a larger error means another formula
_WHERE_NAN = "Which step computes 0 / 0, inf - inf, 0 * inf or the like?"


def same_records(probe: Probe, ours: dict, theirs: dict, least: float = 0.0) -> bool:
    return ours.keys() == theirs.keys() and all(
        same_record(probe, ours[key], theirs[key], least) for key in ours
    )


def same_record(
    probe: Probe, ours: Recorded | None, theirs: Recorded | None, least: float = 0.0
) -> bool:
    """Return whether two records have the same kinds, shapes and numbers."""
    if ours is None or theirs is None or ours.kind != theirs.kind:
        return ours is theirs
    if ours.items or theirs.items:
        return same_records(probe, ours.items, theirs.items, least)
    if ours.data is None or theirs.data is None:
        alike = ours.type_name == theirs.type_name and ours.text == theirs.text
        return ours.data is theirs.data and alike
    if ours.data.dtype.kind != theirs.data.dtype.kind:
        return False
    tolerance = max(tolerance_for(probe, ours), tolerance_for(probe, theirs), least)
    return arrays_agree(np.asarray(theirs.data), np.asarray(ours.data), tolerance)


_LEAST_DIGITS, _MOST_DIGITS = 3, 9


def named_parts(
    returns: Sequence[Returned], expected: Any, recorded: Recorded
) -> list[tuple[str, Any, Recorded]]:
    """Return the name, expected and actual value of each part, or [] if a part is missing."""
    found = recorded.items
    if isinstance(expected, Mapping):
        has_all = expected.keys() <= found.keys()
        return [(name, want, found[name]) for name, want in expected.items()] if has_all else []
    if len(returns) == 1:
        return [(returns[0].name, expected, recorded)]
    if len(found) != len(returns) or expected is None:  # an error was expected
        return []
    names = [contract.name for contract in returns]
    return list(zip(names, expected, found.values(), strict=True))


def wrong_parts(
    returns: Sequence[Returned], probe: Probe, expected: Any, recorded: Recorded | None
) -> dict[str, Recorded]:
    """Return the parts of a result whose numbers are wrong, by name."""
    return {
        name: got
        for name, want, got in (named_parts(returns, expected, recorded) if recorded else [])
        if want is not None
        and (
            got.data is None
            or not arrays_agree(np.asarray(want), got.data, tolerance_for(probe, got))
        )
    }


def has_the_wrong_parts(
    returns: Sequence[Returned],
    probe: Probe,
    expected: Any,
    ours: Recorded | None,
    theirs: Recorded | None,
) -> bool:
    """Return whether some parts of `theirs` are wrong, and `ours` has the same wrong parts."""
    wrong, own = (wrong_parts(returns, probe, expected, one) for one in (theirs, ours))
    has_all = bool(wrong) and wrong.keys() <= own.keys()
    return has_all and same_records(probe, {name: own[name] for name in wrong}, wrong)


def entry_that_differs(expected: np.ndarray, data: np.ndarray, tolerance: float) -> str:
    """Return text like "[1, 2] is 0.5; the definition gives 0.25", or "" if no entry differs."""
    if expected.shape != data.shape:
        return ""
    place = first_visible(expected, data, tolerance)
    if place is None:
        return ""
    theirs, ours = in_digits([data[place], expected[place]])
    where = f"[{', '.join(map(str, place))}]" if place else "it"
    return f"{where} is {theirs}; the definition gives {ours}"


def in_digits(values: Iterable[Any]) -> list[str]:
    """Format numbers with the same number of digits, as few as distinguish them."""
    values = [np.asarray(value).item() for value in values]
    different = len({str(value) for value in values})
    for digits in range(_LEAST_DIGITS, _MOST_DIGITS):
        texts = [_short(value, digits) for value in values]
        if len(set(texts)) == different:
            return texts
    return [_short(value, _MOST_DIGITS) for value in values]


def _short(value: Any, digits: int) -> str:
    if isinstance(value, bool | int):
        return str(value)
    text = f"{value:.{digits}g}"
    if np.iscomplexobj(value):
        return text
    is_count = value.is_integer() and abs(value) < 1e15 and float(text) != value
    return f"{value:.0f}" if is_count else text
