"""Find the course around the current folder, and its lessons by name or number."""

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.workspace.errors import UsageError

if TYPE_CHECKING:
    from traitlets.config import Config

CLONE = Path(__file__).resolve().parents[2]  # unless the course is installed from a wheel


def find_root(start: Path) -> Path | None:
    """Return the nearest folder at or above `start` that holds nbgrader_config.py, or None."""
    for folder in (start, *start.parents):
        if (folder / "nbgrader_config.py").is_file():
            return folder
    return None


def load_config(root: Path) -> "Config":
    """Return the traitlets Config that nbgrader_config.py in `root` sets up.

    Raises:
        UsageError: the file cannot be run.
    """
    from traitlets.config.loader import PyFileConfigLoader

    path = root / "nbgrader_config.py"
    try:
        return PyFileConfigLoader(path.name, path=str(root)).load_config()
    except (Exception, SystemExit) as error:  # the file can run any code
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"{path} cannot be run ({what}); fix it and call again") from error


def course_root() -> Path:
    """Return the course's folder, or raise UsageError outside of one."""
    root = find_root(Path.cwd().resolve())
    if root is None:
        raise UsageError(
            f"{Path.cwd()} is not inside a course (no nbgrader_config.py here or above); "
            "change into the folder that `course init` made, or into the clone, and call again"
        )
    return root


def with_sources(needed: str) -> Path:
    """Return the course's folder if it holds `needed`, or else the installed clone.

    Raises:
        UsageError: the course is installed from a wheel, which has no tests and no site.
    """
    root = course_root()
    for folder in (root, CLONE):
        if (folder / needed).is_dir():
            return folder
    raise UsageError(
        f"{root} has no {needed}/, and neither has the installed course, which is not a clone: "
        "run this in a clone"
    )


def lesson_names(root: Path) -> list[str]:
    """List the lessons of a course: the numbered folders of solutions/ and of notebooks/."""
    found = {
        path.name for part in ("solutions", "notebooks") for path in root.glob(f"{part}/[0-9]*_*")
    }
    return sorted(found)


def assignment_names(root: Path) -> list[str]:
    """List lessons, and ordinary nbgrader assignments: folders with a notebook of their name."""
    notebooks = (path for part in ("solutions", "notebooks") for path in root.glob(f"{part}/*/*"))
    found = {path.stem for path in notebooks if path.name == f"{path.parent.name}.ipynb"}
    return sorted(found.union(lesson_names(root)))


def choose(known: list[str], wanted: list[str] | None) -> list[str] | None:
    """Return those of the known lessons that a command works on, or None for all."""
    return [find_lesson(known, name) for name in wanted] if wanted else None


def find_lesson(known: list[str], wanted: str) -> str:
    """Return the lesson with this name, this number, or this name without its number.

    Raises:
        UsageError: there is no such lesson, or the name is empty.
    """
    name = wanted.rstrip("/").rsplit("/", 1)[-1]
    if not name:
        raise UsageError(f"a lesson's name is empty; known: {', '.join(known) or 'none yet'}")
    number, _, slug = name.partition("_")
    for lesson in known:
        lesson_number, _, lesson_slug = lesson.partition("_")
        if name in (lesson, lesson_slug) or (not slug and number.zfill(2) == lesson_number):
            return lesson
    near = difflib.get_close_matches(name, [*known, *(k.partition("_")[2] for k in known)], n=1)
    remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none yet'}"
    raise UsageError(f"there is no lesson {wanted}; {remedy}")
