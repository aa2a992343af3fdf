"""The words and symbols for the result of a check. `course progress` reads them without torch."""

WORDS = {
    "correct": ("✓", "correct"),
    "incorrect": ("✗", "not yet"),
    "raised": ("⚠", "stopped with an error"),
    "not_attempted": ("○", "not attempted"),
    "checker_failed": ("!", "our check failed"),
    "timed_out": ("∞", "stopped"),
    "out_of_memory": ("∞", "stopped"),
    "crashed": ("∞", "stopped"),
}
OPTIONAL = "★ optional"


def amount(number: float, noun: str) -> str:
    """Return a number with its noun: "1 point", "2 points"."""
    return f"{number:g} {noun}{'s' * (number != 1)}"
