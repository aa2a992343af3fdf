"""`leave_one_out`: predict every point from the others."""

import functools
import math

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises.kernel_pooling._problems import normal, points
from course_lib.exercises.kernel_pooling.kernel_pooling import half_missing as of_pooling
from course_lib.exercises.kit import Problems, call, edge, like, mistake, worded_like


def problems(rng) -> Problems:
    def drawn(count, **options) -> list[Array]:
        """Draw inputs and targets."""
        inputs = tensor(points(rng, count), **options)
        return [inputs, tensor(normal(rng, count) + 1.5, **options)]

    twins = (normal(rng, 4) + np.array([1.5, 4.0, -1.0, 7.0]))[[0, 1, 2, 1, 1, 3]]
    far = [np.array([-1.0, 6.2, 0.3, 0.0]), drawn(4)[1]]
    free, learned = drawn(5, requires_grad=True), drawn(6)
    yield (
        "A prediction is the kernel average of the other targets; a point's own target must not "
        "count."
    )
    yield call([-1.0, 0.0, 1.0], [10.0, 99.0, 40.0], 1)
    yield "The prediction at i must be the kernel average of all targets except the one at i."
    yield call(*drawn(7), 1.2)
    yield "A lone point must be predicted as 0, and its gradients must be 0."
    alone = drawn(1, requires_grad=True)
    yield edge(*alone, 1.0, scenario="with_a_graph", grad_outputs=np.ones(1))
    yield (
        "If two points have the same input, each must leave out only itself. Its twin counts, and "
        "so does a point with the same target."
    )
    yield edge([0.0, 1.0, 2.5, 1.0, 1.75, 2.5], twins, 1.0)
    yield "A point must be predicted from its neighbors even if they are many bandwidths away."
    yield edge(*far, 1.0)
    yield "In float32, too, a point far from the others must be predicted by them."
    yield edge(*far, 1.0, dtype="float32")
    yield "The predictions must be differentiable in inputs and targets."
    yield call(*free, 1.0, grad_outputs=normal(rng, 5))
    yield "The bandwidth may be a tensor, and the predictions must be differentiable in it."
    bandwidth = tensor(np.array(1.3), requires_grad=True)
    yield call(*learned, bandwidth, grad_outputs=normal(rng, 6))


def scores_of(inputs, bandwidth) -> Tensor:
    return -(inputs[:, None] - inputs).square() / (2 * bandwidth**2)


def diagonal(inputs) -> Tensor:
    return torch.eye(len(inputs), dtype=torch.bool)


def softmax(scores) -> Tensor:
    return torch.softmax(scores, -1).nan_to_num(0.0)


@mistake
def no_exclusion(inputs, targets, bandwidth) -> Tensor:
    """Each point still counts in its own prediction. A score of 0 on the diagonal does not leave it
    out, because exp(0) = 1 is the largest value of the kernel.

    For which score is the exponential 0?
    """
    return softmax(scores_of(inputs, bandwidth)) @ targets


@like(no_exclusion)
def no_exclusion_unless_alone(inputs, targets, bandwidth) -> Tensor:
    return softmax(scores_of(inputs, bandwidth)) * (len(inputs) > 1) @ targets


@mistake
def not_renormalised(inputs, targets, bandwidth) -> Tensor:
    """You change each point's own weight or its own target, for example to 0, but the other weights
    stay as they were and do not sum to 1.

    What do the other weights sum to, and what should they sum to?
    """
    return softmax(scores_of(inputs, bandwidth)) * ~diagonal(inputs) @ targets


@mistake
def twins_left_out(inputs, targets, bandwidth) -> Tensor:
    """Where two points share an input, you leave out both: you exclude by value (distance 0)
    instead of by index.

    Which entries are the pairs (i, i)?
    """
    scores = scores_of(inputs, bandwidth)
    return softmax(scores.masked_fill(scores == 0, -math.inf)) @ targets


@mistake
@worded_like(of_pooling)
def half_missing(inputs, targets, bandwidth) -> Tensor:
    scores = 2 * scores_of(inputs, bandwidth)
    return softmax(scores.masked_fill(diagonal(inputs), -math.inf)) @ targets


@mistake
def own_share_subtracted(inputs, targets, bandwidth) -> Tensor:
    """You subtract the point's own share from a result computed from all points. Where that share
    is almost 1, the small remainder is lost to rounding.

    Which step would leave the point out before anything is added up?
    """
    weights = softmax(scores_of(inputs, bandwidth))
    own = weights.diagonal()
    return (weights @ targets - own * targets) / (1 - own if len(inputs) > 1 else 1)


@mistake
def small_number_added(inputs, targets, bandwidth, more=1e-9) -> Tensor:
    """You add a small number to the sum of the kernels, so the prediction shrinks toward 0 where
    that sum is small, too.

    When exactly is the sum 0, and can you treat only that case?
    """
    kernel = scores_of(inputs, bandwidth).exp() * ~diagonal(inputs)
    return kernel / (kernel.sum(-1, keepdim=True) + more) @ targets


for more in (1e-6, 1e-8, 1e-10):
    like(small_number_added)(functools.partial(small_number_added, more=more))


@mistake
def single_point_nan(inputs, targets, bandwidth) -> Tensor:
    """Where there are no other points to average, your prediction is NaN or the point's own target
    instead of 0.

    What should be predicted where nothing is left to average?
    """
    scores = scores_of(inputs, bandwidth).masked_fill(diagonal(inputs), -math.inf)
    return torch.softmax(scores, -1) @ targets


@like(single_point_nan)
def single_point_repeated(inputs, targets, bandwidth) -> Tensor:
    scores = scores_of(inputs, bandwidth).masked_fill(diagonal(inputs), -1e9)
    return torch.softmax(scores, -1) @ targets


@mistake
def over_another_axis(inputs, targets, bandwidth) -> Tensor:
    """Your softmax runs over the wrong axis, so the weights of a prediction need not sum to 1.

    Which axis of your scores holds the points whose targets are averaged?
    """
    scores = scores_of(inputs, bandwidth).masked_fill(diagonal(inputs), -math.inf)
    return softmax(scores).mT @ targets


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    builds_on=("squared_distances", "kernel_pooling"),
    starred=True,
    returns=(Returned("predictions", "tensor", "float", ("num_points",)),),
    probes=problems,
    hints=(
        "The inputs are both queries and keys, so the weights form a square matrix. Which of its "
        "entries must be 0, and what must the others then sum to?",
        "`squared_distances` expects a row of features for each point, which here makes a column. "
        "Where in the scores does a point meet itself, and which of the three ways in section 5 "
        "removes it? `torch.eye` and `masked_fill` may help.",
        "A smaller version first: the three points of the worked example. Row 1 of your weights "
        "must be (0.5, 0, 0.5). Then a single point: nothing is left in its row. What does the "
        "softmax make of that, and how do you get a prediction of 0?",
    ),
)
