"""Lesson 01: every point predicted by the others."""

import math

import numpy as np

from course_lib.checks.catalogue import _kernel_pooling_mistakes as wrong
from course_lib.checks.catalogue._kernel_pooling_problems import normal, points
from course_lib.checks.exercise import Exercise, Mistake, Property, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import kernel_pooling as oracle


def _leave_one_out_probes(rng):
    def problem(count, bandwidth, **options):
        return {
            "inputs": tensor(points(rng, count), **options),
            "targets": tensor(normal(rng, count) + 1.5, **options),
            "bandwidth": bandwidth,
        }

    return [
        Probe(
            "by_hand",
            "The prediction at i must be the kernel average of all targets but the one at i.",
            args={
                "inputs": tensor([0.0, 1.0, 3.0]),
                "targets": tensor([10.0, 20.0, 40.0]),
                "bandwidth": 1.5,
            },
        ),
        Probe("general", "Every number of points must work.", args=problem(7, 1.2)),
        Probe("narrow", "A bandwidth below 1 must work.", args=problem(9, 0.7)),
        Probe("wide", "A bandwidth above 1 must work.", args=problem(6, 2.4)),
        Probe("strided", "Non-contiguous tensors must work.", args=problem(5, 1.6, strided=True)),
        Probe(
            "two_points",
            "With two points each is predicted by the other one's target.",
            part="edges",
            args={
                "inputs": tensor([0.5, -0.25]),
                "targets": tensor(normal(rng, 2)),
                "bandwidth": 0.8,
            },
        ),
        Probe(
            "twins",
            "Of two points with the same input only the point itself is left out; its twin counts.",
            part="edges",
            args={
                "inputs": tensor([1.0, 0.0, 1.0, 2.5]),
                "targets": tensor(normal(rng, 4) + 1.5),
                "bandwidth": 0.9,
            },
        ),
        Probe(
            "copies",
            "A point with the same input and the same target as another still counts for it, and "
            "so does one that shares the target alone.",
            part="edges",
            args={
                "inputs": tensor([0.0, 1.0, 2.5, 1.0, 1.75]),
                "targets": tensor((normal(rng, 3) + np.array([1.5, 4.0, -1.0]))[[0, 1, 2, 1, 1]]),
                "bandwidth": 0.9,
            },
        ),
        Probe(
            "huge_bandwidth",
            "With a huge bandwidth the prediction is the plain average of the other targets.",
            part="edges",
            args=problem(5, 1e4),
        ),
        Probe(
            "small_scale",
            "A bandwidth near 0 must work where the points are near each other.",
            part="edges",
            args=problem(6, 0.02)
            | {
                "inputs": tensor(points(rng, 6, spread=0.05)),
                "bandwidth": tensor(np.array(0.02)),
            },
        ),
        Probe(
            "far_from_the_others",
            "A point five bandwidths from its neighbours is predicted by them all the same.",
            part="edges",
            args={
                "inputs": tensor(np.array([-1.0, 5.4, 0.3, 0.0])),
                "targets": tensor(normal(rng, 4) + 1.5),
                "bandwidth": 1.0,
            },
        ),
        Probe(
            "float32",
            "Inputs and targets of float32 have predictions of float32.",
            part="edges",
            args=problem(6, 1.3),
            dtype="float32",
            tolerance=1e-4,
        ),
        Probe(
            "gradient",
            "The predictions must be differentiable in inputs and targets.",
            part="gradients",
            args=problem(5, 1.1, requires_grad=True),
            grad_outputs=normal(rng, 5),
        ),
        Probe(
            "gradient_of_bandwidth",
            "The bandwidth may be a tensor, and the predictions must be differentiable in it.",
            part="gradients",
            args={
                "inputs": tensor(points(rng, 6)),
                "targets": tensor(normal(rng, 6) + 1.5),
                "bandwidth": tensor(np.array(1.3), requires_grad=True),
            },
            grad_outputs=normal(rng, 6),
        ),
    ]


def _own_target_matters(probe, outputs):
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


