"""The student's own library: answers that got full marks, one module a lesson, to go on with.

A new version is written beside the module, loaded and checked there once more as it is alone; only
then it takes the place of the file. Nothing that goes wrong costs points or the file before.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType

import course_lib
from course_lib.checks.judge.grade import grade
from course_lib.checks.judge.report import amount
from course_lib.checks.observe.front_end import current_shell
from course_lib.exercises import exercises, find, lessons
from course_lib.notebook import library_import
from course_lib.notebook.library_import import PACKAGE, folder
from course_lib.notebook.library_module import Module, parsed
from course_lib.notebook.library_source import Needs, NotKept, needs_of
from course_lib.workspace.locks import only_one

_SEED = "public"
_HEAD = """Lesson {number:02d}, {title}: my own answers, each kept when it got full marks.

Change what you like: it is used as it is here. A new answer replaces one only with full marks.
"""


@dataclass(frozen=True)
class Own:
    """An answer of the library, and the day on which it got full marks ("" if not known)."""

    value: object
    day: str


def own(exercise: str) -> Own | None:
    """The library's answer to an exercise; None where there is none, or a program asks."""
    path = _path_of(exercise)
    if not library_import.in_use() or not path.is_file():
        return None
    try:
        value = vars(library_import.loaded(path)).get(exercise)
    except ImportError:
        print(f"my_attention: something else with this name hides {path.parent}; rename it")
        return None
    return None if value is None else Own(value, kept().get(exercise, ""))


def kept() -> dict[str, str]:
    """The exercises whose answers are in the library, each with its day or ""; runs none of it."""
    found: dict[str, str] = {}
    for slug, lesson in lessons().items():
        try:
            module = parsed((folder() / f"{slug[3:]}.py").read_text(encoding=library_import.UTF8))
        except (OSError, SyntaxError, ValueError):
            continue
        names = module.defined() & set(lesson.exercises)
        found |= {name: module.dates().get(name, "") for name in lesson.exercises if name in names}
    return found


def shown_day(day: str) -> str:
    """A day as it is shown."""
    return f"{date.fromisoformat(day):%d %b %Y}" if day else "no date"


def keep(exercise: str, value: object, namespace: Mapping[str, object]) -> str:
    """Writes an answer with full marks into the library; never raises.

    Args:
        exercise: its name.
        value: the answer.
        namespace: the notebook's variables.

    Returns:
        A sentence for the student: where it is, or why it is not kept; "" if nothing changed.
    """
    path, home = _path_of(exercise), str(getattr(value, "__module__", ""))
    if not library_import.in_use() or home.startswith(f"{PACKAGE}."):
        return ""
    try:
        if namespace.get(exercise) is not value:
            raise NotKept("it has another name here; give it its own and check again")
        with _locked(path.parent):
            changed = _write(exercise, namespace, path)
    except NotKept as reason:
        return f"{exercise} is not kept in your library: {reason}."
    except OSError as error:
        why = error.strerror or type(error).__name__
        return f"{exercise} is not kept in your library: {path} cannot be written ({why})."
    except Exception as error:
        return f"{exercise} is not kept in your library ({type(error).__name__}: {error})."
    return f"{exercise}: kept in your own library, {PACKAGE}/{path.name}" if changed else ""


def _path_of(exercise: str) -> Path:
    return folder() / f"{find(exercise).lesson[3:]}.py"


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    library_import.begin(place)
    with only_one(place / ".lock", waiting=lambda: None):
        yield


