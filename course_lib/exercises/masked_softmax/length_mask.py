"""`length_mask`: allow the keys that are not padding."""

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.exercises.kit import Problems, call, edge, mistake


def problems(rng) -> Problems:
    per_query = np.stack([rng.permutation(np.arange(1, 7))[:3] for _ in range(2)])
    of_two, full = [rng.permutation(8)[:2]], int(rng.integers(2, 22))
    long = int(rng.integers(600, 900))
    yield "Key j of an item is real exactly if j is smaller than its length."
    yield call([2, 0], 3)
    yield "One item with two queries must give a mask (1, 2, max_len), with the axis of size 1."
    yield call(of_two, 9)
    yield "Lengths of shape (batch, num_queries) give one row of the mask for each query."
    yield call(per_query, 7)
    yield "Lengths may be int32 or int64."
    yield edge(per_query.astype(np.int32), 8)
    yield "A length of `max_len` means that every key is real."
    yield edge([[full] * 2] * 3, full)
    yield "Lengths in the hundreds must work like any others."
    yield edge([long, 3, 300], long)
    yield "Each call must return the mask for its own `valid_lens`."
    yield edge([1, 3], 4, scenario="between_calls")


def positions(valid_lens, max_len) -> Tensor:
    return torch.arange(max_len, device=valid_lens.device)


@mistake
def one_too_many(valid_lens, max_len) -> Tensor:
    """For lengths below `max_len` you keep one key too many: keys 0, 1 and 2 for length 2.

    Which key is the last real one in an item of length 2?
    """
    return positions(valid_lens, max_len) <= valid_lens[..., None]


@mistake
def one_too_few(valid_lens, max_len) -> Tensor:
    """You keep one key too few: only key 0 for length 2.

    Which number does the first key have?
    """
    return positions(valid_lens, max_len) + 1 < valid_lens[..., None]


@mistake
def inverted(valid_lens, max_len) -> Tensor:
    """The mask is inverted: you keep the padding and drop the real keys.

    What does True mean in this course's masks?
    """
    return positions(valid_lens, max_len) >= valid_lens[..., None]


@mistake
def last_keys(valid_lens, max_len) -> Tensor:
    """You keep the last keys of each item, but its real keys come first.

    Which keys of an item of length 2 are real?
    """
    return positions(valid_lens, max_len) >= max_len - valid_lens[..., None]


@mistake
def longest_length(valid_lens, max_len) -> Tensor:
    """Your mask has as many columns as the longest length, not `max_len`.

    How wide are the scores if every item is padded?
    """
    return positions(valid_lens, int(valid_lens.max())) < valid_lens[..., None]


@mistake
def queries_joined(valid_lens, max_len) -> Tensor:
    """You join the axes of items and queries: the mask is (batch * num_queries, max_len).

    Which step joins the two axes, and which shape must the mask have?
    """
    return positions(valid_lens, max_len) < valid_lens.reshape(-1, 1)


@mistake
def only_one_length_per_item(valid_lens, max_len) -> Tensor:
    """Your code expects one length per item, so it can fail for lengths (batch, num_queries).

    Where must the new axis go so that keys come last, whatever the number of axes?
    """
    lens = valid_lens[..., None]
    return positions(valid_lens, max_len) < lens[..., 0][:, None]


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(Returned("mask", "tensor", "bool", ("batch", "[num_queries]", "max_len")),),
    probes=problems,
    hints=(
        "Number the keys 0, 1, 2, ... A key is real if its number is smaller than the length.",
        "Compare a row of positions with a column of lengths; broadcasting does the rest. The "
        "lengths need a new last axis.",
        "The lengths `[2, 0]` as a column have shape (2, 1), the positions `[0, 1, 2]` have (3,), "
        "and their comparison has (2, 3). Which index gives lengths of any number of axes a new "
        "last one, and which argument of `torch.arange` puts the positions on their device?",
    ),
)
