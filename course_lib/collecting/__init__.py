"""`course collect` and `course extend`: from an LMS's download to submitted/, and more time."""
