"""Remove the author's assertions from the release, because they would give away the answers."""

import ast
import re
from typing import Any

from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor


class StripAssertions(NbGraderPreprocessor):
    """Remove `assert` statements from cells tagged `demo`, and assignments that only they use."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Return the notebook without the author's assertions."""
        code = {i: cell.source for i, cell in enumerate(nb.cells) if cell.cell_type == "code"}
        demos = {
            i: source
            for i, source in code.items()
            if "demo" in nb.cells[i].metadata.get("tags", ())
        }
        before = set().union(*map(_names_read, code.values()))
        unread: set[str] = set()
        while True:
            kept = {i: _without_assertions(source, unread) for i, source in demos.items()}
            found = before - set().union(*map(_names_read, (code | kept).values()))
            if found == unread:
                break
            unread = found  # dropping one assignment may leave another that nothing reads
        for i, source in kept.items():
            nb.cells[i].source = source
        emptied = [i for i, source in kept.items() if demos[i] and not source]
        nb.cells = [cell for i, cell in enumerate(nb.cells) if i not in emptied]
        return nb, resources


def _names_read(source: str) -> set[str]:
    """Return the names that a cell reads, or every word in it if it does not parse."""
    try:
        nodes = ast.walk(ast.parse(source))
    except SyntaxError:
        return set(re.findall(r"\w+", source))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _without_assertions(source: str, unread: set[str]) -> str:
    """Return `source` without assertions and without assignments that bind only `unread` names."""
    try:
        tree, lines = ast.parse(source), source.split("\n")
    except SyntaxError:  # magics
        return source
    pruner = _Pruner(unread)
    pruner.visit(tree)
    for first, last in sorted(pruner.removed, reverse=True):
        del lines[first:last]
        above = lines[first - 1].strip() if first else ""
        while not above and first < len(lines) and not lines[first].strip():
            del lines[first]
    return "\n".join(lines).rstrip("\n") if tree.body else ""


class _Pruner(ast.NodeTransformer):
    """Remove statements from a tree and note their lines, as slices counted from 0."""

    def __init__(self, unread: set[str]) -> None:
        self.unread, self.removed = unread, []

    def visit_Assert(self, node: ast.Assert) -> None:
        """Remove the statement."""
        return self._remove(node)

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        """Remove the statement if it only binds names in `unread`."""
        targets = [
            name
            for target in node.targets
            for name in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
        unread = all(isinstance(node, ast.Name) and node.id in self.unread for node in targets)
        return self._remove(node) if unread else node

    def generic_visit(self, node: ast.AST) -> Any:
        """Remove a block if nothing is left in it."""
        super().generic_visit(node)
        is_empty = getattr(node, "body", None) == [] and not getattr(node, "orelse", None)
        return self._remove(node) if is_empty and not isinstance(node, ast.Module) else node

    def _remove(self, node) -> None:
        inside = range(node.lineno - 1, node.end_lineno)
        self.removed = [part for part in self.removed if part[0] not in inside]
        self.removed.append((inside.start, inside.stop))
