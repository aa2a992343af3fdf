"""Lesson 01: distances, kernel pooling, leave-one-out, a learned bandwidth, dot products."""

import math

import numpy as np
import torch

from course_lib.checks.catalogue import _kernel_pooling_mistakes as wrong
from course_lib.checks.compare import Problem, arrays_agree, tolerance_for
from course_lib.checks.exercise import (
    Exercise,
    Integration,
    Lesson,
    Mistake,
    Property,
    Returned,
    Written,
)
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import kernel_pooling as oracle

LESSON = Lesson(
    1,
    "Kernel pooling: attention before neural networks",
    Written("perfect_fit", points=3, minutes=10),
    Integration(("squared_distances", "kernel_pooling", "leave_one_out")),
)


def _normal(rng, *shape):
    return rng.normal(0, 1.3, shape)


# ---------------------------------------------------------------- squared_distances
def _squared_distances_probes(rng):
    few, many = rng.permutation([2, 3, 4]), rng.permutation([6, 7, 9])
    square = _normal(rng, 4, 3)
    shared = _normal(rng, 3, 2)

    def pair(queries, keys, **options):
        return {"queries": tensor(queries, **options), "keys": tensor(keys, **options)}

    return [
        Probe(
            "by_hand",
            "The squared distance of (1, 2) and (4, 6) is 3^2 + 4^2 = 25: one number for each "
            "query and key.",
            args=pair([[1.0, 2.0], [0.0, 0.5]], [[4.0, 6.0], [1.0, 0.0], [-2.0, 1.5]]),
        ),
        Probe(
            "loops_pairs_few",
            "Entry (i, j) must be the squared distance of query i and key j.",
            args=pair(_normal(rng, few[0], few[2]), _normal(rng, few[1], few[2])),
        ),
        Probe(
            "loops_pairs_many",
            "More queries, keys and features than before must work as well.",
            args=pair(_normal(rng, many[0], many[2]), _normal(rng, many[1], many[2])),
        ),
        Probe(
            "one_feature",
            "With a single feature the squared distance is the squared difference.",
            args=pair(_normal(rng, 5, 1), _normal(rng, 3, 1)),
        ),
        Probe(
            "strided",
            "Non-contiguous queries and keys must work.",
            args=pair(_normal(rng, 3, 4), _normal(rng, 5, 4), strided=True),
        ),
        Probe(
            "square",
            "As many queries as keys must not confuse the axes: rows belong to queries.",
            part="edges",
            args=pair(square, _normal(rng, 4, 3)),
        ),
        Probe(
            "to_itself",
            "A point has distance 0 from itself, and a distance from every other one.",
            part="edges",
            args=pair(square, square),
        ),
        Probe(
            "one_pair",
            "One query and one key give a result of shape (1, 1).",
            part="edges",
            args=pair(_normal(rng, 1, 3), _normal(rng, 1, 3)),
        ),
        Probe(
            "far_away",
            "Where both lie far from 0, only their difference counts.",
            part="edges",
            args=pair(_normal(rng, 2, 3) + 40.0, _normal(rng, 4, 3) + 40.0),
        ),
        Probe(
            "gradient",
            "The gradient of a squared distance with respect to the query is twice the difference.",
            part="gradients",
            args=pair(_normal(rng, 2, 3), _normal(rng, 4, 3), requires_grad=True),
            grad_outputs=_normal(rng, 2, 4),
        ),
        Probe(
            "gradient_at_zero",
            "Where a query equals a key the gradient is 0, not NaN.",
            part="gradients",
            args=pair(shared[:2], shared, requires_grad=True),
            grad_outputs=_normal(rng, 2, 3),
        ),
    ]


def _negative_distance(probe, outputs):
    data = outputs.data
    if data is None or not (data < -1e-6).any():
        return None
    index = tuple(int(i) for i in np.argwhere(data < -1e-6)[0])
    return f"At {list(index)} your result is {data[index]:.3f}, but a square is never negative."


