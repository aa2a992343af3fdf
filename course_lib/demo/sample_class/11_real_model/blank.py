"""Submitted as it was released."""

BLANK = True
