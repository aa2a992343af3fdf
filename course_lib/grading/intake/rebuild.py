"""Put a student's answers into the release notebook.

The release decides order, check cells and metadata; of the submission only sources count. Each step
returns what it finds: which cell of the release a submitted one is a version of, which ones hold
the answers, and where the student's own cells (helpers, trials) go.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

from course_lib.checks.observe.cells import bound_by, cell_body
from course_lib.grading.graded_cells import ANSWER, bound_names, is_check, parsed
from course_lib.grading.intake.submissions import SubmittedCell
from course_lib.grading.sanitize import (
    KEPT,
    made_output,
    sanitize_outputs,
    sanitize_prose,
)

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_AS_SUBMITTED = "[not run again: this is what was submitted]\n"
_BEFORE, _AFTER = -1, 1
Cells = Sequence[SubmittedCell]
Homes = Sequence[int | None]  # for each submitted cell the release cell that it is a version of
Places = Mapping[int, tuple[int, int]]  # for own cells the release cell, and the side of it


class _Slot(NamedTuple):
    """A cell of the release; its grade_id, and whether an answer (code or text) goes there."""

    cell: NotebookNode
    name: str
    is_answer: bool


def rebuild(release: NotebookNode, submitted: Cells) -> tuple[NotebookNode, list[str]]:
    """Return the release notebook with the student's answers and own cells in it.

    Args:
        release: the trusted release notebook; not changed.
        submitted: the reduced cells, in the order in which they were submitted.

    Returns:
        The rebuilt notebook without outputs, and notices: what was restored or moved.
    """
    slots = [_slot(cell) for cell in release.cells]
    homes = _find_homes(slots, submitted)
    answers = _find_answers(slots, submitted, homes)
    places, moved = _place_own_cells(slots, submitted, homes, answers)
    sources, places, found = _find_displaced(slots, submitted, homes, answers, places)
    shown = {
        home: cell.outputs
        for cell, home in zip(submitted, homes, strict=True)
        if home is not None and _is_demo(slots[home]) and _same(cell, slots[home])
    }
    own: defaultdict[tuple[int, int], list[SubmittedCell]] = defaultdict(list)
    for at in sorted(places):
        own[places[at]].append(submitted[at])
    notices = [*_restored(slots, submitted, homes), *moved, *found]
    return _assemble(release, slots, sources, shown, own), notices


def _slot(cell: NotebookNode) -> _Slot:
    about = cell.metadata.get("nbgrader", {})
    return _Slot(cell, about.get("grade_id") or "", bool(about.get("solution")))


def _find_homes(slots: Sequence[_Slot], submitted: Cells) -> Homes:
    """Match submitted cells to those of the release: by grade_id, else by id, else by text."""
    by_name = {slot.name: i for i, slot in enumerate(slots) if slot.name}
    named = {cell.grade_id for cell in submitted}
    by_id = {slot.cell.get("id"): i for i, slot in enumerate(slots) if slot.name not in named}
    by_text: dict[tuple[str, str], list[int]] = {}
    for i, slot in enumerate(slots):
        if not slot.name or slot.name not in named:  # or its metadata was lost on the way
            by_text.setdefault((slot.cell.cell_type, _trim(slot.cell.source)), []).append(i)
    homes: list[int | None] = []
    taken: set[int | None] = set()
    for cell in submitted:
        home = by_name.get(cell.grade_id or "")
        if home is None:
            same_text = by_text.get((cell.kind, _trim(cell.source)), [])
            candidates = [by_id.get(cell.cell_id), *same_text]
            home = next((i for i in candidates if i is not None and i not in taken), None)
        homes.append(home)
        taken.add(home)
    return homes


def _find_answers(slots: Sequence[_Slot], submitted: Cells, homes: Homes) -> dict[int, int]:
    """Choose the submitted cell of each answer: of several the last one that is not the stub."""
    answers: dict[int, int] = {}
    for at, home in enumerate(homes):
        if home is not None and slots[home].is_answer:
            stub = _same(submitted[at], slots[home])
            if not stub or home not in answers or _same(submitted[answers[home]], slots[home]):
                answers[home] = at
    return answers


def _restored(slots: Sequence[_Slot], submitted: Cells, homes: Homes) -> Iterator[str]:
    """What the student deleted, repeated or edited of the lesson's own cells."""
    for i, slot in enumerate(slots):
        copies = [submitted[at] for at, home in enumerate(homes) if home == i]
        edited = [cell for cell in copies if not _same(cell, slot)]
        if slot.name and not copies:
            what = "answer" if slot.is_answer else "check" if is_check(slot.cell) else "locked"
            yield f"{slot.name}: deleted {what} cell restored"
        elif slot.is_answer and len(copies) > 1:
            yield f"{slot.name}: {len(copies)} answer cells, the last answer graded"
        elif slot.name and not slot.is_answer and edited:
            own = is_check(slot.cell) and any(bound_names(cell.source) for cell in edited)
            defines = "; what the student defines in it runs before it" if own else ""
            yield f"{slot.name}: edited cell restored{defines}"


