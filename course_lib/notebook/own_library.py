"""A student's own library: the package `my_attention`, one file for each answer with full marks.

The files are ordinary Python and belong to the student. Each holds an answer's source with the
imports, helpers and simple constants that it uses. The source of a name is the latest statement in
the executed cells that defines it. An answer is first written to a trial file, imported from there
and checked once more. Only then does it replace the previous file. Errors here never cost points.
"""

import ast
import contextlib
import importlib
import importlib.util
import io
import math
import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from types import ModuleType

import course_lib
from course_lib.checks.judge.outcomes import amount
from course_lib.checks.observe.cells import current_shell, someone_answers
from course_lib.exercises import find, lessons, names
from course_lib.workspace.files import write_atomically
from course_lib.workspace.folder import find_root
from course_lib.workspace.locks import only_one
from course_lib.workspace.sources import bound_names, global_names

PACKAGE = "my_attention"
_imported: dict[str, str] = {}  # the answers of the package as it was last imported
_STAND_IN = str(Path(__file__).parent / "stand_in")  # replaces the library when a program runs
_DATED = re.compile(r"^# Full marks for (\w+) on (\d{4}-\d{2}-\d{2})$", re.MULTILINE)
_ABOUT = '''"""Your own attention library: one file for each answer that got full marks.

`from my_attention import masked_softmax` works in every notebook of the course, below its first
cell. Change the files as you like, or delete some. `check` writes this one anew.
"""
'''
_FUTURE = "from __future__ import annotations"
_STUB = "# YOUR CODE HERE"
_CARRIED_ON = re.compile(r"[\w, ]+=\s*carry_on\(")
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_LONGEST = 2000  # characters of a constant
_SHARED = {"site-packages", "dist-packages", "course_lib", PACKAGE}  # not local files


class NotKept(Exception):
    """The answer cannot be saved. The message ends a sentence with the reason and the remedy."""


def folder() -> Path:
    """Return the library's folder. It is never inside a lesson's folder, which is submitted.

    The library is in the course's folder. Without a course's folder, as with lessons fetched by
    nbgrader, it is beside the lessons' folders, or else beside the notebook. If that place is not
    writable, it is in the student's Jupyter data.
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


def own(exercise: str) -> object | None:
    """Return the library's answer to an exercise, or None if it has none or a program runs."""
    if not in_use() or exercise not in kept():
        return None
    try:
        return getattr(_package(folder()), exercise, None)
    except (NotKept, OSError) as reason:
        print(f"{PACKAGE}: {reason}. Until then the course's versions are used")
        return None


def kept() -> dict[str, str]:
    """Return the exercises in the library, each with its day or "", without importing them."""
    texts = _texts(folder())
    return {name: dict(_DATED.findall(text)).get(name, "") for name, text in texts.items()}


def shown_day(day: str) -> str:
    """Format a day for display."""
    return f"{date.fromisoformat(day):%d %b %Y}" if day else "no date"


def keep_answer(exercise: str, value: object, namespace: Mapping[str, object]) -> str:
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
        with only_one(place / ".lock"):
            changed = _write(exercise, namespace, place)
    except NotKept as reason:
        return f"{exercise} is not kept in your library: {reason}."
    except OSError as error:
        why = error.strerror or type(error).__name__
        return f"{exercise} is not kept in your library: {place} cannot be written ({why})."
    except Exception as error:
        return f"{exercise} is not kept in your library ({type(error).__name__}: {error})."
    return f"{exercise}: kept in your own library, {PACKAGE}/_{exercise}.py" if changed else ""


def _texts(place: Path) -> dict[str, str]:
    """Return the text of each answer's file, in the order of the course."""
    found = {}
    for name in names(removed=True):
        with contextlib.suppress(OSError):
            found[name] = (place / f"_{name}.py").read_text(encoding="utf-8", errors="replace")
    return found


def _write(exercise: str, namespace: Mapping[str, object], place: Path) -> bool:
    """Write an answer, check what was written, and return whether that changed the library.

    Raises:
        NotKept: the answer cannot be written down, or does not get full marks in its file.
        OSError: the folder cannot be written.
    """
    cells = [str(cell) for cell in current_shell().history_manager.input_hist_parsed]
    found = _Collector(exercise, namespace, cells)
    found.define(exercise)
    future = [_FUTURE] if any(_FUTURE in cell for cell in cells) else []
    imports = sorted(found.imports, key=lambda line: (line.startswith("from "), line))
    head = "\n".join([*future, *imports])
    source = "\n\n\n".join([head, *found.pieces]).lstrip() + "\n"
    path, trial = place / f"_{exercise}.py", place / f"_trial_{os.getpid()}.py"
    if _DATED.sub("", _texts(place).get(exercise, "")).strip() == source.strip():
        return False
    try:
        text = f"# Full marks for {exercise} on {date.today().isoformat()}\n{source}"
        trial.write_text(text, encoding="utf-8", newline="\n")
        _check_again(exercise, trial)
        if path.is_file():
            shutil.copyfile(path, path.with_suffix(".before.py"))
        os.replace(trial, path)
    finally:
        trial.unlink(missing_ok=True)
        # Python trusts a compiled file if size and time in seconds of the source match.
        shutil.rmtree(place / "__pycache__", ignore_errors=True)
        _write_start(place)
        _forget()
    return True


