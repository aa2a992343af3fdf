"""`factored_additive_scores`: additive scores with one exponential for each vector."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def drawn(rng, batch, n, m, h, **options) -> list[Array]:
    """Draw projected queries and keys, and w_v."""
    shapes = ((batch, n, h), (batch, m, h), (h,))
    return [tensor(rng.normal(0, 1.2, shape), **options) for shape in shapes]


def item(points, w_v, **options) -> list[Array]:
    """Return the queries and keys of one item, and w_v."""
    arrays = [points[0]], [points[1]], w_v
    return [tensor(np.array(data, float), **options) for data in arrays]


def frugal(given, times=1) -> dict[str, int]:
    return {"functions": times * (given[0].data.size + given[1].data.size)}


def problems(rng) -> Problems:
    few = drawn(rng, 2, 9, 11, 4)
    free, upstream = drawn(rng, 2, 2, 3, 2, requires_grad=True), rng.normal(0, 1, (2, 2, 3))
    yield "The scores are w_v . tanh(q + k) for each query and key."
    yield call(*item(([[0.5, 0.0]], [[0.0, 0.0]]), [1.0, 2.0]))
    yield "Each item must have its own scores."
    yield call(*drawn(rng, 2, 4, 3, 5))
    yield (
        "One exponential for each number in the queries and keys is enough: (n + m) H for each "
        "item, not n m H."
    )
    yield call(
        *few, at_most=frugal(few, 2)
    )  # an exponential for each pair needs five times as many
    yield "The gradient must match the gradient of the formula."
    yield call(*free, grad_outputs=upstream)
    yield from borders(rng)


def borders(rng) -> Problems:
    one_each = [*drawn(rng, 1, 6, 7, 3)[:2], tensor([1.5, -2.0, 0.5])]  # the sum of w_v is 0
    queries = [[40.0, -40.0, 39.5, 0.2], [-40.0, 40.0, -39.0, -0.3]]
    keys = [[-40.0, 40.0, -39.0, 0.1], [40.0, 40.0, 39.5, 0.4], [-39.7, -40.0, 40.0, 0.0]]
    near = item((queries, keys), [1.5, -0.7, 2.0, 0.4])
    far = [[-46.0, 45.0], [45.5, -46.5], [0.4, -0.3]], [[45.7, -44.6], [-45.2, 46.3], [-0.2, 0.6]]
    very_far = [[-400.0, 0.5], [390.0, 0.1]], [[399.6, -0.2], [-390.5, 1.0], [0.0, 0.4]]
    half = [[8.0, -7.0], [-8.0, 6.5]], [[-8.0, 7.25], [7.75, -6.5], [0.25, 0.0]]
    within = [[39.875, -0.25], [39.75, 39.875], [0.0, 0.5]]
    yield "One exponential for each number in the queries and keys is enough."
    yield edge(*one_each, at_most=frugal(one_each))
    yield "Up to 40 on both sides, the exponentials of the vectors are enough, also in float32."
    yield edge(*near, dtype="float32", at_most=frugal(near))
    yield "The scores must also be right where an exponential leaves the range of float32."
    yield edge(*item(far, [1.0, -2.0]), dtype="float32")
    yield (
        "Scores and gradients must also be right where an exponential leaves the range of float64."
    )
    beyond = item(very_far, [1.0, 2.0], requires_grad=True)
    yield edge(*beyond, grad_outputs=np.ones((1, 2, 3)))
    yield "In float16 the exponentials leave the range of the dtype from exp(11.1) on."
    yield edge(*item(half, [1.0, -1.0]), dtype="float16", tolerance=3e-2)
    yield "A single number of the last query may be out of range."
    queries = [[0.25, -0.5], [0.5, 0.25], [-44.75, 0.5]]
    yield edge(*item((queries, within), [20.0, -30.0]), dtype="float32")
    yield "A single number of the last key may be out of range."
    keys = [[0.25, -0.5], [0.5, 0.25], [0.125, -44.75]]
    yield edge(*item((within, keys), [20.0, -30.0]), dtype="float32")


def limit(dtype) -> float:
    return -0.5 * float(np.log(torch.finfo(dtype).tiny))


def within(bound, *given) -> bool:
    return all(bool((x.abs() <= bound).all()) for x in given)


def factored(queries, keys, w_v, is_fast, factor=2) -> Tensor:
    """Use exponentials of the vectors if `is_fast`, and otherwise a sigmoid for each pair."""
    queries, keys = queries.unsqueeze(2), keys.unsqueeze(1)
    if is_fast:
        sigmoids = 1 / (1 + torch.exp(-factor * queries) * torch.exp(-factor * keys))
    else:
        sigmoids = torch.sigmoid(2 * (queries + keys))
    return 2 * (sigmoids @ w_v) - w_v.sum()


@mistake
def no_guard(projected_queries, projected_keys, w_v) -> Tensor:
    """You use the fast form even where the exponential of a query or a key leaves the range of the
    dtype. One exponential may then be infinite and another 0, and their product is NaN.

    For which q are both exp(2q) and exp(-2q) finite in the inputs' dtype?
    """
    return factored(projected_queries, projected_keys, w_v, is_fast=True)


def of_product(tanh) -> Any:
    """Compute tanh(q + k) from the product of exp(2q) and exp(2k) without guarding overflow."""

    def factored_additive_scores(projected_queries, projected_keys, w_v) -> Tensor:
        queries, keys = (2 * projected_queries).exp(), (2 * projected_keys).exp()
        return tanh(queries.unsqueeze(2) * keys.unsqueeze(1)) @ w_v

    return factored_additive_scores


for tanh in (lambda p: (p - 1) / (p + 1), lambda p: 1 - 2 / (p + 1)):
    like(no_guard)(of_product(tanh))


@mistake
def sum_guarded(projected_queries, projected_keys, w_v) -> Tensor:
    """Your guard lets very negative numbers through: it tests the sums q + k, or has no lower
    limit. At q = -45, exp(-2q) is already too large for float32.

    Which numbers enter the two exponentials, and can each of them be too large?
    """
    sums = projected_queries.unsqueeze(2) + projected_keys.unsqueeze(1)
    is_fast = sums.dtype != torch.float16 and sums.abs().max() <= 80
    return factored(projected_queries, projected_keys, w_v, is_fast)


@mistake
def clamped(projected_queries, projected_keys, w_v) -> Tensor:
    """You limit the queries and keys to a range, such as -20 to 20. If a large query meets a key
    that is about its negative, the limit changes their sum.

    What is q + k for q = 46 and k = -45.5, and what is it after your limit?
    """
    queries, keys = (x.clamp(-20, 20) for x in (projected_queries, projected_keys))
    return factored(queries, keys, w_v, is_fast=True)


@mistake
def factor_2_missing(projected_queries, projected_keys, w_v) -> Tensor:
    """Your exponents lack the factor 2: tanh(x) needs exp(2x) or exp(-2x).

    How is tanh(x) written with exponentials?
    """
    bound = limit(projected_queries.dtype)
    is_fast = within(bound, projected_queries, projected_keys)
    return factored(projected_queries, projected_keys, w_v, is_fast, factor=1)


EXERCISE = Exercise(
    points=3,
    minutes=20,
    difficulty=2,
    starred=True,
    returns=(Returned("scores", "tensor", "float", ("batch", "num_queries", "num_keys")),),
    probes=problems,
    hints=(
        "A tanh is expensive. Write it with a sigmoid, and the sigmoid with an exponential: its "
        "exponent is a sum of a term from the query and a term from the key. So what is the "
        "exponential?",
        "What shapes must the exponentials of queries and keys have so that a single product "
        "covers all pairs? For the guard: when is one of the two exponentials no longer an "
        "ordinary number of the dtype? `torch.finfo(dtype)` knows the smallest and the largest.",
        "Solve a smaller version first: one item, one feature, two queries, three keys. Compute "
        "the table of 6 tanh values from 5 exponentials and compare it with `torch.tanh`. Then "
        "take q = 50 and k = -50 in float32 and print every number along the way. Which test on q "
        "and k alone would have warned you? Add features and `w_v` last.",
    ),
)
