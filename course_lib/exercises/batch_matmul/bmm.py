"""Products of matrices under any leading axes, without loops."""

import torch

from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._rows import case, edge, mistake
from course_lib.exercises.batch_matmul import _mistakes as models
from course_lib.exercises.batch_matmul._products import (
    BY_HAND,
    in_float32,
    one_matrix,
    pair,
    with_gradients,
)
from course_lib.reference import batch_matmul as oracle


def _bmm_probes(rng) -> list[Probe]:
    return [
        case("worked", **BY_HAND).says(
            "Each item's matrices must be multiplied with each other: row times column."
        ),
        case("rectangular", **pair(rng, (2, 3, 4), (2, 4, 5))).says(
            "Entry (i, j) of an item is row i of `a` times column j of `b`, of the same item."
        ),
        case("four_axes", **pair(rng, (2, 3, 4, 5), (2, 3, 5, 6))).says(
            "Two leading axes must work: the product belongs to the last two axes."
        ),
        case("strided", **pair(rng, (3, 5, 2), (3, 2, 4), strided=True)).says(
            "Non-contiguous tensors must work."
        ),
        case("three_axes_small", **pair(rng, (2, 1, 3), (2, 3, 2)), loops="three axes").says(
            "Two items of a few rows must work."
        ),
        case("three_axes_large", **pair(rng, (4, 3, 5), (4, 5, 6)), loops="three axes").says(
            "More items, rows and columns must work."
        ),
        case("four_axes_small", **pair(rng, (2, 1, 2, 3), (2, 1, 3, 2)), loops="four axes").says(
            "Two leading axes of a few items must work."
        ),
        case("four_axes_large", **pair(rng, (3, 4, 5, 2), (3, 4, 2, 6)), loops="four axes").says(
            "Two leading axes of more items must work."
        ),
        edge("no_leading_axis", **pair(rng, (3, 4), (4, 2))).says(
            "Two plain matrices, without any leading axis, must work."
        ),
        edge("five_axes", **pair(rng, (2, 1, 3, 2, 4), (2, 1, 3, 4, 5))).says(
            "Three leading axes must work."
        ),
        edge("one_item", **pair(rng, (1, 2, 3), (1, 3, 4))).says(
            "Leading axes of size 1 must stay."
        ),
        edge("one_of_each", a=[[[2.0]], [[3.0]]], b=[[[5.0]], [[7.0]]]).says(
            "One row and one column must keep their axes."
        ),
        edge("square", **pair(rng, (3, 3, 3), (3, 3, 3))).says(
            "Equal sizes everywhere must not hide which axis is which."
        ),
        edge("square_four_axes", **pair(rng, (2, 3, 3, 3), (2, 3, 3, 3))).says(
            "Equal sizes must not hide an exchange of leading axes with the last two."
        ),
        edge("strided_four_axes", **pair(rng, (2, 3, 4, 5), (2, 3, 5, 2), strided=True)).says(
            "Non-contiguous tensors with two leading axes must work."
        ),
        in_float32(
            "float32", "The result has the dtype of `a` and `b`.", pair(rng, (2, 3, 4), (2, 4, 5))
        ),
        with_gradients(
            rng,
            "gradients",
            "The result must be differentiable in both arguments.",
            pair(rng, (2, 3, 4), (2, 4, 1), requires_grad=True),
            (2, 3, 1),
        ),
        with_gradients(
            rng,
            "gradients_one_item",
            "A single item of one term must be differentiable as well.",
            pair(rng, (1, 2, 1), (1, 1, 3), requires_grad=True),
            (1, 2, 3),
        ),
        with_gradients(
            rng,
            "gradients_four_axes",
            "The result must be differentiable with two leading axes as well.",
            pair(rng, (2, 1, 2, 3), (2, 1, 3, 2), requires_grad=True),
            (2, 1, 2, 2),
        ),
    ]


