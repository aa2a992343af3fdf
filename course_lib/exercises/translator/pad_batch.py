"""`pad_batch`: a rectangle of tokens, and the length of each row."""

import numpy as np
import torch
from torch import Tensor

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Array, tensor
from course_lib.exercises.kit import Problems, call, edge, mistake


def rows_of(rows, dtype="int64") -> list[Array]:
    return [tensor(np.array(row, dtype=dtype)) for row in rows]


def drawn(rng, lengths, pad, dtype="int64") -> list[Array]:
    """Return rows of different ids from 0 to 9, none of which is the pad."""
    words = np.array([word for word in range(10) if word != pad])
    rows = [rng.permutation(words)[:length] for length in lengths]
    rows[-1][:1] = words[0]
    return rows_of(rows, dtype)


def problems(rng) -> Problems:
    one, other, third, pad = (1 + rng.permutation(9)[:4]).tolist()
    yield "Each row must hold an item's tokens, then pads. Lengths must count the tokens alone."
    yield call(rows_of([[5, 8, 2], [4]]), 0)
    yield "The rest of each row must be filled with `pad`, whatever number it is."
    yield call(drawn(rng, [3, 5, 2, 7], 6), 6)
    yield "Tokens that happen to be `pad` are tokens, wherever they are."
    yield call(rows_of([[one, 0, other, 0], [0, 0], [third]]), 0)
    yield "An empty item must be a row of pads and have length 0."
    yield edge(drawn(rng, [3, 0, 2], 5), 5)
    yield "If all items are empty, `tokens` must have shape (B, 0) and all lengths must be 0."
    yield edge(rows_of([[], []]), pad)
    yield "One item is a batch of one: the batch axis must stay."
    yield edge(rows_of([[one]]), pad)
    yield "Items may be int32."
    yield edge(drawn(rng, [2, 4], 9, "int32"), 9)
    yield "The list and its tensors must stay unchanged: a second call must give the same result."
    yield edge(drawn(rng, [2, 5, 3], 0), 0, scenario="twice")


def padded(sequences, pad) -> Tensor:
    width = max(map(len, sequences))
    rows = [[*row.tolist(), *[pad] * (width - len(row))] for row in sequences]
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), width)


def lengths_of(sequences) -> Tensor:
    return torch.tensor([len(row) for row in sequences])


@mistake
def lengths_guessed(sequences, pad) -> tuple[Tensor, Tensor]:
    """Your lengths count the entries that differ from `pad`, so a token that happens to be `pad` is
    not counted.

    Where are the true lengths known, before anything is padded?
    """
    tokens = padded(sequences, pad)
    return tokens, (tokens != pad).sum(1)


@mistake
def padded_in_front(sequences, pad) -> tuple[Tensor, Tensor]:
    """Your pads come before the tokens, but lengths count from the beginning of a row.

    Which positions does `length_mask` allow for an item of length 1?
    """
    tokens = padded([row.flip(0) for row in sequences], pad).flip(1)
    return tokens, lengths_of(sequences)


@mistake
def padded_with_zero(sequences, pad) -> tuple[Tensor, Tensor]:
    """Your rows are filled with 0, whatever `pad` is.

    Where do you use `pad`?
    """
    return padded(sequences, 0), lengths_of(sequences)


@mistake
def sorted_by_length(sequences, pad) -> tuple[Tensor, Tensor]:
    """You sort the sequences by their lengths, so row b need not be sequence b.

    Which of your steps changes the order?
    """
    rows = sorted(sequences, key=len, reverse=True)
    return padded(rows, pad), lengths_of(rows)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(
        Returned("tokens", "tensor", "int", ("batch", "num_positions")),
        Returned("valid_lens", "tensor", "int", ("batch",)),
    ),
    probes=problems,
    hints=(
        "A rectangle full of pads is easy to make. What do you then write over them, and where?",
        "Take the lengths first. Make a tensor of shape (B, longest) filled with `pad`, then copy "
        "each item over the beginning of its row.",
        "tokens = torch.full((..., ...), pad)\n"
        "for i, sequence in enumerate(sequences):\n"
        "    tokens[i, : ...] = ...\n"
        "return tokens, torch.tensor([...])",
    ),
)
