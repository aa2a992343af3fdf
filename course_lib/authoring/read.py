"""Read a lesson's percent-format text into cells, and give each cell its role.

A cell's role is read off the cell itself. Everything that can be wrong without running anything is
reported here with file, line and remedy.
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
_NBGRADER = re.compile(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS|MARK SCHEME)|AUTOTEST")
_MARKER = "# %%"
_OPTIONS = {"markdown": {"written", "tags"}, "code": {"tags"}}
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

    try:
        notebook = jupytext.reads(text, fmt="py:percent")
    except Exception as error:  # jupytext passes on any error of its YAML reader
        what = f"not a percent-format lesson: {str(error).splitlines()[0].rstrip('.')}"
        raise BuildError(path, 1, what, "Fix the header at the top of the file.") from error
    cells = _with_lines(notebook.cells, text.splitlines(), path)
    if not cells:
        remedy = "Start each cell with a line '# %%' or '# %% [markdown]'."
        raise BuildError(path, 1, "the lesson has no cells", remedy)
    for cell in cells:
        _check_cell(cell, path)
    return [cell for cell in cells if cell.source.strip()]


def _with_lines(raw_cells, lines: list[str], path: str) -> list[Cell]:
    cells, position = [], 0
    for raw in raw_cells:
        found = (i for i in range(position, len(lines)) if lines[i].startswith(_MARKER))
        marker = next(found, None)
        if marker is None or (not cells and _stray(lines[:marker], raw)):
            remedy = f"Put '{_MARKER}' on a line of its own above it, or fix the YAML header."
            raise BuildError(path, 1 + position, "text that belongs to no cell", remedy)
        height = raw.source.count("\n") + 1 if raw.source else 0
        blank = len(raw.source) - len(raw.source.lstrip("\n"))
        options = {k: v for k, v in raw.metadata.items() if k not in _BOOKKEEPING}
        cells.append(Cell(raw.cell_type, raw.source.strip("\n"), marker + 2 + blank, options))
        position = marker + 1 + height
    return cells


def _stray(preface: list[str], first_cell) -> bool:
    """Tell whether the lines before the first marker hold more than a YAML header."""
    lines = [line.rstrip() for line in preface if line.strip()]
    is_header = lines[:1] == ["# ---"] and lines[-1] == "# ---" and lines.count("# ---") == 2
    return bool(lines) and not (is_header and first_cell.cell_type != "raw")


def _check_cell(cell: Cell, path: str) -> None:
    known = _OPTIONS.get(cell.kind, set())
    unknown = [name for name in cell.options if name not in known]
    if cell.kind not in _OPTIONS or unknown:
        value = cell.options[unknown[0]] if unknown else f"[{cell.kind}]"
        what = f"unknown cell type or option: {value!r}"
        remedy = "Write '# %%', '# %% tags=[\"demo\"]', '# %% [markdown]' or "
        raise BuildError(path, cell.line - 1, what, remedy + "'# %% [markdown] written=\"id\"'.")
    if cell.kind == "code":
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            remedy = "A code cell holds plain Python, without magics."
            what = f"the cell does not parse: {error.msg}"
            raise BuildError(path, cell.at(error.lineno or 1), what, remedy) from error


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
    _check_markers(parts, path)
    first_code = next((i for i, part in enumerate(parts) if part.cell.kind == "code"), None)
    if first_code is None or parts[first_code].role != "code":
        line = 1 if first_code is None else parts[first_code].cell.line
        remedy = "Begin with a cell that imports what the lesson needs."
        raise BuildError(path, line, "the first code cell is not the setup cell", remedy)
    parts[first_code] = Part("setup", parts[first_code].cell)
    _check_exercises(parts, course, slug, path)
    _check_together(parts, course.lessons[slug], slug, path)
    _check_headings(parts, path)
    _check_written(parts, course.lessons[slug].written, slug, path)
    return parts


def _part(cell: Cell, path: str, slug: str) -> Part:
    if cell.kind == "markdown":
        if "written" in cell.options:
            return Part("written", cell, str(cell.options["written"]))
        return Part("text", cell)
    body = ast.parse(cell.source).body
    imported = [
        n
        for n in body
        if isinstance(n, ast.ImportFrom) and f"{n.module}.".startswith(f"{ATTENTION}.")
    ]
    if imported:
        node = imported[0]
        if (
            len(body) > 1
            or len(node.names) > 1
            or node.names[0].asname
            or node.names[0].name == "*"
        ):
            remedy = f"An exercise cell is only 'from {ATTENTION} import NAME'; elsewhere write "
            what = f"an import from {ATTENTION} with something beside it"
            raise BuildError(
                path, cell.at(node.lineno), what, remedy + "'from course_lib import NAME'."
            )
        return Part("exercise", cell, node.names[0].name)
    if len(body) == 1 and "demo" not in cell.options.get("tags", ()):
        name = _checked_name(body[0])
        if name is not None:
            return Part("together" if name == slug else "check", cell, name)
    return Part("code", cell)


def _checked_name(statement: ast.stmt) -> str | None:
    """Return X if the statement is `check("X")`."""
    match statement:
        case ast.Expr(ast.Call(ast.Name("check"), [ast.Constant(str(name))], [])):
            return name
    return None


def _check_exercises(parts: list[Part], course: LessonTree, slug: str, path: str) -> None:
    seen: dict[tuple[str, str], int] = {}
    for part in parts:
        if part.role not in ("exercise", "check"):
            continue
        line, key = part.cell.line, (part.role, part.name)
        what = "exercise" if part.role == "exercise" else "check cell"
        _check_known(part, course, slug, path)
        if key in seen:
            twice = f"{what} `{part.name}` appears twice, first in line {seen[key]}"
            raise BuildError(path, line, twice, "Remove one of the two cells.")
        if part.role == "check" and ("exercise", part.name) not in seen:
            remedy = f"Put a cell 'from {ATTENTION} import {part.name}' above it."
            raise BuildError(path, line, f"check cell without exercise `{part.name}`", remedy)
        seen[key] = line
    for (role, name), line in seen.items():
        if role == "exercise" and ("check", name) not in seen:
            remedy = f"Put a cell 'check(\"{name}\")' below it."
            raise BuildError(path, line, f"exercise `{name}` has no check cell", remedy)
    for name in course.lessons[slug].exercises:
        if ("exercise", name) not in seen:
            what = f"exercise `{name}` is in course_lib/exercises and not in the lesson"
            remedy = f"Add its heading, 'from {ATTENTION} import {name}' and 'check(\"{name}\")'."
            raise BuildError(path, parts[-1].cell.line, what, remedy)


def _check_together(parts: list[Part], lesson, slug: str, path: str) -> None:
    """Require one check of the lesson's answers together, below all of their own checks."""
    found = [part for part in parts if part.role == "together"]
    wanted = 1 if getattr(lesson, "integration", None) else 0
    home = f"course_lib/exercises/{slug[3:]}/__init__.py"
    if len(found) > wanted:
        what = f"check cell of the whole lesson `{slug}` that has no integration"
        remedy = f"Remove it, or add an Integration to LESSON in {home}."
        raise BuildError(path, found[-1].cell.line, what, remedy)
    if len(found) < wanted:
        remedy = f"Add a cell 'check(\"{slug}\")' below the last exercise."
        what = f"the integration of {home} is not in the lesson"
        raise BuildError(path, parts[-1].cell.line, what, remedy)
    last = max((i for i, part in enumerate(parts) if part.role == "check"), default=-1)
    if found and parts.index(found[0]) < last:
        what = "the whole lesson is checked above one of its exercises"
        raise BuildError(path, found[0].cell.line, what, "Move the cell below the last check.")


