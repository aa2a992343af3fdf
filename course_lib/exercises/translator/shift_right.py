"""`shift_right`: the decoder's inputs during training."""

import math

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import case, edge, mistake


def _words(rng, *shape) -> np.ndarray:
    """Return different ids from 2 on, so that a misplaced id is noticed."""
    return 2 + rng.permutation(math.prod(shape)).reshape(shape)


def _probes(rng) -> list[Probe]:
    int32 = tensor(_words(rng, 2, 5).astype(np.int32))
    start, word = rng.integers([11, 0], [30, 40]).tolist()
    return [
        case("worked_number", targets=[[5, 8, 2]], start=1).says(
            "The decoder must first read `start`, and then at each position the target before it."
        ),
        case("another_start", targets=_words(rng, 2, 4), start=start).says(
            "The first column must hold `start`, whatever number it is."
        ),
        case("other_words", targets=_words(rng, 3, 5), start=start + 1).says(
            "Each row must begin with `start` and go on with its own targets."
        ),
        edge("one_word_of_one_item", targets=_words(rng, 1, 1) + word, start=start).says(
            "For one word of one item, the result must be `start` in shape (1, 1)."
        ),
        edge("no_words", targets=np.zeros((2, 0), np.int64), start=1).says(
            "Without targets, nothing is read: (B, 0) must stay (B, 0)."
        ),
        edge("int32", targets=int32, start=1).says("Targets may be int32."),
    ]


def _column(targets, start) -> torch.Tensor:
    return targets.new_full((len(targets), 1), start)


def _shifted_left(targets, start) -> torch.Tensor:
    return torch.cat([targets[:, 1:], _column(targets, start)], dim=1)[:, : targets.shape[1]]


EXERCISE = Exercise(
    points=1,
    minutes=5,
    difficulty=1,
    returns=(Returned("inputs", "tensor", "int", ("batch", "num_positions")),),
    probes=_probes,
    mistakes=(
        mistake("shifted_left", _shifted_left).says(
            "You shift the wrong way: at all positions but the last, the decoder reads the word "
            "after the one it has to predict.",
            "Which words are known when the first one is predicted?",
        ),
        mistake(
            "last_kept",
            lambda t, start: torch.cat([_column(t, start), t], dim=1),
            twins=(lambda t, start: torch.cat([torch.full_like(t[:, :1], start), t], dim=1),),
        ).says(
            "Your result has one column too many. The last target need not be read, because "
            "nothing comes after it.",
            "Which word does the decoder not need to read?",
        ),
        mistake(
            "nothing_to_read", lambda t, start: torch.cat([_column(t, start), t[:, :-1]], 1)
        ).says(
            "For targets without any position you return a column with `start`. The result must "
            "have as many columns as the targets.",
            "What is `targets[:, :-1]` if `targets` has no columns?",
        ),
    ),
    hints=(
        "Write down the target `forty three </s>` and, beneath each word, the word said just "
        "before it. What is beneath `forty`, and which word appears nowhere in the lower line?",
        "A column of `start` in front, and the last column gone. Make sure that the argument "
        "stays unchanged and that the new column is on its device.",
        "torch.cat([<a column (B, 1) of start>, targets], dim=1)[:, ...]",
    ),
)
