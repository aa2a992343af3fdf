"""What the weights of any attention obey, said with the student's own numbers.

The weights are those that an answer returns, alone or beside its outputs, or that a module keeps
as `attention_weights`. Arguments are `scores`, or `queries`, `keys` and `values`, or `x` for causal
self-attention; `valid_lens` and `mask` as far as there are any.
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.exercise import Property
from course_lib.checks.observe.probe import Array, Probe
from course_lib.checks.observe.record import Recorded
from course_lib.reference.masked_softmax import allowed_keys

KEPT = "attention_weights"


def given(probe: Probe, name: str) -> np.ndarray | None:
    """The numbers of an argument, if there is such an array."""
    value = probe.inputs().get(name)
    return np.asarray(value.data) if isinstance(value, Array) else None


def scores_of(probe: Probe) -> np.ndarray | None:
    """The scores, where no learned weights make them."""
    if (scores := given(probe, "scores")) is not None or probe.state:
        return scores
    queries, keys = given(probe, "queries"), given(probe, "keys")
    if queries is None or keys is None:
        return None
    return queries @ np.swapaxes(keys, -1, -2) / math.sqrt(queries.shape[-1])


def _shape(probe: Probe) -> tuple[int, ...]:
    """(..., num_queries, num_keys) without heads; empty where the arguments are others."""
    if (scores := given(probe, "scores")) is not None:
        return scores.shape
    queries, keys = (
        array if (array := given(probe, name)) is not None else given(probe, "x")
        for name in ("queries", "keys")
    )
    return () if queries is None or keys is None else (*queries.shape[:-1], keys.shape[-2])


def seen(probe: Probe, recorded: Recorded | None) -> tuple[np.ndarray, np.ndarray] | None:
    """The weights (..., n, m) with what each query may attend to; None where they do not fit."""
    if recorded is not None and recorded.items:
        recorded = list(recorded.items.values())[1]
    shape = _shape(probe)
    if recorded is None or recorded.data is None or not shape:
        return None
    weights = np.asarray(recorded.data)
    heads = weights.shape[len(shape) - 2 : -2] if weights.ndim == len(shape) + 1 else ()
    shape = (*shape[:-2], *heads, *shape[-2:])
    if weights.dtype.kind != "f" or weights.shape != shape or not np.isfinite(weights).all():
        return None
    mask = given(probe, "mask")
    if mask is not None and heads and mask.ndim == 3:
        mask = mask[:, None]
    if given(probe, "x") is not None:
        mask = np.tril(np.ones(shape[-2:], dtype=bool))
    with np.errstate(all="ignore"):
        try:
            allowed = allowed_keys(shape, given(probe, "valid_lens"), mask)
        except ValueError:
            return None
    return weights.astype(float), allowed


def more_than_rounding(probe: Probe) -> float:
    """Return a difference that rounding alone does not make in the dtype of the probe."""
    return {"float16": 1e-2, "float32": 1e-3}.get(probe.dtype or "float64", 1e-6)


def place_of(index: tuple[int, ...]) -> str:
    """The place of a row: (query), (item, query) or (item, head, query)."""
    where = f"query {index[-1]}" + (f" of item {index[0]}" if len(index) > 1 else "")
    return where + (f" (head {index[1]})" if len(index) == 3 else "")


def first_of(found: np.ndarray) -> tuple[int, ...] | None:
    return tuple(int(i) for i in np.argwhere(found)[0]) if found.any() else None


def of_weights(violated) -> Callable:
    """A property of `violated(probe, weights, allowed)`, where the weights can be seen."""

    @functools.wraps(violated)
    def on_recorded(probe: Probe, recorded: Recorded | None) -> str | None:
        both = seen(probe, recorded)
        return None if both is None else violated(probe, *both)

    return on_recorded


@of_weights
def rows_that_do_not_sum_to_one(probe, weights, allowed) -> str | None:
    """Where a key is allowed, the weights of a query sum to 1."""
    sums, much = weights.sum(-1), more_than_rounding(probe)
    place = first_of((np.abs(sums - 1) > much) & (np.abs(sums) > much) & allowed.any(-1))
    if place is None:
        return None
    digits = 3 if abs(sums[place] - 1) > 1e-3 else 9
    return f"The weights of {place_of(place)} sum to {sums[place]:.{digits}f} instead of 1."


@of_weights
def axes_that_sum_to_one(probe, weights, allowed) -> set[str] | None:
    """Over which other axes of (batch, num_queries, num_keys) the weights sum to 1, or to 0."""
    if weights.ndim != 3:
        return None
    axes = {"queries": 1, "items of the batch": 0}
    return {
        f"Over the {name} they do sum to 1: your softmax runs over these."
        for name, axis in axes.items()
        if np.isclose(weights.sum(axis), np.round(weights.sum(axis)).clip(0, 1)).all()
    }


@of_weights
def all_weight_on_dropped_keys(probe, weights, allowed) -> str | None:
    """In each row with both kinds of keys the wrong kind gets all the weight, at usual scores."""
    scores = scores_of(probe)
    both = allowed.any(-1) & ~allowed.all(-1)
    if scores is None or both.sum() < 2 or np.abs(scores).max() > 50:
        return None
    stray = np.where(allowed, 0.0, weights).sum(-1)[both]
    kept = np.where(allowed, weights, 0.0).sum(-1)[both]
    if not ((stray > 0.999) & (kept < 0.001)).all():
        return None
    return "In each row the keys that may not be attended to get all of the weight."


@of_weights
def weight_on_a_dropped_key(probe, weights, allowed) -> str | None:
    """A key that is not allowed has weight 0."""
    stray = (
        (np.abs(weights) > more_than_rounding(probe)) & ~allowed & allowed.any(-1, keepdims=True)
    )
    if (place := first_of(stray)) is None:
        return None
    return (
        f"The weight that {place_of(place[:-1])} gives to key {place[-1]} is "
        f"{weights[place]:.3f}, but this key may not be attended to there."
    )


@of_weights
def weight_in_an_empty_row(probe, weights, allowed) -> str | None:
    """Where no key is allowed, all weights are 0."""
    found = (np.abs(weights) > more_than_rounding(probe)).any(-1) & ~allowed.any(-1)
    if (place := first_of(found)) is None:
        return None
    shown = ", ".join(f"{weight:.3f}" for weight in weights[place][:5])
    return f"No key may be attended to by {place_of(place)}, yet its weights are {shown}."


@of_weights
def no_weight_on_an_allowed_key(probe, weights, allowed) -> str | None:
    """A key that should have visible weight has some, and no row is lost as a whole."""
    empty, scores = np.abs(weights) < 1e-6, scores_of(probe)
    if probe.training:
        return None  # dropout may be what takes it
    if scores is None or scores.shape != weights.shape:
        if (place := first_of(empty.all(-1) & allowed.any(-1))) is None:
            return None
        return f"All weights of {place_of(place)} are 0, but it may attend to some key."
    best = np.where(allowed, scores, -np.inf).max(-1, keepdims=True)
    place = first_of(allowed & (scores > np.maximum(best - 6, -100)) & empty)
    if place is None:
        return None
    return (
        f"The weight that {place_of(place[:-1])} gives to key {place[-1]} is 0, but this key may "
        "be attended to."
    )


_OF_WEIGHTS = {
    "rows_do_not_sum_to_one": (
        rows_that_do_not_sum_to_one,
        "Over which axis does your softmax run, and what changes the weights after it?",
        axes_that_sum_to_one,
    ),
    "dropped_keys_have_all_weight": (
        all_weight_on_dropped_keys,
        "True means 'may attend'. Which keys does your code fill?",
    ),
    "dropped_key_has_weight": (
        weight_on_a_dropped_key,
        "Did you mask before the softmax, and with what value?",
    ),
    "empty_row_has_weight": (
        weight_in_an_empty_row,
        "What does the softmax make of a row in which all scores are the same number?",
    ),
    "allowed_key_has_no_weight": (
        no_weight_on_an_allowed_key,
        "Which step takes its weight away: a mask, or a maximum over scores that do not count?",
    ),
}


def _of_weights(of: str) -> tuple[Property, ...]:
    """The properties of weights that are returned ("") or kept as an attribute."""
    return tuple(
        Property(name, violated, hint, of, *formulas)
        for name, (violated, hint, *formulas) in _OF_WEIGHTS.items()
    )


RETURNED, WEIGHTS = _of_weights(""), _of_weights(KEPT)
