"""A student's own library: the package `my_attention`, one file for each answer with full marks.

The files are ordinary Python and belong to the student. Each holds an answer's source with the
imports, helpers and simple constants that it uses. The source of a name is the latest statement in
the executed cells that defines it. An answer is first written to a trial file, imported from there
and checked once more. Only then does it replace the previous file. Nothing that goes wrong here
costs points.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import io
import os
import re
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import ModuleType

import course_lib
from course_lib.checks.judge.grade import grade
from course_lib.checks.judge.report import amount
from course_lib.checks.observe.cells import current_shell, someone_answers
from course_lib.exercises import find, lessons, names
from course_lib.workspace.folder import find_root
from course_lib.workspace.locks import only_one
from course_lib.workspace.sources import bound_names, global_names

PACKAGE = "my_attention"
_STAND_IN = str(Path(__file__).parent / "stand_in")  # replaces the library when a program runs
_DATED = re.compile(r"^# Full marks for (\w+) on (\d{4}-\d{2}-\d{2})$", re.MULTILINE)
_ABOUT = '''"""Your own attention library: one file for each answer that got full marks.

`from my_attention import masked_softmax` works in every notebook of the course, below its first
cell. Change the files as you like, or delete some. `check` writes this one anew.
"""
'''
_FUTURE = "from __future__ import annotations"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_STUB = "# YOUR CODE HERE"
LONGEST_CONSTANT = 2000  # characters
_loaded: dict[str, tuple[int, int]] = {}  # the files of the package as they were last imported


@dataclass(frozen=True)
class Own:
    """An answer of the library, and the day on which it got full marks ("" if not known)."""

    value: object
    day: str


class NotKept(Exception):
    """Why an answer cannot be written down, and what to do: the rest of a sentence."""


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
    source = source_with_needs(exercise, namespace, cells)
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
        _package(trial.parent, without=exercise)
        try:
            answer = vars(importlib.import_module(name)).get(exercise)
        except (Exception, SystemExit) as error:
            return f"it stops with {type(error).__name__}: {error}"
        report = grade(find(exercise), answer, seed="public", naming_seconds=0.0)
        sys.modules.pop(name, None)
    if report.outcome == "correct":
        return ""
    return f"`{exercise}` gets {report.points:g} of {amount(report.max_points, 'point')}"


def _write_start(place: Path, without: str = "") -> None:
    """Write the package's `__init__.py`, which imports every answer but `without`."""
    answers = [n for n in names() if n != without and (place / f"_{n}.py").is_file()]
    imports = "".join(f"from {PACKAGE}._{name} import {name}\n" for name in answers)
    path, text = place / "__init__.py", f"{_ABOUT}\n{imports}"
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
        return
    scratch = place / f".__init__.{os.getpid()}"
    scratch.write_text(text, encoding="utf-8", newline="\n")
    os.replace(scratch, path)


def _package(place: Path, without: str = "") -> ModuleType:
    """Import the library, again if its files have changed.

    Args:
        place: its folder.
        without: an answer to leave out, because a new one is about to replace it.

    Raises:
        NotKept: a file cannot be imported, or another package has the library's name.
        OSError: the folder cannot be written.
    """
    make_importable()
    _write_start(place, without)
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


def source_with_needs(answer: str, namespace: Mapping[str, object], cells: Sequence[str]) -> str:
    """Return the source of a file that holds `answer` and everything that it uses.

    Args:
        answer: the answer's name in the notebook.
        namespace: the notebook's variables.
        cells: the sources of the executed cells, the latest last.

    Raises:
        NotKept: something cannot be written down.
    """
    found = _Collector(answer, namespace, cells)
    found.define(answer)
    plain = sorted(line for line in found.imports if line.startswith("import "))
    others = sorted(line for line in found.imports if line.startswith("from "))
    future = [_FUTURE] if any(_FUTURE in cell for cell in cells) else []
    return "\n\n\n".join(["\n".join([*future, *plain, *others]), *found.pieces]).lstrip() + "\n"


