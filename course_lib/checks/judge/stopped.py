"""Answers that could not be run to the end: what stopped them, by its name where it has one."""

import numpy as np

from course_lib.checks.judge.comparisons import Problem
from course_lib.checks.observe.observation import Observation, Raised
from course_lib.checks.observe.probe import Probe


def raised_problem(probe: Probe, seen: Observation, raised: Raised) -> Problem:
    """What an error says of an answer: its name where it is a usual one, else the error."""
    if raised.phase == "inject":
        return _missing_parameter(probe, seen)
    for said, problem in _USUAL.items():
        if said in raised.message:
            return problem
    where = f" in `{raised.lines[-1][2]}`" if raised.lines and raised.lines[-1][2] else ""
    during = {"construct": " when built", "backward": " in the backward pass"}.get(raised.phase, "")
    first_line = raised.message.strip().split("\n")[0][:300]
    message = f"Your code raised {raised.type_name}{where}{during}: {first_line}"
    if raised.phase == "construct":
        options = ", ".join(f"{name}={value!r}" for name, value in (probe.construct or {}).items())
        return Problem("raised", message, f"Does your `__init__` take `({options})`?")
    hint = _BACKWARD if raised.phase == "backward" else _CALL
    return Problem("raised", message, hint)


_CALL = "Call it with the input below: which line fails, and what goes into that line?"
_BACKWARD = "Which step leaves the graph, or writes into a tensor that it needs?"
_USUAL = {  # what Python or torch says, and what it means
    "before Module.__init__() call": Problem(
        "module_not_begun",
        "Your `__init__` assigns a layer before `super().__init__()` has run, so the module has "
        "nowhere to keep it.",
        "Which line has to come first in the `__init__` of every `nn.Module`?",
    ),
    "'generator' object does not support the context manager": Problem(
        "not_a_context_manager",
        "Your function returns a generator, and `with` cannot use a generator directly.",
        "Which decorator in `contextlib` turns a function with a `yield` into a context manager?",
    ),
}


def _missing_parameter(probe: Probe, seen: Observation) -> Problem:
    """The probe's weights could not be put in: say where they are instead, as far as known."""
    if seen.without_parameters:
        return _WITHOUT_PARAMETERS[seen.without_parameters]
    wanted = {name: tuple(np.shape(data)) for name, data in probe.state.items()}
    found = seen.parameters or {}
    if missing_names := [name for name in wanted if name not in found]:
        missing = _listed({name: wanted[name] for name in missing_names})
        yours = _listed({name: shape for name, shape in found.items() if name not in wanted})
        same_shapes = sorted(found.values()) == sorted(wanted.values())
        return Problem(
            "parameters_renamed" if same_shapes else "missing_parameter",
            f"The module lacks the parameters {missing}; besides the right ones it has: {yours}.",
            f"Is there a layer for `{missing_names[0]}`, assigned to `self` in `__init__`?",
        )
    wrong = next(name for name in wanted if found[name] != wanted[name])
    return Problem(
        "parameter_shape",
        f"The parameter `{wrong}` must have shape {wanted[wrong]}; yours has {found[wrong]}.",
        "Which size does this layer read, and which does it write?",
    )


def _listed(shapes: dict[str, tuple]) -> str:
    """The first few names with their shapes, and how many more there are."""
    first = ", ".join(f"`{name}` {shape}" for name, shape in list(shapes.items())[:4]) or "none"
    return first + f" and {len(shapes) - 4} more" * (len(shapes) > 4)


_WITHOUT_PARAMETERS = {
    "in_forward": Problem(
        "parameters_in_forward",
        "You make your layers in `forward`: every call draws new weights, and no optimiser or "
        "checkpoint ever sees them.",
        "What belongs in `__init__`, and what in `forward`?",
    ),
    "plain_tensors": Problem(
        "plain_tensors",
        "Your weights are plain tensors: `parameters()` does not list them, so no optimiser, "
        "`.to()` or checkpoint reaches them.",
        "What does `nn.Linear`, or `nn.Parameter`, do that an assignment does not?",
    ),
    "in_a_list": Problem(
        "layers_in_a_list",
        "Your layers are in a Python list or dict: the module does not see them, so neither "
        "does an optimiser.",
        "What does `nn.ModuleList` do that a list does not?",
    ),
}
