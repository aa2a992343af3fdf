"""Write alt texts that describe a figure from its numbers."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, SupportsFloat

import numpy as np

TIE = 1e-4  # weights that differ by less are described as equal
LEVEL = 0.1  # a curve that changes less, relative to its size, is level
CLIFF = 2.0  # least ratio of a cliff to all other steps together


def as_array(data: Any) -> np.ndarray:
    """Return a NumPy copy of a tensor, array or list, with half precision as float64."""
    if hasattr(data, "detach"):
        data = data.detach().cpu().tolist()
    return np.array(data)


def number(value: SupportsFloat) -> str:
    """Format a number with two decimals if they suffice, otherwise with three digits."""
    value = float(value)
    if not np.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.2f}" if 0.005 <= abs(value) < 1000 else f"{value:.3g}"


def ranges(indices: Iterable[int]) -> str:
    """Format `[0, 1, 2, 5]` as `"0-2, 5"`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def counted(count: int, one: str, many: str) -> str:
    """Format a count, such as `1 query` or `3 queries`."""
    return f"{count} {one if count == 1 else many}"


def ordinal(count: int) -> str:
    """Format a positive integer as an ordinal, such as `1st` or `22nd`."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{count}{'th' if 10 < count % 100 < 14 else ends.get(count % 10, 'th')}"


def and_joined(names: Sequence[str]) -> str:
    """Join names with commas, the last two with `and`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def listed(name: str, indices: Sequence[int]) -> str:
    """Format a list of indices, such as `key 3` or `keys 1-2, 4`."""
    return f"{name}{'' if len(indices) == 1 else 's'} {ranges(indices)}"


def same_rows(rows: Sequence[Sequence[int]]) -> list[tuple[list[int], list[int]]]:
    """Group the row numbers that have the same entries: `(row numbers, entries)` in order."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, entries in enumerate(rows):
        groups.setdefault(tuple(entries), []).append(row)
    return [(numbers, list(entries)) for entries, numbers in groups.items()]


def row_name(numbers: Sequence[int], total: int) -> str:
    """Name rows, such as `query 1`, `queries 0-2` or `every query`."""
    if len(numbers) == total and total > 1:
        return "every query"
    return f"{'query' if len(numbers) == 1 else 'queries'} {ranges(numbers)}"


def mask_sentence(mask: np.ndarray, first: int = 0) -> str:
    """Describe which keys each query from `first` on may attend to. Equal rows share one phrase."""
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
        places = [first + i for i in numbers]
        parts.append(f"{row_name(places, num_queries)} may attend to {what}")
    return "; ".join(parts)


def _row_phrase(query: int, row: np.ndarray, is_weight: bool, quantity: str) -> str:
    finite = np.isfinite(row)
    if not finite.any():
        return f"query {query} has no finite {quantity}"
    if is_weight and not row[finite].any():
        return f"query {query} puts 0 on every key"
    top = float(row[finite].max())
    keys = np.flatnonzero(finite & (np.abs(row - top) <= TIE * max(1.0, abs(top)))).tolist()
    where = listed("key", keys)
    if not is_weight:
        return f"query {query} has its largest {quantity}, {number(top)}, at {where}"
    if len(keys) > 1:
        return f"query {query} weighs {where} alike, {number(top)} each"
    return f"query {query} puts {number(top)} on {where}"


def values_sentence(values: np.ndarray, blocked: np.ndarray, quantity: str) -> str:
    """Return the largest entry of each query, and which keys are masked."""
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
    for numbers, keys in same_rows([np.flatnonzero(np.isnan(row)).tolist() for row in values]):
        if keys:
            parts.append(f"{row_name(numbers, num_queries)}: nan at {listed('key', keys)}")
    for numbers, keys in same_rows([np.flatnonzero(row).tolist() for row in blocked]):
        if keys:
            verb = "is" if len(keys) == 1 else "are"
            parts.append(f"{listed('key', keys)} of {row_name(numbers, num_queries)} {verb} masked")
    return f"{noun} of {size}; " + "; ".join(parts)


def curve_sentence(name: str, across: np.ndarray, values: np.ndarray, *, log: bool = False) -> str:
    """Describe a curve as level, as a cliff, or by its ends and the extremes between them."""
    finite = np.flatnonzero(np.isfinite(values) & ((values > 0) | (not log)))
    if not finite.size:
        return f"{name} has no finite value"
    x, y = across[finite], values[finite]
    height = np.log(y) if log else y
    span = float(np.ptp(height))
    if span <= 1e-6 * max(1.0, float(np.abs(height).max())):
        return f"{name} stays at {number(y[0])}"
    if np.ptp(y) <= LEVEL * float(np.abs(y).max()):
        return f"{name} stays between {number(y.min())} and {number(y.max())}"
    sizes = np.abs(np.diff(height))
    step = int(np.argmax(sizes))
    if len(y) >= 4 and sizes[step] >= CLIFF * (sizes.sum() - sizes[step]):
        verb = "jumps" if y[step + 1] > y[step] else "drops"
        there = f"between {number(x[step])} and {number(x[step + 1])}"
        return f"{name} {verb} from {number(y[step])} to {number(y[step + 1])} {there}"
    places = sorted({0, int(np.argmin(y)), int(np.argmax(y)), len(y) - 1})
    words = [f"{name} starts at {number(y[0])} at {number(x[0])}"]
    for before, here in itertools.pairwise(places):
        verb, turn = ("rises", "peak") if y[here] > y[before] else ("falls", "dip")
        what = f"a {turn} of " if here != places[-1] else ""
        words.append(f"{verb} to {what}{number(y[here])} at {number(x[here])}")
    return ", ".join(words)
