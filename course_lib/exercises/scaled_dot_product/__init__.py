"""Lesson 05: scaled dot-product attention, as a function and a module."""

from course_lib.checks.judge.definitions import Integration, Lesson, Written

LESSON = Lesson(
    5,
    "Scaled dot-product attention",
    Written("scale_and_learning", points=3, minutes=10),
    Integration(("scaled_dot_product_attention", "DotProductAttention")),
    exercises=(
        "score_variance",
        "scaled_dot_product_attention",
        "DotProductAttention",
    ),
    removed=("numpy_attention",),
)
