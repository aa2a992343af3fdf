"""Collect the source of an answer with the imports, helpers and simple constants that it uses.

The source of a name is the latest statement in the executed cells that defines it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from course_lib.workspace.sources import bound_names, global_names

_FUTURE = "from __future__ import annotations"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_STUB = "# YOUR CODE HERE"
LONGEST_CONSTANT = 2000  # characters


class NotKept(Exception):
    """Why an answer cannot be written down, and what to do: the rest of a sentence."""


def source_with_needs(
    answer: str,
    namespace: Mapping[str, object],
    cells: Sequence[str],
    exercise_import: Callable[[str, object], str | None],
) -> str:
    """Return the source of a file that holds `answer` and everything that it uses.

    Args:
        answer: the answer's name in the notebook.
        namespace: the notebook's variables.
        cells: the sources of the executed cells, the latest last.
        exercise_import: maps a name and its value to an import statement if the value is an
            exercise, to "" if it is the answer itself, else to None. It may raise `NotKept`.

    Raises:
        NotKept: something cannot be written down.
    """
    found = _Collector(answer, namespace, cells, exercise_import)
    found.define(answer)
    plain = sorted(line for line in found.imports if line.startswith("import "))
    others = sorted(line for line in found.imports if line.startswith("from "))
    future = [_FUTURE] if any(_FUTURE in cell for cell in cells) else []
    return "\n\n\n".join(["\n".join([*future, *plain, *others]), *found.pieces]).lstrip() + "\n"


class _Collector:
    def __init__(self, answer, namespace, cells, exercise_import) -> None:
        self.answer, self.namespace, self.exercise_import = answer, namespace, exercise_import
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
        statement = self.exercise_import(name, value)
        if statement is not None:
            self.imports |= {statement} - {""}
        elif lines := self._imports_of(name):
            self.imports |= lines
        else:
            self.define(name)

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
