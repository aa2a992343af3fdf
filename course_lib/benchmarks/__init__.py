"""Measure the course, and compare it with other tools on the same machine: `course bench`.

Each module measures one thing. Its result has `text()` for a terminal and `as_dict()` for JSON.
"""

import os
import platform


def machine() -> str:
    """Describe the machine in one line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = platform.python_version()
    return f"{platform.system()} {platform.machine()}, {cores} cores, Python {python}"
