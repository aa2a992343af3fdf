"""Grade one rebuilt notebook: run the student's cells in a kernel, judge what it shows here.

    Job --> Runner: kernel runs cells and observes; this process judges --> Result

Job and Result are plain data, so they cross to worker processes and to other machines. One
exercise never costs another: after a kernel's death the next one replays what did no harm.
"""

from __future__ import annotations

import ast
import hashlib
import html
import time
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_output

from course_lib.checks.catalogue import find
from course_lib.checks.codec import CodecError, decode, encode
from course_lib.checks.prepare import prepare
from course_lib.checks.probe import Array, Probe
from course_lib.checks.remote import MIMETYPE, REPLY_TYPES, Reply, Request
from course_lib.checks.report import Report
from course_lib.checks.verdict import judge_observed, still_missing
from course_lib.grading.kernels.client import Client, Ran
from course_lib.grading.kernels.provider import Kernel, KernelFault, Provider, provider
from course_lib.grading.kernels.sandbox import Limits
from course_lib.grading.tame import plain_text, tame_outputs, tame_tree
from course_lib.grading.verdict import REPORT, is_check

_OBSERVE = "__import__('course_lib.checks.remote', fromlist=['run']).run({!r})"
_READY_SECONDS = 30.0
_ANSWER = "-answer"
# What ended an exercise before it could be judged: the outcome, and what its student reads.
_ENDINGS = {
    "time": ("timed_out", "it did not end within {seconds:.0f} s (an endless loop?)"),
    "memory": ("out_of_memory", "it used more than {memory:.1f} GB of memory"),
    "processes": ("crashed", "it started more than {processes} processes"),
    "output": ("timed_out", "it printed more than {output:.0f} MB"),
    "crash": ("crashed", "it ended the kernel ({how})"),
    "silent": ("crashed", "after it ran, this notebook's kernel gave no readable answer"),
}
# Endings that an earlier exercise may have prepared: these are tried once more without it.
_MAYBE_ANOTHERS = ("silent", "crash", "memory", "processes")


@dataclass(frozen=True)
class Job:
    """One submission to grade.

    Args:
        student: only for messages.
        lesson: slug.
        key: names what is graded: submission, release, checks and seed.
        notebook: the rebuilt notebook as JSON text.
        seed: the secret from which the inputs of the checks are drawn.
    """

    student: str
    lesson: str
    key: str
    notebook: str
    seed: str


