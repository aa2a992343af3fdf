"""A student's own library: the package `my_attention`, one file for each answer with full marks.

The files are ordinary Python and belong to the student. An answer is first written to a trial file,
imported from there and checked once more. Only then does it replace the previous file. Nothing
that goes wrong here costs points.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType

import course_lib
from course_lib.checks.judge.grade import grade
from course_lib.checks.judge.report import amount
from course_lib.checks.observe.cells import current_shell, someone_answers
from course_lib.exercises import find, lessons, names
from course_lib.notebook.library_source import NotKept, source_with_needs
from course_lib.workspace.folder import find_root
from course_lib.workspace.locks import only_one

PACKAGE = "my_attention"
_STAND_IN = str(Path(__file__).parent / "stand_in")  # replaces the library when a program runs
_DATED = re.compile(r"^# Full marks for (\w+) on (\d{4}-\d{2}-\d{2})$", re.MULTILINE)
_ABOUT = '''"""Your own attention library: one file for each answer that got full marks.

`from my_attention import masked_softmax` works in every notebook of the course, below its first
cell. Change the files as you like, or delete some. `check` writes this one anew.
"""
'''
_loaded: dict[str, tuple[int, int]] = {}  # the files of the package as they were last imported


@dataclass(frozen=True)
class Own:
    """An answer of the library, and the day on which it got full marks ("" if not known)."""

    value: object
    day: str


def folder() -> Path:
    """Return the library's folder. It is never inside a lesson's folder, which is submitted.

    The library is in the course's folder. Without a course's folder, as where nbgrader fetches
    lessons, it is beside the lessons' folders, or else beside the notebook. If that place cannot be
    written, it is in the student's Jupyter data.
    """
    here = Path.cwd()
    lesson = next((place for place in (here, *here.parents) if place.name in lessons()), None)
    place = find_root(here) or (here if lesson is None else lesson.parent)
    if os.access(place, os.W_OK):
        return place / PACKAGE
    from jupyter_core.paths import jupyter_data_dir

    return Path(jupyter_data_dir()) / "attention-course" / PACKAGE


def in_use() -> bool:
    """Tell whether a person runs this notebook; only then is the library read and written."""
    return "NBGRADER_EXECUTION" not in os.environ and someone_answers(current_shell())


def make_importable() -> None:
    """Let `import my_attention` find the library, or its stand-in when a program runs."""
    parent, shell = str(folder().parent), current_shell()
    has_kernel = getattr(shell, "kernel", None) is not None
    if in_use():
        if parent not in sys.path:
            sys.path.append(parent)
    elif (has_kernel or "NBGRADER_EXECUTION" in os.environ) and _STAND_IN not in sys.path:
        sys.path.insert(0, _STAND_IN)


def own(exercise: str) -> Own | None:
    """Return the library's answer to an exercise, or None if it has none or a program runs."""
    place = folder()
    if not in_use() or not (place / f"_{exercise}.py").is_file():
        return None
    try:
        value = getattr(_package(place), exercise, None)
    except (NotKept, OSError) as reason:
        print(f"{PACKAGE}: {reason}. Until then the course's versions are used")
        return None
    return None if value is None else Own(value, kept().get(exercise, ""))


def kept() -> dict[str, str]:
    """Return the exercises in the library, each with its day or "", without importing them."""
    found, place = {}, folder()
    for name in names():
        with contextlib.suppress(OSError):
            text = (place / f"_{name}.py").read_text(encoding="utf-8", errors="replace")
            found[name] = dict(_DATED.findall(text)).get(name, "")
    return found


def shown_day(day: str) -> str:
    """Format a day for display."""
    return f"{date.fromisoformat(day):%d %b %Y}" if day else "no date"


def keep(exercise: str, value: object, namespace: Mapping[str, object]) -> str:
    """Write an answer with full marks into the library; never raise.

    Args:
        exercise: its name.
        value: the answer.
        namespace: the notebook's variables.

    Returns:
        A sentence for the student that says where the answer is or why it was not kept; "" if
        nothing changed.
    """
    if not in_use() or str(getattr(value, "__module__", "")).startswith(f"{PACKAGE}."):
        return ""
    place = folder()
    try:
        if namespace.get(exercise) is not value:
            raise NotKept("it has another name here; give it its own and check again")
        place.mkdir(parents=True, exist_ok=True)
        with only_one(place / ".lock", waiting=lambda: None):
            changed = _write(exercise, namespace, place)
    except NotKept as reason:
        return f"{exercise} is not kept in your library: {reason}."
    except OSError as error:
        why = error.strerror or type(error).__name__
        return f"{exercise} is not kept in your library: {place} cannot be written ({why})."
    except Exception as error:
        return f"{exercise} is not kept in your library ({type(error).__name__}: {error})."
    return f"{exercise}: kept in your own library, {PACKAGE}/_{exercise}.py" if changed else ""