SQUARED_DISTANCES = Exercise(
    name="squared_distances",
    points=2,
    minutes=15,
    difficulty=1,
    returns=(Returned("distances", "tensor", "float", ("num_queries", "num_keys")),),
    probes=_squared_distances_probes,
    oracle=oracle.squared_distances,
    no_loops=True,
    mistakes=(
        Mistake(
            "transposed",
            lambda queries, keys: wrong.squared(keys, queries),
            "The numbers are right, but keys are in the rows and queries in the columns.",
            "Which of the two gets the new axis in front, and which one behind?",
        ),
        Mistake(
            "root_taken",
            lambda queries, keys: wrong.squared(queries, keys).sqrt(),
            "These are the distances themselves; their squares are asked for.",
            "Which step takes a root (`sqrt`, `norm`, `cdist`)?",
        ),
        Mistake(
            "elementwise_only",
            lambda queries, keys: (queries - keys).square().sum(-1),
            "Your code compares query i with key i only; each query has to meet every key.",
            "What shapes must queries and keys have so that broadcasting makes (n, m, d)?",
        ),
        Mistake(
            "features_not_summed",
            wrong.pairwise(lambda difference: difference.square()),
            "One squared difference for each feature is left: the result still has an axis d.",
            "Over which axis must the squares be added up?",
        ),
        Mistake(
            "mean_over_features",
            wrong.pairwise(lambda difference: difference.square().mean(-1)),
            "You average the squares over the features instead of adding them up.",
            "What is the squared distance of (0, 0) and (3, 4)?",
        ),
        Mistake(
            "absolute_differences",
            wrong.pairwise(lambda difference: difference.abs().sum(-1)),
            "You add up absolute differences instead of squares.",
            "What does Pythagoras say about (0, 0) and (3, 4)?",
        ),
        Mistake(
            "squared_after_the_sum",
            wrong.pairwise(lambda difference: difference.sum(-1).square()),
            "You add up the differences first and square then, so that differences of opposite "
            "sign cancel.",
            "Which comes first, the square or the sum?",
        ),
        Mistake(
            "not_squared",
            wrong.pairwise(lambda difference: difference.sum(-1)),
            "The differences are added up without being squared.",
            "Where is the square?",
        ),
        Mistake(
            "largest_feature",
            wrong.pairwise(lambda difference: difference.square().amax(-1)),
            "Only the feature with the largest difference counts in your result.",
            "How do the squares of all features enter?",
        ),
        Mistake(
            "first_feature_only",
            wrong.pairwise(lambda difference: difference[..., 0].square()),
            "Only the first feature counts in your result.",
            "How do the other features enter?",
        ),
        Mistake(
            "fourth_power",
            wrong.pairwise(lambda difference: difference.square().sum(-1) ** 2),
            "These are the fourth powers of the distances: something is squared twice.",
            "How often is each difference squared?",
        ),
        Mistake(
            "dot_products",
            wrong.expanded(0, 1, 0),
            "These are dot products, not distances.",
            "Expand |q - k|^2: which two terms are missing, and which factor?",
        ),
        Mistake(
            "factor_two_missing",
            wrong.expanded(1, -1, 1),
            "You subtract the dot product once; |q - k|^2 = |q|^2 - 2 q.k + |k|^2.",
            "What is the mixed term of a square?",
        ),
        Mistake(
            "mixed_term_added",
            wrong.expanded(1, 2, 1),
            "You add the mixed term: this is |q + k|^2.",
            "What sign has the dot product in |q - k|^2?",
        ),
        Mistake(
            "query_norm_missing",
            wrong.expanded(0, -2, 1),
            "The term |q|^2 is missing. A softmax over the keys will not miss it, a distance does.",
            "What are the three terms of |q - k|^2?",
        ),
        Mistake(
            "key_norm_missing",
            wrong.expanded(1, -2, 0),
            "The term |k|^2 is missing.",
            "What are the three terms of |q - k|^2?",
        ),
        Mistake(
            "negated",
            lambda queries, keys: -wrong.squared(queries, keys),
            "The sign is wrong: these are the negative squared distances.",
            "Do you return a score or a distance here?",
        ),
        Mistake(
            "gradient_at_zero_nan",
            wrong.root_then_square,
            "The numbers are right, but the gradient is NaN where a query equals a key: you take "
            "a root and square it again.",
            "What is the derivative of a square root at 0, and do you need the root?",
        ),
        Mistake(
            "gradient_cut",
            wrong.distances_without_graph,
            "The numbers are right, but no gradient reaches queries and keys.",
            "Which step leaves the graph (`.detach()`, `.item()`, `.numpy()`, `torch.no_grad`)?",
        ),
    ),
    properties=(
        Property("negative_distance", _negative_distance, "Where do you square the differences?"),
    ),
    hints=(
        "Every query has to meet every key: give the queries an axis of size 1 for the keys, and "
        "the keys one for the queries.",
        "`queries[:, None, :]` has shape (n, 1, d), `keys[None, :, :]` has (1, m, d). Their "
        "difference broadcasts to (n, m, d); square it, and add up the last axis.",
        "differences = queries[:, None, :] - keys[None, :, :]\n"
        "return differences.square().sum(...)",
    ),
)


