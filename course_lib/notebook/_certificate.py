"""Show at the end of the course which parts of a Transformer are the student's own.

The certificate is made from their library alone, and nothing leaves the machine.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

from course_lib.checks.judge.html import block, paragraph
from course_lib.exercises import names
from course_lib.notebook import own_library
from course_lib.notebook.library_map import OWN, library_map
from course_lib.notebook.library_parts import parts_of

TITLE = "A Transformer, built by hand"
COURSES = "the course's"


@dataclass(frozen=True)
class Certificate:
    """The parts of a Transformer and who wrote each: a map in a notebook, text elsewhere.

    Attributes:
        own: the exercises whose answers are in the student's library, each with its day or "".
        place: the library's folder.
    """

    own: dict[str, str]
    place: Path

    def text(self) -> str:
        """Return the certificate as plain text."""
        lines = [TITLE, *self._lines()]
        days = {name: f"yours, {own_library.shown_day(day)}" for name, day in self.own.items()}
        for part in parts_of(names()):
            rows = (f"  {name}: {days.get(name, COURSES)}" for name in part.exercises)
            lines += ["", part.name, *rows]
        return "\n".join([*lines, "", self._note()])

    def html(self) -> str:
        """Return an HTML fragment with the map, in a frame."""
        look = f"border:6px double {OWN};border-radius:6px;padding:10px 16px;max-width:30em"
        words = "".join(f"<br>{html.escape(line)}" for line in self._lines())
        head = f'<strong style="font-size:19px">{TITLE}</strong>{words}'
        head = f'<p style="text-align:center">{head}</p>'
        picture = f'<div style="{look}">{head}{library_map(parts_of(names()), self.own)}</div>'
        return block("neutral", [picture, paragraph(html.escape(self._note()), small=True)])

    def _lines(self) -> list[str]:
        """Return how many parts are the student's own, and the first and last day."""
        total = len(names())
        count = "all" if len(self.own) == total else f"{len(self.own)} of"
        count += f" {total} parts are your own"
        days = sorted(day for day in self.own.values() if day)
        if not days:
            return [count]
        first, last = own_library.shown_day(days[0]), own_library.shown_day(days[-1])
        return [count, first if first == last else f"{first} to {last}"]

    def _note(self) -> str:
        if not self.own:
            return "Made from your own library, which is still empty. Nothing is sent anywhere."
        return f"Made from your own library, {self.place}. Nothing is sent anywhere."

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return self.text()


def certificate() -> Certificate:
    """Return a map of what you built, with each part marked as yours or the course's.

    The map is made on this machine from your own library, which counts as empty when a program
    runs the notebook. Nothing is sent anywhere.
    """
    own = own_library.kept() if own_library.in_use() else {}
    return Certificate(own, own_library.folder())
