"""Tell which cells of a notebook grading uses and which are graded, and what names they define."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from nbformat import NotebookNode

from course_lib.checks.observe.cells import bound_by, parse_cell

ANSWER = "-answer"  # ends the grade_id of an exercise's answer
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def definitions(source: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Return the functions and classes that a cell defines at its top level."""
    tree = parse_cell(source)
    return {one.name: one for one in tree.body if isinstance(one, DEFINITIONS)} if tree else {}


def bound_and_used(source: str) -> Iterator[tuple[list[str], set[str]]]:
    """Yield the names that each top-level statement of a cell binds, and those that it uses."""
    tree = parse_cell(source)
    for node in tree.body if tree else ():
        yield [*bound_by(node)], {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def built_on(sources: Iterable[str], exercises: Iterable[str]) -> dict[str, list[str]]:
    """Map each name that cells bind to the exercises that it uses, directly or indirectly.

    The time grows linearly with the cells, whatever they define.
    """
    statements = [one for source in sources for one in bound_and_used(source)]
    binding: dict[str, list[list[str]]] = {}  # for each name, what the statements that use it bind
    for bound, used in statements:
        for name in used:
            binding.setdefault(name, []).append(bound)
    found: dict[str, list[str]] = {}
    for exercise in exercises:
        seen, pending = set(), [exercise]
        while pending:
            for bound in binding.get(pending.pop(), ()):
                new = set(bound) - seen
                seen |= new
                pending += new
        for name in seen:
            found.setdefault(name, []).append(exercise)
    return found


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
