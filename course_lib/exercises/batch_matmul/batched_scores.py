"""`batched_scores`: queries times keys, the first product of attention."""

import math

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises.batch_matmul.bmm import only_three_axes as of_bmm
from course_lib.exercises.kit import Problems, call, edge, like, mistake, worded_like
from course_lib.exercises.whole_game.attend import normalized as of_attend


def drawn(rng, queries_shape, num_keys, **options) -> list[Array]:
    """Draw queries and keys."""
    keys_shape = (*queries_shape[:-2], num_keys, queries_shape[-1])
    return [tensor(rng.normal(0, 1.3, shape), **options) for shape in (queries_shape, keys_shape)]


def problems(rng) -> Problems:
    free = drawn(rng, (2, 3, 2, 1), 4, requires_grad=True)
    yield "The score of query i and key j is their dot product, row times row."
    yield call([[[1.0, 2.0, 0.0]]], [[[1.0, 0.0, 5.0], [0.0, 10.0, 5.0]]])
    yield "Query i meets key j of the same item: scores (..., num_queries, num_keys)."
    yield call(*drawn(rng, (2, 3, 4), 5))
    yield "With heads, (batch, heads, n, d), each head has its own scores."
    yield call(*drawn(rng, (2, 3, 4, 5), 6))
    yield "Queries (n, d) and keys (m, d) without a batch must work."
    yield edge(*drawn(rng, (3, 4), 2))
    yield "One query and one key must give one score that keeps its axes."
    yield edge(*drawn(rng, (1, 1, 1), 1))
    yield "The scores must have the dtype of queries and keys."
    yield edge(*drawn(rng, (2, 3, 4), 5), dtype="float32")
    yield "The scores must be differentiable in queries and keys."
    yield call(*free, grad_outputs=rng.normal(size=(2, 3, 2, 4)))


def checked(queries, keys) -> None:
    assert queries.shape[-1] == keys.shape[-1], "a weighted sum is another exercise"


@mistake
def reshape_for_transpose(queries, keys) -> Tensor:
    """You turn the keys from (m, d) to (d, m) with a reshape. The shape is right, but a reshape
    keeps the numbers in order and only breaks them into different rows, so a column can mix several
    keys.

    What does `torch.arange(6).reshape(2, 3)` become with `.reshape(3, 2)`, row by row?
    """
    checked(queries, keys)
    return queries @ keys.reshape(*keys.shape[:-2], keys.shape[-1], keys.shape[-2])


@mistake
def not_transposed(queries, keys) -> Tensor:
    """You multiply queries and keys without a transpose. The sum then runs over the keys instead of
    the features, and the sizes may not match.

    Which sizes meet in the middle of (n, d) times (m, d), and which have to?
    """
    checked(queries, keys)
    return queries @ keys


@mistake
@worded_like(of_bmm)
def only_three_axes(queries, keys) -> Tensor:
    return torch.einsum("bnd,bmd->bnm", queries, keys)


@like(only_three_axes)
def axes_1_and_2_transposed(queries, keys) -> Tensor:
    checked(queries, keys)
    return queries @ keys.transpose(1, 2)


@like(only_three_axes)
def multiplied_by_bmm(queries, keys) -> Tensor:
    return torch.bmm(queries, keys.transpose(1, 2))


@mistake
def keys_of_the_first_item(queries, keys) -> Tensor:
    """All items use the keys of item 0.

    Which axis of the keys counts the items?
    """
    return queries @ keys[:1].mT


@like(keys_of_the_first_item)
def first_item_without_its_axis(queries, keys) -> Tensor:
    return queries @ keys[0].mT


@mistake
def all_axes_reversed(queries, keys) -> Tensor:
    """You reverse the order of all axes of the keys, as `keys.T` does. That is the right transpose
    only if there are two axes.

    How do you exchange only the last two axes?
    """
    checked(queries, keys)
    return queries @ keys.permute(*range(keys.dim())[::-1])


@mistake
def scaled_already(queries, keys) -> Tensor:
    """The scores are divided by sqrt(d). That comes in lesson 05; this exercise asks for the raw
    dot products.

    Which step of your code is not part of a dot product?
    """
    return queries @ keys.mT / math.sqrt(queries.shape[-1])


@mistake
@worded_like(of_attend)
def normalized(queries, keys) -> Tensor:
    queries, keys = (x / x.norm(dim=-1, keepdim=True) for x in (queries, keys))
    return queries @ keys.mT


EXERCISE = Exercise(
    points=3,
    minutes=8,
    difficulty=2,
    returns=(Returned("scores", "tensor", "float", ("...", "num_queries", "num_keys")),),
    probes=problems,
    hints=(
        "One query and one key give one number, the sum of the products of their d entries. A "
        "matrix product multiplies rows with columns; here both are rows.",
        "Swap the last two axes of the keys, (..., m, d) to (..., d, m), so that a matrix product "
        "sums over d. Count axes from the end, and do not reshape.",
        "return queries @ keys.transpose(..., ...)\n"
        "# or: torch.einsum('...nd,...md->...', queries, keys)",
    ),
)
