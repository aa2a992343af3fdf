"""Stands in for a student's own library wherever a program runs the notebook.

It gives the course's versions, which is what `carry_on` gives there. In the sandbox of
`course grade`, `check` adds the answers that the notebook itself defines.
"""

from course_lib.attention import *  # noqa: F403
