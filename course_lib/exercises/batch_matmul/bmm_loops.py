"""`bmm_loops`: products of a batch of matrices, entry by entry."""

import functools

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe
from course_lib.exercises._builders import BETWEEN, FLOAT32, case, edge, mistake
from course_lib.exercises.batch_matmul import _products as both
from course_lib.exercises.batch_matmul._products import pair


def _probes(rng) -> list[Probe]:
    leaves = functools.partial(pair, rng, requires_grad=True)
    one_item, items = leaves((1, 2, 1), (1, 1, 3)), leaves((2, 3, 4), (2, 4, 1))
    return [
        case("worked", **both.BY_HAND).says(both.WORKED),
        case("small", **pair(rng, (2, 1, 3), (2, 3, 2)), loops="sizes").says(both.FEW),
        case("large", **pair(rng, (4, 3, 5), (4, 5, 6)), loops="sizes").says(
            "Entry (i, j) of an item is the sum over t of a[item, i, t] * b[item, t, j]."
        ),
        edge("one_item", **pair(rng, (1, 2, 3), (1, 3, 4))).says(
            "A batch of one item must keep its batch axis."
        ),
        edge("one_of_each", a=[[[2.0]], [[3.0]]], b=[[[5.0]], [[7.0]]]).says(both.ONE_OF_EACH),
        edge("float32", **pair(rng, (2, 3, 4), (2, 4, 5)), **FLOAT32).says(both.DTYPE),
        edge("between_other_calls", **pair(rng, (2, 2, 3), (2, 3, 5)), **BETWEEN).says(
            "Each call must return a new tensor, unchanged by other calls with the same shapes."
        ),
        case("gradient_one_item", **one_item, grad_outputs=rng.normal(size=(1, 2, 3))).says(
            "A single item of one term must be differentiable too."
        ),
        case("gradient", **items, grad_outputs=rng.normal(size=(2, 3, 1))).says(
            "The result must be as differentiable as the formula."
        ),
    ]


def _indices_of_b_swapped(a, b) -> torch.Tensor:
    product = a.new_zeros(*a.shape[:2], b.shape[2])
    for item, i, j, t in np.ndindex(*product.shape, a.shape[2]):
        product[item, i, j] += a[item, i, t] * b[item, j, t]
    return product


_ALL_AT_ONCE = (
    *("*bmm", "*matmul* of * axes", "einsum of * axes", "tensordot of * axes", "*linear of * axes"),
    *("mul of [4-9] axes", "multiply of [4-9] axes", "linalg_vecdot of [4-9] axes"),
)
_WHY_NOT = "You write its loop over the items here."

EXERCISE = Exercise(
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("product", "tensor", "float", ("batch", "n", "m")),),
    probes=_probes,
    needs_loops=True,
    forbidden={**dict.fromkeys(_ALL_AT_ONCE, _WHY_NOT), **both.OUT_OF_TORCH},
    mistakes=(
        both.B0_FOR_ALL,
        mistake("total_kept", lambda a, b: (a @ b).cumsum(-1)).says(
            "Each entry of a row also contains the sums of the entries before it.",
            "Which loop must set the running total to 0?",
        ),
        mistake("only_last_term", lambda a, b: a[..., -1:] * b[..., -1:, :]).says(
            "Each entry holds only the last of its k products.",
            "Does the innermost loop add to the entry (`+=`) or overwrite it (`=`)?",
        ),
        mistake("indices_of_b_swapped", _indices_of_b_swapped).says(
            "The two indices of `b` are swapped, which is the product with b transposed.",
            "Which index of `b[item, ..., ...]` is the one that you sum over: the first or the "
            "second after the item?",
        ),
        mistake(
            "one_product_missing",
            lambda a, b: a[..., :-1] @ b[..., :-1, :],
            twins=(lambda a, b: a[..., 1:] @ b[..., 1:, :],),
        ).says(
            "One of the k products of each entry is missing, the first or the last.",
            "Which numbers does `range(k)` count?",
        ),
    ),
    hints=(
        "Forget the batch at first: how do you get the number in row i and column j of a matrix "
        "product? Then do this for each column, each row and each item.",
        "Make a tensor of zeros (batch, n, m) with the dtype and device of `a`, then write four "
        "loops: items, rows, columns, and the k products to add up. `m` is the last size of `b`.",
        "product = a.new_zeros(batch, n, m)\n"
        "for item in ...:\n    for i in ...:\n        for j in ...:\n            for t in ...:\n"
        "                product[item, i, j] += ...",
    ),
)
