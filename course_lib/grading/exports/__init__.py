"""`course export`: grades as a plain table, or in the file that an LMS takes back.

`_export` holds the steps, and `request` what is asked of them and what they did. `sheet` reads and
writes CSV. `lms` pairs the gradebook's students and lessons with the rows and columns of an LMS.
"""

from course_lib.grading.exports._export import export
from course_lib.grading.exports.request import ExportRequest, Outcome
from course_lib.workspace.errors import ExportError

__all__ = ["ExportError", "ExportRequest", "Outcome", "export"]