def _place_own_cells(
    slots: Sequence[_Slot], submitted: Cells, homes: Homes, answers: Mapping[int, int]
) -> tuple[Places, list[str]]:
    """Place every cell of the student's own beside the release cell it was next to.

    Helpers travel with an answer that is put back into the lesson's order. Of what was edited the
    release's version runs, then the student's; of a check cell, before it, what defines anything.
    """
    places: dict[int, tuple[int, int]] = {}
    last, furthest = (0, _BEFORE), -1
    pending: list[int] = []  # own cells since the last one of the release
    moved: list[str] = []
    for at, (cell, home) in enumerate(zip(submitted, homes, strict=True)):
        if home is None:
            pending.append(at)
            continue
        slot = slots[home]
        if slot.is_answer and answers[home] != at and not _same(cell, slot):  # an earlier copy
            places[at] = (home, _BEFORE)
            continue
        is_moved = home < furthest and slot.is_answer
        moved += [slot.name] if is_moved else []
        places |= dict.fromkeys(pending, (home, _BEFORE) if is_moved else last)
        pending, last, furthest = [], (home, _AFTER), max(furthest, home)
        if not slot.is_answer and not _same(cell, slot):
            if not is_check(slot.cell):
                places[at] = last
            elif bound_names(cell.source):
                places[at] = (home, _BEFORE)
    places |= dict.fromkeys(pending, last)
    return places, [f"put back into the lesson's order: {', '.join(moved)}"] if moved else []


def _find_displaced(
    slots: Sequence[_Slot],
    submitted: Cells,
    homes: Homes,
    answers: Mapping[int, int],
    places: Places,
) -> tuple[dict[int, str], Places, list[str]]:
    """Look for the answers that are not in their cells among the student's own.

    A cell that answers several exercises goes whole to the first, and to each other the part that
    defines it, since its own stub would come after it.

    Returns:
        The sources of all answers by cell of the release, what is left of the places, and notices.
    """
    sources = {number: submitted[at].source for number, at in answers.items()}
    places, used, notices = dict(places), [], []
    code = [at for at in sorted(places, key=lambda at: (places[at], at)) if _is_code(submitted[at])]
    code = [at for at in code if not _is_stub(submitted[at].source)]
    defined = {at: _defined(submitted[at].source) for at in code}
    bound = {at: _attempted(submitted[at].source) for at in code}
    for number, slot in enumerate(slots):
        if not slot.is_answer:
            continue
        is_open = number not in sources or _trim(sources[number]) == _trim(slot.cell.source)
        if slot.cell.cell_type != "code":
            beside = [(number - 1, _AFTER), (number, _BEFORE), (number, _AFTER)]
            texts = [at for at in sorted(places) if _is_text(submitted[at])]
            found = [at for at in texts if places[at] in beside]
            if is_open and found:
                sources[number] = "\n\n".join(submitted[at].source for at in found)
                places = {at: place for at, place in places.items() if at not in found}
                notices.append(_found_in(slot, slots, homes[found[-1]]))
            continue
        wanted, pool = _defined(slot.cell.source), [*(at for at in code if at in places), *used]
        found = [at for at in pool if wanted & defined[at]] or [
            at for at in pool if wanted & bound[at]
        ]
        is_open = is_open or _is_stub(sources[number])
        if not is_open:  # is what binds the name run too late for the check?
            check = (_check_of(slot, slots), 0)
            in_time = any(places.get(at, (0, 0)) < check for at in found)  # or used for an earlier
            if in_time or wanted & bound_names(sources[number]):
                continue
        if not found:
            continue
        at = found[-1]
        if at in used:
            sources[number] = _parts_of(submitted[at].source, wanted)
        else:
            earlier = [one for one in found[:-1] if one not in used]  # with helpers, perhaps
            earlier += [] if is_open else [answers[number]]
            places |= dict.fromkeys(earlier, (number, _BEFORE))
            sources[number] = submitted[at].source
            del places[at]
            used.append(at)
        notices.append(_found_in(slot, slots, homes[at]))
    return sources, places, notices


