"""Lesson 03: values added up with weights, the second product of attention."""

import numpy as np
import torch

from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import (
    BETWEEN,
    FLOAT32,
    STRIDED,
    Given,
    case,
    edge,
    mistake,
)
from course_lib.exercises.batch_matmul import _products as both
from course_lib.exercises.batch_matmul._products import cube, first_for_all, gradients
from course_lib.reference import batch_matmul as oracle


def _weights_values(rng, weights_shape, d_v, *, normalised=True, **options) -> Given:
    weights = rng.normal(0, 1.3, weights_shape)
    if normalised:
        weights = np.exp(weights)
        weights /= weights.sum(axis=-1, keepdims=True)
    values = rng.normal(0, 1.3, (*weights_shape[:-2], weights_shape[-1], d_v))
    return {"weights": tensor(weights, **options), "values": tensor(values, **options)}


def _values(rng) -> list[Probe]:
    return [
        case("worked", weights=[[[0.25, 0.75]]], values=[[[4.0, 0.0, 8.0], [0.0, 4.0, 8.0]]]).says(
            "The output of a query is the sum of all values, each times its weight."
        ),
        case("rectangular", **_weights_values(rng, (2, 3, 5), 6)).says(
            "Row i of the outputs is the sum over j of weights[i, j] * values[j]."
        ),
        case("four_axes", **_weights_values(rng, (2, 3, 4, 5), 6)).says(
            "With heads, (batch, heads, n, m), each head has its own outputs."
        ),
        case("strided", **_weights_values(rng, (3, 4, 2), 5, strided=True)).says(STRIDED),
        case("any_weights", **_weights_values(rng, (2, 4, 3), 5, normalised=False)).says(
            "The weights are used as they are, even if they are negative or their rows do not sum "
            "to 1."
        ),
        gradients(
            "gradients", rng, _weights_values(rng, (2, 3, 4), 2, requires_grad=True), 2, 3, 2
        ).says("The outputs must be differentiable in weights and values."),
    ]


def _sizes(rng) -> list[Probe]:
    return [
        edge("no_leading_axis", **_weights_values(rng, (3, 4), 2)).says(
            "Weights (n, m) and values (m, d_v) without a batch must work."
        ),
        edge("five_axes", **_weights_values(rng, (2, 1, 3, 2, 4), 5)).says(both.FIVE_AXES),
        edge("as_many_queries_as_keys", **_weights_values(rng, (2, 4, 4), 3)).says(
            "Square weights (self-attention) must not hide a transposed matrix."
        ),
        edge("square", **_weights_values(rng, (3, 3, 3), 3)).says(both.SQUARE),
        edge("square_four_axes", **_weights_values(rng, (2, 3, 3, 3), 3)).says(both.SQUARE_FOUR),
        edge("one_of_each", **_weights_values(rng, (1, 1, 1), 1)).says(
            "One query, one key and one feature must keep their axes."
        ),
    ]


def _edges(rng) -> list[Probe]:
    one_hot, nothing = np.eye(4)[rng.permutation(4)[:3]][None], [[[0.0] * 3, [0.5, 0.0, 0.5]]]
    drawn = _weights_values(rng, (1, 2, 4), 4)["weights"]
    return [
        edge("one_hot", weights=one_hot, values=rng.normal(0, 1.3, (1, 4, 2))).says(
            "A weight of 1 on one key must return exactly that key's value."
        ),
        edge("no_weight_at_all", weights=nothing, values=rng.normal(0, 1.3, (1, 3, 4))).says(
            "A row of zeros, as in an empty row of lesson 02, gives an output of zeros."
        ),
        edge("identity_values", weights=drawn, values=np.eye(4)[None]).says(
            "Values that form an identity matrix must return the weights themselves."
        ),
        edge("strided_four_axes", **_weights_values(rng, (2, 3, 4, 5), 2, strided=True)).says(
            "Non-contiguous tensors with heads must work."
        ),
        edge("float32", **_weights_values(rng, (2, 3, 4), 5), **FLOAT32).says(
            "The outputs have the dtype of weights and values."
        ),
        edge("between_other_calls", **_weights_values(rng, (2, 4, 5), 3), **BETWEEN).says(
            "Each call is independent: other calls with the same shapes change nothing."
        ),
    ]


def _outside_the_values(probe, outputs) -> str | None:
    """Averages with weights that sum to 1 cannot leave the range of what they average."""
    weights, values = probe.args["weights"].data, probe.args["values"].data
    data = outputs.data
    if not np.allclose(weights.sum(axis=-1), 1.0) or (weights < 0).any():
        return None
    if data is None or data.shape != (*weights.shape[:-1], values.shape[-1]):
        return None
    low, high = values.min(axis=-2, keepdims=True), values.max(axis=-2, keepdims=True)
    outside = (data < low - 1e-4) | (data > high + 1e-4)
    if not outside.any():
        return None
    index = tuple(int(i) for i in np.argwhere(outside)[0])
    return (
        f"Your output {list(index)} is {data[index]:.3f}, outside the range of the values that it "
        "is an average of: positive weights that sum to 1 cannot do that."
    )


def _renormalised(weights, values) -> torch.Tensor:
    return weights / weights.sum(dim=-1, keepdim=True) @ values


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(Returned("outputs", "tensor", "float", ("...", "num_queries", "d_v")),),
    probes=lambda rng: [*_values(rng), *_sizes(rng), *_edges(rng)],
    oracle=oracle.weighted_sum,
    builds_on=("bmm", "batched_scores"),
    mistakes=(
        mistake("weights_transposed", lambda weights, values: weights.mT @ values, fails=True).says(
            "You multiply by the transposed weights: each key collects values from the queries.",
            "Which axis of the weights must meet the key axis of the values?",
        ),
        mistake(
            "summed_over_queries", lambda weights, values: cube(weights, values).sum(dim=-3)
        ).says(
            "You sum over the queries, so the key axis stays in the result.",
            "Over which axis does a query sum: which one do weights and values share?",
        ),
        mistake("elementwise", lambda weights, values: weights * values, fails=True).says(
            "`*` multiplies entry by entry, which works only where the shapes happen to agree.",
            "How many values go into one output: one, or all m of them?",
        ),
        mistake("renormalised", _renormalised).says(
            "You divide by the sum of each row; use the weights as they are.",
            "What becomes of a row of zeros?",
        ),
        mistake(
            "softmax_again", lambda weights, values: torch.softmax(weights, dim=-1) @ values
        ).says(
            "The weights go through a softmax; use them as they are.",
            "Which step makes numbers into weights, and has it been done already?",
        ),
        mistake("values_of_item_0", lambda weights, values: weights @ first_for_all(values)).says(
            "All items average the values of item 0.",
            "From which axis of the values did you pick one entry, and should that axis have "
            "stayed?",
        ),
        mistake(
            "only_three_axes",
            lambda weights, values: torch.einsum("bnm,bmv->bnv", weights, values),
            fails=True,
        ).says(*both.ONLY_THREE_AXES),
    ),
    properties=(
        Property(
            "outside_the_values",
            _outside_the_values,
            "Does each output use each weight of its row once, with the value of that key?",
        ),
    ),
    hints=(
        "Take one query: it has m weights, and there are m values. Multiply each value by its "
        "weight and add up the m rows.",
        "This is a matrix product: (n, m) times (m, d_v) sums over the keys. It needs no "
        "transpose, no softmax and no division.",
        "return torch.einsum('...nm,...mv->...', weights, values)\n# or one matrix product",
    ),
)
