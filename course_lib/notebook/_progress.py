"""Keep each check's best result in one small file, and show it.

Only a check that someone runs in a notebook counts, not one that a program runs (grading, the
build, nbval). A problem with the file never interrupts the student. Only the progress is lost.
`course progress` imports this module, so it does not import torch, which takes seconds.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten, wrap
from typing import TYPE_CHECKING

from course_lib.checks.judge.outcomes import OPTIONAL, WORDS, amount
from course_lib.checks.observe.cells import current_shell, someone_answers
from course_lib.exercises import counted_points, lessons, names, points_and_star
from course_lib.notebook import own_library
from course_lib.workspace.files import write_atomically
from course_lib.workspace.folder import find_root
from course_lib.workspace.locks import only_one

if TYPE_CHECKING:
    from course_lib.checks.judge.report import Report

_COUNTED = ("correct", "incorrect", "raised")
_WIDTH = 10  # characters of a bar


@dataclass(frozen=True)
class Best:
    """The best result so far in one exercise, or in a lesson's answers together."""

    outcome: str = "not_attempted"
    points: float = 0.0
    when: str = ""  # UTC, ISO 8601
    tries: int = 0


@dataclass(frozen=True)
class Line:
    """One check and how far it is."""

    lesson: str
    exercise: str
    max_points: float
    best: Best
    starred: bool = False


@dataclass(frozen=True)
class Progress:
    """Results across the lessons, with bars in a notebook and as text elsewhere."""

    lines: tuple[Line, ...]
    place: Path
    library: dict[str, str] = field(default_factory=dict)  # the exercises in it, each with its day
    library_place: Path = Path()

    def as_dict(self) -> dict:
        """Return the lines, the sums, the library and both places as data for JSON."""
        lines = [asdict(line) | asdict(line.best) for line in self.lines]
        for line in lines:
            del line["best"]
        library = {"answers": self.library, "place": str(self.library_place)}
        about = {"next": self.following(), "library": library, "place": str(self.place)}
        return {"exercises": lines, **self._totals(), **about}

    def following(self) -> str | None:
        """Return the next open exercise of the core path, counted from the last one done."""
        core = [line for line in self._told_apart() if not line.starred]
        core = [line for line in core if line.exercise != line.lesson]
        done = [line.best.outcome == "correct" or line.exercise in self.library for line in core]
        last = max((place for place, is_done in enumerate(done) if is_done), default=-1)
        places = (*range(last + 1, len(core)), *range(last))
        return next((core[place].exercise for place in places if not done[place]), None)

    def text(self) -> str:
        """Return the progress as plain text of at most 80 columns."""
        bars = []
        for slug, part in self._by_lesson():
            sums = _sums(part, slug)
            filled = _WIDTH * sums["num_correct"] // sums["num_exercises"]
            drawn = "█" * filled + "░" * (_WIDTH - filled)
            count, points = _short(sums)
            title = shorten(_title(slug), 42, placeholder=" ...")
            bars.append(f"{title:<42} {drawn} {count:>7} {points:>17}")
        results = []
        for slug, part in self._begun():
            results += ["", _title(slug)]
            for line in part:
                symbol, word = WORDS[line.best.outcome]
                columns = f"  {symbol} {_name(line):<28} {word:<21} {_points(line):<10} "
                results.append(f"{columns}{_local(line.best.when)}".rstrip())
        notes = [line for note in self._notes() for line in ("", *note)]
        heads = [*wrap(self._head(), 80), *wrap(self._next(), 80)]
        # The end stays visible on a small screen.
        return "\n".join([*notes, *results, "", *bars, "", *heads]).lstrip()

    def html(self) -> str:
        """Return an HTML fragment with the same content as the text."""
        from course_lib.checks.judge.html import bar, block, folded, inline, paragraph, table
        from course_lib.notebook.library_map import library_map
        from course_lib.notebook.library_parts import parts_of

        rows = []
        for slug, part in self._by_lesson():
            sums = _sums(part, slug)
            drawn = bar(sums["num_correct"], sums["num_exercises"])
            rows.append((html.escape(_title(slug)), drawn, *_short(sums)))
        head = paragraph(f"<strong>{self._head()}</strong>")
        parts = [head, paragraph(inline(self._next())), table(rows)]
        results = []
        for slug, part in self._begun():
            results.append(paragraph(f"<strong>{html.escape(_title(slug))}</strong>"))
            results.append(table(map(_cells, part)))
        if results:
            parts.append(folded("The best result of each check", "\n".join(results)))
        parts.append(folded("Your library as a map", library_map(parts_of(names()), self.library)))
        notes = (html.escape(" ".join(note)) for note in self._notes())
        parts += [paragraph(note, small=True) for note in notes]
        return block("neutral", parts)

    def _head(self) -> str:
        return (
            "Your progress: {num_correct} of {num_exercises} checks correct, {points:g} of "
            "{max_points:g} points; {optional}: {num_starred_correct} of {num_starred}"
        ).format(optional=OPTIONAL, **self._totals())

    def _totals(self) -> dict:
        """Return the totals without optional lessons, whose checks count as optional."""
        core = (slug for slug, lesson in lessons().items() if not lesson.starred)
        return _sums(self._told_apart(), *core)

    def _told_apart(self) -> list[Line]:
        """Return the lines, with a star on each line of an optional lesson."""
        slugs = lessons()
        return [
            replace(one, starred=one.starred or slugs[one.lesson].starred) for one in self.lines
        ]

    def _next(self) -> str:
        following = self.following()
        if following is None:
            return "You have finished the core path."
        home = next(line.lesson for line in self.lines if line.exercise == following)
        return f"Next on the core path: `{following}` in lesson {_title(home)}."

    def _by_lesson(self) -> list[tuple[str, list[Line]]]:
        return [(slug, [line for line in self.lines if line.lesson == slug]) for slug in lessons()]

    def _begun(self) -> list[tuple[str, list[Line]]]:
        """Return the lessons with at least one try."""
        return [pair for pair in self._by_lesson() if any(line.best.tries for line in pair[1])]

    def _notes(self) -> list[list[str]]:
        """Return the notes below the results. Only lines with a path exceed 80 columns."""
        written = self._totals()["written_points"]
        counted = (
            "★ is optional and not in the total. The maximum includes "
            f"{written:g} points for written answers, which a person grades."
        )
        count = len(self.library.keys() & set(names()))
        library = f"{count} of {len(names())} answers are in your own library,"
        kept = "Results are stored only on this machine, in"
        return [
            wrap(counted, 80),
            [library, f"  {self.library_place}"],
            [kept, f"  {self.place}"],
        ]

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return self.text()


