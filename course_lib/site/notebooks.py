"""The two forms in which the site has a lesson; both begin with the students' release."""

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

# What the lessons, the checks and the figures import beyond the standard library and IPython.
NEEDED = ("jaxtyping", "matplotlib", "numpy", "torch")

INSTALL = """\
# Where there is only this notebook, as on Colab, this cell installs the course and what it needs.
from importlib.util import find_spec

if find_spec("course_lib") is None:
    missing = [name for name in {needed} if find_spec(name) is None]
    %pip install --quiet --no-deps "attention-course @ git+{repository}"
    if missing:
        %pip install --quiet {{" ".join(missing)}}"""


def with_outputs(release: NotebookNode, solution: NotebookNode) -> NotebookNode:
    """The release with what its cells show in the solution notebook, found by cell id.

    Cells that a student answers, the checks below them and the cells that carry on stay without:
    their outputs belong to the course's answer.
    """
    outputs = {cell.id: cell.outputs for cell in solution.cells if cell.cell_type == "code"}
    for cell in release.cells:
        if cell.cell_type == "code" and not _is_exercise(cell):
            cell.outputs = outputs[cell.id]
    return release


def _is_exercise(cell: NotebookNode) -> bool:
    nbgrader = cell.metadata.get("nbgrader", {})
    carries_on = cell.id.endswith("-next")
    return bool(nbgrader.get("solution") or nbgrader.get("grade") or carries_on)


def launchable(release: NotebookNode, repository: str) -> NotebookNode:
    """The release with a first cell that installs the course where it is not installed.

    The cell changes nothing that is there already, and grading, which takes only the answers out
    of a submission, does not look at it.
    """
    source = INSTALL.format(needed=NEEDED, repository=repository)
    release.cells.insert(0, new_code_cell(source, id="install"))
    return release
