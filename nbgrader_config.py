"""What stock nbgrader reads: `nbgrader` commands and formgrader, run from this folder."""

c = get_config()  # noqa: F821  (defined by the loader)

c.CourseDirectory.course_id = "attention"

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

# Seconds a cell may take. It is then interrupted and the next cell runs, so that one endless
# loop costs one exercise.
c.Execute.timeout = 60
c.Execute.interrupt_on_timeout = True

# Late work is recorded and shown, and costs nothing.
c.LateSubmissionPlugin.penalty_method = "none"
