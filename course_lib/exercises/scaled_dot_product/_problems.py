"""Problems for the attentions of lesson 05, and properties of every correct answer."""

import numpy as np

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._attention.properties import RETURNED, given, more_than_rounding

FORMULA = "The outputs must be softmax(Q K^T / sqrt(d)) V, and the weights that softmax."
MASK = "A key with False in the mask must get weight 0, as if it were deleted."
BOTH = "With lengths and a mask, a key must be allowed by both."
EMPTY = "A query with no allowed key must get zeros in outputs and weights."
PER_QUERY = "Lengths of shape (batch, num_queries) give every query its own length."

SECOND_ROW_EMPTY = np.array([[True, False, True], [False, False, False]])


WORKED = [[[2.0, 0, 0, 0]]], [[[1.0, 0, 0, 0], [0.0, 0, 0, 0]]], [[[10.0], [0.0]]]


def drawn(rng, batch, n, m, d, v, *, make_array=tensor, **options) -> list[Array]:
    """Draw queries, keys and values."""
    shapes = ((*batch, n, d), (*batch, m, d), (*batch, m, v))
    return [make_array(rng.normal(0, 1.2, shape), **options) for shape in shapes]


def random_mask(rng, *shape) -> np.ndarray:
    """Draw a mask with True and False in every row, and different first rows in a matrix."""
    drawn = rng.random(shape) < 0.6
    for row in np.ndindex(shape[:-1]):
        kept, dropped = rng.permutation(shape[-1])[:2]
        drawn[row][kept], drawn[row][dropped] = True, False
    drawn[..., 0, :2], drawn[..., 0, -1], drawn[..., 1, :2] = False, True, True
    drawn[..., 1, -1] = False
    return drawn


def large(rng, make_array=tensor) -> list[Array]:
    """Make scores from about -6000 to 2500, in two rows of different magnitude."""
    first, second = rng.integers(800, 1000, 2).tolist()
    return [
        make_array([[float(first), 0, 0, 0], [0, float(second), 0, 0]]),
        make_array([[5.0, -9.0, 0, 0], [1.0, -4.0, 0, 0], [-2.0, -13.0, 0, 0]]),
        make_array(rng.normal(0, 1.5, (3, 2))),
    ]


def outputs_are_not_weighted_values(probe, seen) -> Problem | None:
    theirs, weights = (item.data for item in seen.outputs.items.values())
    made = (weights @ given(probe, "values")).astype(theirs.dtype)
    much = more_than_rounding(probe)
    # If the product overflows in the dtype of the outputs, it cannot be compared with them.
    is_finite = np.isfinite(weights).all() and np.isfinite(made).all()
    if not is_finite or np.allclose(made, theirs, rtol=much, atol=max(much, 1e-4)):
        return None
    return Problem(
        "outputs_are_not_weighted_values",
        "The outputs that you return are not the weights that you return times the values.",
        "Which weights multiply the values, and do you change the outputs afterwards?",
    )


PROPERTIES = (outputs_are_not_weighted_values, *RETURNED)
