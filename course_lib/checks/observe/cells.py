"""Follow a notebook's cells: what ran, what stopped it, and whether a person runs them.

IPython reports each cell that ran. This module runs beside the student's code, so it imports only
the standard library, and IPython for magics.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import sys
import time
import traceback
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

from course_lib.checks.observe.error_messages import message_of

# Finds the names that a cell with a syntax error would define.
_DEFINES = re.compile(
    r"^(?:[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|(\w+)[ \t]*(?::[^=\n]*)?=(?!=))",
    re.MULTILINE,
)
_RUNS_ITS_BODY = re.compile(r"%%(?:time|timeit|capture|prun)\b")
_ANSWER = "-answer"  # ends the id of an answer's cell
_MOST_NAMES, _LONGEST = 100, 80
# Errors of Python and IPython for such source. The last two mean that it is nested too deeply.
_NOT_PYTHON = (SyntaxError, ValueError, LookupError, RecursionError, MemoryError)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass
class _Run:
    """One run of a cell: the names that it should define, with their objects before and after."""

    source: str
    cell_id: str
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    error: str = ""


class Cells:
    """The latest run of the cell that defines each name, in a notebook with these variables."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._running: _Run | None = None
        self._latest: dict[str, _Run] = {}

    def begin(self, info: Any) -> None:
        """Handle IPython's `pre_run_cell`."""
        with contextlib.suppress(Exception):
            if info.store_history:
                run = _Run(info.raw_cell, info.cell_id or "")
                names = bound_in(run.source)
                if run.cell_id.endswith(_ANSWER):
                    names.add(run.cell_id.removesuffix(_ANSWER))
                run.before = {name: self._identity(name) for name in names}
                self._running = run

    def end(self, result: Any) -> None:
        """Handle `post_run_cell`, which IPython also fires for a cell inside %%capture."""
        run = self._running
        if run is None:
            return
        with contextlib.suppress(Exception):
            error = result.error_before_exec or result.error_in_exec
            if error is not None and not run.error:
                run.error = _python_says(error, cell_body(run.source), self._namespace)
            if result.info.store_history:
                self._running = None
                run.after = {name: self._identity(name) for name in run.before}
                # If the name holds the course's version, the student has attempted nothing.
                for name in run.before:
                    if run.error or not self._is_courses(name):
                        self._latest[name] = run

    def missing(self, name: str) -> tuple[str, Collection[str]]:
        """Return what stopped the cell of an answer, and the names that it binds instead."""
        run = self._latest.get(name)
        if run is None:
            return "", ()
        # It is missing if the cell did not bind the name, and only the course has changed it since.
        untouched = self._identity(name) == run.after[name] or self._is_courses(name)
        if run.before[name] != run.after[name] or not untouched:
            return "", ()
        is_mentioned = re.search(rf"\b{re.escape(name)}\b", run.source)
        return run.error, () if run.error or is_mentioned else run.before.keys() - {name}

    def _is_courses(self, name: str) -> bool:
        return home_of(self._namespace.get(name)).startswith("course_lib.")

    def _identity(self, name: str) -> int:
        return id(self._namespace[name]) if name in self._namespace else 0


_watched: dict[int, Cells] = {}


def watch_cells(shell: Any) -> None:
    """Follow the cells that an IPython shell runs from now on. A second call has no effect."""
    if shell is None or id(shell) in _watched:
        return
    cells = _watched[id(shell)] = Cells(shell.user_ns)
    shell.events.register("pre_run_cell", cells.begin)
    shell.events.register("post_run_cell", cells.end)


def missing(name: str, namespace: dict[str, Any]) -> tuple[str, Collection[str]]:
    """Return why an answer is missing, if the notebook is watched (`Cells.missing`)."""
    found = (cells for cells in _watched.values() if cells._namespace is namespace)
    return next((cells.missing(name) for cells in found), ("", ()))


