"""Lesson 06: heads, what they share, and what they cannot see without positions."""

from course_lib.checks.catalogue._multi_head_attention import MULTI_HEAD_ATTENTION
from course_lib.checks.catalogue._multi_head_heads import MERGE_HEADS, SPLIT_HEADS
from course_lib.checks.catalogue._multi_head_loading import LOAD_INTO_TORCH
from course_lib.checks.catalogue._multi_head_order import IS_CAUSAL, IS_PERMUTATION_EQUIVARIANT
from course_lib.checks.catalogue._multi_head_positions import POSITIONAL_ENCODING
from course_lib.checks.exercise import Integration, Lesson, Written

LESSON = Lesson(
    6,
    "Multi-head attention",
    Written("heads_and_positions", points=3, minutes=10),
    Integration(("split_heads", "merge_heads", "MultiHeadAttention")),
)

EXERCISES = (
    SPLIT_HEADS,
    MERGE_HEADS,
    MULTI_HEAD_ATTENTION,
    LOAD_INTO_TORCH,
    IS_PERMUTATION_EQUIVARIANT,
    IS_CAUSAL,
    POSITIONAL_ENCODING,
)
