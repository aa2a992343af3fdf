"""Everything right, a day and a half late."""

HOURS_LATE = 36
