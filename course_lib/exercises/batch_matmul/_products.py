"""Problems, properties and common mistakes of products of two batches of matrices."""

import torch

from course_lib.checks.observe import cost_meter
from course_lib.checks.observe.probe import tensor
from course_lib.exercises._builders import Given, mistake


def pair(rng, a_shape, b_shape, **options) -> Given:
    return {
        "a": tensor(rng.normal(0, 1.3, a_shape), **options),
        "b": tensor(rng.normal(0, 1.3, b_shape), **options),
    }


BY_HAND: Given = {
    "a": tensor([[[1.0, 2.0]], [[3.0, 4.0]]]),
    "b": tensor([[[10.0], [1.0]], [[1.0], [10.0]]]),
}

# Properties of all of the lesson's products.
WORKED = "Each item's two matrices must be multiplied: row times column."
FEW = "Two items of a few rows must work."
ONE_OF_EACH = "One row and one column must keep their axes."
DTYPE = "The result must have the dtype of `a` and `b`."

OUT_OF_TORCH = dict.fromkeys(
    cost_meter.OUT_OF_TORCH | cost_meter.SINGLE_NUMBERS,
    "Stay in torch, because no gradient flows back through numbers that leave it.",
)

# The fact and one question for mistakes in several of them.
ONLY_THREE_AXES = (
    "Your code works for three axes, but not for every number of axes.",
    "Which step assumes three axes, such as the letters of an einsum, `torch.bmm`, or axes counted "
    "from the left?",
)
NOT_TURNED = "What does `torch.arange(6).reshape(2, 3)` become with `.reshape(3, 2)`, row by row?"


def _with_the_first_of_b(a, b) -> torch.Tensor:
    return a @ (b[:1].expand_as(b) if b.dim() > 2 else b)


B0_FOR_ALL = mistake("b0_for_all", _with_the_first_of_b).says(
    "Every item of `a` is multiplied by the first item of `b`.",
    "Item i of `a` belongs to item i of `b`. Where does your code choose the item of `b`?",
)


def reshaped(x) -> torch.Tensor:
    """Exchange the last two sizes by a reshape, which does not reorder the numbers."""
    return x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2])
