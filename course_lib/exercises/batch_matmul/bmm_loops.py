"""`bmm_loops`: products of a batch of matrices, entry by entry."""

import functools

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned, Rules
from course_lib.exercises.batch_matmul import _products as both
from course_lib.exercises.batch_matmul._products import pair
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def problems(rng) -> Problems:
    leaves = functools.partial(pair, rng, requires_grad=True)
    one_item, items = leaves((1, 2, 1), (1, 1, 3)), leaves((2, 3, 4), (2, 4, 1))
    yield both.WORKED
    yield call(*both.BY_HAND)
    yield both.FEW
    yield call(*pair(rng, (2, 1, 3), (2, 3, 2)), loops="sizes")
    yield "Entry (i, j) of an item is the sum over t of a[item, i, t] * b[item, t, j]."
    yield call(*pair(rng, (4, 3, 5), (4, 5, 6)), loops="sizes")
    yield "A batch of one item must keep its batch axis."
    yield edge(*pair(rng, (1, 2, 3), (1, 3, 4)))
    yield both.ONE_OF_EACH
    yield edge([[[2.0]], [[3.0]]], [[[5.0]], [[7.0]]])
    yield both.DTYPE
    yield edge(*pair(rng, (2, 3, 4), (2, 4, 5)), dtype="float32")
    yield "Each call must return a new tensor, unchanged by other calls with the same shapes."
    yield edge(*pair(rng, (2, 2, 3), (2, 3, 5)), scenario="between_calls")
    yield "A single item of one term must be differentiable too."
    yield call(*one_item, grad_outputs=rng.normal(size=(1, 2, 3)))
    yield "The result must be as differentiable as the formula."
    yield call(*items, grad_outputs=rng.normal(size=(2, 3, 1)))


@mistake
def b0_for_all(a, b) -> Tensor:
    """Every item of `a` is multiplied by the first item of `b`.

    Item i of `a` belongs to item i of `b`. Where does your code choose the item of `b`?
    """
    return a @ (b[:1].expand_as(b) if b.dim() > 2 else b)


@mistake
def total_kept(a, b) -> Tensor:
    """Each entry of a row also contains the sums of the entries before it.

    Which loop must set the running total to 0?
    """
    return (a @ b).cumsum(-1)


@mistake
def only_last_term(a, b) -> Tensor:
    """Each entry holds only the last of its k products.

    Does the innermost loop add to the entry (`+=`) or overwrite it (`=`)?
    """
    return a[..., -1:] * b[..., -1:, :]


@mistake
def indices_of_b_swapped(a, b) -> Tensor:
    """The two indices of `b` are swapped, which is the product with b transposed.

    Which index of `b[item, ..., ...]` is the one that you sum over: the first or the second after
    the item?
    """
    product = a.new_zeros(*a.shape[:2], b.shape[2])
    for item, i, j, t in np.ndindex(*product.shape, a.shape[2]):
        product[item, i, j] += a[item, i, t] * b[item, j, t]
    return product


@mistake
def one_product_missing(a, b) -> Tensor:
    """One of the k products of each entry is missing, the first or the last.

    Which numbers does `range(k)` count?
    """
    return a[..., :-1] @ b[..., :-1, :]


@like(one_product_missing)
def first_product_missing(a, b) -> Tensor:
    return a[..., 1:] @ b[..., 1:, :]


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
    probes=problems,
    hints=(
        "Forget the batch at first: how do you get the number in row i and column j of a matrix "
        "product? Then do this for each column, each row and each item.",
        "Make a tensor of zeros (batch, n, m) with the dtype and device of `a`, then write four "
        "loops: items, rows, columns, and the k products to add up. `m` is the last size of `b`.",
        "product = a.new_zeros(batch, n, m)\n"
        "for item in ...:\n    for i in ...:\n        for j in ...:\n            for t in ...:\n"
        "                product[item, i, j] += ...",
    ),
    rules=Rules(
        needs_loops=True, forbidden={**dict.fromkeys(_ALL_AT_ONCE, _WHY_NOT), **both.OUT_OF_TORCH}
    ),
)
