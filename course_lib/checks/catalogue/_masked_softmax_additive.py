"""`additive_mask`: a bool mask as numbers to add."""

import math

import torch

from course_lib.checks.exercise import Exercise, Mistake, Returned
from course_lib.checks.probe import Dtype, Probe, tensor
from course_lib.reference import masked_softmax as oracle


def _additive_mask_probes(rng):
    drawn = rng.random((3, 5)) < 0.5
    drawn[0, 0], drawn[2, 4] = True, False
    small = tensor([[True, True, False], [True, False, False]])

    def probe(name, says, mask, dtype, part="values"):
        return Probe(name, says, part, args={"mask": mask, "dtype": Dtype(dtype)})

    return [
        probe("small", "Kept keys get 0, dropped keys get -inf.", small, "float64"),
        probe("random", "Kept keys get 0, dropped keys get -inf.", tensor(drawn), "float64"),
        probe(
            "four_axes",
            "Any shape must work, and a non-contiguous mask.",
            tensor(rng.random((2, 2, 3, 4)) < 0.5, strided=True),
            "float64",
        ),
        probe("float32", "The result must have the dtype asked for.", small, "float32"),
        probe(
            "float16",
            "In float16 dropped keys get -inf too; -1e9 does not exist there.",
            small,
            "float16",
            "edges",
        ),
        probe("bfloat16", "In bfloat16 dropped keys get -inf.", small, "bfloat16", "edges"),
        probe(
            "all_kept",
            "With every key kept there is nothing but 0.",
            tensor([[True, True]]),
            "float64",
            "edges",
        ),
        probe(
            "all_dropped",
            "With every key dropped all are -inf.",
            tensor([[False, False]]),
            "float64",
            "edges",
        ),
    ]


def _filled(mask, dtype, value):
    zeros = torch.zeros(mask.shape, dtype=dtype)
    return zeros.masked_fill(~mask, max(value, torch.finfo(dtype).min) if value > -1e8 else value)


def _like_float32(mask, dtype):
    return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)


ADDITIVE_MASK = Exercise(
    name="additive_mask",
    points=2,
    minutes=8,
    difficulty=1,
    returns=(Returned("numbers", "tensor", "float", ("the shape of mask",)),),
    probes=_additive_mask_probes,
    oracle=oracle.additive_mask,
    mistakes=(
        Mistake(
            "infinity_times_zero",
            lambda mask, dtype: (1 - mask.to(dtype)) * -math.inf,
            "Your result is NaN where a key is kept: 0 * inf is not 0.",
            "Which function chooses between two values without multiplying?",
        ),
        Mistake(
            "inverted",
            lambda mask, dtype: torch.zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf),
            "The mask is upside down: -inf stands where a key is kept.",
            "`masked_fill` fills where its mask is True. What does True mean here?",
        ),
        Mistake(
            "inverted_with_nan",
            lambda mask, dtype: mask.to(dtype) * -math.inf,
            "Kept keys get -inf and dropped keys NaN (0 * inf): upside down, and multiplied.",
            "Which function chooses between two values without multiplying?",
        ),
        Mistake(
            "finite_fill_overflows",
            lambda mask, dtype: torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -1e9),
            "A number such as -1e9 is only relatively small, and float16 has no such number (it "
            "ends at -65504).",
            "Which value is smaller than every score, in every dtype?",
        ),
        Mistake(
            "finite_fill",
            lambda mask, dtype: torch.where(mask, 0.0, -1e9).to(dtype),
            "A finite number such as -1e9 is only relatively small: next to scores of that size "
            "it drops nothing.",
            "Which value is smaller than every score, in every dtype?",
        ),
        Mistake(
            "finite_fill_1e6",
            lambda mask, dtype: torch.where(mask, 0.0, -1e6).to(dtype),
            "A finite number such as -1e6 is only relatively small: next to scores of that size "
            "it drops nothing.",
            "Which value is smaller than every score, in every dtype?",
        ),
        Mistake(
            "smallest_finite_number",
            lambda mask, dtype: torch.zeros(mask.shape, dtype=dtype).masked_fill(
                ~mask, torch.finfo(dtype).min
            ),
            "The smallest finite number is asked for nowhere here: dropped keys get -inf.",
            "What is `finfo.min` plus a negative score?",
        ),
        Mistake(
            "ones_where_kept",
            lambda mask, dtype: torch.ones(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf),
            "Kept keys get 1: harmless for the softmax, but 0 is what leaves a score as it is.",
            "Which number changes nothing when it is added?",
        ),
        Mistake(
            "zero_one_numbers",
            lambda mask, dtype: mask.to(dtype),
            "These are the numbers 1 and 0. Added to the scores they drop nothing: exp(s + 0) is "
            "not 0.",
            "What must be added to a score so that its exponential is 0?",
        ),
        Mistake(
            "integer_result",
            lambda mask, dtype: torch.where(mask, 0, -(10**9)),
            "The result holds whole numbers, and integers have no -inf.",
            "Which dtype was asked for?",
        ),
        Mistake(
            "dtype_ignored",
            _like_float32,
            "The numbers are right, but they are always float32 instead of the dtype asked for.",
            "Where does `dtype` enter?",
        ),
        Mistake(
            "positive_infinity",
            lambda mask, dtype: torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, math.inf),
            "The sign is wrong: +inf gives a dropped key all the weight.",
            "What is exp of the number you add?",
        ),
    ),
    hints=(
        "Adding 0 leaves a score as it is. What can you add so that exp(score + it) is exactly 0?",
        "Start from zeros of the right shape and dtype and fill -inf where the mask is False.",
        "zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)\n"
        "return zeros.masked_fill(..., -math.inf)",
    ),
)
