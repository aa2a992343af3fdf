"""Lesson 08: attention in blocks, and recomputed for the backward pass."""

from course_lib.checks.judge.definitions import Integration, Lesson, Written

LESSON = Lesson(
    8,
    "Memory and speed",
    Written("which_limit", points=3, minutes=10),
    Integration(("blocked_attention", "RecomputedAttention")),
    starred=True,
    exercises=(
        "softmax_statistics",
        "blocked_attention",
        "attention_backward",
        "jacobian_wrt_query",
        "RecomputedAttention",
    ),
    removed=("factored_additive_scores",),
)