def _found_in(slot: _Slot, slots: Sequence[_Slot], home: int | None) -> str:
    where = "a cell of the student's own" if home is None else f"the cell {slots[home].name}"
    return f"{slot.name}: answer found in {where}"


def _check_of(slot: _Slot, slots: Sequence[_Slot]) -> int:
    """The number of the check of an answer; that of no cell if there is none."""
    name = slot.name.removesuffix(ANSWER)
    checks = (i for i, one in enumerate(slots) if one.name == name and is_check(one.cell))
    return next(checks, len(slots))


def _parts_of(source: str, names: set[str]) -> str:
    """The definitions of some names at the top level of a cell."""
    tree, lines, found = parsed(source), cell_body(source).splitlines(), []
    for node in tree.body if tree else ():
        if isinstance(node, _DEFINITIONS) and node.name in names:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found.append("\n".join(lines[first - 1 : node.end_lineno]))
    return "\n\n\n".join(found)


def _defined(source: str) -> set[str]:
    """Names of the functions and classes that a cell defines at its top level."""
    tree = parsed(source)
    return {node.name for node in tree.body if isinstance(node, _DEFINITIONS)} if tree else set()


def _is_stub(source: str) -> bool:
    """Whether all that a cell defines still raises, as an older release's stub does."""
    tree = parsed(source) if "NotImplementedError" in source else None
    defined = [node for node in tree.body if isinstance(node, _DEFINITIONS)] if tree else []
    return bool(defined) and all(map(_only_raises, defined))


def _only_raises(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        methods = [one for one in node.body if isinstance(one, _DEFINITIONS)]
        return bool(methods) and all(map(_only_raises, methods))
    body = getattr(node, "body", [])
    return isinstance(body[-1], ast.Raise) and len(body) <= 2 and "NotImpl" in ast.dump(body[-1])


def _attempted(source: str) -> set[str]:
    """Names that a cell binds, unless it takes the course's version or takes them away."""
    tree = parsed(source)
    if tree is None:
        return bound_names(source)
    return {name for node in tree.body if _is_attempt(node) for name in bound_by(node)}


def _is_attempt(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] != "course_lib"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        return getattr(node.value.func, "id", "") != "carry_on"
    return not isinstance(node, ast.Delete)


def _assemble(
    release: NotebookNode,
    slots: Sequence[_Slot],
    sources: Mapping[int, str],
    shown: Mapping[int, Sequence],
    own: Mapping[tuple[int, int], Cells],
) -> NotebookNode:
    notebook = nbformat.v4.new_notebook(metadata=copy.deepcopy(release.metadata))
    notebook.nbformat_minor = max(5, release.get("nbformat_minor", 5))
    used = {slot.cell.get("id") for slot in slots}
    ids = (name for n in itertools.count(1) if (name := f"own-{n}") not in used)
    room = KEPT
    for number, slot in enumerate(slots):
        cell = copy.deepcopy(slot.cell)
        if (source := sources.get(number)) is not None:
            untouched = _trim(source) == _trim(cell.source)
            code = cell.cell_type == "code" or untouched
            cell.source = source if code else sanitize_prose(source)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = _shown(shown.get(number, ()), room), None
            room -= len(str(cell.outputs)) if cell.outputs else 0
        notebook.cells += [_own(one, ids) for one in own.get((number, _BEFORE), ())]
        notebook.cells.append(cell)
        notebook.cells += [_own(one, ids) for one in own.get((number, _AFTER), ())]
    return notebook


def _shown(outputs: Sequence, room: int) -> list[NotebookNode]:
    clean = sanitize_outputs(outputs, room)
    return [made_output("stream", name="stdout", text=_AS_SUBMITTED), *clean] if clean else []


def _own(cell: SubmittedCell, ids: Iterator[str]) -> NotebookNode:
    """A cell of the student's own: its source, and no metadata but a mark that it is theirs."""
    make = getattr(nbformat.v4, f"new_{cell.kind}_cell")
    source = cell.source if cell.kind == "code" else sanitize_prose(cell.source)
    return make(source, id=next(ids), metadata={"course": {"own": True}})


def _is_code(cell: SubmittedCell) -> bool:
    return cell.kind == "code"


def _is_text(cell: SubmittedCell) -> bool:
    return cell.kind != "code" and bool(cell.source.strip())


def _is_demo(slot: _Slot) -> bool:
    return "demo" in slot.cell.metadata.get("tags", [])


def _same(cell: SubmittedCell, slot: _Slot) -> bool:
    return _trim(cell.source) == _trim(slot.cell.source)


def _trim(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())
