"""`attention_backward`: the backward pass by hand, and the steps that get forgotten."""

import functools
import math
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import Given, case, edge, in_steps, mistake
from course_lib.exercises.scaled_dot_product._problems import multiple_of
from course_lib.reference import scaled_dot_product as oracle

_FORMULA = "The three gradients must be those of softmax(Q K^T / sqrt(d)) V."
_NAMED = ("queries", "keys", "values", "grad_outputs")


def _of(*arrays) -> Given:
    return {k: tensor(np.array(a, dtype=float)) for k, a in zip(_NAMED, arrays, strict=True)}


def _problem(rng, n, m, d, v, **options) -> Given:
    shapes = ((n, d), (m, d), (m, v), (n, v))
    return {
        k: tensor(rng.normal(0, 1.2, shape), **options)
        for k, shape in zip(_NAMED, shapes, strict=True)
    }


def _values(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    query, keys = [[0, 0, 0, 2]], [[1, 0, 0, 0], [3, 0, 0, 0]]
    return [
        case("worked", args=_of(query, keys, [[1], [3]], [[1]])).says(_FORMULA),
        case("balanced", args=_of(query, keys, [[-1], [1]], [[1]])).says(_FORMULA),
        case("one_feature", args=problem(2, 3, 1, 4)).says("One feature is enough."),
        case("random", args=problem(2, 3, 5, 4)).says(_FORMULA),
        case("wide", args=problem(4, 3, 7, 2, strided=True)).says("It must hold for any sizes."),
    ]


def _edges(rng) -> list[Probe]:
    constant = _problem(rng, 2, 4, 3, 2)
    constant["values"].data[:] = constant["values"].data[:1]
    queries, keys = np.eye(2, 4) * 900.0, [[5, -9, 0, 0], [1, -4, 0, 0], [-2, -13, 0, 0]]
    # each query has one key, whose value is 0: neither row sum nor root matters
    large = _of(queries, keys, [[0, 0], [0, 0], [3, 5]], rng.normal(0, 1, (2, 2)))
    return [
        edge("equal_values", args=constant).says(
            "If all values are equal, the outputs do not depend on queries and keys, so their "
            "gradients are 0."
        ),
        edge("one_key", args=_problem(rng, 3, 1, 2, 4)).says(
            "With a single key, the weight is 1 and only the value gets a gradient."
        ),
        edge("large_scores", args=large).says("Large scores must not overflow."),
    ]


@in_steps(
    correct=lambda weights, grad: weights * (grad - (weights * grad).sum(-1, keepdim=True)),
    scale=True,
    transpose=True,
)
def _backward(correct, scale, transpose) -> Callable:
    """A wrong backward pass; `correct` makes dS of the weights and their gradient."""

    def model(
        queries, keys, values, grad_outputs
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        root = math.sqrt(queries.shape[-1])
        weights = torch.softmax(queries @ keys.mT / root, -1)
        grad_scores = correct(weights, grad_outputs @ values.mT) / (root if scale else 1.0)
        turned = grad_scores.mT if transpose else grad_scores
        return grad_scores @ keys, turned @ queries, weights.mT @ grad_outputs

    return model


_NAMES = ("grad_queries", "grad_keys", "grad_values")


def _multiples(probe, outputs) -> str | None:
    """Gradients that are those of the formula but for a factor."""
    right = oracle.attention_backward(*(value.data for value in probe.inputs().values()))
    d, said = probe.inputs()["queries"].data.shape[-1], []
    for name, ours, theirs in zip(_NAMES, right.outputs, outputs.items.values(), strict=True):
        factor = multiple_of(ours, theirs.data)
        if factor is not None:
            said.append(f"`{name}` is {factor:.4g} times what it should be in every entry.")
    return " ".join([*said, f"Here d is {d}."]) if said else None


_AUTOGRAD = "Here you work out the gradients by hand."

EXERCISE = Exercise(
    points=4,
    minutes=30,
    difficulty=3,
    starred=True,
    returns=(
        Returned("grad_queries", "tensor", "float", ("num_queries", "d")),
        Returned("grad_keys", "tensor", "float", ("num_keys", "d")),
        Returned("grad_values", "tensor", "float", ("num_keys", "v")),
    ),
    probes=lambda rng: [*_values(rng), *_edges(rng)],
    oracle=oracle.attention_backward,
    forbidden=dict.fromkeys(("backward", "grad", "_make_dual"), _AUTOGRAD),
    builds_on=("scaled_dot_product_attention",),
    properties=(
        Property(
            "gradient_times_a_factor",
            _multiples,
            "What factor do the scores have, and what sign?",
        ),
    ),
    mistakes=(
        mistake("row_sum_forgotten", _backward(lambda w, grad: w * grad)).says(
            "The row sum is missing: dS = W * dW forgets that raising one weight lowers the others "
            "of its row.",
            "What must the gradient of the scores of a row sum to?",
        ),
        mistake(
            "plain_mean", _backward(lambda w, grad: w * (grad - grad.mean(-1, keepdim=True)))
        ).says(
            "You subtract the plain mean of each row of dW, in which every key counts the same.",
            "Which mean uses the weights of the row?",
        ),
        mistake("root_forgotten", _backward(scale=False)).says(
            "The gradients of queries and keys lack the factor 1/sqrt(d).",
            "The scores are Q K^T / sqrt(d): what is their derivative with respect to Q?",
        ),
        mistake(
            "row_sum_without_axis",
            _backward(lambda w, grad: w * (grad - (w * grad).sum(-1))),
            fails=True,
        ).says(
            "Your row sums have shape (n,) and are broadcast along the keys. That raises an error "
            "or, with as many keys as queries, subtracts the sums of other rows.",
            "Which argument of `sum` keeps the axis, so that the shape is (n, 1)?",
        ),
        mistake("not_transposed", _backward(transpose=False), fails=True).says(
            "The gradient of the keys needs dS transposed: key j collects from all queries i.",
            "Which axis of dS must meet the rows of Q?",
        ),
        mistake(
            "column_sum", _backward(lambda w, grad: w * (grad - (w * grad).sum(-2, keepdim=True)))
        ).says(
            "You sum W * dW over the queries; a softmax couples the keys of one query.",
            "Along which axis do the weights sum to 1?",
        ),
    ),
    hints=(
        "Go back step by step: outputs = W V, then W = softmax(S), then S = Q K^T / sqrt(d). A "
        "product A B sends G B^T to A and A^T G to B.",
        "Let the shapes lead. dV is (m, v): which product of W (n, m) and G (n, v) is that? Which "
        "product is dW, (n, m)? Then each row of dS comes from a row of dW as in 'First the "
        "softmax alone', and S is again a product, divided by sqrt(d).",
        "Check one gradient at a time against autograd. dV needs the weights alone. Then one row "
        "of the softmax: with weights (1/2, 1/2) and gradient (1, 0) the scores get (1/4, -1/4). "
        "Go on to dQ and dK only when that holds, and see which of them the root belongs to.",
    ),
)
