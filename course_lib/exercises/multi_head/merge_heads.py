"""`merge_heads`: join the features of all heads."""

import numpy as np
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import tensor
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def problems(rng) -> Problems:
    def normal(*shape) -> np.ndarray:
        return rng.normal(0, 1.3, shape)

    yield "Each position must get its features of head 0, then those of head 1."
    yield call([[[[1.0, 2.0], [5.0, 6.0]], [[3.0, 4.0], [7.0, 8.0]]]])
    yield "Each position's features stand side by side, head after head."
    yield call(normal(2, 3, 5, 4))
    yield "Each position's features stand side by side, whatever the sizes."
    yield call(normal(3, 4, 2, 5))
    yield "The axis of the positions must stay, even if there is one head and one position."
    yield edge(normal(3, 1, 1, 4))
    yield "Gradients must reach every head."
    x = tensor(normal(1, 2, 3, 2), requires_grad=True)
    yield call(x, grad_outputs=rng.normal(0, 1, (1, 3, 4)))


@mistake
def reshape_without_transpose(x) -> Tensor:
    """The shape is right, but the numbers are not: all positions of head 0 come before those of
    head 1, so a reshape can put several positions of a head into one row.

    Which axes must be neighbors before a reshape can join them?
    """
    return x.reshape(x.shape[0], x.shape[2], -1)


@mistake
def interleaved(x) -> Tensor:
    """The heads are interleaved: feature 0 of every head, then feature 1 of every head.

    Which axis moves fastest when the last two are joined?
    """
    return x.permute(0, 2, 3, 1).flatten(2)


@mistake
def heads_added(x) -> Tensor:
    """You add or average the heads. Concatenate their features instead.

    Which columns of your result hold the features of head 0 alone?
    """
    return x.sum(1)


@like(heads_added)
def heads_averaged(x) -> Tensor:
    return x.mean(1)


@like(heads_added)
def sum_repeated(x) -> Tensor:
    return x.sum(1).repeat(1, 1, x.shape[1])


EXERCISE = Exercise(
    points=2,
    minutes=6,
    difficulty=1,
    returns=(Returned("merged", "tensor", "float", ("batch", "num_positions", "embed_dim")),),
    probes=problems,
    hints=(
        "It is `split_heads` in reverse: undo first what was done last.",
        "Swap the axes of heads and positions, then join the last two axes. `reshape` and "
        "`flatten` copy if they must; `view` raises.",
        "x = x.transpose(..., ...)\nreturn x.flatten(start_dim=2)",
    ),
)
