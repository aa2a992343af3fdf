"""Cut an exercise's solution out of course_lib.attention, ready to be a notebook's answer cell.

The module is parsed and never imported. Signature, docstring and comments stay as written, the body
is put between solution markers, and course_lib's own decorators are dropped.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

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
        BuildError: there is no such definition, it has no body, or the module does not parse.
    """
    shown = shown or str(path)
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
    return Solution(nodes[name].lineno, _marked(nodes[name], source.splitlines(), own, shown))


def _marked(node, lines: list[str], own: set[str], shown: str) -> str:
    """Return a definition without our `own` decorators and with markers around bodies."""
    functions: list = [node]
    if isinstance(node, ast.ClassDef):
        functions = [n for n in node.body if isinstance(n, _FUNCTIONS)]
    decorators = [one for each in (node, *functions) for one in each.decorator_list]
    dropped = {d.lineno for d in decorators if isinstance(d, ast.Name) and d.id in own}
    before, after = {}, {}
    for function in functions:
        has_docstring = ast.get_docstring(function, clean=False) is not None
        body = function.body[1:] if has_docstring else function.body
        if not body:
            what = f"`{function.name}` has a docstring and no body"
            raise BuildError(shown, function.lineno, what, "Write its solution.")
        first = _first_line(body[0])
        lowest = function.body[0].end_lineno + 1 if has_docstring else function.lineno + 1
        while first > lowest and lines[first - 2].strip()[:1] in ("", "#"):
            first -= 1
        while not lines[first - 1].strip():
            first += 1
        indent = " " * body[0].col_offset
        before[first], after[function.end_lineno] = indent + BEGIN, indent + END
    parts = []
    for number in range(_first_line(node), (node.end_lineno or 0) + 1):
        parts += [before[number]] if number in before else []
        parts += [lines[number - 1]] if number not in dropped else []
        parts += [after[number]] if number in after else []
    return "\n".join(parts)


def _first_line(node) -> int:
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
