"""Lesson 04: the score of every query and key, a small network instead of a product."""

import functools
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import BETWEEN, Given, case, edge, mistake
from course_lib.reference import additive_attention as oracle


def _scores_problem(
    rng, b, n, m, d_q, d_k, h, *, scale=1.2, dtype: type[np.floating] = np.float64, **options
) -> Given:
    """Arguments of `additive_scores` with the given sizes."""
    shapes = {
        "queries": (b, n, d_q),
        "keys": (b, m, d_k),
        "w_q": (h, d_q),
        "w_k": (h, d_k),
        "w_v": (h,),
    }
    weights = {"w_q": 0.7, "w_k": 0.7}
    return {
        name: tensor(rng.normal(0, weights.get(name, scale), shape).astype(dtype), **options)
        for name, shape in shapes.items()
    }


_WORKED: Given = {
    "queries": tensor([[[1.0, 0.0]]]),
    "keys": tensor([[[2.0]]]),
    "w_q": tensor([[1.0, 0.0], [0.0, 1.0]]),
    "w_k": tensor([[0.0], [1.0]]),
    "w_v": tensor([1.0, 2.0]),
}


def _probes(rng) -> list[Probe]:
    problem = functools.partial(_scores_problem, rng)
    zeros = problem(1, 1, 1, 2, 3, 4)
    zeros["queries"].data[:] = zeros["keys"].data[:] = 0.0
    some = _scores_problem(rng, 2, 2, 3, 2, 1, 3, requires_grad=True)
    return [
        case("worked_number", **_WORKED).says(
            "The score of query i and key j is w_v . tanh(w_q q_i + w_k k_j)."
        ),
        case("different_sizes", **problem(2, 3, 5, 4, 6, 7)).says(
            "Queries, keys and hidden features may all differ in size."
        ),
        case("equal_feature_sizes", **problem(3, 2, 4, 6, 6, 7)).says(
            "Queries go through w_q and keys through w_k, even where either would fit."
        ),
        case("as_many_queries_as_keys", **problem(2, 5, 5, 4, 6, 7)).says(
            "Row i of the scores belongs to query i and column j to key j, also where n = m."
        ),
        case("hidden_as_wide_as_inputs", **problem(2, 3, 5, 6, 6, 6)).says(
            "A row of w_q belongs to a hidden feature, a column to an entry of the query."
        ),
        edge("one_pair_of_zeros", **zeros).says(
            "One item, one query, one key, all zeros: the result has three axes and holds 0."
        ),
        edge("large_inputs", **problem(2, 1, 3, 4, 2, 24, scale=4000.0)).says(
            "Large inputs saturate tanh at -1 and 1; they do not overflow."
        ),
        edge("between_calls", **problem(2, 3, 4, 5, 2, 6), **BETWEEN).says(
            "A call does not depend on the calls before it."
        ),
        edge("float32", **problem(2, 3, 4, 5, 2, 6, dtype=np.float32)).says(
            "Float32 inputs give float32 scores."
        ),
        case("gradient", **some, grad_outputs=rng.normal(size=(2, 2, 3))).says(
            "The gradients of all five inputs are those of the formula."
        ),
    ]


def _scores(combine) -> Callable:
    """A wrong model: `combine(projected queries, projected keys, w_v)`, each with its axes."""

    def model(queries, keys, w_q, w_k, w_v) -> torch.Tensor:
        return combine(queries @ w_q.mT, keys @ w_k.mT, w_v)

    return model


def _pairs(activation) -> Callable:
    """A wrong model that treats the (B, n, m, H) sum of the projections otherwise."""
    return _scores(lambda q, k, w_v: activation(q[:, :, None] + k[:, None], w_v))


def _weights(change) -> Callable:
    """A wrong model that projects with `change(w_q, w_k)`."""

    def model(queries, keys, w_q, w_k, w_v) -> torch.Tensor:
        w_q, w_k = change(w_q, w_k)
        sums = (queries @ w_q.mT)[:, :, None] + (keys @ w_k.mT)[:, None]
        return torch.tanh(sums) @ w_v

    return model


def _bounded(probe, outputs) -> str | None:
    """No score is larger than the sum of the sizes of w_v."""
    bound = float(np.abs(probe.args["w_v"].data).sum())
    scores = np.abs(np.asarray(outputs.data, dtype=float))
    if scores.ndim != 3 or not (scores > bound * 1.001).any():
        return None
    index = tuple(int(i) for i in np.argwhere(scores > bound * 1.001)[0])
    return (
        f"Your score of query {index[1]} and key {index[2]} of item {index[0]} has size "
        f"{scores[index]:.3f}. tanh lies between -1 and 1, so no score can exceed the sum of "
        f"the sizes of w_v, {bound:.3f}."
    )


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    returns=(Returned("scores", "tensor", "float", ("batch", "num_queries", "num_keys")),),
    probes=_probes,
    oracle=oracle.additive_scores,
    mistakes=(
        mistake("no_tanh", _pairs(lambda x, w_v: x @ w_v)).says(
            "Without tanh the score is one term from the query plus one term from the key. The "
            "softmax cancels the query's term, so every query has the same weights.",
            "Which step lets a query change the order of the keys?",
        ),
        mistake("squeezed", _pairs(lambda x, w_v: (torch.tanh(x) @ w_v[:, None]).squeeze())).says(
            "`squeeze()` without an axis removes every axis of size 1: with one item, one query or "
            "one key an axis is lost.",
            "Which axis do you want to remove?",
        ),
        mistake(
            "weights_swapped",
            _weights(lambda w_q, w_k: (w_k, w_q)),
            fails=True,
        ).says(
            "The queries go through w_k and the keys through w_q.",
            "Which of the two weights has query_size columns?",
        ),
        mistake("not_paired", _scores(lambda q, k, w_v: torch.tanh(q + k) @ w_v), fails=True).says(
            "You add the projections without new axes, so query i is added to key i only, or the "
            "shapes do not broadcast.",
            "What is the shape of a sum with one entry for every query, every key and every "
            "feature?",
        ),
        mistake(
            "weights_not_transposed",
            _weights(lambda w_q, w_k: (w_q.mT, w_k.mT)),
            fails=True,
        ).says(
            "You multiply by w_q and w_k as they are, but their rows belong to hidden features.",
            "Over which size does the product of (..., query_size) and w_q sum, and which axis of "
            "w_q has that size?",
        ),
        mistake("no_w_v", _pairs(lambda x, w_v: torch.tanh(x).sum(-1))).says(
            "You add up the hidden features without weighting them by w_v.",
            "Does every hidden feature count the same?",
        ),
    ),
    properties=(Property("score_out_of_bounds", _bounded, "Which numbers does w_v multiply?"),),
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
