"""Lesson 07: invariants that broken modules violate, tests for them, and modules to fix."""

from course_lib.checks.judge.definitions import Integration, Lesson, Written

LESSON = Lesson(
    7,
    "Bug hunt: would you notice a broken module?",
    Written("loss_proves_nothing", points=3, minutes=10),
    Integration(
        (
            "masking_equals_deleting",
            "keys_permutation_invariant",
            "batch_items_independent",
            "CausalSelfAttention",
        ),
        judged_as="_together",
    ),
    exercises=(
        "masking_equals_deleting",
        "keys_permutation_invariant",
        "batch_items_independent",
        "diagnosed_boxes",
        "broken_invariants",
        "CausalSelfAttention",
        "is_permutation_equivariant",
        "is_causal",
    ),
    removed=("Lookup",),
)
