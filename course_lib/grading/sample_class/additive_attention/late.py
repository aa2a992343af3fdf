"""Everything right, two hours late."""

HOURS_LATE = 2
