"""`CausalSelfAttention`: a broken module to fix."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.checks.judge.comparisons import (
    WRONG_VALUES,
    Problem,
    arrays_agree,
    close,
    tolerance_for,
)
from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._attention import mistakes as of_any_attention
from course_lib.exercises._attention.mistakes import MergeWithoutTranspose, half_repaired, shared
from course_lib.exercises._attention.modules import AttentionModule, WithHeads
from course_lib.exercises._attention.padding import at_the_largest
from course_lib.exercises._attention.properties import KEPT, WEIGHTS
from course_lib.exercises._attention.steps import NO_STEP, Softmax
from course_lib.exercises.bug_hunt.fixtures_broken import BrokenCausalSelfAttention
from course_lib.exercises.kit import INDEPENDENT, Problems, call, like, mistake
from course_lib.reference import bug_hunt as oracle

State = dict[str, np.ndarray]


def drawn(rng, b, n, d, **options) -> tuple[Array, State]:
    """Draw inputs and weights."""
    x = tensor(rng.normal(0, 1.2, (b, n, d)), **options)
    qkv, out = rng.normal(0, 0.7, (3 * d, d)), rng.normal(0, 0.7, (d, d))
    return x, {"W_qkv.weight": qkv, "W_o.weight": out}


def module(given: tuple[Array, State], num_heads, *lens, **fields: Any) -> Probe:
    """Return a call of a module with these inputs and weights."""
    x, state = given
    built = {"embed_dim": len(state["W_o.weight"]), "num_heads": num_heads}
    return call(x, *lens, construct=built, state=state, attributes=(KEPT,), **fields)


def problems(rng) -> Problems:
    draw = functools.partial(drawn, rng)
    yield (
        "In each head, position i averages the values of the positions j <= i with the weights "
        "softmax(q k^T / sqrt(head_dim))."
    )
    _, state = draw(1, 3, 2)
    yield module((tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]), state), 1)
    yield "If all positions of the input are equal, all positions of the output must be equal."
    x, _ = given = draw(1, 3, 4)
    x.data[:] = x.data[:, :1]
    yield module(given, 2)
    yield "Each score must be divided by the root of head_dim, the number of features in a head."
    yield module(root_alone(*draw(1, 3, 6)), 2, compare="sum_over_positions")
    yield "Each head must compare its own block of features."
    yield module(draw(3, 5, 6), 2)
    yield "Positions beyond an item's length must not be attended to."
    yield module(draw(3, 4, 6), 2, [2, 4, 1])
    yield from edges(rng)


def root_alone(x, state) -> tuple[Array, State]:
    """Make the result, summed over the positions, depend only on the root."""
    x.data[:, 2] = x.data[:, 0]
    for third in np.split(state["W_qkv.weight"], 3):
        third[3:] = third[:3]
    state["W_o.weight"][:, 3:] = state["W_o.weight"][:, :3]
    return x, state


def sum_over_positions(probe, expected, recorded) -> Problem | None:
    """Judge the sum over the positions."""
    if arrays_agree(expected.sum(1), recorded.numbers.sum(1), tolerance_for(probe, recorded)):
        return None
    return close(probe, expected, recorded) or WRONG_VALUES


def padded_with(size, real=((-1.0, 2.0), (1.0, -1.0)), of_values=1) -> dict[str, Any]:
    """Return a call in which head 0 compares features 0 and 1, with `size` in the padding."""
    projected = np.zeros((6, 2))
    projected[[0, 2, 4], [0, 1, of_values]] = 1.0
    return {
        "args": [tensor([[*real, (1.0, size)]]), [2]],
        "construct": {"embed_dim": 2, "num_heads": 2},
        "state": {"W_qkv.weight": projected, "W_o.weight": np.eye(2)},
        "attributes": (KEPT,),
    }


def edges(rng) -> Problems:
    draw, edge = functools.partial(drawn, rng), functools.partial(module, part="edges")
    back, back_empty = draw(1, 3, 2, requires_grad=True), draw(2, 2, 2, requires_grad=True)
    yield "An item of length 0 must get zeros, here at its only position."
    yield edge(draw(2, 1, 4), 2, [0, 1])
    yield "An item of length 0 must get zeros."
    yield edge(draw(3, 4, 5), 1, [0, 4, 2])
    yield from at_the_largest(padded_with)
    yield (
        "The score of a masked key may be far above those of the allowed keys, which must get the "
        "weights they would have without it."
    )
    given = padded_with(1.0, [(1.0, -3.2e38)] * 2, of_values=0)
    yield call(*given.pop("args"), part="edges", **given)
    yield (
        "`device=` and `dtype=` must set the device and the dtype of the weights. Pass both on to "
        "each layer."
    )
    yield edge(draw(1, 3, 4), 2, [2], scenario="made_with_device_and_dtype")
    yield INDEPENDENT
    yield edge(draw(2, 5, 6), 2, [2, 4], scenario="after_another_call")
    yield edge(draw(1, 3, 2), 1, scenario="after_a_call_with_lengths")
    yield "Float32 inputs and weights must give float32 outputs."
    yield edge(draw(2, 5, 6), 1, [2, 4], dtype="float32")
    yield "Any number of positions must work."
    yield edge(draw(1, 130, 2), 1)
    yield "The gradients of inputs and weights must match the formula."
    yield module(back, 1, [2], grad_outputs=rng.normal(size=(1, 3, 2)))
    yield "An item of length 0 must leave every gradient finite."
    yield module(back_empty, 1, [0, 2], grad_outputs=rng.uniform(-1, 1, (2, 2, 2)))


class Causal(WithHeads, AttentionModule):
    """The correct module, with the additional step past."""

    own = drop = NO_STEP

    def __init__(self, embed_dim, num_heads, *, device=None, dtype=None) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.W_qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False, device=device, dtype=dtype)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False, device=device, dtype=dtype)

    def forward(self, x, valid_lens=None) -> Tensor:
        return self.attend((x, x, x), valid_lens)[0]

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return [self.split(x) for x in self.W_qkv(queries).chunk(3, dim=-1)]

    def past(self, n) -> Tensor:
        return torch.ones(n, n, dtype=torch.bool).tril()

    def join(self, scores, real, own) -> Tensor:
        return Softmax.join(self, scores, real, self.past(scores.shape[-1]))

    def average(self, weights, v) -> Tensor:
        self.keep(weights, weights)
        return weights @ v

    def out(self, averages) -> Tensor:
        return self.W_o(self.merge(averages))


@mistake
class NotFixed(BrokenCausalSelfAttention):
    """This still computes what `BrokenCausalSelfAttention` does, with all its faults.

    Which outputs change when you change the last position?
    """


@mistake
class ScaleEmbedDim(Causal):
    """You divide the scores by the root of embed_dim, but each head compares head_dim features.

    How many products are summed in one score of one head?
    """

    def root(self, q) -> float:
        return (q.shape[-1] * self.num_heads) ** 0.5


@mistake
class SeesTheFuture(Causal):
    """Positions attend to themselves and to later positions instead of earlier ones.

    Rows are queries: which triangle holds the keys j <= i?
    """

    def past(self, n) -> Tensor:
        return torch.ones(n, n).triu().bool()


@mistake
class SeesOnlyTheFuture(Causal):
    """Positions attend only to later positions: your mask is True where it must be False.

    What does True mean in this course's masks?
    """

    def past(self, n) -> Tensor:
        return torch.ones(n, n).triu(1).bool()


@mistake
class EdgeOffByOne(Causal):
    """The edge of your causal mask is off by one: no position attends to itself, or each also
    attends to the next one.

    May position i attend to itself, and may it attend to i + 1?
    """

    def past(self, n) -> Tensor:
        return torch.ones(n, n).tril(-1).bool()


@like(EdgeOffByOne)
class NextPositionSeen(Causal):
    def past(self, n) -> Tensor:
        return torch.ones(n, n).tril(1).bool()


@mistake
class NotCausal(Causal):
    """Your code applies no causal mask: positions also attend to later positions.

    Does any line keep position i from attending to keys j > i?
    """

    def past(self, n) -> Tensor:
        return torch.ones(n, n).bool()


@mistake
class OneMaskOnly(Causal):
    """If there are lengths, you do not use the causal mask, and positions attend to later ones
    within the length.

    With lengths, which of j <= i and j < length does your code require of key j?
    """

    def join(self, scores, real, own) -> Tensor:
        past = None if real is not None else self.past(scores.shape[-1])
        return Softmax.join(self, scores, real, past)


@mistake
class ThirdsInAnotherOrder(Causal):
    """The three thirds of what `W_qkv` returns are queries, keys and values; yours come in another
    order.

    In which order does the statement name the three blocks of `W_qkv`?
    """

    order = 1, 0, 2

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        thirds = self.W_qkv(queries).chunk(3, dim=-1)
        return [self.split(thirds[place]) for place in self.order]


for order in ((0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
    like(ThirdsInAnotherOrder)(type("InOrder", (ThirdsInAnotherOrder,), {"order": order}))


@mistake
class HeadsCutFirst(Causal):
    """With several heads, your queries, keys and values are not the three thirds of `W_qkv(x)`:
    each mixes rows of `W_qkv` from different thirds.

    Which features of `W_qkv(x)` are the queries?
    """

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return self.split(self.W_qkv(queries)).chunk(3, dim=-1)


@like(HeadsCutFirst)
class FeaturesCutFirst(Causal):
    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return self.split(self.W_qkv(queries)).unflatten(-1, (-1, 3)).unbind(-1)


@mistake
class EmptyRowNan(of_any_attention.EmptyRowNan, Causal):
    """An item of length 0 becomes NaN.

    What does `masked_softmax` of lesson 02 do there?
    """


EXERCISE = Exercise(
    points=5,
    minutes=15,
    difficulty=3,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=problems,
    oracle=oracle.causal_self_attention,
    mistakes=(
        *shared(
            Causal,
            without={
                *("stored_after_dropout", "divided_by_d", "one_mask_only", "empty_row_nan"),
                *("unstable_but_guarded", "largest_of_all_subtracted_but_guarded"),
                *("unstable_with_epsilon", "root_of_all_heads", "root_of_the_values"),
                *("lengths_of_the_first_query", "lengths_of_the_longest_query"),
            },
        ),
        *half_repaired(Causal, ScaleEmbedDim, SeesTheFuture, EmptyRowNan, MergeWithoutTranspose),
    ),
    properties=WEIGHTS,
    hints=(
        "The module has four faults. Change later positions of its input, try an item of length 0, "
        "and check the sizes under the root.",
        "Look at the number under the root, at the triangle, at what happens to a row without any "
        "allowed key, and at the last line: which axes does the reshape join?",
        "Fix one at a time and test after each: two heads against one, on scores that you work "
        "out by hand; a position that sees a later one; an item of length 0; an output that must "
        "not change when two heads swap their features. In lessons 02 and 06 you wrote a part for "
        "each.",
    ),
    marking=Marking(comparisons={"sum_over_positions": sum_over_positions}),
)
