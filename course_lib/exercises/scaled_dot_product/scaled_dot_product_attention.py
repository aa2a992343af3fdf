"""`scaled_dot_product_attention`: with lengths and masks, for any leading axes."""

import functools

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned, Rules
from course_lib.exercises._attention.mistakes import shared
from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.padding import FAR, far_above, largest_padding
from course_lib.exercises.kit import READY_MADE_ATTENTION, Problems, call, edge, like, mistake
from course_lib.exercises.scaled_dot_product._problems import (
    BOTH,
    EMPTY,
    FORMULA,
    MASK,
    PER_QUERY,
    PROPERTIES,
    SECOND_ROW_EMPTY,
    WORKED,
    drawn,
    large,
    random_mask,
)


def problems(rng) -> Problems:
    draw = functools.partial(drawn, rng)
    mask = random_mask(rng, 3, 4)
    yield FORMULA
    yield call(*WORKED)
    yield "Each item of a batch must use its own queries, keys and values."
    yield call(*draw((2,), 3, 4, 5, 6))
    yield "Without a batch axis it must work too: queries (n, d), keys (m, d), values (m, v)."
    yield call(*draw((), 4, 5, 3, 2))
    yield "With heads, in shape (batch, heads, n, d), each head must be computed on its own."
    yield call(*draw((2, 3), 4, 5, 7, 6))
    yield "Lengths of shape (batch,) give every item its own length."
    yield call(*draw((3,), 2, 5, 6, 4), [4, 1, 3])
    yield PER_QUERY
    yield call(*draw((2,), 3, 5, 6, 4), [[1, 4, 2], [3, 2, 4]])
    yield MASK
    yield call(*draw((2,), 3, 4, 5, 6), mask=mask)
    yield BOTH
    yield call(*draw((2,), 3, 4, 7, 6), [2, 3], mask=np.tri(3, 4, 1) > 0)
    yield from edges(rng)
    yield "The gradients of queries, keys and values must match the formula."
    draw = functools.partial(drawn, rng, requires_grad=True)
    empty = draw((), 2, 3, 1, 1)
    yield call(*draw((1,), 2, 3, 2, 2), [2], grad_outputs=rng.normal(size=(1, 2, 2)))
    yield "A query without keys must get gradient 0 and not turn the others into NaN."
    yield call(*empty, mask=SECOND_ROW_EMPTY, grad_outputs=rng.normal(size=(2, 1)))


def edges(rng) -> Problems:
    draw = functools.partial(drawn, rng)
    empty = np.vstack([SECOND_ROW_EMPTY, [False, False, True]])  # the last by both
    _, *others = draw((1,), 3, 3, 4, 5)
    padding = [[[True, True, False, True, False]], [[False] + [True] * 4]]
    per_head = random_mask(rng, 2, 1, 4, 5)
    yield EMPTY
    yield edge(np.zeros((1, 3, 4)), *others, [2], mask=empty)
    yield "An item of length 0 must get zeros."
    yield edge(*draw((2,), 3, 4, 5, 6), [0, 3])
    yield "Lengths (batch,) belong to items, even if there are as many queries."
    yield edge(*draw((3,), 3, 4, 5, 6), [1, 4, 2])
    yield (
        "Scores may be very large, and the weights must still follow them, without overflow or "
        "clipping."
    )
    yield edge(*large(rng))
    yield "A (batch, 1, num_keys) mask holds for every query of an item."
    yield edge(*draw((2,), 3, 5, 6, 4), mask=padding)
    yield "A (batch, 1, n, m) mask holds for every head of its item."
    yield edge(*draw((2, 3), 4, 5, 6, 7), mask=per_head)
    yield "Lengths belong to the items: with (batch, heads, n, d), they hold for every head."
    yield edge(*draw((2, 3), 4, 5, 7, 6), [[3, 5, 2, 4], [4, 1, 5, 3]])
    yield "Lengths belong to the first axis and apply to all axes between it and the queries."
    yield edge(*draw((2, 1, 2), 1, 2, 1, 1), [2, 1])
    yield "Lengths of shape (batch, num_queries) apply to all axes between these two as well."
    yield edge(*draw((2, 1, 1), 2, 2, 1, 1), [[1, 2], [2, 1]])
    yield from largest_padding(rng, with_mask=True)
    yield from far_above(rng, mask=FAR)
    yield "Float32 queries, keys and values must work and give float32."
    yield edge(*draw((2,), 3, 5, 4, 6), [2, 4], dtype="float32")
    yield "Bfloat16 queries, keys and values must work and give bfloat16."
    yield edge(*draw((2,), 3, 4, 5, 2), [4, 3], dtype="bfloat16")
    yield "Each call is independent: other calls with the same shapes must change nothing."
    yield edge(*draw((2,), 3, 4, 5, 2), [3, 1], scenario="between_calls")


@mistake
class OnlyThreeAxes(Attention):
    """You swap axes 1 and 2 of the keys, which are the last two only if there are three axes.

    How do you name the last two axes, however many come before them?
    """

    def product(self, q, k) -> Tensor:
        return q @ k.transpose(1, 2)


@like(OnlyThreeAxes)
class MultipliedByBmm(Attention):
    def product(self, q, k) -> Tensor:
        return torch.bmm(q, k.transpose(1, 2))


RETURNS = (
    Returned("outputs", "tensor", "float", ("...", "num_queries", "v")),
    Returned("attention_weights", "tensor", "float", ("...", "num_queries", "num_keys")),
)

EXERCISE = Exercise(
    points=8,
    minutes=15,
    difficulty=2,
    returns=RETURNS,
    probes=problems,
    mistakes=shared(Attention),
    properties=PROPERTIES,
    hints=(
        "Three steps, all of which you already have: compare every query with every key, turn the "
        "scores of a row into weights, average the values with them. The number of features tells "
        "you how far to scale the scores down.",
        "scores = Q K^T / sqrt(d), shape (..., n, m): `keys.mT` swaps the last two axes only. "
        "Weights from `masked_softmax`, with lengths and mask. Outputs: weights times values.",
        "Take one query, two keys and d = 4: a score is the dot product over 2, and the two "
        "weights sum to 1. If that works with three axes but not with four, look at how you "
        "transpose the keys.",
    ),
    rules=Rules(
        forbidden=dict.fromkeys(
            READY_MADE_ATTENTION,
            "You write it yourself here, and a later section compares the two.",
        )
    ),
)
