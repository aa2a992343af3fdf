"""`grouped_query_attention`: heads of a group share keys and values."""

import functools
from collections.abc import Callable

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned, Rules
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._attention.mistakes import shared
from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.padding import FAR, far_above
from course_lib.exercises.kit import (
    READY_MADE_ATTENTION,
    Problems,
    call,
    edge,
    in_eighths,
    like,
    mistake,
)


def drawn(rng, batch, h, g, n, m, d, v, **options) -> list[Array]:
    """Draw queries, keys and values."""
    shapes = ((batch, h, n, d), (batch, g, m, d), (batch, g, m, v))
    return [tensor(rng.normal(0, 1.2, shape), **options) for shape in shapes]


def masks(rng, *shape) -> np.ndarray:
    """Draw a mask that is about two thirds True, and always True for the last key."""
    mask = rng.random(shape) < 0.65
    mask[..., -1] = True
    return mask


def problems(rng) -> Problems:
    draw = functools.partial(drawn, rng)
    equal = draw(2, 4, 1, 3, 5, 6, 7)
    equal[0].data[:] = 0
    yield "Head i must use the keys and values of group i // (h / g)."
    yield call(np.zeros((1, 4, 1, 1)), np.ones((1, 2, 1, 1)), [[[[10.0]], [[20.0]]]])
    yield call(*draw(2, 6, 2, 3, 5, 4, 7))
    yield "With as many groups as heads, each head must have its own keys and values."
    yield call(*draw(2, 3, 3, 4, 5, 6, 2))
    yield "With one group, all heads must share its keys and values."
    yield call(*draw(2, 4, 1, 3, 5, 6, 7))
    yield "Queries of 0 must get the mean of the values within the length."
    yield call(*equal, [4, 2])
    yield "Keys beyond the length must get weight 0, as if they were deleted."
    yield call(*draw(3, 4, 2, 5, 6, 2, 7), [5, 1, 3])
    yield "Lengths of shape (batch, num_queries) must apply to every head."
    yield call(*draw(2, 6, 3, 4, 5, 2, 1), [[5, 1, 3, 2], [2, 4, 4, 1]])
    yield "A mask (batch, h, n, m) belongs to the heads, not to their groups."
    given = draw(2, 6, 2, 3, 5, 4, 1)
    yield call(*given, mask=masks(rng, 2, 6, 3, 5))
    yield "With lengths and a mask, a key must be allowed by both."
    given = draw(2, 6, 3, 5, 4, 2, 7)
    yield call(*given, [3, 2], mask=masks(rng, 5, 4) | (np.arange(4) == 0))
    yield from edges(rng)
    draw = functools.partial(drawn, rng, requires_grad=True)
    yield "The gradients must match the formula, summed over the heads of a group."
    yield call(*draw(2, 4, 2, 1, 3, 2, 1), grad_outputs=rng.normal(0, 1, (2, 4, 1, 1)))
    yield "A query with no allowed key must get gradient 0 and not turn the others into NaN."
    given, mask = draw(1, 2, 1, 2, 3, 1, 2), [[True, False, True], [False, False, False]]
    yield call(*given, mask=mask, grad_outputs=rng.normal(0, 1, (1, 2, 2, 2)))


def edges(rng) -> Problems:
    draw = functools.partial(drawn, rng)
    some = masks(rng, 3, 5)
    some[1], some[2] = False, [False] * 4 + [True]  # the last query of item 0 is empty by both
    garbage, large = draw(2, 4, 2, 3, 5, 6, 1), draw(1, 4, 2, 2, 3, 4, 1)
    large[0].data[:] = 900 * in_eighths(large[0].data)
    large[1].data[:] = in_eighths(large[1].data)
    for array in garbage[1:]:
        array.data[:, :, 2:] = [[-1e30], [1e4], [-1e30]]
    yield "A query with no allowed key must get zeros."
    yield edge(*draw(2, 4, 2, 3, 5, 6, 1), [4, 5], mask=some)
    yield "An item of length 0 must get zeros."
    yield edge(*draw(2, 4, 2, 3, 5, 6, 1), [0, 4])
    yield "A mask (batch, 1, 1, m) must apply to every head and query of an item."
    given = draw(2, 6, 3, 4, 5, 1, 7)
    yield edge(*given, mask=masks(rng, 2, 1, 1, 5))
    yield "Masked keys and values must have no effect if they are finite."
    yield edge(*garbage, [3, 2], mask=[[True, True, False, True, True]] * 3)
    yield from far_above(rng, lambda data: tensor([data]), mask=FAR)
    yield "Lengths (batch,) belong to items, even if there are as many queries."
    yield edge(*draw(3, 4, 2, 3, 5, 6, 1), [1, 5, 3])
    yield "Large scores must not overflow."
    yield edge(*large)
    yield "Float32 inputs must give float32 outputs."
    yield edge(*draw(2, 4, 2, 3, 5, 6, 7), [4, 2], dtype="float32")
    yield "Each call must be independent."
    yield edge(*draw(2, 4, 2, 3, 5, 6, 7), [3, 4], scenario="between_calls")
    yield "If the groups do not divide the heads evenly, the call must raise a ValueError."
    yield edge(*draw(1, 3, 2, 1, 1, 1, 1), raises="ValueError")
    yield edge(*draw(1, 1, 2, 1, 1, 1, 1), raises="ValueError")


