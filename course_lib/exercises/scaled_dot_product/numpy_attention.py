"""`numpy_attention`: attention from scratch in NumPy, without lengths and batches."""

import math
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, array
from course_lib.exercises._attention.mistakes import known
from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.padding import FAR, far_above, largest_padding
from course_lib.exercises._attention.steps import NO_STEP
from course_lib.exercises._builders import Given, case, edge
from course_lib.exercises.scaled_dot_product._problems import (
    EMPTY,
    FORMULA,
    MASK,
    PROPERTIES,
    SECOND_ROW_EMPTY,
    large,
    problem_of,
    random_mask,
)


def _probes(rng) -> list[Probe]:
    def problem(n, m, d, v, mask=None, **options) -> Given:
        given = problem_of(rng, (), n, m, d, v, make_array=array, **options)
        return given if mask is None else given | {"mask": array(mask)}

    worked = {
        "queries": array([[2.0, 0, 0, 0]]),
        "keys": array([[math.log(4), 0, 0, 0], [math.log(2), 7.0, 0, 0], [0, 0, 5.0, 5.0]]),
        "values": array([[7.0], [14.0], [0.0]]),
    }
    zeros = problem(2, 3, 4, 5, SECOND_ROW_EMPTY) | {"queries": array(np.zeros((2, 4)))}
    return [
        case("worked", **worked).says(FORMULA),  # pyright: ignore[reportArgumentType] - a row has no `args`
        case("random", **problem(3, 5, 6, 4)).says(FORMULA),
        case("masked", **problem(4, 4, 5, 2, random_mask(rng, 4, 4))).says(MASK),
        edge("large_scores", **large(rng, array)).says(
            "Scores may be very large: exp(1000) is inf, yet the weights exist."
        ),
        edge("one_row_mask", **problem(4, 5, 7, 2, [[True, False, True, True, False]])).says(
            "A mask of shape (1, num_keys) holds for every query."
        ),
        edge("empty_row", **zeros).says(EMPTY),
        edge("nothing_allowed", **problem(2, 4, 3, 5, np.zeros((2, 4), dtype=bool))).says(EMPTY),
        *largest_padding(rng, lambda data: array(data[0]), mask=array([[True, True, False]] * 2)),
        *far_above(rng, lambda data: array(data[0]), mask=array(FAR)),
    ]


class _InNumpy(Attention):
    """The correct attention for NumPy arrays, without lengths."""

    align = real = NO_STEP

    @classmethod
    def answer(cls, changes) -> Callable:
        attend = super().answer(changes)

        def numpy_attention(queries, keys, values, mask=None) -> tuple[np.ndarray, np.ndarray]:
            tensors = [torch.from_numpy(x.copy()) for x in (queries, keys, values)]
            own = None if mask is None else torch.from_numpy(mask.copy())
            return tuple(x.numpy() for x in attend(*tensors, None, own))

        return numpy_attention


EXERCISE = Exercise(
    points=4,
    minutes=20,
    difficulty=2,
    starred=True,
    returns=(
        Returned("outputs", "array", "float", ("num_queries", "v")),
        Returned("attention_weights", "array", "float", ("num_queries", "num_keys")),
    ),
    probes=_probes,
    shares={"values": 0.5, "edges": 0.4, "hygiene": 0.1},
    mistakes=known(_InNumpy),
    properties=PROPERTIES,
    hints=(
        "Every output is an average of the values. The weights come from comparing the query with "
        "every key.",
        "scores = Q K^T / sqrt(d); where the mask is False put -inf; subtract each row's maximum, "
        "take exp, divide by the row's sum. Treat a row of nothing but -inf separately: its "
        "maximum is -inf and its sum is 0.",
        "One row by hand: scores (1, 2, -inf). Subtract 2, take exp, divide by the total. "
        "Then a row of nothing but -inf: what is -inf - (-inf), what could you subtract "
        "instead, and what must the total not be when you divide?",
    ),
)
