"""Lesson 01: the bandwidth with the smallest leave-one-out error."""

import functools
import math
import warnings
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.judge.exercise import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._rows import Case, Given, case, edge, mistake
from course_lib.exercises.kernel_pooling._problems import points
from course_lib.reference import kernel_pooling as oracle

_GRID = np.exp(np.linspace(math.log(0.02), math.log(50.0), 90))


def _learnable(rng, scale, initial=1.0, num_steps=200, lr=0.1) -> Given:
    """Points whose leave-one-out error has one clear minimum that gradient descent reaches.

    It lies between 0.17 and 0.42 times `scale`, so that no two scales share it.
    """
    while True:
        inputs = points(rng, int(rng.integers(13, 16)))
        targets = 2.0 * np.sin(rng.uniform(1.2, 1.7) * inputs + rng.uniform(0, 6))
        targets = targets + rng.normal(0, 0.4, len(inputs))
        errors = _errors_at(inputs, targets, _GRID)
        best = int(np.argmin(errors))
        falls, rises = np.diff(errors[: best + 1]), np.diff(errors[best:])
        one_minimum = (falls <= 1e-9).all() and (rises >= -1e-9).all()
        if not (0.17 < _GRID[best] < 0.42 and one_minimum):
            continue
        start = initial / scale
        others = _errors_at(inputs, targets, [_GRID[best] / 3, _GRID[best] * 3, start])
        clear = min(others) > 1.1 * errors[best]
        if not clear or _descent(errors, start, num_steps, lr) > 1.01 * errors[best]:
            continue
        starts = [initial * (1 + change) for change in (-1e-6, 0, 1e-6)]  # no end by a hair
        if lr < 0.2 or all(
            _adam_on_h(scale * inputs, targets, start, num_steps, lr) < 0 for start in starts
        ):
            return {"inputs": tensor(scale * inputs), "targets": tensor(targets)}


def _descent(errors, initial, num_steps, lr) -> float:
    """The error after plain gradient steps on log h, read off the grid."""
    places = np.log(_GRID)
    slopes, place = np.gradient(errors, places), math.log(initial)
    for _ in range(num_steps):
        place -= lr * np.interp(place, places, slopes)
    return np.interp(place, places, errors)


def _adam_on_h(inputs, targets, initial, num_steps, lr) -> float:
    """Where Adam ends that takes its large steps in h itself: often below 0."""
    h, mean, square = initial, 0.0, 0.0
    for step in range(1, num_steps + 1):
        below, above = _errors_at(inputs, targets, [h - 1e-6, h + 1e-6])
        slope = (above - below) / 2e-6
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        root = math.sqrt(square / (1 - 0.999**step)) + 1e-8
        h -= lr * mean / (1 - 0.9**step) / root
    return h


def _fit_probes(rng) -> list[Probe]:
    # The tolerance tells known mistakes apart. Correct answers are judged by their error.
    judged = {"compare": "near_best", "tolerance": 0.01}

    def probe(name, scale, part="values", **kwargs) -> Case:
        problem = _learnable(rng, scale, **kwargs)
        return case(name, part=part, **problem, by_name=kwargs, **judged)

    return [
        probe("defaults", scale=1.0).says(
            "The bandwidth must have a leave-one-out error within 2 % of the smallest there is."
        ),
        probe("from_below", scale=3.0, initial=0.5, num_steps=80).says(
            "A start below the best bandwidth must reach it too."
        ),
        probe("from_above", scale=0.2, part="edges", initial=0.25, num_steps=100, lr=0.4).says(
            "Large steps from a start far above must reach the best bandwidth and keep it positive."
        ),
        edge("worked", inputs=[0.0, 5.0], targets=[3.0, 8.0], **judged).says(
            "Two points predict each other, so every positive bandwidth is best."
        ),
    ]


_MEMORISES = Problem(
    "training_error_minimised",
    "Your bandwidth is far too small. Near 0 each point predicts itself, which minimises the "
    "error on the training points; the exercise asks for the leave-one-out error.",
    "Do you minimise the leave-one-out error, and is it still falling when you stop?",
)
_NEGATIVE = Problem(
    "negative_bandwidth",
    "Your bandwidth is not positive. The error depends on its square, so nothing keeps h above 0.",
    "In which quantity can you take steps so that h stays positive whatever the step?",
)
_UNCHANGED = Problem(
    "initial_returned",
    "Your bandwidth is the one you started from: no step changed it.",
    "Does a gradient reach the bandwidth, and do you return the tensor that you update?",
)
_LOGARITHM = Problem(
    "logarithm_returned",
    "You return the logarithm of the bandwidth.",
    "How do you get h from log h?",
)


def _near_best(probe, expected, recorded) -> Problem | None:
    """The leave-one-out error of the result is at most 1.02 times the smallest one."""
    inputs, targets = (probe.args[name].data for name in ("inputs", "targets"))
    found, best = float(recorded.data), float(expected)
    if not math.isfinite(found):
        return Problem(
            "not_a_number",
            "Your bandwidth is not a finite number.",
            "Are your steps too large, or do you take the logarithm of a negative number?",
        )
    if abs(found - math.log(best)) < 0.02:
        return _LOGARITHM
    if found <= 0:
        return _NEGATIVE
    ours, theirs = _errors_at(inputs, targets, [best, found])
    if theirs <= 1.02 * ours:
        return None
    if math.isclose(found, probe.kwargs.get("initial", 1.0), rel_tol=1e-6):
        return _UNCHANGED
    initial = float(probe.kwargs.get("initial", 1.0))
    trained = _errors_at(inputs, targets, [best, found], leave_out=False)
    if found < best < initial and trained[1] < (0.1 if found > best / 3 else 1.0) * trained[0]:
        return _MEMORISES
    direction = "small" if found < best else "large"
    return Problem(
        "not_the_best",
        f"Your bandwidth {found:.4g} is too {direction}: its leave-one-out error is "
        f"{theirs / ours:.2f} times the smallest one.",
        "Is the error still falling when the loop ends, and is it the leave-one-out error?",
    )


