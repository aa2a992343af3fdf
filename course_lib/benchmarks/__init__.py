"""Measurements against what others use, in one run on one machine: `course bench`."""