# ---------------------------------------------------------------- kernel_pooling
def _pooling_probes(rng):
    def problem(n, m, d, v, bandwidth, **options):
        return {
            "queries": tensor(_normal(rng, n, d), **options),
            "keys": tensor(_normal(rng, m, d), **options),
            "values": tensor(_normal(rng, m, v), **options),
            "bandwidth": bandwidth,
        }

    line = np.array([[0.0], [1.0], [3.0]])
    far = problem(3, 4, 2, 3, 0.5)
    far["queries"] = tensor(far["queries"].data + np.array([[0.0], [60.0], [-80.0]]))
    return [
        Probe(
            "by_hand",
            "Near keys must count more: the weight is proportional to "
            "exp(-distance^2 / (2 bandwidth^2)), and each row of weights sums to 1.",
            args={
                "queries": tensor([[1.0], [2.5]]),
                "keys": tensor(line),
                "values": tensor([[10.0], [20.0], [40.0]]),
                "bandwidth": 2.0,
            },
        ),
        Probe("general", "Every size must work.", args=problem(3, 5, 4, 2, 0.8)),
        Probe("wide", "A bandwidth above 1 must widen the kernel.", args=problem(4, 6, 2, 3, 2.5)),
        Probe("narrow", "A bandwidth below 1 must narrow it.", args=problem(2, 7, 3, 5, 0.45)),
        Probe(
            "strided",
            "Non-contiguous tensors must work.",
            args=problem(5, 3, 2, 4, 1.3, strided=True),
        ),
        Probe(
            "square",
            "With as many queries as keys a row of weights still belongs to one query: it comes "
            "from the distances of that query to all keys.",
            args=problem(4, 4, 2, 3, 1.4),
        ),
        Probe(
            "far_query",
            "A query far from every key still gets weights that sum to 1: its nearest keys count, "
            "although every exp underflows to 0.",
            part="edges",
            args=far,
        ),
        Probe(
            "one_key",
            "A single key gets weight 1, however far away it is, and its value is returned.",
            part="edges",
            args=problem(3, 1, 2, 4, 0.7),
        ),
        Probe(
            "one_query",
            "One query, one feature and one column of values must work.",
            part="edges",
            args=problem(1, 5, 1, 1, 0.9),
        ),
        Probe(
            "huge_bandwidth",
            "With a huge bandwidth every key counts the same, and the output is the plain average.",
            part="edges",
            args=problem(2, 5, 3, 2, 1e4),
        ),
        Probe(
            "flat_values",
            "Values with one axis only must raise a ValueError.",
            part="edges",
            args={
                "queries": tensor(_normal(rng, 2, 3)),
                "keys": tensor(_normal(rng, 4, 3)),
                "values": tensor(_normal(rng, 4)),
                "bandwidth": 1.0,
            },
            raises="ValueError",
        ),
        Probe(
            "gradient",
            "The outputs must be differentiable in queries, keys and values.",
            part="gradients",
            args=problem(2, 4, 2, 3, 1.1, requires_grad=True),
            grad_outputs=_normal(rng, 2, 3),
        ),
        Probe(
            "gradient_on_a_key",
            "Where a query equals a key the gradient is finite.",
            part="gradients",
            args={
                "queries": tensor([[1.0], [0.5]], requires_grad=True),
                "keys": tensor(line, requires_grad=True),
                "values": tensor(_normal(rng, 3, 2), requires_grad=True),
                "bandwidth": 0.9,
            },
            grad_outputs=_normal(rng, 2, 2),
        ),
    ]


def _parts(outputs):
    items = getattr(outputs, "items", {})
    found = [items.get(i) for i in range(2)]
    if any(part is None or part.data is None or part.data.ndim != 2 for part in found):
        return None
    return [part.data for part in found]


def _rows_sum(probe, outputs):
    parts = _parts(outputs)
    if parts is None or np.allclose(parts[1].sum(-1), 1.0, atol=1e-4):
        return None
    sums = parts[1].sum(-1)
    row = int(np.argmax(np.abs(sums - 1.0)))
    return f"The weights of query {row} sum to {sums[row]:.3f} over the keys, not to 1."


def _nearest_counts_most(probe, outputs):
    parts = _parts(outputs)
    if parts is None or parts[1].shape[-1] < 2:
        return None
    inputs = probe.inputs()
    nearest = oracle.squared_distances(inputs["queries"].data, inputs["keys"].data).argmin(-1)
    largest = parts[1].argmax(-1)
    rows = np.flatnonzero(nearest != largest)
    if not rows.size:
        return None
    row = int(rows[0])
    return (
        f"For query {row} the nearest key is number {nearest[row]}, but your largest weight is on "
        f"key {largest[row]}."
    )


def _between_the_values(probe, outputs):
    parts, values = _parts(outputs), probe.inputs()["values"].data
    if parts is None or parts[0].shape[-1] != values.shape[-1]:
        return None
    outside = (parts[0] > values.max(0) + 1e-6) | (parts[0] < values.min(0) - 1e-6)
    if not outside.any():
        return None
    i, c = (int(x) for x in np.argwhere(outside)[0])
    return (
        f"Your output at [{i}, {c}] is {parts[0][i, c]:.3f}, outside the values "
        f"{values[:, c].min():.3f} to {values[:, c].max():.3f}: no average can be."
    )


