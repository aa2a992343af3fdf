"""Estimate how long a lesson takes, and how much of that is its core path.

Text, folded answers included, takes a minute for each 150 words, and a visible code cell takes a
minute. An exercise and the written question take the minutes that their files state. Starred
lessons, sections with a star in the heading, and everything that belongs to a starred exercise are
optional. An optional part ends at the next heading of its level or above, at the written question,
and at the check of all answers together.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from course_lib.authoring.lesson_tree import LessonTree
from course_lib.authoring.paste import BEGIN
from course_lib.authoring.read import HEADING, TOGETHER, Part, assign_roles, read_cells
from course_lib.workspace.errors import BuildError

WORDS_A_MINUTE = 150
HOURS_A_WEEK = 3  # of someone who studies beside other work
MOST_CORE, MOST_WHOLE = 15 * 60, 26 * 60  # minutes that the course may take
STAR, TIME = "★", "{time}"
_ANY_HEADING = re.compile(r"(#{1,6})\s")
_WRITTEN = re.compile(r"###+ Written question\b")
_TAG, _WORD = re.compile(r"<[^>]*>"), re.compile(r"\S*\w\S*")


@dataclass(frozen=True)
class Times:
    """Minutes of the core path, and of the whole."""

    core: float = 0.0
    whole: float = 0.0

    def __add__(self, other: "Times") -> "Times":
        return Times(self.core + other.core, self.whole + other.whole)


def times(course: LessonTree, slug: str) -> Times:
    """Return how long a lesson takes.

    Raises:
        BuildError: an exercise without a star stands in an optional section; see `roles`, too.
    """
    time = sum((time for _, _, time in walk(course, slug)), Times())
    return Times(0, time.whole) if course.lessons[slug].starred else time


def walk(course: LessonTree, slug: str) -> Iterator[tuple[Part, bool, Times]]:
    """Yield the cells of a lesson, each with whether it ends in an optional part and its time."""
    path = course.relative(course.text(slug))
    cells = read_cells(course.text(slug).read_text(encoding="utf-8"), path)
    optional = 0  # the level of the heading that opened an optional section
    for part in assign_roles(cells, course, slug):
        time, minutes = Times(), 0.0  # reading time, and minutes for the rest
        match part.role:
            case "check":
                minutes = course.exercises[part.name].minutes
            case "together":
                minutes = course.lessons[slug].integration.minutes
            case "written":
                minutes = course.lessons[slug].written.minutes
            case "setup" | "code":
                minutes = 0 if "hide-input" in part.cell.options.get("tags", ()) else 1
        optional = 0 if part.role == "written" else optional
        if part.cell.kind == "markdown":
            for line in part.cell.source.partition(BEGIN)[0].splitlines():
                optional = _section(optional, line, course, slug)
                read = len(_WORD.findall(_TAG.sub("", line))) / WORDS_A_MINUTE
                time += Times(0 if optional else read, read)
        elif part.role == "check" and optional and not course.starred(part.name):
            what = f"`{part.name}` has no star and stands in an optional section"
            remedy = "Set `starred=True` in its file, or put a heading between the two."
            raise BuildError(path, part.cell.line, what, remedy)
        yield part, bool(optional), time + Times(0 if optional else minutes, minutes)


def _section(optional: int, line: str, course: LessonTree, slug: str) -> int:
    """Return the level of the heading that makes a line optional, or 0 on the core path."""
    heading, together = _ANY_HEADING.match(line), TOGETHER.match(line)
    if heading is None:
        return optional
    if 0 < optional < len(heading[1]) and not together and not _WRITTEN.match(line):
        return optional
    exercise = HEADING.match(line)
    own = exercise[1] if exercise else slug if together else ""
    starred = course.starred(own) if own else STAR in line
    return len(heading[1]) if starred else 0


def course_times(course: LessonTree, lessons: Sequence[str] | None = None) -> dict[str, Times]:
    """Return the times of the given lessons, or of all, by slug, with the sum under "all"."""
    found = {slug: times(course, slug) for slug in course.select(lessons)}
    return found | {"all": sum(found.values(), Times())}


def as_text(found: dict[str, Times]) -> str:
    """Return a table with a line per lesson, the sum, and how many weeks the lessons take."""
    rows = [
        ("", "core path", "whole"),
        *((n, spoken(t.core) if t.core else "optional", spoken(t.whole)) for n, t in found.items()),
    ]
    lines = [f"{name:26}{core:>12}{whole:>13}" for name, core, whole in rows]
    lines += ["", f"The core path leaves out what has a {STAR}."]
    core, whole = (
        math.ceil(t / HOURS_A_WEEK / 60) for t in (found["all"].core, found["all"].whole)
    )
    if core > 1:
        lines.append(
            f"At {HOURS_A_WEEK} hours a week, it takes {core} weeks, and everything takes {whole}."
        )
    return "\n".join(lines)


def told(time: Times) -> str:
    """Return the time line at the top of a lesson, such as "about 2 h 10 min"."""
    whole, core = spoken(time.whole), spoken(time.core)
    if not time.core:
        return f"about {whole}; {STAR} off the core path"
    if core == whole:
        return f"about {whole}"
    return f"about {whole}, or {core} for the core path (without {STAR})"


def spoken(minutes: float) -> str:
    """Return minutes in words, rounded to ten: "1 h 30 min"."""
    hours, rest = divmod(10 * round(minutes / 10), 60)
    return " ".join(f"{n} {unit}" for n, unit in ((hours, "h"), (rest, "min")) if n) or "0 min"
