"""`jacobian_wrt_query`: a covariance of the keys under the weights."""

import math

import numpy as np
import torch

from course_lib.checks.exercise import Exercise, Mistake, Property, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import scaled_dot_product as oracle


def _jacobian_probes(rng):
    def normal(*shape, scale=1.2, **options):
        return tensor(rng.normal(0, scale, shape), **options)

    same = rng.normal(0, 1, (1, 3)).repeat(4, axis=0)
    return [
        Probe(
            "two_keys",
            "With two keys of equal weight the Jacobian is the covariance of the keys over "
            "sqrt(d).",
            args={
                "query": tensor([0.0, 0.0, 0.0, 0.0]),
                "keys": tensor([[1.0, 0, 0, 2.0], [3.0, 0, 0, -2.0]]),
            },
        ),
        Probe(
            "random",
            "The Jacobian is the covariance of the keys under the weights, over sqrt(d).",
            args={"query": normal(3), "keys": normal(5, 3)},
        ),
        Probe(
            "wide",
            "It must hold for any number of features.",
            args={"query": normal(7), "keys": normal(4, 7)},
        ),
        Probe(
            "strided",
            "A non-contiguous tensor of keys must work.",
            args={"query": normal(5), "keys": normal(4, 5, strided=True)},
        ),
        Probe(
            "shifted_keys",
            "Moving all keys by the same vector moves the output with them and leaves the "
            "Jacobian as it is.",
            args={"query": normal(3), "keys": tensor(rng.normal(0, 1.2, (5, 3)) + 3.0)},
        ),
        Probe(
            "equal_keys",
            "If all keys are equal the output does not depend on the query: the Jacobian is 0.",
            part="edges",
            args={"query": normal(3), "keys": tensor(same)},
        ),
        Probe(
            "saturated",
            "Where one key has all the weight the Jacobian is 0, and nothing overflows.",
            part="edges",
            args={
                "query": tensor([900.0, 0.0]),
                "keys": tensor([[1.0, 2.0], [9.0, -1.0], [3.0, 0.5]]),
            },
        ),
        Probe(
            "float32",
            "Inputs in float32 give a Jacobian in float32.",
            part="edges",
            args={"query": normal(3), "keys": normal(5, 3)},
            dtype="float32",
            tolerance=1e-4,
        ),
        Probe(
            "one_feature",
            "With d = 1 the Jacobian is a 1 x 1 matrix.",
            part="edges",
            args={"query": normal(1), "keys": normal(4, 1)},
        ),
    ]


def _covariance(
    root=lambda d: math.sqrt(d),
    centre="weighted",
    weighted=True,
    weights_scale=lambda d: math.sqrt(d),
    factor=lambda m: 1.0,
    finish=lambda matrix: matrix,
    axis_softmax=True,
    naive=False,
):
    """A wrong covariance of the keys; each argument is one way to go wrong."""

    def model(query, keys):
        d, m = query.shape[0], keys.shape[0]
        scores = keys @ query / weights_scale(d)
        weights = torch.softmax(scores, 0) if axis_softmax else torch.exp(scores)
        if naive:
            weights = torch.exp(scores) / torch.exp(scores).sum()
        spread = weights if weighted else torch.full_like(weights, 1 / m)
        mean = {
            "weighted": lambda: weights @ keys,
            "plain": lambda: keys.mean(0),
            "own": lambda: spread @ keys,
            "none": lambda: torch.zeros_like(query),
        }[centre]()
        centred = keys - mean
        return finish((spread[:, None] * centred).mT @ centred * factor(m) / root(d))

    return model


def _by_cov(weighted=True, square=True, **options):
    """The covariance by `torch.cov`, which loses the axes of a single feature."""

    def model(query, keys):
        if weighted:
            options["aweights"] = torch.softmax(keys @ query / len(query) ** 0.5, 0)
        covariance = torch.cov(keys.mT, **options) / len(query) ** 0.5
        return covariance.reshape(len(query), len(query)) if square else covariance

    return model


