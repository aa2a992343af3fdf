"""Lesson 04: additive attention, as scores and as a module."""

from course_lib.checks.catalogue._additive_module import ADDITIVE_ATTENTION
from course_lib.checks.catalogue._additive_scores import ADDITIVE_SCORES
from course_lib.checks.exercise import Integration, Lesson, Written

LESSON = Lesson(
    4,
    "Additive attention",
    Written("three_requests", points=3, minutes=10),
    Integration(("additive_scores", "AdditiveAttention")),
)
EXERCISES = (ADDITIVE_SCORES, ADDITIVE_ATTENTION)
