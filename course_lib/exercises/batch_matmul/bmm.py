"""`bmm`: products of matrices under any leading axes, without loops."""

import functools
from collections.abc import Callable

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._builders import FLOAT32, READY_MADE_ATTENTION, case, edge, mistake
from course_lib.exercises.batch_matmul import _products as both
from course_lib.exercises.batch_matmul._products import pair


def _probes(rng) -> list[Probe]:
    leaves = functools.partial(pair, rng, requires_grad=True)
    one_item, four_axes = leaves((1, 2, 1), (1, 1, 3)), leaves((2, 1, 2, 3), (2, 1, 3, 2))
    return [
        case("worked", **both.BY_HAND).says(both.WORKED),
        case("strided", **pair(rng, (2, 4, 3, 5), (2, 4, 5, 6), strided=True)).says(
            "Non-contiguous tensors must work."
        ),
        case("three_axes_small", **pair(rng, (2, 1, 3), (2, 3, 2)), loops="3 axes").says(both.FEW),
        case("three_axes_large", **pair(rng, (4, 3, 5), (4, 5, 6)), loops="3 axes").says(
            "Entry (i, j) of an item is row i of `a` times column j of `b` in the same item."
        ),
        case("four_axes_small", **pair(rng, (2, 1, 2, 3), (2, 1, 3, 2)), loops="4 axes").says(
            "Two leading axes of a few items must work."
        ),
        case("four_axes_large", **pair(rng, (3, 4, 5, 2), (3, 4, 2, 6)), loops="4 axes").says(
            "Two leading axes must work: the product belongs to the last two axes."
        ),
        edge("no_leading_axis", **pair(rng, (3, 4), (4, 2))).says(
            "Two plain matrices, without any leading axis, must work."
        ),
        edge("one_of_each", a=[[[2.0]], [[3.0]]], b=[[[5.0]], [[7.0]]]).says(both.ONE_OF_EACH),
        edge("float32", **pair(rng, (2, 3, 4), (2, 4, 5)), **FLOAT32).says(both.DTYPE),
        case("gradient_one_item", **one_item, grad_outputs=rng.normal(size=(1, 2, 3))).says(
            "A single item of one term must be differentiable too."
        ),
        case("gradient", **four_axes, grad_outputs=rng.normal(size=(2, 1, 2, 2))).says(
            "The result must be differentiable, with two leading axes too."
        ),
    ]


_READY_MADE = (  # patterns of names in `cost_meter.Calls`
    *("*mm", "*mv", "*matmul*", "*multi_dot", "tensordot", "inner", "*linear", "*matrix_power"),
    *("conv*", "*rnn*_cell", "lstm_cell", "gru_cell", *READY_MADE_ATTENTION),
)
_WHY_NOT = "Build the product from smaller steps, or write it as one `torch.einsum`."


def _summed(axis) -> Callable:
    """Sum the products, (..., n, k, m), over an axis."""
    return lambda a, b: (a[..., :, :, None] * b[..., None, :, :]).sum(axis)


EXERCISE = Exercise(
    points=3,
    minutes=12,
    difficulty=2,
    returns=(Returned("product", "tensor", "float", ("...", "n", "m")),),
    probes=_probes,
    no_loops=True,
    forbidden={
        **dict.fromkeys(_READY_MADE, _WHY_NOT),
        **both.OUT_OF_TORCH,
    },
    mistakes=(
        mistake("only_three_axes", lambda a, b: torch.einsum("bnk,bkm->bnm", a, b)).says(
            *both.ONLY_THREE_AXES
        ),
        mistake("entry_by_entry", lambda a, b: a * b).says(
            "You multiply entry by entry. In a matrix product, each row of `a` meets each column "
            "of `b`.",
            "Over which index does the sum of a matrix product run?",
        ),
        mistake(
            "other_axis_summed",
            _summed(-1),
            twins=(_summed(-3), lambda a, b: a[..., :, :, None] * b[..., None, :, :]),
        ).says(
            "You have all products a[i, t] * b[t, j], but you do not sum them over t.",
            "Which axis of the products (..., n, k, m) has to go?",
        ),
    ),
    hints=(
        "First compute all products a[..., i, t] * b[..., t, j] at once: what shape do they have "
        "together? Then one axis has to go.",
        "Give `a` a new last axis and `b` a new axis before its last two: (..., n, k, 1) and "
        "(..., 1, k, m) broadcast to (..., n, k, m). Sum over k. `torch.einsum` does both in one "
        "line, without storing the products.",
        "products = a[..., :, :, None] * b[..., None, :, :]\nreturn products.sum(dim=...)\n"
        "# or: return torch.einsum('...nk,...km->...', a, b)",
    ),
)