def _write(exercise: str, namespace: Mapping[str, object], path: Path) -> bool:
    """Puts an answer into its module; whether that changed it.

    Raises:
        NotKept: it cannot be written down, or is not right as it is alone.
        OSError: the folder cannot be written.
    """
    module, before = _read(path, exercise)
    today = date.today().isoformat()
    trials: list[str] = []
    for others in (kept(), {}):  # with the student's own answers to other exercises, else ours
        needs = _needs(exercise, namespace, module, others)
        made = module.with_answer(exercise, needs.pieces, needs.imports, today)
        same = made.dates() | {exercise: module.dates().get(exercise)} == module.dates()
        if same and _undated(made.text()) == _undated(before):
            return False
        touched = [name for name in made.dates() if name == exercise]
        if _changes_others(module, made, exercise):
            touched = list(made.dates())
        trials.append(_fault(made.text(), touched, path))
        if not trials[-1]:
            library_import.write(path, made.text())
            return True
        if f"from {PACKAGE} import" not in made.text():
            break
    raise NotKept(
        f"in a file of its own {trials[0]}; let it use only its arguments, imports and what this "
        "notebook defines, and check again"
    )


def _undated(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if ": full marks on " not in line)


def _read(path: Path, exercise: str) -> tuple[Module, str]:
    """The module as it is, or a new one; what cannot be read is set aside."""
    if path.is_file():
        try:
            text = path.read_text(encoding=library_import.UTF8)
            return parsed(text), text
        except (SyntaxError, ValueError) as error:
            library_import.set_aside(path, error)
    lesson = lessons()[find(exercise).lesson]
    return Module(_HEAD.format(number=lesson.number, title=lesson.title.partition(":")[0])), ""


def _needs(
    exercise: str, namespace: Mapping[str, object], module: Module, others: Mapping[str, str]
) -> Needs:
    shell = current_shell()
    cells = [str(cell) for cell in shell.history_manager.input_hist_parsed]
    lesson = find(exercise).lesson

    def import_of(name: str, value: object) -> str | None:
        key = _exercise_of(name, value)
        if key is None or key == exercise:
            return None if key is None else ""
        renamed = "" if key == name else f" as {name}"
        if find(key).lesson == lesson and key in module.defined():
            return f"{name} = {key}" if renamed else ""
        if find(key).lesson != lesson and key in others:
            return f"from {PACKAGE} import {key}{renamed}"
        if key in course_lib.attention.__all__:
            return f"from course_lib import {key}{renamed}"
        raise NotKept(f"it uses `{key}`, which is not in it yet; run its check first, then this")

    return needs_of(exercise, namespace, cells, import_of)


def _exercise_of(name: str, value: object) -> str | None:
    """The exercise that a value answers: an answer of the notebook, the library or the course."""
    home = str(getattr(value, "__module__", ""))
    if home.startswith(("course_lib.attention.", f"{PACKAGE}.")):
        name = str(getattr(value, "__name__", name))
    elif home != "__main__":
        return None
    return name if name in exercises() else None


def _changes_others(before: Module, after: Module, exercise: str) -> bool:
    """Whether anything is another that an answer beside the new one may use."""
    old = {name: piece.code for piece in before.pieces for name in piece.names}
    new = {name: piece.code for piece in after.pieces for name in piece.names}
    old |= {name: "\n".join(lines) for name, lines in before.imports.items()}
    new = {name: "\n".join(lines) for name, lines in after.imports.items()} | new
    return any(new.get(name) != code for name, code in old.items() if name != exercise)


def _fault(text: str, names: list[str], path: Path) -> str:
    """Why a module's answers do not get full marks as they are there; "" if they do."""
    scratch = path.with_name(f".{path.stem}.{os.getpid()}.py")
    name = f"{PACKAGE}.{path.stem}"
    module, before = ModuleType(name), sys.modules.get(name)
    sys.modules[name] = module
    try:
        scratch.write_text(text, encoding="utf-8", newline="\n")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                exec(compile(text, str(scratch), "exec"), vars(module))
            except (Exception, SystemExit) as error:
                return f"it stops with {type(error).__name__}: {error}"
            for one in names:
                answer = vars(module).get(one)
                report = grade(find(one), answer, seed=_SEED, naming_seconds=0.0)
                if report.outcome != "correct":
                    return f"`{one}` gets {report.points:g} of {amount(report.max_points, 'point')}"
    finally:
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before
        linecache.checkcache(str(scratch))
        scratch.unlink(missing_ok=True)
    return ""
