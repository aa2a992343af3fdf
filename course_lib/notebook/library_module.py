"""The text of one module of a student's library: read, a new answer put in, written again.

What the student wrote into it by hand stays where it was, comments too.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from course_lib.workspace.sources import bound_names, global_names

DATED = re.compile(r"^# (\w+): full marks on (\d{4}-\d{2}-\d{2})$", re.MULTILINE)
WIDTH = 100


@dataclass(frozen=True)
class Piece:
    """A statement with the comments above it; an answer's last comment has its date."""

    names: frozenset[str]
    text: str

    @property
    def code(self) -> str:
        """The text without the line of its date."""
        return DATED.sub("", self.text).strip()


@dataclass
class Module:
    """A module's docstring, its imports by the name they bind, and its other statements."""

    docstring: str
    imports: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)

    def dates(self) -> dict[str, str]:
        """The day on which each answer got full marks."""
        return {name: day for piece in self.pieces for name, day in DATED.findall(piece.text)}

    def defined(self) -> set[str]:
        """The names that its statements bind, imports left out."""
        return {name for piece in self.pieces for name in piece.names}

    def with_answer(
        self,
        answer: str,
        pieces: Sequence[tuple[str, str]],
        imports: dict[str, tuple[str, ...]],
        day: str,
    ) -> Module:
        """The module with an answer, and what it needs, in the place of its earlier version."""
        new = [Piece(frozenset({name}), source) for name, source in pieces]
        new = [self._dated(piece, answer, day) if answer in piece.names else piece for piece in new]
        names = {name for piece in new for name in piece.names}
        old = {piece.code: piece for piece in self.pieces}
        new = [old.get(piece.code, piece) for piece in new]
        before = self._needed_by(answer)
        kept: list[Piece] = []
        for piece in self.pieces:
            if answer in piece.names:
                kept += [one for one in new if one not in self.pieces or one is piece]
            elif piece in new or not piece.names & names:
                kept.append(piece)
        kept += [piece for piece in new if piece not in kept]
        module = Module(self.docstring, {**self.imports, **imports}, kept)
        return module._without_leftovers(before)._ordered()

    def _dated(self, piece: Piece, answer: str, day: str) -> Piece:
        """An answer below its date, and below what the student wrote above its earlier version."""
        earlier = next((one.text for one in self.pieces if answer in one.names), "")
        comments = "".join(
            f"{line}\n"
            for line in earlier.partition(f"# {answer}: full marks on ")[0].splitlines()
            if line.startswith("#")
        )
        return replace(piece, text=f"{comments}# {answer}: full marks on {day}\n{piece.text}")

    def _needed_by(self, answer: str) -> set[str]:
        """What an answer uses, directly or by way of others."""
        needed, todo = set(), {answer}
        while todo:
            name = todo.pop()
            for piece in self.pieces:
                if name in piece.names:
                    todo |= global_names(piece.text) - needed - {answer}
            needed.add(name)
        return needed - {answer}

    def _without_leftovers(self, before: set[str]) -> Module:
        """Without the imports that nothing uses, nor the helpers that only the old answer used."""
        pieces = list(self.pieces)
        while True:
            used = set().union(*(global_names(piece.text) for piece in pieces))
            rest = [
                piece
                for piece in pieces
                if DATED.search(piece.text) or piece.names & used or not piece.names & before
            ]
            if len(rest) == len(pieces):
                break
            pieces = rest
        own = {name for piece in pieces for name in piece.names}
        imports = {
            name: lines
            for name, lines in self.imports.items()
            if (name in used and name not in own) or lines[0].startswith("from __future__")
        }
        return Module(self.docstring, imports, pieces)

    def _ordered(self) -> Module:
        """Each statement below those that it uses, otherwise as they were."""
        done: list[Piece] = []
        seen: set[Piece] = set()

        def put(piece: Piece) -> None:
            if piece in seen:
                return
            seen.add(piece)
            used = global_names(piece.text)
            for other in self.pieces:
                if other.names & used:
                    put(other)
            done.append(piece)

        for piece in self.pieces:
            put(piece)
        return Module(self.docstring, self.imports, done)

    def text(self) -> str:
        """The module as Python."""
        plain = f'"""{self.docstring}"""'
        quoted = repr(self.docstring) if re.search(r'\\|"""', self.docstring) else plain
        head = [quoted] if self.docstring else []
        head += _blocks(line for lines in self.imports.values() for line in lines)
        text = "\n\n".join(head)
        calm = True  # whether one blank line is enough
        for piece in self.pieces:
            defines = re.search(r"^(?:async def|def|class|@)", piece.text, re.MULTILINE)
            apart = bool(defines or DATED.search(piece.text))
            text += ("\n\n\n" if apart or not calm else "\n\n") + piece.text
            calm = not apart
        return text.lstrip("\n") + "\n"


