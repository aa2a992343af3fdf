"""`split_heads`: split features into heads."""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import case, edge, mistake


def _split_probes(rng) -> list[Probe]:
    def normal(*shape) -> np.ndarray:
        return rng.normal(0, 1.3, shape)

    return [
        case("by_hand", x=[[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]], num_heads=2).says(
            "Head 0 gets the first block of features of every position, head 1 the second."
        ),
        case("three_heads", x=tensor(normal(2, 6, 12)), num_heads=3).says(
            "Head i holds the i-th block of features of every position."
        ),
        case("more_heads_than_positions", x=normal(3, 2, 20), num_heads=4).says(
            "Head i holds the i-th block of features, whatever the number of positions."
        ),
        edge("one_head_and_position", x=normal(2, 1, 5), num_heads=1).says(
            "One head and one position must each have their axis."
        ),
        edge("indivisible", x=normal(1, 2, 3), num_heads=2, raises="ValueError").says(
            "If `num_heads` does not divide the number of features, raise a ValueError."
        ),
        case(
            "gradient",
            x=tensor(normal(1, 3, 4), requires_grad=True),
            num_heads=2,
            grad_outputs=rng.normal(0, 1, (1, 2, 3, 2)),
        ).says("Gradients must reach every feature."),
    ]


def _checked_split(change) -> Callable:
    """Return a wrong split that still rejects sizes that are not divisible."""

    def split_heads(x, num_heads) -> Tensor:
        if x.shape[-1] % num_heads:
            raise ValueError("num_heads")
        return change(x, num_heads)

    return split_heads


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(
        Returned("heads", "tensor", "float", ("batch", "num_heads", "num_positions", "head_dim")),
    ),
    probes=_split_probes,
    mistakes=(
        mistake(
            "view_without_transpose",
            _checked_split(lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1)),
        ).says(
            "The shape is right, but the numbers are not: reshaping straight to "
            "(batch, num_heads, num_positions, head_dim) reads along the positions, so a head "
            "gets numbers of some positions instead of a block of features of every position.",
            "Which axis can you split in two without moving a number, and which axes must you "
            "then swap?",
        ),
        mistake("axes_left", _checked_split(lambda x, h: x.unflatten(-1, (h, -1)))).says(
            "You cut the features correctly, but the axis of the heads still comes after the "
            "positions.",
            "Which two axes must you swap so that each head is a (num_positions, head_dim) matrix?",
        ),
        mistake(
            "interleaved", _checked_split(lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2))
        ).says(
            "Your heads are interleaved: head 0 gets every num_heads-th feature instead of one "
            "block of neighboring features.",
            "In `(..., num_heads, head_dim)`, which of the two axes moves fastest?",
        ),
    ),
    hints=(
        "Splitting the feature axis into (num_heads, head_dim) moves no number. Bringing the "
        "heads to the front does: that is a transpose.",
        "Reshape the last axis into two, heads first, then swap the axis of the positions with "
        "the axis of the heads. Before that, raise ValueError if the division leaves a remainder.",
        "x = x.reshape(batch, num_positions, num_heads, embed_dim // num_heads)\n"
        "return x.transpose(..., ...)",
    ),
)