def _ratio_of_weights(probe, outputs):
    """The ratio of two weights of a query depends on the two distances alone."""
    parts = _parts(outputs)
    inputs = probe.inputs()
    distances = oracle.squared_distances(inputs["queries"].data, inputs["keys"].data)
    exponents = -distances / (2 * inputs["bandwidth"] ** 2)
    if parts is None or parts[1].shape != distances.shape or distances.shape[-1] < 2:
        return None
    order = exponents.argsort(-1)
    for i, row in enumerate(order):
        near, other = int(row[-1]), int(row[-2])
        wanted = math.exp(exponents[i, other] - exponents[i, near])
        weights = parts[1][i]
        if weights[near] <= 0 or abs(weights[other] / weights[near] - wanted) > 1e-4:
            shares = f"{weights[near]:.4f} and {weights[other]:.4f}"
            return (
                f"The nearest keys of query {i} are {near} and {other}, at squared distances "
                f"{distances[i, near]:.3f} and {distances[i, other]:.3f}. With bandwidth "
                f"{inputs['bandwidth']:g} their weights must have the ratio 1 : {wanted:.4f}; "
                f"yours are {shares}."
            )
    return None


def _never_zero(probe, outputs):
    parts, inputs = _parts(outputs), probe.inputs()
    distances = oracle.squared_distances(inputs["queries"].data, inputs["keys"].data)
    if parts is None or parts[1].shape != distances.shape:
        return None
    counts = (distances - distances.min(-1, keepdims=True)) / (2 * inputs["bandwidth"] ** 2) < 20
    missing = np.argwhere(counts & (parts[1] == 0))
    if not missing.size:
        return None
    query, key = (int(i) for i in missing[0])
    return (
        f"Query {query} gives key {key} a weight of exactly 0, but the Gaussian kernel is positive "
        "at every distance: each key counts, the far ones little."
    )


_CONSISTENT = "Are the outputs the same weights times the values that you return?"


def _weights_make_outputs(probe, outputs):
    parts, values = _parts(outputs), probe.inputs()["values"].data
    if parts is None or parts[1].shape[-1] != len(values):
        return None
    with np.errstate(all="ignore"):
        if np.allclose(parts[1] @ values, parts[0], atol=1e-4):
            return None
    return "Your outputs are not your weights times the values."


