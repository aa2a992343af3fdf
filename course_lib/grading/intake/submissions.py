"""Find what students submitted, and read it without trusting any of it.

A submitted notebook is reduced to cells: kind, id, grade_id and source. Metadata, outputs
and everything else a student's file may claim are left behind here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from course_lib.grading.intake.gate import (
    SECRET,
    STAMP,
    IntakeError,
    one_line,
    read_ordinary,
    utf8,
)
from course_lib.workspace.errors import GradingError

MAX_BYTES = 100_000_000
MAX_CELLS = 5_000
MAX_SOURCE = 5_000_000  # characters in all cells together
# What systems, browsers, editors and Jupyter leave in a folder.
_LEFT_BY_PROGRAMS = re.compile(
    r"\..*|~\$.*|.*~|__pycache__|__MACOSX|anaconda_projects|(?:eh)?thumbs\.db|desktop\.ini|icon\r"
    r"|\$RECYCLE\.BIN|.*\.(?:pyc|crdownload|part|partial|download|tmp|swp)",
    re.IGNORECASE | re.DOTALL,
)
_NOTEBOOK = re.compile(r"\.ipynb(?:\.\w+| ?\(\d+\))?$", re.IGNORECASE)  # browsers add .txt or .json
_DEEPEST, _MOST_NOTEBOOKS = 3, 20
_KINDS = {"code": "code", "markdown": "markdown", "raw": "raw", "heading": "markdown"}


@dataclass(frozen=True)
class SubmittedCell:
    """What is kept of a submitted cell."""

    kind: str
    source: str
    grade_id: str | None = None
    cell_id: str | None = None
    outputs: tuple = ()  # as they were submitted: for cells that are not run again


@dataclass(frozen=True)
class Submission:
    """One student's folder for one lesson.

    Attributes:
        notebook: the one that is called like the lesson, or the only one.
        others: more notebooks, in which the answers may be.
    """

    student: str
    lesson: str
    folder: Path
    notebook: Path | None
    problem: str | None = None
    notices: tuple[str, ...] = ()
    others: tuple[Path, ...] = ()


def find_submissions(
    submitted: Path, lesson: str, students: Sequence[str] | None = None
) -> list[Submission]:
    """List `submitted/*/LESSON` in order of the students' names, readable or not.

    Raises:
        GradingError: there is no such folder, it is empty, or a named student submitted nothing.
    """
    if not submitted.is_dir():
        raise GradingError(f"{submitted}: no such folder; {_place(submitted, lesson)}")
    found = {
        utf8(folder.name): one
        for folder in sorted(submitted.iterdir())
        if folder.is_dir() and (one := _handed_in(folder, lesson)) is not None
    }
    missing = sorted(set(students or ()) - set(found))
    if not found:
        raise GradingError(f"{submitted}: nobody handed in {lesson}; {_place(submitted, lesson)}")
    if missing:
        raise GradingError(f"{submitted}: nothing from {', '.join(missing)} for {lesson}")
    return [found[name] for name in found if students is None or name in students]


def _place(submitted: Path, lesson: str) -> str:
    return f"put each notebook in {submitted.name}/STUDENT/{lesson}/{lesson}.ipynb"


def _handed_in(place: Path, lesson: str) -> Submission | None:
    """What a student handed in for a lesson, also where it lies beside its place; None: nothing."""
    student, folder = utf8(place.name), place / lesson
    if not folder.exists():
        beside = [path for path in place.iterdir() if _meant(path, lesson)]
        if not beside:
            return None
        names = _shown(sorted(beside), place)
        problem = f"{names} is not where it is looked for: put it into {one_line(student)}/{lesson}"
        return Submission(student, lesson, folder, None, f"{problem}/")
    if student != place.name:
        problem = "its folder's name is not UTF-8: rename it to the student's id"
        return Submission(student, lesson, folder, None, problem)
    if place.is_symlink():
        return Submission(student, lesson, folder, None, f"{place} is a link, no ordinary folder")
    return _locate(student, lesson, folder)


def _meant(path: Path, lesson: str) -> bool:
    """Whether a notebook, zip or folder has this lesson's name, whatever was added to that."""
    name = re.sub(r"[\W_]+", "_", utf8(path.name).lower())
    if re.sub(r"[\W_]+", "_", lesson.lower()) not in name or _LEFT_BY_PROGRAMS.fullmatch(path.name):
        return False
    return bool(_NOTEBOOK.search(path.name)) or path.suffix.lower() == ".zip" or path.is_dir()


def _locate(student: str, lesson: str, folder: Path) -> Submission:
    """Find the notebook that is called like the lesson, and others that may be meant."""
    if folder.is_symlink() or not folder.is_dir():
        return Submission(student, lesson, folder, None, f"{folder} is not an ordinary folder")
    named = folder / f"{lesson}.ipynb"
    beside = (p for p in sorted(folder.parent.iterdir()) if p != folder and _meant(p, lesson))
    found = (*_notebooks(folder), *(path for path in beside if _NOTEBOOK.search(path.name)))
    others = tuple(path for path in found if path != named)[:_MOST_NOTEBOOKS]
    left = _left_aside(folder, named)
    if named.is_symlink() or named.exists():
        return Submission(student, lesson, folder, named, None, left, others)
    problem = f"no notebook was submitted: ask for {named.name}"
    return Submission(student, lesson, folder, None, "; ".join([problem, *left]), (), others)