def _write(exercise: str, namespace: Mapping[str, object], place: Path) -> bool:
    """Write an answer, check what was written, and return whether that changed the library.

    Raises:
        NotKept: the answer cannot be written down, or does not get full marks in its file.
        OSError: the folder cannot be written.
    """
    cells = [str(cell) for cell in current_shell().history_manager.input_hist_parsed]
    source = source_with_needs(exercise, namespace, cells, _exercise_import(exercise))
    path, trial = place / f"_{exercise}.py", place / f"_trial_{os.getpid()}.py"
    before = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if _DATED.sub("", before).strip() == source.strip():
        return False
    text = f"# Full marks for {exercise} on {date.today().isoformat()}\n{source}"
    try:
        trial.write_text(text, encoding="utf-8", newline="\n")
        if fault := _fault(exercise, trial):
            raise NotKept(
                f"in a file of its own {fault}; let it use only its arguments, imports and what "
                "this notebook defines, and check again"
            )
        if before:
            shutil.copyfile(path, place / f"_{exercise}.before.py")
        os.replace(trial, path)
    finally:
        trial.unlink(missing_ok=True)
        for one in (trial, path):
            Path(importlib.util.cache_from_source(one)).unlink(missing_ok=True)
    _write_start(place)
    _forget()
    return True


def _fault(exercise: str, trial: Path) -> str:
    """Say why the answer in a file does not get full marks; "" if it does."""
    name = f"{PACKAGE}.{trial.stem}"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        _package(trial.parent)
        try:
            answer = vars(importlib.import_module(name)).get(exercise)
        except (Exception, SystemExit) as error:
            return f"it stops with {type(error).__name__}: {error}"
        report = grade(find(exercise), answer, seed="public", naming_seconds=0.0)
        sys.modules.pop(name, None)
    if report.outcome == "correct":
        return ""
    return f"`{exercise}` gets {report.points:g} of {amount(report.max_points, 'point')}"


def _exercise_import(answer: str) -> Callable[[str, object], str | None]:
    """Return a function that maps a name and its value to the import statement of an exercise.

    The statement is "" for the answer itself and None for values that are not exercises.
    """

    def statement(name: str, value: object) -> str | None:
        home = str(getattr(value, "__module__", ""))
        if home.startswith(("course_lib.attention.", f"{PACKAGE}.")):
            key = str(getattr(value, "__name__", name))
        else:
            key = name if home == "__main__" else ""
        if key not in names() or key == answer:
            return "" if key == answer else None
        renamed = "" if key == name else f" as {name}"
        if key in kept():
            return f"from {PACKAGE}._{key} import {key}{renamed}"
        if key in course_lib.attention.__all__:
            return f"from course_lib import {key}{renamed}"
        raise NotKept(f"it uses `{key}`, which is not in it yet; run its check first, then this")

    return statement


def _write_start(place: Path) -> None:
    """Write the package's `__init__.py`, which imports every answer."""
    answers = [name for name in names() if (place / f"_{name}.py").is_file()]
    imports = "".join(f"from {PACKAGE}._{name} import {name}\n" for name in answers)
    path, text = place / "__init__.py", f"{_ABOUT}\n{imports}"
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
        return
    scratch = place / f".__init__.{os.getpid()}"
    scratch.write_text(text, encoding="utf-8", newline="\n")
    os.replace(scratch, path)


def _package(place: Path) -> ModuleType:
    """Import the library, again if its files have changed.

    Raises:
        NotKept: a file cannot be imported, or another package has the library's name.
        OSError: the folder cannot be written.
    """
    make_importable()
    _write_start(place)
    files = {str(path): path.stat() for path in place.glob("*.py") if path.stem[1:] in names()}
    stamps = {path: (about.st_mtime_ns, about.st_size) for path, about in files.items()}
    if stamps != _loaded:
        _forget()
    importlib.invalidate_caches()
    try:
        package = importlib.import_module(PACKAGE)
    except (Exception, SystemExit) as error:
        raise NotKept(_trouble(error)) from None
    if Path(str(package.__file__)).parent != place:
        raise NotKept(f"something else with this name hides {place}; rename it")
    _loaded.clear()
    _loaded.update(stamps)
    return package


def _forget() -> None:
    """Make the next import of the library read its files again."""
    for name in [one for one in sys.modules if one.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def _trouble(error: BaseException) -> str:
    """Say which file of the library raises an error, and what to do about it."""
    said = " ".join(str(getattr(error, "msg", error)).split())[:200]
    stops = f"stops with {type(error).__name__}: {said}; fix or delete that file"
    frames = traceback.extract_tb(error.__traceback__)
    places = [(f.filename, f.lineno) for f in frames if Path(f.filename).parent.name == PACKAGE]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    if not places:  # another package has the library's name
        return f"{frames[-1].filename} {stops}"
    file, line = places[-1]
    return f"{Path(file).name}, line {line}, {stops}"
