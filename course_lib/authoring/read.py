"""Reads a lesson's percent-format text into cells that remember their line in the file."""

import ast
from dataclasses import dataclass, field

from course_lib.workspace.errors import BuildError

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
        """Returns the line in the file of source line `offset`, both counted from 1."""
        return self.line + offset - 1


def read_cells(text: str, path: str) -> list[Cell]:
    """Splits percent-format `text` into cells.

    Raises:
        BuildError: the text does not parse: no cells, an unknown cell type or option, code that
            is not Python.
    """
    import jupytext

    try:
        notebook = jupytext.reads(text, fmt="py:percent")
    except Exception as error:  # jupytext raises whatever its YAML reader raises
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
        marker = _next_marker(lines, position)
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
    """Says whether the lines before the first marker are more than a header that was read."""
    lines = [line.rstrip() for line in preface if line.strip()]
    is_header = lines[:1] == ["# ---"] and lines[-1] == "# ---" and lines.count("# ---") == 2
    return bool(lines) and not (is_header and first_cell.cell_type != "raw")


def _next_marker(lines: list[str], position: int) -> int | None:
    found = (i for i in range(position, len(lines)) if lines[i].startswith(_MARKER))
    return next(found, None)


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
