"""Put a student's answers into the release notebook.

The release determines order, check cells and metadata. The submission contributes only sources.
"""

import ast
import copy
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

import nbformat
from nbformat import NotebookNode

from course_lib.checks.observe.cells import bound_by, bound_in, cell_body, parse_cell
from course_lib.grading.cell_kinds import (
    ANSWER,
    DEFINITIONS,
    definitions,
    grade_id,
    is_check,
    is_theirs,
)
from course_lib.grading.clean_outputs import KEPT, made_output, sanitize_outputs, sanitize_prose

_AS_SUBMITTED = "[not run again: this is what was submitted]\n"
_BEFORE, _AFTER = -1, 1
_OWN = "a cell of the student's own"
_STRIPPED = "saved without cell data (Colab, Kaggle, Deepnote)"
# A notebook without cell data gets one of these notices for each answer.
_WITHOUT_DATA = ("deleted answer cell restored", f"answer found in {_OWN}")
_CHECK_RESTORED = ": deleted check cell restored"
Cells = Sequence[NotebookNode]


def rebuild(release: NotebookNode, submitted: Cells) -> tuple[NotebookNode, list[str]]:
    """Return the release notebook with the student's answers and own cells, without outputs.

    Only kind, source, outputs, id and grade_id of submitted cells are read. The release is not
    changed. Notices say what was restored or moved.
    """
    match = _Match(release.cells, submitted)
    notices = [*match.restored(), *match.place_own_cells(), *match.find_code(), *match.find_texts()]
    if not any(map(grade_id, submitted)):
        kept = [notice for notice in notices if not notice.endswith(_WITHOUT_DATA)]
        notices = [_STRIPPED] * (len(kept) < len(notices)) + kept
    checks = [notice for notice in notices if notice.endswith(_CHECK_RESTORED)]
    if len(checks) > 1:
        others = [notice for notice in notices if notice not in checks]
        notices = [f"{len(checks)} deleted check cells restored", *others]
    return match.assemble(release), notices


