"""`course rerun`: run one notebook as the grader does, and show what each cell printed.

It answers "it worked at home". Nothing is stored: no points, no page and no entry in the ledger.
"""

import contextlib
import platform
from importlib.metadata import version
from pathlib import Path

from nbformat import NotebookNode

from course_lib.grading.cell_kinds import grade_id, is_check, is_used
from course_lib.grading.class_folder import ClassFolder
from course_lib.grading.executors import executor
from course_lib.grading.graded import COMPLETE, INCOMPLETE
from course_lib.grading.intake.submissions import find_submissions
from course_lib.grading.jobs import Job, Settings
from course_lib.grading.plan import LessonToGrade, plan
from course_lib.grading.read_checks import read_check
from course_lib.workspace.text import one_line, plain_text

_MOST_LINES = 30  # of one cell's output
_DIFFERENT = """\
What differs from a kernel at home:
  - All cells run once, from the first to the last, in a new process. Names from deleted cells or
    from cells that ran in another order do not exist.
  - Each answer is put into the lesson as it was handed out. Checks that a student changed or
    deleted are back, and other cells of the lesson run as they were handed out.
  - Demo cells, and the lesson's cells that hold only comments, do not run.
  - The notebook has no network, cannot call input(), and finds only the files that it writes
    itself. It can import only the packages that the grader has.
  - A cell has {0.cell_seconds:g} s, and the notebook {0.total_seconds:g} s. Memory is limited to
    {memory:g} GB, and processes to {0.processes}.
  - Checks use inputs that the student has not seen."""


def rerun(root: Path, lesson: str, student: str, settings: Settings) -> tuple[int, list[str]]:
    """Return the exit code, 3 if the submission cannot be graded, and the lines to show."""
    task = LessonToGrade(ClassFolder(root), lesson, settings)
    (submission,) = find_submissions(task.course.step("submitted"), lesson, [student])
    planned = plan(task, submission, ())
    if not isinstance(planned, Job):
        return INCOMPLETE, [f"cannot be read: {planned.problem}"]
    with contextlib.closing(executor(settings, lesson)) as pool:
        (result,) = pool.run(iter([planned]))
    cells = result.notebook.cells if result.notebook else []
    code = [cell for cell in cells if cell.cell_type == "code"]
    lines = [line for at, cell in enumerate(code, 1) for line in _about(at, cell)]
    lines += [f"note: {one_line(notice, 1000)}" for notice in result.notices]
    lines += [f"not graded: {result.fault}"] if result.fault else []
    versions = [f"{name} {version(name)}" for name in ("torch", "numpy", "ipython")]
    lines.append(", ".join([f"Python {platform.python_version()}", *versions]))
    lines.append(_DIFFERENT.format(settings.limits, memory=settings.limits.memory / 1e9))
    return (INCOMPLETE if result.fault else COMPLETE), lines


def _about(at: int, cell: NotebookNode) -> list[str]:
    """Return a line about the code cell `at`, and what it printed or its check said."""
    first = next((line for line in cell.source.splitlines() if line.strip()), "empty")
    name = grade_id(cell) or one_line(first, 60)
    if not is_used(cell):
        return [f"[{at}] {name}: not run"]
    text = "\n".join(map(_text, cell.outputs))
    if is_check(cell):
        row = read_check(cell)
        points = "no points" if row.points is None else f"{row.points:g} of {row.max_points:g}"
        name = f"{name}: {row.outcome}, {points}"
        text = ": ".join(filter(None, [row.mistake, row.message, row.reason]))
    shown = plain_text(text).splitlines()
    if len(shown) > _MOST_LINES:
        shown[_MOST_LINES:] = [f"and {len(shown) - _MOST_LINES} more lines"]
    return [f"[{at}] {name}", *(f"      {line}" for line in shown)]


def _text(output: NotebookNode) -> str:
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return "\n".join(output.traceback) or f"{output.ename}: {output.evalue}"
    return output.data.get("text/plain", f"({', '.join(output.data)})")
