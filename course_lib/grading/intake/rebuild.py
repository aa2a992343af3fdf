"""Pour a student's answers into the release notebook.

The release decides order, check cells and metadata; of the submission only sources count.
A student's own cells (helpers, trials) stay beside the cells they were next to.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import nbformat
from nbformat import NotebookNode

from course_lib.grading.intake.submissions import SubmittedCell
from course_lib.grading.sanitize import (
    KEPT,
    made_output,
    sanitize_outputs,
    sanitize_prose,
)

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_AS_SUBMITTED = "[not run again: this is what was submitted]\n"


@dataclass
class _Slot:
    """A cell of the release and what the student put there."""

    cell: NotebookNode
    name: str | None  # grade_id
    editable: bool  # an answer cell, code or text
    answer: str | None = None
    outputs: tuple = ()  # as submitted, of a cell that is not run again
    before: list[SubmittedCell] = field(default_factory=list)
    after: list[SubmittedCell] = field(default_factory=list)


def rebuild(
    release: NotebookNode, submitted: Sequence[SubmittedCell]
) -> tuple[NotebookNode, list[str]]:
    """The release notebook with the student's answers and own cells in it.

    Args:
        release: the trusted release notebook; not changed.
        submitted: the reduced cells, in the order in which they were submitted.

    Returns:
        The rebuilt notebook without outputs, and notices: what was restored or moved.
    """
    slots = [_slot(cell) for cell in release.cells]
    homes = _find_homes(slots, submitted)
    notices: list[str] = []
    superseded = _take_answers(slots, submitted, homes, notices)
    _keep_shown(slots, submitted, homes)
    _place_own_cells(slots, submitted, homes, superseded, notices)
    _adopt_retyped_answers(slots, notices)
    _adopt_written_answers(slots, notices)
    return _assemble(release, slots), notices


def _slot(cell: NotebookNode) -> _Slot:
    about = cell.metadata.get("nbgrader", {})
    return _Slot(cell, about.get("grade_id"), bool(about.get("solution")))


def _find_homes(slots: list[_Slot], submitted: Sequence[SubmittedCell]) -> list[int | None]:
    """For each submitted cell the release cell it is a version of, or None."""
    by_name: dict[str | None, int] = {slot.name: i for i, slot in enumerate(slots) if slot.name}
    named = {cell.grade_id for cell in submitted}
    by_id = {slot.cell.get("id"): i for i, slot in enumerate(slots) if slot.name not in named}
    by_text: dict[tuple[str, str], list[int]] = {}
    for i, slot in enumerate(slots):
        if slot.name is None or slot.name not in named:  # or its metadata was lost on the way
            by_text.setdefault((slot.cell.cell_type, _trim(slot.cell.source)), []).append(i)
    homes: list[int | None] = []
    taken: set[int] = set()
    for cell in submitted:
        home = by_name.get(cell.grade_id)
        if home is None:
            same_text = by_text.get((cell.kind, _trim(cell.source)), [])
            candidates = [by_id.get(cell.cell_id), *same_text]
            home = next((i for i in candidates if i is not None and i not in taken), None)
        if home is not None:
            taken.add(home)
        homes.append(home)
    return homes


def _take_answers(
    slots: list[_Slot],
    submitted: Sequence[SubmittedCell],
    homes: list[int | None],
    notices: list[str],
) -> set[int]:
    """Set each slot's answer; return positions of earlier copies, kept as own cells."""
    superseded: set[int] = set()
    for i, slot in enumerate(slots):
        if slot.name is None:
            continue
        copies = [at for at, home in enumerate(homes) if home == i]
        if not copies:
            what = "answer" if slot.editable else "check" if _is_check(slot) else "locked"
            notices.append(f"{slot.name}: deleted {what} cell restored")
        elif slot.editable:
            answered = [at for at in copies if not _same(submitted[at], slot)] or copies
            slot.answer = submitted[answered[-1]].source
            superseded.update(answered[:-1])
            if len(copies) > 1:
                notices.append(f"{slot.name}: {len(copies)} answer cells, the last answer graded")
        elif any(not _same(submitted[at], slot) for at in copies):
            notices.append(f"{slot.name}: edited cell restored")
    return superseded


def _keep_shown(
    slots: list[_Slot], submitted: Sequence[SubmittedCell], homes: list[int | None]
) -> None:
    """Outputs of unchanged demo cells: these are shown as they were submitted."""
    for cell, home in zip(submitted, homes, strict=True):
        slot = None if home is None else slots[home]
        if slot and "demo" in slot.cell.metadata.get("tags", []) and _same(cell, slot):
            slot.outputs = cell.outputs


def _place_own_cells(
    slots: list[_Slot],
    submitted: Sequence[SubmittedCell],
    homes: list[int | None],
    superseded: set[int],
    notices: list[str],
) -> None:
    """Hang every cell of the student's own on the release cell it was next to."""
    furthest = -1  # the furthest release cell reached so far
    anchor: _Slot | None = None
    pending: list[SubmittedCell] = []  # own cells since the anchor
    moved: list[str] = []
    for at, (cell, home) in enumerate(zip(submitted, homes, strict=True)):
        if home is None:
            pending.append(cell)
            continue
        slot = slots[home]
        if at in superseded:
            slot.before.append(cell)
            continue
        if home < furthest and slot.editable:
            moved.append(slot.name or "")
            slot.before.extend(pending)  # helpers travel with the answer they were above
        else:
            _hang(pending, anchor, slots)
        pending, anchor, furthest = [], slot, max(furthest, home)
        if not slot.editable and not _is_check(slot) and not _same(cell, slot):
            pending.append(cell)  # edited set-up or narrative: the release's, then the student's
    _hang(pending, anchor, slots)
    if moved:
        notices.append(f"put back into the lesson's order: {', '.join(moved)}")


