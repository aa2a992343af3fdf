"""Which exercises an answer builds on: those that its source names, itself or through others."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence

from nbformat import NotebookNode

from course_lib.checks.observe.cells import bound_by
from course_lib.grading.graded_cells import grade_id, is_check, is_run, is_theirs, parsed


class Uses:
    """What the definitions of a notebook name.

    Args:
        cells: of the notebook; only answers and the student's own cells define anything.
    """

    def __init__(self, cells: Sequence[NotebookNode]) -> None:
        self._exercises = [grade_id(cell) for cell in cells if is_check(cell)]
        theirs = (cell.source for cell in cells if is_run(cell) and is_theirs(cell))
        self._named = [one for source in theirs for one in _definitions(source)]

    def before(self, names: Collection[str], sources: Iterable[str] = ()) -> list[str]:
        """The exercises of this notebook that some answers build on, in its order.

        Args:
            names: of the answers' exercises; they are not among those that are returned.
            sources: what else is defined.
        """
        named = [*self._named, *(one for source in sources for one in _definitions(source))]
        found = set(names)
        while new := {one for name, ones in named if name in found for one in ones} - found:
            found |= new
        return [name for name in self._exercises if name in found and name not in names]


def _definitions(source: str) -> Iterator[tuple[str, set[str]]]:
    """The names that a cell binds at its top level, each with the names that it is made from."""
    tree = parsed(source)
    for node in tree.body if tree else ():
        named = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        yield from ((name, named) for name in bound_by(node))