KERNEL_POOLING = Exercise(
    name="kernel_pooling",
    points=5,
    minutes=25,
    difficulty=2,
    returns=(
        Returned("outputs", "tensor", "float", ("num_queries", "v")),
        Returned("attention_weights", "tensor", "float", ("num_queries", "num_keys")),
    ),
    probes=_pooling_probes,
    oracle=oracle.kernel_pooling,
    builds_on=("squared_distances",),
    mistakes=(
        Mistake(
            "over_queries",
            wrong.scored(lambda s, h: -s / (2 * h**2), dim=0),
            "You normalise over the queries: the columns of your weights sum to 1, not the rows.",
            "A query shares its weight among the keys. Which axis holds the keys?",
        ),
        Mistake(
            "not_normalised",
            wrong.pooling(wrong.gaussian),
            "The kernel is right, but it is not normalised: the weights of a query do not sum to "
            "1, and the outputs are sums, not averages.",
            "By what must each row be divided?",
        ),
        Mistake(
            "global_sum",
            wrong.pooling(lambda s, h: torch.softmax((-s / (2 * h**2)).flatten(), 0).view_as(s)),
            "You divide by the total of all queries together: the whole matrix sums to 1 instead "
            "of each row.",
            "What do `dim=` and `keepdim=True` do in `sum`?",
        ),
        Mistake(
            "plus_distance",
            wrong.scored(lambda s, h: s / (2 * h**2)),
            "The sign is wrong: the farthest key gets the largest weight.",
            "Should a large distance give a large score or a small one?",
        ),
        Mistake(
            "distance_not_squared",
            wrong.scored(lambda s, h: -s.sqrt() / (2 * h**2)),
            "The distance enters without its square: exp(-distance / (2 h^2)) has a sharp tip and "
            "heavy tails.",
            "What does `squared_distances` return, and do you take a root of it?",
        ),
        Mistake(
            "laplace_kernel",
            wrong.scored(lambda s, h: -s.sqrt() / h),
            "Your kernel is exp(-distance / h): the distance enters without its square.",
            "Where are the two squares in exp(-distance^2 / (2 h^2))?",
        ),
        Mistake(
            "bandwidth_multiplied",
            wrong.scored(lambda s, h: -s * h**2 / 2),
            "You multiply by h^2 where you should divide: a larger bandwidth makes your kernel "
            "narrower.",
            "What should happen to far keys when the bandwidth grows? In which order does "
            "Python evaluate `a / 2 * b`?",
        ),
        Mistake(
            "half_missing",
            wrong.scored(lambda s, h: -s / h**2),
            "The factor 1/2 is missing: your kernel is as narrow as one of bandwidth h / sqrt 2.",
            "What stands under the fraction in exp(-distance^2 / (2 h^2))?",
        ),
        Mistake(
            "half_squared",
            wrong.scored(lambda s, h: -s / (2 * h) ** 2),
            "You square the 2 as well: the exponent is -distance^2 / (4 h^2).",
            "In `2 * bandwidth ** 2`, what does the power belong to, and where are your brackets?",
        ),
        Mistake(
            "bandwidth_not_squared",
            wrong.scored(lambda s, h: -s / (2 * h)),
            "The bandwidth enters without its square: the exponent is -distance^2 / (2 h).",
            "What are the units of distance^2, and of h?",
        ),
        Mistake(
            "bandwidth_ignored",
            wrong.scored(lambda s, h: -s / 2),
            "The bandwidth changes nothing: your kernel is that of bandwidth 1.",
            "Where does `bandwidth` enter your computation?",
        ),
        Mistake(
            "bandwidth_ignored_half_missing",
            wrong.scored(lambda s, h: -s),
            "The bandwidth changes nothing, and the factor 1/2 is missing.",
            "Where do `bandwidth` and the 2 enter your computation?",
        ),
        Mistake(
            "plain_average",
            wrong.pooling(lambda s, h: torch.full_like(s, 1 / s.shape[-1])),
            "Every key gets the same weight: the output is the plain average, whatever the query.",
            "Where do queries and keys enter the weights?",
        ),
        Mistake(
            "nearest_neighbour",
            wrong.pooling(wrong.nearest),
            "Only the nearest key counts. That is a hard search: it jumps, and has no gradient.",
            "How can every key count a little, the near ones most?",
        ),
        Mistake(
            "softmax_of_the_kernel",
            wrong.scored(wrong.gaussian),
            "You take the softmax of the kernel, which exponentiates twice; all weights end up "
            "close to each other.",
            "Softmax takes exp itself. Which numbers does it need as its input?",
        ),
        Mistake(
            "far_query_nan",
            wrong.normalised(wrong.gaussian),
            "Far from every key, exp(-distance^2 / (2 h^2)) underflows to 0 for all of them, and "
            "you divide 0 by 0.",
            "Which number can be added to all scores of a row without changing the weights?",
        ),
        Mistake(
            "epsilon_in_the_total",
            wrong.pooling(
                lambda s, h: (
                    wrong.gaussian(s, h) / (wrong.gaussian(s, h).sum(-1, keepdim=True) + 1e-8)
                )
            ),
            "A small number in the denominator keeps 0 / 0 away, but a far query now gets the "
            "output 0, and every other row sums to a little less than 1.",
            "Which number can be added to all scores of a row without changing the weights?",
        ),
        Mistake(
            "boxcar_kernel",
            wrong.pooling(lambda s, h: torch.softmax(torch.where(s.sqrt() < h, 0.0, -1e9), -1)),
            "All keys closer than the bandwidth count the same: this is the boxcar kernel.",
            "How does the Gaussian kernel fall off with the distance?",
        ),
        Mistake(
            "dot_product_scores",
            wrong.dot_products,
            "Your scores are dot products: long keys win, near or not.",
            "Which term of |q - k|^2 depends on the key alone?",
        ),
        Mistake(
            "first_feature_only",
            wrong.first_feature,
            "Only the first feature of queries and keys counts.",
            "How do the other features enter the distance?",
        ),
        Mistake(
            "taxi_distance",
            wrong.absolute_distance,
            "Your distance adds up absolute differences; the Euclidean one adds up squares.",
            "Could you call `squared_distances`?",
        ),
        Mistake(
            "only_outputs",
            wrong.only_outputs,
            "The outputs are right, but the attention weights are asked for as well.",
            "What does `return a, b` return?",
        ),
        Mistake(
            "order_swapped",
            wrong.swapped,
            "You return the weights first; the outputs come first.",
            "What does the line `Returns:` in the docstring say?",
        ),
        Mistake(
            "weights_transposed",
            wrong.weights_transposed,
            "The outputs are right, but the weights come back with keys in the rows.",
            "Which axis of the weights belongs to the queries?",
        ),
        Mistake(
            "kernel_returned_as_weights",
            wrong.kernel_instead_of_weights,
            "The outputs are right, but what you return as weights is the kernel before it is "
            "normalised.",
            "Which of your variables sums to 1 in each row?",
        ),
        Mistake(
            "flat_values_accepted",
            lambda *args: wrong.right_pooling(*args, check=False),
            "All numbers are right, but values with one axis are accepted in silence; a ValueError "
            "is asked for.",
            "How many axes do `values` have, and who tells the caller if it is the wrong number?",
        ),
        Mistake(
            "gradient_cut",
            wrong.pooling_without_graph,
            "The numbers are right, but no gradient reaches queries and keys.",
            "Which step leaves the graph (`.detach()`, `.item()`, `.numpy()`, `torch.no_grad`)?",
        ),
    ),
    properties=(
        Property("rows_do_not_sum_to_one", _rows_sum, "Over which axis do you normalise?"),
        Property(
            "nearest_key_not_first",
            _nearest_counts_most,
            "How does your score change with the distance?",
        ),
        Property(
            "key_without_weight", _never_zero, "Which step leaves keys out, or rounds them to 0?"
        ),
        Property(
            "wrong_ratio_of_weights",
            _ratio_of_weights,
            "Which expression of yours stands for -distance^2 / (2 h^2)?",
        ),
        Property("weights_do_not_make_outputs", _weights_make_outputs, _CONSISTENT),
        Property(
            "outside_the_values", _between_the_values, "Do your weights sum to 1, none negative?"
        ),
    ),
    hints=(
        "Two steps: turn distances into weights that sum to 1 for each query, then average the "
        "values with them. The average of all queries at once is a matrix product.",
        "scores = -squared distances / (2 h^2). Softmax over the keys is exp divided by the total, "
        "and it survives far queries. Begin with the check that `values` has two axes.",
        "if values.dim() != 2:\n    raise ValueError(...)\n"
        "scores = -squared_distances(queries, keys) / ...\n"
        "attention_weights = torch.softmax(scores, dim=...)\n"
        "return attention_weights @ values, attention_weights",
    ),
)


