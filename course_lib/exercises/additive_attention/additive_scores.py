"""`additive_scores`: scores of all pairs of a query and a key by a small network."""

import functools

import torch
from torch import Tensor, nn

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def drawn(rng, b, n, m, d_q, d_k, h, **options) -> list[Array]:
    """Draw queries, keys and the three weights."""
    shapes = ((b, n, d_q), (b, m, d_k), (h, d_q), (h, d_k), (h,))
    return [tensor(rng.normal(0, 1.0, shape), **options) for shape in shapes]


def problems(rng) -> Problems:
    draw = functools.partial(drawn, rng)
    weights = [[1.0, 0.0], [0.0, 1.0]], [[0.0], [1.0]], [1.0, 2.0]
    zeros = draw(1, 1, 1, 2, 3, 4)
    for given in zeros[:2]:
        given.data[:] = 0.0
    leaves = draw(2, 2, 3, 2, 1, 3, requires_grad=True)
    yield "The score of query i and key j is w_v . tanh(w_q q_i + w_k k_j)."
    yield call([[[1.0, 0.0]]], [[[2.0]]], *weights)
    yield "Queries, keys and hidden features may all differ in size."
    yield call(*draw(2, 3, 5, 4, 6, 7))
    yield "Row i of the scores belongs to query i and column j to key j, also where n = m."
    yield edge(*draw(2, 5, 5, 4, 6, 7))
    yield "Queries go through w_q and keys through w_k, even where either would fit."
    yield call(*draw(3, 2, 4, 6, 6, 7))
    yield (
        "The rows of w_q and w_k belong to the hidden features, even if queries and keys have H "
        "features, too."
    )
    yield edge(*draw(2, 3, 4, 5, 5, 5))
    yield "The tanh of a large sum is 1 or -1, and no step may overflow."
    yield edge([[[1000.0, -900.0]]], [[[2.0]]], *weights)
    yield "With one item, query and key, all zeros, the result must have three axes and hold 0."
    yield edge(*zeros)
    yield "A call must not depend on the calls before it."
    yield edge(*draw(2, 3, 4, 5, 2, 6), scenario="between_calls")
    yield "Float32 inputs must give float32 scores."
    yield edge(*draw(2, 3, 4, 5, 2, 6), dtype="float32")
    yield "The gradients of all five inputs must match the formula."
    yield call(*leaves, grad_outputs=rng.normal(size=(2, 2, 3)))


@mistake
def no_tanh(queries, keys, w_q, w_k, w_v) -> Tensor:
    """Your scores lack the tanh. Each is one term from the query plus one term from the key, and a
    softmax over the keys cancels the query's term.

    Which step lets a query change the order of the keys?
    """
    return (queries @ w_q.mT @ w_v)[:, :, None] + (keys @ w_k.mT @ w_v)[:, None]


@mistake
def tanh_of_each(queries, keys, w_q, w_k, w_v) -> Tensor:
    """You take the tanh of queries and keys separately. The score is then one term from the query
    plus one term from the key, and a softmax over the keys cancels the query's term.

    Does the tanh come before or after the sum of query and key?
    """
    q, k = torch.tanh(queries @ w_q.mT), torch.tanh(keys @ w_k.mT)
    return (q @ w_v)[:, :, None] + (k @ w_v)[:, None]


@mistake
def not_paired(queries, keys, w_q, w_k, w_v) -> Tensor:
    """You add the projections without new axes, so queries and keys share one axis. Each query must
    meet every key.

    What is the shape of a sum with one entry for every query, every key and every feature?
    """
    return torch.tanh(queries @ w_q.mT + keys @ w_k.mT) @ w_v


@mistake
def weights_not_transposed(queries, keys, w_q, w_k, w_v) -> Tensor:
    """You multiply by w_q and w_k without a transpose, but their rows belong to hidden features and
    their columns to the features of queries and keys.

    Over which size does each of the two products sum, and which axis of w_q and of w_k has that
    size?
    """
    return torch.tanh((queries @ w_q)[:, :, None] + (keys @ w_k)[:, None]) @ w_v


@like(weights_not_transposed)
def weights_reshaped(queries, keys, w_q, w_k, w_v) -> Tensor:
    projected = [x @ w.reshape(-1, len(w_v)) for x, w in ((queries, w_q), (keys, w_k))]
    return torch.tanh(projected[0][:, :, None] + projected[1][:, None]) @ w_v


@mistake
def tanh_after_w_v(queries, keys, w_q, w_k, w_v) -> Tensor:
    """You multiply by w_v before you take the tanh.

    In w_v . tanh(w_q q_i + w_k k_j), which of the two steps comes first?
    """
    return no_tanh(queries, keys, w_q, w_k, w_v).tanh()


@like(tanh_after_w_v)
def tanh_of_the_weighted(queries, keys, w_q, w_k, w_v) -> Tensor:
    sums = (queries @ w_q.mT)[:, :, None] + (keys @ w_k.mT)[:, None]
    return (sums * w_v).tanh().sum(-1)


@mistake
def multiplied(queries, keys, w_q, w_k, w_v) -> Tensor:
    """You multiply the projections of query and key, or their tanhs, entry by entry, or you
    subtract one from the other, instead of adding the projections.

    What does the formula do with w_q q_i and w_k k_j?
    """
    return torch.tanh((queries @ w_q.mT)[:, :, None] * (keys @ w_k.mT)[:, None]) @ w_v


@like(multiplied)
def multiplied_without_tanh(queries, keys, w_q, w_k, w_v) -> Tensor:
    return ((queries @ w_q.mT)[:, :, None] * (keys @ w_k.mT)[:, None]) @ w_v


@like(multiplied)
def tanh_of_each_multiplied(queries, keys, w_q, w_k, w_v) -> Tensor:
    return (queries @ w_q.mT).tanh() * w_v @ (keys @ w_k.mT).tanh().mT


@like(multiplied)
def subtracted(queries, keys, w_q, w_k, w_v) -> Tensor:
    return torch.tanh((queries @ w_q.mT)[:, :, None] - (keys @ w_k.mT)[:, None]) @ w_v


@like(multiplied)
def subtracted_from_the_key(queries, keys, w_q, w_k, w_v) -> Tensor:
    return -subtracted(queries, keys, w_q, w_k, w_v)


@mistake
def another_activation(queries, keys, w_q, w_k, w_v, activate=torch.sigmoid) -> Tensor:
    """You do not use the tanh, but another function, such as the sigmoid or the ReLU.

    Which function does the formula apply to the sum of query and key?
    """
    return activate((queries @ w_q.mT)[:, :, None] + (keys @ w_k.mT)[:, None]) @ w_v


for activate in (torch.relu, nn.functional.hardtanh, nn.functional.gelu, nn.functional.silu):
    like(another_activation)(functools.partial(another_activation, activate=activate))


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    returns=(Returned("scores", "tensor", "float", ("batch", "num_queries", "num_keys")),),
    probes=problems,
    hints=(
        "Every query meets every key, in H features. First project both to H features; then give "
        "each a new axis of size 1, so that their sum has one entry for each pair.",
        "Project: (B, n, H) and (B, m, H). Make them (B, n, 1, H) and (B, 1, m, H) and add: (B, "
        "n, m, H). Then tanh, then a sum over the last axis, weighted by w_v.",
        "Try it small: one item, two queries, three keys, H = 1. Print the shapes of the "
        "projected queries and keys once each has its new axis, then the shape of their sum. "
        "Which of its entries belongs to query 1 and key 2? Only the last axis is left for "
        "`w_v`.",
    ),
)
