"""`AdditiveAttention`: a module with lengths, masks and dropout."""

import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from course_lib.checks.judge.comparisons import dropout_values
from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import Row, known
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.padding import FAR, far_above, largest_padding
from course_lib.exercises._attention.properties import KEPT, WEIGHTS
from course_lib.exercises._attention.steps import NO_STEP
from course_lib.exercises._builders import FLOAT32, INDEPENDENT, Given, case, edge
from course_lib.reference import additive_attention as oracle


def _problem(rng, b, n, m, d_q, d_k, v, h, lens=None, mask=None, dropout=None, **options) -> Given:
    """Draw inputs and weights with the statement's sizes, and pass lengths by position."""
    shapes = {"W_q.weight": (h, d_q), "W_k.weight": (h, d_k), "w_v.weight": (1, h)}
    inputs = {"queries": (b, n, d_q), "keys": (b, m, d_k), "values": (b, m, v)}
    sizes = {"query_size": d_q, "key_size": d_k, "num_hiddens": h}
    return {
        "construct": sizes if dropout is None else sizes | {"dropout": dropout},
        "state": {name: rng.normal(0, 0.9, shape) for name, shape in shapes.items()},
        "attributes": (KEPT,),
        **{k: tensor(rng.normal(0, 1.2, shape), **options) for k, shape in inputs.items()},
        **({} if lens is None else {"valid_lens": lens}),
        "by_name": {} if mask is None else {"mask": mask},
    }


_MODULE = ("construct", "state", "attributes")  # fields of a problem about the module


