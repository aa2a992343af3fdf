"""The weights that an answer returns or keeps, and what each query may attend to there."""

import functools
import math
from collections.abc import Callable

import numpy as np

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


def more_than_rounding(weights: np.ndarray, probe: Probe) -> float:
    """More than rounding makes."""
    return 1e-3 if probe.dtype == "float32" or weights.dtype != np.float64 else 1e-6


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
