"""`jacobian_wrt_query`: the covariance of the keys under the weights."""

import math

import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._attention import mistakes as of_any_attention
from course_lib.exercises._attention.mistakes import unshifted
from course_lib.exercises.kit import Problems, call, edge, like, mistake, worded_like


def problems(rng) -> Problems:
    def normal(*shape) -> Array:
        return tensor(rng.normal(0, 1.2, shape))

    key, scale = rng.normal(0, 1.2, 4), int(rng.integers(800, 1000))
    yield "The Jacobian is the covariance of the keys under the weights, over sqrt(d)."
    yield call([0.0] * 4, [[1.0, 0, 0, 0], [3.0, 0, 0, 0]])
    yield call([0.0] * 4, [key, -key])
    yield call(normal(7), normal(4, 7))
    yield "With one feature, the Jacobian must be a matrix of shape (1, 1)."
    yield edge(normal(1), normal(3, 1))
    yield "Float32 arguments must give the Jacobian with the precision of float32."
    yield edge(normal(5), normal(3, 5), dtype="float32")
    yield "Where one key has all the weight, the Jacobian must be 0 and nothing may overflow."
    yield edge([float(scale), 0.0], [[1.0, 2.0], [9.0, -1.0], [3.0, 0.5]])


def scaled(query, keys) -> Tensor:
    return keys @ query / math.sqrt(len(query))


def covariance(weights, keys, divisor) -> Tensor:
    keys = keys - weights @ keys
    return (weights[:, None] * keys).mT @ keys / divisor


@mistake
def no_root(query, keys) -> Tensor:
    """The covariance is right, but it must be divided by sqrt(d), not by 1 or d.

    The query enters through q . k / sqrt(d). What factor does the chain rule leave?
    """
    return covariance(scaled(query, keys).softmax(0), keys, 1.0)


@like(no_root)
def divided_by_d(query, keys) -> Tensor:
    return covariance(scaled(query, keys).softmax(0), keys, len(query))


@mistake
def second_moment(query, keys) -> Tensor:
    """This is not the whole covariance of the keys. You do not subtract the mean, you add it, or
    you keep only the variances on the diagonal.

    A covariance measures how far the keys lie from which point?
    """
    weights = scaled(query, keys).softmax(0)
    return (weights[:, None] * keys).mT @ keys / math.sqrt(len(query))


@like(second_moment)
def only_variances(query, keys) -> Tensor:
    whole = covariance(scaled(query, keys).softmax(0), keys, math.sqrt(len(query)))
    return whole.diag().diag()


@like(second_moment)
def mean_added(query, keys) -> Tensor:
    mean = scaled(query, keys).softmax(0) @ keys
    return second_moment(query, keys) + mean.outer(mean) / math.sqrt(len(query))


@mistake
def unscaled_weights(query, keys) -> Tensor:
    """Your weights do not come from q . k / sqrt(d): the divisor is missing, or it is d itself.

    Which scores does attention take the softmax of?
    """
    return covariance((keys @ query).softmax(0), keys, math.sqrt(len(query)))


@like(unscaled_weights)
def no_root_at_all(query, keys) -> Tensor:
    return covariance((keys @ query).softmax(0), keys, 1.0)


@like(unscaled_weights)
def scores_divided_by_d(query, keys) -> Tensor:
    return covariance((keys @ query / len(query)).softmax(0), keys, math.sqrt(len(query)))


@mistake
@worded_like(of_any_attention.Unstable)
def unstable(query, keys) -> Tensor:
    return covariance(unshifted(scaled(query, keys), 0), keys, math.sqrt(len(query)))


@mistake
def plain_mean(query, keys) -> Tensor:
    """You average without the weights somewhere, in the mean of the keys or in the covariance
    itself. Each key counts with its weight in both.

    Which of your averages does not use the weights?
    """
    weights, centred = scaled(query, keys).softmax(0), keys - keys.mean(0)
    return (weights[:, None] * centred).mT @ centred / math.sqrt(len(query))


@like(plain_mean)
def no_weights_at_all(query, keys) -> Tensor:
    centred = keys - keys.mean(0)
    return centred.mT @ centred / len(keys) / math.sqrt(len(query))


@like(plain_mean)
def sample_covariance(query, keys) -> Tensor:
    return torch.cov(keys.mT) / math.sqrt(len(query))


@mistake
def of_the_sum(query, keys) -> Tensor:
    """You return a different derivative, such as that of the weights or of the sum of the outputs.

    Each entry is the derivative of which number with respect to which other?
    """
    weights = scaled(query, keys).softmax(0)
    return covariance(weights, keys, math.sqrt(len(query))).sum(0)


@like(of_the_sum)
def of_the_weights(query, keys) -> Tensor:
    weights = scaled(query, keys).softmax(0)
    return weights[:, None] * (keys - weights @ keys) / math.sqrt(len(query))


@like(of_the_sum)
def of_the_weights_in_the_scores(query, keys) -> Tensor:
    weights = scaled(query, keys).softmax(0)
    return weights.diag() - weights.outer(weights)


EXERCISE = Exercise(
    points=3,
    minutes=20,
    difficulty=3,
    starred=True,
    returns=(Returned("jacobian", "tensor", "float", ("d", "d")),),
    probes=problems,
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
