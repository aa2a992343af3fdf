"""How `course bench attention` measures: time in turns, memory in a fresh process, ceilings.

On a CPU time is `time.process_time` of one thread, since wall times on shared cores mislead. In
each round the candidates run in random order, and only ratios within a round are compared: what
slows the machine for a while slows all of them.
"""

import contextlib
import gc
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from course_lib.benchmarks.memory import status

SHORTEST = 0.004  # seconds; what is faster is repeated until it takes as long
MEBIBYTE = 2**20


def clock(device: str) -> Callable[[], float]:
    """Seconds of work done so far: of this process on a CPU, else by the wall when all is done."""
    if device == "cpu":
        return time.process_time

    def now() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return now


def race(
    steps: dict[str, Callable[[], object]], *, seconds: float, device: str = "cpu", seed: int = 0
) -> dict[str, list[float]]:
    """Times what is to be compared, in turns.

    Args:
        steps: a call for each candidate, warmed up.
        seconds: about how long all of it may take; at least three rounds are run.
        device: where the work is done.
        seed: of the order in which candidates run.

    Returns:
        For each candidate the seconds a call took in each round, in the order of the rounds.
    """
    now, shuffle = clock(device), random.Random(seed).shuffle
    names, repeats = list(steps), {}
    for name in names:
        started = now()
        steps[name]()
        repeats[name] = max(1, round(SHORTEST / max(now() - started, 1e-6)))
    found = {name: [] for name in names}
    begun, rounds = now(), 0
    while rounds < 3 or (rounds < 41 and (now() - begun) * (rounds + 1) / rounds < seconds):
        shuffle(names)
        for name in names:
            started = now()
            for _ in range(repeats[name]):
                steps[name]()
            found[name].append((now() - started) / repeats[name])
        rounds += 1
    return found


def ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    """The median over the rounds of how long `name` took compared with `base`."""
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


# ---------------------------------------------------------------- memory
def peak_in_fresh_process(problem: str, candidate: str, passes: str, device: str) -> int | None:
    """Bytes that one call needs beyond its inputs, measured where nothing ran before.

    Returns None where that cannot be told: without Linux's /proc, or if the process failed.
    """
    module = "course_lib.benchmarks.attention_peak"
    command = [sys.executable, "-W", "ignore", "-m", module, problem, candidate, passes, device]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    last = done.stdout.split()[-1:]
    return int(last[0]) if done.returncode == 0 and last and last[0].isdigit() else None


def peak_of(call: Callable[[], object], device: str) -> int | None:
    """Bytes by which memory grew at most while `call` ran."""
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with contextlib.suppress(OSError):
        gc.collect()  # what is freed meanwhile would be taken off the growth
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
        before = status("VmRSS")
        call()
        return max(status("VmHWM") - before, 0)
    return None


# ---------------------------------------------------------------- ceilings
@dataclass(frozen=True)
class Work:
    """What a problem asks for at least, however it is computed in memory linear in n.

    Attributes:
        flops: of matrix products, a multiply-add counted as two.
        exps: exponentials.
        reciprocals: divisions, one for each feature of an additive score.
        numbers: float32 numbers read or written if each input and output is touched once.
    """

    flops: float = 0.0
    exps: float = 0.0
    reciprocals: float = 0.0
    numbers: float = 0.0


@dataclass(frozen=True)
class Ceilings:
    """How much one thread (or the device) does in a second, at best, measured in this run."""

    flops: float
    exps: float
    reciprocals: float
    numbers: float

    def floor(self, work: Work) -> float:
        """Seconds below which `work` cannot be done: arithmetic one after the other, or memory."""
        compute = work.flops / self.flops + work.exps / self.exps
        compute += work.reciprocals / self.reciprocals
        return max(compute, work.numbers / self.numbers)


def measure_ceilings(device: str = "cpu", repeats: int = 5) -> Ceilings:
    """Measures matrix products, exponentials and divisions in the cache, and copies outside it."""
    on_cpu = device == "cpu"
    side = 1024 if on_cpu else 8192
    a, b = (torch.randn(side, side, device=device) for _ in range(2))
    product = torch.empty(side, side, device=device)
    small = torch.rand(2**15 if on_cpu else 2**28, device=device)
    result = torch.empty_like(small)
    large = torch.zeros(2**27 if on_cpu else 2**30, device=device)  # 512 MiB, beyond most caches
    target = torch.empty_like(large)
    best = {
        "flops": (2 * side**3, lambda: torch.mm(a, b, out=product)),
        "exps": (small.numel(), lambda: torch.exp(small, out=result)),
        "reciprocals": (small.numel(), lambda: torch.reciprocal(small, out=result)),
        "numbers": (2 * large.numel(), lambda: target.copy_(large)),
    }
    rates = {}
    for name, (amount, call) in best.items():
        call()
        times = race({name: call}, seconds=0.05 * repeats, device=device)[name]
        rates[name] = amount / min(times)
    return Ceilings(**rates)
