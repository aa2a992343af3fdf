"""Decides what an observation is worth: violations, the known mistake, points, the report."""
