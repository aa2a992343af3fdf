"""Work that did not change keeps its points until a person says otherwise.

When a check is fixed after grading, points that rise are taken at once. Points that would fall
stay, with the report that gave them, and the exercise is flagged; `--force` takes the new verdict.
"""

from __future__ import annotations

from collections.abc import Mapping

from nbformat import NotebookNode, from_dict

from course_lib.grading.verdict import is_check, judge_cell


def keep_points(before: Mapping | None, notebook: NotebookNode) -> dict[str, str]:
    """Put back the outputs of checks that gave the same work more points than now.

    Args:
        before: the notebook as it was graded the last time, if that can be read.
        notebook: as it is graded now; changed in place.

    Returns:
        Why a person should look, by exercise.
    """
    cells = before["cells"] if before else []
    earlier = {c["metadata"]["nbgrader"]["grade_id"]: from_dict(c) for c in cells if is_check(c)}
    flagged = {}
    for cell in filter(is_check, notebook.cells):
        known = earlier.get(cell.metadata.nbgrader.grade_id)
        if known is None:
            continue
        old, new = judge_cell(known), judge_cell(cell)
        comparable = None not in (old.points, new.points) and old.max_points == new.max_points
        if comparable and new.points < old.points - 1e-6:
            cell.outputs = known.outputs
            flagged[new.exercise] = (
                f"graded again, this same work would get {new.points:g} instead of "
                f"{old.points:g} points, which it keeps; --force takes the new verdict"
            )
    return flagged
