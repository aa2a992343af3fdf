"""Problems for attention in blocks, and what holds for every right answer."""

import numpy as np

from course_lib.checks.judge.exercise import Property
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._rows import Given


def problem(rng, n, m, d, v, *batch, scale=1.2, **options) -> Given:
    """Queries, keys and values of these sizes."""
    shapes = {"queries": (n, d), "keys": (m, d), "values": (m, v)}
    return {k: tensor(rng.normal(0, scale, (*batch, *s)), **options) for k, s in shapes.items()}


def some(rng, *shape) -> np.ndarray:
    """A mask that allows about two thirds, and the last key to every query."""
    mask = rng.random(shape) < 0.65
    mask[..., -1] = True
    return mask


def lengths(m, *lens) -> np.ndarray:
    """A mask (batch, 1, m) that allows so many keys of each item."""
    return np.arange(m) < np.array(lens)[:, None, None]


def rising(rng, n, m, d, v) -> Given:
    """Later keys have ever larger scores, with steps of about 1."""
    given = problem(rng, n, m, d, v)
    queries = np.abs(given["queries"].data) + 0.5
    keys = np.abs(given["keys"].data) * 0.2 + np.arange(m)[:, None] * 0.6
    return given | {"queries": tensor(queries), "keys": tensor(keys)}


def by_hand(**options) -> Given:
    """The example that the lesson works out: the scores 1, 0, 2."""
    shapes = {"queries": [[1.0]], "keys": [[1.0], [0.0], [2.0]], "values": [[1.0], [3.0], [5.0]]}
    return {name: tensor(data, **options) for name, data in shapes.items()}


def _outside(probe, outputs) -> str | None:
    """Outputs are averages of the values that may be attended to."""
    found, values = outputs.items[0].data, probe.args["values"].data
    if found.shape[:-2] != values.shape[:-2]:
        return None
    low, high = values.min(-2, keepdims=True), values.max(-2, keepdims=True)
    mask = probe.args["mask"]
    if isinstance(mask, Array) and not mask.data.any(-1).all():
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    slack = 1e-4 * (1 + np.abs(values).max())
    wrong = (found > high + slack) | (found < low - slack) | ~np.isfinite(found)
    if not wrong.any():
        return None
    at = tuple(np.argwhere(wrong)[0])
    return (
        f"An output is {found[at]:.4g}, outside the values it averages; its weights do not sum "
        "to 1."
    )


PROPERTIES = (
    Property("outside_values", _outside, "What factors did the sums and the outputs get?"),
)