def _weighted_twice(query, keys):
    weights = torch.softmax(keys @ query / math.sqrt(len(query)), 0)
    centred = weights[:, None] * (keys - weights @ keys)
    return centred.mT @ centred / math.sqrt(len(query))


def _of_softmax(query, keys):
    weights = torch.softmax(keys @ query / math.sqrt(len(query)), 0)
    return (torch.diag(weights) - torch.outer(weights, weights)) / math.sqrt(len(query))


def _root_of_num_keys(query, keys):
    root = math.sqrt(len(keys))
    return _covariance(root=lambda d: root, weights_scale=lambda d: root)(query, keys)


def _asymmetric(probe, outputs):
    matrix = outputs.data
    if not np.isfinite(matrix).all() or abs(matrix - matrix.T).max() < 1e-6:
        return None
    return (
        f"Your Jacobian is not symmetric: entry (0, 1) is {matrix[0, 1]:.3f}, entry (1, 0) is "
        f"{matrix[1, 0]:.3f}."
    )


JACOBIAN_WRT_QUERY = Exercise(
    name="jacobian_wrt_query",
    points=3,
    minutes=20,
    difficulty=3,
    returns=(Returned("jacobian", "tensor", "float", ("d", "d")),),
    probes=_jacobian_probes,
    oracle=oracle.jacobian_wrt_query,
    mistakes=(
        Mistake(
            "no_root",
            _covariance(root=lambda d: 1.0),
            "The covariance is right, but it must be divided by sqrt(d).",
            "The query enters through q . k / sqrt(d): what does the chain rule leave behind?",
        ),
        Mistake(
            "divided_by_d",
            _covariance(root=lambda d: d),
            "You divide the covariance by d.",
            "How often does sqrt(d) enter on the way from the query to the output?",
        ),
        Mistake(
            "second_moment",
            _covariance(centre="none"),
            "You forgot to subtract the mean: this is the second moment of the keys, not their "
            "covariance.",
            "By how much do the weights of all keys together change?",
        ),
        Mistake(
            "second_moment_no_root",
            _covariance(centre="none", root=lambda d: 1.0),
            "You forgot to subtract the mean, and to divide by sqrt(d).",
            "By how much do the weights of all keys together change?",
        ),
        Mistake(
            "unweighted",
            _covariance(weighted=False, centre="own"),
            "This is the plain covariance of the keys: every key counts the same, whatever its "
            "weight.",
            "Where do the attention weights enter?",
        ),
        Mistake(
            "unweighted_sample",
            _covariance(weighted=False, centre="own", factor=lambda m: m / (m - 1)),
            "This is the sample covariance of the keys (`torch.cov`): every key counts the same.",
            "Where do the attention weights enter?",
        ),
        Mistake(
            "unweighted_no_root",
            _covariance(weighted=False, centre="own", root=lambda d: 1.0),
            "Every key counts the same here, and the division by sqrt(d) is missing.",
            "Where do the attention weights enter?",
        ),
        Mistake(
            "unbiased",
            _covariance(factor=lambda m: m / (m - 1)),
            "You correct for a sample, by m / (m - 1). The weights are a whole distribution, not a "
            "sample.",
            "What do the weights sum to?",
        ),
        Mistake(
            "corrected_covariance",
            _by_cov(),
            "`torch.cov` corrects for a sample unless told `correction=0`; the weights are a whole "
            "distribution.",
            "What does `correction` do?",
        ),
        Mistake(
            "corrected_covariance_without_axes",
            _by_cov(square=False),
            "`torch.cov` corrects for a sample unless told `correction=0`; the weights are a whole "
            "distribution. Besides, with d = 1 it returns a number without axes.",
            "What does `correction` do?",
        ),
        Mistake(
            "unweighted_covariance_without_axes",
            _by_cov(weighted=False, square=False, correction=0),
            "This is the plain covariance of the keys: every key counts the same, whatever its "
            "weight. Besides, with d = 1 `torch.cov` returns a number without axes.",
            "Where do the attention weights enter?",
        ),
        Mistake(
            "one_feature_without_axes",
            _by_cov(square=False, correction=0),
            "The numbers are right, but with d = 1 `torch.cov` returns a number without axes.",
            "Which shape has the Jacobian of one number with respect to one number here?",
        ),
        Mistake(
            "weighted_twice",
            _weighted_twice,
            "Both factors of the product are weighted, so the weights enter squared.",
            "How often does w stand in sum_j w_j (k_j - mean) (k_j - mean)^T?",
        ),
        Mistake(
            "jacobian_of_softmax",
            _of_softmax,
            "This is the Jacobian of the weights with respect to the scores, (m, m). The query "
            "moves the scores, and the weights move the output: both steps are missing.",
            "Which two products with the keys lead from (m, m) to (d, d)?",
        ),
        Mistake(
            "times_root",
            _covariance(root=lambda d: 1 / math.sqrt(d)),
            "The covariance is right, but you multiply by sqrt(d) instead of dividing.",
            "The query enters through q . k / sqrt(d): what does the chain rule leave behind?",
        ),
        Mistake(
            "root_of_num_keys",
            _root_of_num_keys,
            "You divide by the square root of the number of keys, not of features.",
            "Over which axis does the dot product sum, and how long is that axis?",
        ),
        Mistake(
            "no_maximum_subtracted",
            _covariance(naive=True),
            "The exponentials overflow for large scores.",
            "What does `torch.softmax` subtract before it takes exp?",
        ),
        Mistake(
            "divided_by_number",
            _covariance(factor=lambda m: 1 / m),
            "You average over the keys after weighting them: the weights sum to 1 already.",
            "What do the weights sum to?",
        ),
        Mistake(
            "divided_by_number_less_one",
            _covariance(factor=lambda m: 1 / (m - 1)),
            "You divide by m - 1 after weighting: the weights sum to 1 already.",
            "What do the weights sum to?",
        ),
        Mistake(
            "centred_at_plain_mean",
            _covariance(centre="plain"),
            "You subtract the plain mean of the keys; the mean under the weights is the output.",
            "Which mean does a covariance under the weights w subtract?",
        ),
        Mistake(
            "unscaled_weights",
            _covariance(weights_scale=lambda d: 1.0),
            "Your weights come from q . k without the division by sqrt(d).",
            "Which scores does attention take the softmax of?",
        ),
        Mistake(
            "unscaled_everywhere",
            _covariance(weights_scale=lambda d: 1.0, root=lambda d: 1.0),
            "sqrt(d) is missing twice: in the scores, and in front of the covariance.",
            "Which function of the query do you differentiate?",
        ),
        Mistake(
            "only_the_diagonal",
            _covariance(finish=lambda matrix: torch.diag(matrix.diag())),
            "Only the diagonal is filled: the variance of each feature without the covariances.",
            "What does feature 0 of the output do when feature 1 of the query changes?",
        ),
        Mistake(
            "negative",
            _covariance(finish=lambda matrix: -matrix),
            "The sign is wrong: a query that moves towards a key moves the output towards it.",
            "Which of the two terms of the softmax's derivative is subtracted?",
        ),
        Mistake(
            "not_normalised",
            _covariance(axis_softmax=False),
            "Your weights are exponentials that do not sum to 1.",
            "By what must exp(score) be divided?",
        ),
    ),
    properties=(
        Property("not_symmetric", _asymmetric, "Which two factors make a covariance symmetric?"),
    ),
    hints=(
        "Differentiate o = sum_j w_j k_j. Moving q changes the scores by k_j . dq / sqrt(d); how "
        "does a softmax answer to a change of its scores?",
        "dw_j = w_j (ds_j - sum_i w_i ds_i). Put ds_j = k_j . dq / sqrt(d) in, and you find the "
        "covariance of the keys under the weights, over sqrt(d). Centre the keys at the weighted "
        "mean first.",
        "weights = torch.softmax(keys @ query / math.sqrt(d), dim=-1)\n"
        "centred = keys - weights @ keys\n"
        "return (weights * centred.mT) @ ... / ...",
    ),
)
