"""Make the course_lib that a guest sees: a copy without the solutions that are still due.

A guest cannot leak code that was never in its file system or in the host's memory.
"""

import re
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from course_lib.exercises import lessons
from course_lib.workspace.sources import attention_init, reached

_PACKAGE = Path(__file__).resolve().parents[1]
# Files and folders, to which solutions of earlier lessons are added.
_VISIBLE = (
    "__init__.py",
    "models",
    "plotting",
    "checks/__init__.py",
    "checks/observe/*.py",
    "checks/observe/*.js",
    "notebook/__init__.py",
    "notebook/_without_judge.py",
    "notebook/hunt.py",
    "notebook/stand_in",
    "grading/sandbox/__init__.py",
    "grading/sandbox/inside",
)
_NUMBERED = re.compile(r"\d\d\D")  # a lesson, or an assignment that is sorted among the lessons


def handed_out(lesson: str) -> list[str]:
    """Return the earlier lessons, whose solutions a guest may see while this lesson is graded.

    Lessons are ordered by name, so an assignment `05b_homework` comes after lesson 05. An
    assignment whose name does not begin with a lesson's number sees no solutions.
    """
    return [slug for slug in lessons() if slug < lesson] if _NUMBERED.match(lesson) else []


def visible_files(lesson: str, package: Path = _PACKAGE) -> set[Path]:
    """Return the files of the course that a guest of this lesson may see."""
    before = handed_out(lesson)
    due = {f"_{slug[3:]}" for slug in set(lessons()) - set(before)}
    visible = {path for name in _VISIBLE for path in package.glob(name)}
    visible |= {p for p in (package / "attention").glob("_[a-z]*.py") if p.stem not in due}
    # Copy what checks need, except for later lessons, because lesson 07 contains a correct answer
    # to an exercise of lesson 06. An assignment outside the order may use any lesson's checks.
    graded = [*before, lesson] if _NUMBERED.match(lesson) else lessons() if lesson else ()
    fixtures = (package / "exercises" / slug[3:] / "fixtures.py" for slug in graded)
    used = reached(list(filter(Path.is_file, fixtures)), package)
    visible |= {path for path in used if path.name.startswith("fixtures")}
    return {f for p in visible for f in (p, *p.rglob("*")) if f.is_file() and f.suffix != ".pyc"}


def stage_package(folder: Path, lesson: str) -> Path:
    """Copy the modules that a guest of this lesson may see, and return the folder of the copy."""
    target, visible = folder / f"library-{lesson}", visible_files(lesson)

    def hidden(place: str, names: Sequence[str]) -> list[str]:
        return [name for name in names if not _is_visible(Path(place, name), visible)]

    copy = target / "course_lib"
    shutil.copytree(_PACKAGE, copy, ignore=hidden)
    init = attention_init(_PACKAGE, handed_out(lesson))
    (copy / "attention" / "__init__.py").write_text(init, encoding="utf-8")
    (copy / "grading" / "__init__.py").write_text("")
    shutil.copy(_PACKAGE / "notebook" / "stand_in" / "my_attention.py", target)
    return target


def _is_visible(path: Path, visible: Collection[Path]) -> bool:
    """Return whether a file is copied, or a folder that holds such files."""
    if path.suffix == ".pyc":
        path = path.parents[1] / f"{path.name.partition('.')[0]}.py"
    if path.name == "__pycache__" or path in visible:
        return True
    return path.is_dir() and any(one.is_relative_to(path) for one in visible)
