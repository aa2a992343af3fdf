"""A stand-in for the student's own library wherever a program runs the notebook.

It exports the course's versions, as `carry_on` returns there. In the sandbox of `course grade`,
`check` adds the answers that the notebook itself defines.
"""

from course_lib.attention import *  # noqa: F403
