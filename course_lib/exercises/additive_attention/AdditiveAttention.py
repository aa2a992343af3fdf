"""Lesson 04: additive attention as a module, with lengths, masks and dropout."""

import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from course_lib.checks.judge.comparisons import dropout_values
from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import OWN_SOFTMAX, Row, known
from course_lib.exercises._attention.modules import AttentionModule
from course_lib.exercises._attention.properties import INSIDE_THE_VALUES, WEIGHTS
from course_lib.exercises._attention.steps import NO_STEP
from course_lib.exercises._rows import INDEPENDENT, Given
from course_lib.reference import additive_attention as oracle


def _module_problem(
    rng, b, n, m, d_q, d_k, v, h, *, dtype=np.float64, dropout=0.0, **options
) -> Given:
    """`construct`, `state` and `args` of a probe of `AdditiveAttention`."""
    shapes = {"W_q.weight": (h, d_q), "W_k.weight": (h, d_k), "w_v.weight": (1, h)}
    inputs = {"queries": (b, n, d_q), "keys": (b, m, d_k), "values": (b, m, v)}
    return {
        "construct": {
            "query_size": d_q,
            "key_size": d_k,
            "num_hiddens": h,
            **({"dropout": dropout} if dropout else {}),
        },
        "state": {
            name: rng.normal(0, 1.5 if name == "w_v.weight" else 0.7, shape)
            for name, shape in shapes.items()
        },
        "args": {
            name: tensor(rng.normal(0, 1.2, shape).astype(dtype), **options)
            for name, shape in inputs.items()
        },
        "attributes": ("attention_weights",),
    }


def _probe(name, says, problem, valid_lens=None, mask=None, **options) -> Probe:
    """Lengths go by position if they are given alone, otherwise by name, as the mask does."""
    masks = {"valid_lens": valid_lens, "mask": mask}
    masks = {name: tensor(given) for name, given in masks.items() if given is not None}
    by_name = {} if mask is None else masks
    args = problem["args"] | (masks if mask is None else {})
    return Probe(name, says, **(problem | {"args": args}), kwargs=by_name, **options)


def _with(problem, **numbers) -> Given:
    """Put these numbers in the place of inputs and weights."""
    for name, data in numbers.items():
        if name in problem["args"]:
            problem["args"][name] = tensor(np.array(data))
        else:
            problem["state"][f"{name}.weight"] = np.array(data)
    return problem