class _Collector:
    """Collect the imports and the statements of an answer, the answer itself included."""

    def __init__(self, answer: str, namespace: Mapping[str, object], cells: Sequence[str]) -> None:
        self.answer, self.namespace = answer, namespace
        self.statements = [found for cell in reversed(cells) for found in _statements(cell)]
        self.imports: set[str] = set()
        self.pieces: list[str] = []
        self.seen = {answer}

    def define(self, name: str) -> None:
        """Add the statement that defines `name`, after everything that it uses."""
        source = self._source_of(name)
        for used in sorted(global_names(source)):
            if used not in self.seen and used in self.namespace:
                self.seen.add(used)
                self._need(used, self.namespace[used])
        self.pieces.append(source)

    def _need(self, name: str, value: object) -> None:
        exercise = self._exercise(name, value)
        if exercise == self.answer:
            return
        if exercise:
            renamed = "" if exercise == name else f" as {name}"
            if exercise in kept():
                self.imports.add(f"from {PACKAGE}._{exercise} import {exercise}{renamed}")
            elif exercise in course_lib.attention.__all__:
                self.imports.add(f"from course_lib import {exercise}{renamed}")
            else:
                why = f"it uses `{exercise}`, which is not in it yet"
                raise NotKept(f"{why}; run its check first, then this")
        elif lines := self._imports_of(name):
            self.imports |= lines
        else:
            self.define(name)

    @staticmethod
    def _exercise(name: str, value: object) -> str:
        """Return the exercise that a value is an answer to, or ""."""
        home = str(getattr(value, "__module__", ""))
        if home.startswith(("course_lib.attention.", f"{PACKAGE}.")):
            name = str(getattr(value, "__name__", name))
        elif home != "__main__":
            return ""
        return name if name in names() else ""

    def _source_of(self, name: str) -> str:
        """Return the statement that defines `name`, or an assignment of its value."""
        value = self.namespace[name]
        for node, source, bound in self.statements:
            if name in bound and _makes(node, name):
                if isinstance(node, _DEFINITIONS) or _is_function(value):
                    return source
                break
        if _is_function(value):
            why = "has no source in a cell of this notebook"
            raise NotKept(self._said(name, why, "define it there"))
        text = _written(value)
        if text is None:
            why = "is neither a function, a class nor a simple constant"
            raise NotKept(self._said(name, why, "make it inside the answer"))
        return f"{name} = {text}"

    def _said(self, name: str, why: str, remedy: str) -> str:
        if name == self.answer:
            return f"it {why}; {remedy} with `def` or `class` and check again"
        return f"it uses `{name}`, which {why}; {remedy} and check again"

    def _imports_of(self, name: str) -> set[str]:
        """Return the notebook's imports of `name`, if an import bound it last."""
        latest = next((node for node, _, bound in self.statements if name in bound), None)
        if not isinstance(latest, _IMPORTS):
            return set()
        found = [line for node, _, _ in self.statements for line in _import_lines(node, name)]
        return {*found[:1], *(line for line in found if line.startswith(f"import {name}."))}


def _statements(cell: str) -> list[tuple[ast.stmt, str, set[str]]]:
    """Return a cell's statements, last first, each with its source and the names it binds."""
    try:
        body = ast.parse(cell).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[tuple[ast.stmt, str, set[str]]] = []
    for node in body:
        match node:  # %%time and the like, as IPython writes them
            case ast.Expr(ast.Call(ast.Attribute(attr="run_cell_magic"), [_, _, ast.Constant(b)])):
                found = _statements(str(b)) + found
            case _:
                source = _segment(node, cell)
                found.insert(0, (node, source, bound_names(source)))
    return found


def _segment(node: ast.stmt, cell: str) -> str:
    """Return a statement's lines, with its decorators and the comment at its end."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    lines = cell.splitlines()[first - 1 : node.end_lineno]
    return "\n".join(line.rstrip() for line in lines if line.strip() != _STUB)


def _makes(node: ast.stmt, name: str) -> bool:
    """Tell whether a statement defines a function, a class or a value.

    `NAME = carry_on(...)` and `NAME = NAME` do not count.
    """
    if isinstance(node, _DEFINITIONS):
        return True
    made = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    called = made.func if isinstance(made, ast.Call) else None
    going_on = isinstance(called, ast.Name) and called.id == "carry_on"
    same = isinstance(made, ast.Name) and made.id == name
    return made is not None and not going_on and not same


def _is_function(value: object) -> bool:
    """Tell whether a value is a function, a class or a type, but not a module with weights."""
    if isinstance(value, type) or type(value).__module__ in ("typing", "types"):
        return True
    return callable(value) and not hasattr(value, "state_dict")


def _written(value: object) -> str | None:
    """Return a simple constant as source, or None for any other value."""
    if isinstance(value, float) and value - value != 0:  # infinite or not a number
        return f'float("{float(value)}")'
    try:
        text = repr(value)
        plain = type(ast.literal_eval(text)) is type(value) and len(text) <= LONGEST_CONSTANT
    except Exception:  # a value's own `repr` may do anything
        return None
    return text if plain else None


def _import_lines(node: ast.stmt, name: str) -> list[str]:
    """Return the parts of an import that bind `name`, except imports of local files."""
    lines = []
    for alias in node.names if isinstance(node, _IMPORTS) else []:
        module = node.module if isinstance(node, ast.ImportFrom) else alias.name
        bound = alias.asname or alias.name.partition(".")[0]
        if bound == name and module and not _is_local(module):
            suffix = f" as {alias.asname}" if alias.asname else ""
            start = f"from {module} " if isinstance(node, ast.ImportFrom) else ""
            lines.append(f"{start}import {alias.name}{suffix}")
    return lines


def _is_local(module: str) -> bool:
    """Tell whether a module is the notebook or a file beside it, so that no other place has it."""
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module.partition(".")[0] in ("course_lib", "my_attention"):
        return False
    path = Path(file).resolve()
    installed = any(part in ("site-packages", "dist-packages") for part in path.parts)
    return not installed and Path.cwd().resolve() in path.parents
