"""`attention_backward`: the backward pass by hand, and the steps that get forgotten."""

import math

import torch

from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import scaled_dot_product as oracle


def _backward_probes(rng):
    def problem(n, m, d, v, scale=1.2, **options):
        shapes = {"queries": (n, d), "keys": (m, d), "values": (m, v), "grad_outputs": (n, v)}
        return {k: tensor(rng.normal(0, scale, s), **options) for k, s in shapes.items()}

    zero_query = problem(2, 5, 3, 4)
    zero_query["queries"] = tensor([[0.0] * 3] * 2)
    constant = problem(2, 4, 3, 2)
    constant["values"] = tensor(rng.normal(0, 1, (1, 2)).repeat(4, axis=0))
    large = problem(2, 3, 4, 2)
    large["queries"] = tensor([[900.0, 0, 0, 0], [0, 900.0, 0, 0]])
    large["keys"] = tensor([[5.0, -9.0, 0, 0], [1.0, -4.0, 0, 0], [-2.0, -13.0, 0, 0]])
    return [
        Probe(
            "tiny",
            "The three gradients must be those of softmax(Q K^T / sqrt(d)) V.",
            args={
                "queries": tensor([[1.0, 0.0, 0.0, 1.0]]),
                "keys": tensor([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]]),
                "values": tensor([[1.0], [3.0]]),
                "grad_outputs": tensor([[1.0]]),
            },
        ),
        Probe(
            "random",
            "The three gradients must be those of softmax(Q K^T / sqrt(d)) V.",
            args=problem(2, 3, 5, 4),
        ),
        Probe("wide", "It must hold for any number of features.", args=problem(4, 3, 7, 2)),
        Probe(
            "strided", "Non-contiguous inputs must work.", args=problem(2, 6, 3, 5, strided=True)
        ),
        Probe(
            "square",
            "As many queries as keys must not confuse dS with its transpose.",
            args=problem(4, 4, 3, 3),
        ),
        Probe(
            "zero_query",
            "With queries of 0 every weight is 1/m, and the keys get no gradient.",
            part="edges",
            args=zero_query,
        ),
        Probe(
            "equal_values",
            "If all values are equal, the outputs do not depend on queries and keys: their "
            "gradients are 0.",
            part="edges",
            args=constant,
        ),
        Probe(
            "one_key",
            "With a single key the weight is 1 and only the value gets a gradient.",
            part="edges",
            args=problem(3, 1, 2, 4),
        ),
        Probe(
            "float32",
            "Inputs in float32 give gradients in float32.",
            part="edges",
            args=problem(2, 4, 3, 5),
            dtype="float32",
            tolerance=1e-4,
        ),
        Probe(
            "large_scores",
            "Large scores must not overflow.",
            part="edges",
            args=large,
        ),
    ]


def _backward(
    scale=True,
    forward_scale=True,
    correct="row",
    dim=-1,
    transpose=True,
    swap=False,
    query_scale=None,
    key_scale=None,
    grad_values=lambda weights, grad, values: weights.mT @ grad,
    naive=False,
):
    """A wrong backward pass; `correct` is what is subtracted from dW."""

    def model(queries, keys, values, grad_outputs):
        root = math.sqrt(queries.shape[-1])
        scores = queries @ keys.mT / (root if forward_scale else 1.0)
        weights = torch.softmax(scores, dim)
        if naive:
            weights = torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)
        grad_weights = grad_outputs @ values.mT
        product = weights * grad_weights
        grad_scores = {
            "row": lambda: product - weights * product.sum(-1, keepdim=True),
            "none": lambda: product,
            "unweighted": lambda: product - weights * grad_weights.sum(-1, keepdim=True),
            "mean_of_product": lambda: product - weights * product.mean(-1, keepdim=True),
            "turned": lambda: weights * product.sum(-1, keepdim=True) - product,
            "mean": lambda: product - weights * grad_weights.mean(-1, keepdim=True),
            "column": lambda: product - weights * product.sum(-2, keepdim=True),
            "not_multiplied": lambda: grad_weights - product.sum(-1, keepdim=True),
            "plain_subtracted": lambda: product - product.sum(-1, keepdim=True),
            "no_softmax": lambda: grad_weights,
            "sigmoid": lambda: product * (1 - weights),
        }[correct]()
        factor = 1 / root if scale else 1.0
        grad_queries = grad_scores @ keys * (factor if query_scale is None else query_scale(root))
        turned = grad_scores.mT if transpose else grad_scores
        grad_keys = turned @ queries * (factor if key_scale is None else key_scale(root))
        last = grad_values(weights, grad_outputs, values)
        return (grad_keys, grad_queries, last) if swap else (grad_queries, grad_keys, last)

    return model


