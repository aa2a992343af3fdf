"""A submission's guest: runs its cells, is replaced when it is lost, and says why it was.

After a guest's death the next one runs all harmless cells again, so one exercise never costs
another.
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
from course_lib.checks.observe.remote import Request
from course_lib.grading.graded_cells import ANSWER, grade_id, is_check, is_plain_test, is_run
from course_lib.grading.judging.predecessors import Uses
from course_lib.grading.sandbox.confinement import Limits
from course_lib.grading.sandbox.guests import Guest, GuestLost, Ran

LOST = ("died", "killed", "timeout")  # states of `Ran` after which a guest is not used again


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
    """The guest of one submission.

    Args:
        cells: of the notebook, as they are rerun in a new guest.
        new_guest: gives one that has just been started.
        limits: what the submission may use.
        journal: where time and events are noted.

    Attributes:
        harmful: cells that ended a guest, by index, and why (a key of `exercise.ENDINGS`).
        stopped: exercises whose answer ended the guest when it was called: none goes on with it.
        notices: what a person should know of cells that ended the interpreter, or asked it to.
        ours: source of the course's that runs in place of an answer, by exercise.
        only: exercises whose answers alone have run in this guest; None if all have.
        crowded: whether threads or processes of earlier cells still run in this guest.
    """

    def __init__(
        self,
        cells: Sequence[NotebookNode],
        new_guest: Callable[[], Guest],
        limits: Limits,
        journal: Journal,
    ) -> None:
        self.cells, self.new_guest, self.limits = cells, new_guest, limits
        self.journal = journal
        self.harmful: dict[int, str] = {}
        self.stopped: set[str] = set()
        self.ours: dict[str, str] = {}
        self.only: set[str] | None = None
        self.crowded = False
        self.notices: dict[int, str] = {}
        self._guest: Guest | None = None
        self._received = 0  # bytes from guests that have ended
        self._used = 0.0  # seconds, see `Ran.seconds`

    @functools.cached_property
    def uses(self) -> Uses:
        """What the notebook's definitions name."""
        return Uses(self.cells)

    def run(self, code: str, index: int, *, history: bool = True) -> Ran:
        """Run code where a cell's turn is, in a guest that ran what comes before.

        Raises:
            GuestLost: a guest was lost, and not by what ran in it.
        """
        return self._run(self._guest_at(index), code, index, history=history)

    def observe(self, request: Request, index: int) -> Ran:
        """Call a student's answer as a request says, in place of the check at an index."""
        return self._observe(self._guest_at(index), request)

    def remember(self, name: str, index: int) -> None:
        """Let the guest remember an answer as it is now, for the integration."""
        self.observe(Request(name, []), index)

    def renew(self, before: int, only: set[str] | None = None) -> Guest:
        """Return a new guest in which all harmless cells before an index have run again.

        With `only`, of all answers just those to these exercises run: no other can have done
        damage.
        """
        guest = self._connect()
        self.only = only
        for index, cell in enumerate(self.cells[:before]):
            name = grade_id(cell).removesuffix(ANSWER)
            is_answer = grade_id(cell).endswith(ANSWER)
            if name in self.ours:
                if is_answer:
                    self._run(guest, self.ours[name], index, history=False)
            elif not is_run(cell) or index in self.harmful:
                continue
            elif is_check(cell) and not is_plain_test(cell):
                self._observe(guest, Request(name, []))
                if name in self.stopped:
                    self._run(guest, f"globals().pop({name!r}, None)", index, history=False)
            elif only is None or not is_answer or name in only:
                ran = self._run(guest, cell.source, index)
                if ran.state in LOST:  # harmless before, and not now
                    self.harmful[index] = self.ending_of(ran)
                    guest = self._connect()
        return guest

    def ending_of(self, ran: Ran) -> str:
        """Why code did not end as it should: a key of `exercise.ENDINGS`.

        Raises:
            GuestLost: the guest was lost, and not by what ran in it.
            CannotJudge: the machine was too busy to tell.
        """
        if ran.stopped == "ceiling":
            raise CannotJudge(
                "a cell neither ended nor got the processor time that it may use: this machine is "
                "too busy, or the cell hangs in the system; look at it, then grade it with --force"
            )
        ending = self._guest.kill() if self._guest and ran.state in LOST else {}
        reason = ending.get("reason", "")
        if reason in ("memory", "processes"):
            return reason
        if self._by_the_system(ran, ending):
            raise GuestLost("the system killed its process (out of memory?)")
        if reason in ("host", "refused"):
            raise GuestLost(f"its process was lost ({ending.get('detail') or reason})")
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
        received = self._received + (self._guest.received if self._guest else 0)
        if received > self.limits.total_output:
            raise CannotJudge(
                f"it put out more than {self.limits.total_output / 1e6:.0f} MB in all: look at it"
            )

    def close(self) -> None:
        """End the guest, if there is one."""
        if self._guest is None:
            return
        ending = self._guest.kill()
        self._received += self._guest.received
        self._guest = None
        self.journal.spend("cpu", ending.get("cpu", 0.0))
        peak = ending.get("peak", 0) / 1e6
        self.journal.note(f"guest ended ({ending.get('reason', '?')}), at most {peak:.0f} MB")

    def _guest_at(self, index: int) -> Guest:
        return self._guest or self.renew(index)

    def _connect(self) -> Guest:
        self.close()
        started = time.monotonic()
        self.crowded = False
        self._guest = self.new_guest()
        self.journal.spend("start", time.monotonic() - started)
        self.journal.note("guest ready")
        return self._guest

    def _run(self, guest: Guest, code: str, index: int, *, history: bool = True) -> Ran:
        started = time.monotonic()
        cell_id = self.cells[index].get("id", "")
        ran = guest.run(code, self.limits.cell_seconds, history=history, cell_id=cell_id)
        self.journal.spend("cells", time.monotonic() - started)
        self.crowded = ran.crowded
        self._used += ran.seconds
        return ran

    def _observe(self, guest: Guest, request: Request) -> Ran:
        started = time.monotonic()
        ran = guest.observe(encode(request), self.limits.cell_seconds)
        self.journal.spend("observe", time.monotonic() - started)
        self._used += ran.seconds
        return ran

    def _by_the_system(self, ran: Ran, ending: dict[str, Any]) -> bool:
        """Return whether a guest was killed from outside: at "strict", nothing in it can do that.

        Linux kills a process that is out of processor time in the same way; that is the student's.
        """
        level = self._guest.level if self._guest else ""
        killed = ending.get("reason") == "signal" and ending.get("code") == signal.SIGKILL
        cpu = ending.get("cpu", 0.0)
        in_time = cpu < 0.9 * self.limits.cpu_seconds
        return level == "strict" and ran.state == "died" and killed and in_time
