"""`shift_right`: the decoder's inputs during training."""

import math

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.exercises.kit import Problems, call, edge, like, mistake


def words(rng, *shape) -> np.ndarray:
    """Return different ids from 2 on, so that a misplaced id is noticed."""
    return 2 + rng.permutation(math.prod(shape)).reshape(shape)


def problems(rng) -> Problems:
    int32 = words(rng, 2, 5).astype(np.int32)
    start, word = rng.integers([11, 0], [30, 40]).tolist()
    yield "The decoder must first read `start`, and then at each position the target before it."
    yield call([[5, 8, 2]], 1)
    yield "The first column must hold `start`, whatever number it is."
    yield call(words(rng, 2, 4), start)
    yield "Each row must begin with `start` and go on with its own targets."
    yield call(words(rng, 3, 5), start + 1)
    yield "For one word of one item, the result must be `start` in shape (1, 1)."
    yield edge(words(rng, 1, 1) + word, start)
    yield "Without targets, nothing is read: (B, 0) must stay (B, 0)."
    yield edge(np.zeros((2, 0), np.int64), 1)
    yield "Targets may be int32."
    yield edge(int32, 1)


def column(targets, start) -> Tensor:
    return targets.new_full((len(targets), 1), start)


@mistake
def shifted_left(targets, start) -> Tensor:
    """You shift the wrong way: at all positions but the last, the decoder reads the word after the
    one it has to predict.

    Which words are known when the first one is predicted?
    """
    return torch.cat([targets[:, 1:], column(targets, start)], dim=1)[:, : targets.shape[1]]


@mistake
def last_in_front(targets, start) -> Tensor:
    """Your first column holds the last target instead of `start`.

    What does `torch.roll` put in front, and which number belongs there?
    """
    return targets.roll(1, 1)


@like(last_in_front)
def start_at_the_end(targets, start) -> Tensor:
    rolled = targets.roll(1, 1)
    rolled[:, -1] = start
    return rolled


@mistake
def last_kept(targets, start) -> Tensor:
    """Your result has one column too many. The last target need not be read, because nothing comes
    after it.

    Which word does the decoder not need to read?
    """
    return torch.cat([column(targets, start), targets], dim=1)


@like(last_kept)
def last_kept_if_there_is_one(targets, start) -> Tensor:
    return torch.cat([torch.full_like(targets[:, :1], start), targets], dim=1)


@mistake
def nothing_to_read(targets, start) -> Tensor:
    """For targets without any position you return a column with `start`. The result must have as
    many columns as the targets.

    What is `targets[:, :-1]` if `targets` has no columns?
    """
    return torch.cat([column(targets, start), targets[:, :-1]], 1)


EXERCISE = Exercise(
    points=1,
    minutes=5,
    difficulty=1,
    returns=(Returned("inputs", "tensor", "int", ("batch", "num_positions")),),
    probes=problems,
    hints=(
        "Write down the target `forty three </s>` and, beneath each word, the word said just "
        "before it. What is beneath `forty`, and which word appears nowhere in the lower line?",
        "A column of `start` in front, and the last column gone. Make sure that the argument "
        "stays unchanged and that the new column is on its device.",
        "torch.cat([<a column (B, 1) of start>, targets], dim=1)[:, ...]",
    ),
)
