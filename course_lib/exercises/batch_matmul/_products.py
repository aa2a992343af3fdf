"""Problems and sentences that both products of two batches of matrices share."""

from course_lib.checks.observe import cost_meter
from course_lib.checks.observe.probe import Array, tensor


def pair(rng, a_shape, b_shape, **options) -> list[Array]:
    return [tensor(rng.normal(0, 1.3, shape), **options) for shape in (a_shape, b_shape)]


BY_HAND = [[[1.0, 2.0]], [[3.0, 4.0]]], [[[10.0], [1.0]], [[1.0], [10.0]]]

WORKED = "Each item's two matrices must be multiplied: row times column."
FEW = "Items of a few rows must work."
ONE_OF_EACH = "One row and one column must keep their axes."
DTYPE = "The result must have the dtype of `a` and `b`."

OUT_OF_TORCH = dict.fromkeys(
    cost_meter.OUT_OF_TORCH | cost_meter.SINGLE_NUMBERS,
    "Stay in torch, because no gradient flows back through numbers that leave it.",
)
