"""Work that did not change keeps its points until a person says otherwise.

When a check is fixed after grading, points that rise are taken at once. Points that would fall
stay, with the report that gave them, and the exercise is flagged; `--force` takes the new points.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nbformat import NotebookNode

from course_lib.grading.graded_cells import check_cells, grade_id, read_check


def take_over(
    notebook: NotebookNode, earlier: Iterable[NotebookNode], names: Collection[str]
) -> None:
    """Copy the outputs that checks had before into a rebuilt notebook.

    Args:
        notebook: rebuilt, not run; changed in place.
        earlier: check cells as they were graded before.
        names: exercises whose outputs are copied.
    """
    outputs = {grade_id(cell): cell.outputs for cell in earlier if grade_id(cell) in names}
    for cell in check_cells(notebook):
        if (name := grade_id(cell)) in outputs:
            cell.outputs = outputs[name]


def keep_points(earlier: Iterable[NotebookNode], notebook: NotebookNode) -> dict[str, str]:
    """Put back the outputs of checks that gave the same work more points than now.

    Args:
        earlier: check cells as they were graded before.
        notebook: as it is graded now; changed in place.

    Returns:
        Why a person should look, by exercise.
    """
    now = {grade_id(cell): read_check(cell) for cell in check_cells(notebook)}
    flagged = {}
    for cell in earlier:
        old, new = read_check(cell), now.get(grade_id(cell))
        if new is None or old.points is None or new.points is None:
            continue
        if old.max_points == new.max_points and new.points < old.points - 1e-6:
            flagged[new.exercise] = (
                f"graded again, this same work would get {new.points:g} instead of "
                f"{old.points:g} points, which it keeps; --force takes the new points"
            )
    take_over(notebook, earlier, flagged)
    return flagged