def _check_markers(parts: list[Part], path: str) -> None:
    for part in parts:
        for offset, line in enumerate(part.cell.source.split("\n"), start=1):
            found = _NBGRADER.search(line)
            if found and (part.role != "written" or "SOLUTION" not in found[0]):
                what = f"'{found[0]}' outside a written question"
                remedy = "Take it out; the build marks the solutions of exercises itself."
                raise BuildError(path, part.cell.at(offset), what, remedy)


def _check_known(part: Part, course: LessonTree, slug: str, path: str) -> None:
    if part.name not in course.exercises:
        what = f"unknown exercise `{part.name}`"
        known = course.lessons[slug].exercises
        remedy = f"{did_you_mean(part.name, known)} A new one needs a file "
        remedy += f"course_lib/exercises/{slug[3:]}/{part.name}.py and a place in LESSON beside it."
        raise BuildError(path, part.cell.line, what, remedy)
    exercise = course.exercises[part.name]
    if exercise.lesson != slug:
        what = f"exercise `{part.name}` belongs to lesson {exercise.lesson}"
        remedy = f"Write 'from course_lib import {part.name}' to use it here."
        raise BuildError(path, part.cell.line, what, remedy)
    if not exercise.points or not exercise.points > 0:
        what = f"exercise `{part.name}` has no points"
        remedy = f"Set them in course_lib/exercises/{slug[3:]}/{part.name}.py."
        raise BuildError(path, part.cell.line, what, remedy)


