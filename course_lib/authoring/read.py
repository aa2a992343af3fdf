"""Read a lesson's percent-format text into cells, and give each cell its role.

A cell's role follows from the cell itself. Any error visible without running the cells is reported
here with file, line and remedy.
"""

import ast
import re
from dataclasses import dataclass, field

from course_lib.authoring.lesson_tree import LessonTree, did_you_mean
from course_lib.authoring.paste import BEGIN, END
from course_lib.workspace.errors import BuildError

ATTENTION = "course_lib.attention"
HEADING = re.compile(r"^###+ Exercise: `([^`]*)`[ \t]*$", re.MULTILINE)
TOGETHER = re.compile(r"^###+ All together[^\n]*$", re.MULTILINE)
_MARKER = "# %%"
_OPTIONS = {"markdown": {"written", "tags"}, "code": {"tags"}}
_GRADED = {
    "exercise": "exercise",
    "check": "check cell",
    "together": "check cell of the whole lesson",
    "written": "written question",
}
_WRITTEN = '# %% [markdown] written="{}"'
_BOOKKEEPING = {"lines_to_next_cell"}  # written by jupytext for its own round trip


@dataclass(frozen=True)
class Cell:
    """One cell of the lesson text; `line` is where its source starts in the file."""

    kind: str
    source: str
    line: int
    options: dict = field(default_factory=dict)

    def at(self, offset: int) -> int:
        """Return the line in the file of source line `offset`, both counted from 1."""
        return self.line + offset - 1


def read_cells(text: str, path: str) -> list[Cell]:
    """Split percent-format `text` into cells.

    Raises:
        BuildError: the text does not parse: no cells, an unknown cell type or option, code that
            is not Python.
    """
    import jupytext

    notebook = jupytext.reads(text, fmt="py:percent")
    cells = _with_lines(notebook.cells, text.splitlines(), path)
    if not cells:
        remedy = "Start each cell with a line '# %%' or '# %% [markdown]'."
        raise BuildError(path, 1, "the lesson has no cells", remedy)
    for cell in cells:
        known = _OPTIONS.get(cell.kind, set())
        unknown = [name for name in cell.options if name not in known]
        if cell.kind not in _OPTIONS or unknown:
            value = cell.options[unknown[0]] if unknown else f"[{cell.kind}]"
            what = f"unknown cell type or option: {value!r}"
            remedy = "Write '# %%', '# %% tags=[\"demo\"]', '# %% [markdown]' or "
            remedy += "'# %% [markdown] written=\"id\"'."
            raise BuildError(path, cell.line - 1, what, remedy)
        if cell.kind == "code":
            try:
                ast.parse(cell.source)
            except SyntaxError as error:
                remedy = "A code cell holds plain Python, without magics."
                what = f"the cell does not parse: {error.msg}"
                raise BuildError(path, cell.at(error.lineno or 1), what, remedy) from error
    return [cell for cell in cells if cell.source.strip()]


def _with_lines(raw_cells, lines: list[str], path: str) -> list[Cell]:
    cells, position = [], 0
    for raw in raw_cells:
        found = (i for i in range(position, len(lines)) if lines[i].startswith(_MARKER))
        marker = next(found, None)
        if marker is None:
            remedy = f"Put '{_MARKER}' on a line of its own above it, or fix the YAML header."
            raise BuildError(path, 1, "text that belongs to no cell", remedy)
        height = raw.source.count("\n") + 1 if raw.source else 0
        blank = len(raw.source) - len(raw.source.lstrip("\n"))
        options = {k: v for k, v in raw.metadata.items() if k not in _BOOKKEEPING}
        cells.append(Cell(raw.cell_type, raw.source.strip("\n"), marker + 2 + blank, options))
        position = marker + 1 + height
    return cells


@dataclass(frozen=True)
class Part:
    """A cell with its role: text, code, setup, exercise, check, together (the check of a whole
    lesson's own answers) or written (a question).
    """

    role: str
    cell: Cell
    name: str = ""