def parsed(text: str) -> Module:
    """A module from its text.

    Raises:
        SyntaxError: it is none.
        ValueError: it holds a null byte.
    """
    tree, lines = ast.parse(text), text.splitlines()
    module = Module(ast.get_docstring(tree, clean=False) or "")
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    end = (tree.body[0].end_lineno or 0) if body is not tree.body else 0
    waiting = ""  # comments among the imports go to the next statement
    for node in body:
        last = node.end_lineno or node.lineno
        if node.lineno <= end and module.pieces:  # `a = 1; b = 2`
            one = module.pieces.pop()
            source = "\n".join([one.text, *lines[end:last]])
            module.pieces.append(Piece(one.names | bound_names(ast.unparse(node)), source))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            above = "\n".join(lines[end : node.lineno - 1]).strip()
            waiting += f"{above}\n" if above else ""
            for name, line in _lines_of(node):
                module.imports[name] = (*module.imports.get(name, ()), line)
        else:
            source = (waiting + "\n".join(lines[end:last])).strip("\n")
            source, waiting = re.sub(r"^\s*\n", "", source), ""
            module.pieces.append(Piece(frozenset(bound_names(ast.unparse(node))), source))
        end = max(end, last)
    rest = (waiting + "\n".join(lines[end:])).strip("\n")
    if rest and module.pieces:
        module.pieces[-1] = replace(module.pieces[-1], text=f"{module.pieces[-1].text}\n\n{rest}")
    return module


def _lines_of(node: ast.Import | ast.ImportFrom) -> Iterable[tuple[str, str]]:
    """Each name that an import binds, with an import of that name alone."""
    for alias in node.names:
        name = alias.asname or alias.name
        suffix = f" as {alias.asname}" if alias.asname else ""
        if isinstance(node, ast.Import):
            yield name.partition(".")[0], f"import {alias.name}{suffix}"
        else:
            start = f"from {'.' * node.level}{node.module or ''} import"
            yield name, f"{start} {alias.name}{suffix}"


def _blocks(lines: Iterable[str]) -> list[str]:
    """Imports in their groups: Python's own, those of others, the course's with the student's."""
    whole, parts = [], {}
    for line in dict.fromkeys(lines):
        if line.startswith("from "):
            module, _, name = line.removeprefix("from ").partition(" import ")
            parts.setdefault(module, []).append(name)
        else:
            whole.append(line)
    joined = [_joined(module, sorted(names)) for module, names in parts.items()]
    groups: dict[int, list[str]] = {}
    for line in [*sorted(whole), *sorted(joined)]:
        groups.setdefault(_group(line.split()[1].partition(".")[0]), []).append(line)
    return ["\n".join(groups[key]) for key in sorted(groups)]


def _joined(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    inside = textwrap.fill(", ".join(names) + ",", WIDTH - 4)
    return f"from {module} import (\n{textwrap.indent(inside, '    ')}\n)"


def _group(package: str) -> int:
    if package in ("course_lib", "my_attention"):
        return 3
    if package == "__future__":
        return 0
    return 1 if package in sys.stdlib_module_names else 2
