"""Measure the course, and compare it with other tools on the same machine: `course bench`.

Each module measures one thing and returns plain data.
"""

import os
import platform
from pathlib import Path


def machine() -> str:
    """Describe the machine in one line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = platform.python_version()
    return f"{platform.system()} {platform.machine()}, {cores} cores, Python {python}"


def peak_memory() -> int:
    """Return the largest resident size of this program in bytes. Only Linux tells it.

    `getrusage` would also count the memory of the parent that forked it.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])
