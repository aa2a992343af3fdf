"""`length_mask`: allow the keys that are not padding."""

from collections.abc import Callable

import numpy as np
import torch

from course_lib.checks.judge.definitions import Exercise, Returned
from course_lib.checks.observe.probe import Probe, tensor
from course_lib.exercises._builders import case, edge, mistake


def _length_mask_probes(rng) -> list[Probe]:
    per_query = np.stack([rng.permutation(np.arange(1, 7))[:3] for _ in range(2)])
    of_two, full = [rng.permutation(8)[:2]], int(rng.integers(2, 22))
    long = int(rng.integers(600, 900))
    return [
        case("worked_number", valid_lens=[2, 0], max_len=3).says(
            "Key j of an item is real exactly if j is smaller than its length."
        ),
        case("one_item", valid_lens=of_two, max_len=9).says(
            "One item with two queries must give a mask (1, 2, max_len), with the axis of size 1."
        ),
        case("one_per_query", valid_lens=per_query, max_len=7).says(
            "Lengths of shape (batch, num_queries) give one row of the mask for each query."
        ),
        edge("int32", valid_lens=tensor(per_query.astype(np.int32)), max_len=6).says(
            "Lengths may be int32 or int64."
        ),
        edge("length_full", valid_lens=[[full] * 2] * 3, max_len=full).says(
            "A length of `max_len` means that every key is real."
        ),
        edge("hundreds_of_keys", valid_lens=[long, 3, 300], max_len=long).says(
            "Lengths in the hundreds must work like any others."
        ),
    ]


def _compared(compare) -> Callable:
    """Compare positions with lengths that have a last axis of size 1."""

    def model(valid_lens, max_len) -> torch.Tensor:
        positions = torch.arange(max_len, device=valid_lens.device)
        return compare(positions, valid_lens[..., None])

    return model


EXERCISE = Exercise(
    points=2,
    minutes=8,
    difficulty=1,
    returns=(Returned("mask", "tensor", "bool", ("batch", "[num_queries]", "max_len")),),
    probes=_length_mask_probes,
    mistakes=(
        mistake("one_too_many", _compared(lambda at, lens: at <= lens)).says(
            "For lengths below `max_len` you keep one key too many: keys 0, 1 and 2 for length 2.",
            "Which key is the last real one in an item of length 2?",
        ),
        mistake("inverted", _compared(lambda at, lens: at >= lens)).says(
            "The mask is inverted: you keep the padding and drop the real keys.",
            "What does True mean in this course's masks?",
        ),
        mistake(
            "longest_length",
            lambda lens, m: torch.arange(int(lens.max()), device=lens.device) < lens[..., None],
        ).says(
            "Your mask has as many columns as the longest length, not `max_len`.",
            "How wide are the scores if every item is padded?",
        ),
        mistake(
            "queries_joined",
            lambda lens, m: torch.arange(m, device=lens.device) < lens.reshape(-1, 1),
        ).says(
            "You join the axes of items and queries: the mask is (batch * num_queries, max_len).",
            "Which step joins the two axes, and which shape must the mask have?",
        ),
        mistake(
            "only_one_length_per_item",
            _compared(lambda at, lens: at < lens[..., 0][:, None]),
        ).says(
            "One length per item works, but lengths of shape (batch, num_queries) can fail.",
            "Where must the new axis go so that keys come last, whatever the number of axes?",
        ),
    ),
    hints=(
        "Number the keys 0, 1, 2, ... A key is real if its number is smaller than the length.",
        "Compare a row of positions with a column of lengths; broadcasting does the rest. The "
        "lengths need a new last axis.",
        "The lengths `[2, 0]` as a column have shape (2, 1), the positions `[0, 1, 2]` have (3,), "
        "and their comparison has (2, 3). Which index gives lengths of any number of axes a new "
        "last one, and which argument of `torch.arange` puts the positions on their device?",
    ),
)