def choose(submission: Submission, has_answers: Callable[[Path], bool]) -> Submission:
    """Where no notebook of the lesson's name holds answers, take the only other one that does.

    Args:
        submission: as it was found.
        has_answers: whether a notebook can be read, is of this lesson, and was worked on.
    """
    named, folder = f"{submission.lesson}.ipynb", submission.folder
    if not submission.others or (submission.notebook and has_answers(submission.notebook)):
        return submission
    found = [path for path in submission.others if has_answers(path)]
    if submission.notebook is None:
        found = found or list(submission.others)
    names = _shown(found, folder)
    if len(found) > 1:
        problem = f"several notebooks ({names}) may be meant: rename the one to grade to {named}"
        return replace(submission, notebook=None, problem=problem)
    if not found:
        return submission
    why = (
        f"since {named} holds no answer"
        if submission.notebook
        else f"which should be called {named}"
    )
    notices = (f"graded {names}, {why}", *_left_aside(folder, found[0]))
    return replace(submission, notebook=found[0], problem=None, notices=notices)


def _notebooks(folder: Path, depth: int = _DEEPEST) -> Iterator[Path]:
    """Notebooks in a folder and below it, but for copies that Jupyter keeps."""
    paths = sorted(p for p in folder.iterdir() if not _LEFT_BY_PROGRAMS.fullmatch(p.name))
    yield from (path for path in paths if _NOTEBOOK.search(path.name))
    for path in paths:
        if depth and path.is_dir() and not path.is_symlink() and not _NOTEBOOK.search(path.name):
            yield from _notebooks(path, depth - 1)


def _left_aside(folder: Path, chosen: Path) -> tuple[str, ...]:
    """A notice of what lies beside the notebook: none of it reaches the guest."""
    others = [
        path
        for path in sorted(folder.iterdir())
        if path not in (chosen, *chosen.parents)
        and path.name not in (STAMP, SECRET)
        and not _LEFT_BY_PROGRAMS.fullmatch(path.name)
    ]
    return (f"other files not looked at: {_shown(others, folder)}",) if others else ()


def _shown(paths: Sequence[Path], folder: Path) -> str:
    """A few names in one line, as seen from a folder."""
    names = [one_line(os.path.relpath(path, folder)) for path in paths[:5]]
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(names) + more


def read_bytes(path: Path) -> bytes:
    """The bytes of a submitted notebook.

    Raises:
        IntakeError: a link, a folder, a device, or larger than MAX_BYTES.
    """
    return read_ordinary(path, MAX_BYTES, "ask for it with its outputs cleared")


def parse(data: bytes, name: str = "the notebook") -> tuple[list[SubmittedCell], list[str]]:
    """Reduce the bytes of a notebook (nbformat 3 or 4) to its cells, with notices.

    Raises:
        IntakeError: not a notebook; the message says why and what to ask for.
    """
    notices: list[str] = []
    text = _decode(data, name, notices)
    try:
        document = json.loads(text, parse_int=_short_int)
    except RecursionError:
        raise IntakeError(f"{name} is nested too deeply to be a notebook") from None
    except ValueError as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise IntakeError(f"{name} is damaged ({where}): ask for it again") from None
    raw = _raw_cells(document, name)
    cells = [cell for item in raw if (cell := _reduce(item)) is not None]
    if not cells:
        raise IntakeError(f"{name} holds no cells: ask for it again")
    size = sum(len(cell.source) for cell in cells)
    if len(cells) > MAX_CELLS or size > MAX_SOURCE:
        held = f"{len(cells):,} cells with {size / 1e6:.1f} million characters"
        raise IntakeError(f"{name} holds {held}: ask for the lesson's notebook with the answers")
    if len(cells) < len(raw):
        notices.append(f"{len(raw) - len(cells)} unreadable cell(s) left out")
    return cells, notices


def _decode(data: bytes, name: str, notices: list[str]) -> str:
    if not data.strip(b"\0 \r\n\t"):
        raise IntakeError(f"{name} is empty: ask for it again")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        notices.append("not UTF-8: read as Windows-1252")
        return data.decode("cp1252", errors="replace")


def _short_int(digits: str) -> int:
    return int(digits) if len(digits) < 20 else 0


def _raw_cells(document: object, name: str) -> list:
    if not isinstance(document, dict):
        raise IntakeError(f"{name} is not a notebook: ask for it again")
    version = document.get("nbformat")
    if version == 4:
        cells = document.get("cells")
    elif version == 3:
        sheets = document.get("worksheets")
        sheets = sheets if isinstance(sheets, list) else []
        parts = [s.get("cells") for s in sheets if isinstance(s, dict)]
        cells = [cell for part in parts if isinstance(part, list) for cell in part]
    else:
        raise IntakeError(f"{name} has notebook format {version!r}: ask for it saved by Jupyter")
    if not isinstance(cells, list):
        raise IntakeError(f"{name} holds no list of cells: ask for it again")
    return cells


def _reduce(item: object) -> SubmittedCell | None:
    """Keep kind, source and the two ids of one raw cell; None when it is no cell."""
    if not isinstance(item, dict):
        return None
    kind = item.get("cell_type")
    source = item.get("source", item.get("input"))
    if isinstance(source, list) and all(isinstance(part, str) for part in source):
        source = "".join(source)
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(source, str):
        return None
    metadata = item.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    cell_id = item.get("id")
    return SubmittedCell(
        _KINDS[kind],
        source.encode("utf-8", "replace").decode("utf-8"),  # no lone surrogates
        grade_id if isinstance(grade_id, str) else None,
        cell_id if isinstance(cell_id, str) else None,
        tuple(outputs) if isinstance(outputs := item.get("outputs"), list) else (),
    )