# ---------------------------------------------------------------- leave_one_out
def _points(rng, count, spread=3.0):
    """Points that have neighbours: evenly spread, then shaken and shuffled."""
    even = np.linspace(-spread, spread, count) + rng.uniform(-0.25, 0.25, count) * spread / count
    return rng.permutation(even)


def _leave_one_out_probes(rng):
    def problem(count, bandwidth, **options):
        return {
            "inputs": tensor(_points(rng, count), **options),
            "targets": tensor(_normal(rng, count) + 1.5, **options),
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
                "targets": tensor(_normal(rng, 2)),
                "bandwidth": 0.8,
            },
        ),
        Probe(
            "twins",
            "Of two points with the same input only the point itself is left out; its twin counts.",
            part="edges",
            args={
                "inputs": tensor([1.0, 0.0, 1.0, 2.5]),
                "targets": tensor(_normal(rng, 4) + 1.5),
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
            "gradient",
            "The predictions must be differentiable in inputs and targets.",
            part="gradients",
            args=problem(5, 1.1, requires_grad=True),
            grad_outputs=_normal(rng, 5),
        ),
        Probe(
            "gradient_of_bandwidth",
            "The bandwidth may be a tensor, and the predictions must be differentiable in it.",
            part="gradients",
            args={
                "inputs": tensor(_points(rng, 6)),
                "targets": tensor(_normal(rng, 6) + 1.5),
                "bandwidth": tensor(np.array(1.3), requires_grad=True),
            },
            grad_outputs=_normal(rng, 6),
        ),
    ]


def _own_target_matters(probe, outputs):
    data, inputs = outputs.data, probe.inputs()
    targets = inputs["targets"].data
    if data is None or data.shape != targets.shape or len(targets) < 2:
        return None
    for i in range(len(targets)):
        others = np.delete(targets, i)
        if not others.min() - 1e-6 <= data[i] <= others.max() + 1e-6:
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


# ---------------------------------------------------------------- fit_bandwidth
_GRID = np.exp(np.linspace(math.log(0.02), math.log(50.0), 90))


def _learnable(rng, count, initial=1.0, num_steps=200, lr=0.1):
    """Points whose leave-one-out error has one clear minimum that gradient descent reaches."""
    while True:
        inputs = _points(rng, count)
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
    "Your bandwidth shrinks towards 0. That minimises the error on the training points, where "
    "each point predicts itself; the leave-one-out error is asked for.",
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
    "Your bandwidth ends farther from the best one than it started: you go up the error instead of "
    "down.",
    "What sign has the step of gradient descent?",
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


# ---------------------------------------------------------------- gaussian_as_dot_product
def _dot_product_probes(rng):
    def probe(name, says, n, m, d, bandwidth, part="values", unit=False, grad=None, **options):
        keys = _normal(rng, m, d)
        keys = keys / np.linalg.norm(keys, axis=-1, keepdims=True) if unit else keys
        queries = _normal(rng, n, d)
        return Probe(
            name,
            says,
            part=part,
            args={
                "queries": tensor(queries, **options),
                "keys": tensor(keys, **options),
                "bandwidth": bandwidth,
            },
            compare="same_softmax",
            grad_outputs=grad,
        )

    centred = _normal(rng, 2, 4)
    centred -= centred.mean(-1, keepdims=True)  # what a softmax passes back: rows sum to 0
    return [
        Probe(
            "by_hand",
            "The softmax of your scores must be the weights of the Gaussian kernel, also for keys "
            "of different lengths.",
            args={
                "queries": tensor([[1.0, 0.0]]),
                "keys": tensor([[1.0, 1.0], [2.0, 0.0], [0.0, -1.5]]),
                "bandwidth": 2.0,
            },
            compare="same_softmax",
        ),
        probe("general", "Keys of any length must work.", 3, 5, 4, 0.9),
        probe("wide", "A bandwidth above 1 must flatten the weights.", 4, 6, 2, 1.9),
        probe("narrow", "A bandwidth below 1 must sharpen the weights.", 2, 7, 3, 0.7),
        probe("strided", "Non-contiguous tensors must work.", 5, 3, 2, 1.3, strided=True),
        probe(
            "unit_keys",
            "For keys of length 1 it must hold as well.",
            3,
            4,
            3,
            0.8,
            part="edges",
            unit=True,
        ),
        probe("square", "As many queries as keys.", 4, 4, 3, 1.2, part="edges"),
        probe("one_query", "One query and one feature.", 1, 5, 1, 1.1, part="edges"),
        probe(
            "gradient",
            "The weights must have the gradient of the Gaussian kernel.",
            2,
            4,
            3,
            1.3,
            part="gradients",
            grad=centred,
            requires_grad=True,
        ),
    ]