def _check_headings(parts: list[Part], path: str) -> None:
    """Require a heading above each exercise's cell; the build writes the points below it."""
    heading_lines: dict[str, int] = {}
    for part in parts:
        if part.role == "text":
            for found in HEADING.finditer(part.cell.source):
                line = part.cell.at(part.cell.source[: found.start()].count("\n") + 1)
                heading_lines.setdefault(found[1], line)
        elif part.role == "exercise" and part.name not in heading_lines:
            what = f"exercise `{part.name}` has no heading above it"
            remedy = f"Write '### Exercise: `{part.name}`' in the text before the cell."
            raise BuildError(path, part.cell.line, what, remedy)
    names = [part.name for part in parts if part.role == "exercise"]
    for name, line in heading_lines.items():
        if name not in names:
            what = f"heading of exercise `{name}` without its exercise cell"
            raise BuildError(path, line, what, did_you_mean(name, names))


def _check_written(parts: list[Part], written, slug: str, path: str) -> None:
    found = [part for part in parts if part.role == "written"]
    home = f"course_lib/exercises/{slug[3:]}/__init__.py"
    expected = written.grade_id if written else None
    for part in found:
        if part.name != expected or not written.points > 0:
            what = f"written question `{part.name}` has no points"
            remedy = f"Set them in {home}"
            remedy += f", which has `{expected}`." if expected else "."
            raise BuildError(path, part.cell.line, what, remedy)
        _check_rubric(part, path)
    if len(found) > 1:
        what = f"written question `{expected}` appears twice"
        raise BuildError(path, found[1].cell.line, what, "Remove one of the two cells.")
    if expected and not found:
        what = f"written question `{expected}` is in course_lib/exercises and not in the lesson"
        remedy = f"Add a cell '# %% [markdown] written=\"{expected}\"'."
        raise BuildError(path, parts[-1].cell.line, what, remedy)


def _check_rubric(part: Part, path: str) -> None:
    lines = [line.strip() for line in part.cell.source.split("\n")]
    marks = [line for line in lines if line in (BEGIN, END)]
    inside = lines[lines.index(BEGIN) + 1 : lines.index(END)] if marks == [BEGIN, END] else []
    if not any(inside):
        what = f"written question `{part.name}` has no rubric"
        remedy = f"Put the answer and rubric between lines '{BEGIN}' and '{END}'."
        raise BuildError(path, part.cell.line, what, remedy)
