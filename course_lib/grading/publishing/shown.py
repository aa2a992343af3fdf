"""Outputs of a submission's cells, cleaned and kept within one budget."""

from __future__ import annotations

from nbformat import NotebookNode

from course_lib.grading.sandbox.guests import Ran
from course_lib.grading.sanitize import KEPT, made_output, sanitize_outputs


class Shown:
    """Outputs of a submission's cells, up to `KEPT` in all.

    Args:
        notebook: rebuilt; outputs that it holds already count.
    """

    def __init__(self, notebook: NotebookNode) -> None:
        outputs = (cell.outputs for cell in notebook.cells if cell.get("outputs"))
        self.room = KEPT - sum(len(str(each)) for each in outputs)

    def keep(self, cell: NotebookNode, ran: Ran) -> None:
        """Put what a cell displayed into the cell."""
        self.room -= ran.size
        if self.room >= 0:
            cell.outputs = sanitize_outputs(ran.outputs)
        else:
            said = f"[left out: all cells together put out more than {KEPT:,} bytes]\n"
            cell.outputs = [made_output("stream", name="stdout", text=said)] if ran.outputs else []