def _softmax_rows(scores):
    with np.errstate(all="ignore"):
        shifted = np.exp(scores - scores.max(-1, keepdims=True))
        return shifted / shifted.sum(-1, keepdims=True)


def _same_softmax(probe, expected, recorded):
    """Scores may differ by a number for each query: only their softmax counts."""
    if not np.isfinite(recorded.data).all():
        return Problem("not_finite", "Your scores are not finite.", "Which step divides by 0?")
    ours = _softmax_rows(np.asarray(expected, dtype=np.float64))
    theirs = _softmax_rows(recorded.data.astype(np.float64))
    if arrays_agree(ours, theirs, tolerance_for(probe, recorded)):
        return None
    return Problem("wrong_values", probe.says)


def _dots(query=1.0, dot=1.0, key=-0.5, scale=lambda h: h**2):
    """Scores with a factor on each of the three terms."""

    def model(queries, keys, bandwidth):
        norms = query * queries.square().sum(-1)[:, None] + key * keys.square().sum(-1)
        return (dot * (queries @ keys.T) + norms) / scale(bandwidth)

    return model


GAUSSIAN_AS_DOT_PRODUCT = Exercise(
    name="gaussian_as_dot_product",
    points=3,
    minutes=20,
    difficulty=2,
    returns=(Returned("scores", "tensor", "float", ("num_queries", "num_keys")),),
    probes=_dot_product_probes,
    oracle=oracle.gaussian_as_dot_product,
    builds_on=("squared_distances",),
    comparisons={"same_softmax": _same_softmax},
    mistakes=(
        Mistake(
            "only_for_unit_keys",
            _dots(0, 1, 0),
            "Right for keys of length 1 only: without |k|^2 / 2 a long key scores high even if it "
            "is far away.",
            "Which terms of -|q - k|^2 / (2 h^2) differ from key to key?",
        ),
        Mistake(
            "bandwidth_missing",
            _dots(0, 1, -0.5, lambda h: 1.0),
            "The bandwidth changes nothing: your scores are those of bandwidth 1.",
            "By what is every term divided?",
        ),
        Mistake(
            "plain_dot_product",
            _dots(0, 1, 0, lambda h: 1.0),
            "These are bare dot products: neither the bandwidth nor the length of a key enters.",
            "Expand -|q - k|^2 / (2 h^2). Which terms differ from key to key?",
        ),
        Mistake(
            "key_norm_not_divided",
            lambda queries, keys, h: queries @ keys.T / h**2 - keys.square().sum(-1) / 2,
            "The dot product is divided by h^2, the key's term is not.",
            "By what is every term divided?",
        ),
        Mistake(
            "dot_product_not_divided",
            lambda queries, keys, h: queries @ keys.T - keys.square().sum(-1) / (2 * h**2),
            "The key's term is divided by h^2, the dot product is not.",
            "By what is every term divided?",
        ),
        Mistake(
            "sign_flipped",
            _dots(0, -1, 0.5),
            "All signs are flipped: far keys score high.",
            "Should the score grow or fall with the distance?",
        ),
        Mistake(
            "key_norm_added",
            _dots(0, 1, 0.5),
            "The key's term has the wrong sign: long keys are rewarded instead of held back.",
            "What sign has |k|^2 in -|q - k|^2?",
        ),
        Mistake(
            "dot_product_subtracted",
            _dots(0, -1, -0.5),
            "The dot product has the wrong sign.",
            "What sign has the mixed term in -|q - k|^2?",
        ),
        Mistake(
            "key_norm_not_halved",
            _dots(0, 1, -1),
            "The key's term is twice as large as it should be.",
            "What is left of the 2 under the fraction once the mixed term has used it?",
        ),
        Mistake(
            "dot_product_halved",
            _dots(0, 0.5, -0.5),
            "The dot product is half as large as it should be: the mixed term of a square has a "
            "factor 2.",
            "What is the mixed term of |q - k|^2?",
        ),
        Mistake(
            "half_missing",
            _dots(0, 2, -1),
            "All scores are twice as large as they should be: the factor 1/2 is missing.",
            "What stands under the fraction in exp(-distance^2 / (2 h^2))?",
        ),
        Mistake(
            "norm_not_squared",
            lambda queries, keys, h: (queries @ keys.T - keys.norm(dim=-1) / 2) / h**2,
            "The length of the key enters without its square.",
            "What is the difference between |k| and k.k?",
        ),
        Mistake(
            "query_norm_instead_of_key_norm",
            _dots(-0.5, 1, 0),
            "You subtract the length of the query. It is the same for all keys, so a softmax does "
            "not see it; the key's length is what it misses.",
            "Which of |q|^2 and |k|^2 differs from key to key?",
        ),
        Mistake(
            "bandwidth_not_squared",
            _dots(0, 1, -0.5, lambda h: h),
            "The bandwidth enters without its square.",
            "What are the units of a dot product, and of h?",
        ),
        Mistake(
            "bandwidth_multiplied",
            _dots(0, 1, -0.5, lambda h: h**-2),
            "You multiply by h^2 where you should divide.",
            "What should a large bandwidth do to the differences of the scores?",
        ),
        Mistake(
            "scaled_by_root_d",
            lambda queries, keys, h: queries @ keys.T / math.sqrt(keys.shape[-1]),
            "This is the scaled dot product of lesson 05, which has another scale and no term for "
            "the length of the keys.",
            "Expand -|q - k|^2 / (2 h^2). What does it divide by?",
        ),
        Mistake(
            "weights_returned",
            lambda queries, keys, h: torch.softmax(-wrong.squared(queries, keys) / (2 * h**2), -1),
            "You return the weights; the scores before the softmax are asked for.",
            "What happens to weights that go through a softmax again?",
        ),
        Mistake(
            "kernel_returned",
            lambda queries, keys, h: wrong.gaussian(wrong.squared(queries, keys), h),
            "You return the kernel; the softmax will take the exponential itself.",
            "Which numbers does a softmax need as its input?",
        ),
        Mistake(
            "transposed",
            lambda queries, keys, h: (
                (keys @ queries.T - keys.square().sum(-1, keepdim=True) / 2) / h**2
            ),
            "Keys are in the rows and queries in the columns.",
            "Is it `queries @ keys.mT` or the other way round?",
        ),
        Mistake(
            "square_transposed",
            lambda queries, keys, h: -wrong.squared(keys, queries) / (2 * h**2),
            "Keys are in the rows and queries in the columns.",
            "In which order does `squared_distances` take its arguments?",
        ),
        Mistake(
            "square_positive",
            lambda queries, keys, h: wrong.squared(queries, keys) / (2 * h**2),
            "The sign is wrong: your scores grow with the distance, so that far keys win.",
            "Should the score grow or fall with the distance?",
        ),
        Mistake(
            "square_without_half",
            lambda queries, keys, h: -wrong.squared(queries, keys) / h**2,
            "All scores are twice as large as they should be: the factor 1/2 is missing.",
            "What stands under the fraction in exp(-distance^2 / (2 h^2))?",
        ),
        Mistake(
            "square_without_bandwidth",
            lambda queries, keys, h: -wrong.squared(queries, keys) / 2,
            "The bandwidth changes nothing: your scores are those of bandwidth 1.",
            "Where does `bandwidth` enter?",
        ),
        Mistake(
            "distance_not_squared",
            lambda queries, keys, h: -wrong.squared(queries, keys).sqrt() / (2 * h**2),
            "The distance enters without its square.",
            "What is squared in exp(-distance^2 / (2 h^2))?",
        ),
        Mistake(
            "gradient_cut",
            lambda queries, keys, h: -wrong.squared(queries.detach(), keys.detach()) / (2 * h**2),
            "The scores are right, but no gradient reaches queries and keys.",
            "Which step leaves the graph (`.detach()`, `.item()`, `.numpy()`, `torch.no_grad`)?",
        ),
    ),
    hints=(
        "Expand the square in -|q - k|^2 / (2 h^2). A softmax over the keys ignores every term "
        "that is the same for all keys.",
        "-|q - k|^2 = 2 q.k - |k|^2 - |q|^2. Divide by 2 h^2, drop the last term. The second one "
        "is a number for each key: shape (m,), and it broadcasts over the rows.",
        "dot_products = queries @ keys.mT\n"
        "half_norms = keys.square().sum(dim=-1) / 2\n"
        "return (... - ...) / bandwidth**2",
    ),
)

EXERCISES = (
    SQUARED_DISTANCES,
    KERNEL_POOLING,
    LEAVE_ONE_OUT,
    FIT_BANDWIDTH,
    GAUSSIAN_AS_DOT_PRODUCT,
)
