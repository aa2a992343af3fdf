"""The words of the alt texts: what a figure shows, said from its numbers."""

from collections.abc import Iterable, Sequence
from typing import Any, SupportsFloat

import numpy as np


def as_array(data: Any) -> np.ndarray:
    """A NumPy copy of a tensor, array or list; torch's half precision types become float64."""
    if hasattr(data, "detach"):
        data = data.detach().cpu().tolist()
    return np.array(data)


def number(value: SupportsFloat) -> str:
    """Two decimals where they tell something, otherwise three digits."""
    value = float(value)
    if not np.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.2f}" if 0.005 <= abs(value) < 1000 else f"{value:.3g}"


def ranges(indices: Iterable[int]) -> str:
    """`[0, 1, 2, 5]` -> `"0-2, 5"`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def counted(count: int, one: str, many: str) -> str:
    """`1 query`, `3 queries`."""
    return f"{count} {one if count == 1 else many}"


def listed(name: str, indices: Sequence[int]) -> str:
    """`key 3`, `keys 1-2, 4`."""
    return f"{name}{'' if len(indices) == 1 else 's'} {ranges(indices)}"


def same_rows(rows: Sequence[Sequence[int]]) -> list[tuple[list[int], list[int]]]:
    """Group the row numbers that have the same entries: `(row numbers, entries)` in order."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, entries in enumerate(rows):
        groups.setdefault(tuple(entries), []).append(row)
    return [(numbers, list(entries)) for entries, numbers in groups.items()]


def row_name(numbers: Sequence[int], total: int, one: str = "query", many: str = "queries") -> str:
    """`query 1`, `queries 0-2`, `every query`."""
    if len(numbers) == total and total > 1:
        return f"every {one}"
    return f"{one if len(numbers) == 1 else many} {ranges(numbers)}"


def mask_sentence(mask: np.ndarray) -> str:
    """Who may attend whom, row by row; equal rows are said once."""
    num_queries, num_keys = mask.shape
    parts = []
    for numbers, allowed in same_rows([np.flatnonzero(row).tolist() for row in mask]):
        what = (
            "no key"
            if not allowed
            else "every key"
            if len(allowed) == num_keys
            else listed("key", allowed)
        )
        parts.append(f"{row_name(numbers, num_queries)} may attend {what}")
    return "; ".join(parts)


def _row_phrase(query: int, row: np.ndarray, is_weight: bool, quantity: str) -> str:
    finite = np.isfinite(row)
    if not finite.any():
        return f"query {query} has no finite {quantity}"
    key = int(np.argmax(np.where(finite, row, -np.inf)))
    if is_weight:
        if not row[finite].any():
            return f"query {query} puts 0 on every key"
        return f"query {query} puts {number(row[key])} on key {key}"
    return f"query {query} has its largest {quantity}, {number(row[key])}, at key {key}"


def values_sentence(values: np.ndarray, blocked: np.ndarray | None, quantity: str) -> str:
    """The largest entry of each query, and which keys are masked."""
    num_queries, num_keys = values.shape
    is_weight = "weight" in quantity
    noun = "Weights" if is_weight else f"{quantity.capitalize()} values"
    size = f"{counted(num_queries, 'query', 'queries')} over {counted(num_keys, 'key', 'keys')}"
    if num_queries <= 8:
        parts = [_row_phrase(i, row, is_weight, quantity) for i, row in enumerate(values)]
    else:
        finite = np.where(np.isfinite(values), values, -np.inf)
        query, key = np.unravel_index(int(np.argmax(finite)), values.shape)
        where = f"at query {query} and key {key}"
        parts = [f"the largest {quantity} is {number(values[query, key])}, {where}"]
    parts += _non_finite(values)
    if blocked is not None and blocked.any():
        for numbers, keys in same_rows([np.flatnonzero(row).tolist() for row in blocked]):
            if keys:
                verb = "is" if len(keys) == 1 else "are"
                parts.append(
                    f"{listed('key', keys)} of {row_name(numbers, num_queries)} {verb} masked"
                )
    return f"{noun} of {size}; " + "; ".join(parts)


def _non_finite(values: np.ndarray) -> list[str]:
    parts = []
    for numbers, keys in same_rows([np.flatnonzero(np.isnan(row)).tolist() for row in values]):
        if keys:
            parts.append(f"{row_name(numbers, len(values))}: nan at {listed('key', keys)}")
    return parts
