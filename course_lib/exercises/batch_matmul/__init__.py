"""Lesson 03: products for a whole batch, and what they cost."""

from course_lib.checks.judge.exercise import Integration, Lesson, Written

LESSON = Lesson(
    3,
    "Batched matrix products",
    Written("what_a_shape_test_proves", points=3, minutes=10),
    Integration(("batched_scores", "weighted_sum"), judged_as="_together"),
    exercises=("bmm_loops", "bmm", "batched_scores", "weighted_sum", "attention_cost"),
)
