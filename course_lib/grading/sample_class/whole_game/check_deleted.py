"""Everything right, but the check cell was deleted; grading puts it back."""

DELETED_CHECKS = ("most_attended",)