def _hang(cells: list[SubmittedCell], anchor: _Slot | None, slots: list[_Slot]) -> None:
    if anchor is None:
        slots[0].before.extend(cells)
    else:
        anchor.after.extend(cells)


def _adopt_retyped_answers(slots: list[_Slot], notices: list[str]) -> None:
    """Where an answer cell is gone or untouched, take the student's own cell that defines its name.

    A cell that answers several exercises goes whole to the first, and to each other the part that
    defines it, since its own stub would come after it.
    """
    taken: list[SubmittedCell] = []
    for slot in slots:
        if not slot.editable or not _is_open(slot) or slot.cell.cell_type != "code":
            continue
        wanted = _defined(slot.cell.source)
        own = [c for s in slots for c in (*s.before, *s.after) if c.kind == "code"]
        found = [cell for cell in (*own, *taken) if wanted & _defined(cell.source)]
        if not found:
            continue
        cell = found[-1]
        if any(cell is one for one in taken):
            slot.answer = _parts_of(cell.source, wanted)
        else:
            slot.answer = cell.source
            taken.append(cell)
            earlier = [one for one in found[:-1] if not any(one is other for other in taken)]
            _take_out(slots, [cell, *earlier])
            slot.before += earlier  # with helpers, perhaps
        notices.append(f"{slot.name}: answer found in a cell of the student's own")


def _adopt_written_answers(slots: list[_Slot], notices: list[str]) -> None:
    """Where a text cell is gone or untouched, take the student's own text beside it."""
    for at, slot in enumerate(slots):
        if not slot.editable or not _is_open(slot) or slot.cell.cell_type != "markdown":
            continue
        places = [slots[at - 1].after] if at else []
        places += [slot.before, slot.after]
        written = [c for place in places for c in place if c.kind != "code" and c.source.strip()]
        if written:
            slot.answer = "\n\n".join(cell.source for cell in written)
            _take_out(slots, written)
            notices.append(f"{slot.name}: answer found in a cell of the student's own")


def _take_out(slots: list[_Slot], cells: Sequence[SubmittedCell]) -> None:
    """Remove the student's own cells from where they stand."""
    for place in (place for slot in slots for place in (slot.before, slot.after)):
        place[:] = [one for one in place if not any(one is cell for cell in cells)]


def _is_open(slot: _Slot) -> bool:
    """Whether nothing was answered where the answer belongs."""
    return slot.answer is None or _trim(slot.answer) == _trim(slot.cell.source)


def _parts_of(source: str, names: set[str]) -> str:
    """The definitions of some names at the top level of a cell that can be parsed."""
    lines, found = source.splitlines(), []
    for node in ast.parse(source).body:
        if isinstance(node, _DEFINITIONS) and node.name in names:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found.append("\n".join(lines[first - 1 : node.end_lineno]))
    return "\n\n\n".join(found)


def _defined(source: str) -> set[str]:
    """Names of the functions and classes that a cell defines at its top level."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {node.name for node in body if isinstance(node, _DEFINITIONS)}


def _assemble(release: NotebookNode, slots: list[_Slot]) -> NotebookNode:
    notebook = nbformat.v4.new_notebook(metadata=copy.deepcopy(release.metadata))
    notebook.nbformat_minor = max(5, release.get("nbformat_minor", 5))
    used = {slot.cell.get("id") for slot in slots}
    ids = (name for n in itertools.count(1) if (name := f"own-{n}") not in used)
    room = KEPT
    for slot in slots:
        cell = copy.deepcopy(slot.cell)
        if slot.answer is not None:
            untouched = _trim(slot.answer) == _trim(cell.source)
            code = cell.cell_type == "code" or untouched
            cell.source = slot.answer if code else sanitize_prose(slot.answer)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = _shown(slot.outputs, room), None
            room -= len(str(cell.outputs)) if cell.outputs else 0
        own_before = [_own(c, ids) for c in slot.before]
        own_after = [_own(c, ids) for c in slot.after]
        notebook.cells.extend([*own_before, cell, *own_after])
    return notebook


def _shown(outputs: Sequence, room: int) -> list[NotebookNode]:
    clean = sanitize_outputs(outputs, room)
    return [made_output("stream", name="stdout", text=_AS_SUBMITTED), *clean] if clean else []


def _own(cell: SubmittedCell, ids: Iterator[str]) -> NotebookNode:
    """A cell of the student's own: its source, and no metadata but a mark that it is theirs."""
    make = getattr(nbformat.v4, f"new_{cell.kind}_cell")
    source = cell.source if cell.kind == "code" else sanitize_prose(cell.source)
    return make(source, id=next(ids), metadata={"course": {"own": True}})


def _is_check(slot: _Slot) -> bool:
    return bool(slot.cell.metadata.get("nbgrader", {}).get("grade"))


def _same(cell: SubmittedCell, slot: _Slot) -> bool:
    return _trim(cell.source) == _trim(slot.cell.source)


def _trim(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())
