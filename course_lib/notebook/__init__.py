"""The functions that a notebook calls, such as `check`, `hint`, `carry_on` and `progress`.

There are two implementations. `_judged_here` judges answers in this process, for students, the
build and stock nbgrader. `_without_judge` is for submissions that `course grade` runs in its
sandbox. The sandbox holds no judge, exercises or oracle, so the answers are judged outside it.

They are imported when they are first used, because `course progress` needs neither.
"""

import os
from typing import Any

_TOOLS = ("carry_on", "check", "hint", "own_version", "progress")


def __getattr__(name: str) -> Any:
    if name == "Spending":
        from course_lib.checks.observe.cost_meter import Spending

        return Spending
    if name not in _TOOLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "COURSE_WITHOUT_JUDGE" in os.environ:  # grading/sandbox/confinement.py sets it
        from course_lib.notebook import _without_judge as tools
    else:
        from course_lib.notebook import _judged_here as tools
    return getattr(tools, name)
