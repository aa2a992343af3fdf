"""`jacobian_wrt_query`: the covariance of the keys under the weights."""

import math
from collections.abc import Callable

import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, Probe, tensor
from course_lib.exercises._attention.mistakes import unshifted, words
from course_lib.exercises._builders import case, edge, in_steps, mistake


def _probes(rng) -> list[Probe]:
    def normal(*shape, **options) -> Array:
        return tensor(rng.normal(0, 1.2, shape), **options)

    formula = "The Jacobian is the covariance of the keys under the weights, over sqrt(d)."
    key, scale = rng.normal(0, 1.2, 4), int(rng.integers(800, 1000))
    return [
        case("worked", query=[0.0] * 4, keys=[[1.0, 0, 0, 0], [3.0, 0, 0, 0]]).says(formula),
        case("balanced", query=[0.0] * 4, keys=[key, -key]).says(formula),
        case("wide", query=normal(7), keys=normal(4, 7)).says(formula),
        edge("one_feature", query=normal(1), keys=normal(3, 1)).says(
            "With one feature, the Jacobian must be a matrix of shape (1, 1)."
        ),
        edge(
            "saturated", query=[float(scale), 0.0], keys=[[1.0, 2.0], [9.0, -1.0], [3.0, 0.5]]
        ).says(
            "Where one key has all the weight, the Jacobian must be 0 and nothing may overflow."
        ),
    ]


@in_steps(
    divisor=math.sqrt,
    centred=True,
    scale=math.sqrt,
    mean=torch.matmul,
    weigh=True,
    normalize=lambda scores: scores.softmax(0),
)
def _covariance(divisor, centred, scale, mean, weigh, normalize) -> Callable:
    """Make a wrong covariance of the keys; each argument is one way to go wrong."""

    def model(query, keys) -> torch.Tensor:
        weights = normalize(keys @ query / scale(len(query)))
        keys = keys - mean(weights, keys) if centred else keys
        weights = weights if weigh else torch.full_like(weights, 1 / len(weights))
        return (weights[:, None] * keys).mT @ keys / divisor(len(query))

    return model


EXERCISE = Exercise(
    points=3,
    minutes=20,
    difficulty=3,
    builds_on=("scaled_dot_product_attention",),
    starred=True,
    returns=(Returned("jacobian", "tensor", "float", ("d", "d")),),
    probes=_probes,
    mistakes=(
        mistake(
            "no_root", _covariance(divisor=lambda d: 1.0), twins=(_covariance(divisor=lambda d: d),)
        ).says(
            "The covariance is right, but it must be divided by sqrt(d), not by 1 or d.",
            "The query enters through q . k / sqrt(d). What factor does the chain rule leave?",
        ),
        mistake("second_moment", _covariance(centred=False)).says(
            "You do not subtract the mean: this is the second moment of the keys, not their "
            "covariance.",
            "A covariance measures how far the keys lie from which point?",
        ),
        mistake(
            "unscaled_weights",
            _covariance(scale=lambda d: 1.0),
            twins=(
                _covariance(scale=lambda d: 1.0, divisor=lambda d: 1.0),
                _covariance(scale=lambda d: d),
            ),
        ).says(
            "Your weights do not come from q . k / sqrt(d): the divisor is missing, or it is d "
            "itself.",
            "Which scores does attention take the softmax of?",
        ),
        mistake("unstable", _covariance(normalize=lambda scores: unshifted(scores, 0))).says(
            *words("unstable")
        ),
        mistake(
            "plain_mean",
            _covariance(mean=lambda weights, keys: keys.mean(0)),
            twins=(
                _covariance(weigh=False),
                _covariance(weigh=False, mean=lambda weights, keys: keys.mean(0)),
            ),
        ).says(
            "You average without the weights somewhere, in the mean of the keys or in the "
            "covariance itself. Each key counts with its weight in both.",
            "Which of your averages does not use the weights?",
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