def _errors_at(inputs, targets, bandwidths, leave_out=True) -> np.ndarray:
    """Mean squared error of kernel pooling for many bandwidths at once, NumPy."""
    squared_line = (inputs[:, None] - inputs[None, :]) ** 2
    if leave_out:
        squared_line = squared_line + np.diag(np.full(len(inputs), np.inf))
    shifted = squared_line - squared_line.min(-1, keepdims=True)
    scale = 2 * np.asarray(bandwidths, dtype=float)[:, None, None] ** 2
    weights = np.exp(-shifted / scale)
    predictions = (weights / weights.sum(-1, keepdims=True)) @ targets
    return ((predictions - targets) ** 2).mean(-1)


def _error(inputs, targets, bandwidth) -> torch.Tensor:
    """Mean squared error of the leave-one-out predictions."""
    scores = -(inputs[:, None] - inputs).square() / (2 * bandwidth**2)
    scores = scores.masked_fill(torch.eye(len(inputs), dtype=torch.bool), -math.inf)
    return (torch.softmax(scores, -1) @ targets - targets).square().mean()


def _failing(steps) -> Callable:
    """Run `steps(log_bandwidth, error)`, which end in an error of torch."""

    def model(inputs, targets, initial=1.0, num_steps=200, lr=0.1) -> None:
        log_bandwidth = torch.tensor(math.log(initial), dtype=torch.float64, requires_grad=True)
        steps(log_bandwidth, functools.partial(_error, inputs, targets))

    return model


def _step_without_a_leaf(log_bandwidth, error) -> None:
    for _ in range(2):
        error(log_bandwidth.exp()).backward()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own hint at the mistake
            log_bandwidth = log_bandwidth - 0.1 * log_bandwidth.grad


def _graph_used_twice(log_bandwidth, error) -> None:
    bandwidth = log_bandwidth.exp()
    for _ in range(2):
        error(bandwidth).backward()


def _no_leaf_to_optimise(log_bandwidth, error) -> None:
    raise ValueError("can't optimize a non-leaf Tensor")  # as torch.optim, which loads for a second


EXERCISE = Exercise(
    points=4,
    minutes=20,
    difficulty=3,
    starred=True,
    returns=(Returned("bandwidth", "float", "any float"),),
    probes=_fit_probes,
    oracle=oracle.fit_bandwidth,
    builds_on=("squared_distances", "kernel_pooling", "leave_one_out"),
    comparisons={"near_best": _near_best},
    mistakes=(
        mistake(
            "gradient_cut",
            _failing(lambda log_h, error: error(log_h.exp().item()).backward()),
            fails=True,
        ).says(
            "`backward` finds no gradient: the error does not depend on the tensor you want to "
            "learn, because a step along the way turned it into a plain number.",
            "Where do you call `.item()` or `float(...)`: before `backward`, or after the loop?",
        ),
        mistake("step_recorded", _failing(lambda log_h, error: log_h.sub_(0.1)), fails=True).says(
            "Your step changes a leaf tensor in place while torch records operations, which "
            "torch does not allow.",
            "Which context manager, or which optimiser, takes a step that is not recorded?",
        ),
        mistake("step_without_a_leaf", _failing(_step_without_a_leaf), fails=True).says(
            "After your first step there is no gradient: `s = s - lr * s.grad` makes a new tensor "
            "from the old one, and `backward` fills `.grad` only on leaf tensors, where a graph "
            "begins.",
            "How can you change the same tensor in place without recording the change?",
        ),
        mistake("graph_used_twice", _failing(_graph_used_twice), fails=True).says(
            "Your loop calls `backward` twice on the same graph. Something between log h and the "
            "error is computed once before the loop, not again in each step.",
            "Which lines depend on the bandwidth, and are all of them inside the loop?",
        ),
        mistake("no_leaf_to_optimise", _failing(_no_leaf_to_optimise), fails=True).says(
            "The tensor you give to the optimiser was computed from another one. Only a leaf "
            "tensor, where a graph begins, can be optimised.",
            "Can you take `math.log` before `torch.tensor(..., requires_grad=True)`?",
        ),
    ),
    hints=(
        "The leave-one-out error is a differentiable function of one number. Walk downhill in a "
        "variable that can take any value while the bandwidth stays positive.",
        "Which number has to require grad, h or s? Each step computes the error from it again, "
        "asks for the gradient and moves it; `torch.optim.Adam` can do the moving. When, at the "
        "earliest, may a tensor become a `float`?",
        "A smaller version first: minimise the square of exp(s) - 3, from s = 0. Once exp(s) ends "
        "near 3, replace the square with the leave-one-out error, and begin where exp(s) is "
        "`initial`.",
    ),
)
