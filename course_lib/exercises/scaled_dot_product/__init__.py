"""Lesson 05: scaled dot-product attention, as a function and a module, and its gradients."""

from course_lib.checks.judge.definitions import Integration, Lesson, Written

LESSON = Lesson(
    5,
    "Scaled dot-product attention",
    Written("scale_and_learning", points=3, minutes=10),
    Integration(("scaled_dot_product_attention", "DotProductAttention")),
    exercises=(
        "score_variance",
        "numpy_attention",
        "scaled_dot_product_attention",
        "DotProductAttention",
        "jacobian_wrt_query",
        "attention_backward",
    ),
)
