"""Keep each check's best result in one small file, and show it.

Only a check that someone runs in a notebook counts, not one that a program runs (grading, the
build, nbval). A problem with the file never reaches the student. It only costs the progress.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from course_lib.checks.judge.html import block, hidden, paragraph, table
from course_lib.checks.judge.report import OPTIONAL, WORDS, Report, amount
from course_lib.checks.observe.cells import current_shell, someone_answers
from course_lib.exercises import find, lessons, names
from course_lib.notebook import library
from course_lib.workspace.folder import find_root
from course_lib.workspace.locks import only_one

_COUNTED = ("correct", "incorrect", "raised")
_NOT_BEGUN = "not_attempted"
_ALONE = "Written questions are graded by a person and not counted here."


@dataclass(frozen=True)
class Best:
    """The best result so far in one exercise, or in a lesson's answers together."""

    outcome: str = _NOT_BEGUN
    points: float = 0.0
    when: str = ""  # of this result: UTC, ISO 8601
    tries: int = 0


@dataclass(frozen=True)
class Line:
    """One exercise and how far it is."""

    lesson: str
    exercise: str
    max_points: float
    best: Best
    starred: bool = False


@dataclass(frozen=True)
class Progress:
    """Results across the lessons, shown as a table in a notebook and as text elsewhere."""

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
        place = str(self.place)
        return {"exercises": lines, **_sums(self.lines), "library": library, "place": place}

    def text(self) -> str:
        """Return the progress as plain text."""
        lines = [f"Your progress: {_summed(self.lines)}"]
        for title, part in self._begun():
            width = max(len(_name(line)) for line in part)
            lines += ["", f"{title}: {_summed(part)}"]
            for line in part:
                symbol, word = WORDS[line.best.outcome]
                columns = f"  {symbol} {_name(line):<{width}}  {word:<22} {_points(line):<18}"
                lines.append(f"{columns}{_local(line.best.when)}".rstrip())
        return "\n".join([*lines, "", *self._notes()])

    def html(self) -> str:
        """Return an HTML fragment with the same content as the text."""
        groups = []
        for title, part in self._begun():
            lesson = f"{html.escape(title)}<br>{_summed(part)}"
            groups.append([(lesson, *_cells(line)) for line in part])
        parts = [paragraph(f"<strong>Your progress: {_summed(self.lines)}</strong>")]
        if groups:
            columns = ("Lesson", "Exercise", "So far", "Points", "When")
            parts.append(table("The best result of each check", columns, groups))
        parts += [self._picture()]
        parts += [paragraph(html.escape(note), small=True) for note in self._notes()]
        return block("neutral", parts)

    def _picture(self) -> str:
        """Draw the parts of a Transformer, with the student's own filled."""
        from course_lib.notebook.library_parts import parts_of
        from course_lib.plotting.figures import figure_html
        from course_lib.plotting.library_map import library_map

        plot = library_map(parts_of(names()), self.library, self._next())
        return figure_html(plot, inline=True)

    def _next(self) -> list[str]:
        """Return the first exercises that are not in the library yet."""
        return [name for name in names() if name not in self.library][:3]

    def _begun(self) -> list[tuple[str, list[Line]]]:
        """Return the lessons with at least one try, by title."""
        parts = [
            (_title(slug), [line for line in self.lines if line.lesson == slug])
            for slug in lessons()
        ]
        return [(title, part) for title, part in parts if any(line.best.tries for line in part)]

    def _notes(self) -> list[str]:
        begun = [title for title, _ in self._begun()]
        others = [title for slug in lessons() if (title := _title(slug)) not in begun]
        waiting = [f"Not begun: {'; '.join(others)}."] if others else []
        count = f"{len(self.library)} of {len(names())} answers are in your own library"
        following = f"; next: {', '.join(self._next())}" if self._next() else ""
        where = f"{count}, {self.library_place}{following}."
        return [*waiting, where, _ALONE, f"Kept on this machine only, in {self.place}."]

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return self.text()


def read_progress() -> Progress:
    """Read the progress from its file."""
    place = file_of_progress()
    best = _read(place)
    lines = []
    for slug, lesson in lessons().items():
        for name in (*lesson.exercises, *([slug] if lesson.integration else [])):
            exercise = find(name)
            starred = exercise.starred or lesson.starred
            lines.append(Line(slug, name, exercise.points, best.get(name, Best()), starred))
    return Progress(tuple(lines), place, library.kept(), library.folder())


def keep(report: Report) -> None:
    """Record the result of a check that someone ran in a notebook; never raise."""
    if report.outcome not in _COUNTED or not someone_answers(current_shell()):
        return
    with contextlib.suppress(Exception):
        _note(file_of_progress(), report)


def file_of_progress() -> Path:
    """Return the file's path: in the course's folder if writable, else in the Jupyter data."""
    root = find_root(Path.cwd())
    if root is not None and os.access(root, os.W_OK):
        return root / ".course" / "progress.json"
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "attention-course" / "progress.json"


def _note(place: Path, report: Report) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with only_one(place.with_name("progress.lock"), waiting=lambda: None):
        best = _read(place)
        before = best.get(report.exercise, Best())
        tries, result = before.tries + 1, before
        better = report.points > before.points
        if better or (report.points == before.points and before.outcome != "correct"):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            result = Best(report.outcome, report.points, now)
        best[report.exercise] = Best(result.outcome, result.points, result.when, tries)
        scratch = place.with_name(f".{place.name}.{os.getpid()}")
        content = {"version": 1, "best": {name: asdict(one) for name, one in best.items()}}
        scratch.write_text(json.dumps(content, indent=1), encoding="utf-8")
        os.replace(scratch, place)


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
    symbol, word = WORDS[line.best.outcome]
    name = _name(line) if line.exercise == line.lesson else f"<code>{line.exercise}</code>"
    return name, f"{hidden(symbol)} {word}", _points(line), _local(line.best.when)


def _name(line: Line) -> str:
    return "all of it together" if line.exercise == line.lesson else line.exercise


def _title(slug: str) -> str:
    lesson = lessons()[slug]
    return f"{lesson.number:02d} {lesson.title.partition(':')[0]}"


def _sums(lines) -> dict:
    """Count what is correct, separately for the core path and for optional exercises."""
    core = [line for line in lines if not line.starred]
    starred = [line for line in lines if line.starred]
    return {
        "num_correct": _num_correct(core),
        "num_exercises": len(core),
        "points": round(sum(line.best.points for line in core), 1),
        "max_points": sum(line.max_points for line in core),
        "num_starred_correct": _num_correct(starred),
        "num_starred": len(starred),
    }


def _num_correct(lines) -> int:
    return sum(line.best.outcome == "correct" for line in lines)


def _summed(lines) -> str:
    sums = _sums(lines)
    text = "{num_correct} of {num_exercises} correct, {points:g} of {max_points:g} points"
    text += f"; {OPTIONAL}: {{num_starred_correct}} of {{num_starred}}" * bool(sums["num_starred"])
    return text.format(**sums)


def _points(line: Line) -> str:
    return f"{line.best.points:g} of {amount(line.max_points, 'point')}{' ★' * line.starred}"


def _local(when: str) -> str:
    """Format a time in the student's time zone."""
    return f"{datetime.fromisoformat(when).astimezone():%d %b %Y, %H:%M}" if when else ""
