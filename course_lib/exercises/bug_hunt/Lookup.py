"""`Lookup`: a broken module to fix."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._attention import mistakes as of_any_attention
from course_lib.exercises._attention.dropout import DROPPING, dropout_values
from course_lib.exercises._attention.mistakes import (
    HEADS_MIXED_UP,
    DropoutInEval,
    OverQueries,
    ZeroAfterSoftmax,
    half_repaired,
    shared,
)
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.padding import far_above, largest_padding
from course_lib.exercises._attention.properties import KEPT, WEIGHTS
from course_lib.exercises._attention.steps import NO_STEP
from course_lib.exercises.bug_hunt.fixtures_broken import BrokenLookup
from course_lib.exercises.kit import INDEPENDENT, Problems, call, mistake
from course_lib.reference import bug_hunt as oracle

State = dict[str, np.ndarray]


def drawn(rng, b, n, m, sizes, v, **options) -> tuple[list[Array], State]:
    """Draw queries, keys and values, and weights of sizes query_size, key_size, num_hiddens."""
    query_size, key_size, hiddens = sizes
    shapes = ((b, n, query_size), (b, m, key_size), (b, m, v))
    inputs = [tensor(rng.normal(0, 1.2, shape), **options) for shape in shapes]
    W_q, W_k = (rng.normal(0, 0.7, (hiddens, size)) for size in (query_size, key_size))
    return inputs, {"W_q.weight": W_q, "W_k.weight": W_k}


def module(given: tuple[list[Array], State], *lens, dropout=0.0, **fields: Any) -> Probe:
    """Return a call of a module with these inputs and weights."""
    inputs, state = given
    (hiddens, query_size), (_, key_size) = state["W_q.weight"].shape, state["W_k.weight"].shape
    built = {"query_size": query_size, "key_size": key_size, "num_hiddens": hiddens}
    built |= {"dropout": dropout} if dropout else {}
    return call(*inputs, *lens, construct=built, state=state, attributes=(KEPT,), **fields)


# Three of the four faults have a problem that shows only that fault, even if others are present.
def problems(rng) -> Problems:
    draw = functools.partial(drawn, rng)
    padded = draw(3, 4, 6, (5, 2, 3), 7)
    yield "The outputs are softmax(q k^T / sqrt(num_hiddens)) V."
    yield module(draw(1, 2, 3, (3, 4, 2), 2))
    yield "Each score must be divided by the root of num_hiddens."
    (*_, values), state = draw(1, 2, 2, (2, 2, 3), 2)
    column = rng.normal(0, 1.2, 3)
    for name in state:  # scores ((a, b), (b, a)), where the softmax's axis has no effect
        state[name] = np.stack([column, np.roll(column, 1)], axis=1)
    yield module(([*[tensor(np.eye(2)[None])] * 2, values], state))
    yield "With queries of 0, all scores are equal and each output must be the plain average."
    without_queries = draw(2, 2, 5, (4, 3, 6), 7)
    without_queries[0][0].data[:] = 0.0
    yield module(without_queries)
    yield "In eval mode nothing may be dropped, whatever `dropout` is."
    without_queries = draw(2, 3, 3, (3, 6, 8), 3)
    without_queries[0][0].data[:] = 0.0
    yield module(without_queries, dropout=0.6)
    yield (
        "Without lengths, all keys are real. Query, key and hidden sizes may differ; only one of "
        "them belongs under the root."
    )
    yield module(draw(2, 3, 5, (4, 6, 7), 8))
    yield "Rows of the weights must sum to 1 over the real keys."
    yield module(padded, [2, 6, 4])
    yield "With one real key, every query must get its value."
    yield module(draw(2, 3, 5, (4, 6, 7), 2), [1, 1])
    yield from edges(rng)


def edges(rng) -> Problems:
    draw, edge = functools.partial(drawn, rng), functools.partial(module, part="edges")
    empty = draw(3, 2, 5, (4, 4, 4), 7)
    back = draw(1, 2, 3, (3, 3, 3), 2, requires_grad=True)
    back_empty = draw(2, 1, 3, (3, 3, 3), 1, requires_grad=True)
    one = {
        "more": [[2]],
        "construct": {"query_size": 1, "key_size": 1, "num_hiddens": 1},
        "state": {"W_q.weight": np.eye(1), "W_k.weight": np.eye(1)},
        "attributes": (KEPT,),
    }
    yield from largest_padding(rng, **one)
    yield from far_above(rng, **one)
    yield "Lengths belong to items, even if there are as many queries."
    yield edge(draw(3, 3, 5, (4, 6, 7), 2), [1, 5, 3])
    yield "An item without a real key must get zeros."
    yield edge(empty, [0, 3, 5])
    yield (
        "`device=` and `dtype=` must set the device and the dtype of the weights. Pass both on to "
        "each layer."
    )
    yield edge(draw(1, 2, 3, (2, 3, 4), 5), [2], scenario="made_with_device_and_dtype")
    yield INDEPENDENT
    yield edge(draw(2, 3, 5, (4, 4, 4), 2), [2, 4], scenario="after_another_call")
    yield edge(draw(1, 2, 3, (2, 2, 2), 1), scenario="after_a_call_with_lengths")
    yield "Float32 inputs and weights must give float32 outputs."
    yield edge(draw(2, 3, 5, (4, 4, 4), 2), [2, 4], dtype="float32")
    yield "In train mode each weight must be dropped independently with probability `dropout`."
    (*inputs, _), state = draw(4, 24, 24, (5, 3, 7), 27)
    given = [*inputs, tensor(dropout_values(rng, 4, 24))], state
    dropping = {"training": True, "compare": "dropout_on_weights"}
    yield edge(given, [24, 19, 22, 24], dropout=0.3, seed=int(rng.integers(10**6)), **dropping)
    yield "The gradients of inputs and weights must match the formula."
    yield module(back, [2], grad_outputs=rng.normal(size=(1, 2, 2)))
    yield "An item without a real key must leave every gradient finite."
    yield module(back_empty, [0, 2], grad_outputs=rng.uniform(-1, 1, (2, 1, 1)))


class Right(AttentionModule):
    """The correct module."""

    own = NO_STEP

    def __init__(
        self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None
    ) -> None:
        super().__init__(dropout)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype)

    def forward(self, queries, keys, values, valid_lens=None) -> Tensor:
        return self.attend((queries, keys, values), valid_lens)[0]

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return self.W_q(queries), self.W_k(keys), values


@mistake
class NotFixed(BrokenLookup):
    """This still computes what `BrokenLookup` does, with all its faults.

    Which invariants on the list does it break? One fault may hide the effect of fixing another.
    """


@mistake
class ScaleOfTheQueries(Right):
    """You divide the scores by the root of `query_size`, but a dot product runs over the
    `num_hiddens` projected features.

    How many products are summed in one score?
    """

    def root(self, q) -> float:
        return self.W_q.in_features**0.5


@mistake
class EmptyRowNan(of_any_attention.EmptyRowNan, Right):
    """An item without a real key becomes NaN.

    What does `masked_softmax` of lesson 02 do there?
    """


EXERCISE = Exercise(
    points=5,
    minutes=12,
    difficulty=2,
    starred=True,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "v")),),
    probes=problems,
    oracle=oracle.lookup,
    mistakes=(
        *shared(
            Right,
            without={
                *("divided_by_d", "empty_row_nan", "one_mask_only", "root_of_all_heads"),
                *("lengths_of_the_first_query", "lengths_of_the_longest_query"),  # no such lengths
                *HEADS_MIXED_UP,
            },
        ),
        *half_repaired(
            Right,
            *(ScaleOfTheQueries, OverQueries, ZeroAfterSoftmax, DropoutInEval),
            without={"scale_of_the_queries+over_queries+dropout_in_eval"},
        ),
    ),
    properties=WEIGHTS,
    hints=(
        "`BrokenLookup` has four faults, and one of them hides another. After each fix, run your "
        "three tests and check the row sums again.",
        "Look at the number under the root, at the axis of the softmax, at the order of softmax "
        "and mask, and at what dropout does in eval mode.",
        "scores = q @ k.mT / math.sqrt(q.shape[-1])\n"
        "weights = masked_softmax(scores, valid_lens)\n"
        "self.attention_weights = weights.detach()\n"
        "return self.dropout(weights) @ values  # an nn.Dropout made in __init__",
    ),
    marking=DROPPING,
)
