"""`attend`: scaled dot-product attention for one query."""

import math

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned, Rules
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._attention import mistakes as of_any_attention
from course_lib.exercises._attention.mistakes import over_its_sum, unshifted
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


def drawn(rng, m, d, v, **options) -> list[Array]:
    """Draw a query, keys and values."""
    return [tensor(rng.normal(0, 1.2, shape), **options) for shape in ((d,), (m, d), (m, v))]


# The worked example of the statement.
WORKED = (
    [2.0, 0.0, 0.0, 0.0],
    [[0.0, 5.0, 1.0, 0.0], [np.log(3.0), 2.0, 0.0, 7.0]],
    [[4.0, 0.0, 8.0], [0.0, 4.0, 8.0]],
)


def problems(rng) -> Problems:
    free = drawn(rng, 3, 1, 2, requires_grad=True)  # one feature, so that the root is 1
    large, low = drawn(rng, 5, 4, 3), drawn(rng, 5, 4, 3)  # the root of 4 is exact in float32, too
    large[1].data[:] = in_eighths(large[1].data)
    large[0].data[:] = 4000 * large[1].data[rng.integers(5)]
    low[1].data[:] = in_eighths(np.abs(low[1].data) + 0.5)
    low[0].data[:] = -4000
    yield "The output must average the values with the weights softmax(dot product / sqrt(d))."
    yield call(*WORKED)
    yield call(*drawn(rng, 6, 3, 4))
    yield "The divisor must be the root of the number of features of the query."
    yield call(*drawn(rng, 3, 7, 2))
    yield "The output must be differentiable in the query, the keys and the values."
    yield call(*free, grad_outputs=rng.normal(size=2))
    yield "One key with one feature and one value must keep their axes."
    yield edge(*drawn(rng, 1, 1, 1), tolerance=2e-7)  # its weight is 1 up to one rounding
    yield "It must work if there are as many keys as features."
    yield edge(*drawn(rng, 4, 4, 4))
    yield "The weights must be right even where exp(score) overflows."
    yield edge(*large)
    yield "The weights must be right even where exp(score) is 0 for all keys."
    yield edge(*low)
    yield "The results must have the dtype of the arguments."
    yield edge(*drawn(rng, 3, 4, 2), dtype="float32")
    yield "Each call must be independent of other calls with the same shapes."
    yield edge(*drawn(rng, 4, 3, 2), scenario="between_calls")


def average(weights, values) -> tuple[Tensor, Tensor]:
    return weights @ values, weights


@mistake
@worded_like(of_any_attention.Unscaled)
def unscaled(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(keys @ query, 0), values)


@mistake
@worded_like(of_any_attention.DividedByD)
def divided_by_d(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(keys @ query / len(query), 0), values)


@mistake
@worded_like(of_any_attention.RootOfAnotherSize)
def root_of_another_size(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(keys @ query / len(keys) ** 0.5, 0), values)


@like(root_of_another_size)
def root_of_64(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(keys @ query / 8, 0), values)


@like(root_of_another_size)
def whole_root(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(keys @ query / math.isqrt(len(query)), 0), values)


@like(root_of_another_size)
def root_of_value_size(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(keys @ query / values.shape[1] ** 0.5, 0), values)


@mistake
@worded_like(of_any_attention.MultipliedByTheRoot)
def multiplied_by_the_root(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(keys @ query * len(query) ** 0.5, 0), values)


@mistake
@worded_like(of_any_attention.ScaledAfterSoftmax)
def scaled_after_softmax(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(keys @ query, 0) / len(query) ** 0.5, values)


@mistake
def normalized(query, keys, values) -> tuple[Tensor, Tensor]:
    """You divide the products by the length of the query or the key, or by both, as in a cosine.
    The exercise asks for dot products.

    Which step of your code is not part of a dot product?
    """
    scores = torch.cosine_similarity(query[None], keys)
    return average(torch.softmax(scores / len(query) ** 0.5, 0), values)


