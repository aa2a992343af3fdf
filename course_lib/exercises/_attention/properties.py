"""What the weights of any attention obey, said with the student's own `attention_weights`.

For modules whose probes note the attribute, and whose arguments are `queries`, `keys`, `values`,
`valid_lens` and `mask`, as far as they have them.
"""

import numpy as np

from course_lib.checks.judge.exercise import Property
from course_lib.checks.observe.probe import Array, Probe
from course_lib.checks.observe.record import Recorded
from course_lib.reference.masked_softmax import allowed_keys

_MUCH = 1e-3  # a weight that no rounding makes


def _array(probe: Probe, name: str) -> np.ndarray | None:
    value = probe.inputs().get(name)
    return np.asarray(value.data) if isinstance(value, Array) else None


def _weights_and_allowed(probe: Probe, recorded: Recorded | None):
    """The weights (..., n, m) with what each query may attend to; None where they do not fit."""
    queries, keys = _array(probe, "queries"), _array(probe, "keys")
    if recorded is None or recorded.data is None or queries is None or keys is None:
        return None
    weights = np.asarray(recorded.data)
    sizes = *queries.shape[:-2], queries.shape[-2], keys.shape[-2]
    heads = weights.shape[len(sizes) - 2 : -2] if weights.ndim == len(sizes) + 1 else ()
    if weights.dtype.kind != "f" or weights.shape != (*sizes[:-2], *heads, *sizes[-2:]):
        return None
    mask = _array(probe, "mask")
    if mask is not None and heads and mask.ndim == 3:
        mask = mask[:, None]
    if mask is not None and any(
        mine not in (1, theirs)
        for mine, theirs in zip(mask.shape[::-1], weights.shape[::-1], strict=False)
    ):
        return None
    return weights.astype(float), allowed_keys(weights.shape, _array(probe, "valid_lens"), mask)


def _place(index: np.ndarray) -> str:
    """The place of a row, (item, query) or (item, head, query)."""
    where = f"query {index[-1]} of item {index[0]}"
    return where + (f" (head {index[1]})" if len(index) == 3 else "")


def _first(found: np.ndarray) -> tuple[int, ...] | None:
    return tuple(int(i) for i in np.argwhere(found)[0]) if found.any() else None


def weight_on_a_forbidden_key(probe: Probe, recorded: Recorded | None) -> str | None:
    """A key that is not allowed has weight 0."""
    if (both := _weights_and_allowed(probe, recorded)) is None:
        return None
    weights, allowed = both
    place = _first((np.abs(weights) > _MUCH) & ~allowed & allowed.any(-1, keepdims=True))
    if place is None:
        return None
    return (
        f"In your `attention_weights`, {_place(place[:-1])} gives the weight {weights[place]:.3f} "
        f"to key {place[-1]}, which is not allowed there."
    )


def weight_in_an_empty_row(probe: Probe, recorded: Recorded | None) -> str | None:
    """Where no key is allowed, all weights are 0."""
    if (both := _weights_and_allowed(probe, recorded)) is None:
        return None
    weights, allowed = both
    place = _first((np.abs(weights).sum(-1) > _MUCH) & ~allowed.any(-1))
    if place is None:
        return None
    return (
        f"In your `attention_weights`, {_place(place)} may attend to no key, yet its weights sum "
        f"to {weights[place].sum():.3f} instead of 0."
    )


def rows_that_do_not_sum_to_one(probe: Probe, recorded: Recorded | None) -> str | None:
    """Where a key is allowed, the weights of a query sum to 1."""
    if (both := _weights_and_allowed(probe, recorded)) is None:
        return None
    weights, allowed = both
    sums = weights.sum(-1)
    place = _first((np.abs(sums - 1) > _MUCH) & allowed.any(-1))
    if place is None:
        return None
    sentence = (
        f"In your `attention_weights`, the weights of {_place(place)} sum to {sums[place]:.3f} "
        "instead of 1."
    )
    if weights.shape[-2] > 1 and np.allclose(weights.sum(-2), 1.0, atol=_MUCH):
        sentence += " Those of each key do: your softmax runs over the queries."
    return sentence


