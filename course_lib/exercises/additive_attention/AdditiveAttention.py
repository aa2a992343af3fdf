"""`AdditiveAttention`: a module with lengths, masks and dropout."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._attention.dropout import DROPPING, dropout_values
from course_lib.exercises._attention.mistakes import HEADS_MIXED_UP, shared
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.padding import FAR, largest_padding
from course_lib.exercises._attention.properties import KEPT, WEIGHTS
from course_lib.exercises._attention.steps import NO_STEP
from course_lib.exercises.kit import INDEPENDENT, Problems, call, like, mistake, worded_like
from course_lib.exercises.whole_game.attend import keys_averaged as of_attend
from course_lib.reference import additive_attention as oracle

State = dict[str, np.ndarray]


def drawn(rng, b, n, m, d_q, d_k, v, h, **options) -> tuple[list[Array], State]:
    """Draw queries, keys and values, and weights with the statement's sizes."""
    shapes = {"W_q.weight": (h, d_q), "W_k.weight": (h, d_k), "w_v.weight": (1, h)}
    state = {name: rng.normal(0, 0.9, shape) for name, shape in shapes.items()}
    inputs = ((b, n, d_q), (b, m, d_k), (b, m, v))
    return [tensor(rng.normal(0, 1.2, shape), **options) for shape in inputs], state


def module(given: tuple[list[Array], State], *lens, dropout=None, **fields: Any) -> Probe:
    """Return a call of a module with these inputs and weights."""
    inputs, state = given
    (h, d_q), (_, d_k) = state["W_q.weight"].shape, state["W_k.weight"].shape
    built = {"query_size": d_q, "key_size": d_k, "num_hiddens": h}
    built |= {} if dropout is None else {"dropout": dropout}
    return call(*inputs, *lens, construct=built, state=state, attributes=(KEPT,), **fields)


def problems(rng) -> Problems:
    draw = functools.partial(drawn, rng)
    (queries, keys, values), weights = wide = draw(4, 20, 30, 2, 3, 1, 2)
    keys.data[:] = keys.data[:, :1]  # equal weights
    wide = [queries, keys, tensor(dropout_values(rng, 4, 30))], weights
    past, late = np.tri(3, 5, 1, dtype=bool), np.tri(3, 5, 2, dtype=bool)
    yield "Equal keys must get equal weights: values of 10 and 20 give 15."
    (queries, keys, values), weights = worked = draw(1, 1, 2, 2, 1, 1, 2)
    queries.data[:], keys.data[:], values.data[:] = [1.0, 0.0], 1.0, [[10.0], [20.0]]
    yield module(worked)
    yield "Lengths of shape (batch, num_queries) give every query its own length."
    yield module(draw(2, 3, 5, 6, 7, 9, 8), [[1, 4, 2], [3, 5, 2]])
    yield (
        "A bool mask of shape (num_queries, num_keys) holds for every item; True means that a key "
        "may be attended to."
    )
    yield module(draw(2, 3, 5, 4, 6, 8, 7), mask=past[:, ::-1])
    yield "With lengths and a mask, a key must be allowed by both."
    yield module(draw(2, 3, 5, 6, 4, 7, 8), [3, 4], mask=past)
    yield "`__init__` takes query_size, key_size and num_hiddens in this order."
    yield module(draw(2, 3, 4, 5, 6, 8, 7), scenario="built_by_position")
    yield INDEPENDENT
    yield module(draw(2, 3, 5, 6, 4, 7, 8), [4, 2], mask=late, scenario="after_another_call")
    yield module(draw(1, 2, 3, 2, 2, 1, 2), scenario="after_a_call_with_lengths")
    yield "In eval mode dropout must do nothing."
    yield module(draw(2, 3, 5, 4, 6, 8, 7), [4, 3], dropout=0.5)
    yield (
        "In train mode each weight must be dropped with probability p and the others divided by 1 "
        "- p; `attention_weights` must hold the weights before dropout."
    )
    yield module(wide, dropout=0.4, training=True, compare="dropout_on_weights")
    yield "A module built without `dropout` drops nothing: train and eval mode must agree."
    given = draw(2, 3, 5, 5, 6, 7, 8)
    yield module(given, [3, 0], mask=late, scenario="after_another_call", training=True)
    yield from edges(rng)
    draw = functools.partial(drawn, rng, 1, 2, 3, 2, 1, 2, requires_grad=True)
    back = {"grad_outputs": rng.normal(0, 1, (1, 2, 2)), "part": "gradients"}
    yield "The gradients of queries, keys, values and weights must match the formula."
    yield module(draw(3), **back)
    yield "An empty row must have gradient 0 and not turn the other gradients into NaN."
    yield module(draw(2), mask=[[False, True, True], [False, False, False]], **back)


