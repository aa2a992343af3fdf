"""`attention_pooling`: attention with plain dot products, for any leading axes."""

import functools

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned, Rules
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._attention import mistakes as of_any_attention
from course_lib.exercises._attention.mistakes import unshifted
from course_lib.exercises._attention.properties import RETURNED
from course_lib.exercises.kit import (
    READY_MADE_ATTENTION,
    Problems,
    call,
    edge,
    in_eighths,
    like,
    mistake,
    worded_like,
)
from course_lib.exercises.whole_game.attend import keys_averaged as of_attend


def drawn(rng, lead, n, m, d, v, **options) -> list[Array]:
    """Draw queries, keys and values."""
    shapes = ((*lead, n, d), (*lead, m, d), (*lead, m, v))
    return [tensor(rng.normal(0, 1.2, shape), **options) for shape in shapes]


def problems(rng) -> Problems:
    draw = functools.partial(drawn, rng)
    worked_keys = [[[0.0, 5.0], [np.log(3.0), 2.0]]]
    free = draw((2,), 2, 3, 4, 2, requires_grad=True)
    large = draw((2,), 3, 4, 5, 6)
    large[0].data[:] = 4000 * in_eighths(large[0].data)
    large[1].data[:] = in_eighths(large[1].data)
    yield "The output averages the values with the weights softmax(scores) of the query."
    yield call([[[1.0, 0.0]]], worked_keys, [[[4.0, 0.0, 8.0], [0.0, 4.0, 8.0]]])
    yield (
        "The weights are a softmax of each query's dot products with the keys of its own item, and"
        " the outputs are averages of that item's values."
    )
    yield call(*draw((2,), 3, 5, 4, 6))
    yield "With heads, in shape (batch, heads, n, d), each head must be computed on its own."
    yield call(*draw((2, 3), 4, 5, 7, 6))
    yield "The outputs must be differentiable in queries, keys and values."
    yield call(*free, grad_outputs=rng.normal(size=(2, 2, 2)))
    yield "A single item without a batch axis must work."
    yield edge(*draw((), 3, 4, 2, 5))
    yield "One query, one key and one feature must keep their axes."
    yield edge(*draw((1,), 1, 1, 1, 1))
    yield (
        "The weights must be right even where exp(score) overflows, or is 0 for all keys of a "
        "query."
    )
    yield edge(*large)
    yield "The results must have the dtype of the arguments."
    yield edge(*draw((2,), 3, 4, 2, 5), dtype="float32")
    yield "Each call must be independent of other calls with the same shapes."
    yield edge(*draw((2,), 4, 3, 5, 2), scenario="between_calls")


def average(weights, values) -> tuple[Tensor, Tensor]:
    return weights @ values, weights


@mistake
@worded_like(of_any_attention.OverQueries)
def over_queries(queries, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(queries @ keys.mT, dim=-2), values)


@like(over_queries)
def over_axis_1(queries, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(queries @ keys.mT, dim=min(1, queries.dim() - 1)), values)


@like(over_queries)
def over_the_usual_axis(queries, keys, values) -> tuple[Tensor, Tensor]:
    """Use the axis that `torch.nn.functional.softmax` takes without `dim`."""
    return average(torch.softmax(queries @ keys.mT, 0 if queries.dim() == 3 else 1), values)


@mistake
def no_softmax(queries, keys, values) -> tuple[Tensor, Tensor]:
    """The weights that you return are the scores themselves, without a softmax. Scores need not be
    positive or sum to 1.

    Which step turns a row of scores into positive weights that sum to 1?
    """
    return average(queries @ keys.mT, values)


@like(no_softmax)
def scores_returned(queries, keys, values) -> tuple[Tensor, Tensor]:
    scores = queries @ keys.mT
    return torch.softmax(scores, -1) @ values, scores


@mistake
def divided_by_their_sum(queries, keys, values) -> tuple[Tensor, Tensor]:
    """You divide the scores, or their absolute values, by a sum, without exponentials.

    Which function makes a score positive before the division?
    """
    scores = queries @ keys.mT
    return average(scores / scores.sum(-1, keepdim=True), values)


@like(divided_by_their_sum)
def divided_by_their_absolute_sum(queries, keys, values) -> tuple[Tensor, Tensor]:
    scores = queries @ keys.mT
    return average(scores / scores.abs().sum(-1, keepdim=True).clamp_min(1e-12), values)


@mistake
def scaled_already(queries, keys, values) -> tuple[Tensor, Tensor]:
    """The scores are divided by sqrt(d). Lesson 05 does that; here the scores are plain dot
    products.

    Which step of your code is not in the formula?
    """
    return average(torch.softmax(queries @ keys.mT / queries.shape[-1] ** 0.5, dim=-1), values)


@mistake
@worded_like(of_any_attention.Unstable)
def unstable(queries, keys, values) -> tuple[Tensor, Tensor]:
    return average(unshifted(queries @ keys.mT), values)


@like(unstable)
def largest_of_all_subtracted(queries, keys, values) -> tuple[Tensor, Tensor]:
    scores = queries @ keys.mT
    return average(unshifted(scores - scores.max()), values)


@mistake
@worded_like(of_attend)
def keys_averaged(queries, keys, values) -> tuple[Tensor, Tensor]:
    return average((queries @ keys.mT).softmax(-1), keys)


EXERCISE = Exercise(
    points=3,
    minutes=10,
    difficulty=2,
    builds_on=("bmm", "batched_scores"),
    returns=(
        Returned("outputs", "tensor", "float", ("...", "num_queries", "d_v")),
        Returned("attention_weights", axes=("...", "num_queries", "num_keys"), differentiable=True),
    ),
    probes=problems,
    properties=RETURNED,
    hints=(
        "Three steps: a score for every query and key, a softmax that turns each row of scores "
        "into weights, and an average of the values with those weights.",
        "You wrote the first step already. The softmax runs over the keys, the last axis of the "
        "scores. The last step is a product of (..., n, m) and (..., m, v), without a transpose.",
        "Try it on one query, two keys and two values with pencil and paper, and print the shape "
        "after each of your three lines.",
    ),
    rules=Rules(
        forbidden=dict.fromkeys(
            READY_MADE_ATTENTION, "You write attention yourself here, and torch has it ready-made."
        )
    ),
)