def unequal_weights_of_equal_keys(probe: Probe, recorded: Recorded | None) -> str | None:
    """Keys that are the same vector get the same weight, if they are allowed."""
    if (both := _weights_and_allowed(probe, recorded)) is None:
        return None
    weights, allowed = both
    keys = _array(probe, "keys")
    for index in np.ndindex(weights.shape[:-1]):
        seen = np.flatnonzero(allowed[index])
        own = keys[index[: keys.ndim - 2]]
        if len(seen) > 1 and np.ptp(own[seen], axis=0).max() < 1e-9:
            row = weights[index][seen]
            if np.ptp(row) > _MUCH:
                return (
                    f"All keys that {_place(index)} may attend to are equal, yet your "
                    f"`attention_weights` there lie between {row.min():.3f} and {row.max():.3f}."
                )
    return None


def unequal_weights_of_a_zero_query(probe: Probe, recorded: Recorded | None) -> str | None:
    """Where scores are dot products without a bias, a query of zeros prefers no key."""
    both = _weights_and_allowed(probe, recorded)
    if both is None or (probe.construct or {}).get("bias"):
        return None
    weights, allowed = both
    queries = _array(probe, "queries")
    for index in np.ndindex(weights.shape[:-1]):
        row = weights[index][allowed[index]]
        zero = not queries[(*index[: queries.ndim - 2], index[-1])].any()
        if zero and len(row) and np.ptp(row) > _MUCH:
            return (
                f"The {_place(index)} is a vector of zeros: without a bias its scores are all 0 "
                f"and its weights equal. Yours lie between {row.min():.3f} and {row.max():.3f}."
            )
    return None


def outside_the_values(probe: Probe, recorded: Recorded | None) -> str | None:
    """An output lies between the smallest and the largest value, or is 0 where no key is allowed.

    Applies where nothing is projected: layers called `W_v` and `W_o` must be identities.
    """
    values = _array(probe, "values")
    if recorded is None or recorded.data is None or values is None or probe.training:
        return None
    layers = [probe.state[name] for name in ("W_v.weight", "W_o.weight") if name in probe.state]
    if any(not np.array_equal(layer, np.eye(len(layer))) for layer in layers):
        return None
    theirs = np.asarray(recorded.data)
    if theirs.ndim != 3 or theirs.dtype.kind != "f" or (probe.construct or {}).get("bias"):
        return None
    if (len(theirs), theirs.shape[-1]) != (len(values), values.shape[-1]):
        return None
    low = np.minimum(values.min(-2, keepdims=True), 0) - _MUCH
    high = np.maximum(values.max(-2, keepdims=True), 0) + _MUCH
    place = _first((theirs < low) | (theirs > high))
    if place is None:
        return None
    return (
        f"Your output of query {place[1]} of item {place[0]} is {theirs[place]:.3f} in column "
        f"{place[2]}, outside the range of the values there. An average cannot leave it."
    )


_KEPT = "attention_weights"
WEIGHTS = (
    Property(
        "weight_on_a_forbidden_key",
        weight_on_a_forbidden_key,
        "Which score has an exponential of 0?",
        of=_KEPT,
    ),
    Property(
        "weight_in_an_empty_row",
        weight_in_an_empty_row,
        "What does the softmax make of a row in which all scores are the same number?",
        of=_KEPT,
    ),
    Property(
        "rows_do_not_sum_to_one",
        rows_that_do_not_sum_to_one,
        "Over which axis does your softmax run, and what changes the weights after it?",
        of=_KEPT,
    ),
    Property(
        "unequal_weights_of_equal_keys",
        unequal_weights_of_equal_keys,
        "What tells two equal keys apart in your scores?",
        of=_KEPT,
    ),
)
ZERO_QUERY = Property(
    "unequal_weights_of_a_zero_query",
    unequal_weights_of_a_zero_query,
    "What is added to the projections or to their dot products?",
    of=_KEPT,
)
INSIDE_THE_VALUES = Property(
    "outside_the_values", outside_the_values, "Do the weights of each query sum to 1?"
)