LEAVE_ONE_OUT = Exercise(
    name="leave_one_out",
    points=4,
    minutes=20,
    difficulty=2,
    returns=(Returned("predictions", "tensor", "float", ("num_points",)),),
    probes=_leave_one_out_probes,
    oracle=oracle.leave_one_out,
    builds_on=("squared_distances", "kernel_pooling"),
    mistakes=(
        Mistake(
            "no_exclusion",
            wrong.left_out(keep=wrong.everyone),
            "Each point still counts in its own prediction. Either nothing is left out, or the "
            "score on the diagonal is set to 0: both give these numbers, because a point's "
            "distance to itself is 0 already, and exp(0) = 1 is the largest kernel there is.",
            "Which score has an exponential of 0?",
        ),
        Mistake(
            "not_renormalised",
            wrong.zero_weight_only,
            "The own weight (or the own target) is set to 0, but the other weights are left as "
            "they were and no longer sum to 1: predictions are pulled towards 0.",
            "What is the total of the weights that remain, and what should it be?",
        ),
        Mistake(
            "only_the_diagonal",
            wrong.only_itself,
            "You keep what should be left out: each prediction is the point's own target.",
            "Which entries of the matrix does your mask remove?",
        ),
        Mistake(
            "minus_infinity_weight",
            wrong.masked_weights,
            "You fill weights with minus infinity after the softmax, so every prediction is "
            "infinite or NaN.",
            "Does the fill belong before the softmax or after it?",
        ),
        Mistake(
            "not_normalised",
            wrong.kernel_not_normalised,
            "The point itself is left out, but the kernel of the others is never divided by its "
            "total.",
            "By what must each row be divided?",
        ),
        Mistake(
            "twins_left_out",
            wrong.left_out(keep=wrong.others_in_place),
            "Where two points share an input, you leave out both: the exclusion goes by the "
            "input's value (distance 0) instead of by the point's number.",
            "Which entries are the pairs (i, i)?",
        ),
        Mistake(
            "copies_left_out",
            wrong.without(lambda x, y: wrong.same(x) & wrong.same(y)),
            "Where two points share input and target, you leave out both: the exclusion goes by "
            "the numbers instead of by the point's place in the list.",
            "Which entries are the pairs (i, i)?",
        ),
        Mistake(
            "same_targets_left_out",
            wrong.without(lambda x, y: wrong.same(y)),
            "All points with the same target are left out: the exclusion goes by the target "
            "instead of by the point's place in the list.",
            "Which entries are the pairs (i, i)?",
        ),
        Mistake(
            "over_queries",
            wrong.left_out(dim=0),
            "You normalise over the wrong axis: the columns of the weights sum to 1.",
            "A row belongs to the point that is predicted. Over which axis must it sum to 1?",
        ),
        Mistake(
            "first_left_out_for_all",
            wrong.left_out(keep=wrong.first_for_all),
            "Every prediction leaves out point 0, not its own point.",
            "Which point does your loop delete in its second round?",
        ),
        Mistake(
            "neighbour_left_out",
            wrong.left_out(keep=wrong.next_one),
            "You leave out the next point in the list instead of the point itself.",
            "Which index does the diagonal have?",
        ),
        Mistake(
            "only_earlier_points",
            wrong.left_out(keep=wrong.earlier_ones),
            "Only earlier points in the list count; the later ones are left out with the point.",
            "Which entries does a triangular mask keep, and which ones should go?",
        ),
        Mistake(
            "only_earlier_points_nan",
            wrong.left_out(keep=wrong.earlier_ones, empty=math.nan),
            "Only earlier points in the list count; the first one has none, and becomes NaN.",
            "Which entries does a triangular mask keep, and which ones should go?",
        ),
        Mistake(
            "only_later_points",
            wrong.left_out(keep=wrong.later_ones, empty=math.nan),
            "Only later points in the list count; the last one has none, and becomes NaN.",
            "Which entries does a triangular mask keep, and which ones should go?",
        ),
        Mistake(
            "infinity_times_zero",
            wrong.infinity_times_zero,
            "Everything is NaN: you multiply a matrix of 0 and 1 by infinity, and 0 * inf is not "
            "0.",
            "Which function puts a number in some places and leaves the others alone?",
        ),
        Mistake(
            "distance_filled_with_infinity",
            wrong.distance_filled(math.inf),
            "The predictions are right, but the gradient of the bandwidth is NaN: the distance on "
            "your diagonal is infinite before the bandwidth divides it, and backward multiplies "
            "that infinity by 0.",
            "Can the diagonal be filled after the division, in the scores?",
        ),
        Mistake(
            "distance_filled_with_a_large_number",
            wrong.distance_filled(1e9),
            "The distance on your diagonal is a large number, which a large bandwidth makes small "
            "again: the point then counts in its own prediction.",
            "Which score has an exponential of 0, whatever the bandwidth?",
        ),
        Mistake(
            "points_sorted",
            wrong.leave_one_out_of_sorted_points,
            "Your predictions are in the order of the sorted inputs; entry i belongs to point i.",
            "Which order have the points when your function returns?",
        ),
        Mistake(
            "epsilon_in_the_total",
            wrong.leave_one_out_with_epsilon,
            "You add a small number to the total of the weights. For a point far from the others "
            "the total itself is small, and its prediction is pulled towards 0.",
            "Which shift of the scores keeps the largest exponential at 1?",
        ),
        Mistake(
            "half_missing",
            wrong.left_out(lambda s, h: -s / h**2),
            "The right pair is left out, but the factor 1/2 is missing in the exponent.",
            "What stands under the fraction in exp(-distance^2 / (2 h^2))?",
        ),
        Mistake(
            "bandwidth_ignored",
            wrong.left_out(lambda s, h: -s / 2),
            "The right pair is left out, but the bandwidth changes nothing.",
            "Where does `bandwidth` enter your computation?",
        ),
        Mistake(
            "bandwidth_not_squared",
            wrong.left_out(lambda s, h: -s / (2 * h)),
            "The right pair is left out, but the bandwidth enters without its square.",
            "What are the units of distance^2, and of h?",
        ),
        Mistake(
            "distance_not_squared",
            wrong.left_out(lambda s, h: -s.sqrt() / (2 * h**2)),
            "The right pair is left out, but the distance enters without its square.",
            "What does `squared_distances` return?",
        ),
        Mistake(
            "plus_distance",
            wrong.left_out(lambda s, h: s / (2 * h**2)),
            "The sign is wrong: the farthest point gets the largest weight.",
            "Should a large distance give a large score or a small one?",
        ),
        Mistake(
            "plain_average",
            wrong.other_inputs_average,
            "Each prediction is the plain average of the other targets, near or far.",
            "Where do the inputs enter the weights?",
        ),
        Mistake(
            "nearest_other_point",
            wrong.nearest_other,
            "Each prediction is the target of the nearest other point; the rest does not count.",
            "How can every other point count a little, the near ones most?",
        ),
        Mistake(
            "residuals_returned",
            wrong.residuals,
            "You return target minus prediction; the prediction itself is asked for.",
            "What does the line `Returns:` in the docstring say?",
        ),
        Mistake(
            "squared_errors_returned",
            wrong.squared_errors,
            "You return squared errors; the predictions are asked for.",
            "What does the line `Returns:` in the docstring say?",
        ),
        Mistake(
            "mean_error_returned",
            wrong.mean_error,
            "You return one number, the mean squared error; a prediction for each point is asked "
            "for.",
            "What does the line `Returns:` in the docstring say?",
        ),
        Mistake(
            "bandwidth_without_gradient",
            wrong.bandwidth_as_number,
            "The predictions are right, but no gradient reaches a bandwidth that is a tensor; "
            "`fit_bandwidth` will need it.",
            "Which step makes a plain number of `bandwidth` (`.item()`, `float(...)`)?",
        ),
        Mistake(
            "gradient_cut",
            wrong.loo_without_graph,
            "The predictions are right, but no gradient reaches inputs and bandwidth.",
            "Which step leaves the graph (`.detach()`, `.item()`, `.numpy()`, `torch.no_grad`)?",
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
        "The inputs are queries and keys at once, so the weights are a square matrix. Which of "
        "its entries must be 0, and what must the others then sum to?",
        "Compute the scores of all pairs, fill the diagonal with minus infinity, take the softmax "
        "over the keys, average the targets. `inputs[:, None]` makes one column of the inputs.",
        "points = inputs[:, None]\n"
        "scores = -squared_distances(points, points) / ...\n"
        "itself = torch.eye(len(inputs), dtype=torch.bool)\n"
        "weights = torch.softmax(scores.masked_fill(itself, ...), dim=-1)\n"
        "return weights @ targets",
    ),
)