def defined_in(namespace: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the functions and classes that the notebook's cells defined, by current name."""
    found = []
    for name, value in list(namespace.items()):
        defined = type(value) is FunctionType or issubclass(type(value), type)
        if defined and home_of(value) == namespace.get("__name__") and not name.startswith("_"):
            found.append(name)
    return tuple(name[:_LONGEST] for name in found[-_MOST_NAMES:])


def parse_cell(source: str) -> ast.Module | None:
    """Parse a cell as IPython does; return None if it is not Python, with or without magics."""
    source = cell_body(source)
    # Suppress warnings about invalid escapes, because running the cell repeats them. Suppressing
    # makes Python repeat all earlier warnings, so do it only if the cell contains a backslash.
    may_warn = "\\" in source
    with warnings.catch_warnings(action="ignore") if may_warn else contextlib.nullcontext():
        for python in (lambda: source, lambda: as_python(source)):
            with contextlib.suppress(*_NOT_PYTHON):
                return ast.parse(python())
    return None


@functools.lru_cache(maxsize=100)
def as_python(source: str) -> str:
    """Return a cell's source with its magics turned into Python."""
    from IPython.core.inputtransformer2 import TransformerManager  # rarely needed

    return TransformerManager().transform_cell(source)


def cell_body(source: str) -> str:
    """Return a cell without the cell magics at its top that run the rest as Python."""
    while _RUNS_ITS_BODY.match(source.lstrip()):
        source = source.lstrip().partition("\n")[2]
    return source


def bound_in(source: str) -> set[str]:
    """Return the names that a cell binds or would bind, in any kind of statement."""
    tree = parse_cell(source)
    if tree is None:
        return {name or assigned for name, assigned in _DEFINES.findall(source)}
    return set(bound_by(tree))


def bound_by(tree: ast.AST) -> Iterator[str]:
    """Yield the names that statements bind or delete in their own scope, not in nested ones."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, (*_SCOPES, ast.ExceptHandler, ast.MatchAs)) and node.name:
            yield node.name
        if not isinstance(node, (*_SCOPES, ast.Lambda, ast.comprehension)):
            pending.extend(ast.iter_child_nodes(node))


def _python_says(error: BaseException, source: str, namespace: dict[str, Any]) -> str:
    """Return Python's description of what stopped a cell: the error's type, message and line."""
    number, message = None, message_of(error)
    trace = traceback.walk_tb(error.__traceback__)
    in_cell = [(frame.f_code.co_name, n) for frame, n in trace if frame.f_globals is namespace]
    if isinstance(error, SyntaxError) and not in_cell:  # about the cell's own text
        number, message = error.lineno, str(error.msg)
    for name, line in in_cell:
        if name == "<module>":
            number = line
    kind = type(error).__name__
    if kind.startswith("_") and isinstance(error, SyntaxError):  # 3.13's _IncompleteInputError
        kind = "SyntaxError"
    said = " ".join(f"{kind}: {message}".split()).removesuffix(": ")
    lines = source.splitlines()
    if number is not None and 0 < number <= len(lines):
        said = f"{said[:300]} (line {number}: `{lines[number - 1].strip()[:120]}`)"
    return said[:500]


def home_of(value: Any) -> str:
    """Return the name of the module that an object claims to come from."""
    try:
        return str(getattr(value, "__module__", ""))
    except Exception:  # the attribute may raise
        return ""


def current_shell() -> Any:
    """Return IPython's shell, or None outside of IPython, without importing IPython."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def someone_answers(shell: Any) -> bool:
    """Return whether the running cell was sent by a front end, not by a batch runner."""
    # A console has no kernel, and the one of a guest (sandbox/inside/shell.py) gets no messages.
    get_parent = getattr(getattr(shell, "kernel", None), "get_parent", lambda channel: {})
    return bool(get_parent("shell").get("content", {}).get("allow_stdin", False))


def keep_in_view(shell: Any) -> str:
    """Return a script that scrolls its output into view until the reader does something.

    It is empty unless a front end sent the cell.
    """
    if not someone_answers(shell):
        return ""
    path = Path(__file__).with_name("keep_in_view.js")
    script = path.read_text(encoding="utf-8").partition("\n\n")[2]
    return f"<script>(() => {{\n{script.replace('NOW', str(int(time.time())))}}})();</script>"
