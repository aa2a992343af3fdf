"""Format numbers, arrays and inputs as the text of a report."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from course_lib.checks.judge.comparisons import in_digits
from course_lib.checks.judge.html import MARK
from course_lib.checks.observe.probe import Array
from course_lib.checks.observe.record import Recorded

SMALL = 60  # entries of an input that is printed


def in_rows(data: np.ndarray) -> tuple[tuple[str, ...], ...]:
    flat = data.reshape(-1, max(1, data.shape[-1])) if data.ndim else data.reshape(1, 1)
    return tuple(tuple(in_digits([number])[0] for number in row) for row in flat)


def told_apart(
    data, expected, wrong
) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
    """Return both as text, with wrong entries marked and enough digits to show the difference."""
    marked = wrong if not wrong.all() else np.arange(wrong.size).reshape(wrong.shape) == 0
    shape = (-1, data.shape[-1]) if data.ndim and data.size else (1, data.size)
    yours, theirs = [], []
    for row in zip(*(x.reshape(shape) for x in (data, expected, wrong, marked)), strict=True):
        pairs = [
            in_digits([ours, want]) if is_wrong else [in_digits([n])[0] for n in (ours, want)]
            for ours, want, is_wrong in zip(*row[:3], strict=True)
        ]
        marks = [MARK if is_marked else "" for is_marked in row[3]]
        yours.append(tuple(ours + mark for (ours, _), mark in zip(pairs, marks, strict=True)))
        theirs.append(tuple(want for _, want in pairs))
    return tuple(yours), tuple(theirs)


def in_columns(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Align rows of numbers in columns, each as wide as its widest entry."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in itertools.zip_longest(*rows, fillvalue="")]
    padded = (zip(row, widths, strict=False) for row in rows)
    return ["    " + "  ".join(f"{n:<{w}}" for n, w in row).rstrip() for row in padded]


def assignment(name: str, text: str) -> str:
    indent = " " * (len(name) + 5)
    return f"  {name} = " + text.replace("\n", "\n" + indent)


_LARGEST = [np.finfo(dtype).max for dtype in ("float16", "float32", "float64")]
_USUAL = ("float64", "int64", "bool")  # dtypes that a report does not mention


def text_of_input(value: Any) -> str:
    if isinstance(value, Array):
        if value.data.size > SMALL:
            return f"{value.data.dtype} numbers of shape {value.data.shape}"
        if value.data.ndim > 1 and not value.data.size:
            return f"[] of shape {value.data.shape}"
        dtype = value.data.dtype.name
        return _array_text(value.data) + f" ({dtype})" * (dtype not in _USUAL)
    if isinstance(value, list | tuple):
        return "[" + ",\n".join(map(text_of_input, value)).replace("\n", "\n ") + "]"
    return str(getattr(value, "says", "") or getattr(value, "name", value))


def text_of_options(options: Mapping[str, Any]) -> str:
    """Return the arguments of a module's constructor in one line."""
    texts = {name: " ".join(text_of_input(value).split()) for name, value in options.items()}
    return ", ".join(f"{name}={text}" for name, text in texts.items())


def text_of_record(recorded: Recorded) -> str:
    if recorded.items:
        return "\n".join(f"{key}: {text_of_record(item)}" for key, item in recorded.items.items())
    if recorded.kind == "str":
        return repr(recorded.text)
    if recorded.data is None:
        return recorded.type_name
    if recorded.data.size > SMALL:
        return f"{recorded.type_name} of shape {recorded.data.shape}"
    return _array_text(recorded.data)


def _array_text(data: np.ndarray) -> str:
    has_largest = data.dtype.kind == "f" and np.isin(np.abs(data), _LARGEST).any()
    precision = 5 if has_largest else 3  # rounded to 3 digits, these would be infinite
    with np.errstate(over="ignore"):
        is_exact = data.dtype.kind != "f" or np.array_equal(data, data.round(3), equal_nan=True)
    return np.array2string(
        data,
        precision=precision,
        suppress_small=is_exact,
        separator=", ",
        threshold=80,
        floatmode="maxprec",
    )