@like(normalized)
def divided_by_the_query(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(keys @ query / query.norm(), 0), values)


@like(normalized)
def normalized_not_scaled(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(torch.softmax(torch.cosine_similarity(query[None], keys), 0), values)


@mistake
def softmax_twice(query, keys, values) -> tuple[Tensor, Tensor]:
    """You apply the softmax twice, so the average is closer to the plain mean of the values.

    What do the weights sum to after the first softmax?
    """
    weights = torch.softmax(keys @ query / len(query) ** 0.5, 0)
    return average(weights.softmax(0), values)


@like(softmax_twice)
def softmax_twice_for_the_output(query, keys, values) -> tuple[Tensor, Tensor]:
    weights = torch.softmax(keys @ query / len(query) ** 0.5, 0)
    return weights.softmax(0) @ values, weights


@mistake
def no_softmax(query, keys, values) -> tuple[Tensor, Tensor]:
    """You average with the scores themselves. Scores need not be positive or sum to 1.

    Which step turns scores into positive weights that sum to 1?
    """
    return average(keys @ query / len(query) ** 0.5, values)


@like(no_softmax)
def neither_softmax_nor_root(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(keys @ query, values)


@mistake
def scores_over_their_sum(query, keys, values) -> tuple[Tensor, Tensor]:
    """You divide the scores by their sum, without the exponential. Scores of both signs then give
    negative weights.

    What does a softmax do to the scores before it divides by a sum?
    """
    scores = keys @ query
    return average(scores / scores.sum(), values)


@mistake
def keys_averaged(query, keys, values) -> tuple[Tensor, Tensor]:
    """Your output is an average of the keys. The keys only decide the weights, and the output
    averages the values.

    Which of the three arguments holds the information that is passed on?
    """
    return average(torch.softmax(keys @ query / len(query) ** 0.5, dim=0), keys)


@mistake
def not_divided_by_the_sum(query, keys, values) -> tuple[Tensor, Tensor]:
    """Your weights are functions of single scores, such as exponentials or sigmoids, which do not
    sum to 1.

    What does a softmax do after it takes the exponentials?
    """
    return average((keys @ query / len(query) ** 0.5).exp(), values)


@like(not_divided_by_the_sum)
def sigmoids(query, keys, values) -> tuple[Tensor, Tensor]:
    return average((keys @ query / len(query) ** 0.5).sigmoid(), values)


@like(not_divided_by_the_sum)
def not_divided_but_shifted(query, keys, values) -> tuple[Tensor, Tensor]:
    scores = keys @ query / len(query) ** 0.5
    return average((scores - scores.max()).exp(), values)


@mistake
@worded_like(of_any_attention.Unstable)
def unstable(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(unshifted(keys @ query / len(query) ** 0.5), values)


@like(unstable)
def unstable_but_guarded(query, keys, values) -> tuple[Tensor, Tensor]:
    return average(over_its_sum((keys @ query / len(query) ** 0.5).exp()), values)


EXERCISE = Exercise(
    points=3,
    minutes=10,
    difficulty=1,
    returns=(
        Returned("output", "tensor", "float", ("v",)),
        Returned("attention_weights", "tensor", "float", ("num_keys",), differentiable=True),
    ),
    probes=problems,
    properties=RETURNED,
    hints=(
        "Three steps: a score for each key, a softmax that turns the scores into weights, and an "
        "average of the values with these weights. Print the shape after each step.",
        "`keys` has shape (m, d) and `query` has shape (d,). The product of such a matrix and such "
        "a vector, with `@`, contains one dot product for each key. Its shape is (m,). What has to "
        "happen to these numbers before the softmax?",
        "Compute the worked example with pencil and paper first. The scores are 0 and log 3. For "
        "the last step, `values` has shape (m, v), and the result must have shape (v,). Should the "
        "weights stand to the left or to the right of the `@`?",
    ),
    rules=Rules(
        forbidden=dict.fromkeys(
            READY_MADE_ATTENTION, "You write attention yourself here, and torch has it ready-made."
        )
    ),
)
