"""Tell which cells of a notebook grading uses and which are graded, and what names they define."""

import ast
import re
from collections.abc import Iterator, Mapping

from nbformat import NotebookNode

from course_lib.checks.observe.cells import bound_by, parse_cell

ANSWER = "-answer"  # ends the grade_id of an exercise's answer
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def definitions(source: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Return the functions and classes that a cell defines at its top level."""
    tree = parse_cell(source)
    return {one.name: one for one in tree.body if isinstance(one, DEFINITIONS)} if tree else {}


def grade_id(cell: Mapping) -> str:
    """Return nbgrader's name of a cell, or an empty string if it has none."""
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")


def is_check(cell: Mapping) -> bool:
    """Return whether a cell is graded by machine: code, graded, not an answer."""
    about = cell["metadata"].get("nbgrader", {})
    return cell["cell_type"] == "code" and bool(about.get("grade")) and not about.get("solution")


def is_plain_test(cell: Mapping) -> bool:
    """Return whether a machine-graded cell is an ordinary nbgrader test: no call of `check`."""
    source = cell.get("source")  # may be empty if all of it is hidden
    return source is not None and is_check(cell) and not re.search(r"\bcheck\(", source)


def is_theirs(cell: Mapping) -> bool:
    """Return whether a student wrote a cell of a rebuilt notebook: an answer or an extra cell."""
    about = cell["metadata"]
    return bool(about.get("nbgrader", {}).get("solution") or about.get("course", {}).get("own"))


def is_used(cell: Mapping) -> bool:
    """Return whether grading runs or judges a cell: code, neither a demo nor only comments."""
    if cell["cell_type"] != "code" or "demo" in cell["metadata"].get("tags", []):
        return False
    lines = (line.strip() for line in cell.get("source", "").splitlines())
    return is_theirs(cell) or is_check(cell) or any(line and line[0] != "#" for line in lines)


def check_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells of a notebook that are graded by machine, in its order."""
    return [cell for cell in notebook["cells"] if is_check(cell)]


def names_used(source: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the names that a cell binds at its top level, each with the names it depends on."""
    tree = parse_cell(source)
    for node in tree.body if tree else ():
        named = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        yield from ((name, named) for name in bound_by(node))
