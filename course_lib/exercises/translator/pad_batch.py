"""`pad_batch`: a rectangle of tokens, and the length of each row."""

import functools
from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import Case, case, mistake


def _given(name, rows, pad, part="values", dtype="int64", **options) -> Case:
    sequences = [tensor(np.array(row, dtype=dtype)) for row in rows]
    return case(name, part=part, args={"sequences": sequences, "pad": pad}, **options)


def _drawn(rng, lengths, pad) -> list[np.ndarray]:
    """Return rows of different ids from 0 to 9, none of which is the pad."""
    words = np.array([word for word in range(10) if word != pad])
    rows = [rng.permutation(words)[:length] for length in lengths]
    rows[-1][:1] = words[0]
    return rows


def _probes(rng) -> list[Probe]:
    edge = functools.partial(_given, part="edges")
    one, other, third, pad = (1 + rng.permutation(9)[:4]).tolist()
    return [
        _given("worked_number", [[5, 8, 2], [4]], 0).says(
            "Each row must hold an item's tokens, then pads. Lengths must count the tokens alone."
        ),
        _given("another_pad", _drawn(rng, [3, 5, 2, 7], 6), 6).says(
            "The rest of each row must be filled with `pad`, whatever number it is."
        ),
        _given("pads_inside", [[one, 0, other, 0], [0, 0], [third]], 0).says(
            "Tokens that happen to be `pad` are tokens, wherever they are."
        ),
        edge("empty_among_others", _drawn(rng, [3, 0, 2], 5), 5).says(
            "An empty item must be a row of pads and have length 0."
        ),
        edge("all_empty", [[], []], pad).says(
            "If all items are empty, `tokens` must have shape (B, 0) and all lengths must be 0."
        ),
        edge("one_item", [[one]], pad).says(
            "One item is a batch of one: the batch axis must stay."
        ),
        edge("int32", _drawn(rng, [2, 4], 9), 9, dtype="int32").says("Items may be int32."),
        edge("list_stays", _drawn(rng, [2, 5, 3], 0), 0, scenario="twice").says(
            "The list and its tensors must stay unchanged: a second call must give the same result."
        ),
    ]


def _padded(sequences, pad) -> torch.Tensor:
    width = max(map(len, sequences))
    rows = [[*row.tolist(), *[pad] * (width - len(row))] for row in sequences]
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), width)


def _lengths(sequences) -> torch.Tensor:
    return torch.tensor([len(row) for row in sequences])


def _with_lengths(lengths) -> Callable:
    """Return a model that pads correctly but returns `lengths(tokens, pad)`."""

    def model(sequences, pad) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = _padded(sequences, pad)
        return tokens, lengths(tokens, pad)

    return model


def _sorted(sequences, pad, step=1) -> tuple[torch.Tensor, torch.Tensor]:
    rows = sorted(sequences, key=lambda row: -step * len(row))
    return _padded(rows, pad), _lengths(rows)


def _sorted_backwards(sequences, pad) -> tuple[torch.Tensor, torch.Tensor]:
    return _sorted(sequences, pad, -1)


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(
        Returned("tokens", "tensor", "int", ("batch", "num_positions")),
        Returned("valid_lens", "tensor", "int", ("batch",)),
    ),
    probes=_probes,
    mistakes=(
        mistake("lengths_guessed", _with_lengths(lambda t, pad: (t != pad).sum(1))).says(
            "Your lengths count the entries that differ from `pad`, so a token that happens to be "
            "`pad` is not counted.",
            "Where are the true lengths known, before anything is padded?",
        ),
        mistake(
            "padded_in_front",
            lambda s, pad: (_padded([row.flip(0) for row in s], pad).flip(1), _lengths(s)),
        ).says(
            "Your pads come before the tokens, but lengths count from the beginning of a row.",
            "Which positions does `length_mask` allow for an item of length 1?",
        ),
        mistake(
            "padded_with_zero", lambda sequences, pad: (_padded(sequences, 0), _lengths(sequences))
        ).says("Your rows are filled with 0, whatever `pad` is.", "Where do you use `pad`?"),
        mistake("sorted_by_length", _sorted, twins=(_sorted_backwards,)).says(
            "You sort the sequences by their lengths, so row b need not be sequence b.",
            "Which of your steps changes the order?",
        ),
    ),
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