def _check_again(exercise: str, trial: Path) -> None:
    """Raise NotKept unless the answer in a file gets full marks."""
    from course_lib.checks.judge.verdict import judge_answer  # imports torch

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        _package(trial.parent, without=exercise)
        try:
            answer = vars(importlib.import_module(f"{PACKAGE}.{trial.stem}")).get(exercise)
            report = judge_answer(find(exercise), answer, seed="public")
            points = f"{report.points:g} of {amount(report.max_points, 'point')}"
            fault = "" if report.outcome == "correct" else f"`{exercise}` gets {points}"
        except (Exception, SystemExit) as error:
            fault = f"it stops with {type(error).__name__}: {error}"
    if fault:
        remedy = "let it use only its arguments, imports and what this notebook defines"
        raise NotKept(f"in a file of its own {fault}; {remedy}, and check again")


def _write_start(place: Path, without: str = "") -> None:
    """Write the package's `__init__.py`, which imports every answer except `without`."""
    answers = [name for name in _texts(place) if name != without]
    text = "\n".join([_ABOUT, *(f"from {PACKAGE}._{name} import {name}" for name in answers), ""])
    path = place / "__init__.py"
    if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
        write_atomically(path, text)


def _package(place: Path, without: str = "") -> ModuleType:
    """Import the library without one answer, or reload it if files changed.

    Raises:
        NotKept: a file cannot be imported, or another package has the library's name.
        OSError: the folder cannot be written.
    """
    make_importable()
    _write_start(place, without)
    importlib.invalidate_caches()
    found = str(getattr(importlib.util.find_spec(PACKAGE), "origin", ""))
    if Path(found).parent != place:
        raise NotKept(f"{found} has this name too and hides {place}; rename it")
    texts = _texts(place)
    if PACKAGE not in sys.modules or _imported != texts:
        _forget()
    try:
        package = importlib.import_module(PACKAGE)
    except (Exception, SystemExit) as error:
        places = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
        if isinstance(error, SyntaxError):
            places.append((str(error.filename), error.lineno))
        file, line = [at for at in places if Path(at[0]).parent == place][-1]
        said = " ".join(str(getattr(error, "msg", error)).split())[:200]
        stops = f"stops with {type(error).__name__}: {said}; fix or delete that file"
        raise NotKept(f"{Path(file).name}, line {line}, {stops}") from None
    _imported.clear()
    _imported.update(texts)
    return package


def _forget() -> None:
    """Make the next import of the library read its files again."""
    for name in [one for one in sys.modules if one.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


class _Collector:
    """Collect the imports and the statements of an answer, the answer itself included."""

    def __init__(self, answer: str, namespace: Mapping[str, object], cells: Sequence[str]) -> None:
        self.answer, self.namespace = answer, namespace
        self.statements = [found for cell in cells for found in _statements(cell)][::-1]
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
        home = str(getattr(value, "__module__", ""))
        elsewhere = home.startswith(("course_lib.attention.", f"{PACKAGE}."))
        exercise = str(getattr(value, "__name__", name)) if elsewhere else name
        is_answer = (elsewhere or home == "__main__") and exercise in names(removed=True)
        if is_answer and exercise != self.answer:
            renamed = "" if exercise == name else f" as {name}"
            if exercise in kept():
                self.imports.add(f"from {PACKAGE}._{exercise} import {exercise}{renamed}")
            elif hasattr(course_lib.attention, exercise):
                self.imports.add(f"from course_lib import {exercise}{renamed}")
            else:
                raise NotKept(f"it uses `{exercise}`, which is not in it yet; run its check first")
        elif line := self._import_of(name):
            self.imports.add(line)
        else:
            self.define(name)

    def _source_of(self, name: str) -> str:
        """Return the statement that defines `name`, or an assignment of its value."""
        value = self.namespace[name]
        is_code = isinstance(value, type) or type(value).__module__ in ("typing", "types")
        if is_code or (callable(value) and not hasattr(value, "state_dict")):
            for node, source, bound in self.statements:
                if name in bound and isinstance(node, _DEFINES) and not _CARRIED_ON.match(source):
                    return source
            why = "has no source in a cell of this notebook; define it there with `def` or `class`"
            raise NotKept(f"`{name}` {why} and check again")
        if isinstance(value, float) and not math.isfinite(value):
            return f'{name} = float("{float(value)}")'
        with contextlib.suppress(Exception):  # a value's own `repr` may do anything
            text = repr(value)
            if len(text) <= _LONGEST and type(ast.literal_eval(text)) is type(value):
                return f"{name} = {text}"
        why = "is neither a function, a class nor a simple constant; make it inside the answer"
        raise NotKept(f"it uses `{name}`, which {why} and check again")

    def _import_of(self, name: str) -> str:
        """Return the last import of `name`, or "" if there is none or it imports a local file."""
        node = next((node for node, _, bound in self.statements if name in bound), None)
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else []:
            module = getattr(node, "module", "")
            bound = alias.asname or alias.name.partition(".")[0]
            file = getattr(sys.modules.get(module or alias.name), "__file__", None)
            path = Path(file or sys.prefix).resolve()
            is_local = Path.cwd() in path.parents and _SHARED.isdisjoint(path.parts)
            if bound == name and not is_local:
                start = f"from {module} " if module else ""
                return f"{start}import {ast.unparse(alias)}"
        return ""


def _statements(cell: str) -> Iterator[tuple[ast.stmt, str, set[str]]]:
    """Yield a cell's statements, each with its source and the names it binds."""
    try:
        body = ast.parse(cell).body
    except (SyntaxError, ValueError):
        return
    for node in body:
        match node:  # cell magics such as %%time, as IPython rewrites them
            case ast.Expr(ast.Call(ast.Attribute(attr="run_cell_magic"), [_, _, ast.Constant(b)])):
                yield from _statements(str(b))
            case _:
                first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
                lines = cell.splitlines()[first - 1 : node.end_lineno]
                source = "\n".join(line for line in lines if line.strip() != _STUB)
                yield node, source, bound_names(source)