def assign_roles(cells: list[Cell], course: LessonTree, slug: str) -> list[Part]:
    """Return the cells with their roles.

    Raises:
        BuildError: the lesson does not fit together or does not fit its exercises.
    """
    path = course.relative(course.text(slug))
    if slug not in course.lessons:
        what = f"course_lib/exercises has no lesson `{slug}`"
        remedy = f"Write course_lib/exercises/{slug[3:]}/__init__.py."
        raise BuildError(path, 1, what, remedy)
    parts = [_part(cell, path, slug) for cell in cells]
    first_code = next((i for i, part in enumerate(parts) if part.cell.kind == "code"), None)
    if first_code is None or parts[first_code].role != "code":
        line = 1 if first_code is None else parts[first_code].cell.line
        remedy = "Begin with a cell that imports what the lesson needs."
        raise BuildError(path, line, "the first code cell is not the setup cell", remedy)
    parts[first_code] = Part("setup", parts[first_code].cell)
    _check_graded(parts, course, slug, path)
    _check_headings(parts, path)
    return parts


def _part(cell: Cell, path: str, slug: str) -> Part:
    if cell.kind == "markdown":
        if "written" in cell.options:
            return Part("written", cell, str(cell.options["written"]))
        return Part("text", cell)
    body = ast.parse(cell.source).body
    for node in body:
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{ATTENTION}."):
            name, *others = (alias.name for alias in node.names)
            if others or len(body) > 1 or node.names[0].asname or name == "*":
                what = f"an import from {ATTENTION} with something beside it"
                remedy = f"An exercise cell is only 'from {ATTENTION} import NAME'; elsewhere "
                remedy += "write 'from course_lib import NAME'."
                raise BuildError(path, cell.at(node.lineno), what, remedy)
            return Part("exercise", cell, name)
    match body:
        case [ast.Expr(ast.Call(ast.Name("check"), [ast.Constant(str(name))], []))]:
            if "demo" not in cell.options.get("tags", ()):
                return Part("together" if name == slug else "check", cell, name)
    return Part("code", cell)


def _check_graded(parts: list[Part], course: LessonTree, slug: str, path: str) -> None:
    """Require the cells of LESSON, each once, and each check below the answers that it checks."""
    lesson, home = course.lessons[slug], f"course_lib/exercises/{slug[3:]}/__init__.py"
    wanted = {}  # the text of a cell, by its role and name
    for name in lesson.exercises:
        wanted["exercise", name] = f"from {ATTENTION} import {name}"
        wanted["check", name] = f'check("{name}")'
    if getattr(lesson, "integration", None):
        wanted["together", slug] = f'check("{slug}")'
    if lesson.written:
        wanted["written", lesson.written.grade_id] = _WRITTEN.format(lesson.written.grade_id)
    lines: dict[tuple[str, str], int] = {}
    for part in parts:
        if part.role not in _GRADED:
            continue
        key, line, what = (part.role, part.name), part.cell.line, _GRADED[part.role]
        if key not in wanted:
            near = did_you_mean(part.name, [name for role, name in wanted if role == part.role])
            remedy = f"{near} It needs a place in LESSON in {home}."
            raise BuildError(path, line, f"unknown {what} `{part.name}`", remedy)
        if key in lines:
            twice = f"{what} `{part.name}` appears twice, first in line {lines[key]}"
            raise BuildError(path, line, twice, "Remove one of the two cells.")
        if part.role == "check" and ("exercise", part.name) not in lines:
            remedy = f"Put a cell '{wanted['exercise', part.name]}' above it."
            raise BuildError(path, line, f"check cell without exercise `{part.name}`", remedy)
        if part.role == "written":
            rows = [row.strip() for row in part.cell.source.split("\n")]
            ends = [row for row in rows if row in (BEGIN, END)] == [BEGIN, END]
            if not ends or not any(rows[rows.index(BEGIN) + 1 : rows.index(END)]):
                rubric = f"written question `{part.name}` has no rubric"
                remedy = f"Put the answer and rubric between lines '{BEGIN}' and '{END}'."
                raise BuildError(path, line, rubric, remedy)
        lines[key] = line
    for (role, name), text in wanted.items():
        if (role, name) not in lines:
            what = f"{_GRADED[role]} `{name}` of {home} is not in the lesson"
            raise BuildError(path, parts[-1].cell.line, what, f"Add a cell '{text}'.")


def _check_headings(parts: list[Part], path: str) -> None:
    """Require a heading above each exercise's cell; the build writes the points below it."""
    announced: set[str] = set()
    for part in parts:
        if part.role == "text":
            announced.update(HEADING.findall(part.cell.source))
        elif part.role == "exercise" and part.name not in announced:
            what = f"exercise `{part.name}` has no heading above it"
            remedy = f"Write '### Exercise: `{part.name}`' in the text before the cell."
            raise BuildError(path, part.cell.line, what, remedy)