class Grouped(Attention):
    """Attention after the steps check and share."""

    @classmethod
    def answer(cls) -> Callable:
        return cls().grouped

    def grouped(self, queries, keys, values, valid_lens=None, mask=None) -> tuple:
        h = queries.shape[1]
        self.check(h, keys.shape[1])
        shared = self.share(h, keys), self.share(h, values)
        return self.attend((queries, *shared), valid_lens, mask)

    def check(self, h, g) -> None:
        if h % g:
            raise ValueError("no whole number of heads for each group")

    def share(self, h, x) -> Tensor:
        return x.repeat_interleave(h // x.shape[1], dim=1)


@mistake
class GroupsTiled(Grouped):
    """Head i must use the keys and the values of group i // (h / g), so that neighboring heads
    share a group. In your code some heads use another group, such as i % g.

    For 4 heads and 2 groups, which group does head 1 use in your code?
    """

    def share(self, h, x) -> Tensor:
        return x.repeat(1, h // x.shape[1], 1, 1)


@like(GroupsTiled)
class FirstGroupOnly(Grouped):
    def share(self, h, x) -> Tensor:
        return x[:, :1].expand(-1, h, -1, -1)


@like(GroupsTiled)
class GroupsReversed(Grouped):
    def share(self, h, x) -> Tensor:
        return super().share(h, x).flip(1)


@like(GroupsTiled)
class ValuesTiled(Grouped):
    def average(self, weights, v) -> Tensor:
        h, g = v.shape[1], self.num_groups
        return weights @ v[:, :: h // g].repeat(1, h // g, 1, 1)

    def check(self, h, g) -> None:
        self.num_groups = g
        super().check(h, g)


@mistake
class PositionsRepeated(Grouped):
    """You repeat each position of the keys and values where you should repeat each group, so a head
    gets keys of other positions.

    Which axis of your keys holds the groups at the time when you repeat?
    """

    def share(self, h, x) -> Tensor:
        return x.repeat_interleave(h // x.shape[1], 2).reshape(len(x), h, *x.shape[2:])


@mistake
class NotShared(Grouped):
    """The keys and values have g heads and the queries h, and you multiply them as they are. That
    works only if g is 1 or h.

    How many times must each group be used?
    """

    def share(self, h, x) -> Tensor:
        return x


EXERCISE = Exercise(
    points=3,
    minutes=12,
    difficulty=2,
    returns=(
        Returned("outputs", "tensor", "float", ("batch", "num_heads", "num_queries", "v")),
        Returned(
            "attention_weights",
            "tensor",
            "float",
            ("batch", "num_heads", "num_queries", "num_keys"),
        ),
    ),
    probes=problems,
    mistakes=shared(Grouped),
    hints=(
        "Write down which group each head uses for h = 6 and g = 2. Then either expand the keys "
        "and values to h heads or fold the queries into g groups. The rest is ordinary "
        "attention.",
        "`x.repeat_interleave(times, dim=1)` gives every head its own copy of its group's keys. "
        "Without copies: unflatten the axis of the heads into (groups, heads of a group), and "
        "give keys and values an axis of size 1 there. Before that, raise if the division leaves "
        "a remainder.",
        "heads_of_a_group = ...\n"
        "keys = keys.repeat_interleave(heads_of_a_group, dim=...)\n"
        "values = ...\n"
        "outputs, weights = scaled_dot_product_attention(queries, ...)",
    ),
    rules=Rules(
        forbidden=dict.fromkeys(
            READY_MADE_ATTENTION,
            "Here you write what `enable_gqa=True` does in PyTorch's function. Use the course's "
            "own `scaled_dot_product_attention`, or `masked_softmax`.",
        )
    ),
)
