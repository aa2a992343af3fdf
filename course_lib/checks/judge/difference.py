"""Where a result differs from what the definition gives."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.checks.judge.exercise import Returned
from course_lib.checks.observe.record import Recorded

_LEAST_DIGITS, _MOST_DIGITS = 3, 9


def differing(expected: np.ndarray, data: np.ndarray, tolerance: float) -> np.ndarray:
    """Bool, True where two arrays of one shape differ by more than the tolerance.

    NaN agrees with NaN and inf with inf, as in `compare.arrays_agree`.
    """
    expected = expected.astype(float)
    data = data.astype(complex if data.dtype.kind == "c" else float)
    with np.errstate(all="ignore"):
        near = np.abs(data - expected) <= tolerance * (1 + np.abs(expected))
        same = (data == expected) | (np.isnan(expected) & np.isnan(data))
    return ~((near & np.isfinite(expected)) | same)


def named_parts(
    returns: Sequence[Returned], expected: Any, recorded: Recorded
) -> list[tuple[str, Any, Recorded]]:
    """Each number or array of a result: its name, what was expected, what came."""
    if isinstance(expected, Mapping):
        return [(str(key), want, recorded.items[key]) for key, want in expected.items()]
    if len(returns) == 1:
        return [(returns[0].name, expected, recorded)]
    return [
        (contract.name, want, recorded.items[i])
        for i, (contract, want) in enumerate(zip(returns, expected, strict=True))
    ]


def entry_that_differs(expected: np.ndarray, data: np.ndarray, tolerance: float) -> str:
    """Says, as "[1, 2] is 0.5; the definition gives 0.25"; "" if no entry differs."""
    if expected.shape != data.shape:
        return ""
    places = np.argwhere(differing(expected, data, tolerance))
    if not len(places):
        return ""
    place = tuple(int(i) for i in places[0])
    theirs, ours = in_digits([data[place], expected[place]])
    where = f"[{', '.join(map(str, place))}]" if place else "it"
    return f"{where} is {theirs}; the definition gives {ours}"


def in_digits(values: Iterable[Any]) -> list[str]:
    """Numbers as short as they are still told apart, all with as many digits."""
    values = [np.asarray(value).item() for value in values]
    different = len({str(value) for value in values})
    for digits in range(_LEAST_DIGITS, _MOST_DIGITS):
        texts = [_short(value, digits) for value in values]
        if len(set(texts)) == different:
            return texts
    return [_short(value, _MOST_DIGITS) for value in values]


def _short(value: Any, digits: int) -> str:
    return str(value) if isinstance(value, bool | int) else f"{value:.{digits}g}"
