"""`course export`: write grades as a plain table, or into the file that an LMS imports.

`_export` contains the steps, and `request` their options and outcome. `lms` pairs the gradebook's
students and lessons with the rows and columns of an LMS.
"""

from course_lib.grading.exports._export import export, plain_cell
from course_lib.grading.exports.request import ExportRequest, Outcome
from course_lib.workspace.errors import ExportError

__all__ = ["ExportError", "ExportRequest", "Outcome", "export", "plain_cell"]
