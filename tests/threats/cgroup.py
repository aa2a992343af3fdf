"""What a kernel's cgroup holds, on a system that has them: `python tests/threats/cgroup.py strict`.

Run by hand where memory and processes are controlled by cgroup v2 and this user may make groups.
Where they are not, an ordinary Linux can be started as a program (Debian's `user-mode-linux`) with
the machine's own files, and an init that mounts /proc, /sys, tmpfs on /tmp, and

    mount -t cgroup2 none /sys/fs/cgroup
    echo "+memory +pids" > /sys/fs/cgroup/cgroup.subtree_control
"""

import sys

from course_lib.grading.kernels import cgroup
from course_lib.grading.kernels.client import Client
from course_lib.grading.kernels.provider import provider

from course_lib.grading.sandbox.confinement import Limits

LIMITS = Limits(memory=900_000_000, processes=40, cell_seconds=600.0, total_seconds=3000.0)
HONEST = "print(open('/proc/self/cgroup').read())"
# Six children of 300 MB each: every one by itself is within its limits.
MEMORY = """import os, time
for _ in range(6):
    if os.fork() == 0:
        x = bytearray(b"x") * 300_000_000
        time.sleep(20)
        os._exit(0)
for _ in range(6):
    os.wait()"""
THREADS = """import threading, time
refused = 0
for _ in range(100):
    try:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    except RuntimeError:
        refused += 1
print(refused > 50)"""


def main(level: str) -> None:
    """Each cell in a kernel of its own; what became of it, and whether it is as it must be."""
    if cgroup.place() is None:
        sys.exit("no cgroup can be had here")
    kernels = provider(level, LIMITS)
    print(f"{kernels.reached}: {kernels.reached.holds}")
    for cell, state, says, reason in (
        (HONEST, "ok", "course-", "killed"),  # by us, as every kernel that is done
        (MEMORY, "died", "", "memory"),
        (THREADS, "ok", "True", "killed"),
    ):
        kernel = kernels.start(1)
        client = Client(kernel).wait_ready(600)
        ran = client.run(cell, 600)
        ending = kernel.kill()
        client.close()
        said = "".join(output.get("text", "") for output in ran.outputs)
        right = (ran.state, ending["reason"]) == (state, reason) and says in said
        print("as expected" if right else "OTHERWISE", ran.state, ending, said.strip())
    kernels.close()
    print("left behind:", [path.name for path in cgroup.place().glob("course-*")])


if __name__ == "__main__":
    main(sys.argv[1])
