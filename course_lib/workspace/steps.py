"""Progress events of long-running commands."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """One step of a command: a line of text or, on a terminal, an update of a progress bar.

    Args:
        lesson: the text before the bar.
        done: how many steps have begun, or how many submissions of a class are finished.
        total: how many steps or submissions there are.
        what: the name of this step, or the student whose submission was finished.
        counts: how many submissions are "graded", "unchanged" and "not gradable".
    """

    lesson: str
    done: int
    total: int
    what: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.counts:
            return f"{self.lesson}: {self.what}"
        counts = ", ".join(f"{number} {name}" for name, number in self.counts.items())
        return f"{self.lesson}: {self.done} of {self.total} ({counts}), {self.what}"
