"""What stock nbgrader reads: `nbgrader` commands and formgrader, run from this folder."""

import importlib.util
from pathlib import Path

c = get_config()  # noqa: F821  (defined by the loader)

c.CourseDirectory.course_id = "attention"

# This folder, also where a hub's own nbgrader_config.py names another one.
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

# What stands in the release where a solution stood. The code stub is nbgrader's own: it makes an
# unchanged answer recognisable as not attempted.
c.ClearSolutions.code_stub = {"python": "# YOUR CODE HERE\nraise NotImplementedError()"}
c.ClearSolutions.text_stub = "YOUR ANSWER HERE (double-click this cell to write)"

# The author's assertions stay in the source notebook: a reader would find the answers in them. A
# student's bundle (`course release`) makes no release and lacks this step.
if importlib.util.find_spec("course_lib.authoring"):
    c.GenerateAssignment.preprocessors.append("course_lib.authoring.assertions.StripAssertions")

# Seconds a cell may take. It is then interrupted and the next cell runs, so that one endless
# loop costs one exercise.
c.Execute.timeout = 60
c.Execute.interrupt_on_timeout = True

# Late work is recorded and shown, and costs nothing.
c.LateSubmissionPlugin.penalty_method = "none"

# Autograde, with the course's own steps among nbgrader's: each answer is put into the release
# first, and points come from the check's report, so that stderr costs nothing. A student's bundle
# (`course release`) cannot grade and holds the same file.
if importlib.util.find_spec("course_lib.grading"):
    from course_lib.grading.publishing.feedback_page import FILTERS, STEPS, TEMPLATES
    from course_lib.grading.stock_nbgrader import AUTOGRADE, SANITIZE

    c.Autograde.sanitize_preprocessors = SANITIZE
    c.Autograde.autograde_preprocessors = AUTOGRADE

    # Feedback pages by the course's template, whoever writes them.
    c.HTMLExporter.extra_template_basedirs = TEMPLATES
    c.HTMLExporter.filters = FILTERS
    c.GenerateFeedback.preprocessors = STEPS

    # What an LMS gives out is unpacked with limits and sorted as by `course collect`.
    c.ZipCollectApp.extractor_plugin = "course_lib.collecting.unpack.SafeExtractor"
    c.ZipCollectApp.collector_plugin = "course_lib.collecting.collect.Collector"

# A kernel's warning about its own transport is not for the person who grades.
c.Execute.extra_arguments = ["--IPKernelApp.log_level=ERROR"]

# Cells that only show something are not run again for each student.
c.Execute.skip_cells_with_tag = "demo"
