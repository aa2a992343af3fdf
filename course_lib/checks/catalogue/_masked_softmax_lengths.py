"""`length_mask`: which keys are real."""

import numpy as np
import torch

from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Probe, tensor
from course_lib.reference import masked_softmax as oracle


def _length_mask_probes(rng):
    per_item = rng.permutation(np.arange(1, 6))[:4]
    per_query = np.stack([rng.permutation(np.arange(1, 7))[:3] for _ in range(2)])
    return [
        Probe(
            "one_per_item",
            "Key j of an item is real exactly if j is smaller than its length.",
            args={"valid_lens": tensor([2, 3]), "max_len": 4},
        ),
        Probe(
            "several_items",
            "Each item has a length of its own.",
            args={"valid_lens": tensor(per_item), "max_len": 6},
        ),
        Probe(
            "one_per_query",
            "Lengths of shape (batch, num_queries) give one row of the mask for each query.",
            args={"valid_lens": tensor(per_query), "max_len": 7},
        ),
        Probe(
            "strided",
            "A non-contiguous tensor of lengths must work.",
            args={"valid_lens": tensor(rng.permutation(per_item), strided=True), "max_len": 5},
        ),
        Probe(
            "int32",
            "Lengths may be int32 as well as int64.",
            part="edges",
            args={"valid_lens": tensor(per_query.astype(np.int32), strided=True), "max_len": 6},
        ),
        Probe(
            "another_device",
            "Lengths on a GPU must work: a tensor made without `device=` is on the CPU, and the "
            "two do not mix.",
            part="edges",
            args={"valid_lens": tensor(rng.permutation(per_item)), "max_len": 6},
            scenario="after_another_device",
        ),
        Probe(
            "length_zero",
            "Length 0 means that no key is real.",
            part="edges",
            args={"valid_lens": tensor([0, 2]), "max_len": 3},
        ),
        Probe(
            "length_full",
            "A length of `max_len` means that every key is real.",
            part="edges",
            args={"valid_lens": tensor([3, 1]), "max_len": 3},
        ),
        Probe(
            "square",
            "As many items as keys must not confuse the axes.",
            part="edges",
            args={"valid_lens": tensor([1, 3, 2]), "max_len": 3},
        ),
    ]


def _positions(valid_lens, max_len, start=0):
    return torch.arange(start, max_len + start, device=valid_lens.device)


LENGTH_MASK = Exercise(
    name="length_mask",
    points=2,
    minutes=10,
    difficulty=1,
    returns=(Returned("mask", "tensor", "bool", ("batch", "[num_queries]", "max_len")),),
    probes=_length_mask_probes,
    oracle=oracle.length_mask,
    mistakes=(
        Mistake(
            "one_too_many",
            lambda valid_lens, max_len: _positions(valid_lens, max_len) <= valid_lens[..., None],
            "One key too many is kept: with `<=`, length 2 keeps keys 0, 1 and 2.",
            "Which is the last real key of an item of length 2?",
        ),
        Mistake(
            "starts_at_one",
            lambda valid_lens, max_len: _positions(valid_lens, max_len, 1) < valid_lens[..., None],
            "One key too few is kept: your positions start at 1, or the last real key is dropped.",
            "What number does the first key have?",
        ),
        Mistake(
            "inverted",
            lambda valid_lens, max_len: _positions(valid_lens, max_len) >= valid_lens[..., None],
            "The mask is upside down: you keep the padding and drop the real keys.",
            "What does True mean in this course's masks?",
        ),
        Mistake(
            "transposed",
            lambda valid_lens, max_len: (
                (_positions(valid_lens, max_len) < valid_lens[..., None]).mT
            ),
            "The axes are the wrong way round: keys belong on the last axis.",
            "Which of the two gets the new axis, the lengths or the positions?",
        ),
        Mistake(
            "float_mask",
            lambda valid_lens, max_len: (
                _positions(valid_lens, max_len) < valid_lens[..., None]
            ).float(),
            "The pattern is right, but the mask holds the numbers 0 and 1 instead of bool.",
            "What does a comparison return before you convert it?",
        ),
        Mistake(
            "integer_mask",
            lambda valid_lens, max_len: (
                _positions(valid_lens, max_len) < valid_lens[..., None]
            ).long(),
            "The pattern is right, but the mask holds whole numbers instead of bool.",
            "What does a comparison return before you convert it?",
        ),
        Mistake(
            "only_one_length_per_item",
            lambda valid_lens, max_len: _positions(valid_lens, max_len)[None] < valid_lens[:, None],
            "One length an item works, lengths of shape (batch, num_queries) do not.",
            "Where must the new axis go so that keys come last, whatever the number of axes?",
        ),
        Mistake(
            "clamped_to_one",
            lambda valid_lens, max_len: (
                _positions(valid_lens, max_len) < valid_lens[..., None].clamp(min=1)
            ),
            "An item of length 0 still keeps a key.",
            "How many keys may be attended in an item of length 0?",
        ),
        Mistake(
            "full_length_loses_a_key",
            lambda valid_lens, max_len: (
                _positions(valid_lens, max_len) < valid_lens[..., None].clamp(max=max_len - 1)
            ),
            "An item of full length loses its last key.",
            "Is `max_len` itself an allowed length?",
        ),
        Mistake(
            "positions_on_the_cpu",
            lambda valid_lens, max_len: torch.arange(max_len) < valid_lens[..., None],
            "The mask is right, but your positions are always made on the CPU: with lengths on a "
            "GPU the comparison fails.",
            "Which argument of `torch.arange` says where its numbers live?",
        ),
        Mistake(
            "longest_for_all",
            lambda valid_lens, max_len: (_positions(valid_lens, max_len) < valid_lens.max()).expand(
                *valid_lens.shape, max_len
            ),
            "All items get the mask of the longest one.",
            "Which axis of the comparison should hold the items?",
        ),
    ),
    hints=(
        "Number the keys 0, 1, 2, ... A key is real if its number is smaller than the length.",
        "Compare a row of positions with a column of lengths; broadcasting does the rest. The "
        "lengths need a new last axis.",
        "positions = torch.arange(max_len, device=...)\nreturn positions < valid_lens[..., None]",
    ),
)
