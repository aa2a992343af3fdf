"""Work that did not change keeps its points until a person says otherwise.

When a check is fixed after grading, points that rise are taken at once. Points that would fall
stay, with the report that gave them, and the exercise is flagged; `--force` takes the new points.
"""

from __future__ import annotations

from collections.abc import Iterable

from nbformat import NotebookNode

from course_lib.grading.graded_cells import check_cells, grade_id, read_check


def take_over(notebook: NotebookNode, earlier: Iterable[NotebookNode], same: set[str]) -> set[str]:
    """Bring the outputs of checks that did not change into a rebuilt notebook.

    Args:
        notebook: rebuilt, not run; changed in place.
        earlier: check cells as they were graded before.
        same: exercises whose check is the same as then.

    Returns:
        The exercises that need not be judged.
    """
    kept = {grade_id(cell): cell.outputs for cell in earlier if grade_id(cell) in same}
    settled = set()
    for cell in check_cells(notebook):
        if (name := grade_id(cell)) in kept:
            cell.outputs = kept[name]
            settled.add(name)
    return settled


def keep_points(earlier: Iterable[NotebookNode], notebook: NotebookNode) -> dict[str, str]:
    """Put back the outputs of checks that gave the same work more points than now.

    Args:
        earlier: check cells as they were graded before.
        notebook: as it is graded now; changed in place.

    Returns:
        Why a person should look, by exercise.
    """
    before = {grade_id(cell): cell for cell in earlier}
    flagged = {}
    for cell in check_cells(notebook):
        known = before.get(grade_id(cell))
        if known is None:
            continue
        old, new = read_check(known), read_check(cell)
        if old.points is None or new.points is None or old.max_points != new.max_points:
            continue
        if new.points < old.points - 1e-6:
            cell.outputs = known.outputs
            flagged[new.exercise] = (
                f"graded again, this same work would get {new.points:g} instead of "
                f"{old.points:g} points, which it keeps; --force takes the new points"
            )
    return flagged
