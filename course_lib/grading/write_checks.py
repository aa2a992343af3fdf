"""Write what `read_checks` reads: reports, points and sanitized outputs of graded cells."""

from collections.abc import Mapping
from dataclasses import replace

from nbformat import NotebookNode

from course_lib.checks.judge.points import Points
from course_lib.checks.judge.report import Report
from course_lib.grading.cell_kinds import check_cells, grade_id
from course_lib.grading.clean_outputs import KEPT, made_output, sanitize_outputs, sanitize_tree
from course_lib.grading.read_checks import REPORT, TIMEOUT
from course_lib.grading.sandbox.guests import GuestResult
from course_lib.workspace.text import plain_text


def write_checks(notebook: NotebookNode, reports: Mapping[str, Report]) -> None:
    """Write reports into the check cells of an executed notebook, in place."""
    for cell in check_cells(notebook):
        if report := reports.get(grade_id(cell)):
            most = cell.metadata["nbgrader"]["points"]  # workers on other machines lack course.toml
            report = replace(report, max_points=most or report.max_points, starred=not most)
            data = {"text/plain": plain_text(report.text()), "text/html": plain_text(report.html())}
            data[REPORT] = sanitize_tree(report.as_dict())
            kind, more = "display_data", {}
            if report.outcome != "checker_failed":
                data = Points.shown_as(data, report.counted)._repr_mimebundle_()
                kind, more = "execute_result", {"execution_count": None}
            cell.outputs = [made_output(kind, data=data, metadata={}, **more)]


def room_for_outputs(notebook: NotebookNode) -> int:
    """Return how many more characters of output the cells of a rebuilt notebook may have."""
    outputs = (cell.outputs for cell in notebook.cells if cell.get("outputs"))
    return KEPT - sum(len(str(each)) for each in outputs)


def shown_of_cell(ran: GuestResult, room: int) -> list[NotebookNode]:
    """Return a cell's outputs, or a note that they are too large to store."""
    if room >= 0:
        return sanitize_outputs(ran.outputs)
    said = f"[left out: all cells together put out more than {KEPT:,} bytes]\n"
    return [made_output("stream", name="stdout", text=said)] if ran.outputs else []


def shown_of_test(ran: GuestResult, stopped: str | None) -> list[NotebookNode]:
    """Return the outputs of an ordinary test without tracebacks, which quote hidden tests.

    If it was `stopped` (a key of `ENDINGS`), that counts as an error, which scores 0.
    """
    found = sanitize_outputs(ran.outputs)
    errors = [output for output in found if output.output_type == "error"]
    for error in errors:
        error.traceback = []
    if stopped or (ran.state != "ok" and not errors):
        name = TIMEOUT if stopped in ("time", "waiting") else "DeadKernelError"
        said = f"the test was stopped ({stopped or ran.state})"
        found.append(made_output("error", ename=name, evalue=said, traceback=[]))
    return found
