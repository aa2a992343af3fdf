"""Cut an exercise's solution out of course_lib.attention, ready to be a notebook's answer cell.

The module is parsed and never imported. Signature, docstring and comments stay as written, the body
is put between solution markers, and course_lib's own decorators are dropped.
"""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from course_lib.authoring.lesson_tree import did_you_mean
from course_lib.workspace.errors import BuildError

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Solution:
    """The source of one exercise: `text` with solution markers, `line` where it is defined."""

    line: int
    text: str

    @property
    def plain(self) -> str:
        """Return the source without the markers."""
        return "\n".join(x for x in self.text.split("\n") if x.strip() not in (BEGIN, END))


def solution_path(library: Path, lesson: str) -> Path:
    """Return the module that holds the solutions of lesson `NN_slug`."""
    return library / "attention" / f"_{lesson[3:]}.py"


def solution_source(name: str) -> str:
    """Return the source of exercise `name` as a student could have written it."""
    from course_lib.exercises import find

    library = Path(__file__).resolve().parents[1]
    return find_solution(name, solution_path(library, find(name).lesson)).plain


def find_solution(name: str, path: Path, shown: str | None = None) -> Solution:
    """Find function or class `name` in the module at `path` and mark its solution regions.

    Raises:
        BuildError: there is no such module or definition, or it cannot be cut into a stub.
    """
    shown = shown or str(path)
    if not path.is_file():
        remedy = f"Write the solution of `{name}` there."
        raise BuildError(shown, None, "the file does not exist", remedy)
    source = path.read_text(encoding="utf-8")
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        raise BuildError(shown, error.lineno, error.msg, "Fix the syntax.") from error
    nodes = {n.name: n for n in module.body if isinstance(n, (*_FUNCTIONS, ast.ClassDef))}
    if name not in nodes:
        what = f"no function or class `{name}` is defined here"
        public = [other for other in nodes if not other.startswith("_")]
        raise BuildError(shown, None, what, did_you_mean(name, public))
    ours = [
        node
        for node in module.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("course_lib.")
    ]
    own = {alias.asname or alias.name for node in ours for alias in node.names}
    cut = _Cut(source.splitlines(), own, shown)
    return Solution(nodes[name].lineno, cut.text(nodes[name]))


class _Cut:
    """Turn a definition into text without our decorators and with markers around bodies."""

    def __init__(self, lines: list[str], own_decorators: set[str], shown: str):
        self.lines, self.own, self.shown = lines, own_decorators, shown
        self.dropped: set[int] = set()
        self.before: dict[int, str] = {}
        self.after: dict[int, str] = {}

    def text(self, node) -> str:
        functions = [node]
        if isinstance(node, ast.ClassDef):
            functions = [n for n in node.body if isinstance(n, _FUNCTIONS)]
            self._drop_decorators(node)
        for function in functions:
            self._drop_decorators(function)
            self._mark(function)
        if not functions:
            self._fail(node, "has no method", "A class is an exercise by its methods.")
        first, parts = _first_line(node), []
        for number in range(first, (node.end_lineno or 0) + 1):
            parts += [self.before[number]] if number in self.before else []
            parts += [self.lines[number - 1]] if number not in self.dropped else []
            parts += [self.after[number]] if number in self.after else []
        text = "\n".join(parts)
        if text.count("BEGIN SOLUTION") != len(self.before) or "HIDDEN TESTS" in text:
            remedy = "Take the marker out; the build adds its own."
            raise BuildError(self.shown, first, "the source holds an nbgrader marker", remedy)
        return text

    def _drop_decorators(self, node) -> None:
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Name) and decorator.id in self.own:
                self.dropped.add(decorator.lineno)

    def _mark(self, function) -> None:
        has_docstring = ast.get_docstring(function, clean=False) is not None
        body = function.body[1:] if has_docstring else function.body
        if not body:
            self._fail(function, "has a docstring and no body", "Write its solution.")
        first = _first_line(body[0])
        if self.lines[first - 1][: body[0].col_offset].strip(" \t@"):
            self._fail(function, "has its body on the line of its signature", "Give it a line.")
        lowest = function.body[0].end_lineno + 1 if has_docstring else function.lineno + 1
        while first > lowest and self.lines[first - 2].strip()[:1] in ("", "#"):
            first -= 1
        while not self.lines[first - 1].strip():
            first += 1
        indent = " " * body[0].col_offset
        self.before[first] = indent + BEGIN
        self.after[function.end_lineno] = indent + END

    def _fail(self, node, what: str, remedy: str) -> Never:
        raise BuildError(self.shown, node.lineno, f"`{node.name}` {what}", remedy)


def _first_line(node) -> int:
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
