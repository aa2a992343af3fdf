"""A submission's kernel: runs its cells, is replaced when it is lost, and says why it was.

After a kernel's death the next one replays what did no harm, so one exercise never costs another.
"""

from __future__ import annotations

import functools
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbformat import NotebookNode

from course_lib.checks.observe.codec import encode
from course_lib.checks.observe.remote import ATTACHED, Request
from course_lib.grading.graded_cells import ANSWER, grade_id, is_check, is_plain_test, is_run
from course_lib.grading.judging.predecessors import Uses
from course_lib.grading.kernels.client import Client, Ran
from course_lib.grading.kernels.running_kernel import Kernel, KernelFault
from course_lib.grading.kernels.sandbox import Limits

READY_SECONDS = 300.0  # until a kernel answers; nothing of the student's runs in it yet
LOST = ("died", "killed", "timeout")  # states of `Ran` after which a kernel is not used again
_OBSERVE = "__import__('course_lib.checks.observe.remote', fromlist=['run']).run()"


class CannotJudge(Exception):
    """A submission gets no points and loses none: the reason is for a person."""


@dataclass
class Journal:
    """What grading a submission took: seconds by step, and a line for whatever happened."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def spend(self, step: str, seconds: float) -> None:
        """Add to the time of a step."""
        self.seconds[step] = self.seconds.get(step, 0.0) + seconds

    def note(self, what: str) -> None:
        """One more line, with the time."""
        self.lines.append(f"{time.monotonic() - self.started:8.3f} s  {what}")


class Session:
    """The kernel of one submission.

    Args:
        cells: of the notebook, as they are rerun in a new kernel.
        new_kernel: gives one that has just been started.
        limits: what the submission may use.
        journal: where time and events are noted.

    Attributes:
        harmful: cells that ended a kernel, by index, and why (a key of `check_outputs.ENDINGS`).
        stopped: exercises whose answer ended the kernel when it was called: none goes on with it.
        ours: source of the course's that runs in place of an answer, by exercise.
        only: exercises whose answers alone have run in this kernel; None if all have.
    """

    def __init__(
        self,
        cells: Sequence[NotebookNode],
        new_kernel: Callable[[], Kernel],
        limits: Limits,
        journal: Journal,
    ) -> None:
        self.cells, self.new_kernel, self.limits = cells, new_kernel, limits
        self.journal = journal
        self.harmful: dict[int, str] = {}
        self.stopped: set[str] = set()
        self.ours: dict[str, str] = {}
        self.only: set[str] | None = None
        self._client: Client | None = None
        self._received = 0  # bytes from kernels that have ended
        self._used = 0.0  # seconds of its own, of processor time and waiting

    @functools.cached_property
    def uses(self) -> Uses:
        """What the notebook's definitions name."""
        return Uses(self.cells)

    def run(self, code: str, index: int, *, silent: bool = False) -> Ran:
        """Run code where a cell's turn is, in a kernel that ran what comes before.

        Raises:
            KernelFault: a kernel was lost, and not by what ran in it.
        """
        if self._client is None:
            self.renew(index)
        return self._run(code, "cells", silent=silent)

    def observe(self, request: Request, index: int) -> Ran:
        """Call a student's answer as a request says, in place of the check at an index."""
        if self._client is None:
            self.renew(index)
        return self._run(_OBSERVE, "observe", silent=True, attached={ATTACHED: encode(request)})

    def remember(self, name: str, index: int) -> None:
        """Let the kernel remember an answer as it is now, for the integration."""
        self.observe(Request(name, []), index)

    def renew(self, before: int, only: set[str] | None = None) -> None:
        """A new kernel in which all harmless cells before an index have run again.

        With `only`, of all answers just those to these exercises run: no other can have done
        damage.
        """
        self._connect()
        self.only = only
        for index, cell in enumerate(self.cells[:before]):
            name = grade_id(cell).removesuffix(ANSWER)
            is_answer = grade_id(cell).endswith(ANSWER)
            if name in self.ours:
                if is_answer:
                    self._run(self.ours[name], "cells", silent=True)
            elif not is_run(cell) or index in self.harmful:
                continue
            elif is_check(cell) and not is_plain_test(cell):
                self.remember(name, index)
                if name in self.stopped:
                    self._run(f"globals().pop({name!r}, None)", "cells", silent=True)
            elif only is None or not is_answer or name in only:
                ran = self._run(cell.source, "cells")
                if ran.state in LOST:  # harmless before, and not now
                    self.harmful[index] = self.ending_of(ran)
                    self._connect()

    def ending_of(self, ran: Ran) -> str:
        """Why code did not end as it should: a key of `check_outputs.ENDINGS`.

        Raises:
            KernelFault: the kernel was lost, and not by what ran in it.
            CannotJudge: the machine was too busy to tell.
        """
        if ran.stopped == "ceiling":
            raise CannotJudge(
                "a cell neither ended nor got the processor time that it may use: this machine is "
                "too busy, or the cell hangs in the system; look at it, then grade it with --force"
            )
        ending = self._client.kernel.ending if self._client else {}
        reason = ending.get("reason", "")
        if reason in ("memory", "processes", "disk"):
            return reason
        if self._by_the_system(ran, ending):
            raise KernelFault("the system killed its kernel (out of memory?)")
        if reason in ("zygote", "refused"):
            raise KernelFault(f"its kernel was lost ({ending.get('detail') or reason})")
        if ran.flooded:
            return "output"
        if ran.state == "died":
            return "crash"
        if ran.state in ("timeout", "killed"):
            return "waiting" if ran.stopped == "waiting" else "time"
        return "silent"

    def check_budget(self) -> None:
        """See that the submission has not used up what it may use as a whole.

        Raises:
            CannotJudge: it has.
        """
        if self._used > self.limits.total_seconds:
            raise CannotJudge(
                f"it used up the {self.limits.total_seconds:.0f} s of processor time and "
                "waiting for a whole submission"
            )
        received = self._received + (self._client.received if self._client else 0)
        if received > self.limits.total_output:
            raise CannotJudge(
                f"it put out more than {self.limits.total_output / 1e6:.0f} MB in all: look at it"
            )

    def close(self) -> None:
        """End the kernel, if there is one."""
        if self._client is None:
            return
        ending = self._client.kernel.kill()
        self._received += self._client.received
        self._client.close()
        self._client = None
        for step, seconds in ending.get("spent", {}).items():
            self.journal.spend(step, seconds)
        peak = ending.get("peak", 0) / 1e6
        self.journal.note(f"kernel ended ({ending.get('reason', '?')}), at most {peak:.0f} MB")

    def _connect(self) -> None:
        self.close()
        started = time.monotonic()
        kernel = self.new_kernel()
        try:
            self._client = Client(kernel, self.limits.output).wait_ready(READY_SECONDS)
        except KernelFault:
            kernel.kill()
            raise
        self.journal.spend("kernel", time.monotonic() - started)
        self.journal.note("kernel ready")

    def _run(self, code: str, step: str, **options: Any) -> Ran:
        assert self._client is not None
        started = time.monotonic()
        ran = self._client.run(code, self.limits.cell_seconds, **options)
        self.journal.spend(step, time.monotonic() - started)
        self._used += ran.used.total
        return ran

    def _by_the_system(self, ran: Ran, ending: dict) -> bool:
        """Whether a kernel was killed from outside: at "strict" nothing within it can do that.

        Its watchdog may be hit instead. Linux kills a process that is out of processor time in
        the same way; that is the student's.
        """
        level = self._client.kernel.provider.reached.level if self._client else ""
        if level != "strict" or ran.state != "died":
            return False
        if ending.get("reason") == "killed":
            return True
        killed = ending.get("reason") == "signal" and ending.get("code") == signal.SIGKILL
        return killed and ending.get("cpu", 0.0) < 0.9 * self.limits.cpu_seconds
