"""`attention_backward`: the backward pass by hand."""

import functools
import math
from typing import Any

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned, Rules
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises import kit
from course_lib.exercises._attention import mistakes as of_any_attention
from course_lib.exercises._attention.mistakes import unshifted
from course_lib.exercises.kit import Problems, like, mistake, worded_like

Gradients = tuple[Tensor, Tensor, Tensor]


def call(*arrays: Any, part="values") -> Probe:
    """Return a call without a backward pass of torch's."""
    return kit.call(*arrays, part=part)


def problems(rng) -> Problems:
    def drawn(n, m, d, v) -> Any:
        shapes = ((n, d), (m, d), (m, v), (n, v))
        return [tensor(rng.normal(0, 1.2, shape)) for shape in shapes]

    worked: Any = [[0.0, 0, 0, 2]], [[1.0, 0, 0, 0], [3, 0, 0, 0]]
    # Each query has one key with value 0, so that row sums and the root have no effect.
    large = np.eye(2, 4) * 900.0, [[5.0, -9, 0, 0], [1, -4, 0, 0], [-2, -13, 0, 0]]
    upstream = rng.normal(0, 1, (2, 2))
    formula = "The three gradients must be those of softmax(Q K^T / sqrt(d)) V."
    yield formula
    yield call(*worked, [[1.0], [3.0]], [[1.0]])
    yield call(*worked, [[-1.0], [1.0]], [[1.0]])
    yield "Inputs with one feature must work."
    yield call(*drawn(2, 3, 1, 4))
    yield formula
    yield call(*drawn(2, 3, 5, 4))
    yield "It must hold for any sizes."
    yield call(*drawn(4, 3, 7, 2))
    yield call(*drawn(3, 3, 4, 2))
    yield "With a single key, the weight is 1 and queries and keys have gradient 0."
    yield call(*drawn(3, 1, 2, 4), part="edges")
    yield "Large scores must not overflow."
    yield call(*large, [[0.0, 0], [0, 0], [3, 5]], upstream, part="edges")


def scores_of(queries, keys) -> Tensor:
    return queries @ keys.mT / math.sqrt(queries.shape[-1])


def of_scores(weights, grad) -> Tensor:
    """Return the gradient of the scores from that of the weights."""
    return weights * (grad - (weights * grad).sum(-1, keepdim=True))


def sent_back(queries, keys, grad_outputs, weights, grad_scores) -> Gradients:
    """Return the three gradients for the gradient of the scores."""
    grad_scores = grad_scores / math.sqrt(queries.shape[-1])
    return grad_scores @ keys, grad_scores.mT @ queries, weights.mT @ grad_outputs


@mistake
def row_sum_forgotten(queries, keys, values, grad_outputs) -> Gradients:
    """The row sum is missing: dS = W * dW forgets that raising one score lowers the other weights
    of its row.

    What must the gradient of the scores of a row sum to?
    """
    w = scores_of(queries, keys).softmax(-1)
    return sent_back(queries, keys, grad_outputs, w, w * (grad_outputs @ values.mT))


@mistake
def softmax_skipped(queries, keys, values, grad_outputs) -> Gradients:
    """You use the gradient of the weights as that of the scores, as if there were no softmax.

    How does a small change of one score change the weights of its row?
    """
    w = scores_of(queries, keys).softmax(-1)
    return sent_back(queries, keys, grad_outputs, w, grad_outputs @ values.mT)


@mistake
def diagonal_only(queries, keys, values, grad_outputs) -> Gradients:
    """You use only the derivative of each weight with respect to its own score, W * (1 - W). A
    score also changes the other weights of its row.

    What is the derivative of a weight with respect to another score of its row?
    """
    w = scores_of(queries, keys).softmax(-1)
    return sent_back(queries, keys, grad_outputs, w, w * (1 - w) * (grad_outputs @ values.mT))


@mistake
def root_forgotten(queries, keys, values, grad_outputs, for_queries=1, for_keys=1) -> Gradients:
    """The gradients of the queries, the keys or both have a factor other than 1/sqrt(d), such as 1.

    The scores are Q K^T / sqrt(d): what is their derivative with respect to Q and K?
    """
    root, w = math.sqrt(queries.shape[-1]), scores_of(queries, keys).softmax(-1)
    grad_scores = of_scores(w, grad_outputs @ values.mT)
    *gradients, of_values = sent_back(queries, keys, grad_outputs, w, grad_scores)
    return gradients[0] * root**for_queries, gradients[1] * root**for_keys, of_values


for factors in ({"for_queries": 0}, {"for_keys": 0}, {"for_queries": -1, "for_keys": -1}):
    like(root_forgotten)(functools.partial(root_forgotten, **factors))


