"""What can be made ready for an exercise and a seed before any answer is seen, and kept."""

import dataclasses
import functools
import hashlib
import os

import numpy as np
import torch

from course_lib.checks.catalogue import find
from course_lib.checks.exercise import Mistake
from course_lib.checks.judge import Expected, expect, judge
from course_lib.checks.observe import observe
from course_lib.checks.probe import Array, Probe
from course_lib.checks.replay import Outcomes

CHECK_VERSION = "1"


def accelerator() -> str | None:
    """The device on which answers are tried as well, in float32; None under grading."""
    usable = torch.cuda.is_available() and "NBGRADER_EXECUTION" not in os.environ
    return "cuda" if usable else None


@functools.lru_cache(maxsize=64)
def prepare(name: str, seed: str, device: str | None = None) -> tuple[tuple[Probe, Expected], ...]:
    """The probes of an exercise for a seed, each with what the oracle expects.

    With a device, the plain problems among them appear once more, there and in float32.
    """
    exercise = find(name)
    digest = hashlib.sha256(f"{seed}/{name}/{CHECK_VERSION}".encode()).digest()
    probes = exercise.probes(np.random.default_rng(list(digest)))
    assert len({probe.name for probe in probes}) == len(probes), "probe names must differ"
    runs = [(probe, expect(exercise, probe)) for probe in probes]
    if device is not None:
        runs += [(_moved(probe, device), expected) for probe, expected in runs if _moves(probe)]
    return tuple(runs)


def _moves(probe: Probe) -> bool:
    """Whether a probe means the same on another device in float32: plain values, no extremes."""
    arrays = [value for value in probe.inputs().values() if isinstance(value, Array)]
    plain = probe.part == "values" and probe.compare == "close" and probe.scenario == "call"
    return plain and bool(arrays) and all(array.kind == "tensor" for array in arrays)


def _moved(probe: Probe, device: str) -> Probe:
    says = f"{probe.says} (Here on {device} in float32.)"
    name = f"{probe.name}_on_{device}"
    return dataclasses.replace(probe, name=name, says=says, device=device, dtype="float32")


@functools.lru_cache(maxsize=64)
def replays(
    name: str, seed: str, device: str | None = None
) -> tuple[tuple[Mistake, Outcomes], ...]:
    """What every known mistake of an exercise does on the probes of a seed."""
    exercise = find(name)
    results = []
    for mistake in exercise.mistakes:
        outcomes = {}
        for probe, expected in prepare(name, seed, device):
            seen = observe(mistake.model, probe)
            outcomes[probe.name] = (seen, judge(exercise, probe, expected, seen))
        results.append((mistake, outcomes))
    return tuple(results)
