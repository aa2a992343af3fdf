"""`bmm`: products of matrices under any leading axes, without loops."""

import functools

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned, Rules
from course_lib.exercises.batch_matmul import _products as both
from course_lib.exercises.batch_matmul._products import pair
from course_lib.exercises.kit import READY_MADE_ATTENTION, Problems, call, edge, like, mistake


def problems(rng) -> Problems:
    leaves = functools.partial(pair, rng, requires_grad=True)
    one_item, four_axes = leaves((1, 2, 1), (1, 1, 3)), leaves((2, 1, 2, 3), (2, 1, 3, 2))
    yield both.WORKED
    yield call(*both.BY_HAND)
    yield "Non-contiguous tensors must work."
    yield call(*pair(rng, (2, 4, 3, 5), (2, 4, 5, 6), strided=True))
    yield both.FEW
    yield call(*pair(rng, (2, 1, 3), (2, 3, 2)), loops="3 axes")
    yield "Entry (i, j) of an item is row i of `a` times column j of `b` in the same item."
    yield call(*pair(rng, (4, 3, 5), (4, 5, 6)), loops="3 axes")
    yield "Two leading axes must work: the product belongs to the last two axes."
    yield call(*pair(rng, (2, 1, 2, 3), (2, 1, 3, 2)), loops="4 axes")
    yield call(*pair(rng, (3, 4, 5, 2), (3, 4, 2, 6)), loops="4 axes")
    yield "Two plain matrices, without any leading axis, must work."
    yield edge(*pair(rng, (3, 4), (4, 2)))
    yield both.ONE_OF_EACH
    yield edge([[[2.0]], [[3.0]]], [[[5.0]], [[7.0]]])
    yield both.DTYPE
    yield edge(*pair(rng, (2, 3, 4), (2, 4, 5)), dtype="float32")
    yield "A single item of one term must be differentiable too."
    yield call(*one_item, grad_outputs=rng.normal(size=(1, 2, 3)))
    yield "The result must be differentiable, with two leading axes too."
    yield call(*four_axes, grad_outputs=rng.normal(size=(2, 1, 2, 2)))


@mistake
def only_three_axes(a, b) -> Tensor:
    """Your code works for three axes, but not for every number of axes.

    Which step assumes three axes, such as the letters of an einsum, `torch.bmm`, or axes counted
    from the left?
    """
    return torch.einsum("bnk,bkm->bnm", a, b)


@mistake
def entry_by_entry(a, b) -> Tensor:
    """You multiply entry by entry. In a matrix product, each row of `a` meets each column of `b`.

    Over which index does the sum of a matrix product run?
    """
    return a * b


@mistake
def other_axis_summed(a, b) -> Tensor:
    """You have all products a[i, t] * b[t, j], but you do not sum them over t.

    Which axis of the products (..., n, k, m) has to go?
    """
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-1)


@like(other_axis_summed)
def rows_summed(a, b) -> Tensor:
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-3)


@like(other_axis_summed)
def nothing_summed(a, b) -> Tensor:
    return a[..., :, :, None] * b[..., None, :, :]


@mistake
def new_axis_missing(a, b) -> Tensor:
    """You give `a` a new axis, but not `b`. The axes of `b` then line up with the wrong axes of
    `a`, so the sizes may not fit, or items may be mixed.

    Which axes of `a` and `b` meet if their shapes are written below each other, right-aligned?
    """
    return (a[..., None] * b).sum(-2)


@mistake
def reshape_for_transpose(a, b) -> Tensor:
    """You turn `b` from (k, m) to (m, k) with a reshape. The shape is right, but a reshape keeps
    the numbers in order and only breaks them into different rows, so a row can mix several columns.

    What does `torch.arange(6).reshape(2, 3)` become with `.reshape(3, 2)`, row by row?
    """
    turned = b.reshape(*b.shape[:-2], b.shape[-1], b.shape[-2])
    return (a[..., :, None, :] * turned[..., None, :, :]).sum(-1)


_READY_MADE = (  # patterns of names in `cost_meter.Calls`
    *("*mm", "*mv", "*matmul*", "*multi_dot", "tensordot", "inner", "*linear", "*matrix_power"),
    *("conv*", "*rnn*_cell", "lstm_cell", "gru_cell", *READY_MADE_ATTENTION),
)
_WHY_NOT = "Build the product from smaller steps, or write it as one `torch.einsum`."

EXERCISE = Exercise(
    points=3,
    minutes=12,
    difficulty=2,
    starred=True,
    returns=(Returned("product", "tensor", "float", ("...", "n", "m")),),
    probes=problems,
    hints=(
        "First compute all products a[..., i, t] * b[..., t, j] at once: what shape do they have "
        "together? Then one axis has to go.",
        "Give `a` a new last axis and `b` a new axis before its last two: (..., n, k, 1) and "
        "(..., 1, k, m) broadcast to (..., n, k, m). Sum over k. `torch.einsum` does both in one "
        "line, without storing the products.",
        "products = a[..., :, :, None] * b[..., None, :, :]\nreturn products.sum(dim=...)\n"
        "# or: return torch.einsum('...nk,...km->...', a, b)",
    ),
    rules=Rules(
        no_loops=True, forbidden={**dict.fromkeys(_READY_MADE, _WHY_NOT), **both.OUT_OF_TORCH}
    ),
)
