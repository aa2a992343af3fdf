"""Compute the problems of the checks with the course's solutions on another device."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from course_lib import attention
from course_lib.authoring.train_models import Device
from course_lib.checks.judge.correct_results import correct_observation
from course_lib.checks.judge.definitions import Exercise
from course_lib.checks.judge.prepare import drawn, prepare
from course_lib.checks.judge.violations import find_violations
from course_lib.checks.observe.call import materialise
from course_lib.checks.observe.probe import Array, Built, Probe
from course_lib.checks.observe.record import record
from course_lib.checks.observe.scenarios import SCENARIOS
from course_lib.reference import Expected

# Scenarios that compare the CPU with a fake device themselves.
_OF_TWO_DEVICES = (
    "after_another_device",
    "made_with_device_and_dtype",
    "with_a_device",
    "with_a_device_and_a_dtype",
    "with_a_model_elsewhere",
)
# Scenarios that create tensors of their own, on the default device.
_WITH_OWN_TENSORS = (
    "after_a_call_with_lengths",
    "among_other_models",
    "head_switched_off",
    "load_weights",
    "stored_weights",
)


def uses_tensors(exercise: Exercise) -> bool:
    """Return whether a solution computes with tensors. The others use NumPy or plain numbers."""
    given = [
        value
        for probe in drawn(exercise, np.random.default_rng(0))
        for value in probe.inputs().values()
    ]
    given = [one for value in given for one in (value if isinstance(value, list) else [value])]
    return any(returned.kind == "tensor" for returned in exercise.returns) or any(
        isinstance(one, Built) or (isinstance(one, Array) and one.kind == "tensor") for one in given
    )


def solution_row(exercise: Exercise, device: Device) -> dict[str, Any]:
    """Compute the problems of a check with the course's solution, on a device and on the CPU.

    Returns:
        "problems", the number of problems; "left_out", the number of those that are not computed,
        which expect an error, the CPU's random numbers or a fake device; "incorrect", the problems
        that fail on the device or whose result there the check does not accept; and "difference",
        the largest difference between the results of both devices, relative to numbers above 1.
    """
    solution = getattr(attention, exercise.name)
    problems, incorrect, largest, left_out = 0, [], 0.0, 0
    for probe, expected in prepare(exercise, "gpu"):
        if _is_left_out(probe):
            left_out += 1
            continue
        accepts = partial(_accepts, exercise, probe, expected)
        here = compute(solution, probe, "cpu")
        others = (compute(solution, probe, "cpu", seed) for seed in (1, 2, 3))
        if here.is_random and not all(map(accepts, others)):
            left_out += 1  # the check expects the numbers that the CPU draws from one seed
            continue
        problems += 1
        try:
            there = compute(solution, probe, device)
        except Exception as error:
            incorrect.append(f"{probe.name}: {in_short(error)}")
            continue
        if not here.is_random:
            largest = max(largest, _difference(here[:3], there[:3]))
        if not accepts(there):
            incorrect.append(probe.name)
    return {
        "problems": problems,
        "left_out": left_out,
        "incorrect": incorrect,
        "difference": float(f"{largest:.1e}"),
    }


def _accepts(exercise: Exercise, probe: Probe, expected: Expected, found: Computed) -> bool:
    """Return whether the check accepts outputs, stored attributes and gradients."""
    seen = replace(
        correct_observation(exercise, probe, expected),
        outputs=record(found.outputs),
        attributes={name: record(value) for name, value in found.attributes.items()},
        gradients={name: record(value) for name, value in found.gradients.items()},
    )
    return not find_violations(exercise, probe, expected, seen)


def _is_left_out(probe: Probe) -> bool:
    built = [value for value in probe.inputs().values() if isinstance(value, Built)]
    # These functions and modules compute with tensors on the CPU.
    nudged = any("nudged" in (b.name.partition("_")[0], b.options.get("name")) for b in built)
    return bool(probe.raises) or probe.scenario in _OF_TWO_DEVICES or nudged


class Computed(NamedTuple):
    """The results of one problem, on the CPU, and whether random numbers were drawn for them."""

    outputs: Any
    attributes: dict[str, Any]
    gradients: dict[str, Any]
    is_random: bool


def compute(solution: Any, probe: Probe, device: Device, seed: int = 0) -> Computed:
    """Compute one problem on a device, with everything that is given on that device.

    Raises:
        ValueError: a tensor of the result is on another device.
    """
    torch.manual_seed(seed)
    args, kwargs = (_made(values, probe, device, seed) for values in (probe.args, probe.kwargs))
    leaves = {n: v for n, v in {**args, **kwargs}.items() if getattr(v, "requires_grad", False)}
    if probe.construct is not None:
        module = solution(**_made(probe.construct, probe, "cpu", seed))
        probe = replace(probe, construct=_made(probe.construct, probe, device, seed))
        state = {name: torch.from_numpy(np.array(value)) for name, value in probe.state.items()}
        module.load_state_dict(state, strict=False)
        dtype = getattr(torch, probe.dtype or "float64")
        solution = module.to(device=device, dtype=dtype).train(probe.training)
        leaves |= {name: p for name, p in module.named_parameters() if name in state}
    elif inspect.isfunction(solution) and "device" in inspect.signature(solution).parameters:
        kwargs["device"] = device
    own = torch.device(device) if probe.scenario in _WITH_OWN_TENSORS else contextlib.nullcontext()
    generators = [v for v in kwargs.values() if isinstance(v, torch.Generator)]
    generators += [v for v in args.values() if isinstance(v, torch.Generator)]
    generators += [torch.default_generator]
    states = [generator.get_state() for generator in generators]
    with own:
        result = SCENARIOS[probe.scenario](solution, probe, args, kwargs)
    later = [generator.get_state() for generator in generators]
    is_random = not all(map(torch.equal, states, later))
    for part in result if isinstance(result, tuple) else (result,):
        if isinstance(part, Tensor) and part.device.type != torch.device(device).type:
            raise ValueError(f"{probe.name}: the result is on {part.device}")
    attributes = {name: getattr(solution, name) for name in probe.attributes}
    gradients: dict[str, Any] = {}
    if probe.grad_outputs is not None:
        first = result[0] if isinstance(result, tuple) else result
        grad = torch.from_numpy(np.array(probe.grad_outputs)).to(first.dtype).to(device)
        found = torch.autograd.grad(first, list(leaves.values()), grad, allow_unused=True)
        gradients = dict(zip(leaves, found, strict=True))
    outputs, attributes, gradients = _moved((result, attributes, gradients), "cpu")
    return Computed(outputs, attributes, gradients, is_random)


def _made(values: Mapping[str, Any], probe: Probe, device: Device, seed: int) -> dict[str, Any]:
    made = {name: materialise(value, probe.dtype) for name, value in values.items()}
    for value in made.values():
        if isinstance(value, torch.Generator) and seed:
            value.manual_seed(value.initial_seed() + seed)
    return _moved(made, device)


def _moved(value: Any, device: Device) -> Any:
    """Return a value with all tensors, modules and generators in it on a device."""
    if isinstance(value, Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, nn.Module):
        for part in value.modules():  # a module that the check built may keep plain tensors
            for name, kept in list(vars(part).items()):
                if isinstance(kept, list) and kept and all(isinstance(x, Tensor) for x in kept):
                    setattr(part, name, _moved(kept, device))
        return value.to(device)
    if isinstance(value, torch.Generator) and torch.device(device).type == "cuda":
        return torch.Generator(device).manual_seed(value.initial_seed())
    if isinstance(value, dict):
        return {name: _moved(item, device) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, device) for item in value)
    return value


def _difference(one: Any, other: Any) -> float:
    """Return the largest difference between two results, relative to numbers above 1."""
    if isinstance(one, dict):
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        return max((_difference(*pair) for pair in zip(one, other, strict=True)), default=0.0)
    if isinstance(one, Tensor):
        one, other = (x.detach().double().numpy() for x in (one, other))
    if not isinstance(one, np.ndarray | float | int):
        return 0.0 if one == other else float("inf")
    if np.shape(one) != np.shape(other):
        return float("inf")
    one, other = np.asarray(one, float), np.asarray(other, float)
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - other) / np.maximum(1.0, np.abs(one))
    same = (one == other) | (np.isnan(one) & np.isnan(other))  # infinity minus infinity is NaN
    apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
    return float(apart.max(initial=0.0))


def in_short(error: Exception) -> str:
    """Return the type and the first line of an error."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
