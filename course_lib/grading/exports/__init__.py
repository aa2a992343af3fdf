"""`course export`: grades as a plain table, or in the file that an LMS takes back.

`_export` holds the steps. `sheet` reads and writes CSV, `lms` finds students and assignments in the
files of Canvas, Moodle and Gradescope, `matching` pairs them with the gradebook's students and
lessons, and `outcome` reports what was written.
"""

from course_lib.grading.exports._export import ExportRequest, export
from course_lib.grading.exports.matching import Matching
from course_lib.grading.exports.outcome import LessonOutcome, Outcome
from course_lib.workspace.errors import ExportError

__all__ = ["ExportError", "ExportRequest", "LessonOutcome", "Matching", "Outcome", "export"]
