"""A stand-in for the student's own library wherever a program runs the notebook.

It exports the course's versions, as `carry_on` returns there. In the sandbox of `course grade`,
a call of `check` in a student's own cell adds the answer that the notebook defines.
"""

from course_lib.attention import *  # noqa: F403