_READY_MADE = (
    *("bmm", "matmul", "__rmatmul__", "__matmul__", "linalg_matmul", "mm", "baddbmm", "addbmm"),
    *("addmm", "linalg_multi_dot", "chain_matmul", "linear", "scaled_dot_product_attention"),
    *("mv", "addmv", "conv1d", "tensordot", "inner", "bilinear"),
    *("_sparse_mm", "smm", "hspmm", "sspaddmm"),
    *("bmm.default", "matmul.default", "mm.default", "baddbmm.default"),
)


_WHY_NOT = "Build the product from smaller steps, or write it as one `torch.einsum`."


EXERCISE = Exercise(
    points=3,
    minutes=15,
    difficulty=2,
    returns=(Returned("product", "tensor", "float", ("...", "n", "m")),),
    probes=_bmm_probes,
    oracle=oracle.bmm,
    no_loops=True,
    forbidden={
        **dict.fromkeys(_READY_MADE, _WHY_NOT),
        "tolist": "Loops over plain numbers are loops too, and no gradient comes back from them.",
    },
    mistakes=(
        one_matrix("b0_for_all", "b", lambda a, b: models.product(a, models.first_for_all(b))),
        mistake(
            "reshape_for_transpose",
            lambda a, b: (a[..., :, None, :] * models.reshaped(b)[..., None, :, :]).sum(dim=-1),
        ).says(
            "You change the shape of `b` from (k, m) to (m, k) with a reshape. A reshape keeps "
            "the order of the numbers and cuts it anew, so its rows are not the columns of `b`.",
            "What does `torch.arange(6).reshape(2, 3)` become with `.reshape(3, 2)`, and what "
            "with `.mT`?",
        ),
        mistake("summed_over_batch", models.summed_over_batch).says(
            "The items are added up: the leading axes are gone from the result.",
            "Which axes does your sum run over, and which letters stand after `->`?",
        ),
        mistake(
            "only_three_axes", lambda a, b: torch.einsum("bnk,bkm->bnm", a, b), fails=True
        ).says(
            "Three axes work, any other number fails.",
            "Which step asks for three: letters of an einsum, `torch.bmm`, or axes counted from "
            "the left?",
        ),
        mistake("transposed_result", lambda a, b: models.product(a, b).mT).says(
            "The entries are right, but rows and columns of the result have changed places.",
            "Which index comes first in the result: the row of `a` or the column of `b`?",
        ),
        mistake("not_summed", models.cube).says(
            "The products are all there, (..., n, k, m), but nothing adds them up.",
            "Over which axis does an entry of the product sum?",
        ),
        mistake("leading_axes_lost", models.leading_axes_lost(models.product)).says(
            "The leading axes come back flattened into one.",
            "Which shape must the result get back, after a reshape to three axes?",
        ),
    ),
    hints=(
        "First make all products a[..., i, t] * b[..., t, j] at once: which shape do they have "
        "together? Then one axis has to go.",
        "Give `a` a new last axis and `b` a new axis before its last two: (..., n, k, 1) and "
        "(..., 1, k, m) broadcast to (..., n, k, m). Sum over k. `torch.einsum` does both in one "
        "line and does not keep the products.",
        "products = a[..., :, :, None] * b[..., None, :, :]\nreturn products.sum(dim=...)\n"
        "# or: return torch.einsum('...nk,...km->...', a, b)",
    ),
    promises={
        "with the same leading axes, of any number": "rectangular four_axes no_leading_axis "
        "five_axes one_item strided strided_four_axes float32",
        "**Returns** `(..., n, m)`": "rectangular square square_four_axes",
        "Gradients reach both arguments": "gradients gradients_one_item gradients_four_axes",
        "a loop of any kind, and without a ready-made": "forbidden loops",
        "`torch.einsum` is allowed": "",
        "what your code": "loops three_axes_small three_axes_large four_axes_small four_axes_large",
        "again give `[[[12]], [[43]]]`": "worked four_axes",
        "Matrix product over the last two axes": "four_axes",
        "Differs from `torch.bmm`": "",
        "matrices (n, k) under leading axes": "no_leading_axis one_of_each",
        "The products, (..., n, m)": "",
        "docs.pytorch.org": "",
    },
)
