"""Grade one rebuilt notebook: run its cells in a guest, and judge the observations here."""

import socket
import time

from course_lib.grading.cell_kinds import check_cells, grade_id, is_used
from course_lib.grading.intake import parsing
from course_lib.grading.intake.ordinary_files import IntakeError
from course_lib.grading.jobs import MAX_ATTEMPTS, Job, Result, failed
from course_lib.grading.sandbox.confinement import Limits
from course_lib.grading.sandbox.guests import Guest, GuestLost
from course_lib.grading.sandbox.hosts import Guests, open_guests
from course_lib.grading.worker.cells import grade_cells
from course_lib.grading.worker.renewable_guest import CannotJudge, RenewableGuest
from course_lib.grading.write_checks import write_checks
from course_lib.workspace.errors import CourseError

# Modules that torch imports when it first makes an optimizer or runs a backward pass.
_LATE = {"torch.optim": "torch._dynamo", "backward(": "torch.fx.experimental.symbolic_shapes"}


class Runner:
    """A grader of jobs, one after the other, with guests from one host for each lesson.

    The `channel` leads to a host that is shared with other runners and serves one lesson.
    """

    guests: Guests  # for the last job's lesson

    def __init__(
        self,
        sandbox: str | None = None,
        limits: Limits | None = None,
        channel: socket.socket | None = None,
    ) -> None:
        self.sandbox, self.limits, self.channel = sandbox, limits or Limits(), channel
        self._lesson: str | None = None
        self._next: Guest | None = None
        self._imports: tuple[str, ...] = ()

    def open(self, lesson: str) -> None:
        """Start guests for a lesson, and end those of other lessons."""
        if lesson != self._lesson:
            channel, self.channel = self.channel, None
            self.close()
            parsing.start()  # its imports run meanwhile
            self.guests = open_guests(self.sandbox, self.limits, lesson, channel)
            self._lesson = lesson

    def run(self, job: Job) -> Result:
        """Grade one job. If it cannot be graded, return a Result with a `fault`.

        Raises:
            CourseError: no job can be graded here.
        """
        result = job.result()
        started, cpu = time.monotonic(), time.process_time()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                self.open(job.lesson)
                self._grade(job, parsing.read_submission(job), result)
                break
            except GuestLost as error:
                result.log.append(f"attempt {attempt}: {error}")
                if attempt == MAX_ATTEMPTS:
                    result.fault = self._blame(str(error))
            except (IntakeError, CannotJudge) as error:
                result.fault, result.is_final = str(error), getattr(error, "is_final", False)
                break
            except CourseError:  # no submission can be graded here
                raise
            except Exception as error:  # one submission must not end the run
                result.fault = failed(error)
                break
        result.seconds["total"] = time.monotonic() - started
        cpu = time.process_time() - cpu + result.seconds.get("cpu", 0.0)
        result.seconds["cpu"] = cpu
        return result

    def _grade(self, job: Job, read: parsing.Read, result: Result) -> None:
        """Grade a rebuilt notebook from its first cell."""
        notebook, notices, looked = read
        result.notices = tuple(notices)
        for cell in check_cells(notebook):
            cell.source = job.tests.get(grade_id(cell), cell.source)
        run = "\n".join(cell.source for cell in notebook.cells if is_used(cell))
        self._imports = tuple(module for word, module in _LATE.items() if word in run)
        guest = RenewableGuest(notebook.cells, self.guest, self.limits, looked)
        try:
            reports = grade_cells(guest, job, notebook)
        finally:
            guest.close()
            result.seconds = guest.seconds
            result.log += guest.log
        result.notices += tuple(notice for _, notice in sorted(guest.notices.items()))
        write_checks(notebook, reports)
        result.notebook = notebook

    def _blame(self, why: str) -> str:
        """Run a trivial cell to find out whether the machine or the submission lost its guests."""
        try:
            guest = self.guest()
            ran = guest.run("1 + 1", self.limits.cell_seconds)
            guest.kill()
        except GuestLost as error:
            return f"no notebook can run here: {error}"
        if ran.state != "ok":
            return f"no notebook can run here: {why}"
        return (
            f"its process died {MAX_ATTEMPTS} times while others ran: {why}; look at the notebook, "
            "then grade again"
        )

    def guest(self) -> Guest:
        """Return the guest that was started in advance, and start the next one."""
        ready, self._next = self._next, None
        if ready is not None and ready.is_over:  # the guest died before its first use
            ready.kill()
        if ready is None or ready.is_over:
            ready = self.guests.start(self._imports)
        self._next = self.guests.start(self._imports)
        return ready.wait_ready()

    def close(self) -> None:
        if self._next is not None:
            self._next.kill()
        parsing.stop()
        if self.channel is not None:  # no job came
            self.channel.close()
            self.channel = None
        if self._lesson is not None:
            self.guests.close()
        self._lesson = self._next = None
