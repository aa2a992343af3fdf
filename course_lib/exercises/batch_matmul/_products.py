"""Products of two batches of matrices: problems, what must hold, and what often goes wrong."""

from collections.abc import Callable

import torch

from course_lib.checks.observe.probe import tensor
from course_lib.exercises._rows import Case, Given, case, mistake


def pair(rng, a_shape, b_shape, **options) -> Given:
    return {
        "a": tensor(rng.normal(0, 1.3, a_shape), **options),
        "b": tensor(rng.normal(0, 1.3, b_shape), **options),
    }


def gradients(name, rng, given: Given, *output_shape) -> Case:
    """A probe of the gradients of an output of that shape."""
    return case(name, **given, grad_outputs=rng.normal(size=output_shape))


# What holds for each of the lesson's products.
WORKED = "Each item's two matrices must be multiplied: row times column."
FEW, MANY = "Two items of a few rows must work.", "More items, rows and columns must work."
FIVE_AXES = "Three leading axes must work."
SQUARE = "Equal sizes everywhere must not hide which axis is which."
ONE_OF_EACH = "One row and one column must keep their axes."
DTYPE = "The result has the dtype of `a` and `b`."

# What goes wrong with more than one of them: the fact, and one question.
ONLY_THREE_AXES = (
    "Your code works for three axes and fails for any other number of axes.",
    "Which step assumes three: the letters of an einsum, `torch.bmm`, or axes counted from the "
    "left?",
)
NOT_TURNED = (
    "What does `torch.arange(6).reshape(2, 3)` become with `.reshape(3, 2)`, and what with `.mT`?"
)

BY_HAND: Given = {
    "a": tensor([[[1.0, 2.0]], [[3.0, 4.0]]]),
    "b": tensor([[[10.0], [1.0]], [[1.0], [10.0]]]),
}


def spoilt(change) -> Callable:
    """The right product, and what `change` makes of it."""
    return lambda a, b: change(torch.einsum("...nk,...km->...nm", a, b))


def first_for_all(x) -> torch.Tensor:
    """Item 0 in the place of every item."""
    if x.dim() < 3:
        return x
    return x[:1].expand_as(x)


B0_FOR_ALL = mistake("b0_for_all", lambda a, b: a @ first_for_all(b)).says(
    "Every item is multiplied by the same matrix of `b`.",
    "Which index of `b` should move along with the loop over items?",
)


def reshaped(x) -> torch.Tensor:
    """The last two sizes exchanged by a reshape: same numbers in the same order, rows torn up."""
    return x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2])
