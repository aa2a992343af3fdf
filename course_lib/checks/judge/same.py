"""Whether two records hold the same numbers: what a student got and what a known mistake gives."""

import numpy as np

from course_lib.checks.judge.comparisons import arrays_agree, tolerance_for
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.record import Recorded


def same_records(probe: Probe, ours: dict, theirs: dict, least: float = 0.0) -> bool:
    return ours.keys() == theirs.keys() and all(
        same_record(probe, ours[key], theirs[key], least) for key in ours
    )


def same_record(
    probe: Probe, ours: Recorded | None, theirs: Recorded | None, least: float = 0.0
) -> bool:
    """Whether two records hold the same kinds, shapes and numbers."""
    if ours is None or theirs is None or ours.kind != theirs.kind:
        return ours is theirs
    if ours.items or theirs.items:
        return same_records(probe, ours.items, theirs.items, least)
    if ours.data is None or theirs.data is None:
        alike = ours.type_name == theirs.type_name and ours.text == theirs.text
        return ours.data is theirs.data and alike
    if ours.data.dtype.kind != theirs.data.dtype.kind:
        return False
    tolerance = max(tolerance_for(probe, ours), tolerance_for(probe, theirs), least)
    return arrays_agree(np.asarray(theirs.data), np.asarray(ours.data), tolerance)


def error_of(seen: Observation) -> object:
    """What tells one error from another: its type and how its message begins."""
    if (raised := seen.raised) is None:
        return None
    words = raised.message.split()
    words = words[1:] if words and words[0].endswith("()") else words  # whose function it is
    return raised.type_name, *words[:2]


UNEXPECTED = ("TypeError", "got", "an")  # unexpected keyword argument


def missing_from(seen: Observation) -> object:
    """What tells one module without the asked parameters from another."""
    return seen.without_parameters or sorted((seen.parameters or {}).items())
