"""`kernel_pooling`: a weighted average, with weights from a Gaussian kernel."""

import functools

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises._attention.mistakes import OverQueries
from course_lib.exercises._attention.properties import RETURNED
from course_lib.exercises.kernel_pooling._problems import far_from_all, minus_half_squared, normal
from course_lib.exercises.kernel_pooling.squared_distances import root_squared as of_distances
from course_lib.exercises.kit import Problems, call, edge, like, mistake, worded_like


def drawn(rng, n, m, d, v, **options) -> list[Array]:
    """Draw queries, keys and values."""
    return [tensor(normal(rng, *shape), **options) for shape in ((n, d), (m, d), (m, v))]


def problems(rng) -> Problems:
    far = drawn(rng, 4, 5, 2, 3)
    far[0].data[1::2], far[1].data[:] = far_from_all(rng)
    flat = normal(rng, 2, 3), normal(rng, 4, 3), normal(rng, 4)
    free = drawn(rng, 2, 4, 2, 3, requires_grad=True)
    met = drawn(rng, 2, 3, 1, 2, requires_grad=True)
    met[0].data[:], met[1].data[:] = [[1.0], [0.5]], [[0.0], [1.0], [3.0]]
    yield "Kernels of 1, 1/2 and 1/4, for example, must give weights of 4/7, 2/7 and 1/7."
    yield call([[0.0]], [[0.0], [1.1774], [1.6651]], [[7.0], [14.0], [28.0]], 1)
    yield "Every size must work."
    yield call(*drawn(rng, 3, 5, 4, 2), 0.8)
    yield "A query whose kernels are all below 1e-6 must get weights that sum to 1, too."
    yield call([[0.0, 0.0]], [[5.4, 0.0], [0.0, 5.6], [5.5, 0.5]], normal(rng, 3, 4), 1.0)
    yield "The bandwidth may be a tensor."
    yield call(*drawn(rng, 5, 3, 2, 4), np.array(1.3))
    yield (
        "A query far from every key must get weights that sum to 1: its nearest keys count, even "
        "though every exp underflows to 0."
    )
    yield edge(*far, 1.0)
    yield "Values with only one axis must raise a ValueError."
    yield edge(*flat, 1.0, raises="ValueError")
    yield "Float32 inputs must give float32 outputs and weights."
    yield edge(*drawn(rng, 3, 4, 2, 5), 0.9, dtype="float32")
    yield "The outputs must be differentiable in queries, keys and values."
    yield call(*free, 1.1, grad_outputs=normal(rng, 2, 3))
    yield "Where a query equals a key, the gradient must be finite."
    yield call(*met, 1.0, grad_outputs=normal(rng, 2, 2))


def pooled(values, weights) -> tuple[Tensor, Tensor]:
    if values.dim() != 2:
        raise ValueError("values")
    return weights @ values, weights


@mistake
@worded_like(OverQueries)
def over_queries(queries, keys, values, bandwidth) -> tuple[Tensor, Tensor]:
    scores = minus_half_squared(queries, keys) / bandwidth**2
    return pooled(values, torch.softmax(scores, 0))


@mistake
def half_missing(queries, keys, values, bandwidth) -> tuple[Tensor, Tensor]:
    """The factor 1/2 is missing: your kernel is as narrow as one of bandwidth h / sqrt 2.

    What is the denominator in exp(-distance^2 / (2 h^2))?
    """
    return pooled(values, torch.softmax(2 * minus_half_squared(queries, keys) / bandwidth**2, -1))


@mistake
def bandwidth_not_squared(queries, keys, values, bandwidth) -> tuple[Tensor, Tensor]:
    """The bandwidth is not squared: your exponent is -distance^2 / (2 h).

    What are the units of distance^2, and of h?
    """
    return pooled(values, torch.softmax(minus_half_squared(queries, keys) / bandwidth, -1))


@mistake
def bandwidth_multiplies(queries, keys, values, bandwidth) -> tuple[Tensor, Tensor]:
    """You multiply the distances by the bandwidth instead of dividing them by it.

    Should a larger bandwidth make the weights wider or narrower?
    """
    return pooled(values, torch.softmax(minus_half_squared(queries, keys) * bandwidth**2, -1))


@mistake
def distance_not_squared(queries, keys, values, bandwidth, divisor=2) -> tuple[Tensor, Tensor]:
    """Your exponent contains the distance itself, not its square.

    Which power of the distance is in exp(-distance^2 / (2 h^2))?
    """
    distances = (-2 * minus_half_squared(queries, keys)).sqrt()
    return pooled(values, torch.softmax(-distances / divisor / bandwidth**2, -1))


@like(distance_not_squared)
def distance_over_bandwidth(queries, keys, values, bandwidth) -> tuple[Tensor, Tensor]:
    return distance_not_squared(queries, keys, values, bandwidth, 2 / bandwidth)


@mistake
@worded_like(of_distances)
def root_squared(queries, keys, values, bandwidth) -> tuple[Tensor, Tensor]:
    scores = -(((-2 * minus_half_squared(queries, keys)).sqrt() / bandwidth) ** 2) / 2
    return pooled(values, torch.softmax(scores, -1))


@mistake
def plus_distance(queries, keys, values, bandwidth) -> tuple[Tensor, Tensor]:
    """The sign is wrong: the farthest key gets the largest weight.

    Should a large distance give a large score or a small one?
    """
    return pooled(values, torch.softmax(-minus_half_squared(queries, keys) / bandwidth**2, -1))


@mistake
def underflow(queries, keys, values, bandwidth, more=0.0) -> tuple[Tensor, Tensor]:
    """You divide exponentials by their sum. They underflow to 0 for a query far enough from all
    keys (or, if you subtract one maximum from all scores, much farther than others). If a small
    number is added to the sum, the weights come out too small instead.

    Which function divides exponentials by their sum without underflow?
    """
    kernel = torch.exp(minus_half_squared(queries, keys) / bandwidth**2)
    return pooled(values, kernel / (kernel.sum(-1, keepdim=True) + more))


for more in (1e-6, 1e-8, 1e-9, 1e-10, 1e-12):
    like(underflow)(functools.partial(underflow, more=more))


EXERCISE = Exercise(
    points=5,
    minutes=15,
    difficulty=2,
    builds_on=("squared_distances",),
    returns=(
        Returned("outputs", "tensor", "float", ("num_queries", "v")),
        Returned("attention_weights", axes=("num_queries", "num_keys"), differentiable=True),
    ),
    probes=problems,
    properties=RETURNED,
    hints=(
        "Two steps: turn distances into weights that sum to 1 for each query, then average the "
        "values with them. Which matrix product averages for all queries at once?",
        "Section 3: exponentials divided by their total are a softmax. Which numbers go into it, "
        "and over which axis must it sum to 1? Check the shape of `values` before anything else.",
        "A smaller version first: the worked example, one query at 0. Its scores are 0, -0.693 and "
        "-1.386: minus ln 1, ln 2 and ln 4. Print yours before the softmax. Is the sign right? "
        "The 2? The square of the bandwidth?",
    ),
)
