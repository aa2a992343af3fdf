"""Decides what an observation violates, from the probe and the oracle alone.

Pure functions on plain data. A violation belongs to an aspect (raised, type, shape, values,
gradients, mutated, dtype, ...); the aspects in `HYGIENE` count for the hygiene share whatever
the probe, the others for the probe's own part.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from course_lib.checks.judge.comparisons import COMPARISONS, Problem, arrays_agree, tolerance_for
from course_lib.checks.judge.contract import (
    converted,
    describe,
    wrong_device,
    wrong_dtype,
    wrong_shape,
    wrong_type,
)
from course_lib.checks.judge.exercise import Exercise
from course_lib.checks.judge.spending import overspent
from course_lib.checks.judge.stopped import raised_problem
from course_lib.checks.observe.observation import Observation
from course_lib.checks.observe.probe import Probe
from course_lib.checks.observe.record import Recorded
from course_lib.reference import Expected

HYGIENE = ("mutated", "dtype", "device", "rng", "training", "attached")


@dataclass(frozen=True)
class Violation:
    """One thing that one probe found wrong."""

    probe: Probe
    aspect: str
    problem: Problem
    part: str


Found = tuple[str, Problem | None]  # an aspect, and what is wrong in it


def judge(
    exercise: Exercise, probe: Probe, expected: Expected, seen: Observation
) -> list[Violation]:
    """All violations of one observation, the most basic first."""
    found: list[Found] = [("mutated", _mutation_problem(name)) for name in mutated(probe, seen)]
    if probe.raises:
        found.append(("raised", _expected_error(probe, seen)))
    elif seen.raised is not None:
        found.append(("raised", raised_problem(probe, seen, seen.raised)))
    else:
        found += _of_a_call_that_returned(exercise, probe, expected, seen)
    return [
        Violation(probe, aspect, problem, "hygiene" if aspect in HYGIENE else probe.part)
        for aspect, problem in found
        if problem is not None
    ]


def _of_a_call_that_returned(
    exercise: Exercise, probe: Probe, expected: Expected, seen: Observation
) -> Iterator[Found]:
    yield "parameters", _wrong_parameters(probe, seen)
    yield from _of_the_outputs(exercise, probe, expected, seen)
    for name, value in expected.attributes.items():
        yield _wrong_attribute(probe, name, value, seen.attributes.get(name))
    gradients = (
        _wrong_gradient(probe, name, value, seen.gradients.get(name))
        for name, value in expected.gradients.items()
    )
    yield "gradients", next(filter(None, gradients), None)
    for quantity, limit in probe.at_most.items():
        yield overspent(probe, quantity, limit, seen.spent.get(quantity))
    if seen.rng_touched and not probe.training:
        yield "rng", _GLOBAL_NUMBERS
    if seen.training_changed:
        yield "training", Problem("training_flag_changed", "The call changed `self.training`.")


def _of_the_outputs(
    exercise: Exercise, probe: Probe, expected: Expected, seen: Observation
) -> Iterator[Found]:
    """Another type ends the comparison, another shape that of the values and what they are in."""
    returns, outputs = exercise.returns, seen.outputs or _NOTHING
    broken = wrong_type(returns, expected.outputs, outputs)
    if broken is not None:
        soft = broken.id in ("wrong_type", "wrong_dtype_kind")
        others = converted(returns, outputs) if soft else None
        right = others is not None and not _wrong_numbers(exercise, probe, expected, others)
        yield "kind" if right else "type", broken
        return
    wrong = _wrong_numbers(exercise, probe, expected, outputs)
    if wrong is not None:
        yield wrong
    if wrong is None or wrong[0] != "shape":
        yield "dtype", wrong_dtype(returns, probe, seen, outputs)
        yield "device", wrong_device(returns, seen, outputs)


_NOTHING = Recorded("none", "None")  # a reply that holds neither a result nor an error
_GLOBAL_NUMBERS = Problem(
    "global_rng_used",
    "Your code draws from the global random generator, or seeds it, which changes the caller's "
    "next draws.",
    "Which line calls `manual_seed`, or draws without a generator of its own?",
)


def _wrong_numbers(exercise, probe, expected, outputs: Recorded) -> tuple[str, Problem] | None:
    """The first of shape and values that is wrong with outputs of the right kind."""
    problem = wrong_shape(exercise.returns, expected.outputs, outputs)
    if problem is not None:
        return "shape", problem
    compare = exercise.comparisons.get(probe.compare) or COMPARISONS[probe.compare]
    problem = compare(probe, expected.outputs, outputs)
    return None if problem is None else ("values", problem)


def mutated(probe: Probe, seen: Observation) -> list[str]:
    """Names of the arguments that are not what was handed over: other numbers, shape or flag."""
    changed = []
    for name, after in seen.arguments.items():
        before = probe.inputs()[name]
        now = after.data
        if (
            now is None
            or after.requires_grad != before.requires_grad
            or not arrays_agree(before.data, now, tolerance_for(probe, after))
        ):
            changed.append(name)
    return [*changed, "grad_outputs"] if seen.grad_changed else changed


def _mutation_problem(name: str) -> Problem:
    return Problem(
        "input_mutated",
        f"Your function changed its argument `{name}`: after the call, the caller's own copy is "
        "different.",
        "Which line writes into an existing tensor (`x[...] = `, `x -= `, a name ending in `_`)?",
    )


def _expected_error(probe: Probe, seen: Observation) -> Problem | None:
    if seen.raised is None:
        return Problem("no_error", f"{probe.says} Your code raised nothing.")
    if probe.raises in (seen.raised.type_name, *seen.raised.kinds):
        return None
    got = seen.raised.type_name
    return Problem("other_error", f"{probe.says} Your code raised {got}: {seen.raised.message}")


def _wrong_parameters(probe: Probe, seen: Observation) -> Problem | None:
    if probe.construct is None or seen.parameters is None:
        return None
    extra = sorted(set(seen.parameters) - set(probe.state))
    if not extra:
        return None
    return Problem(
        "extra_parameters",
        f"The module has parameters beyond the ones asked for: {', '.join(extra)}.",
        "Do the layers ask for `bias=False`?" if any("bias" in name for name in extra) else "",
    )


def _wrong_attribute(probe: Probe, name: str, value: np.ndarray, got: Recorded | None) -> Found:
    if got is None or got.kind != "tensor" or got.data is None:
        what = "nothing" if got is None else describe(got)
        return "attributes", Problem(
            "attribute_missing", f"`self.{name}` must hold a tensor after the call; got {what}."
        )
    if tuple(got.shape) != np.shape(value):
        return "attributes", Problem(
            "attribute_shape",
            f"`self.{name}` must have shape {np.shape(value)}; yours has {tuple(got.shape)}.",
        )
    if not arrays_agree(np.asarray(value), got.data, tolerance_for(probe, got)):
        return "attributes", Problem(
            "attribute_values",
            f"`self.{name}` does not hold the weights after the softmax and before dropout.",
        )
    if got.requires_grad:
        return "attached", Problem(
            "attribute_attached",
            f"`self.{name}` still carries its graph, which keeps every intermediate result in "
            "memory.",
            "What does `.detach()` do?",
        )
    return "attributes", None


def tolerance_of_gradient(got: Recorded) -> float:
    """Of a gradient, beside central differences: absolute and relative."""
    return {"float32": 1e-3, "float16": 5e-2, "bfloat16": 1e-1}.get(got.dtype, 1e-5)


def _wrong_gradient(probe, name, value, got: Recorded | None) -> Problem | None:
    if got is None or got.data is None:
        if not np.any(value):
            return None
        return Problem(
            "gradient_cut",
            f"No gradient reaches `{name}`.",
            "Which step leaves the graph (`.item()`, `.detach()`, `.data`, NumPy, "
            "`torch.no_grad`)?",
        )
    if not np.isfinite(got.data).all():
        return Problem(
            "gradient_not_finite",
            f"The result may look right, but the gradient of `{name}` contains NaN or inf.",
            "Which row gives the softmax nothing but -inf?",
        )
    if arrays_agree(value, got.data, tolerance_of_gradient(got)):
        return None
    own = probe.scenario.startswith("apply_function")  # the student's `backward`, not autograd's
    return Problem(
        "wrong_gradient",
        f"The gradient of `{name}` is not that of the formula.",
        "Which line of `backward` computes it, and from what that `forward` kept?" if own else "",
    )
