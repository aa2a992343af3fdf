"""Problems about the blocks of lesson 09 and about one part of them: made, and judged.

A fault in one part changes all numbers that follow. So the answer to a problem about one part is
compared with every two known mistakes at once, and with each rare one: it passes if some in other
parts give its numbers, and is told about this part where a mistake in it does.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Problem, arrays_agree, close, tolerance_for
from course_lib.checks.judge.exercise import Property
from course_lib.checks.observe.call import materialise
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._attention.mistakes import Row
from course_lib.exercises._attention.steps import Stepped
from course_lib.exercises._rows import Given

Sizes = tuple[int, int, int]  # embed_dim, num_heads, hidden_dim


def built(rng, attentions, num_norms, sizes: Sizes) -> Given:
    """How a block is built, and weights for it.

    Args:
        attentions: the shapes of the weights of each attention, as multiples of `embed_dim`.
        num_norms: how many norms there are; no two are alike.
    """
    d, num_heads, hidden = sizes

    def weight(rows, columns) -> np.ndarray:
        return rng.normal(0, 1.3 / columns**0.5, (rows, columns))

    state = {
        f"{name}.{layer}.weight": weight(times * d, d)
        for name, layers in attentions.items()
        for layer, times in layers.items()
    }
    for number in range(1, num_norms + 1):
        state[f"norm_{number}.weight"] = rng.uniform(0.6, 1.5, d)
        state[f"norm_{number}.bias"] = rng.normal(0, 0.5, d)
    for place, (rows, columns) in {"0": (hidden, d), "2": (d, hidden)}.items():
        state[f"feed_forward.{place}.weight"] = weight(rows, columns)
        state[f"feed_forward.{place}.bias"] = rng.normal(0, 0.5, rows)
    construct = {"embed_dim": d, "num_heads": num_heads, "hidden_dim": hidden}
    return {"construct": construct, "state": state}


def identities(problem: Given) -> Given:
    """The problem with weights that change nothing: one can do it by hand."""
    for name, value in problem["state"].items():
        is_matrix = value.ndim == 2
        plain = np.ones_like(value) if name.endswith("weight") else np.zeros_like(value)
        problem["state"][name] = (
            np.resize(np.eye(value.shape[1]), value.shape) if is_matrix else (plain)
        )
    return problem


def far_from_the_bend(problem: Given) -> Given:
    """The problem with hidden numbers far from 0, where ReLU has no derivative to compare."""
    bias = problem["state"]["feed_forward.0.bias"]
    bias[:] = np.resize([6.0, -6.0], bias.shape)
    return problem


def up_to_eps(probes: list[Probe]) -> list[Probe]:
    """The probes, all but that about it lenient to another number under the roots."""
    return [
        probe
        if probe.compare == "eps" or probe.tolerance
        else dataclasses.replace(probe, tolerance=1e-3)
        for probe in probes
    ]


def inputs(rng, shape, **options) -> Array:
    return tensor(rng.normal(0, 1.3, shape), **options)


def nearly_equal(rng, shape) -> Array:
    """Features that differ by thousandths, and at one position not at all."""
    x = rng.normal(0, 1.3, (*shape[:2], 1)) + rng.normal(0, 2e-3, shape)
    x[0, 0] = x[0, 0, 0]
    return tensor(x)


def judged_eps(oracle: Callable) -> Callable:
    """Names the number that an answer adds under the root of its norms."""

    def judged(probe, expected, recorded) -> Problem | None:
        if close(probe, expected, recorded) is None:
            return None
        given = [np.array(value.data) for value in probe.inputs().values()]
        for eps in (1e-3, 1e-4, 1e-6, 1e-8, 1e-12):
            outputs = oracle(probe.construct, probe.state, *given, eps=eps).outputs
            if arrays_agree(outputs, recorded.numbers, 1e-7):
                return Problem(
                    "another_eps",
                    f"Your norms add {eps:g} under the root; here it is 1e-5, the default of "
                    "`nn.LayerNorm`. Where features hardly differ, that number decides their size.",
                    "What is `eps` for, and what is yours?",
                )
        return close(probe, expected, recorded)

    return judged


def _normed_outputs(probe: Probe, recorded) -> str | None:
    """Whether the outputs are what one of the norms gives, whatever came before."""
    if recorded is None or recorded.data is None or recorded.data.dtype.kind != "f":
        return None
    for name in (key.removesuffix(".bias") for key in probe.state if key.startswith("norm_")):
        weight, bias = (probe.state.get(f"{name}.{part}") for part in ("weight", "bias"))
        if weight is None or bias is None or len(bias) < 3:  # two normed features are always 1, -1
            continue
        if recorded.data.shape[-1:] != bias.shape:
            continue
        plain = (recorded.data - bias) / weight
        if np.abs(plain.mean(-1)).max() < 1e-3 and np.abs(plain.var(-1) - 1).max() < 0.1:
            return f"Your outputs are what `{name}` gives, so the norm comes last. A sum should."
    return None


OUTPUTS_NORMED = Property(
    "outputs_are_normed", _normed_outputs, "Does each norm come before its part, or after the sum?"
)


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
        steps = {name: step for _, changes in chosen for name, step in changes.items()}
        kind = block.base.changed(steps)
        model = kind.__new__(kind)
        vars(model).update(vars(weights))  # to make layers again would take most of the time
        with torch.no_grad():
            outputs = model(*args).numpy()
        yield tuple(Made(row, frozenset(changes)) for row, changes in chosen), outputs