class _Match:
    """A matching of submitted cells to release cells, with places for all other cells."""

    def __init__(self, release: Cells, submitted: Cells) -> None:
        self.release, self.submitted = release, submitted
        # For each submitted cell, the number of the release cell that it is a version of.
        self.homes = _find_homes(release, submitted)
        # For each submitted cell, whether its text equals that of the release cell.
        self.kept = [
            home is not None and _trim(cell) == _trim(release[home])
            for cell, home in zip(submitted, self.homes, strict=True)
        ]
        # For each answer of the release, the last submitted cell that is not the stub.
        self.answers: dict[int, int] = {}
        for at, home in enumerate(self.homes):
            if home is not None and is_theirs(release[home]):
                known = self.answers.get(home)
                if known is None or self.kept[known] or not self.kept[at]:
                    self.answers[home] = at
        # For each answer, the text that is graded.
        self.sources = {home: submitted[at].source for home, at in self.answers.items()}
        # For each of the student's own cells, a release cell and the side on which it goes.
        self.places: dict[int, tuple[int, int]] = {}

    def restored(self) -> Iterator[str]:
        """Return notices of the lesson's cells that the student deleted, repeated or edited."""
        absent = {grade_id(cell) for at, cell in enumerate(self.release) if at not in self.homes}
        for number, cell in enumerate(self.release):
            name, is_answer = grade_id(cell), is_theirs(cell)
            exercise = name.removesuffix(ANSWER)
            if {exercise, exercise + ANSWER} <= absent:
                continue  # newer than the student's notebook, or deleted completely
            copies = [at for at, home in enumerate(self.homes) if home == number]
            edited = [self.submitted[at].source for at in copies if not self.kept[at]]
            if name and not copies:
                what = "answer" if is_answer else "check" if is_check(cell) else "locked"
                yield f"{name}: deleted {what} cell restored"
            elif is_answer and len(copies) > 1:
                yield f"{name}: {len(copies)} answer cells, the last answer graded"
            elif name and not is_answer and edited:
                own = is_check(cell) and any(map(bound_in, edited))
                defines = "; what the student defines in it runs before it" if own else ""
                yield f"{name}: edited cell restored{defines}"

    def place_own_cells(self) -> Iterator[str]:
        """Place each of the student's own cells beside the release cell that it was next to.

        If an answer is put back into the lesson's order, helper cells move with it. The student's
        version of an edited cell runs after the release's version. If an edited check cell defines
        names, it runs before the release's.
        """
        last, furthest = (0, _BEFORE), -1
        pending: list[int] = []  # own cells since the last one of the release
        moved: list[str] = []
        for at, home in enumerate(self.homes):
            if home is None:
                pending.append(at)
                continue
            cell, is_edited = self.release[home], not self.kept[at]
            if is_theirs(cell) and is_edited and self.answers[home] != at:  # an earlier copy
                self.places[at] = (home, _BEFORE)
                continue
            is_moved = home < furthest and is_theirs(cell)
            moved += [grade_id(cell)] if is_moved else []
            self.places |= dict.fromkeys(pending, (home, _BEFORE) if is_moved else last)
            pending, last, furthest = [], (home, _AFTER), max(furthest, home)
            if not is_theirs(cell) and is_edited:
                if not is_check(cell):
                    self.places[at] = last
                elif bound_in(self.submitted[at].source):
                    self.places[at] = (home, _BEFORE)
        self.places |= dict.fromkeys(pending, last)
        if moved:
            yield f"put back into the lesson's order: {', '.join(moved)}"

    def find_code(self) -> Iterator[str]:
        """Look among the student's own cells for answers that are not in their answer cells.

        The first exercise gets the whole of a cell that answers several. Each other exercise gets
        only its definition, because its stub would otherwise replace it.
        """
        places, used = self.places, []
        order = sorted(places, key=lambda at: (places[at], at))
        code = [at for at in order if self.submitted[at].cell_type == "code"]
        code = [at for at in code if not _is_stub(self.submitted[at].source)]
        defined = {at: definitions(self.submitted[at].source).keys() for at in code}
        bound = {at: _attempted(self.submitted[at].source) for at in code}
        checks = {grade_id(cell): n for n, cell in enumerate(self.release) if is_check(cell)}
        for number, cell in enumerate(self.release):
            if not is_theirs(cell) or cell.cell_type != "code":
                continue
            source, wanted = self.sources.get(number, ""), definitions(cell.source).keys()
            pool = [*(at for at in code if at in places), *used]
            found = [at for at in pool if wanted & defined[at]]
            found = found or [at for at in pool if wanted & bound[at]]
            is_open = self._is_open(number) or _is_stub(source)
            if not is_open:  # does the definition run too late for the check?
                check = checks.get(grade_id(cell).removesuffix(ANSWER), len(self.release))
                in_time = any(places.get(at, (0, 0)) < (check, 0) for at in found)  # or in `used`
                if in_time or wanted & bound_in(source):
                    continue
            if not found:
                continue
            at = found[-1]
            if at in used:
                self.sources[number] = _parts_of(self.submitted[at].source, wanted)
            else:
                earlier = [one for one in found[:-1] if one not in used]  # may contain helpers
                earlier += [] if is_open else [self.answers[number]]
                places |= dict.fromkeys(earlier, (number, _BEFORE))
                self.sources[number] = self.submitted[at].source
                del places[at]
                used.append(at)
            yield self._found_in(number, at)

    def find_texts(self) -> Iterator[str]:
        """Use text that the student wrote beside an untouched written answer as that answer."""
        for number, cell in enumerate(self.release):
            if not is_theirs(cell) or cell.cell_type == "code" or not self._is_open(number):
                continue
            beside = [(number - 1, _AFTER), (number, _BEFORE), (number, _AFTER)]
            near = sorted(at for at, place in self.places.items() if place in beside)
            near = [at for at in near if self.submitted[at].cell_type != "code"]
            texts = {at: self.submitted[at].source for at in near}
            texts = {at: text for at, text in texts.items() if text.strip()}
            if texts:
                self.sources[number] = "\n\n".join(texts.values())
                self.places = {at: p for at, p in self.places.items() if at not in texts}
                yield self._found_in(number, max(texts))

    def _is_open(self, number: int) -> bool:
        return number not in self.answers or self.kept[self.answers[number]]

    def _found_in(self, number: int, at: int) -> str:
        home = self.homes[at]
        where = _OWN if home is None else f"the cell {grade_id(self.release[home])}"
        return f"{grade_id(self.release[number])}: answer found in {where}"

    def assemble(self, release: NotebookNode) -> NotebookNode:
        """Make the notebook, keeping outputs only for demonstrations, which are not run again."""
        notebook = nbformat.v4.new_notebook(metadata=copy.deepcopy(release.metadata))
        notebook.nbformat_minor = max(5, release.get("nbformat_minor", 5))
        versions = {home: at for at, home in enumerate(self.homes) if self.kept[at]}
        own: defaultdict[tuple[int, int], list[NotebookNode]] = defaultdict(list)
        for n, at in enumerate(sorted(self.places, key=lambda at: (self.places[at], at)), 1):
            cell = self.submitted[at]  # an extra one, marked as the student's
            source = cell.source if cell.cell_type == "code" else sanitize_prose(cell.source)
            new = getattr(nbformat.v4, f"new_{cell.cell_type}_cell")
            own[self.places[at]] += [new(source, id=f"own-{n}", metadata={"course": {"own": True}})]
        room = KEPT
        for number, release_cell in enumerate(self.release):
            cell = copy.deepcopy(release_cell)
            cell.source = self.sources.get(number, cell.source)
            if cell.cell_type != "code" and _trim(cell) != _trim(release_cell):
                cell.source = sanitize_prose(cell.source)
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
                if "demo" in cell.metadata.get("tags", []) and number in versions:
                    shown = self.submitted[versions[number]].get("outputs", ())
                    if clean := sanitize_outputs(shown, room):
                        said = made_output("stream", name="stdout", text=_AS_SUBMITTED)
                        cell.outputs = [said, *clean]
                        room -= len(str(cell.outputs))
            notebook.cells += [*own[number, _BEFORE], cell, *own[number, _AFTER]]
        return notebook


