"""`additive_scores`: scores of all pairs of a query and a key by a small network."""

import functools
from collections.abc import Callable

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import BETWEEN, FLOAT32, Given, case, edge, mistake


def _problem(rng, b, n, m, d_q, d_k, h, **options) -> Given:
    shapes = {
        "queries": (b, n, d_q),
        "keys": (b, m, d_k),
        "w_q": (h, d_q),
        "w_k": (h, d_k),
        "w_v": (h,),
    }
    return {k: tensor(rng.normal(0, 1.0, shape), **options) for k, shape in shapes.items()}


def _probes(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    worked = {
        "queries": [[[1.0, 0.0]]],
        "keys": [[[2.0]]],
        "w_q": [[1.0, 0.0], [0.0, 1.0]],
        "w_k": [[0.0], [1.0]],
        "w_v": [1.0, 2.0],
    }
    zeros = problem(1, 1, 1, 2, 3, 4) | {"queries": [[[0.0, 0.0]]], "keys": [[[0.0, 0.0, 0.0]]]}
    leaves = _problem(rng, 2, 2, 3, 2, 1, 3, requires_grad=True)
    return [
        case("worked_number", **worked).says(
            "The score of query i and key j is w_v . tanh(w_q q_i + w_k k_j)."
        ),
        case("different_sizes", **problem(2, 3, 5, 4, 6, 7)).says(
            "Queries, keys and hidden features may all differ in size."
        ),
        edge("as_many_queries_as_keys", **problem(2, 5, 5, 4, 6, 7)).says(
            "Row i of the scores belongs to query i and column j to key j, also where n = m."
        ),
        case("equal_feature_sizes", **problem(3, 2, 4, 6, 6, 7)).says(
            "Queries go through w_q and keys through w_k, even where either would fit."
        ),
        edge("square_weights", **problem(2, 3, 4, 5, 5, 5)).says(
            "The rows of w_q and w_k belong to the hidden features, even if queries and keys have "
            "H features, too."
        ),
        edge("large_sums", **worked | {"queries": [[[1000.0, -900.0]]]}).says(
            "The tanh of a large sum is 1 or -1, and no step may overflow."
        ),
        edge("one_pair_of_zeros", **zeros).says(
            "With one item, query and key, all zeros, the result must have three axes and hold 0."
        ),
        edge("between_calls", **problem(2, 3, 4, 5, 2, 6), **BETWEEN).says(
            "A call must not depend on the calls before it."
        ),
        edge("float32", **problem(2, 3, 4, 5, 2, 6), **FLOAT32).says(
            "Float32 inputs must give float32 scores."
        ),
        case("gradient", **leaves, grad_outputs=rng.normal(size=(2, 2, 3))).says(
            "The gradients of all five inputs must match the formula."
        ),
    ]


def _scores(combine) -> Callable:
    """Score with `combine(projected queries, projected keys, w_v)`."""
    return lambda queries, keys, w_q, w_k, w_v: combine(queries @ w_q.mT, keys @ w_k.mT, w_v)


def _projected(change) -> Callable:
    """Project with `change(w_q, w_k)`."""

    def model(queries, keys, w_q, w_k, w_v) -> torch.Tensor:
        w_q, w_k = change(w_q, w_k)
        return torch.tanh((queries @ w_q.mT)[:, :, None] + (keys @ w_k.mT)[:, None]) @ w_v

    return model


def _of_each(activation) -> Callable:
    """Add a term from the query and a term from the key."""
    return _scores(
        lambda q, k, w_v: (activation(q) @ w_v)[:, :, None] + (activation(k) @ w_v)[:, None]
    )


def _paired(activation) -> Callable:
    """Score each pair with another activation."""
    return _scores(lambda q, k, w_v: activation(q[:, :, None] + k[:, None]) @ w_v)


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    returns=(Returned("scores", "tensor", "float", ("batch", "num_queries", "num_keys")),),
    probes=_probes,
    mistakes=(
        mistake("no_tanh", _of_each(lambda x: x)).says(
            "Your scores lack the tanh. Each is one term from the query plus one term from the "
            "key, and a softmax over the keys cancels the query's term.",
            "Which step lets a query change the order of the keys?",
        ),
        mistake("tanh_of_each", _of_each(torch.tanh)).says(
            "You take the tanh of queries and keys separately. The score is then one term from the "
            "query plus one term from the key, and a softmax over the keys cancels the query's "
            "term.",
            "Does the tanh come before or after the sum of query and key?",
        ),
        mistake("not_paired", _scores(lambda q, k, w_v: torch.tanh(q + k) @ w_v)).says(
            "You add the projections without new axes, so queries and keys share one axis. Each "
            "query must meet every key.",
            "What is the shape of a sum with one entry for every query, every key and every "
            "feature?",
        ),
        mistake("weights_not_transposed", _projected(lambda w_q, w_k: (w_q.mT, w_k.mT))).says(
            "You multiply by w_q and w_k without a transpose, but their rows belong to hidden "
            "features and their columns to the features of queries and keys.",
            "Over which size does each of the two products sum, and which axis of w_q and of w_k "
            "has that size?",
        ),
    ),
    hints=(
        "Every query meets every key, in H features. First project both to H features; then give "
        "each a new axis of size 1, so that their sum has one entry for each pair.",
        "Project: (B, n, H) and (B, m, H). Make them (B, n, 1, H) and (B, 1, m, H) and add: (B, "
        "n, m, H). Then tanh, then a sum over the last axis, weighted by w_v.",
        "Try it small: one item, two queries, three keys, H = 1. Print the shapes of the "
        "projected queries and keys once each has its new axis, then the shape of their sum. "
        "Which of its entries belongs to query 1 and key 2? Only the last axis is left for "
        "`w_v`.",
    ),
)
