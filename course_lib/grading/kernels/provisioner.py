"""The zygote as a jupyter_client kernel provisioner, for nbgrader, nbclient, nbval and Lab.

A kernelspec asks for it by name; `install` writes one called `course-sandbox`:

    {"metadata": {"kernel_provisioner": {"provisioner_name": "course-zygote",
                                         "config": {"sandbox": "strict"}}}}

Where no process can be forked, the kernelspec's own command is run instead.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets import Unicode

from course_lib.exercises import lessons
from course_lib.grading.adapters.jupyter_client import as_connection, interrupt_by_message
from course_lib.grading.kernels.forked import ForkedKernels
from course_lib.grading.kernels.provider import provider
from course_lib.grading.kernels.running_kernel import Kernel, Provider

KERNEL_NAME = "course-sandbox"
_POLL_SECONDS = 0.02
_providers: dict[tuple[str, str], Provider] = {}


class ZygoteProvisioner(LocalProvisioner):
    """Forks each kernel from one zygote for this process, sandbox level and lesson."""

    sandbox = Unicode("strict", help="strict, basic or off", config=True)

    kernel: Kernel | None = None

    @property
    def has_process(self) -> bool:
        """Whether there is a kernel, running or ended."""
        return self.kernel is not None or super().has_process

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Make the kernel, and let the manager speak to it.

        As nbgrader lays them out, a notebook lies in a folder that has its lesson's name.
        """
        lesson = Path(kwargs.get("cwd") or "").name
        forks = await asyncio.to_thread(_provider, self.sandbox, lesson)
        if not isinstance(forks, ForkedKernels):
            return await super().pre_launch(**kwargs)
        self.kernel = await asyncio.to_thread(forks.start, 0)
        connection = dict(self.kernel.connection)
        self.connection_info = as_connection({**connection, "key": connection["key"].encode()})
        if self.parent is not None:
            self.parent.transport = "ipc"
            self.parent.load_connection_info(self.connection_info)
        kwargs.pop("extra_arguments", None)
        return await KernelProvisionerBase.pre_launch(self, cmd=[], **kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """The kernel runs already; return how to connect."""
        if self.kernel is None:
            return await super().launch_kernel(cmd, **kwargs)
        return self.connection_info

    async def poll(self) -> int | None:
        """None while it runs, else its exit code."""
        if self.kernel is None:
            return await super().poll()
        if not self.kernel.over.is_set():
            return None
        return self.kernel.ending.get("code", 1) or 1

    async def wait(self) -> int | None:
        """Wait for its end; return its exit code and forget it."""
        if self.kernel is None:
            return await super().wait()
        while not self.kernel.over.is_set():
            await asyncio.sleep(_POLL_SECONDS)
        code, self.kernel = self.kernel.ending.get("code", 0), None
        return code

    async def send_signal(self, signum: int) -> None:
        """An interrupt goes as a message (`interrupt_mode`); any other signal ends the kernel."""
        if self.kernel is None:
            await super().send_signal(signum)
        elif signum == signal.SIGINT and self.parent is not None:
            interrupt_by_message(self.parent)
        elif signum != 0:
            await asyncio.to_thread(self.kernel.kill)

    async def kill(self, restart: bool = False) -> None:
        """End it and all that it started."""
        if self.kernel is None:
            await super().kill(restart)
        else:
            await asyncio.to_thread(self.kernel.kill)

    async def terminate(self, restart: bool = False) -> None:
        """As `kill`: nothing in a kernel is worth waiting for."""
        await self.kill(restart)

    async def cleanup(self, restart: bool = False) -> None:
        """The provider removes the kernel's files itself."""
        if self.kernel is None:
            await super().cleanup(restart)


def _provider(level: str, folder: str) -> Provider:
    place = level, folder if folder in lessons() else ""
    if place not in _providers:
        _providers[place] = provider(level, lesson=place[1])
        atexit.register(_providers[place].close)
    return _providers[place]


def install(prefix: str | None = None, sandbox: str = "strict") -> Path:
    """Write the kernelspec `course-sandbox` and return its folder.

    Args:
        prefix: where, as for `jupyter kernelspec install --prefix`; this environment if None.
        sandbox: the level that its kernels ask for.
    """
    folder = Path(prefix or sys.prefix) / "share" / "jupyter" / "kernels" / KERNEL_NAME
    folder.mkdir(parents=True, exist_ok=True)
    python = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    about = {
        "argv": python,
        "display_name": f"Attention course (sandbox {sandbox})",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {
            "kernel_provisioner": {
                "provisioner_name": "course-zygote",
                "config": {"sandbox": sandbox},
            }
        },
    }
    text = json.dumps(about, indent=1) + os.linesep
    (folder / "kernel.json").write_text(text, encoding="utf-8")
    return folder
