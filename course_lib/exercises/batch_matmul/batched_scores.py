"""`batched_scores`: queries times keys, the first product of attention."""

import math
from collections.abc import Callable

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import FLOAT32, Given, case, edge, mistake
from course_lib.exercises.batch_matmul import _products as both
from course_lib.exercises.batch_matmul._products import reshaped


def _queries_keys(rng, queries_shape, num_keys, **options) -> Given:
    keys_shape = (*queries_shape[:-2], num_keys, queries_shape[-1])
    return {
        "queries": tensor(rng.normal(0, 1.3, queries_shape), **options),
        "keys": tensor(rng.normal(0, 1.3, keys_shape), **options),
    }


def _probes(rng) -> list[Probe]:
    by_hand = {"queries": [[[1.0, 2.0, 0.0]]], "keys": [[[1.0, 0.0, 5.0], [0.0, 10.0, 5.0]]]}
    free = _queries_keys(rng, (2, 3, 2, 1), 4, requires_grad=True)
    return [
        case("worked", args=by_hand).says(
            "The score of query i and key j is their dot product, row times row."
        ),
        case("rectangular", **_queries_keys(rng, (2, 3, 4), 5)).says(
            "Query i meets key j of the same item: scores (..., num_queries, num_keys)."
        ),
        case("four_axes", **_queries_keys(rng, (2, 3, 4, 5), 6)).says(
            "With heads, (batch, heads, n, d), each head has its own scores."
        ),
        edge("no_leading_axis", **_queries_keys(rng, (3, 4), 2)).says(
            "Queries (n, d) and keys (m, d) without a batch must work."
        ),
        edge("one_of_each", **_queries_keys(rng, (1, 1, 1), 1)).says(
            "One query and one key must give one score that keeps its axes."
        ),
        edge("float32", **_queries_keys(rng, (2, 3, 4), 5), **FLOAT32).says(
            "The scores must have the dtype of queries and keys."
        ),
        case("gradients", **free, grad_outputs=rng.normal(size=(2, 3, 2, 4))).says(
            "The scores must be differentiable in queries and keys."
        ),
    ]


def _scores(model) -> Callable:
    """Multiply the queries by `model(keys)`, which have as many features."""

    def scores(queries, keys) -> torch.Tensor:
        assert queries.shape[-1] == keys.shape[-1], "a weighted sum is another exercise"
        return queries @ model(keys)

    return scores


EXERCISE = Exercise(
    points=3,
    minutes=12,
    difficulty=2,
    builds_on=("bmm",),
    returns=(Returned("scores", "tensor", "float", ("...", "num_queries", "num_keys")),),
    probes=_probes,
    mistakes=(
        mistake("reshape_for_transpose", _scores(reshaped)).says(
            "You turn the keys from (m, d) to (d, m) with a reshape. The shape is right, but a "
            "reshape keeps the numbers in order and only breaks them into different rows, so a "
            "column can mix several keys.",
            both.NOT_TURNED,
        ),
        mistake("not_transposed", _scores(lambda keys: keys)).says(
            "You multiply queries and keys without a transpose. The sum then runs over the keys "
            "instead of the features, and the sizes may not match.",
            "Which sizes meet in the middle of (n, d) times (m, d), and which have to?",
        ),
        mistake(
            "only_three_axes",
            lambda queries, keys: torch.einsum("bnd,bmd->bnm", queries, keys),
            twins=(
                _scores(lambda keys: keys.transpose(1, 2)),
                lambda queries, keys: torch.bmm(queries, keys.transpose(1, 2)),
            ),
        ).says(*both.ONLY_THREE_AXES),
        mistake(
            "scaled_already", lambda queries, keys: queries @ keys.mT / math.sqrt(queries.shape[-1])
        ).says(
            "The scores are divided by sqrt(d). That comes in lesson 05; this exercise asks for "
            "the raw dot products.",
            "Which step of your code is not part of a dot product?",
        ),
        mistake(
            "normalized",
            lambda q, k: (q / q.norm(dim=-1, keepdim=True)) @ (k / k.norm(dim=-1, keepdim=True)).mT,
        ).says(
            "You divide the products by the lengths of query and key. These are cosines, and the "
            "exercise asks for the raw dot products.",
            "Which step of your code is not part of a dot product?",
        ),
        mistake(
            "queries_transposed",
            lambda queries, keys: queries.mT @ keys,
            twins=(
                lambda queries, keys: queries.mT @ keys.mT,
                lambda queries, keys: keys.mT @ queries,
            ),
        ).says(
            "Each query must be a row of the left factor. You transpose it or put it on the right.",
            "Which sizes meet in the middle of (n, d) times (d, m)?",
        ),
    ),
    hints=(
        "One query and one key give one number, the sum of the products of their d entries. A "
        "matrix product multiplies rows with columns; here both are rows.",
        "Swap the last two axes of the keys, (..., m, d) to (..., d, m), so that a matrix product "
        "sums over d. Count axes from the end, and do not reshape.",
        "return queries @ keys.transpose(..., ...)\n"
        "# or: torch.einsum('...nd,...md->...', queries, keys)",
    ),
)