def _reshaped(queries, keys, values, grad_outputs):
    root = math.sqrt(queries.shape[-1])
    grads = _backward()(queries, keys, values, grad_outputs)
    weights = torch.softmax(queries @ keys.mT / root, -1)
    product = weights * (grad_outputs @ values.mT)
    grad_scores = product - weights * product.sum(-1, keepdim=True)
    return grads[0], grad_scores.reshape(len(keys), -1) @ queries / root, grads[2]


def _no_upstream(queries, keys, values, grad_outputs):
    return _backward()(queries, keys, values, torch.ones_like(grad_outputs))


def _values_with_grad_weights(weights, grad, values):
    return (grad @ values.mT).mT @ grad


_AUTOGRAD = "Here the gradients are worked out by hand."

ATTENTION_BACKWARD = Exercise(
    name="attention_backward",
    points=4,
    minutes=30,
    difficulty=3,
    returns=(
        Returned("grad_queries", "tensor", "float", ("num_queries", "d")),
        Returned("grad_keys", "tensor", "float", ("num_keys", "d")),
        Returned("grad_values", "tensor", "float", ("num_keys", "v")),
    ),
    probes=_backward_probes,
    oracle=oracle.attention_backward,
    forbidden=dict.fromkeys(("backward", "grad", "_make_dual"), _AUTOGRAD),
    builds_on=("scaled_dot_product_attention",),
    mistakes=(
        Mistake(
            "row_sum_forgotten",
            _backward(correct="none"),
            "The row sum is missing: dS = W * dW forgets that raising one weight lowers the others "
            "of its row.",
            "What must the gradient of the scores of a row sum to?",
        ),
        Mistake(
            "row_sum_and_root_forgotten",
            _backward(correct="none", scale=False),
            "Two things are missing: the row sum in dS, and 1/sqrt(d) in the gradients of queries "
            "and keys.",
            "What must the gradient of the scores of a row sum to?",
        ),
        Mistake(
            "root_forgotten",
            _backward(scale=False),
            "The gradients of queries and keys lack the factor 1/sqrt(d).",
            "The scores are Q K^T / sqrt(d): what is their derivative with respect to Q?",
        ),
        Mistake(
            "root_forgotten_for_keys",
            _backward(key_scale=lambda root: 1.0),
            "The gradient of the queries is right; that of the keys lacks the factor 1/sqrt(d).",
            "Does sqrt(d) belong to the queries or to the scores?",
        ),
        Mistake(
            "root_forgotten_for_queries",
            _backward(query_scale=lambda root: 1.0),
            "The gradient of the keys is right; that of the queries lacks the factor 1/sqrt(d).",
            "Does sqrt(d) belong to the queries or to the scores?",
        ),
        Mistake(
            "multiplied_by_root",
            _backward(query_scale=lambda root: root, key_scale=lambda root: root),
            "You multiply the gradients of queries and keys by sqrt(d).",
            "The scores are Q K^T / sqrt(d): what is their derivative with respect to Q?",
        ),
        Mistake(
            "divided_by_d",
            _backward(query_scale=lambda root: root**-2, key_scale=lambda root: root**-2),
            "sqrt(d) divides twice in the gradients of queries and keys.",
            "Did you divide dS as well as the result?",
        ),
        Mistake(
            "not_transposed",
            _backward(transpose=False),
            "The gradient of the keys needs dS transposed: key j collects from all queries i.",
            "Which axis of dS must meet the rows of Q?",
        ),
        Mistake(
            "values_not_transposed",
            _backward(grad_values=lambda weights, grad, values: weights @ grad),
            "The gradient of the values needs W transposed: value j collects from all queries i.",
            "Which axis of W must meet the rows of G?",
        ),
        Mistake(
            "queries_and_keys_swapped",
            _backward(swap=True),
            "The gradients of queries and keys are returned in each other's place.",
            "In which order are the three gradients asked for?",
        ),
        Mistake(
            "unscaled_forward",
            _backward(forward_scale=False),
            "Your weights come from scores without 1/sqrt(d).",
            "Which weights did the forward pass use?",
        ),
        Mistake(
            "unscaled_everywhere",
            _backward(forward_scale=False, scale=False),
            "1/sqrt(d) is missing everywhere: in the scores and in the gradients.",
            "Which forward pass is differentiated here?",
        ),
        Mistake(
            "row_sum_without_weights",
            _backward(correct="unweighted"),
            "You subtract the plain sum of dW over the row; it must be weighted by W.",
            "Row sum of what: dW, or W * dW?",
        ),
        Mistake(
            "row_mean",
            _backward(correct="mean"),
            "You subtract the plain mean of dW over the row; the mean must be weighted by W.",
            "Which mean does a softmax know?",
        ),
        Mistake(
            "row_mean_of_product",
            _backward(correct="mean_of_product"),
            "You subtract the mean of W * dW over the row; it must be the sum.",
            "The weights of a row sum to 1: is sum_j w_j dw_j a sum or a mean divided by m?",
        ),
        Mistake(
            "sign_turned",
            _backward(correct="turned"),
            "The gradients of queries and keys have the wrong sign.",
            "In dS = W * (dW - row sum), which of the two is subtracted?",
        ),
        Mistake(
            "reshaped_for_transposed",
            _reshaped,
            "In the gradient of the keys dS is reshaped to (m, n); it must be transposed.",
            "What is the difference between `reshape` and `mT`?",
        ),
        Mistake(
            "reverse_order",
            lambda *inputs: _backward()(*inputs)[::-1],
            "The gradients come in the order of the backward pass, values first; they are asked "
            "for in the order of the inputs.",
            "In which order are the three gradients asked for?",
        ),
        Mistake(
            "column_sum",
            _backward(correct="column"),
            "You sum W * dW over the queries; a softmax couples the keys of one query.",
            "Along which axis do the weights sum to 1?",
        ),
        Mistake(
            "not_multiplied_by_weights",
            _backward(correct="not_multiplied"),
            "The row sum is subtracted, but the difference must still be multiplied by W.",
            "What is the derivative of a weight with respect to its own score?",
        ),
        Mistake(
            "row_sum_not_weighted_back",
            _backward(correct="plain_subtracted"),
            "W * dW is right, but the row sum must be multiplied by W too before it is subtracted.",
            "Where do the brackets stand in W * (dW - row sum)?",
        ),
        Mistake(
            "softmax_skipped",
            _backward(correct="no_softmax"),
            "You take dW for dS: the softmax is not differentiated at all.",
            "Which step lies between the scores and the weights?",
        ),
        Mistake(
            "diagonal_of_softmax",
            _backward(correct="sigmoid"),
            "dS = W (1 - W) dW is the derivative of a sigmoid; a softmax also couples different "
            "keys.",
            "How does a weight answer to another key's score?",
        ),
        Mistake(
            "softmax_over_queries",
            _backward(dim=-2),
            "Your forward softmax runs over the queries.",
            "Along which axis do the weights sum to 1?",
        ),
        Mistake(
            "softmax_over_queries_throughout",
            _backward(dim=-2, correct="column"),
            "Your softmax runs over the queries, and its derivative with it.",
            "Along which axis do the weights sum to 1?",
        ),
        Mistake(
            "no_maximum_subtracted",
            _backward(naive=True),
            "The exponentials overflow for large scores.",
            "What does `torch.softmax` subtract before it takes exp?",
        ),
        Mistake(
            "upstream_ignored",
            _no_upstream,
            "The gradient that comes from above changes nothing: you take ones for it.",
            "Where does `grad_outputs` enter?",
        ),
        Mistake(
            "values_from_grad_weights",
            _backward(grad_values=_values_with_grad_weights),
            "The gradient of the values uses dW where W belongs.",
            "The outputs are W V: what is their derivative with respect to V?",
        ),
    ),
    hints=(
        "Go back step by step: outputs = W V, then W = softmax(S), then S = Q K^T / sqrt(d). A "
        "product A B sends G B^T to A and A^T G to B.",
        "dV = W^T G and dW = G V^T. Through the softmax of each row: dS = W * (dW - row sum of "
        "W * dW). Then dQ = dS K / sqrt(d) and dK = dS^T Q / sqrt(d).",
        "grad_weights = grad_outputs @ values.mT\n"
        "row_sums = (weights * grad_weights).sum(dim=-1, keepdim=True)\n"
        "grad_scores = weights * (...)\n"
        "return grad_scores @ keys / root, ..., weights.mT @ grad_outputs",
    ),
)
