"""Ordinary kernels, one started anew for each submission: where no process can be forked.

Slower by the time it takes to import torch, and nothing is shut in. The grades are the same.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence

import psutil
from jupyter_client.manager import KernelManager

from course_lib.grading.adapters.jupyter_client import connection_of, process_of
from course_lib.grading.kernels.environment import public_environment
from course_lib.grading.kernels.guest.meter import Used
from course_lib.grading.kernels.running_kernel import Kernel, KernelFault
from course_lib.grading.kernels.sandbox import Reached

_POLL_SECONDS = 0.2
_LOOK_SECONDS = 1.0  # time between two looks at what a kernel has used
_WAITS = 0.02  # of a processor: with less, it counts as waiting


class SpawnedKernels:
    """Starts kernels as jupyter_client does.

    Args:
        reached: the level, always "off", and why it is not more.
    """

    def __init__(self, reached: Reached) -> None:
        self.reached = reached
        self._managers: dict[str, KernelManager] = {}
        self._meters: dict[str, _Meter] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="course-spawned-")

    def start(
        self, seed: int, env: dict[str, str] | None = None, imports: Sequence[str] = ()
    ) -> Kernel:
        """Start a kernel in an empty folder.

        Raises:
            KernelFault: it does not start.
        """
        name = secrets.token_hex(4)
        place = os.path.join(self._folder.name, name)
        os.mkdir(place)
        environ = public_environment()
        environ |= {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **(env or {})}
        manager = KernelManager(kernel_name="python3")
        try:
            manager.start_kernel(env=environ, cwd=place, stderr=subprocess.DEVNULL)
            process = process_of(manager)
            self._meters[name] = _Meter(process.pid)
        except Exception as error:
            raise KernelFault(f"an ordinary kernel does not start: {error}") from error
        kernel = Kernel(name, connection_of(manager), self)
        self._managers[name] = manager
        threading.Thread(target=self._watch, args=[kernel, process], daemon=True).start()
        return kernel

    def _watch(self, kernel: Kernel, process: subprocess.Popen) -> None:
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
        kernel.ending = kernel.ending or {"reason": "exit"}
        kernel.over.set()

    def kill(self, kernel: Kernel) -> None:
        """End a kernel at once."""
        manager = self._managers.pop(kernel.name, None)
        self._meters.pop(kernel.name, None)
        if manager is not None:
            kernel.ending = kernel.ending or {"reason": "killed"}
            with contextlib.suppress(Exception):  # it may have ended by itself
                manager.shutdown_kernel(now=True)
            kernel.over.set()

    def used(self, kernel: Kernel) -> Used | None:
        """What the kernel has used, as the system says."""
        meter = self._meters.get(kernel.name)
        return meter and meter.look()

    def close(self) -> None:
        """End all kernels and remove their folders."""
        for manager in list(self._managers.values()):
            with contextlib.suppress(Exception):
                manager.shutdown_kernel(now=True)
        self._managers.clear()
        self._folder.cleanup()


class _Meter:
    """Adds up what a process and its children use, by what every system can say.

    Not every system says who could run: a process counts as waiting while it runs hardly at all.
    """

    def __init__(self, pid: int) -> None:
        self.process, self.used, self._last = psutil.Process(pid), Used(), time.monotonic()

    def look(self) -> Used:
        """What was used until now, a second ago at most."""
        elapsed = time.monotonic() - self._last
        if elapsed < _LOOK_SECONDS:
            return self.used
        self._last += elapsed
        processor = 0.0
        with contextlib.suppress(psutil.Error):
            for each in (self.process, *self.process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    processor += sum(each.cpu_times()[:4])  # its own, and its late children's
        ran = max(0.0, processor - self.used.processor)
        waited = min(elapsed, 2 * _LOOK_SECONDS) if ran < _WAITS * elapsed else 0.0
        self.used = Used(self.used.processor + ran, self.used.waiting + waited)
        return self.used
