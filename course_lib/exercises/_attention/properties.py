"""Properties of any attention's weights, stated with the student's own numbers.

The weights are returned by an answer, alone or with its outputs, or stored by a module as
`attention_weights`. Arguments are `scores`, or `queries`, `keys` and `values`, or `x` for causal
self-attention; `valid_lens` and `mask` if there are any.
"""

from collections.abc import Callable

import numpy as np

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.probe import Array, Probe
from course_lib.checks.observe.record import Recorded
from course_lib.reference.masked_softmax import allowed_keys

KEPT = "attention_weights"


def given(probe: Probe, name: str) -> np.ndarray | None:
    """Return the numbers of an argument, or None if there is no such array."""
    value = probe.inputs().get(name)
    return np.asarray(value.data) if isinstance(value, Array) else None


def _shape(probe: Probe) -> tuple[int, ...]:
    """Return (..., num_queries, num_keys) without heads, or () for other arguments.

    A single `query` has no axis of queries.
    """
    if (scores := given(probe, "scores")) is not None:
        return scores.shape
    queries, keys = (
        array if (array := given(probe, name)) is not None else given(probe, "x")
        for name in ("queries", "keys")
    )
    if keys is not None and given(probe, "query") is not None:
        return keys.shape[:1]
    return () if queries is None or keys is None else (*queries.shape[:-1], keys.shape[-2])


def seen(probe: Probe, recorded: Recorded | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the weights (..., n, m) and the allowed keys of each query, or None if unreadable."""
    if recorded is not None and recorded.items:
        recorded = dict(enumerate(recorded.items.values())).get(1)
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
    """Return a difference that is too large for rounding in the dtype of the probe."""
    much = {"bfloat16": 5e-2, "float16": 1e-2, "float32": 1e-3}
    return much.get(probe.dtype or "float64", 1e-6)


def place_of(index: tuple[int, ...]) -> str:
    """Describe the position of a row: (), (query), (item, query) or (item, head, query)."""
    where = f"query {index[-1]}" if index else "the query"
    where += f" of item {index[0]}" if len(index) > 1 else ""
    return where + (f" (head {index[1]})" if len(index) == 3 else "")


def first_of(found: np.ndarray) -> tuple[int, ...] | None:
    return tuple(int(i) for i in np.argwhere(found)[0]) if found.any() else None


def dropped_key_has_weight(probe, weights, allowed) -> Problem | None:
    """Describe a key that has weight although it is not allowed."""
    stray = (
        (np.abs(weights) > more_than_rounding(probe)) & ~allowed & allowed.any(-1, keepdims=True)
    )
    if (place := first_of(stray)) is None:
        return None
    return Problem(
        "dropped_key_has_weight",
        f"The weight that {place_of(place[:-1])} gives to key {place[-1]} is "
        f"{weights[place]:.3g}, but this query may not attend to that key.",
        "Is the score of this key -inf before the softmax, and over which axis does the softmax "
        "run?",
    )


def rows_do_not_sum_to_one(probe, weights, allowed) -> Problem | None:
    """Describe a query with an allowed key whose weights do not sum to 1."""
    sums, much = weights.sum(-1), more_than_rounding(probe)
    place = first_of((np.abs(sums - 1) > much) & allowed.any(-1))
    if place is None:
        return None
    digits = 3 if abs(sums[place] - 1) > 1e-3 else 9
    return Problem(
        "rows_do_not_sum_to_one",
        f"The weights of {place_of(place)} sum to {sums[place]:.{digits}f} instead of 1.",
        "Which keys count for this query in your code? What are their exponentials divided by, and "
        "does a later step change the weights?",
    )


def empty_row_has_weight(probe, weights, allowed) -> Problem | None:
    """Describe a query that has weights although no key is allowed."""
    found = (np.abs(weights) > more_than_rounding(probe)).any(-1) & ~allowed.any(-1)
    if (place := first_of(found)) is None:
        return None
    row = weights[place]
    if np.ptp(row) < 1e-6 and abs(row.sum() - 1) < 1e-3:
        share = f"each of its keys gets weight 1/{row.size}"
        shown = share if row.size > 1 else "its only key gets weight 1"
    else:
        shown = "its weights are " + ", ".join(f"{weight:.3g}" for weight in row)
    return Problem(
        "empty_row_has_weight",
        f"No key may be attended to by {place_of(place)}, yet {shown}.",
        "Which scores of this row enter the softmax, and what happens to its weights afterwards?",
    )


def _of_weights(where: Callable[[Observation], Recorded | None]) -> tuple[Callable, ...]:
    """Return the properties of the weights that are found at one place of an observation."""

    def of(describe) -> Callable[[Probe, Observation], Problem | None]:
        def violated(probe, observation) -> Problem | None:
            both = seen(probe, where(observation))
            return None if both is None else describe(probe, *both)

        return violated

    return tuple(map(of, (dropped_key_has_weight, rows_do_not_sum_to_one, empty_row_has_weight)))


RETURNED = _of_weights(lambda observation: observation.outputs)
WEIGHTS = _of_weights(lambda observation: observation.attributes.get(KEPT))
