"""What an answer needs to be a file of its own: its source, its helpers and constants, imports.

The source is that of the cells that ran; what a name is, the notebook's variables say.
"""

from __future__ import annotations

import ast
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.workspace.sources import bound_names, global_names

FUTURE = "from __future__ import annotations"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_STUB = "# YOUR CODE HERE"
LONGEST_CONSTANT = 2000  # characters


class NotKept(Exception):
    """Why an answer cannot be written down, and what to do: the rest of a sentence."""


@dataclass
class Needs:
    """What is written into a module: statements in the order of their use, and imports by name."""

    pieces: list[tuple[str, str]] = field(default_factory=list)  # what it defines, its source
    imports: dict[str, tuple[str, ...]] = field(default_factory=dict)


def needs_of(
    answer: str,
    namespace: Mapping[str, object],
    cells: Sequence[str],
    exercise_import: Callable[[str, object], str | None],
) -> Needs:
    """What `answer`, a name in a notebook's variables, needs to be a file of its own.

    Args:
        answer: the name.
        namespace: the notebook's variables.
        cells: the sources that ran, the latest last.
        exercise_import: for a name and its value, the statement that gives another exercise that
            name, "" if none is needed, None if it is no exercise; may raise `NotKept`.

    Raises:
        NotKept: something cannot be written down.
    """
    collector = _Collector(answer, namespace, cells, exercise_import)
    collector.define(answer, namespace[answer])
    if any(FUTURE in cell for cell in cells):
        collector.found.imports["annotations"] = (FUTURE,)
    return collector.found


class _Collector:
    def __init__(self, answer, namespace, cells, exercise_import) -> None:
        self.answer, self.namespace = answer, namespace
        self.exercise_import, self.found = exercise_import, Needs()
        self.statements = [found for cell in reversed(cells) for found in _statements(cell)]
        self.seen = {answer}

    def define(self, name: str, value: object) -> None:
        """Adds the statement that made `name`, below what it uses."""
        source = self._source_of(name, value)
        for used in sorted(global_names(source)):
            self._need(used)
        self.found.pieces.append((name, source))

    def _need(self, name: str) -> None:
        if name in self.seen or name not in self.namespace:  # else Python's, or nowhere
            return
        self.seen.add(name)
        value = self.namespace[name]
        line = self.exercise_import(name, value)
        if line is not None and not line.startswith("from "):
            self.found.pieces += [(name, line)] if line else []
        elif line is not None:
            self.found.imports[name] = (line,)
        elif lines := tuple(dict.fromkeys(self._imports(name, value))):
            self.found.imports[name] = lines
        else:
            self.define(name, value)

    def _source_of(self, name: str, value: object) -> str:
        """The statement that made `name`, or a constant written out."""
        makers = [found for found in self.statements if name in found[2] and _makes(found[0], name)]
        for node, source, names in makers[:1]:
            plain = isinstance(node, ast.Assign) and names == {name} and _is_plain(node.value)
            if isinstance(node, _DEFINITIONS) or _is_function(value) or plain:
                return source
        if _is_function(value):
            why = "has no source in a cell of this notebook"
            raise NotKept(self._of(name, why, "define it there"))
        text = _written(value)
        if text is None:
            why = "is neither a function, a class nor a simple constant"
            raise NotKept(self._of(name, why, "make it inside the answer"))
        return f"{name} = {text}"

    def _of(self, name: str, why: str, remedy: str) -> str:
        if name == self.answer:
            return f"it {why}; {remedy} with `def` or `class` and check again"
        return f"it uses `{name}`, which {why}; {remedy} and check again"

    def _imports(self, name: str, value: object) -> Iterator[str]:
        """The imports that give this value this name: the notebook's own, else by where it is."""
        verified = [
            line
            for node, _, names in self.statements
            if name in names and isinstance(node, _IMPORTS)
            for line in _verified(node, name, value)
        ]
        yield from verified[:1]
        yield from (line for line in verified if line.startswith(f"import {name}."))
        found = None if verified else _home_of(value)
        if found is None:
            return
        module, attribute = found
        if attribute is None:
            package, _, last = module.rpartition(".")
            start = f"from {package} import {last}" if package else f"import {last}"
            attribute = last
        else:
            start = f"from {module} import {attribute}"
        yield start if attribute == name else f"{start} as {name}"


