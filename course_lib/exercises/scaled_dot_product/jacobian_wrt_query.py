"""`jacobian_wrt_query`: a covariance of the keys under the weights."""

import math
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._rows import case, edge, in_steps, mistake
from course_lib.exercises.scaled_dot_product._problems import multiple_of
from course_lib.reference import scaled_dot_product as oracle


def _jacobian_probes(rng) -> list[Probe]:
    def normal(*shape, **options) -> Array:
        return tensor(rng.normal(0, 1.2, shape), **options)

    formula = "The Jacobian is the covariance of the keys under the weights, over sqrt(d)."
    zero = tensor([0.0] * 4)
    return [
        case("worked", query=zero, keys=[[1.0, 0, 0, 0], [3.0, 0, 0, 0]]).says(formula),
        case("balanced", query=zero, keys=[[1.0, 0, 0, 2.0], [-1.0, 0, 0, -2.0]]).says(formula),
        case("mirrored", query=[0.0], keys=[[1.0], [-1.0]]).says(formula),
        case("random", query=normal(3), keys=normal(5, 3)).says(formula),
        case("wide", query=normal(7), keys=normal(4, 7, strided=True)).says(formula),
        edge("saturated", query=[900.0, 0.0], keys=[[1.0, 2.0], [9.0, -1.0], [3.0, 0.5]]).says(
            "Where one key has all the weight, the Jacobian is 0 and nothing overflows."
        ),
        edge("one_feature", query=normal(1), keys=normal(4, 1)).says(
            "With d = 1 the Jacobian is a 1 x 1 matrix."
        ),
    ]


@in_steps(divisor=math.sqrt, centred=True, weighted=True, scale=math.sqrt)
def _covariance(divisor, centred, weighted, scale) -> Callable:
    """A wrong covariance of the keys; each argument is one way to go wrong."""

    def model(query, keys) -> torch.Tensor:
        weights = torch.softmax(keys @ query / scale(len(query)), 0)
        weights = weights if weighted else torch.full_like(weights, 1 / len(keys))
        keys = keys - weights @ keys if centred else keys
        return (weights[:, None] * keys).mT @ keys / divisor(len(query))

    return model


def _corrected(query, keys) -> torch.Tensor:
    """`torch.cov` with its own correction, which divides by 1 - sum of squared weights."""
    weights = torch.softmax(keys @ query / math.sqrt(len(query)), 0)
    covariance = torch.cov(keys.mT, aweights=weights) / math.sqrt(len(query))
    return covariance.reshape(len(query), len(query))


def _of_softmax(query, keys) -> torch.Tensor:
    weights = torch.softmax(keys @ query / math.sqrt(len(query)), 0)
    return (torch.diag(weights) - torch.outer(weights, weights)) / math.sqrt(len(query))


def _asymmetric(probe, outputs) -> str | None:
    matrix = outputs.data
    apart = abs(matrix - matrix.T)
    if not np.isfinite(matrix).all() or apart.max() < 1e-6:
        return None
    a, b = (int(i) for i in np.unravel_index(apart.argmax(), apart.shape))
    return (
        f"Your Jacobian is not symmetric: entry ({a}, {b}) is {matrix[a, b]:.3g}, entry ({b}, {a}) "
        f"is {matrix[b, a]:.3g}."
    )


def _multiple(probe, outputs) -> str | None:
    right = oracle.jacobian_wrt_query(*(value.data for value in probe.inputs().values())).outputs
    if (factor := multiple_of(right, outputs.data)) is None:
        return None
    return (
        f"Every entry is {factor:.4g} times what it should be, with {len(right)} features and "
        f"{len(probe.inputs()['keys'].data)} keys."
    )


EXERCISE = Exercise(
    points=3,
    minutes=20,
    difficulty=3,
    starred=True,
    returns=(Returned("jacobian", "tensor", "float", ("d", "d")),),
    probes=_jacobian_probes,
    oracle=oracle.jacobian_wrt_query,
    mistakes=(
        mistake("no_root", _covariance(divisor=lambda d: 1.0)).says(
            "The covariance is right, but it must be divided by sqrt(d).",
            "The query enters through q . k / sqrt(d). What factor does the chain rule leave?",
        ),
        mistake("second_moment", _covariance(centred=False)).says(
            "You forgot to subtract the mean: this is the second moment of the keys, not their "
            "covariance.",
            "How much does the sum of all weights change?",
        ),
        mistake("unweighted", _covariance(weighted=False)).says(
            "This is the plain covariance of the keys: every key counts the same, whatever its "
            "weight.",
            "Where do the attention weights enter?",
        ),
        mistake("unscaled_weights", _covariance(scale=lambda d: 1.0)).says(
            "Your weights come from q . k without the division by sqrt(d).",
            "Which scores does attention take the softmax of?",
        ),
        mistake("corrected_covariance", _corrected).says(
            "`torch.cov` applies a sample correction unless you pass `correction=0`; the weights "
            "are a complete distribution.",
            "What does `correction` do?",
        ),
        mistake("jacobian_of_softmax", _of_softmax).says(
            "This is the Jacobian of the weights with respect to the scores, (m, m). The query "
            "moves the scores, and the weights move the output: both steps are missing.",
            "Which two products with the keys lead from (m, m) to (d, d)?",
        ),
    ),
    properties=(
        Property("not_symmetric", _asymmetric, "Which two factors make a covariance symmetric?"),
        Property(
            "all_times_a_factor",
            _multiple,
            "What do you divide the covariance by, and do you divide any sum by the number of "
            "keys?",
        ),
    ),
    hints=(
        "Differentiate o = sum_j w_j k_j. Moving q changes the scores by k_j . dq / sqrt(d). How "
        "does a softmax respond to a change in its scores?",
        "dw_j = w_j (ds_j - sum_i w_i ds_i). Substitute ds_j = k_j . dq / sqrt(d), and you find "
        "the covariance of the keys under the weights, over sqrt(d). Centre the keys at the "
        "weighted mean first.",
        "Two keys in one dimension, 0 and 1, and q = 0: the weights are 1/2 each, the "
        "weighted mean is 1/2, the covariance 1/4. With d features the same weighted sum of "
        "products is one matrix product of the centred keys with themselves. On which side do "
        "the weights go?",
    ),
)
