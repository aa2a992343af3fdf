"""The course's steps for stock `nbgrader autograde` and formgrader, unused by `course grade`.

nbgrader_config.py names them, so that stock nbgrader gives honest work the same grades.
"""

import os
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import KernelManager
from nbformat import NotebookNode
from nbgrader.preprocessors import Execute, NbGraderPreprocessor, SaveAutoGrades
from nbgrader.utils import determine_grade

from course_lib.grading.adapters.nbgrader import Grade, coursedir_of
from course_lib.grading.cell_kinds import grade_id, is_check, is_plain_test
from course_lib.grading.class_folder import SEED, secret_seed
from course_lib.grading.clean_outputs import sanitize_outputs
from course_lib.grading.intake.read import parse_release
from course_lib.grading.intake.rebuild import rebuild
from course_lib.grading.ledger import seed_of, work_of
from course_lib.grading.read_checks import read_check

# The settings of nbgrader_config.py, with nbgrader's steps and ours in their order.
SANITIZE = [
    "course_lib.grading.stock_nbgrader.RebuildSubmission",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.DeduplicateIds",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
AUTOGRADE = [
    "course_lib.grading.stock_nbgrader.ExecuteWithSeed",
    "course_lib.grading.stock_nbgrader.CleanOutputs",
    "nbgrader.preprocessors.LimitOutput",
    "course_lib.grading.stock_nbgrader.SaveCheckedGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]


class RebuildSubmission(NbGraderPreprocessor):
    """The first step of sanitizing, which puts the student's answers into the release notebook."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Replace the notebook by the rebuilt one, with notices in its metadata and the log."""
        about, course = resources["nbgrader"], coursedir_of(self)
        folder = course.format_path(course.release_directory, ".", about["assignment"])
        path = Path(folder) / f"{about['notebook']}.ipynb"
        if not path.is_file():
            self.log.warning("%s is missing: run `course build`", path)
            return nb, resources
        rebuilt, notices = rebuild(parse_release(path.read_text(encoding="utf-8")), nb.cells)
        for notice in notices:
            self.log.warning("%s: %s", about["student"], notice)
        rebuilt.metadata.setdefault("course", {})["notices"] = notices
        return rebuilt, resources


class ExecuteWithSeed(Execute):
    """nbgrader's Execute, with the settings of `c.Execute` and a seed from the course's secret.

    The kernel gets the submission's own seed, as under `course grade`, never the secret itself.
    """

    def preprocess(
        self, nb: NotebookNode, resources: Any = None, km: KernelManager | None = None
    ) -> tuple[NotebookNode, dict]:
        about, before = resources["nbgrader"], os.environ.get(SEED)
        private = Path(coursedir_of(self).root) / ".course" / "check_seed"
        work = work_of(nbformat.writes(nb).encode())
        os.environ[SEED] = seed_of(before or secret_seed(private), about["student"], work)
        try:
            return super().preprocess(nb, resources, km)
        finally:  # formgrader's server continues
            os.environ.pop(SEED)
            if before is not None:
                os.environ[SEED] = before


class CleanOutputs(NbGraderPreprocessor):
    """A step after execution that moves stderr of checks to stdout and sanitizes other outputs."""

    def preprocess_cell(
        self, cell: NotebookNode, resources: dict, index: int
    ) -> tuple[NotebookNode, dict]:
        if cell.cell_type == "code":
            if is_check(cell) and not is_plain_test(cell):
                for output in cell.outputs:
                    if output.output_type == "stream":
                        output.name = "stdout"
            else:
                cell.outputs = sanitize_outputs(cell.outputs)
        return cell, resources


class SaveCheckedGrades(SaveAutoGrades):
    """The step that saves scores. For check cells, `read_check` reads them."""

    def _add_score(self, cell: NotebookNode, resources: dict) -> None:
        row = read_check(cell) if is_check(cell) else None
        if row and row.reason:
            self.log.warning("%s, %s: %s", self.student_id, row.exercise, row.reason)
        place = self.notebook_id, self.assignment_id, self.student_id
        grade: Grade = self.gradebook.find_grade(grade_id(cell), *place)
        grade.auto_score = row.points if row else determine_grade(cell, self.log)[0]
        grade.needs_manual_grade = grade.manual_score is not None or grade.auto_score is None
        self.gradebook.db.commit()
