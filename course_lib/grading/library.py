"""The course_lib that a guest sees: a copy without the solutions that are still due.

No guest can show, run or leak what was never in its file system nor in the host's memory.
"""

import importlib.util
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from course_lib.exercises import lessons
from course_lib.workspace.sources import attention_init, reached

_PACKAGE = Path(__file__).resolve().parents[1]
# Rooms, no list of modules; of the solutions what all share, and those of the lessons before.
_VISIBLE = (
    "__init__.py",
    "models",
    "plotting",
    "checks/__init__.py",
    "checks/observe",
    "notebook/__init__.py",
    "notebook/_graded.py",
    "notebook/hunt.py",
    "grading/sandbox/__init__.py",
    "grading/sandbox/inside",
)
_OF_LESSONS = "checks/observe/lessons"
_NUMBERED = re.compile(
    r"\d\d\D"
)  # a lesson's slug, and an assignment that takes its place among them


def library_of(folder: Path, lesson: str) -> Path:
    """Where `stage_library` puts it."""
    return folder / f"library-{lesson}"


def handed_out(lesson: str) -> list[str]:
    """The lessons whose solutions may be seen while a lesson is graded: those before it.

    They sort before it by name, so an assignment `05b_homework` comes after lesson 05. One whose
    name does not begin with a lesson's number sees no solution at all.
    """
    return [slug for slug in lessons() if slug < lesson] if _NUMBERED.match(lesson) else []


def stage_library(folder: Path, lesson: str) -> Path:
    """Copy what a guest may see that grades a lesson; return the folder to import it from.

    Compiled modules come along: their dates are kept, so they are taken for what they are.
    """
    target, before, checks = library_of(folder, lesson), handed_out(lesson), _PACKAGE / _OF_LESSONS
    due = {f"_{slug[3:]}" for slug in set(lessons()) - set(before)}
    solutions = (path for path in (_PACKAGE / "attention").glob("_[a-z]*.py"))
    visible = [_PACKAGE / name for name in _VISIBLE]
    visible += [path for path in solutions if path.stem not in due]
    # What checks bring along, but for later lessons: lesson 07 shows a sound answer to one of 06.
    # An assignment that has no place among the lessons may use any lesson's checks.
    graded = [*before, lesson] if _NUMBERED.match(lesson) else lessons() if lesson else ()
    starts = [checks / "__init__.py", *(checks / f"{slug[3:]}.py" for slug in graded)]
    visible += [path for path in reached(starts, _PACKAGE) if path.is_relative_to(checks)]
    for path in visible:
        _copy(path, target / "course_lib" / path.relative_to(_PACKAGE))
    init = attention_init(_PACKAGE, before)
    (target / "course_lib" / "attention" / "__init__.py").write_text(init, encoding="utf-8")
    (target / "course_lib" / "grading" / "__init__.py").write_text("")
    shutil.copy(_PACKAGE / "notebook" / "stand_in" / "my_attention.py", target)
    return target


def _copy(source: Path, copy: Path) -> None:
    """A folder, or a module with what it was compiled to."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, copy, ignore=_left_out)
        return
    shutil.copy2(source, copy)
    compiled = importlib.util.cache_from_source(str(source))
    if os.path.isfile(compiled):
        place = importlib.util.cache_from_source(str(copy))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy2(compiled, place)


def _left_out(folder: str, names: Sequence[str]) -> list[str]:
    """Compiled modules that are left of what has been removed or renamed; what one lesson has."""
    if Path(folder) == (_PACKAGE / _OF_LESSONS).parent:
        return [Path(_OF_LESSONS).name]
    if os.path.basename(folder) != "__pycache__":
        return []
    modules = {path.stem for path in Path(folder).parent.glob("*.py")}
    return [name for name in names if name.partition(".")[0] not in modules]