def _statements(cell: str) -> list[tuple[ast.stmt, str, set[str]]]:
    """The statements of a cell, the last first, with their source and the names they bind."""
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
                source = _segment(node, cell, body)
                found.insert(0, (node, source, bound_names(source)))
    return found


def _segment(node: ast.stmt, cell: str, body: list[ast.stmt]) -> str:
    """A statement with its decorators and the comment at its end."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    last = node.end_lineno or first
    alone = all(n is node or n.lineno > last or (n.end_lineno or 0) < first for n in body)
    if not alone:
        return ast.get_source_segment(cell, node) or ""
    lines = cell.splitlines()[first - 1 : last]
    return "\n".join(line.rstrip() for line in lines if line.strip() != _STUB)


def _makes(node: ast.stmt, name: str) -> bool:
    """Whether a statement makes a function or class, and is not `NAME = carry_on(...)`."""
    if isinstance(node, _DEFINITIONS):
        return True
    made = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    called = made.func if isinstance(made, ast.Call) else None
    going_on = isinstance(called, ast.Name) and called.id == "carry_on"
    same = isinstance(made, ast.Name) and made.id == name
    return made is not None and not going_on and not same


def _is_function(value: object) -> bool:
    """Whether a value is a function or a class, not a module with weights."""
    if isinstance(value, type) or type(value).__module__ in ("typing", "types"):
        return True
    return callable(value) and not hasattr(value, "state_dict")


def _is_plain(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _written(value: object) -> str | None:
    """A simple constant as source; None for what is none."""
    if isinstance(value, float) and value - value != 0:  # infinite or not a number
        return f'float("{float(value)}")'
    try:
        text = repr(value)
        plain = type(ast.literal_eval(text)) is type(value) and len(text) <= LONGEST_CONSTANT
    except Exception:  # a value's own `repr` may do anything
        return None
    return text if plain else None


def _verified(node: ast.Import | ast.ImportFrom, name: str, value: object) -> Iterator[str]:
    """The part of an import that binds `name`, if it still gives `value`."""
    for alias in node.names:
        bound = alias.asname or alias.name.partition(".")[0]
        if bound != name:
            continue
        suffix = f" as {alias.asname}" if alias.asname else ""
        if isinstance(node, ast.Import):
            module = alias.name if alias.asname else bound
            if sys.modules.get(module) is value and not _is_local(module):
                yield f"import {alias.name}{suffix}"
        elif node.module and not node.level and not _is_local(node.module):
            try:
                home = importlib.import_module(node.module)
                same = getattr(home, alias.name, None) is value
            except Exception:  # a module of the student's that is gone or broken
                continue
            if same or sys.modules.get(f"{node.module}.{alias.name}") is value:
                yield f"from {node.module} import {alias.name}{suffix}"


def _home_of(value: object) -> tuple[str, str | None] | None:
    """The shortest module that has a value, and its name there; None for what has no such home."""
    if isinstance(value, types.ModuleType):
        found = sys.modules.get(value.__name__) is value and not _is_local(value.__name__)
        return (value.__name__, None) if found else None
    home, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(home, str) or not isinstance(name, str) or _is_local(home):
        return None
    parts = home.split(".")
    for length in range(1, len(parts) + 1):
        module = sys.modules.get(".".join(parts[:length]))
        if module is not None and vars(module).get(name) is value:
            return ".".join(parts[:length]), name
    return None


def _is_local(module: str) -> bool:
    """Whether a module is the notebook itself or a file beside it, which is not there elsewhere."""
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module.partition(".")[0] in ("course_lib", "my_attention"):
        return False
    path = Path(file).resolve()
    installed = any(part in ("site-packages", "dist-packages") for part in path.parts)
    return not installed and Path.cwd().resolve() in path.parents