def progress() -> Progress:
    """Return each exercise's best result so far, with its points and time.

    The results are in a file on this machine, which grading does not read.
    """
    place = file_of_progress()
    best = _read(place)
    lines = []
    for slug, lesson in lessons().items():
        for name in (*lesson.exercises, *([slug] if lesson.integration else [])):
            points, starred = points_and_star(name)
            lines.append(Line(slug, name, points, best.get(name, Best()), starred))
    return Progress(tuple(lines), place, own_library.kept(), own_library.folder())


def record_result(report: Report) -> None:
    """Record the result of a check that someone ran in a notebook; never raise."""
    if report.outcome not in _COUNTED or not someone_answers(current_shell()):
        return
    with contextlib.suppress(Exception):
        place = file_of_progress()
        place.parent.mkdir(parents=True, exist_ok=True)
        with only_one(place.with_name("progress.lock")):
            best = _read(place)
            before = best.get(report.exercise, Best())
            outcome, points, when = before.outcome, before.points, before.when
            if report.points > points or (report.points == points and outcome != "correct"):
                outcome, points = report.outcome, report.points
                when = datetime.now(UTC).isoformat(timespec="seconds")
            best[report.exercise] = Best(outcome, points, when, before.tries + 1)
            content = {"version": 1, "best": {name: asdict(one) for name, one in best.items()}}
            write_atomically(place, json.dumps(content, indent=1))


def file_of_progress() -> Path:
    """Return the file's path: in the course's folder if writable, else in the Jupyter data."""
    root = find_root(Path.cwd())
    if root is not None and os.access(root, os.W_OK):
        return root / ".course" / "progress.json"
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "attention-course" / "progress.json"


def _read(place: Path) -> dict[str, Best]:
    """Return the results in the file. Rename a damaged file and return no results."""
    try:
        content = json.loads(place.read_text(encoding="utf-8"))["best"]
        best = {name: Best(**one) for name, one in content.items()}
        if all(one.outcome in WORDS and _local(one.when) for one in best.values()):
            return best
    except OSError:
        return {}
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    with contextlib.suppress(OSError):
        os.replace(place, place.with_name("progress.damaged.json"))
    return {}


def _cells(line: Line) -> tuple[str, ...]:
    from course_lib.checks.judge.html import hidden

    symbol, word = WORDS[line.best.outcome]
    name = _name(line) if line.exercise == line.lesson else f"<code>{line.exercise}</code>"
    return name, f"{hidden(symbol)} {word}", _points(line), _local(line.best.when)


def _name(line: Line) -> str:
    return "all together" if line.exercise == line.lesson else line.exercise


def _title(slug: str) -> str:
    lesson = lessons()[slug]
    return f"{lesson.number:02d} {lesson.title.partition(':')[0]}{' ★' * lesson.starred}"


def _sums(lines: Iterable[Line], *slugs: str) -> dict:
    """Count the checks of lessons, optional exercises apart, and the points that grades count."""
    lines = list(lines)
    counted = [line for line in lines if not line.starred]
    correct = [line.starred for line in lines if line.best.outcome == "correct"]
    max_points = sum(map(counted_points, slugs))
    return {
        "num_correct": correct.count(False),
        "num_exercises": len(counted),
        "points": round(sum(line.best.points for line in counted), 1),
        "max_points": max_points,
        "written_points": max_points - sum(line.max_points for line in counted),
        "num_starred_correct": correct.count(True),
        "num_starred": len(lines) - len(counted),
    }


def _short(sums: Mapping[str, float]) -> tuple[str, str]:
    count = f"{sums['num_correct']} of {sums['num_exercises']}"
    return count, f"{sums['points']:g} of {amount(sums['max_points'], 'point')}"


def _points(line: Line) -> str:
    return f"{line.best.points:g} of {line.max_points:g}{' ★' * line.starred}"


def _local(when: str) -> str:
    """Format a time in the student's time zone."""
    return f"{datetime.fromisoformat(when).astimezone():%d %b %H:%M}" if when else ""
