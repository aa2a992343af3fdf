"""`factored_additive_scores`: additive scores with one exponential for each vector."""

from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import FLOAT32, Case, Given, case, edge, in_steps, mistake


def _draw(rng, batch, n, m, h, scale=1.2, **options) -> Given:
    shapes = {"projected_queries": (batch, n, h), "projected_keys": (batch, m, h), "w_v": (h,)}
    return {name: tensor(rng.normal(0, scale, s), **options) for name, s in shapes.items()}


def _of(points, w_v, **options) -> Given:
    """Return the queries and keys of one item."""
    arrays = {"projected_queries": [points[0]], "projected_keys": [points[1]], "w_v": w_v}
    return {name: tensor(np.array(data, float), **options) for name, data in arrays.items()}


def _frugal(args, times=1) -> dict[str, int]:
    queries, keys = (args[f"projected_{name}"].data for name in ("queries", "keys"))
    return {"functions": times * (queries.size + keys.size)}


def _values(rng) -> list[Probe]:
    few, right = _draw(rng, 2, 9, 11, 4), "The scores are w_v . tanh(q + k) for each query and key."
    drawn, upstream = _draw(rng, 2, 2, 3, 2, requires_grad=True), rng.normal(0, 1, (2, 2, 3))
    return [
        case("worked_number", **_of(([[0.5, 0.0]], [[0.0, 0.0]]), [1.0, 2.0])).says(right),
        case("items", **_draw(rng, 2, 4, 3, 5)).says("Each item must have its own scores."),
        # An exponential for each pair needs five times as many.
        case("few_functions", **few, at_most=_frugal(few, 2)).says(
            "One exponential for each number in the queries and keys is enough: (n + m) H for "
            "each item, not n m H."
        ),
        case("gradient", **drawn, grad_outputs=upstream).says(
            "The gradient must match the gradient of the formula."
        ),
    ]


def _borders(rng) -> list[Probe]:
    one_each = _draw(rng, 1, 6, 7, 3) | {"w_v": tensor([1.5, -2.0, 0.5])}  # its sum is 0
    queries = [[40.0, -40.0, 39.5, 0.2], [-40.0, 40.0, -39.0, -0.3]]
    keys = [[-40.0, 40.0, -39.0, 0.1], [40.0, 40.0, 39.5, 0.4], [-39.7, -40.0, 40.0, 0.0]]
    near = _of((queries, keys), [1.5, -0.7, 2.0, 0.4])
    far = [[-46.0, 45.0], [45.5, -46.5], [0.4, -0.3]], [[45.7, -44.6], [-45.2, 46.3], [-0.2, 0.6]]
    very_far = [[-400.0, 0.5], [390.0, 0.1]], [[399.6, -0.2], [-390.5, 1.0], [0.0, 0.4]]
    beyond = _of(very_far, [1.0, 2.0], requires_grad=True)
    half = [[8.0, -7.0], [-8.0, 6.5]], [[-8.0, 7.25], [7.75, -6.5], [0.25, 0.0]]
    return [
        edge("one_for_each", **one_each, at_most=_frugal(one_each)).says(
            "One exponential for each number in the queries and keys is enough."
        ),
        edge("at_the_border", **near, **FLOAT32, at_most=_frugal(near)).says(
            "Up to 40 on both sides, the exponentials of the vectors are enough, also in float32."
        ),
        edge("beyond_the_border", **_of(far, [1.0, -2.0]), dtype="float32").says(
            "The scores must also be right where an exponential leaves the range of float32."
        ),
        edge("beyond_in_float64", **beyond, grad_outputs=np.ones((1, 2, 3))).says(
            "Scores and gradients must also be right where an exponential leaves the range of "
            "float64."
        ),
        edge("float16", **_of(half, [1.0, -1.0]), dtype="float16", tolerance=3e-2).says(
            "In float16 the exponentials leave the range of the dtype from exp(11.1) on."
        ),
    ]


def _beyond(rng) -> list[Probe]:
    """Return edge cases with exponentials beyond the range of float32."""

    def probe(name, queries, keys) -> Case:
        points = _of((queries, keys), [20.0, -30.0])
        return edge(name, **points, dtype="float32")

    within = [[39.875, -0.25], [39.75, 39.875], [0.0, 0.5]]
    return [
        probe("last_query_beyond", [[0.25, -0.5], [0.5, 0.25], [-44.75, 0.5]], within).says(
            "A single number of the last query may be out of range."
        ),
        probe("last_key_beyond", within, [[0.25, -0.5], [0.5, 0.25], [0.125, -44.75]]).says(
            "A single number of the last key may be out of range."
        ),
    ]