def _probes(rng) -> list[Probe]:
    equal = _module_problem(rng, 2, 2, 4, 2, 3, 3, 2)
    equal["args"]["keys"].data[:] = equal["args"]["keys"].data[:, :1]
    large = _module_problem(rng, 4, 20, 30, 2, 3, 1, 2, dropout=0.4)
    large["args"]["keys"].data[:] = large["args"]["keys"].data[:, :1]  # equal weights
    large["args"]["values"] = tensor(dropout_values(rng, 4, 30))
    mixed = np.tril(np.ones((3, 5), dtype=bool), 2)
    edge = functools.partial(_probe, part="edges")
    garbage = _module_problem(rng, 2, 3, 5, 4, 6, 8, 7)
    for name, size in (("keys", 1e4), ("values", 1e30)):
        data = garbage["args"][name].data
        data[0, 2:], data[1, 4:] = size, -size
    empty = np.array([[True, False, True, True], [False] * 4, [False, True, True, False]])
    return [
        _probe("worked_number", "Equal keys get equal weights: values of 10 and 20 give 15.",
               _with(_module_problem(rng, 1, 1, 2, 2, 1, 1, 2), queries=[[[1.0, 0.0]]],
                     keys=[[[1.0], [1.0]]], values=[[[10.0], [20.0]]])),
        _probe("no_mask", "Without lengths and mask: softmax of the additive scores, times the "
               "values.", _module_problem(rng, 2, 3, 4, 5, 6, 8, 7)),
        _probe("equal_keys_and_mask", "Equal keys that are allowed get equal weights.", equal,
               mask=np.array([[True, False, True, False], [False, True, True, True]])),
        _probe("lengths_per_item", "Keys beyond an item's length get weight 0.",
               _module_problem(rng, 3, 2, 5, 4, 6, 7, 8), valid_lens=[2, 5, 3]),
        _probe("lengths_per_query", "Lengths of shape (batch, num_queries) give every query its "
                                    "own length.", _module_problem(rng, 2, 3, 5, 6, 7, 9, 8),
               valid_lens=[[1, 4, 2], [3, 5, 2]]),
        _probe("mask_shared_by_batch", "A bool mask of shape (num_queries, num_keys) holds for "
                                       "every item; True means that a key may be attended to.",
               _module_problem(rng, 2, 3, 5, 4, 6, 8, 7),
               mask=rng.permuted(np.tri(3, 5, 1, dtype=bool), axis=1)),
        _probe("mask_of_keys", "A bool mask of shape (batch, 1, num_keys) holds for every query of "
               "an item.", _module_problem(rng, 2, 3, 5, 4, 6, 7, 8),
               mask=rng.permuted([[[1, 0, 1, 1, 0]], [[1, 1, 0, 0, 0]]], axis=2) > 0),
        _probe("lengths_and_mask", "With lengths and a mask, a key must be allowed by both.",
               _module_problem(rng, 2, 3, 5, 6, 4, 7, 8), valid_lens=[3, 4],
               mask=np.tril(np.ones((3, 5), dtype=bool), 1)),
        _probe("sizes_by_position", "`__init__` takes query_size, key_size and num_hiddens in this "
               "order.", _module_problem(rng, 2, 3, 4, 5, 6, 8, 7), scenario="built_by_position"),
        _probe("among_other_calls", INDEPENDENT,
               _module_problem(rng, 2, 3, 5, 6, 4, 7, 8), valid_lens=[4, 2], mask=mixed,
               scenario="among_other_calls"),
        _probe("dropout_off_in_eval", "In eval mode dropout does nothing.",
               _module_problem(rng, 2, 3, 5, 4, 6, 8, 7, dropout=0.5), valid_lens=[4, 3]),
        _probe("dropout_in_train", "In train mode each weight is dropped with probability p and "
                                   "the others are divided by 1 - p; `attention_weights` holds "
                                   "the weights from before that.",
               large, training=True, compare="dropout_on_weights"),
        _probe("train_without_dropout", "Built without `dropout`, nothing is dropped: train and "
                                        "eval mode agree.",
               _module_problem(rng, 2, 3, 5, 5, 6, 7, 8), valid_lens=[3, 0],
               mask=mixed, training=True, scenario="among_other_calls"),
        edge("masked_score_far_above", "A masked key changes nothing, however large its score is.",
             _with(_module_problem(rng, 1, 1, 3, 1, 1, 2, 1), W_q=[[1.0]], W_k=[[1.0]],
                   w_v=[[1000.0]], queries=[[[0.0]]], keys=[[[-4.0], [-5.0], [4.0]]]),
             mask=np.array([[True, True, False]])),
        edge("device_and_dtype", "`device=` and `dtype=` set the device and the dtype of "
             "the weights. Pass both on to each layer.", _module_problem(rng, 1, 2, 3, 2, 3, 4, 5),
             scenario="made_with_device_and_dtype"),
        edge("int32_lengths", "Lengths may be int32 or int64.",
             _module_problem(rng, 2, 3, 5, 4, 6, 8, 7),
             valid_lens=np.array([[1, 4, 2], [3, 5, 0]], dtype=np.int32)),
        edge("mask_of_keys_alone", "A bool mask of shape (num_keys,) holds for every query of "
             "every item.", _module_problem(rng, 2, 3, 5, 4, 6, 8, 7),
             mask=np.array([True, False, True, True, False])),
        edge("lengths_all_zero", "If all lengths are 0, outputs and weights are 0: 0 is a valid "
                                 "length.",
             _module_problem(rng, 2, 2, 4, 5, 6, 8, 7), valid_lens=[0, 0]),
        edge("float32", "A float32 module gives float32 outputs, masked or not.",
             _module_problem(rng, 2, 3, 4, 5, 6, 8, 7), valid_lens=[2, 4],
             mask=np.tril(np.ones((3, 4), dtype=bool), 1), dtype="float32", tolerance=1e-4),
        edge("empty_row", "A query that may attend to nothing gets an output of 0.",
             _module_problem(rng, 2, 3, 4, 5, 6, 8, 7), mask=empty),
        edge("garbage_in_pads", "The contents of padded keys and values change nothing.", garbage,
             valid_lens=[2, 4]),
        edge("one_query", "One item with one query: `attention_weights` keeps its three axes.",
             _module_problem(rng, 1, 1, 4, 2, 3, 5, 6), valid_lens=[3]),
        _probe("gradient", "The gradients of queries, keys, values and weights are those of the "
               "formula.", _module_problem(rng, 1, 2, 3, 2, 1, 2, 3, requires_grad=True),
               part="gradients", grad_outputs=rng.normal(0, 1, (1, 2, 2))),
        _probe("gradient_with_empty_row", "An empty row has gradient 0 and must not turn the "
                                          "other gradients into NaN.",
               _module_problem(rng, 1, 2, 3, 2, 1, 2, 2, requires_grad=True),
               mask=np.array([[False, True, True], [False, False, False]]), part="gradients",
               grad_outputs=rng.normal(0, 1, (1, 2, 2))),
    ]  # fmt: skip


