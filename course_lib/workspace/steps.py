"""How far something that takes its time has come."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """One step of many: a line of text, or where the terminal can, the move of a bar.

    Args:
        lesson: what the steps belong to, in front of the bar.
        done: how many steps have begun, this one included, of `total`; of a class, how many
            submissions are settled.
        total: how many there are.
        what: this step; of a class, whose submission was settled.
        counts: of a class's submissions: "graded", "unchanged", "not gradable".
        outcomes: of exercises in the submissions graded by this run: "correct", "incorrect", ...
    """

    lesson: str
    done: int
    total: int
    what: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.counts:
            return f"{self.lesson}: {self.what}"
        counts = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        return f"{self.lesson}: {self.done} of {self.total} ({counts}), {self.what}"
