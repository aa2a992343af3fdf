"""Lesson 02: masks, a stable softmax, and both together."""

from course_lib.checks.judge.definitions import Integration, Lesson, Written

LESSON = Lesson(
    2,
    "Masked softmax",
    Written("empty_row_choice", points=3, minutes=10),
    Integration(("length_mask", "masked_softmax")),
    exercises=(
        "stable_softmax",
        "length_mask",
        "causal_mask",
        "combine_masks",
        "additive_mask",
        "masked_softmax",
    ),
)
