"""Lesson 09: a translator from your own parts, and whether its attention explains it."""

from course_lib.checks.judge.definitions import Lesson, Written

LESSON = Lesson(
    9,
    "The translator",
    Written("map_as_explanation", points=4, minutes=10),
    exercises=(
        "shift_right",
        "masked_cross_entropy",
        "EncoderBlock",
        "DecoderBlock",
        "greedy_decode",
        "effect_of_masking",
    ),
    removed=("pad_batch",),
)
