"""How far something that takes its time has come."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One step of many: a line of text, or where the terminal can, the move of a bar.

    Args:
        lesson: what the steps belong to, in front of the bar.
        done: how many steps have begun, this one included, of `total`.
        total: how many there are.
        what: this step.
    """

    lesson: str
    done: int
    total: int
    what: str = ""

    def __str__(self) -> str:
        return f"{self.lesson}: {self.what}"
