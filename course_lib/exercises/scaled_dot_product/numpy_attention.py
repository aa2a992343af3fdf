"""`numpy_attention`: attention from scratch in NumPy, without lengths and batches."""

import math
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Marking, Returned
from course_lib.checks.observe.probe import Array, array
from course_lib.exercises._attention.mistakes import shared
from course_lib.exercises._attention.modules import Attention
from course_lib.exercises._attention.padding import FAR, far_above, largest_padding
from course_lib.exercises._attention.steps import NO_STEP
from course_lib.exercises.kit import Problems, call, edge
from course_lib.exercises.scaled_dot_product import _problems as of_lesson
from course_lib.exercises.scaled_dot_product._problems import (
    EMPTY,
    FORMULA,
    MASK,
    PROPERTIES,
    SECOND_ROW_EMPTY,
    large,
    random_mask,
)


def problems(rng) -> Problems:
    def drawn(*sizes) -> list[Array]:
        return of_lesson.drawn(rng, (), *sizes, make_array=array)

    _, *others = drawn(2, 3, 4, 5)
    yield FORMULA
    yield call(
        array([[2.0, 0, 0, 0]]),
        array([[math.log(4), 0, 0, 0], [math.log(2), 7.0, 0, 0], [0, 0, 5.0, 5.0]]),
        array([[7.0], [14.0], [0.0]]),
    )
    yield call(*drawn(3, 5, 6, 4))
    yield MASK
    mask = random_mask(rng, 4, 4)
    yield call(*drawn(4, 4, 5, 2), array(mask))
    yield "Scores may be very large: exp(1000) is inf, yet the weights exist."
    yield edge(*large(rng, array))
    yield "A mask of shape (1, num_keys) holds for every query."
    yield edge(*drawn(4, 5, 7, 2), array([[True, False, True, True, False]]))
    yield EMPTY
    yield edge(array(np.zeros((2, 4))), *others, array(SECOND_ROW_EMPTY))
    yield edge(*drawn(2, 4, 3, 5), array(np.zeros((2, 4), dtype=bool)))
    padding = array([[True, True, False]] * 2)
    yield from largest_padding(rng, lambda data: array(data[0]), more=[padding])
    yield from far_above(rng, lambda data: array(data[0]), more=[array(FAR)])


class InNumpy(Attention):
    """The correct attention for NumPy arrays, without lengths."""

    align = real = NO_STEP

    @classmethod
    def answer(cls) -> Callable:
        attend = super().answer()

        def numpy_attention(queries, keys, values, mask=None) -> tuple[np.ndarray, np.ndarray]:
            tensors = [torch.from_numpy(x.copy()) for x in (queries, keys, values)]
            own = None if mask is None else torch.from_numpy(mask.copy())
            return tuple(x.numpy() for x in attend(*tensors, None, own))

        return numpy_attention


# Wrong answers that are right here, or the same as those of others.
_THE_SAME = {
    *("empty_row_patched", "one_mask_only", "over_axis1", "root_of_axis1", "root_of_all_heads"),
}

EXERCISE = Exercise(
    points=4,
    minutes=20,
    difficulty=2,
    starred=True,
    returns=(
        Returned("outputs", "array", "float", ("num_queries", "v")),
        Returned("attention_weights", "array", "float", ("num_queries", "num_keys")),
    ),
    probes=problems,
    mistakes=shared(InNumpy, without=_THE_SAME),
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
    marking=Marking(shares={"values": 0.5, "edges": 0.4, "hygiene": 0.1}),
)
