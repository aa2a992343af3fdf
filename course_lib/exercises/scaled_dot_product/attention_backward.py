"""`attention_backward`: the backward pass by hand."""

import math
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._attention.mistakes import unshifted, words
from course_lib.exercises._builders import Given, case, edge, in_steps, mistake

_FORMULA = "The three gradients must be those of softmax(Q K^T / sqrt(d)) V."


def _problem(rng, n, m, d, v, **options) -> Given:
    shapes = {"queries": (n, d), "keys": (m, d), "values": (m, v), "grad_outputs": (n, v)}
    return {
        "args": {k: tensor(rng.normal(0, 1.2, shape), **options) for k, shape in shapes.items()}
    }


def _probes(rng) -> list[Probe]:
    worked = {
        "queries": [[0.0, 0, 0, 2]],
        "keys": [[1.0, 0, 0, 0], [3, 0, 0, 0]],
        "values": [[1.0], [3.0]],
        "grad_outputs": [[1.0]],
    }
    # Each query has one key with value 0, so that row sums and the root have no effect.
    large = {
        "queries": np.eye(2, 4) * 900.0,
        "keys": [[5.0, -9, 0, 0], [1, -4, 0, 0], [-2, -13, 0, 0]],
        "values": [[0.0, 0], [0, 0], [3, 5]],
        "grad_outputs": rng.normal(0, 1, (2, 2)),
    }
    return [
        case("worked", args=worked).says(_FORMULA),
        case("balanced", args=worked | {"values": [[-1.0], [1.0]]}).says(_FORMULA),
        case("one_feature", **_problem(rng, 2, 3, 1, 4)).says("Inputs with one feature must work."),
        case("random", **_problem(rng, 2, 3, 5, 4)).says(_FORMULA),
        case("wide", **_problem(rng, 4, 3, 7, 2)).says("It must hold for any sizes."),
        edge("one_key", **_problem(rng, 3, 1, 2, 4)).says(
            "With a single key, the weight is 1 and queries and keys have gradient 0."
        ),
        edge("large_scores", args=large).says("Large scores must not overflow."),
    ]


@in_steps(
    correct=lambda weights, grad: weights * (grad - (weights * grad).sum(-1, keepdim=True)),
    scale=(True, True),
    transpose=True,
    of_values=lambda weights, grad: weights.mT @ grad,
    normalize=lambda scores: scores.softmax(-1),
)
def _backward(correct, scale, transpose, of_values, normalize) -> Callable:
    """Make a wrong backward pass, with `correct(weights, gradient)` for dS."""

    def model(
        queries, keys, values, grad_outputs
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        root = math.sqrt(queries.shape[-1])
        weights = normalize(queries @ keys.mT / root)
        grad_scores = correct(weights, grad_outputs @ values.mT)
        for_queries, for_keys = (grad_scores / (root if by_root else 1.0) for by_root in scale)
        turned = for_keys.mT if transpose else for_keys
        return for_queries @ keys, turned @ queries, of_values(weights, grad_outputs)

    return model


EXERCISE = Exercise(
    points=4,
    minutes=30,
    difficulty=3,
    builds_on=("scaled_dot_product_attention",),
    starred=True,
    returns=(
        Returned("grad_queries", "tensor", "float", ("num_queries", "d")),
        Returned("grad_keys", "tensor", "float", ("num_keys", "d")),
        Returned("grad_values", "tensor", "float", ("num_keys", "v")),
    ),
    probes=_probes,
    forbidden=dict.fromkeys(
        ("*backward*", "grad", "make_dual"), "Here you work out the gradients by hand."
    ),
    mistakes=(
        mistake("row_sum_forgotten", _backward(lambda w, grad: w * grad)).says(
            "The row sum is missing: dS = W * dW forgets that raising one score lowers the other "
            "weights of its row.",
            "What must the gradient of the scores of a row sum to?",
        ),
        mistake(
            "root_forgotten",
            _backward(scale=(False, False)),
            twins=(_backward(scale=(True, False)), _backward(scale=(False, True))),
        ).says(
            "The gradients of queries or keys, or both, lack the factor 1/sqrt(d).",
            "The scores are Q K^T / sqrt(d): what is their derivative with respect to Q and K?",
        ),
        mistake(
            "not_transposed",
            _backward(transpose=False),
            twins=(_backward(of_values=torch.matmul),),
        ).says(
            "The gradients of the keys and of the values need dS and the weights transposed, "
            "because key j collects from all queries i. You leave out at least one transpose.",
            "Over which axis of dS, and of the weights, does each product sum?",
        ),
        mistake("unstable", _backward(normalize=unshifted)).says(*words("unstable")),
        mistake("over_queries", _backward(normalize=lambda scores: scores.softmax(0))).says(
            *words("over_queries")
        ),
        mistake(
            "row_sum_of_something_else",
            _backward(lambda w, grad: w * (grad - grad.sum(-1, keepdim=True))),
            twins=(
                _backward(lambda w, grad: w * (grad - grad.mean(-1, keepdim=True))),
                _backward(lambda w, grad: w * (grad - (w * grad).sum(0, keepdim=True))),
                _backward(lambda w, grad: w * (grad - (w * grad).mean(-1, keepdim=True))),
                _backward(lambda w, grad: w * ((w * grad).sum(-1, keepdim=True) - grad)),
            ),
        ).says(
            "You combine dW with a sum, but not as dW - sum(W * dW) over each row: another "
            "sum, a mean, another axis, or the opposite sign.",
            "What is the derivative of a weight in its own score, and in another score of its row?",
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
