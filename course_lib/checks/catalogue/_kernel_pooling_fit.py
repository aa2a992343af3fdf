"""Lesson 01: the bandwidth with the smallest leave-one-out error."""

import math

import numpy as np
import torch

from course_lib.checks.catalogue import _kernel_pooling_mistakes as wrong
from course_lib.checks.catalogue._kernel_pooling_problems import points
from course_lib.checks.compare import Problem
from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import kernel_pooling as oracle

_GRID = np.exp(np.linspace(math.log(0.02), math.log(50.0), 90))


def _learnable(rng, count, initial=1.0, num_steps=200, lr=0.1):
    """Points whose leave-one-out error has one clear minimum that gradient descent reaches."""
    while True:
        inputs = points(rng, count)
        targets = 2.0 * np.sin(rng.uniform(1.2, 1.7) * inputs + rng.uniform(0, 6))
        targets = targets + rng.normal(0, 0.5, count)
        errors = wrong.errors_at(inputs, targets, _GRID)
        best = int(np.argmin(errors))
        falls, rises = np.diff(errors[: best + 1]), np.diff(errors[best:])
        one_minimum = (falls <= 1e-9).all() and (rises >= -1e-9).all()
        bandwidth = _GRID[best]
        others = wrong.errors_at(inputs, targets, [bandwidth / 3, 1.0, bandwidth * 3, initial])
        clear = one_minimum and min(others) > 1.1 * errors[best] and 0.15 < bandwidth < 0.8
        reached = clear and _descent(errors, initial, num_steps, lr) < 1.01 * errors[best]
        if reached and (lr < 0.2 or _adam_on_h(inputs, targets, initial, num_steps, lr) < 0):
            return {"inputs": tensor(inputs), "targets": tensor(targets)}


def _descent(errors, initial, num_steps, lr):
    """The error after plain gradient steps on log h, read off the grid."""
    places = np.log(_GRID)
    slopes, place = np.gradient(errors, places), math.log(initial)
    for _ in range(num_steps):
        place -= lr * np.interp(place, places, slopes)
    return np.interp(place, places, errors)


def _adam_on_h(inputs, targets, initial, num_steps, lr):
    """Where Adam ends that takes its large steps in h itself: often below 0."""
    h, mean, square = initial, 0.0, 0.0
    for step in range(1, num_steps + 1):
        below, above = wrong.errors_at(inputs, targets, [h - 1e-6, h + 1e-6])
        slope = (above - below) / 2e-6
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        root = math.sqrt(square / (1 - 0.999**step)) + 1e-8
        h -= lr * mean / (1 - 0.9**step) / root
    return h


_FIT_TOLERANCE = 0.01  # for telling known mistakes apart; right answers are judged by their error


def _fit_probes(rng):
    def probe(name, says, part="values", **kwargs):
        return Probe(
            name,
            says,
            part=part,
            args=_learnable(rng, int(rng.integers(14, 19)), **kwargs),
            kwargs=kwargs,
            compare="near_best",
            tolerance=_FIT_TOLERANCE,
        )

    return [
        probe(
            "defaults",
            "The bandwidth must have a leave-one-out error within 2 % of the smallest there is.",
        ),
        probe(
            "from_below",
            "A start at 0.3 must lead to the best bandwidth too.",
            initial=0.3,
            num_steps=80,
        ),
        probe(
            "from_above",
            "A start at 3 with large steps must lead to the best bandwidth, and keep it positive.",
            part="edges",
            initial=3.0,
            num_steps=100,
            lr=0.4,
        ),
    ]


_MEMORISES = Problem(
    "training_error_minimised",
    "Your bandwidth is far too small. A bandwidth near 0 minimises the error on the training "
    "points, where each point predicts itself; the leave-one-out error is asked for.",
    "Which function leaves each point out of its own prediction?",
)
_NEGATIVE = Problem(
    "negative_bandwidth",
    "Your bandwidth is not positive. The error depends on its square, so that nothing in it keeps "
    "h above 0.",
    "Which quantity can you take steps in, so that h stays positive whatever the step?",
)
_UNCHANGED = Problem(
    "initial_returned",
    "Your bandwidth is the one you started from: no step changed it.",
    "Does a gradient reach the bandwidth, and is the tensor you update the one you return?",
)
_UPHILL = Problem(
    "error_maximised",
    "Your bandwidth is farther from the best one than the start was, as if the steps went up the "
    "error instead of down.",
    "What sign has the step of gradient descent, and do the steps begin at `initial`?",
)
_LOGARITHM = Problem(
    "logarithm_returned",
    "You return the logarithm of the bandwidth.",
    "What has to happen to a log h before it is an h?",
)