class _Additive(AttentionModule):
    """The right module: project, and the step combine in the place of product and root."""

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
        return self.combine(q[:, :, None], k[:, None], self.w_v.weight[0])

    def combine(self, q, k, w) -> torch.Tensor:
        return torch.tanh(q + k) @ w


def _combined(function) -> dict[str, object]:
    return {"combine": lambda self, q, k, w: function(q, k, w)}


_OWN = (
    Row("no_tanh", _combined(lambda q, k, w: (q + k) @ w)).says(
        "Without tanh every query of an item has the same weights: the softmax cancels the query's "
        "part of the score.",
        "Which step lets a query change the order of the keys?",
    ),
    Row(
        "query_forgotten",
        _combined(lambda q, k, w: torch.tanh(k).expand(-1, q.shape[1], -1, -1) @ w),
    ).says(
        "Every query of an item has the same weights. If you take the tanh of query and key "
        "separately and add the results, or leave the query out, the softmax depends on the keys "
        "alone.",
        "Does the tanh come before or after the sum of query and key?",
    ),
    Row(
        "layers_swapped",
        {"project": lambda self, q, k, v: (self.W_k(q), self.W_q(k), v)},
        fails=True,
    ).says(
        "The queries go through `W_k` and the keys through `W_q`.",
        "Which layer reads query_size numbers?",
    ),
    Row("values_are_keys", {"project": lambda self, q, k, v: (self.W_q(q), self.W_k(k), k)}).says(
        "You average the keys; the keys only decide how much each value counts.",
        "Attention returns an average of one of its three inputs. Which one?",
    ),
)


EXERCISE = Exercise(
    points=6,
    minutes=20,
    difficulty=2,
    is_class=True,
    returns=(Returned("outputs", "tensor", "float", ("batch", "num_queries", "value_size")),),
    probes=_probes,
    oracle=oracle.additive_attention,
    builds_on=("additive_scores", "masked_softmax"),
    mistakes=known(_Additive, *_OWN, without=OWN_SOFTMAX | {"nothing_masked"}),
    properties=(*WEIGHTS, INSIDE_THE_VALUES),
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