def _find_homes(release: Cells, submitted: Cells) -> list[int | None]:
    """Match submitted cells to those of the release: by grade_id, else by id, else by text."""
    names = [grade_id(cell) for cell in release]
    by_name = {name: n for n, name in enumerate(names) if name}
    named = {grade_id(cell) for cell in submitted} - {""}
    free = [n for n, name in enumerate(names) if name not in named]  # their grade_id may be lost
    by_id = {release[n].get("id"): n for n in free}
    by_text = defaultdict(list)
    for n in free:
        by_text[release[n].cell_type, _trim(release[n])].append(n)
    homes: list[int | None] = []
    taken: set[int | None] = set()
    for cell in submitted:
        home = by_name.get(grade_id(cell))
        if home is None:
            candidates = [by_id.get(cell.get("id")), *by_text[cell.cell_type, _trim(cell)]]
            home = next((n for n in candidates if n is not None and n not in taken), None)
        homes.append(home)
        taken.add(home)
    return homes


def _parts_of(source: str, names: Collection[str]) -> str:
    """Return the definitions of some names at the top level of a cell."""
    lines, parts = cell_body(source).splitlines(), []
    for name, node in definitions(source).items():
        if name in names:
            first = min(one.lineno for one in (node, *node.decorator_list))
            parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    return "\n\n\n".join(parts)


def _is_stub(source: str) -> bool:
    """Return whether every definition in a cell only raises, as an older stub does."""
    defined = definitions(source).values() if "NotImplementedError" in source else ()
    return bool(defined) and all(map(_only_raises, defined))


def _only_raises(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    body = node.body
    if isinstance(node, ast.ClassDef):
        methods = [one for one in body if isinstance(one, DEFINITIONS)]
        return bool(methods) and all(map(_only_raises, methods))
    return isinstance(body[-1], ast.Raise) and len(body) <= 2 and "NotImpl" in ast.dump(body[-1])


def _attempted(source: str) -> set[str]:
    """Return the names that a cell binds, except those imported from the course or deleted."""

    def is_attempt(node: ast.stmt) -> bool:
        if isinstance(node, ast.ImportFrom):
            return (node.module or "").partition(".")[0] != "course_lib"
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            return getattr(node.value.func, "id", "") != "carry_on"
        return not isinstance(node, ast.Delete)

    if (tree := parse_cell(source)) is None:
        return bound_in(source)
    return {name for node in tree.body if is_attempt(node) for name in bound_by(node)}


def _trim(cell: NotebookNode) -> str:
    return "\n".join(line.rstrip() for line in cell.source.strip().splitlines())
