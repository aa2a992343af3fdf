"""`fit_bandwidth`: the bandwidth with the smallest leave-one-out error."""

import math

import numpy as np
import torch

from course_lib.checks.judge.comparisons import Cause, Problem
from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.exercises.kernel_pooling._problems import points
from course_lib.exercises.kit import Problems, call, edge, mistake

# Seeds of points whose leave-one-out error has one clear minimum, which plain gradient steps on
# log h reach. Adam on h itself ends below 0, and the mean absolute error has its minimum at a
# larger h.
SEEDS = (531, 12172, 12629, 12760, 17573, 26598, 41269, 54806, 56277, 59521)


def drawn(rng, scale, seed=None) -> tuple[np.ndarray, np.ndarray]:
    """Draw points whose best bandwidth lies between 0.2 and 0.42 times `scale`."""
    drawn = np.random.RandomState(rng.choice(SEEDS) if seed is None else seed)
    inputs = points(drawn, 13)
    targets = 2.0 * np.sin(drawn.uniform(1.2, 1.7) * inputs + drawn.uniform(0, 6))
    targets = targets + drawn.normal(0, 0.4, 13)
    return scale * (inputs + rng.normal()), targets + rng.normal()


def problems(rng) -> Problems:
    # Known mistakes must agree this closely. Correct answers are judged by their error.
    judged = {"compare": "near_best", "tolerance": 0.01}
    yield "The bandwidth must have a leave-one-out error within 2% of the smallest possible one."
    yield call(*drawn(rng, 1.0), **judged)
    yield "Large steps from a start far above must reach the best bandwidth and keep it positive."
    yield edge(*drawn(rng, 0.2), initial=0.25, num_steps=100, lr=0.4, **judged)
    yield "Where inputs lie close together, the best bandwidth can be small."
    close = [0.0, 0.01, 0.02, 0.03], [0.0, 1.0, 2.0, 3.0]
    yield edge(*close, initial=0.02, num_steps=50, lr=0.2, compare="near_best")
    yield "Two points predict each other, so every positive bandwidth is best."
    yield edge([0.0, 5.0], [3.0, 8.0], initial=2, num_steps=20, compare="near_best")


def near_best(probe, expected, recorded) -> Problem | None:
    """Accept a bandwidth whose leave-one-out error is at most 1.02 times the smallest one."""
    inputs, targets = (probe.args[name].data for name in ("inputs", "targets"))
    initial = float(probe.kwargs.get("initial", 1.0))
    found, best = float(recorded.data), float(expected)
    if not math.isfinite(found):
        return Problem(
            "not_a_number",
            "Your bandwidth is not a finite number.",
            "In which step does the bandwidth or its error first become NaN or infinite?",
        )
    if abs(found - math.log(best)) < 0.02:
        return Cause(
            "logarithm_returned",
            "You return the logarithm of the bandwidth.",
            "How do you get h from log h?",
        )
    if found <= 0:
        return Problem(
            "negative_bandwidth",
            "Your bandwidth is not positive.",
            "Do you return h and not log h? If you take steps in h, what keeps it above 0?",
        )
    ours, theirs = _errors_at(inputs, targets, [best, found])
    if not theirs > 1.02 * ours:  # NaN for a single point, which cannot be predicted
        return None
    if math.isclose(found, initial, rel_tol=1e-6):
        return Cause(
            "initial_returned",
            "Your bandwidth is `initial`, the value before the first step.",
            "Does a gradient reach the bandwidth, and do you return the tensor that you update?",
        )
    direction = "small" if found < best else "large"
    return Problem(
        "not_the_best",
        f"Your bandwidth {found:.4g} is too {direction}: its leave-one-out error is "
        f"{theirs / ours:.2f} times the smallest one.",
        "Print each bandwidth that you try and its error: is this the mean squared leave-one-out "
        "error, and do the bandwidths come close to its minimum?",
    )


def _errors_at(inputs, targets, bandwidths) -> np.ndarray:
    """Return the mean squared leave-one-out error for each bandwidth."""
    squared_line = (inputs[:, None] - inputs[None, :]) ** 2 + np.diag(np.full(len(inputs), np.inf))
    shifted = squared_line - squared_line.min(-1, keepdims=True)
    scale = 2 * np.asarray(bandwidths, dtype=float)[:, None, None] ** 2
    scale = np.clip(scale, np.finfo(float).tiny, np.finfo(float).max)  # otherwise 0/0 or inf/inf
    weights = np.exp(-shifted / scale)
    predictions = (weights / weights.sum(-1, keepdims=True)) @ targets
    return ((predictions - targets) ** 2).mean(-1)


@mistake
def gradient_cut(inputs, targets, initial=1.0, num_steps=200, lr=0.1) -> None:
    """The backward pass has nothing to follow: autograd recorded no path from the tensor it starts
    at to one that requires a gradient.

    Which tensor should require a gradient, and what cuts it off (such as `.item()`, `float(...)`,
    `no_grad`)?
    """
    leaf = torch.tensor(math.log(initial), dtype=torch.float64, requires_grad=True)
    torch.tensor(leaf.item()).backward()  # torch raises the same error with any loss


EXERCISE = Exercise(
    points=4,
    minutes=20,
    difficulty=3,
    builds_on=("squared_distances", "kernel_pooling", "leave_one_out"),
    starred=True,
    returns=(Returned("bandwidth", "float", "any float"),),
    probes=problems,
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
    marking=Marking(comparisons={"near_best": near_best}),
)
