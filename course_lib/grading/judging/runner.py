"""Grade one rebuilt notebook: run the student's cells in a kernel, judge what it shows here.

Job --> Runner: kernel runs cells and observes; this process judges --> Result
"""

from __future__ import annotations

import contextlib
import copy
import time
from pathlib import Path

import nbformat

from course_lib.grading.graded_cells import is_run
from course_lib.grading.jobs import Job, Result
from course_lib.grading.judging.cells import grade_cells
from course_lib.grading.judging.session import READY_SECONDS, CannotJudge, Journal, Session
from course_lib.grading.kernels.client import Client
from course_lib.grading.kernels.provider import provider
from course_lib.grading.kernels.running_kernel import Kernel, KernelFault, Provider
from course_lib.grading.kernels.sandbox import Limits
from course_lib.grading.ledger import MAX_ATTEMPTS
from course_lib.grading.publishing.shown import Shown
from course_lib.grading.regrade import keep_points

# What torch imports when something is first done, a second's work: an optimiser made, a gradient
# handed to a backward pass.
_LATE = {"torch.optim": "torch._dynamo", "backward(": "torch.fx.experimental.symbolic_shapes"}


class Runner:
    """Grades jobs one after the other, with kernels from one provider for each lesson.

    Args:
        sandbox: the level asked for; the best there is if None.
        limits: what each submission may use.
        zygote: folder of one that is shared with other runners.

    Attributes:
        provider: where kernels come from, for the lesson of the last job.
    """

    provider: Provider

    def __init__(
        self,
        sandbox: str | None = None,
        limits: Limits | None = None,
        zygote: Path | None = None,
    ) -> None:
        self.sandbox, self.limits, self.zygote = sandbox, limits or Limits(), zygote
        self._lesson: str | None = None
        self._next: Kernel | None = None
        self._imports: tuple[str, ...] = ()

    def open(self, lesson: str) -> None:
        """See that kernels are there for a lesson; those for another are ended.

        Raises:
            GradingError: this machine does not reach the sandbox level.
        """
        if lesson != self._lesson:
            self.close()
            self.provider = provider(self.sandbox, self.limits, self.zygote, lesson)
            self._lesson = lesson

    def run(self, job: Job) -> Result:
        """Grade one job. A fault of the machine is a Result with a `fault`, not an exception.

        Raises:
            GradingError: this machine does not reach the sandbox level.
        """
        self.open(job.lesson)
        result = Result(job.student, job.lesson, job.key)
        started = time.monotonic()
        run = "\n".join(cell.source for cell in job.notebook.cells if is_run(cell))
        self._imports = tuple(module for word, module in _LATE.items() if word in run)
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
        """Grade a job from its first cell, and write its notebook.

        Raises:
            KernelFault: a kernel was lost, and not by what ran in it.
            CannotJudge: no other attempt would end otherwise.
        """
        notebook = copy.deepcopy(job.notebook)
        journal = Journal(result.seconds, result.log)
        session = Session(notebook.cells, self.kernel, self.limits, journal)
        shown = Shown(notebook)
        try:
            result.flagged = grade_cells(session, job, notebook, shown)
        finally:
            session.close()
        kept = keep_points(job.earlier, notebook)
        result.flagged |= kept
        result.log += [f"{name}: {why}" for name, why in kept.items()]
        result.notebook = nbformat.writes(notebook)

    def _blame(self, why: str) -> str:
        """Whose fault it is that kernels were lost: a cell of ours is tried after it."""
        try:
            kernel = self.kernel()
            with contextlib.closing(Client(kernel).wait_ready(READY_SECONDS)) as ours:
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
        if self._lesson is not None:
            self.provider.close()
        self._lesson = self._next = None
