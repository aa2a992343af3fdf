"""What can be made ready for an exercise and a seed before any answer is seen, and kept."""

import functools
import hashlib

import numpy as np

from course_lib.checks.catalogue import find
from course_lib.checks.exercise import Mistake
from course_lib.checks.judge import Expected, expect, judge
from course_lib.checks.observe import observe
from course_lib.checks.probe import Probe
from course_lib.checks.replay import Outcomes

CHECK_VERSION = "1"


@functools.lru_cache(maxsize=64)
def prepare(name: str, seed: str) -> tuple[tuple[Probe, Expected], ...]:
    """The probes of an exercise for a seed, each with what the oracle expects."""
    exercise = find(name)
    digest = hashlib.sha256(f"{seed}/{name}/{CHECK_VERSION}".encode()).digest()
    probes = exercise.probes(np.random.default_rng(list(digest)))
    assert len({probe.name for probe in probes}) == len(probes), "probe names must differ"
    return tuple((probe, expect(exercise, probe)) for probe in probes)


@functools.lru_cache(maxsize=64)
def replays(name: str, seed: str) -> tuple[tuple[Mistake, Outcomes], ...]:
    """What every known mistake of an exercise does on the probes of a seed."""
    exercise = find(name)
    results = []
    for mistake in exercise.mistakes:
        outcomes = {}
        for probe, expected in prepare(name, seed):
            seen = observe(mistake.model, probe)
            outcomes[probe.name] = (seen, judge(exercise, probe, expected, seen))
        results.append((mistake, outcomes))
    return tuple(results)
