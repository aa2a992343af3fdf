"""Lesson 11: the attention of a published language model, and experiments with that model."""

from course_lib.checks.judge.definitions import Integration, Lesson, Written

LESSON = Lesson(
    11,
    "A real language model on your attention",
    Written("which_heads_carry_it", points=4, minutes=25),
    Integration(
        ("rotary_embedding", "grouped_query_attention", "KVCache", "GroupedQueryAttention"),
        judged_as="_together",
    ),
    exercises=("rotary_embedding", "grouped_query_attention", "KVCache", "GroupedQueryAttention"),
    removed=("next_token_logits",),
)
