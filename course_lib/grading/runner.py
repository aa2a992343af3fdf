"""Grade one rebuilt notebook: run the student's cells in a kernel, judge what it shows here.

    Job --> Runner: kernel runs cells and observes; this process judges --> Result

One exercise never costs another: after a kernel's death the next one replays what did no harm.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import signal
import time
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.checks.judge.grade import judge_observed, still_missing
from course_lib.checks.judge.prepare import prepare
from course_lib.checks.judge.report import Report
from course_lib.checks.observe.codec import encode
from course_lib.checks.observe.remote import Request
from course_lib.exercises import find
from course_lib.grading.check_outputs import outputs_of, outputs_of_ending
from course_lib.grading.jobs import Job, Result
from course_lib.grading.kernels.client import Client, Ran
from course_lib.grading.kernels.kernel import Kernel, KernelFault, Provider
from course_lib.grading.kernels.provider import provider
from course_lib.grading.kernels.sandbox import Limits
from course_lib.grading.ledger import MAX_ATTEMPTS
from course_lib.grading.observation_reply import plausible, reply_in
from course_lib.grading.sanitize import tame_outputs
from course_lib.grading.verdict import is_check

_OBSERVE = "__import__('course_lib.checks.observe.remote', fromlist=['run']).run({!r})"
_READY_SECONDS = 300.0  # until a kernel answers; nothing of the student's runs in it yet
_ANSWER = "-answer"
# Endings that an earlier exercise may have prepared: these are tried once more without it.
_MAYBE_ANOTHERS = ("silent", "crash", "memory", "processes")


class CannotJudge(Exception):
    """A submission gets no points and loses none: the reason is for a person."""


class Runner:
    """Grades jobs one after the other, with kernels from one provider.

    Args:
        sandbox: the level asked for; the best there is if None.
        limits: what each submission may use.
        zygote: folder of one that is shared with other runners.
    """

    def __init__(
        self,
        sandbox: str | None = None,
        limits: Limits | None = None,
        zygote: Path | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.provider: Provider = provider(sandbox, self.limits, zygote)
        self._next: Kernel | None = None
        self._imports: tuple[str, ...] = ()

    def run(self, job: Job) -> Result:
        """Grade one job. A fault of the machine is a Result with a `fault`, not an exception."""
        result = Result(job.student, job.lesson, job.key)
        started = time.monotonic()
        # An optimiser imports torch's compiler when it is made, a second's work.
        self._imports = ("torch._dynamo",) if "torch.optim" in job.notebook else ()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                self._attempt(job, result)
                break
            except KernelFault as error:
                result.log.append(f"attempt {attempt}: {error}")
                if attempt == MAX_ATTEMPTS:
                    result.fault = self._blame(str(error))
            except CannotJudge as error:
                result.fault = str(error)
                break
            except Exception as error:  # one submission must not end the run
                what = f"{type(error).__name__}: {error}"[:300]
                result.fault = f"the grader itself failed ({what}): report it to the course"
                break
        result.seconds["total"] = time.monotonic() - started
        return result

    def _attempt(self, job: Job, result: Result) -> None:
        """Grade a job from its first cell.

        Raises:
            KernelFault: a kernel was lost, and not by what ran in it.
            CannotJudge: no other attempt would end otherwise.
        """
        result.flagged.clear()
        submission = _Submission(self, job, result)
        try:
            submission.grade()
        finally:
            submission.close()

    def _blame(self, why: str) -> str:
        """Whose fault it is that kernels were lost: a cell of ours is tried after it."""
        try:
            kernel = self.kernel()
            with contextlib.closing(Client(kernel).wait_ready(_READY_SECONDS)) as ours:
                ran = ours.run("1 + 1", self.limits.cell_seconds)
            kernel.kill()
        except KernelFault as error:
            return f"this machine runs no kernel now: {error}"
        if ran.state != "ok":
            return f"this machine runs no kernel now: {why}"
        return (
            f"its kernel was lost {MAX_ATTEMPTS} times, and one without it was not: {why}; look at "
            "it, then grade it with --force"
        )

    def kernel(self) -> Kernel:
        """The kernel that was made ahead of need; the next one is begun."""
        ready, self._next = self._next, None
        if ready is None or ready.over.is_set():  # none yet, or it was lost while it waited
            ready = self.provider.start(0, imports=self._imports)
        self._next = self.provider.start(0, imports=self._imports)
        return ready

    def close(self) -> None:
        """End all kernels."""
        self.provider.close()


class _Submission:
    """One notebook on its way through kernels and judge."""

    def __init__(self, runner: Runner, job: Job, result: Result) -> None:
        self.runner, self.job, self.result, self.limits = runner, job, result, runner.limits
        self.notebook = nbformat.reads(job.notebook, as_version=4)
        self.client: Client | None = None
        self.harmful: dict[int, str] = {}  # cells that ended a kernel, and why
        self.used = 0.0  # seconds of its own, of processor time and waiting
        self.started = time.monotonic()

    def grade(self) -> None:
        """Run every cell in order; checks are observed and judged."""
        for index, cell in enumerate(self.notebook.cells):
            if not _runs(cell):
                continue
            if self.used > self.limits.total_seconds:
                raise CannotJudge(
                    f"it used up the {self.limits.total_seconds:.0f} s of processor time and "
                    "waiting for a whole submission"
                )
            if self.client is None:
                self._fresh_kernel(index)
            if is_check(cell):
                self._check(index, cell)
            else:
                self._run_cell(index, cell)
        self.result.notebook = nbformat.writes(self.notebook)

    def close(self) -> None:
        """End the kernel, if there is one."""
        if self.client is not None:
            ending = self.client.kernel.kill()
            self.client.close()
            self.client = None
            for step, seconds in ending.get("spent", {}).items():
                self._spend(step, seconds)
            peak = ending.get("peak", 0) / 1e6
            self._note(f"kernel ended ({ending.get('reason', '?')}), at most {peak:.0f} MB")

    def _run_cell(self, index: int, cell: NotebookNode) -> None:
        ran = self._run(cell.source, "cells")
        if ran.state == "died" and self._why(ran) in _MAYBE_ANOTHERS:
            self._fresh_kernel(index)
            ran = self._run(cell.source, "cells")
        cell.outputs, cell.execution_count = tame_outputs(ran.outputs), ran.count
        if ran.state in ("died", "killed", "timeout"):
            self.harmful[index] = self._why(ran)
            self.close()  # what stopped in time may still fill the memory
        if ran.state != "ok":
            name = cell.metadata.get("nbgrader", {}).get("grade_id", cell.get("id", ""))
            why = f" ({self.harmful[index]})" if index in self.harmful else ""
            self._note(f"cell {index + 1} {name}: {ran.state}{why} after {ran.seconds:.2f} s")

    def _check(self, index: int, cell: NotebookNode) -> None:
        """Judge the exercise of a check cell; write report and points into the cell."""
        name = cell.metadata["nbgrader"]["grade_id"]
        cell.execution_count = index + 1
        if name in self.job.settled:
            self._remember(name)
            return
        answer = next((i for i, c in enumerate(self.notebook.cells) if _is_answer(c, name)), None)
        ending = self.harmful.get(answer)
        verdict = ending or self._judge(name, self.job.seed, index)
        if ending is None and verdict in _MAYBE_ANOTHERS:
            self._fresh_kernel(index, only=answer)
            verdict = self._judge(name, self.job.seed, index)
        if isinstance(verdict, Report) and verdict.outcome == "raised":
            # An earlier cell may have deleted what the lesson imports, torch for example.
            self._run(self._imports(index), "cells", silent=True)
            verdict = self._judge(name, self.job.seed, index)
        if isinstance(verdict, Report) and verdict.outcome in ("incorrect", "raised"):
            again = self._judge(name, f"{self.job.seed}/again", index, name_mistakes=False)
            if isinstance(again, Report) and again.outcome == "correct":
                self.result.flagged[name] = "wrong with one set of inputs, right with another"
        if isinstance(verdict, Report):
            cell.outputs = outputs_of(verdict)
            mistake = f" ({verdict.mistake})" if verdict.mistake else ""
            points = f"{verdict.points:g} of {verdict.max_points:g}"
            self._note(f"check {name}: {verdict.outcome}{mistake}, {points}")
        else:
            points = cell.metadata["nbgrader"]["points"]
            cell.outputs = outputs_of_ending(name, verdict, points, self.limits)
            self._note(f"check {name}: stopped ({verdict})")

    def _imports(self, before: int) -> str:
        """What the lesson itself imports before an index, but for the course's own solutions."""
        found = []
        for cell in self.notebook.cells[:before]:
            about = cell.metadata.get("nbgrader", {})
            if cell.cell_type == "code" and about.get("locked") and not is_check(cell):
                tree = ast.parse(cell.source)
                found += [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        return "\n".join(ast.unparse(node) for node in found)

    def _judge(
        self, name: str, seed: str, index: int, *, name_mistakes: bool = True
    ) -> Report | str:
        """The report on an exercise; or how its observation ended, a key of `ENDINGS`."""
        exercise = find(name)
        probes = [probe for probe, _ in prepare(exercise, seed)]
        number = hashlib.sha256(f"{self.job.key}/{name}/{seed}".encode()).hexdigest()
        request = Request(name, probes, tuple(exercise.chain), exercise.takes_all, number)
        if self.client is None:
            self._fresh_kernel(index)
        ran = self._run(_OBSERVE.format(encode(request)), "observe", silent=True)
        reply = reply_in(ran, number) if ran.state in ("ok", "error") else None
        if reply is None:
            why = self._why(ran)
            if ran.state in ("died", "killed", "timeout"):
                self.close()
            return why
        started = time.monotonic()
        try:
            if reply.missing:
                return still_missing(exercise, reply.missing)
            if not plausible(reply, probes):
                return "silent"
            if any(s.raised and s.raised.type_name == "MemoryError" for s in reply.seen.values()):
                return "memory"
            return judge_observed(
                exercise, seed, reply.subject, reply.seen, name_mistakes=name_mistakes
            )
        finally:
            self._spend("judge", time.monotonic() - started)

    def _remember(self, name: str) -> None:
        """Lets the kernel remember an answer as it is now, for the integration."""
        self._run(_OBSERVE.format(encode(Request(name, []))), "observe", silent=True)

    def _run(self, code: str, step: str, *, silent: bool = False) -> Ran:
        started = time.monotonic()
        ran = self.client.run(code, self.limits.cell_seconds, silent=silent)
        self._spend(step, time.monotonic() - started)
        self.used += ran.used.total
        return ran

    def _connect(self) -> None:
        self.close()
        started = time.monotonic()
        kernel = self.runner.kernel()
        try:
            self.client = Client(kernel, self.limits.output).wait_ready(_READY_SECONDS)
        except KernelFault:
            kernel.kill()
            raise
        self._spend("kernel", time.monotonic() - started)
        self._note("kernel ready")

    def _fresh_kernel(self, before: int, only: int | None = None) -> None:
        """A new kernel in which all harmless cells before an index have run again.

        With `only`, of all answers just that one runs: no other can have done damage.
        """
        self._connect()
        for index, cell in enumerate(self.notebook.cells[:before]):
            name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
            if not _runs(cell) or index in self.harmful:
                continue
            if only not in (None, index) and name.endswith(_ANSWER):
                continue
            if is_check(cell):
                self._remember(name)
            else:
                ran = self._run(cell.source, "cells")
                if ran.state in ("died", "killed", "timeout"):  # harmless before, and not now
                    self.harmful[index] = self._why(ran)
                    self._connect()

    def _why(self, ran: Ran) -> str:
        """Which of `ENDINGS` it was."""
        if ran.stopped == "ceiling":
            raise CannotJudge(
                "a cell neither ended nor got the processor time that it may use: this machine is "
                "too busy, or the cell hangs in the system; look at it, then grade it with --force"
            )
        ending = self.client.kernel.ending if self.client else {}
        reason = ending.get("reason", "")
        if reason in ("memory", "processes"):
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

    def _by_the_system(self, ran: Ran, ending: dict) -> bool:
        """Whether a kernel was killed from outside: at "strict" nothing within it can do that.

        Its watchdog may be hit instead. Linux kills a process that is out of processor time in
        the same way; that is the student's.
        """
        if self.runner.provider.reached.level != "strict" or ran.state != "died":
            return False
        if ending.get("reason") == "killed":
            return True
        killed = ending.get("reason") == "signal" and ending.get("code") == signal.SIGKILL
        return killed and ending.get("cpu", 0.0) < 0.9 * self.limits.cpu_seconds

    def _spend(self, step: str, seconds: float) -> None:
        spent = self.result.seconds
        spent[step] = spent.get(step, 0.0) + seconds

    def _note(self, what: str) -> None:
        self.result.log.append(f"{time.monotonic() - self.started:8.3f} s  {what}")


def _runs(cell: NotebookNode) -> bool:
    """Whether grading runs a cell: a code cell that is not for show."""
    return cell.cell_type == "code" and "demo" not in cell.metadata.get("tags", [])


def _is_answer(cell: NotebookNode, name: str) -> bool:
    return cell.metadata.get("nbgrader", {}).get("grade_id") == f"{name}{_ANSWER}"
