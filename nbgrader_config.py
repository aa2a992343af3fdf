"""Configure stock nbgrader, its commands and formgrader, in this folder."""

import importlib.util
from pathlib import Path

c = get_config()  # noqa: F821  (defined by the loader)

c.CourseDirectory.course_id = "attention"

# This folder, even if a hub's own nbgrader_config.py names another one.
_ROOT = Path(__file__).resolve().parent
c.CourseDirectory.root = str(_ROOT)
c.CourseDirectory.db_url = f"sqlite:///{_ROOT / 'gradebook.db'}"

# `course build` writes both; they stay an ordinary nbgrader course without it.
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "notebooks"

# nbgrader copies every other file beside a notebook: *.py would release the lesson text with
# its answers, and let a submitted torch.py shadow the real one.
c.CourseDirectory.ignore = [
    ".*",
    "*.py",
    "*.pyc",
    "__pycache__",
    "feedback",
]

# The stubs that replace solutions in the release. The code stub is nbgrader's own, by which an
# unchanged answer is recognized as not attempted.
c.ClearSolutions.code_stub = {"python": "# YOUR CODE HERE\nraise NotImplementedError()"}
c.ClearSolutions.text_stub = "YOUR ANSWER HERE (double-click this cell to write)"

# The author's assertions stay in the source notebook, because they contain answers. A student's
# bundle makes no release and lacks this step.
if importlib.util.find_spec("course_lib.authoring"):
    c.GenerateAssignment.preprocessors.append("course_lib.authoring.assertions.StripAssertions")

# Seconds a cell may take. It is then interrupted and the next cell runs, so that one endless
# loop costs one exercise.
c.Execute.timeout = 60
c.Execute.interrupt_on_timeout = True

# Late work is recorded and shown, but loses no points.
c.LateSubmissionPlugin.penalty_method = "none"

# Autograde, with the course's own steps among nbgrader's: each answer is put into the release
# first, and points come from the check's report, so that stderr costs nothing. A student's bundle
# cannot grade and holds the same file.
if importlib.util.find_spec("course_lib.grading"):
    from course_lib.grading.publishing.feedback_page import FILTERS, STEPS, TEMPLATES
    from course_lib.grading.stock_nbgrader import AUTOGRADE, SANITIZE

    c.Autograde.sanitize_preprocessors = SANITIZE
    c.Autograde.autograde_preprocessors = AUTOGRADE

    # Write all feedback pages with the course's template.
    c.HTMLExporter.extra_template_basedirs = TEMPLATES
    c.HTMLExporter.filters = FILTERS
    c.GenerateFeedback.preprocessors = STEPS

# Hide kernels' warnings about their transport.
c.Execute.extra_arguments = ["--IPKernelApp.log_level=ERROR"]

# Cells that only show something are not run again for each student.
c.Execute.skip_cells_with_tag = "demo"
