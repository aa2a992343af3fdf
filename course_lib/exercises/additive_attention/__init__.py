"""Lesson 04: additive attention, as scores and as a module."""

from course_lib.checks.judge.definitions import Integration, Lesson, Written

LESSON = Lesson(
    4,
    "Additive attention",
    Written("three_requests", points=3, minutes=10),
    Integration(("additive_scores", "AdditiveAttention")),
    exercises=("additive_scores", "AdditiveAttention"),
)
