"""Lesson 03: products for a whole batch, and what they cost."""

from course_lib.checks.judge.definitions import Integration, Lesson, Written

LESSON = Lesson(
    3,
    "Batched matrix products",
    Written("what_a_shape_test_proves", points=3, minutes=10),
    Integration(("batched_scores", "attention_pooling")),
    exercises=("bmm", "batched_scores", "attention_pooling", "attention_cost"),
    removed=("bmm_loops",),
)
