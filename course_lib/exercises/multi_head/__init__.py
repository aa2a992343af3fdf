"""Lesson 06: multiple heads, and positional encodings."""

from course_lib.checks.judge.definitions import Integration, Lesson, Written

LESSON = Lesson(
    6,
    "Multi-head attention",
    Written("heads_and_positions", points=3, minutes=10),
    Integration(("split_heads", "merge_heads", "MultiHeadAttention")),
    exercises=(
        "split_heads",
        "merge_heads",
        "MultiHeadAttention",
        "load_into_torch",
        "positional_encoding",
        "shift_matrix",
    ),
)
