"""Read this process's memory use from /proc, which counts from the start of its program.

`getrusage` also counts the memory of the parent that forked it.
"""

from pathlib import Path


def status(name: str) -> int:
    """Return a size in bytes from /proc/self/status: "VmRSS" for now, "VmHWM" for the peak.

    Raises:
        OSError: this system has no /proc.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in /proc/self/status")