@dataclass
class Result:
    """What grading one submission gave.

    Attributes:
        notebook: the executed notebook as JSON text, with reports and points in its checks.
        fault: why the machine could not grade it, where that is not the student's doing.
        flagged: exercises for a person to look at, with the reason.
        seconds: wall time by step: "kernel", "cells", "observe", "judge", "total".
    """

    student: str
    lesson: str
    key: str
    notebook: str = ""
    fault: str | None = None
    flagged: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Runner:
    """Grades jobs one after the other, with kernels from one provider."""

    def __init__(self, sandbox: str | None = None, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.provider: Provider = provider(sandbox, self.limits)
        self._next: Kernel | None = None

    def run(self, job: Job) -> Result:
        """Grade one job. A fault of the machine is a Result with a `fault`, not an exception."""
        result = Result(job.student, job.lesson, job.key)
        started = time.monotonic()
        submission = _Submission(self, job, result)
        try:
            submission.grade()
        except KernelFault as error:
            result.fault = f"this machine could not run it: {error}"
        except Exception as error:  # one submission must not end the run
            what = f"{type(error).__name__}: {error}"[:300]
            result.fault = f"the grader itself failed ({what}): report it to the course"
        finally:
            submission.close()
        result.seconds["total"] = time.monotonic() - started
        return result

    def kernel(self) -> Kernel:
        """The kernel that was made ahead of need; the next one is begun."""
        ready, self._next = self._next or self.provider.start(0), None
        self._next = self.provider.start(0)
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
        self.until = time.monotonic() + self.limits.total_seconds

    def grade(self) -> None:
        """Run every cell in order; checks are observed and judged."""
        for index, cell in enumerate(self.notebook.cells):
            if cell.cell_type != "code" or "demo" in cell.metadata.get("tags", []):
                continue
            if self._spent():
                self.result.fault = (
                    f"it used up the {self.limits.total_seconds:.0f} s for a whole submission"
                )
                break
            if self.client is None:
                self._fresh_kernel(index)
            if is_check(cell):
                self._check(index, cell)
            else:
                self._run_cell(index, cell)
        self.result.notebook = nbformat.writes(self.notebook)

    def close(self) -> None:
        if self.client is not None:
            self.client.kernel.kill()
            self.client.close()
            self.client = None

    def _spent(self) -> bool:
        return time.monotonic() > self.until

    def _run_cell(self, index: int, cell: NotebookNode) -> None:
        ran = self._run(cell.source, "cells")
        if ran.state == "died" and self._why(ran) in _MAYBE_ANOTHERS:
            self._fresh_kernel(index)
            ran = self._run(cell.source, "cells")
        cell.outputs, cell.execution_count = tame_outputs(ran.outputs), ran.count
        if ran.state in ("died", "killed", "timeout"):
            self.harmful[index] = self._why(ran)
            self.close()  # what stopped in time may still fill the memory

    def _check(self, index: int, cell: NotebookNode) -> None:
        """Judge the exercise of a check cell; write report and points into the cell."""
        name = cell.metadata["nbgrader"]["grade_id"]
        answer = next((i for i, c in enumerate(self.notebook.cells) if _is_answer(c, name)), None)
        cell.execution_count = index + 1
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
        else:
            cell.outputs = self._ended(name, verdict, cell.metadata["nbgrader"]["points"])

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
        """The report on an exercise; or how its observation ended, a key of `_ENDINGS`."""
        exercise = find(name)
        probes = [probe for probe, _ in prepare(name, seed)]
        number = hashlib.sha256(f"{self.job.key}/{name}/{seed}".encode()).hexdigest()
        request = Request(name, probes, tuple(exercise.chain), exercise.takes_all, number)
        if self.client is None:
            self._fresh_kernel(index)
        ran = self._run(_OBSERVE.format(encode(request)), "observe", silent=True)
        reply = _reply_in(ran, number) if ran.state in ("ok", "error") else None
        if reply is None:
            why = self._why(ran)
            if ran.state in ("died", "killed"):
                self.close()
            return why
        started = time.monotonic()
        try:
            if reply.missing:
                return still_missing(exercise, reply.missing)
            if not _plausible(reply, probes):
                return "silent"
            if any(
                seen.raised and seen.raised.type_name == "MemoryError"
                for seen in reply.seen.values()
            ):
                return "memory"
            return judge_observed(
                name, seed, reply.subject, reply.seen, name_mistakes=name_mistakes
            )
        finally:
            self._spend("judge", started)

    def _run(self, code: str, step: str, *, silent: bool = False) -> Ran:
        started = time.monotonic()
        left = max(1.0, self.until - started)
        ran = self.client.run(code, min(self.limits.cell_seconds, left), silent=silent)
        self._spend(step, started)
        return ran

    def _connect(self) -> None:
        self.close()
        started = time.monotonic()
        self.client = Client(self.runner.kernel(), self.limits.output)
        self.client.wait_ready(_READY_SECONDS)
        self._spend("kernel", started)

    def _fresh_kernel(self, before: int, only: int | None = None) -> None:
        """A new kernel in which all harmless cells before an index have run again.

        With `only`, of all answers just that one runs: no other can have done damage.
        """
        self._connect()
        for index, cell in enumerate(self.notebook.cells[:before]):
            if cell.cell_type != "code" or "demo" in cell.metadata.get("tags", []):
                continue
            name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
            if index in self.harmful or (only not in (None, index) and name.endswith(_ANSWER)):
                continue
            if is_check(cell):  # lets the kernel remember the answer, for the integration
                self._run(_OBSERVE.format(encode(Request(name, []))), "observe", silent=True)
            else:
                ran = self._run(cell.source, "cells")
                if ran.state in ("died", "killed"):  # harmless before, and not now
                    self.harmful[index] = self._why(ran)
                    self._connect()

    def _why(self, ran: Ran) -> str:
        """Which of `_ENDINGS` it was."""
        reason = self.client.kernel.ending.get("reason", "") if self.client else ""
        if reason in ("memory", "processes", "time"):
            return reason
        if reason in ("zygote", "refused"):
            raise KernelFault(f"the kernel was lost ({reason})")
        if ran.flooded:
            return "output"
        if ran.state == "died":
            return "crash"
        return "time" if ran.state in ("timeout", "killed") else "silent"

    def _ended(self, name: str, why: str, points: float) -> list[NotebookNode]:
        outcome, words = _ENDINGS[why]
        sentence = words.format(
            seconds=self.limits.cell_seconds,
            memory=self.limits.memory / 1e9,
            processes=self.limits.processes,
            output=self.limits.output / 1e6,
            how="a crash, or an exit",
        )
        message = f"{name}: stopped, because {sentence}. The other exercises are judged as usual."
        report = {
            "exercise": name,
            "outcome": outcome,
            "score": 0.0,
            "points": 0.0,
            "max_points": float(points),
            "mistake": None,
            "findings": [{"id": outcome, "message": message, "hint": "", "part": "values"}],
        }
        fragment = f'<div role="status">{html.escape(message)}</div>'
        return _outputs(message, fragment, report, 0.0)

    def _spend(self, step: str, started: float) -> None:
        spent = self.result.seconds
        spent[step] = spent.get(step, 0.0) + time.monotonic() - started


def _is_answer(cell: NotebookNode, name: str) -> bool:
    return cell.metadata.get("nbgrader", {}).get("grade_id") == f"{name}{_ANSWER}"


def outputs_of(report: Report) -> list[NotebookNode]:
    """What a check cell shows of a report: the report, and the points as its value."""
    points = None if report.outcome == "checker_failed" else report.points
    return _outputs(report.text(), report.html(), report.as_dict(), points)


def _outputs(text: str, fragment: str, report: dict, points: float | None) -> list[NotebookNode]:
    data = {"text/plain": plain_text(text), "text/html": plain_text(fragment)}
    data[REPORT] = tame_tree(report)
    outputs = [new_output("display_data", data)]
    if points is not None:
        value = {"text/plain": repr(float(points))}
        outputs.append(new_output("execute_result", value, execution_count=None))
    return outputs


def _plausible(reply: Reply, probes: list[Probe]) -> bool:
    """Whether a reply is one that observing these probes can give: nobody else may have made it."""
    if reply.subject and not reply.subject.is_callable:
        return not reply.seen
    asked = {probe.name: probe for probe in probes}
    if probes[0].name not in reply.seen or not reply.seen.keys() <= asked.keys():
        return False
    return all(
        seen.raised is not None
        or (
            seen.outputs is not None
            and seen.attributes.keys() == set(asked[name].attributes)
            and seen.arguments.keys()
            == {n for n, value in asked[name].inputs().items() if isinstance(value, Array)}
        )
        for name, seen in reply.seen.items()
    )


def _reply_in(ran: Ran, number: str) -> Reply | None:
    """The one message of what was put out that answers our request, or None."""
    for output in ran.outputs:
        text: Any = output.get("data", {}).get(MIMETYPE)
        if text is not None:
            try:
                reply = decode(text, Reply, REPLY_TYPES)
            except CodecError:
                continue
            if reply.number == number:
                return reply
    return None
