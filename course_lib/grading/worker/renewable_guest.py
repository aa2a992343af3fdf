"""Run a submission's cells in a guest, replace the guest if it is lost, and find out why.

After a guest's death, the next one runs all harmless cells again, so that one exercise never costs
points of another.
"""

import contextlib
import functools
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from nbformat import NotebookNode

from course_lib.checks.observe.codec import encode
from course_lib.checks.observe.remote import Request
from course_lib.exercises import find
from course_lib.grading.cell_kinds import (
    ANSWER,
    grade_id,
    is_check,
    is_plain_test,
    is_used,
    names_used,
)
from course_lib.grading.sandbox.confinement import Limits
from course_lib.grading.sandbox.guests import Guest, GuestLost, GuestResult

LOST = ("died", "killed", "timeout")  # states after which a guest is not used again
# Endings that an earlier exercise may have caused. These exercises are tried again without it.
MAYBE_ANOTHERS = ("silent", "crash", "memory", "processes")


class CannotJudge(Exception):
    """A submission cannot be judged. It is left blank, with a reason for the instructor."""


class OverBudget(CannotJudge):
    """A submission used up its total time or output."""


class RenewableGuest:
    """The guest of one submission, whose `cells` are rerun in each `new_guest`.

    `looked` is what the parser found in the student's cells, by index (`parsing.read_submission`).
    """

    def __init__(
        self,
        cells: Sequence[NotebookNode],
        new_guest: Callable[[], Guest],
        limits: Limits,
        looked: Mapping[int, Mapping[str, Any]],
    ) -> None:
        self.cells, self.new_guest, self.limits = cells, new_guest, limits
        self._looked = looked
        # Cells that ended a guest, by index, and why (a key of `judge_checks.ENDINGS`).
        self.harmful: dict[int, str] = {}
        # Notices about cells that ended the interpreter, or asked it to exit.
        self.notices: dict[int, str] = {}
        self.crowded = False  # whether threads or processes of earlier cells still run
        self.seconds: dict[str, float] = {}  # by step
        self.log: list[str] = []
        self._began = time.monotonic()
        self._guest: Guest | None = None
        self._ours: dict[str, str] = {}  # the course's sources that replace answers
        self._only: set[str] | None = None  # exercises whose answers ran; None for all
        self._left_out: set[int] = set()  # cells that could change a count
        self._stopped: set[str] = set()  # exercises whose answer ended the guest that called it
        self._received = 0  # bytes from guests that have ended
        self._used = 0.0  # seconds, see `GuestResult.seconds`

    @functools.cached_property
    def _touching(self) -> dict[int, str]:
        """Return the student's cells that could change a count, each with the line."""
        found = ((index, looked["touches"]) for index, looked in self._looked.items())
        return {n: f"Line {at[0]} of cell {n + 1}, `{at[1][:99]}`," for n, at in found if at}

    def touched(self, name: str, index: int) -> str:
        """Return what could change an exercise's counts, and leave out cells it does not need."""
        reached = self._reached(find(name).chain or (name,)) | {"*"}
        ran, needed = set(), []
        for n in (n for n in self._touching if n < index):
            answers = grade_id(self.cells[n]).removesuffix(ANSWER)
            if answers not in self._ours:
                ran.add(n)
                needed += [n] if reached & {answers, *(to for to, _ in self._names(n))} else []
        self.leave_out(set() if needed else ran)
        return self._touching[needed[0]] if needed else ""

    def leave_out(self, cells: set[int]) -> None:
        """Leave out these cells. If this is a change, run the others again in a new guest."""
        if cells != self._left_out:
            self.close()
        self._left_out = cells

    def _names(self, index: int) -> list[tuple[str, list[str]]]:
        return self._looked[index]["names"]

    def _reached(self, names: Collection[str], sources: Iterable[str] = ()) -> set[str]:
        """Return these names, and all they depend on in the student's cells and `sources`."""
        named = [one for index in self._looked for one in self._names(index)]
        named += [one for source in sources for one in names_used(source)]
        found = set(names)
        while new := {one for name, ones in named if name in found for one in ones} - found:
            found |= new
        return found

    def builds_on(self, names: Collection[str], sources: Iterable[str] = ()) -> list[str]:
        """Return the other exercises that some answers build on, in the notebook's order.

        The course's own `sources` count as answers, too.
        """
        found = self._reached(names, sources)
        exercises = (grade_id(cell) for cell in self.cells if is_check(cell))
        return [name for name in exercises if name in found and name not in names]

    def needed(self, name: str) -> set[str]:
        """Return the exercises whose answers an exercise needs, directly or indirectly."""
        judged = find(name).chain or (name,)
        return {*judged, *self.builds_on(judged)}

    @contextlib.contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the time of the `with` block to a step."""
        started = time.monotonic()
        yield
        self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - started

    def note(self, what: str) -> None:
        """Add a line to the log."""
        self.log.append(f"{time.monotonic() - self._began:8.3f} s  {what}")

    def run(self, code: str, index: int, *, history: bool = True) -> GuestResult:
        """Run code at a cell's position, in a guest that has run the cells before it."""
        return self._run(self._guest or self.renew(index), code, index, history=history)

    def run_cell(self, index: int) -> GuestResult:
        """Run a cell at its position, and record why if it ended the guest."""
        cell = self.cells[index]
        ran, name = self.run(cell.source, index), grade_id(cell)
        place = f"cell {index + 1} ({name})" if name else f"cell {index + 1}"
        if ran.left:
            self.notices[index] = f"{place} asked the interpreter to end: later cells ran"
        exercise = name.removesuffix(ANSWER) if name.endswith(ANSWER) else None
        died = ran.state == "died" and self.ending_of(ran) in MAYBE_ANOTHERS
        if died or (self.crowded and ran.state != "ok"):
            self.renew(index, self.needed(exercise) if exercise else None)
            ran = self.run(cell.source, index)
        if exercise and self._only is not None:
            self._only.add(exercise)
        why = ""
        if ran.state in LOST:
            self.harmful[index] = self.ending_of(ran)
            why = f" ({self.harmful[index]})"
            self.notices[index] = (
                f"{place} ended its process{why}: all other cells ran again without it"
            )
            self.close()  # an interrupted cell may still fill the memory
        if ran.state != "ok":
            name = name or cell.get("id", "")
            self.note(f"cell {index + 1} {name}: {ran.state}{why} after {ran.seconds:.2f} s")
        return ran

    def observe(
        self, request: Request, index: int, *, counts: bool = True
    ) -> tuple[str | None, str]:
        """Call a student's answer with a request's arguments, in place of the check at an index.

        Return the reply, and the key of `judge_checks.ENDINGS` if the call did not end normally.
        Unless it `counts`, an answer that ends the guest stays in use.
        """
        if self._guest and self._only is not None:
            needed = self.needed(request.name)
            if not needed <= self._only:
                self.renew(index, only=self._only | needed)
        ran = self._observe(self._guest or self.renew(index), request)
        ending = self.ending_of(ran)
        if ran.state in LOST:
            self._stopped |= {request.name} if counts else set()
            self.close()
        elif ran.state == "ok":
            self._stopped.discard(request.name)
        return ran.reply if ran.state == "ok" else None, ending

    def renew(self, before: int, only: set[str] | None = None) -> Guest:
        """Return a new guest in which all harmless cells before an index have run again.

        With `only`, run just the answers to these exercises, so that no other can do damage.
        """
        guest = self._connect()
        self._only = only
        for index, cell in enumerate(self.cells[:before]):
            self.check_budget()
            name = grade_id(cell).removesuffix(ANSWER)
            is_answer = grade_id(cell).endswith(ANSWER)
            if name in self._ours:
                if is_answer:
                    self._run(guest, self._ours[name], index, history=False)
            elif not is_used(cell) or index in self.harmful or index in self._left_out:
                continue
            elif is_check(cell) and not is_plain_test(cell):
                self._observe(guest, Request(name, []))
                if name in self._stopped:  # later cells do without it
                    self._run(guest, f"globals().pop({name!r}, None)", index, history=False)
            elif only is None or not is_answer or name in only:
                ran = self._run(guest, cell.source, index)
                if ran.state in LOST:  # it was harmless before
                    self.harmful[index] = self.ending_of(ran)
                    guest = self._connect()
        return guest

    def put_in_place(self, ours: Mapping[str, str], name: str) -> None:
        """Replace some answers by the course's in the next guest, and try this exercise again."""
        self.close()
        self._ours = dict(ours)
        for index, cell in enumerate(self.cells):
            if grade_id(cell) == f"{name}{ANSWER}":
                self.harmful.pop(index, None)

    def ending_of(self, ran: GuestResult) -> str:
        """Return why code did not end normally: a key of `judge_checks.ENDINGS`.

        Raises:
            GuestLost: the guest was lost, but not because of its code.
            CannotJudge: the machine was too busy to tell.
        """
        if ran.stopped == "ceiling":
            raise CannotJudge(
                "a cell neither ended nor got all the CPU time allowed: this machine is "
                "too busy, or the cell hangs in the system; look at it, then grade again"
            )
        ending = self._guest.kill() if self._guest and ran.state in LOST else {}
        reason = ending.get("reason", "")
        if reason in ("memory", "processes"):
            return reason
        # At "strict", nothing in a guest can kill it from outside. Linux also uses this signal for
        # a process that exceeds its CPU time, which is the student's fault.
        level = self._guest.level if self._guest else ""
        killed = reason == "signal" and ending.get("code") == signal.SIGKILL
        in_time = ending.get("cpu", 0.0) < 0.9 * self.limits.cpu_seconds
        if level == "strict" and ran.state == "died" and killed and in_time:
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
        """Raise OverBudget if the submission has used up its total time or output."""
        if self._used > self.limits.total_seconds:
            raise OverBudget(
                f"it used up the {self.limits.total_seconds:.0f} s of CPU and waiting time "
                "that a submission may take"
            )
        received = self._received + (self._guest.received if self._guest else 0)
        if received > self.limits.total_output:
            raise OverBudget(
                f"it put out more than {self.limits.total_output / 1e6:.0f} MB in all: look at it"
            )

    def close(self) -> None:
        """End the guest, if there is one."""
        if self._guest is None:
            return
        ending = self._guest.kill()
        self._received += self._guest.received
        self._guest = None
        self.seconds["cpu"] = self.seconds.get("cpu", 0.0) + ending.get("cpu", 0.0)
        peak = ending.get("peak", 0) / 1e6
        self.note(f"guest ended ({ending.get('reason', '?')}), at most {peak:.0f} MB")

    def _connect(self) -> Guest:
        self.close()
        self.crowded = False
        with self.timed("start"):
            self._guest = self.new_guest()
        self.note("guest ready")
        return self._guest

    def _run(self, guest: Guest, code: str, index: int, *, history: bool = True) -> GuestResult:
        cell_id = self.cells[index].get("id", "")
        with self.timed("cells"):
            ran = guest.run(code, self.limits.cell_seconds, history=history, cell_id=cell_id)
        self.crowded = ran.crowded
        self._used += ran.seconds
        return ran

    def _observe(self, guest: Guest, request: Request) -> GuestResult:
        with self.timed("observe"):
            ran = guest.observe(encode(request), self.limits.cell_seconds)
        self._used += ran.seconds
        return ran
