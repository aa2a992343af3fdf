"""`leave_one_out`: predict every point from the others."""

import functools
import math
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import FLOAT32, Given, case, edge, mistake
from course_lib.exercises.kernel_pooling._problems import gaussian, normal, points


def _problem(rng, count, bandwidth, spread=3.0, **options) -> Given:
    return {
        "inputs": tensor(points(rng, count, spread), **options),
        "targets": tensor(normal(rng, count) + 1.5, **options),
        "bandwidth": bandwidth,
    }


def _probes(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    twins = (normal(rng, 4) + np.array([1.5, 4.0, -1.0, 7.0]))[[0, 1, 2, 1, 1, 3]]
    far = problem(4, 1.0) | {"inputs": tensor(np.array([-1.0, 6.2, 0.3, 0.0]))}
    free = _problem(rng, 5, 1.0, requires_grad=True)
    alone: Given = {"scenario": "with_a_graph", "grad_outputs": np.ones(1)}
    learned = _problem(rng, 6, tensor(np.array(1.3), requires_grad=True))
    return [
        case("worked", inputs=[-1.0, 0.0, 1.0], targets=[10.0, 99.0, 40.0], bandwidth=1).says(
            "A prediction is the kernel average of the other targets; a point's own target must "
            "not count."
        ),
        case("general", **problem(7, 1.2)).says(
            "The prediction at i must be the kernel average of all targets except the one at i."
        ),
        edge("alone", **_problem(rng, 1, 1.0, requires_grad=True), **alone).says(
            "A lone point must be predicted as 0, and its gradients must be 0."
        ),
        edge("twins", inputs=[0.0, 1.0, 2.5, 1.0, 1.75, 2.5], targets=twins, bandwidth=1.0).says(
            "If two points have the same input, each must leave out only itself. Its twin "
            "counts, and so does a point with the same target."
        ),
        edge("far_from_the_others", **far).says(
            "A point nearly six bandwidths away from its neighbors must still be predicted by them."
        ),
        edge("float32", **far, **FLOAT32).says(
            "In float32, too, a point far from the others must be predicted by them."
        ),
        case("gradient", **free, grad_outputs=normal(rng, 5)).says(
            "The predictions must be differentiable in inputs and targets."
        ),
        case("gradient_of_bandwidth", **learned, grad_outputs=normal(rng, 6)).says(
            "The bandwidth may be a tensor, and the predictions must be differentiable in it."
        ),
    ]


def _weighing(weigh) -> Callable:
    """Predict with the weights `weigh(squared distances, bandwidth, diagonal)`."""

    def model(inputs, targets, bandwidth) -> torch.Tensor:
        squared = (inputs[:, None] - inputs).square()
        weights = weigh(squared, bandwidth, torch.eye(len(inputs), dtype=torch.bool))
        return weights @ targets

    return model


def _softmax(scores) -> torch.Tensor:
    return torch.softmax(scores, -1).nan_to_num(0.0)


def _excluding(score, empty: float | None = 0.0) -> Callable:
    """Exclude each point, and replace NaN by `empty` unless it is None."""

    def weigh(s, h, own) -> torch.Tensor:
        weights = torch.softmax(score(s, h).masked_fill(own, -math.inf), -1)
        return weights if empty is None else weights.nan_to_num(empty)

    return _weighing(weigh)


def _own_share_subtracted(inputs, targets, bandwidth) -> torch.Tensor:
    weights = _softmax(-((inputs[:, None] - inputs) ** 2) / (2 * bandwidth**2))
    own = weights.diagonal()
    return (weights @ targets - own * targets) / (1 - own if len(inputs) > 1 else 1)


def _with_more(more) -> Callable:
    def weigh(s, h, own) -> torch.Tensor:
        kernel = gaussian(s, h) * ~own
        return kernel / (kernel.sum(-1, keepdim=True) + more)

    return _weighing(weigh)


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    builds_on=("squared_distances", "kernel_pooling"),
    returns=(Returned("predictions", "tensor", "float", ("num_points",)),),
    probes=_probes,
    mistakes=(
        mistake(
            "no_exclusion",
            _weighing(lambda s, h, own: _softmax(-s / (2 * h**2))),
            twins=(_weighing(lambda s, h, own: _softmax(-s / (2 * h**2)) * (len(s) > 1)),),
        ).says(
            "Each point still counts in its own prediction. A score of 0 on the diagonal does not "
            "leave it out, because exp(0) = 1 is the largest value of the kernel.",
            "For which score is the exponential 0?",
        ),
        mistake(
            "not_renormalised", _weighing(lambda s, h, own: _softmax(-s / (2 * h**2)) * ~own)
        ).says(
            "Each point's own weight (or its own target) is set to 0, but the other weights stay "
            "as they were and no longer sum to 1, so the predictions are too close to 0.",
            "What do the remaining weights sum to, and what should they sum to?",
        ),
        mistake(
            "twins_left_out",
            _weighing(lambda s, h, own: _softmax((-s / (2 * h**2)).masked_fill(s == 0, -math.inf))),
        ).says(
            "Where two points share an input, you leave out both: you exclude by value (distance "
            "0) instead of by index.",
            "Which entries are the pairs (i, i)?",
        ),
        mistake("half_missing", _excluding(lambda s, h: -s / h**2)).says(
            "The factor 1/2 is missing: your kernel is as narrow as one of bandwidth h / sqrt 2.",
            "What is the denominator in exp(-distance^2 / (2 h^2))?",
        ),
        mistake("own_share_subtracted", _own_share_subtracted).says(
            "You subtract the point's own share from a result computed from all points. Where that "
            "share is almost 1, the small remainder is lost to rounding.",
            "Which step would leave the point out before anything is added up?",
        ),
        mistake(
            "small_number_added",
            _with_more(1e-9),
            twins=tuple(_with_more(more) for more in (1e-6, 1e-8, 1e-10)),
        ).says(
            "You add a small number to the sum of the kernels, so the prediction shrinks toward 0 "
            "where that sum is small, too.",
            "When exactly is the sum 0, and can you treat only that case?",
        ),
        mistake("single_point_nan", _excluding(lambda s, h: -s / (2 * h**2), empty=None)).says(
            "Your prediction is NaN where there are no other points to average.",
            "What should be predicted where nothing is left to average?",
        ),
    ),
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