@mistake
def not_transposed(queries, keys, values, grad_outputs) -> Gradients:
    """The gradients of the keys and of the values need dS and the weights transposed, because key j
    collects from all queries i. You leave out at least one transpose.

    Over which axis of dS, and of the weights, does each product sum?
    """
    w = scores_of(queries, keys).softmax(-1)
    grad_scores = of_scores(w, grad_outputs @ values.mT) / math.sqrt(queries.shape[-1])
    return grad_scores @ keys, grad_scores @ queries, w.mT @ grad_outputs


@like(not_transposed)
def weights_not_transposed(queries, keys, values, grad_outputs) -> Gradients:
    w = scores_of(queries, keys).softmax(-1)
    grad_scores = of_scores(w, grad_outputs @ values.mT)
    gradients = sent_back(queries, keys, grad_outputs, w, grad_scores)
    return *gradients[:2], w @ grad_outputs


@mistake
@worded_like(of_any_attention.Unscaled)
def unscaled(queries, keys, values, grad_outputs) -> Gradients:
    w = (queries @ keys.mT).softmax(-1)
    grad_scores = of_scores(w, grad_outputs @ values.mT)
    return grad_scores @ keys, grad_scores.mT @ queries, w.mT @ grad_outputs


@like(unscaled)
def unscaled_weights(queries, keys, values, grad_outputs) -> Gradients:
    w = (queries @ keys.mT).softmax(-1)
    grad_scores = of_scores(w, grad_outputs @ values.mT)
    return sent_back(queries, keys, grad_outputs, w, grad_scores)


@mistake
@worded_like(of_any_attention.Unstable)
def unstable(queries, keys, values, grad_outputs) -> Gradients:
    w = unshifted(scores_of(queries, keys))
    return sent_back(queries, keys, grad_outputs, w, of_scores(w, grad_outputs @ values.mT))


@mistake
@worded_like(of_any_attention.OverQueries)
def over_queries(queries, keys, values, grad_outputs) -> Gradients:
    w = scores_of(queries, keys).softmax(0)
    return sent_back(queries, keys, grad_outputs, w, of_scores(w, grad_outputs @ values.mT))


@mistake
def row_sum_of_something_else(
    queries, keys, values, grad_outputs, of=lambda w, grad: w * (grad - grad.sum(-1, True))
) -> Gradients:
    """The gradient of the scores is W * (dW - sum(W * dW)), with a sum over each row. You leave out
    the first W, or you have another sum, a factor, a mean, another axis or the opposite sign.

    What is the derivative of a weight in its own score, and in another score of its row?
    """
    w, grad = scores_of(queries, keys).softmax(-1), grad_outputs @ values.mT
    return sent_back(queries, keys, grad_outputs, w, of(w, grad))


for of in (
    lambda w, grad: w * (grad - grad.mean(-1, True)),
    lambda w, grad: w * (grad - (w * grad).sum(0, True)),
    lambda w, grad: w * (grad - (w * grad).mean(-1, True)),
    lambda w, grad: w * (grad - 2 * (w * grad).sum(-1, True)),
    lambda w, grad: grad - (w * grad).sum(-1, True),
    lambda w, grad: -of_scores(w, grad),
):
    like(row_sum_of_something_else)(functools.partial(row_sum_of_something_else, of=of))


EXERCISE = Exercise(
    points=4,
    minutes=30,
    difficulty=3,
    returns=(
        Returned("grad_queries", "tensor", "float", ("num_queries", "d")),
        Returned("grad_keys", "tensor", "float", ("num_keys", "d")),
        Returned("grad_values", "tensor", "float", ("num_keys", "v")),
    ),
    probes=problems,
    hints=(
        "Go back step by step: outputs = W V, then W = softmax(S), then S = Q K^T / sqrt(d). A "
        "product A B sends G B^T to A and A^T G to B.",
        "Let the shapes lead. dV is (m, v): which product of W (n, m) and G (n, v) is that? Which "
        "product is dW, (n, m)? Then each row of dS comes from a row of dW as in 'The "
        "softmax alone', and S is again a product, divided by sqrt(d).",
        "Check one gradient at a time against autograd. dV needs the weights alone. Then one row "
        "of the softmax: with weights (1/2, 1/2) and gradient (1, 0) the scores get (1/4, -1/4). "
        "Go on to dQ and dK only when that holds, and see which of them the root belongs to.",
    ),
    rules=Rules(
        forbidden=dict.fromkeys(
            ("*backward*", "grad", "make_dual"), "Here you work out the gradients by hand."
        )
    ),
)
