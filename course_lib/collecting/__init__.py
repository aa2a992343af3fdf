"""Exchange files with an LMS and grant extensions: `course collect`, `feedback` and `extend`."""
