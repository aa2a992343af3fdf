"""The rows of the threat catalogue as submissions with their expected grades.

`hostile.txt` holds code in place of the first answer; `inputs.py` registers whatever else is handed
in with `made`. Row ids are those of the catalogue.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from grading_course import CAUSAL, LENGTH, LESSON, UPPER, hand_in, honest
from nbformat.v4 import new_code_cell

FULL, NONE, FIRST_LOST, BLANK = (2.0, 2.0), (0.0, 0.0), (0.0, 2.0), (None, None)
WRONG_LENGTH = LENGTH.replace("<", ">=")
WRONG = {"causal_mask": UPPER, "length_mask": WRONG_LENGTH}


@dataclass(frozen=True)
class Lab:
    """The attacked course folder, a file and a port on the host, and secrets that must not show."""

    root: Path
    target: Path
    port: int
    secrets: dict[str, str] = field(default_factory=dict)

    def fill(self, code: str) -> str:
        code = code.replace("@ROOT@", str(self.root)).replace("@TARGET@", str(self.target))
        return code.replace("@PORT@", str(self.port))

    def notebook(self, first: str = CAUSAL, second: str = LENGTH, own: str = ""):
        """Return the lesson with these two answers and a student's own cell after each check."""
        answers = {"causal_mask": self.fill(first), "length_mask": self.fill(second)}
        notebook = honest(self.root, **answers)
        if own:
            for place in (len(notebook.cells) - 1, 5):
                notebook.cells.insert(place, new_code_cell(self.fill(own)))
        return notebook

    def put(self, student: str, content, name: str = f"{LESSON}.ipynb") -> Path:
        return hand_in(self.root, student, content, name)


@dataclass(frozen=True)
class Threat:
    row: str  # ids in the catalogue
    what: str  # one line
    hand_in: Callable[[Lab, str], object]  # puts it into submitted/STUDENT
    # Points of the two exercises, each None for not graded. None means less than full marks.
    points: tuple[float | None, float | None] | None = NONE
    outcome: tuple[str, ...] = ()  # allowed ones of the first exercise, all if empty
    words: str = ""  # text in the problem, notices or messages
    shows: str = ""  # text that the student's cells print, which proves that the attack ran

    @property
    def student(self) -> str:
        """Return the student's name. Names sort by row."""
        return f"{self.row}-{[t for t in THREATS if t.row == self.row].index(self)}"


THREATS: list[Threat] = []


POINTS = {"full": FULL, "lost": FIRST_LOST, "none": NONE, "less": None}
_KNOWN = {
    "@ALONE@": "import os\nassert os.getpid() == 1  # only where there is a process namespace",
    "@DEF@": "def causal_mask(num_queries, num_keys=None, *, device=None):",
    "@RIGHT@": CAUSAL,
    "@WRONG@": UPPER,
}


def read_hostile() -> None:
    """Register each entry of `hostile.txt`.

    An entry begins with `=== ROW POINTS OUTCOMES: WHAT`. POINTS are "full", "lost" (the first
    exercise's), "less" than all, or "none": then both answers are wrong, and the code above them
    tries to gain points. `--- words:` and `--- shows:` are those of `Threat`. What follows
    `--- second` is the second answer, and `--- own` a cell of the student's own.
    """
    text = (Path(__file__).parent / "hostile.txt").read_text(encoding="utf-8")
    for mark, code in _KNOWN.items():
        text = text.replace(mark, code)
    for entry in text.split("=== ")[1:]:
        head, _, body = entry.partition("\n")
        about, what = head.split(": ", 1)
        row, points, *outcome = about.split()
        said = dict(re.findall(r"^--- (words|shows): (.*)\n", body, re.MULTILINE))
        body = re.sub(r"^--- (words|shows): .*\n", "", body, flags=re.MULTILINE)
        code, *more = re.split(r"^--- (second|own)\n", body, flags=re.MULTILINE)
        parts = dict(zip(more[::2], more[1::2], strict=True))
        if points == "none" and not parts:
            code, parts = f"{code}\n{UPPER}", {"second": WRONG_LENGTH}

        def put(lab: Lab, student: str, code: str = code, parts: dict = parts) -> None:
            lab.put(student, lab.notebook(code, **parts))

        THREATS.append(Threat(row, what, put, POINTS[points], tuple(outcome), **said))


def made(row: str, what: str, *, points=FULL, words: str = "", shows: str = ""):
    """Register a function that hands in its own files."""

    def register(function: Callable[[Lab, str], object]):
        THREATS.append(Threat(row, what, function, points, (), words, shows))
        return function

    return register


def complaint(threat: Threat, record, printed: str = "") -> str:
    """Return what is wrong with a threat's grades, or "" if nothing is."""
    if record is None:
        return "the student is lost"
    points = tuple(row.points for row in record.rows)
    said = " | ".join(
        [record.problem or "", *record.notices, *(f"{r.message} {r.reason}" for r in record.rows)]
    )
    if threat.points is not None and points != threat.points:
        return f"points {points}, expected {threat.points}: {said[:300]}"
    if threat.points is None and (None in points or sum(points) >= sum(FULL)):
        return f"points {points}, expected less than all: {said[:300]}"
    if threat.outcome and record.rows[0].outcome not in threat.outcome:
        return f"outcome {record.rows[0].outcome}, expected {threat.outcome}: {said[:300]}"
    if threat.words and threat.words not in said:
        return f"nothing says {threat.words!r}: {said[:300]}"
    if threat.shows and threat.shows not in printed:
        return f"the attack did not print {threat.shows!r}: {printed[-300:]!r}"
    return ""
