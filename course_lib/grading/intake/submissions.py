"""Find what students submitted, and which of their files is the notebook to grade."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from course_lib.grading.intake.timestamps import SECRET, STAMP
from course_lib.workspace.errors import GradingError
from course_lib.workspace.text import one_line, utf8

# Files that systems, browsers, editors and Jupyter leave in a folder.
LEFT_BY_PROGRAMS = re.compile(
    r"\..*|~\$.*|.*~|__pycache__|__MACOSX|anaconda_projects|(?:eh)?thumbs\.db|desktop\.ini|icon\r"
    r"|\$RECYCLE\.BIN|.*\.(?:pyc|crdownload|part|partial|download|tmp|swp)",
    re.IGNORECASE | re.DOTALL,
)
NOTEBOOK = re.compile(r"\.ipynb(?:\.\w+| ?\(\d+\))?$", re.IGNORECASE)  # browsers add .txt or .json
_DEEPEST, _MOST_NOTEBOOKS = 3, 20


@dataclass(frozen=True)
class Submission:
    """One student's folder for one lesson."""

    student: str
    lesson: str
    folder: Path
    notebook: Path | None  # the one named after the lesson, or the only one
    problem: str | None = None
    notices: tuple[str, ...] = ()
    others: tuple[Path, ...] = ()  # other notebooks that may hold the answers


def find_submissions(
    submitted: Path, lesson: str, students: Sequence[str] | None = None
) -> list[Submission]:
    """List `submitted/*/LESSON`, readable or not, in order of the students' names."""
    place = f"put each notebook in {submitted.name}/STUDENT/{lesson}/{lesson}.ipynb"
    if not submitted.is_dir():
        raise GradingError(f"{submitted}: no such folder; {place}")
    found = [
        one
        for folder in sorted(submitted.iterdir())
        if folder.is_dir() and (one := submission_in(folder, lesson)) is not None
    ]
    missing = sorted(set(students or ()) - {one.student for one in found})
    if not found:
        raise GradingError(f"{submitted}: nobody handed in {lesson}; {place}")
    if missing:
        raise GradingError(f"{submitted}: nothing from {', '.join(missing)} for {lesson}")
    return [one for one in found if students is None or one.student in students]


def submission_in(place: Path, lesson: str) -> Submission | None:
    """Return a student's submission of a lesson, even if misplaced, or None if there is none."""
    student, folder = utf8(place.name), place / lesson
    named = folder / f"{lesson}.ipynb"
    beside = [path for path in _paths(place) if path != folder and _meant(path, lesson)]
    problem = None
    if not folder.exists():
        if not beside:
            return None
        where = f"{one_line(student)}/{lesson}/"
        problem = f"{_shown(beside, place)} is not where it is looked for: put it into {where}"
    elif student != place.name:
        problem = "its folder's name is not UTF-8: rename it to the student's id"
    elif place.is_symlink():
        problem = f"{place} is a link, not a folder"
    elif folder.is_symlink() or not folder.is_dir():
        problem = f"{folder} is not an ordinary folder"
    if problem:
        return Submission(student, lesson, folder, None, problem)
    found = (*_notebooks(folder), *(path for path in beside if NOTEBOOK.search(path.name)))
    others = tuple(path for path in found if path != named)[:_MOST_NOTEBOOKS]
    left = _left_aside(folder, named)
    if named.is_symlink() or named.exists():
        return Submission(student, lesson, folder, named, None, left, others)
    problem = "; ".join([f"no notebook was submitted: ask for {named.name}", *left])
    return Submission(student, lesson, folder, None, problem, (), others)


def _meant(path: Path, lesson: str) -> bool:
    """Return whether a notebook, zip or folder has this lesson's name, perhaps with additions."""
    name, wanted = (re.sub(r"[\W_]+", "_", one.lower()) for one in (utf8(path.name), lesson))
    is_one = NOTEBOOK.search(path.name) or path.suffix.lower() == ".zip" or path.is_dir()
    return wanted in name and bool(is_one)


def choose(submission: Submission, has_answers: Callable[[Path], bool]) -> Submission:
    """Use the only other notebook with answers if the one with the lesson's name has none."""
    named, folder = f"{submission.lesson}.ipynb", submission.folder
    if not submission.others or (submission.notebook and has_answers(submission.notebook)):
        return submission
    found = [path for path in submission.others if has_answers(path)]
    why = f"since {named} holds no answer"
    if submission.notebook is None:
        found, why = found or list(submission.others), f"which should be called {named}"
    if not found:
        return submission
    names = _shown(found, folder)
    if len(found) > 1:
        problem = f"several notebooks ({names}) may be meant: rename the one to grade to {named}"
        return replace(submission, notebook=None, problem=problem)
    notices = (f"graded {names}, {why}", *_left_aside(folder, found[0]))
    return replace(submission, notebook=found[0], problem=None, notices=notices)


def _notebooks(folder: Path, depth: int = _DEEPEST) -> Iterator[Path]:
    """Yield the notebooks in a folder and below it, except copies that Jupyter keeps."""
    paths = _paths(folder)
    yield from (path for path in paths if NOTEBOOK.search(path.name))
    for path in paths:
        if depth and path.is_dir() and not path.is_symlink() and not NOTEBOOK.search(path.name):
            yield from _notebooks(path, depth - 1)


def _left_aside(folder: Path, chosen: Path) -> tuple[str, ...]:
    """Return a notice about the files beside the notebook, which the guest does not get."""
    known = (chosen, *chosen.parents, folder / STAMP, folder / SECRET)
    others = [path for path in _paths(folder) if path not in known]
    return (f"other files not looked at: {_shown(others, folder)}",) if others else ()


def _paths(folder: Path) -> list[Path]:
    """Return the contents of a folder without files that programs leave there."""
    return sorted(p for p in folder.iterdir() if not LEFT_BY_PROGRAMS.fullmatch(p.name))


def _shown(paths: Sequence[Path], folder: Path) -> str:
    """Return a few names in one line, relative to a folder."""
    names = [one_line(os.path.relpath(path, folder)) for path in paths[:5]]
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(names) + more