def _limit(dtype) -> float:
    return -0.5 * float(np.log(torch.finfo(dtype).tiny))


def _both(queries, keys, limit) -> bool:
    return bool((queries.abs() <= limit).all() and (keys.abs() <= limit).all())


@in_steps(
    guard=lambda queries, keys: _both(queries, keys, _limit(queries.dtype)),
    outside=lambda queries, keys: torch.sigmoid(2 * (queries + keys)),
    end=lambda sigmoids, w_v: 2 * (sigmoids @ w_v) - w_v.sum(),
    factor=2,
)
def _model(guard, outside, end, factor) -> Callable:
    """Return the factored scores; each argument is one of their steps."""

    def factored_additive_scores(projected_queries, projected_keys, w_v) -> torch.Tensor:
        queries, keys = projected_queries.unsqueeze(2), projected_keys.unsqueeze(1)
        if guard(queries, keys):
            sigmoids = 1 / (1 + torch.exp(-factor * queries) * torch.exp(-factor * keys))
        else:
            sigmoids = outside(queries, keys)
        return end(sigmoids, w_v)

    return factored_additive_scores


def _of_product(tanh) -> Callable:
    """Compute tanh(q + k) from the product of exp(2q) and exp(2k) without guarding overflow."""

    def model(projected_queries, projected_keys, w_v) -> torch.Tensor:
        queries, keys = (2 * projected_queries).exp(), (2 * projected_keys).exp()
        return tanh(queries.unsqueeze(2) * keys.unsqueeze(1)) @ w_v

    return model


EXERCISE = Exercise(
    points=3,
    minutes=20,
    difficulty=2,
    starred=True,
    returns=(Returned("scores", "tensor", "float", ("batch", "num_queries", "num_keys")),),
    probes=lambda rng: [*_values(rng), *_borders(rng), *_beyond(rng)],
    mistakes=(
        mistake(
            "no_guard",
            _model(lambda queries, keys: True),
            twins=(
                _of_product(lambda p: (p - 1) / (p + 1)),
                _of_product(lambda p: 1 - 2 / (p + 1)),
                _of_product(lambda p: p / (p + 1) * 2 - 1),
            ),
        ).says(
            "You use the fast form even where the exponential of a query or a key leaves the range "
            "of the dtype. One exponential may then be infinite and another 0, and their product "
            "is NaN.",
            "For which q are both exp(2q) and exp(-2q) finite in the inputs' dtype?",
        ),
        mistake(
            "sum_guarded",
            _model(lambda q, k: q.dtype != torch.float16 and (q + k).abs().max() <= 80),
            twins=(_model(lambda q, k: max(q.max(), k.max()) <= _limit(q.dtype)),),
        ).says(
            "Your guard lets very negative numbers through: it tests the sums q + k, or has no "
            "lower limit. At q = -45, exp(-2q) is already too large for float32.",
            "Which numbers enter the two exponentials, and can each of them be too large?",
        ),
        mistake("factor_2_missing", _model(factor=1)).says(
            "Your exponents lack the factor 2: tanh(x) needs exp(2x) or exp(-2x).",
            "How is tanh(x) written with exponentials?",
        ),
    ),
    hints=(
        "A tanh is expensive. Write it with a sigmoid, and the sigmoid with an exponential: its "
        "exponent is a sum of a term from the query and a term from the key. So what is the "
        "exponential?",
        "What shapes must the exponentials of queries and keys have so that a single product "
        "covers all pairs? For the guard: when is one of the two exponentials no longer an "
        "ordinary number of the dtype? `torch.finfo(dtype)` knows the smallest and the largest.",
        "Solve a smaller version first: one item, one feature, two queries, three keys. Compute "
        "the table of 6 tanh values from 5 exponentials and compare it with `torch.tanh`. Then "
        "take q = 50 and k = -50 in float32 and print every number along the way. Which test on q "
        "and k alone would have warned you? Add features and `w_v` last.",
    ),
)
