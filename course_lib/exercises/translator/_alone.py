"""A problem about one part of a block, judged whatever the other parts do.

A fault in one part changes all numbers that follow. So the answer is compared with every two known
mistakes at once, and with each rare one: it passes if some in other parts give its numbers, and is
told about this part where a mistake in it does.
"""

import copy
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Problem, close, tolerance_for
from course_lib.checks.judge.exercise import Property
from course_lib.checks.observe.call import materialise
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._attention.mistakes import Row
from course_lib.exercises._attention.steps import Stepped


class Made(NamedTuple):
    """A mistake, and the steps that it changes."""

    row: Row
    steps: frozenset[str]


class Stepwise(NamedTuple):
    """A right block in steps and the mistakes that may be made in it; rare ones come alone."""

    base: type[Stepped]
    likely: Sequence[Row]
    rare: Sequence[Row]


Combinations = tuple[list[tuple[Made, ...]], np.ndarray]  # and what each of them gives
_kept: dict[bytes, Combinations] = {}
_MOST_KEPT = 8


def alone(block: Stepwise, *steps: str) -> Callable:
    """A comparison that judges these steps of a block.

    Args:
        block: with the mistakes that may be made elsewhere, or here.
        steps: what the problem is about; all if none is named.
    """

    def judged(probe, expected, recorded) -> Problem | None:
        usual = close(probe, expected, recorded)
        if usual is None:
            return None
        found = _found(block, probe, recorded)
        here = [
            [made for made in combination if made.steps & set(steps) or not steps]
            for combination in found
        ]
        if not all(here):
            return None
        for made, *_ in here:
            return Problem(made.row.id, made.row.fact, made.row.question)
        return usual

    return judged


def told_first(block: Stepwise, problems: Collection[str]) -> tuple[Property, ...]:
    """What `alone` finds in these problems, to be said before anything about other problems."""

    def of(row: Row) -> Callable:
        def violated(probe, recorded) -> str | None:
            if probe.compare not in problems or recorded is None or recorded.data is None:
                return None
            found = _found(block, probe, recorded)
            if not found or found[0][0].row is not row:
                return None
            facts = [made.row.fact for made in found[0]]
            return " ".join(["Two mistakes at once."] * (len(facts) > 1) + facts)

        return violated

    return tuple(Property(row.id, of(row), row.question) for row in (*block.likely, *block.rare))


def _found(block, probe, recorded) -> list[tuple[Made, ...]]:
    """The combinations that give the recorded numbers, single mistakes first."""
    combinations, outputs = _combinations(block, probe)
    if recorded.numbers.shape != outputs.shape[1:]:
        return []
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(outputs - recorded.numbers).max(axis=(1, 2, 3), initial=0.0)
    return [combinations[i] for i in np.flatnonzero(off <= tolerance_for(probe, recorded))]


def _combinations(block, probe: Probe) -> Combinations:
    """Every one and every two of the mistakes, with what they give; made once for a problem."""
    arrays = [*probe.state.values(), *(array.data for array in probe.inputs().values())]
    key = block.base.__name__.encode() + b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
    if key not in _kept:
        while len(_kept) >= _MOST_KEPT:
            del _kept[next(iter(_kept))]
        combinations, outputs = zip(*_made(block, probe), strict=True)
        _kept[key] = list(combinations), np.stack(outputs)
    return _kept[key]


def _made(block, probe: Probe) -> Iterator[tuple[tuple[Made, ...], np.ndarray]]:
    """Twins are tried alone."""
    any_change = block.likely[0].changes
    weights: Any = block.base.changed(any_change)(**(probe.construct or {})).double()
    weights.load_state_dict({name: torch.tensor(value) for name, value in probe.state.items()})
    args = [materialise(value) for value in probe.inputs().values()]
    rows = (*block.likely, *block.rare)
    single = [((row, changes),) for row in rows for changes in (row.changes, *row.twins)]
    pairs = (
        ((one, one.changes), (other, other.changes))
        for one, other in itertools.combinations(block.likely, 2)
        if not one.changes.keys() & other.changes.keys()
    )
    for chosen in itertools.chain(single, pairs):
        model = copy.copy(weights)
        steps = {name: step for _, changes in chosen for name, step in changes.items()}
        model.__class__ = block.base.changed(steps)
        with torch.no_grad():
            outputs = model(*args).numpy()
        yield tuple(Made(row, frozenset(changes)) for row, changes in chosen), outputs
