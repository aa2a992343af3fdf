"""Everything is correct, but a check cell was deleted; grading puts it back."""

DELETED_CHECKS = ("causal_mask",)
