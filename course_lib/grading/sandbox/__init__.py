"""Run student code in forked, confined processes. README.md describes the design."""
