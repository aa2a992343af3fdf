"""A running kernel and the process that started it, however that was done."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from course_lib.grading.kernels.guest.meter import Used
from course_lib.grading.kernels.sandbox import Reached


class KernelFault(Exception):
    """A kernel could not be had: the machine's fault, never the student's."""


@dataclass
class Kernel:
    """One running kernel.

    Args:
        name: unique among the kernels of this process.
        connection: what jupyter_client reads from a connection file.
        provider: who started it.
    """

    name: str
    connection: dict[str, Any]
    provider: Provider
    over: threading.Event = field(default_factory=threading.Event)
    ending: dict[str, Any] = field(default_factory=dict)

    def kill(self, wait: float = 5.0) -> dict[str, Any]:
        """End it and everything it started; return how it ended."""
        self.provider.kill(self)
        self.over.wait(wait)
        return self.ending

    def used(self) -> Used | None:
        """What it and everything it started have used; None where nothing is known (now)."""
        return self.provider.used(self)


class Provider(Protocol):
    """Starts kernels at one sandbox level."""

    reached: Reached

    def start(
        self, seed: int, env: dict[str, str] | None = None, imports: Sequence[str] = ()
    ) -> Kernel:
        """A new kernel; its sockets may not be bound yet.

        Args:
            seed: of its random generators.
            env: more variables of its environment.
            imports: modules that it finds imported, where it is forked.
        """
        ...

    def kill(self, kernel: Kernel) -> None:
        """End a kernel."""

    def used(self, kernel: Kernel) -> Used | None:
        """What a kernel has used up to now, read where it cannot forge it."""

    def close(self) -> None:
        """End all kernels and clean up."""
