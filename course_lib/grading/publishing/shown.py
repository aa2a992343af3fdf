"""What cells put out, as it is shown: cleaned in a disposable child, within one budget."""

from __future__ import annotations

import json
from collections.abc import Sequence

import nbformat
from nbformat import NotebookNode

from course_lib.grading.disposable import Child, Unfinished
from course_lib.grading.sandbox.guests import Ran
from course_lib.grading.sanitize import KEPT, made_output, sanitize_outputs


class Shown:
    """Outputs of a submission's cells, up to `KEPT` in all.

    Args:
        notebook: rebuilt; outputs that it holds already count.
        cleaner: made by `cleaner`; it may be that of other notebooks.
    """

    def __init__(self, notebook: NotebookNode, cleaner: Child) -> None:
        self._cleaner = cleaner
        outputs = (cell.outputs for cell in notebook.cells if cell.get("outputs"))
        self.room = KEPT - sum(len(str(each)) for each in outputs)
        self._cells: list[NotebookNode] = []
        self._outputs: list[list] = []

    def keep(self, cell: NotebookNode, ran: Ran) -> None:
        """Show what a cell put out, once `write` is called."""
        if not ran.outputs:
            cell.outputs = []
            return
        self.room -= ran.size
        if self.room < 0:
            cell.outputs = _said(f"left out: all cells together put out more than {KEPT:,} bytes")
            return
        self._cells.append(cell)
        self._outputs.append(ran.outputs)

    def write(self) -> None:
        """Clean the outputs and put them into their cells."""
        if not self._cells:
            return
        try:
            text = self._cleaner.ask(self._outputs)
            clean: Sequence = [nbformat.from_dict(each) for each in json.loads(text)]
        except Unfinished as error:
            clean = [_said(f"left out: {error}") for _ in self._cells]
        for cell, outputs in zip(self._cells, clean, strict=True):
            cell.outputs = outputs


def cleaner() -> Child:
    """The child that cleans outputs: of many notebooks, each list as `sanitize_outputs` has it."""
    return Child(lambda outputs: json.dumps([*map(sanitize_outputs, outputs)]))


def _said(what: str) -> list[NotebookNode]:
    return [made_output("stream", name="stdout", text=f"[{what}]\n")]
