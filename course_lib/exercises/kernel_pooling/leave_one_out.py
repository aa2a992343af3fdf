"""Lesson 01: every point predicted by the others."""

import functools
import math
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.exercise import Exercise, Property, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import FLOAT32, STRIDED, Given, case, edge, in_steps, mistake
from course_lib.exercises.kernel_pooling._problems import (
    gaussian_score,
    normal,
    others,
    points,
    squared_gaps,
)
from course_lib.reference import kernel_pooling as oracle


def _problem(rng, count, bandwidth, spread=3.0, **options) -> Given:
    return {
        "inputs": tensor(points(rng, count, spread), **options),
        "targets": tensor(normal(rng, count) + 1.5, **options),
        "bandwidth": bandwidth,
    }


def _values(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    return [
        case("worked", inputs=[-1.0, 0.0, 1.0], targets=[10.0, 99.0, 40.0], bandwidth=1.0).says(
            "Two others at the same distance predict the middle point, so the prediction is their "
            "mean. Its own target, 99, does not count."
        ),
        case("general", **problem(7, 1.2)).says(
            "The prediction at i must be the kernel average of all targets except the one at i."
        ),
        case("strided", **problem(5, 1.6, strided=True)).says(STRIDED),
    ]


def _edges(rng) -> list[Probe]:
    problem = functools.partial(_problem, rng)
    twins = (normal(rng, 4) + np.array([1.5, 4.0, -1.0, 7.0]))[[0, 1, 2, 1, 1, 3]]
    far = problem(4, 1.0) | {"inputs": tensor([-1.0, 5.4, 0.3, 0.0])}
    return [
        edge("alone", inputs=[0.5], targets=normal(rng, 1) + 4.0, bandwidth=1.0).says(
            "A point with no other is predicted as 0."
        ),
        edge("twins", inputs=[0.0, 1.0, 2.5, 1.0, 1.75, 2.5], targets=twins, bandwidth=1.0).says(
            "Of two points with the same input, only the point itself is left out. Its twin "
            "counts, and so does a point with the same target."
        ),
        edge("huge_bandwidth", **problem(40, 1e4)).says(
            "With a huge bandwidth the prediction is the plain average of the other targets."
        ),
        edge("far_from_the_others", **far).says(
            "A point five bandwidths away from its neighbours is still predicted by them."
        ),
        edge("float32", **problem(6, 1.3), **FLOAT32).says(
            "Float32 inputs and targets give float32 predictions."
        ),
    ]


def _gradients(rng) -> list[Probe]:
    free = _problem(rng, 5, 1.0, requires_grad=True)
    learned = _problem(rng, 6, tensor(np.array(1.3), requires_grad=True))
    return [
        case("gradient", **free, grad_outputs=normal(rng, 5)).says(
            "The predictions must be differentiable in inputs and targets."
        ),
        case("gradient_of_bandwidth", **learned, grad_outputs=normal(rng, 6)).says(
            "The bandwidth may be a tensor, and the predictions must be differentiable in it."
        ),
    ]


def _own_target_matters(probe, outputs) -> str | None:
    data, inputs = outputs.data, probe.inputs()
    targets = inputs["targets"].data
    if data is None or data.shape != targets.shape or len(targets) < 2:
        return None
    if np.isnan(data).any():  # said elsewhere
        return None
    for i in range(len(targets)):
        others = np.delete(targets, i)
        if not others.min() - 1e-2 <= data[i] <= others.max() + 1e-2:  # three digits show it
            return (
                f"Your prediction at point {i} is {data[i]:.3f}, outside the other targets "
                f"{others.min():.3f} to {others.max():.3f}: no average of them can be."
            )
    return None


@in_steps(score=gaussian_score, keep=others, dim=-1, number=lambda bandwidth: bandwidth)
def _left_out(score, keep, dim, number) -> Callable:
    """Leave-one-out over the pairs that `keep(inputs)` allows; a row without any gets 0."""

    def model(inputs, targets, bandwidth) -> torch.Tensor:
        scores = score(squared_gaps(inputs), number(bandwidth)).masked_fill(
            ~keep(inputs), -math.inf
        )
        return torch.softmax(scores, dim).nan_to_num(0.0) @ targets

    return model


def _same(numbers) -> torch.Tensor:
    return numbers[:, None] == numbers[None, :]


def _without(pairs) -> Callable:
    """Leaves out `pairs(inputs, targets)`."""

    def model(inputs, targets, bandwidth) -> torch.Tensor:
        scores = -squared_gaps(inputs) / (2 * bandwidth**2)
        return torch.softmax(scores.masked_fill(pairs(inputs, targets), -math.inf), -1) @ targets

    return model


def _itself(inputs, targets) -> torch.Tensor:
    return torch.eye(len(inputs), dtype=torch.bool)


def _everyone(inputs) -> torch.Tensor:
    return torch.ones(len(inputs), len(inputs), dtype=torch.bool)


def _others_in_place(inputs) -> torch.Tensor:
    """Leaves out every pair with the same input, twins included."""
    return squared_gaps(inputs) > 0


def _distance_filled(number) -> Callable:
    """The diagonal of the distances is filled, before the bandwidth divides them."""

    def model(inputs, targets, bandwidth) -> torch.Tensor:
        distances = squared_gaps(inputs).masked_fill(~others(inputs), number)
        return torch.softmax(-distances / (2 * bandwidth**2), -1).nan_to_num(0.0) @ targets

    return model


def _zero_weight_only(inputs, targets, bandwidth) -> torch.Tensor:
    weights = torch.softmax(-squared_gaps(inputs) / (2 * bandwidth**2), -1)
    return weights.masked_fill(~others(inputs), 0.0) @ targets


EXERCISE = Exercise(
    points=4,
    minutes=15,
    difficulty=2,
    returns=(Returned("predictions", "tensor", "float", ("num_points",)),),
    probes=lambda rng: [*_values(rng), *_edges(rng), *_gradients(rng)],
    oracle=oracle.leave_one_out,
    builds_on=("squared_distances", "kernel_pooling"),
    mistakes=(
        mistake("no_exclusion", _left_out(keep=_everyone)).says(
            "Each point still counts in its own prediction. Either nothing is left out, or the "
            "score on the diagonal is set to 0. Both give these numbers: a point's distance to "
            "itself is 0 anyway, and exp(0) = 1 is the largest kernel there is.",
            "For which score is the exponential 0?",
        ),
        mistake("not_renormalised", _zero_weight_only).says(
            "Each point's own weight (or its own target) is set to 0, but the other weights stay "
            "as they were and no longer sum to 1, so the predictions are too close to 0.",
            "What do the remaining weights sum to, and what should they sum to?",
        ),
        mistake("over_queries", _left_out(dim=0)).says(
            "You normalise over the wrong axis: the columns of the weights sum to 1.",
            "A row belongs to the point being predicted. Over which axis must it sum to 1?",
        ),
        mistake("half_missing", _left_out(lambda s, h: -s / h**2)).says(
            "You leave out the correct point, but the factor 1/2 is missing from the exponent.",
            "What is under the fraction in exp(-distance^2 / (2 h^2))?",
        ),
        mistake("bandwidth_not_squared", _left_out(lambda s, h: -s / (2 * h))).says(
            "You leave out the correct point, but the bandwidth enters without its square.",
            "What are the units of distance^2, and of h?",
        ),
        mistake(
            "bandwidth_without_gradient",
            _left_out(
                number=lambda bandwidth: (
                    bandwidth.item() if torch.is_tensor(bandwidth) else bandwidth
                )
            ),
        ).says(
            "The predictions are right, but no gradient reaches a bandwidth that is a tensor, and "
            "`fit_bandwidth` will need it.",
            "Which step turns `bandwidth` into a plain number (`.item()`, `float(...)`)?",
        ),
        mistake("twins_left_out", _left_out(keep=_others_in_place)).says(
            "Where two points share an input, you leave out both: you exclude by value (distance "
            "0) instead of by index.",
            "Which entries are the pairs (i, i)?",
        ),
        mistake("nan_when_alone", _without(_itself)).says(
            "A point with no other is predicted as NaN: nothing is left in its row, and a softmax "
            "of nothing but -inf, like a division by a total of 0, is 0 / 0.",
            "What should that row give, and where can you put it in?",
        ),
        mistake("distance_filled_with_infinity", _distance_filled(math.inf)).says(
            "The predictions are right, but the gradient of the bandwidth is NaN: the distance on "
            "your diagonal is infinite before the bandwidth divides it, and backward multiplies "
            "that infinity by 0.",
            "Can the diagonal be filled after the division, in the scores?",
        ),
        mistake("distance_filled_with_a_large_number", _distance_filled(1e9)).says(
            "The distance on your diagonal is a large number, which a large bandwidth makes small "
            "again, so the point counts in its own prediction.",
            "For which score is the exponential 0, whatever the bandwidth?",
        ),
    ),
    properties=(
        Property(
            "outside_the_other_targets",
            _own_target_matters,
            "Do the weights of the other points sum to 1?",
        ),
    ),
    hints=(
        "The inputs are both queries and keys, so the weights form a square matrix. Which of its "
        "entries must be 0, and what must the others then sum to?",
        "`squared_distances` expects points with one feature: a column. Where in the scores does "
        "a point meet itself, and which of the three fills in section 6 removed it? `torch.eye` "
        "and `masked_fill` may help.",
        "A smaller version first: the three points of the worked number. Row 1 of your weights "
        "must be (0.5, 0, 0.5). Then a single point: nothing is left in its row. What does the "
        "softmax make of that, and how do you get a prediction of 0?",
    ),
)
