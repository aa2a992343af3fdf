"""Reduce a submitted notebook to its answers, and put them into the release notebook.

A notebook is reduced to the kind, id, grade_id and source of its cells, and to the outputs of cells
that are not run again. Everything else in a student's file is dropped here. This module runs as a
process of its own, because parsing hostile text may take forever (see `parsing`).
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.checks.judge.counting import touches
from course_lib.grading.cell_kinds import ANSWER, grade_id, is_theirs, is_used, names_used
from course_lib.grading.intake.ordinary_files import IntakeError
from course_lib.grading.intake.rebuild import rebuild
from course_lib.workspace.limited import serve

MAX_CELLS = 5_000
MAX_SOURCE = 5_000_000  # characters in all cells together
_KINDS = {"code": "code", "markdown": "markdown", "raw": "raw", "heading": "markdown"}
_CHECK = re.compile(r"""\bcheck\(\s*["'](\w+)["']""")


def answer(about: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Return the rebuilt notebook and what is found in it, or why it is refused."""
    try:
        return _found(data, **about)
    except IntakeError as error:
        return {"refused": str(error)}


def _found(
    data: bytes,
    name: str,
    lesson: str,
    release: str,
    lesson_of: dict[str, str],
    replaceable: list[str],
) -> dict[str, Any]:
    released = parse_release(release)
    cells, read = parse(data, name)
    asked = {exercise for cell in cells for exercise in _CHECK.findall(cell.source)}
    asked |= {grade_id(cell).removesuffix(ANSWER) for cell in cells}
    found = Counter(lesson_of[exercise] for exercise in asked & lesson_of.keys())
    if found and lesson not in found:
        other = found.most_common(1)[0][0]
        raise IntakeError(f"this is the notebook of {other}: ask for that of {lesson}")
    notebook, restored = rebuild(released, cells)
    stubs, answers = _answers_in(released), _answers_in(notebook).items()
    return {
        "notebook": notebook,
        "notices": [*read, *restored],
        "cells": {
            index: {
                "names": [(to, sorted(ones)) for to, ones in names_used(cell.source)],
                "touches": touches(cell.source, {*replaceable}),
            }
            for index, cell in enumerate(notebook.cells)
            if is_used(cell) and is_theirs(cell)
        },
        "answers": {at: text for at, text in answers if text.split() != stubs[at].split()},
    }


def _answers_in(notebook: NotebookNode) -> dict[str, str]:
    """Return the sources of the cells that answers go into, by grade_id."""
    cells = (c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("solution"))
    return {grade_id(cell): cell.source for cell in cells}


@functools.lru_cache(maxsize=2)
def parse_release(text: str) -> NotebookNode:
    """Parse a release notebook, once for each class."""
    return nbformat.reads(text, as_version=4)


def parse(data: bytes, name: str = "the notebook") -> tuple[list[NotebookNode], list[str]]:
    """Reduce the bytes of a notebook (nbformat 3 or 4) to its cells, with notices."""
    notices: list[str] = []
    if not data.strip(b"\0 \r\n\t"):
        raise IntakeError(f"{name} is empty: ask for it again")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        notices.append("not UTF-8: read as Windows-1252")
        text = data.decode("cp1252", errors="replace")
    try:
        document = json.loads(text, parse_int=lambda n: int(n) if len(n) < 20 else 0)
    except RecursionError:
        raise IntakeError(f"{name} is nested too deeply to be a notebook") from None
    except ValueError as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise IntakeError(f"{name} is damaged ({where}): ask for it again") from None
    raw = _raw_cells(document, name)
    cells = [cell for item in raw if (cell := _reduce(item)) is not None]
    if not cells:
        raise IntakeError(f"{name} holds no cells: ask for it again")
    size = sum(len(cell.source) for cell in cells)
    if len(cells) > MAX_CELLS or size > MAX_SOURCE:
        held = f"{len(cells):,} cells with {size / 1e6:.1f} million characters"
        raise IntakeError(f"{name} holds {held}: ask for the lesson's notebook with the answers")
    if len(cells) < len(raw):
        notices.append(f"{len(raw) - len(cells)} unreadable cell(s) left out")
    return cells, notices


def _raw_cells(document: object, name: str) -> Sequence:
    if not isinstance(document, dict):
        raise IntakeError(f"{name} is not a notebook: ask for it again")
    version, cells = document.get("nbformat"), document.get("cells")
    if version == 3:
        sheets = document.get("worksheets")
        sheets = sheets if isinstance(sheets, list) else []
        parts = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)]
        cells = [cell for part in parts if isinstance(part, list) for cell in part]
    elif version != 4:
        raise IntakeError(f"{name} has notebook format {version!r}: ask for it saved by Jupyter")
    if not isinstance(cells, list):
        raise IntakeError(f"{name} holds no list of cells: ask for it again")
    return cells


def _reduce(item: object) -> NotebookNode | None:
    """Return the used parts of a raw cell with checked types, or None if it is not a cell."""
    if not isinstance(item, dict):
        return None
    kind, source = item.get("cell_type"), item.get("source", item.get("input"))
    if isinstance(source, list) and all(isinstance(part, str) for part in source):
        source = "".join(source)
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(source, str):
        return None
    metadata = item.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    cell_id, outputs = item.get("id"), item.get("outputs")
    return NotebookNode(
        cell_type=_KINDS[kind],
        source=source.encode("utf-8", "replace").decode("utf-8"),  # no lone surrogates
        metadata={"nbgrader": {"grade_id": name if isinstance(name, str) else ""}},
        id=cell_id if isinstance(cell_id, str) else None,
        outputs=outputs if isinstance(outputs, list) else [],
    )


if __name__ == "__main__":
    serve(answer)
