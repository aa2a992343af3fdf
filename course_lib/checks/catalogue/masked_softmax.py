"""Lesson 02: masks, a stable softmax, and both together."""

from course_lib.checks.catalogue._masked_softmax_additive import ADDITIVE_MASK
from course_lib.checks.catalogue._masked_softmax_causal import CAUSAL_MASK
from course_lib.checks.catalogue._masked_softmax_combine import COMBINE_MASKS
from course_lib.checks.catalogue._masked_softmax_lengths import LENGTH_MASK
from course_lib.checks.catalogue._masked_softmax_stable import STABLE_SOFTMAX
from course_lib.checks.catalogue._masked_softmax_weights import MASKED_SOFTMAX
from course_lib.checks.exercise import Integration, Lesson, Written

LESSON = Lesson(
    2,
    "Masked softmax",
    Written("empty_row_choice", points=3, minutes=10),
    Integration(("length_mask", "combine_masks", "masked_softmax")),
)

EXERCISES = (
    STABLE_SOFTMAX,
    LENGTH_MASK,
    CAUSAL_MASK,
    COMBINE_MASKS,
    ADDITIVE_MASK,
    MASKED_SOFTMAX,
)