def _values(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    equal_keys = {"queries": [[[1.0, 0.0]]], "keys": [[[1.0], [1.0]]], "values": [[[10.0], [20.0]]]}
    wide = problem(4, 20, 30, 2, 3, 1, 2, dropout=0.4) | {"values": dropout_values(rng, 4, 30)}
    wide["keys"].data[:] = wide["keys"].data[:, :1]  # equal weights  # pyright: ignore[reportCallIssue, reportArgumentType] - `data` is an array
    past, late = np.tri(3, 5, 1, dtype=bool), np.tri(3, 5, 2, dtype=bool)
    other_calls: Given = {"scenario": "after_another_call"}
    with_lengths = "after_a_call_with_lengths"
    by_query = [[1, 4, 2], [3, 5, 2]]
    return [
        case("worked_number", **problem(1, 1, 2, 2, 1, 1, 2) | equal_keys).says(  # pyright: ignore[reportArgumentType] - a row has no `args`
            "Equal keys must get equal weights: values of 10 and 20 give 15."
        ),
        case("lengths_per_query", **problem(2, 3, 5, 6, 7, 9, 8, by_query)).says(
            "Lengths of shape (batch, num_queries) give every query its own length."
        ),
        case("mask_shared_by_batch", **problem(2, 3, 5, 4, 6, 8, 7, mask=past[:, ::-1])).says(
            "A bool mask of shape (num_queries, num_keys) holds for every item; True means that a "
            "key may be attended to."
        ),
        case("lengths_and_mask", **problem(2, 3, 5, 6, 4, 7, 8, [3, 4], past)).says(
            "With lengths and a mask, a key must be allowed by both."
        ),
        case(
            "sizes_by_position", **problem(2, 3, 4, 5, 6, 8, 7), scenario="built_by_position"
        ).says("`__init__` takes query_size, key_size and num_hiddens in this order."),
        case(
            "after_another_call", **problem(2, 3, 5, 6, 4, 7, 8, [4, 2], late), **other_calls
        ).says(INDEPENDENT),
        case(with_lengths, **problem(1, 2, 3, 2, 2, 1, 2), scenario=with_lengths).says(INDEPENDENT),
        case("dropout_off_in_eval", **problem(2, 3, 5, 4, 6, 8, 7, [4, 3], dropout=0.5)).says(
            "In eval mode dropout must do nothing."
        ),
        case("dropout_in_train", **wide, training=True, compare="dropout_on_weights").says(  # pyright: ignore[reportArgumentType] - a row has no `args`
            "In train mode each weight must be dropped with probability p and the others divided "
            "by 1 - p; `attention_weights` must hold the weights before dropout."
        ),
        case(
            "train_without_dropout",
            **problem(2, 3, 5, 5, 6, 7, 8, [3, 0], late),
            **other_calls,
            training=True,
        ).says("A module built without `dropout` drops nothing: train and eval mode must agree."),
    ]


def _edges(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    one = {k: v for k, v in problem(1, 2, 3, 1, 1, 1, 1).items() if k in _MODULE}
    empty = np.array([[True, False, True, True], [False] * 4, [False, True, True, False]])
    equal_keys = problem(2, 3, 4, 5, 6, 8, 7, [1, 4], empty)  # [2] of item 0 is empty by both
    equal_keys["keys"].data[:] = equal_keys["keys"].data[:, :1]
    large: Given = problem(1, 2, 3, 1, 1, 1, 1) | {"queries": [[[1e3], [-1e3]]]}  # pyright: ignore[reportArgumentType] - a row has no `args`
    large["state"]["W_q.weight"] = rng.uniform(1, 2, (1, 1))  # so that exp overflows
    made = {"scenario": "made_with_device_and_dtype"}
    bounded = {
        "state": {name: np.array([[1.0 if name[0] == "W" else -3.2e38]]) for name in one["state"]},
        "queries": [[[0.0], [0.0]]],
        "keys": [[[9.0], [9.0], [-9.0]]],
    }
    return [
        edge("device_and_dtype", **problem(1, 2, 3, 2, 3, 4, 5), **made).says(
            "`device=` and `dtype=` set the device and the dtype of the weights. Pass both on to "
            "each layer."
        ),
        edge("lengths_all_zero", **problem(2, 2, 4, 5, 6, 8, 7, [0, 0])).says(
            "If all lengths are 0, outputs and weights must be 0: 0 is a valid length."
        ),
        edge("float32", **problem(2, 3, 4, 5, 6, 8, 7, [2, 4]), **FLOAT32).says(
            "A float32 module must give float32 outputs."
        ),
        edge("as_many_items_as_queries", **problem(3, 3, 4, 5, 6, 8, 7, [1, 4, 2])).says(
            "Lengths (batch,) belong to items, even if there are as many queries."
        ),
        edge("empty_row", **equal_keys).says(
            "A query with no allowed key must get an output of 0, and equal keys that are "
            "allowed must get equal weights."
        ),
        edge("square_weights", **problem(1, 2, 3, 2, 2, 1, 2)).says(
            "The rows of `W_q.weight` and `W_k.weight` belong to hidden features, even if square."
        ),
        edge("large_sums", **large).says(
            "The tanh of a large sum is 1 or -1, and no step may overflow."
        ),
        *largest_padding(rng, with_mask=True, **one),
        far_above(rng, **one | bounded, by_name={"mask": FAR})[-1],
    ]


def _gradients(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng, 1, 2, 3, 2, 1, 2, requires_grad=True)
    grad_outputs = rng.normal(0, 1, (1, 2, 2))
    empty = np.array([[False, True, True], [False, False, False]])
    return [
        case("gradient", **problem(h=3), grad_outputs=grad_outputs).says(
            "The gradients of queries, keys, values and weights must match the formula."
        ),
        case("gradient_with_empty_row", **problem(h=2, mask=empty), grad_outputs=grad_outputs).says(
            "An empty row must have gradient 0 and not turn the other gradients into NaN."
        ),
    ]


class _Additive(AttentionModule):
    """The correct module, with its own score instead of product and root."""

    product = root = NO_STEP

    def __init__(
        self, query_size, key_size, num_hiddens, dropout=0.0, *, device=None, dtype=None
    ) -> None:
        super().__init__(dropout)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=False, device=device, dtype=dtype)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False, device=device, dtype=dtype)

    def project(self, queries, keys, values) -> Sequence[torch.Tensor]:
        return self.W_q(queries), self.W_k(keys), values

    def score(self, q, k) -> torch.Tensor:
        return torch.tanh(q[:, :, None] + k[:, None]) @ self.w_v.weight[0]


def _of_each(activation) -> dict[str, object]:
    """Score with a term from the query plus a term from the key."""
    return {
        "score": lambda self, q, k: (
            (activation(q)[:, :, None] + activation(k)[:, None]) @ self.w_v.weight[0]
        )
    }


EXERCISE = Exercise(
    points=6,
    minutes=20,
    difficulty=2,
    builds_on=("additive_scores",),
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "value_size")),),
    probes=lambda rng: [*_values(rng), *_edges(rng), *_gradients(rng)],
    oracle=oracle.additive_attention,
    mistakes=known(
        _Additive,
        Row("tanh_of_each", _of_each(torch.tanh)).says(
            "You take the tanh of queries and keys separately. The score is then one term from the "
            "query plus one term from the key, and the softmax cancels the query's term.",
            "Does the tanh come before or after the sum of query and key?",
        ),
        Row("no_tanh", _of_each(lambda x: x)).says(
            "Your scores lack the tanh. Each is one term from the query plus one term from the "
            "key, and the softmax cancels the query's term.",
            "Which step lets a query change the order of the keys?",
        ),
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
)
