"""Lesson 08: attention in blocks, recomputed for the backward pass, with fewer exponentials."""

from course_lib.checks.catalogue._memory_and_speed_blocked import BLOCKED_ATTENTION
from course_lib.checks.catalogue._memory_and_speed_factored import FACTORED_ADDITIVE_SCORES
from course_lib.checks.catalogue._memory_and_speed_recomputed import RECOMPUTED_ATTENTION
from course_lib.checks.catalogue._memory_and_speed_statistics import SOFTMAX_STATISTICS
from course_lib.checks.exercise import Integration, Lesson, Written

LESSON = Lesson(
    8,
    "Memory and speed",
    Written("which_limit", points=3, minutes=10),
    Integration(("blocked_attention", "RecomputedAttention")),
)

EXERCISES = (
    SOFTMAX_STATISTICS,
    BLOCKED_ATTENTION,
    RECOMPUTED_ATTENTION,
    FACTORED_ADDITIVE_SCORES,
)
