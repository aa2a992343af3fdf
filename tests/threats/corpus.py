"""The rows of the threat catalogue as submissions: what each hands in and what must come of it.

Every module of this folder registers its rows here with `answer` (code in place of the first
answer) or `made` (a function that hands in anything). Row ids are those of the catalogue.
"""

import copy
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
    """The course folder that is attacked, and what there is to steal or to harm.

    Attributes:
        root: the course folder.
        target: a file on the host that no submission may read or change.
        port: where the host listens.
        secrets: what must show up nowhere, by name.
    """

    root: Path
    target: Path
    port: int
    secrets: dict[str, str] = field(default_factory=dict)

    def fill(self, code: str) -> str:
        """Code with @ROOT@, @TARGET@ and @PORT@ replaced."""
        known = {"@ROOT@": self.root, "@TARGET@": self.target, "@PORT@": self.port}
        for mark, value in known.items():
            code = code.replace(mark, str(value))
        return code

    def notebook(self, first: str = CAUSAL, second: str = LENGTH, own: str = ""):
        """The lesson with these two answers, and a cell of the student's own after each check."""
        answers = {"causal_mask": self.fill(first), "length_mask": self.fill(second)}
        notebook = honest(self.root, **answers)
        if own:
            for place in (len(notebook.cells) - 1, 5):
                notebook.cells.insert(place, new_code_cell(self.fill(own), id=f"look-{place}"))
        return copy.deepcopy(notebook)

    def put(self, student: str, content, name: str = f"{LESSON}.ipynb") -> Path:
        """Hand something in."""
        return hand_in(self.root, student, content, name)


@dataclass(frozen=True)
class Threat:
    """One submission and what is expected of it.

    Args:
        row: id in the catalogue.
        what: one line.
        hand_in: puts it into submitted/STUDENT.
        points: of the two exercises, each None for not graded; or None for less than all.
        outcome: of the first exercise, or several that will do; any if empty.
        words: what problem, notices or messages must say.
        shows: what the student's cells must have printed, so that the attack is known to have run.
    """

    row: str
    what: str
    hand_in: Callable[[Lab, str], object]
    points: tuple[float | None, float | None] | None = NONE
    outcome: tuple[str, ...] = ()
    words: str = ""
    shows: str = ""

    @property
    def student(self) -> str:
        """Who hands it in; sorted by row."""
        number = [t for t in THREATS if t.row == self.row].index(self)
        return f"{self.row}-{number}"

    @property
    def id(self) -> str:
        return f"{self.student} {self.what}"


THREATS: list[Threat] = []


def answer(
    row: str,
    what: str,
    code: str,
    *,
    second: str = LENGTH,
    own: str = "",
    points=FIRST_LOST,
    outcome: str = "",
    words: str = "",
    shows: str = "",
) -> None:
    """Register code in place of the first answer."""

    def put(lab: Lab, student: str) -> None:
        lab.put(student, lab.notebook(code, second, own))

    THREATS.append(Threat(row, what, put, points, tuple(outcome.split()), words, shows))


def tampering(row: str, what: str, code: str, **expected) -> None:
    """Register an attempt to gain points: both answers are wrong, the attack is above."""
    expected.setdefault("points", NONE)
    answer(row, what, f"{code}\n\n{UPPER}", second=WRONG_LENGTH, **expected)


def made(row: str, what: str, *, points=FULL, outcome: str = "", words: str = "", shows: str = ""):
    """Register a function that hands in whatever it likes."""

    def register(function: Callable[[Lab, str], object]):
        THREATS.append(Threat(row, what, function, points, tuple(outcome.split()), words, shows))
        return function

    return register


def complaint(threat: Threat, record, printed: str = "") -> str:
    """What is wrong with how a threat was graded; empty if nothing is."""
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