def _near_best(probe, expected, recorded):
    """The leave-one-out error of the result is at most 1.02 times the smallest one."""
    inputs, targets = (probe.args[name].data for name in ("inputs", "targets"))
    found, best = float(recorded.data), float(expected)
    if not math.isfinite(found):
        return Problem("not_a_number", "Your bandwidth is not a finite number.", _DIVERGED)
    if abs(found - math.log(best)) < 0.02:
        return _LOGARITHM
    if found <= 0:
        return _NEGATIVE
    ours, theirs = wrong.errors_at(inputs, targets, [best, found])
    if theirs <= 1.02 * ours:
        return None
    if math.isclose(found, probe.kwargs.get("initial", 1.0), rel_tol=1e-6):
        return _UNCHANGED
    trained = wrong.errors_at(inputs, targets, [best, found], leave_out=False)
    if found < best and trained[1] < (0.1 if found > best / 3 else 1.0) * trained[0]:
        return _MEMORISES
    initial = float(probe.kwargs.get("initial", 1.0))
    if found > initial > best:
        return _UPHILL
    direction = "small" if found < best else "large"
    return Problem(
        "not_the_best",
        f"Your bandwidth {found:.4g} is too {direction}: its leave-one-out error is "
        f"{theirs / ours:.2f} times the smallest one.",
        "Does the error still fall when the loop ends, and is it the leave-one-out error?",
    )


_DIVERGED = "Are your steps too large, or is a logarithm taken of something that is not positive?"


def _known(problem, model):
    return Mistake(problem.id, model, problem.message, problem.hint)


FIT_BANDWIDTH = Exercise(
    name="fit_bandwidth",
    points=4,
    minutes=25,
    difficulty=3,
    returns=(Returned("bandwidth", "float", "any float"),),
    probes=_fit_probes,
    oracle=oracle.fit_bandwidth,
    builds_on=("squared_distances", "kernel_pooling", "leave_one_out"),
    comparisons={"near_best": _near_best},
    mistakes=(
        _known(_MEMORISES, wrong.returned(lambda best, initial, inputs: 0.01)),
        _known(_NEGATIVE, wrong.returned(lambda best, initial, inputs: -best)),
        _known(_UNCHANGED, wrong.returned(lambda best, initial, inputs: float(initial))),
        _known(_LOGARITHM, wrong.returned(lambda best, initial, inputs: math.log(best))),
        Mistake(
            "gradient_cut",
            wrong.no_gradient,
            "`backward` finds no gradient: the error does not depend on the tensor you want to "
            "learn, because a step on the way made a plain number of it.",
            "Where do you call `.item()` or `float(...)`: before `backward`, or after the loop?",
        ),
        Mistake(
            "step_without_a_leaf",
            wrong.step_without_a_leaf,
            "After your first step there is no gradient: `s = s - lr * s.grad` makes a new tensor, "
            "a result of the old one, and `backward` fills `.grad` only where a graph begins.",
            "How can the same tensor be changed in place, while nothing is recorded?",
        ),
        Mistake(
            "step_recorded",
            wrong.step_recorded,
            "Your step changes a tensor in place that requires a gradient, and torch would have to "
            "record the step itself.",
            "Which context manager, or which optimiser, takes a step that is not recorded?",
        ),
        Mistake(
            "graph_used_twice",
            wrong.graph_used_twice,
            "Your loop goes backward through a graph that was built before it: something between "
            "log h and the error is computed once, instead of anew in each step.",
            "Which lines depend on the bandwidth, and do all of them stand inside the loop?",
        ),
        Mistake(
            "no_leaf_to_optimise",
            wrong.no_leaf_to_optimise,
            "The tensor you give to the optimiser is a result of another one; only a tensor in "
            "which a graph begins can be optimised.",
            "Can `math.log` be taken before `torch.tensor(..., requires_grad=True)`?",
        ),
        _known(
            _UPHILL,
            wrong.returned(lambda best, initial, inputs: 1e4 if initial > best else 0.01),
        ),
        Mistake(
            "squared_bandwidth_returned",
            wrong.returned(lambda best, initial, inputs: best**2),
            "You return the square of the bandwidth.",
            "Is the quantity you learn h, h^2 or log h?",
        ),
        Mistake(
            "error_returned",
            wrong.error_of_the_best,
            "You return the smallest leave-one-out error; the bandwidth that has it is asked for.",
            "What does the line `Returns:` in the docstring say?",
        ),
        Mistake(
            "tensor_returned",
            wrong.returned(lambda best, initial, inputs: torch.tensor(best, dtype=inputs.dtype)),
            "You return a tensor; a Python float is asked for.",
            "Which method makes a Python number of a tensor that holds one?",
        ),
        Mistake(
            "exponential_of_the_bandwidth",
            wrong.returned(lambda best, initial, inputs: math.exp(best)),
            "You return exp(h): the exponential is taken once too often.",
            "Is the quantity you learn h or log h?",
        ),
    ),
    hints=(
        "The leave-one-out error is a differentiable function of one number. Walk downhill, in a "
        "variable that can take any value while the bandwidth stays positive.",
        "Make log_bandwidth a tensor that requires grad, starting at log(initial). In each step: "
        "bandwidth = exp of it, mean squared leave-one-out error, backward, optimizer step. "
        "Return a float at the end.",
        "log_bandwidth = torch.tensor(math.log(initial), dtype=inputs.dtype, requires_grad=True)\n"
        "optimizer = torch.optim.Adam([log_bandwidth], lr=lr)\n"
        "for _ in range(num_steps):\n"
        "    error = (leave_one_out(inputs, targets, log_bandwidth.exp()) - targets)...\n"
        "    optimizer.zero_grad(); error.backward(); optimizer.step()\n"
        "return log_bandwidth.exp().item()",
    ),
)
