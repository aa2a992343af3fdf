"""`course bench attention`: the course's attentions against the textbook forms and PyTorch.

Every candidate of a problem computes the same numbers in the same run on one torch thread. What
counts is the ratio to the textbook form, the peak memory in a process of its own, and how far the
fast form is from the floor that the machine's own ceilings set.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from course_lib.benchmarks import attention_measure as measure
from course_lib.benchmarks.attention_plan import TARGETS, Target, problems
from course_lib.benchmarks.attention_problems import Problem, step

Tell = Callable[[str], None]
TOLERANCE = 2e-3  # between candidates, in float32
COMPILED = ("compiled", "formula", "flex")


@dataclass
class Row:
    """One problem, forward alone or with backward.

    Attributes:
        seconds: a call of each candidate, the median over the rounds.
        ratios: to the textbook form, the median of the ratios in each round.
        against_torch: of the fast form to PyTorch's own, if there is one.
        peaks: bytes beyond the inputs.
        floor: seconds below which the machine's ceilings let nobody go; None where not derived.
        failures: candidates that could not run, and why.
    """

    problem: str
    size: str
    passes: str
    seconds: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    against_torch: float | None = None
    peaks: dict[str, int] = field(default_factory=dict)
    floor: float | None = None
    failures: dict[str, str] = field(default_factory=dict)


@dataclass
class Verdict:
    """What a promise came to: the worst measured figure, or None if nothing was measured."""

    target: Target
    measured: float | None

    @property
    def met(self) -> bool | None:
        """Whether the promise is kept; None if it was not measured."""
        return None if self.measured is None else self.measured <= self.target.limit


@dataclass
class Comparison:
    """All rows, and what ran them."""

    rows: list[Row]
    machine: str
    device: str
    date: str
    quick: bool
    ceilings: measure.Ceilings

    def verdicts(self) -> list[Verdict]:
        """Every promise with what was measured."""
        return [Verdict(target, self._measured(target)) for target in TARGETS]

    def _measured(self, target: Target) -> float | None:
        found = []
        for row in self.rows:
            fits = row.problem.startswith(target.problem) and row.passes == target.passes
            values = row.peaks if target.memory else row.ratios
            if not fits or target.candidate not in values or target.base not in values:
                continue
            if not target.memory and target.base == "torch" and target.candidate == "fast":
                found.append(row.against_torch)
            else:
                found.append(values[target.candidate] / values[target.base])
        return max(found, default=None)

    def as_dict(self) -> dict:
        """JSON-able; times in seconds, memory in bytes."""
        verdicts = [
            {**asdict(v.target), "measured": v.measured, "met": v.met} for v in self.verdicts()
        ]
        return {
            "date": self.date,
            "machine": self.machine,
            "device": self.device,
            "quick": self.quick,
            "ceilings_per_second": asdict(self.ceilings),
            "rows": [asdict(row) for row in self.rows],
            "held_to": verdicts,
        }


def compare(
    *, quick: bool = False, device: str = "cpu", tell: Tell = lambda line: None
) -> Comparison:
    """Measure everything, from small to large.

    Args:
        quick: a choice of problems and of candidates that takes less than a minute.
        device: cpu or cuda.
        tell: called with a line at each step.

    Raises:
        ValueError: `device` is not there.
        RuntimeError: a candidate does not compute what the textbook form does.
    """
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise ValueError(f"`device` must be cpu, or cuda where torch sees a GPU; got {device}.")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        tell("ceilings of this machine")
        ceilings = measure.measure_ceilings(device)
        rows = []
        for problem in problems(quick=quick):
            torch._dynamo.reset()
            for passes in problem.passes[-1:] if quick else problem.passes:
                tell(f"{problem.name}, {passes}")
                rows.append(_row(problem, passes, ceilings, quick, device))
    finally:
        torch.set_num_threads(threads)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Comparison(rows, machine(device), device, today, quick, ceilings)


def _row(problem: Problem, passes: str, ceilings, quick: bool, device: str) -> Row:
    row = Row(problem.name, problem.size, passes)
    steps = _prepared(problem, passes, quick, device, row.failures)
    times = measure.race(steps, seconds=0.5 if quick else 2.5, device=device)
    row.seconds = {name: statistics.median(found) for name, found in times.items()}
    row.ratios = {name: measure.ratio(times, name, "textbook") for name in times}
    if {"fast", "torch"} <= times.keys():
        row.against_torch = measure.ratio(times, "fast", "torch")
    if passes in problem.work:
        row.floor = ceilings.floor(problem.work[passes])
    del steps
    if problem.size != "teaching" and passes == "both" and not quick:
        for name in ("textbook", "taught", "fast", "torch"):
            if name in times:
                peak = measure.peak_in_fresh_process(problem.name, name, passes, device)
                row.peaks |= {} if peak is None else {name: peak}
    return row


def _prepared(problem: Problem, passes: str, quick: bool, device: str, failures: dict) -> dict:
    """A warmed-up call for each candidate that can run and agrees with the textbook form."""
    steps, expected = {}, None
    for name in problem.candidates:
        if quick and name in COMPILED:
            continue
        try:
            call = step(problem, name, passes, device)
            outputs = call().detach()
        except (ImportError, NotImplementedError, RuntimeError, TypeError) as error:
            failures[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            continue
        expected = outputs if expected is None else expected
        difference = (outputs - expected).abs().max().item()
        if not difference < TOLERANCE:
            raise RuntimeError(f"{problem.name}: {name} differs from the textbook by {difference}")
        steps[name] = call
    return steps


def machine(device: str) -> str:
    """The machine in words."""
    model = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    cpu = model.partition(": ")[2] or platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = next((line for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "")
    gibibytes = f", {int(memory.split()[1]) / 2**20:.0f} GiB" if memory else ""
    gpu = f"; {torch.cuda.get_device_name()}" if device == "cuda" else ""
    return (
        f"{cpu}, {cores} cores, one of them used{gibibytes}{gpu}; {platform.system()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def to_json(comparison: Comparison) -> str:
    """The comparison as one JSON document."""
    return json.dumps(comparison.as_dict(), indent=2)


def from_json(text: str) -> Comparison:
    """The comparison that `to_json` wrote."""
    saved = json.loads(text)
    rows = [Row(**row) for row in saved["rows"]]
    ceilings = measure.Ceilings(**saved["ceilings_per_second"])
    about = {name: saved[name] for name in ("machine", "device", "date", "quick")}
    return Comparison(rows, **about, ceilings=ceilings)