def edges(rng) -> Problems:
    draw, edge = functools.partial(drawn, rng), functools.partial(module, part="edges")
    _, one = draw(1, 2, 3, 1, 1, 1, 1)
    empty = [[True, False, True, True], [False] * 4, [False, True, True, False]]
    equal_keys = draw(2, 3, 4, 5, 6, 8, 7)
    equal_keys[0][1].data[:] = equal_keys[0][1].data[:, :1]
    large = draw(1, 2, 3, 1, 1, 1, 1)
    large[0][0].data[:] = [[[1e3], [-1e3]]]
    large[1]["W_q.weight"] = rng.uniform(1, 2, (1, 1))  # so that exp overflows
    yield (
        "`device=` and `dtype=` set the device and the dtype of the weights. Pass both on to each "
        "layer."
    )
    yield edge(draw(1, 2, 3, 2, 3, 4, 5), scenario="made_with_device_and_dtype")
    yield "If all lengths are 0, outputs and weights must be 0: 0 is a valid length."
    yield edge(draw(2, 2, 4, 5, 6, 8, 7), [0, 0])
    yield "A float32 module must give float32 outputs."
    yield edge(draw(2, 3, 4, 5, 6, 8, 7), [2, 4], dtype="float32")
    yield "Lengths (batch,) belong to items, even if there are as many queries."
    yield edge(draw(3, 3, 4, 5, 6, 8, 7), [1, 4, 2])
    yield (
        "A query with no allowed key must get an output of 0, and equal keys that are allowed must"
        " get equal weights."
    )
    yield edge(equal_keys, [1, 4], mask=empty)  # query 2 of item 0 is empty by both
    yield "The rows of `W_q.weight` and `W_k.weight` belong to hidden features, even if square."
    yield edge(draw(1, 2, 3, 2, 2, 1, 2))
    yield "The tanh of a large sum is 1 or -1, and no step may overflow."
    yield edge(large)
    built = {"query_size": 1, "key_size": 1, "num_hiddens": 1}
    fields = {"construct": built, "state": one, "attributes": (KEPT,)}
    yield from largest_padding(rng, with_mask=True, **fields)
    yield (
        "The score of a masked key may be far above those of the allowed keys, which must get the "
        "weights they would have without it."
    )
    inputs = [[[0.0], [0.0]]], [[[9.0], [9.0], [-9.0]]]
    inputs = *inputs, rng.permutation(np.arange(-9, 10, 2))[None, :3, None] / 2
    bounded = {name: np.array([[1.0 if name[0] == "W" else -3.2e38]]) for name in one}
    yield edge(([tensor(x) for x in inputs], bounded), mask=FAR)


class Additive(AttentionModule):
    """The correct module, with its own score instead of product and root."""

    product = root = NO_STEP

    def __init__(
        self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None
    ) -> None:
        super().__init__(dropout)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False, device=device, dtype=dtype)

    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return self.W_q(queries), self.W_k(keys), values

    def score(self, q, k) -> Tensor:
        return torch.tanh(q[:, :, None] + k[:, None]) @ self.w_v.weight[0]


@mistake
class TanhOfEach(Additive):
    """You take the tanh of queries and keys separately. The score is then one term from the query
    plus one term from the key, and the softmax cancels the query's term.

    Does the tanh come before or after the sum of query and key?
    """

    def score(self, q, k) -> Tensor:
        return (torch.tanh(q)[:, :, None] + torch.tanh(k)[:, None]) @ self.w_v.weight[0]


@mistake
class NoTanh(Additive):
    """Your scores lack the tanh. Each is one term from the query plus one term from the key, and
    the softmax cancels the query's term.

    Which step lets a query change the order of the keys?
    """

    def score(self, q, k) -> Tensor:
        return (q[:, :, None] + k[:, None]) @ self.w_v.weight[0]


@mistake
@worded_like(of_attend)
class KeysAveraged(Additive):
    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return self.W_q(queries), self.W_k(keys), keys


@like(KeysAveraged)
class ProjectedKeysAveraged(Additive):
    def project(self, queries, keys, values) -> Sequence[Tensor]:
        return self.W_q(queries), self.W_k(keys), self.W_k(keys)


EXERCISE = Exercise(
    points=6,
    minutes=20,
    difficulty=2,
    builds_on=("additive_scores",),
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "value_size")),),
    probes=problems,
    oracle=oracle.additive_attention,
    mistakes=shared(
        Additive,
        without={"renormalized_after_softmax", *HEADS_MIXED_UP},
    ),
    properties=WEIGHTS,
    hints=(
        "`__init__` makes three linear layers without bias and a dropout layer. `forward` is "
        "scores, masked softmax, dropout, average of the values.",
        "`additive_scores` takes the weights of your layers: `self.W_q.weight` is (H, query_size), "
        "`self.w_v.weight` is (1, H). `masked_softmax` takes `valid_lens` and `mask`. Keep "
        "`weights.detach()` before dropout; `nn.Dropout` knows about train and eval mode.",
        "Write `forward` in four lines and print a shape after each: scores (B, n, m), weights "
        "(B, n, m), what you keep, outputs (B, n, v). If the scores come out with one axis too "
        "many, compare the shape of `self.w_v.weight` with what `additive_scores` asks for.",
    ),
    marking=DROPPING,
)
