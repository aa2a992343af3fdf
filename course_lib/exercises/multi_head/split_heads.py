"""`split_heads`: split features into heads."""

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import tensor
from course_lib.exercises.kit import Problems, call, edge, mistake


def problems(rng) -> Problems:
    def normal(*shape) -> np.ndarray:
        return rng.normal(0, 1.3, shape)

    yield "Head 0 gets the first block of features of every position, head 1 the second."
    yield call([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]], 2)
    yield "Head i holds the i-th block of features of every position."
    yield call(normal(2, 6, 12), 3)
    yield "Head i holds the i-th block of features, whatever the number of positions."
    yield call(normal(3, 2, 20), 4)
    yield "One head and one position must each have their axis."
    yield edge(normal(2, 1, 5), 1)
    yield "If `num_heads` does not divide the number of features, raise a ValueError."
    yield edge(normal(1, 2, 3), 2, raises="ValueError")
    yield "Gradients must reach every feature."
    x = tensor(normal(1, 3, 4), requires_grad=True)
    yield call(x, 2, grad_outputs=rng.normal(0, 1, (1, 2, 3, 2)))


def check(x, num_heads) -> None:
    if x.shape[-1] % num_heads:
        raise ValueError("num_heads")


@mistake
def view_without_transpose(x, num_heads) -> Tensor:
    """The shape is right, but the numbers are not: reshaping straight to (batch, num_heads,
    num_positions, head_dim) reads along the positions, so a head gets numbers of some positions
    instead of a block of features of every position.

    Which axis can you split in two without moving a number, and which axes must you then swap?
    """
    check(x, num_heads)
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


@mistake
def axes_left(x, num_heads) -> Tensor:
    """You cut the features correctly, but the axis of the heads still comes after the positions.

    Which two axes must you swap so that each head is a (num_positions, head_dim) matrix?
    """
    check(x, num_heads)
    return x.unflatten(-1, (num_heads, -1))


@mistake
def joined_to_the_items(x, num_heads) -> Tensor:
    """You join the axes of items and heads, so the result has shape (batch * num_heads,
    num_positions, head_dim).

    Which step at the end joins the two axes?
    """
    return axes_left(x, num_heads).transpose(1, 2).flatten(0, 1)


@mistake
def interleaved(x, num_heads) -> Tensor:
    """Your heads are interleaved: head 0 gets every num_heads-th feature instead of one block of
    neighboring features.

    In `(..., num_heads, head_dim)`, which of the two axes moves fastest?
    """
    check(x, num_heads)
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(
        Returned("heads", "tensor", "float", ("batch", "num_heads", "num_positions", "head_dim")),
    ),
    probes=problems,
    hints=(
        "Splitting the feature axis into (num_heads, head_dim) moves no number. Bringing the "
        "heads to the front does: that is a transpose.",
        "Reshape the last axis into two, heads first, then swap the axis of the positions with "
        "the axis of the heads. Before that, raise ValueError if the division leaves a remainder.",
        "x = x.reshape(batch, num_positions, num_heads, embed_dim // num_heads)\n"
        "return x.transpose(..., ...)",
    ),
)
