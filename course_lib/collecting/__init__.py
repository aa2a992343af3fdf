"""`course collect`, `extend` and `feedback`: work from an LMS, more time, and pages back to it."""
