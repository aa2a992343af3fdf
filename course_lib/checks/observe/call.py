"""Call a student's object as a probe says, and record what happened as plain data.

This module runs inside the process that holds the student's code, so it imports only the standard
library, NumPy and torch, decides nothing, and lets no exception out.
"""

import ast
import collections.abc
import contextlib
import dataclasses
import importlib
import io
import linecache
import traceback
import warnings
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from course_lib.checks.observe.cost_meter import LIBRARIES, Calls, Spending, Steps
from course_lib.checks.observe.error_messages import message_of
from course_lib.checks.observe.fake_device import (
    NAME,
    Elsewhere,
    Refused,
    line_that_uses,
    made_by,
    mark,
    on_the_cpu,
)
from course_lib.checks.observe.global_state import (
    next_draws,
    random_states_kept,
    seed_all,
    usual_settings,
    variables_that_stay,
)
from course_lib.checks.observe.observation import MAX_TEXT, Observation, OnTheCpu, Raised
from course_lib.checks.observe.probe import Array, Built, Dtype, Probe
from course_lib.checks.observe.record import Recorded, class_name, describe_type, record
from course_lib.checks.observe.scenarios import BUILDERS, SCENARIOS, in_dtype

# What the probes of some exercises need lies beside them, in files that a guest has, too.
for _path in sorted(Path(__file__).parents[2].glob("exercises/*/fixtures.py")):
    importlib.import_module(f"course_lib.exercises.{_path.parent.name}.fixtures")

_ENDS_ALL = ("NotImplementedError", "KeyboardInterrupt")


def observe_all(obj: Any, probes: Iterable[Probe]) -> dict[str, Observation]:
    """Observe all probes in order. Stop at an interrupt, or if the answer is not written yet.

    Calls on another device come last, so that nothing they leave behind affects another call.
    """
    seen, probes = {}, list(probes)
    with random_states_kept():
        for probe in probes:
            seen[probe.name] = observe(obj, probe)
            raised = seen[probe.name].raised
            if raised is not None and raised.type_name in _ENDS_ALL:
                break
        for probe in probes:
            if probe.elsewhere and probe.name in seen and seen[probe.name].raised is None:
                seen[probe.name].elsewhere = _observe_elsewhere(obj, probe)
    return seen


def observe(obj: Any, probe: Probe, *, watched: bool = True) -> Observation:
    """Call `obj` once as `probe` says, with the caller's random states kept (`random_states_kept`).

    If `watched`, the record includes the torch calls and steps that the probe asks for.
    """
    seen = Observation()
    args = {name: materialise(value, probe.dtype) for name, value in probe.args.items()}
    kwargs = {name: materialise(value, probe.dtype) for name, value in probe.kwargs.items()}
    stdout, stderr = _Unclosed(), _Unclosed()
    streams = contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(stdout)
    before = variables_that_stay(obj) if watched else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with usual_settings() as changed, streams[0], streams[1]:
            try:
                _run(obj, probe, seen, args, kwargs, watched)
            except BaseException as error:  # includes SystemExit and a student's own classes
                phase = seen.raised.phase if seen.raised else "call"
                seen.raised = _describe_exception(error, phase)
    seen.settings = tuple(changed)
    after = variables_that_stay(obj) if watched else {}
    names = [name for name in after if before and before.get(name) != after[name]]
    seen.kept = tuple(_encodable(str(name)[:MAX_TEXT]) for name in names[:3])
    # The methods of a stream or a warning may be the student's, and may raise.
    seen.stderr = _encodable(io.StringIO.getvalue(stderr)[:MAX_TEXT])
    said = (
        f"{class_name(w.category)}: {message_of(w.message).partition(' (Triggered internally')[0]}"
        for w in caught[:5]
    )
    seen.warnings = tuple(_encodable(text[:MAX_TEXT]) for text in said)
    return seen


def _observe_elsewhere(obj: Any, probe: Probe) -> OnTheCpu | None:
    """Call `obj` with all tensors on another device, and return what is left on the CPU, if any.

    Errors other than mixing devices may be those of the fake device, so they are ignored.
    """
    nowhere = io.StringIO()
    streams = contextlib.redirect_stderr(nowhere), contextlib.redirect_stdout(nowhere)
    with usual_settings(), warnings.catch_warnings(), streams[0], streams[1]:
        warnings.simplefilter("ignore")
        try:
            return _run_elsewhere(obj, probe)
        except Refused as refused:
            return refused.seen or line_that_uses(refused)
        except BaseException:
            return None


def _run_elsewhere(obj: Any, probe: Probe) -> OnTheCpu | None:
    """Call as `_run` does, and return the origin of a tensor of the result that is on the CPU."""
    args = {name: materialise(value, probe.dtype) for name, value in probe.args.items()}
    kwargs = {name: materialise(value, probe.dtype) for name, value in probe.kwargs.items()}
    seed_all(probe.seed)
    target = obj
    if probe.construct is not None:
        made = {name: materialise(v, probe.dtype) for name, v in probe.construct.items()}
        probe = dataclasses.replace(probe, construct=made)
        target, _ = _prepare_module(obj, probe, Observation(), args, kwargs)
        for module in target.modules():
            for name in vars(module).keys() - _OF_EVERY_MODULE:
                mark(on_the_cpu(vars(module)[name]), OnTheCpu("kept", f"self.{name}"))
    with Elsewhere() as device:
        args, kwargs = _moved(args, device), _moved(kwargs, device)
        if probe.construct is not None:
            target = target.to(NAME)
        result = SCENARIOS[probe.scenario](target, probe, args, kwargs)
    if left := on_the_cpu(result):
        return dataclasses.replace(made_by(left) or OnTheCpu("returned", ""), returned=True)
    return None


_OF_EVERY_MODULE = vars(torch.nn.Module()).keys()


def _moved(given: Any, device: Elsewhere) -> Any:
    """Move tensors and modules in a dict or a list to the device."""
    if isinstance(given, dict):
        return {name: _moved(value, device) for name, value in given.items()}
    if isinstance(given, list):
        return [_moved(value, device) for value in given]
    if isinstance(given, torch.nn.Module):
        return given.to(NAME)
    return device.moved(given) if torch.is_tensor(given) else given


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which a report could not print."""
    return text.encode("utf-8", "replace").decode("utf-8")


class _Unclosed(io.StringIO):
    """A stream for printed text that stays open even if the student's code closes it."""

    def close(self) -> None:
        pass


def _run(obj, probe: Probe, seen: Observation, args: dict, kwargs: dict, watched: bool) -> None:
    """Fill `seen` step by step, so that everything before an exception is kept."""
    target, parameters, given = obj, {}, {**args, **kwargs}
    torch.default_generator.manual_seed(probe.seed)
    if probe.construct is not None:
        made = {name: materialise(v, probe.dtype) for name, v in probe.construct.items()}
        probe = dataclasses.replace(probe, construct=made)
        target, parameters = _prepare_module(obj, probe, seen, args, kwargs)
    seen.raised = Raised("", "", phase="call")
    weights = list(target.parameters()) if isinstance(target, torch.nn.Module) else []
    # Each of these slows down all code.
    calls = Calls() if watched and probe.counted else None
    steps = Steps(calls, lines=bool(probe.loops)) if calls or (watched and probe.loops) else None
    spending = Spending([given, weights]) if probe.at_most else None
    seed_all(probe.seed)
    untouched = next_draws()
    seed_all(probe.seed)
    training = getattr(target, "training", None)
    nothing = contextlib.nullcontext()
    try:
        with steps or nothing, calls or nothing, spending or nothing:
            result = SCENARIOS[probe.scenario](target, probe, args, kwargs)
        seen.outputs = record(result)  # before anything else can run the student's code
    finally:
        seen.steps = steps.count if steps else 0
        seen.calls = dict(calls.names) if calls else {}
        seen.rng_touched = next_draws() != untouched
        seen.training_changed = bool(getattr(target, "training", None) != training)
        seen.arguments = {name: record(given[name]) for name in probe.arrays()}
    if seen.parameters is not None and isinstance(target, torch.nn.Module):
        seen.parameters |= {name: tuple(p.shape) for name, p in _parameters(target).items()}
    for name in probe.attributes:
        seen.attributes[name] = record(getattr(target, name, None))
    if spending:
        seen.spent = {"kept": spending.alive(), "functions": spending.functions}
    if probe.grad_outputs is not None:
        seen.raised.phase = "backward"
        leaves = {n: given[n] for n, a in probe.arrays().items() if a.requires_grad} | parameters
        called_back = Steps(calls, lines=False) if calls else nothing
        with torch.enable_grad(), called_back, spending or nothing:
            seen.gradients, seen.grad_changed = _backward(result, probe.grad_outputs, leaves)
        seen.calls = dict(calls.names) if calls else {}
    if spending:
        seen.spent["peak"] = spending.peak - (_OURS if probe.grad_outputs is not None else 0)
    seen.raised = None


def _prepare_module(
    cls, probe: Probe, seen: Observation, args: dict, kwargs: dict
) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Build the module, inject the probe's weights and return it with its parameters."""
    seen.raised = Raised("", "", phase="construct")
    module = cls(**(probe.construct or {}))
    if not isinstance(module, torch.nn.Module):
        raise TypeError("the class must inherit from nn.Module")
    module.eval()
    in_dtype(_floating(probe.dtype), module, "cpu")
    if any(isinstance(p, torch.nn.UninitializedParameter) for p in module.parameters()):
        seen.raised.phase = "call"
        with torch.no_grad():  # lazy layers learn their sizes from one call
            module(*args.values(), **kwargs)
    seen.raised.phase = "inject"
    parameters = _parameters(module)
    seen.parameters = {name: tuple(p.shape) for name, p in parameters.items()}
    if any(name not in parameters for name in probe.state):
        seen.without_parameters = _what_instead(module, probe, args, kwargs)
    with torch.no_grad():
        for name, data in probe.state.items():
            if name not in parameters:
                raise AttributeError(f"the module has no parameter {name}")
            if parameters[name].shape != data.shape:
                shapes = f"{tuple(parameters[name].shape)}, expected {data.shape}"
                raise ValueError(f"the parameter {name} has shape {shapes}")
            parameters[name].copy_(torch.from_numpy(np.array(data)))
        given = [value for value in (probe.construct or {}).values() if torch.is_tensor(value)]
        for name in parameters.keys() - probe.state.keys():  # in any order
            if any(torch.equal(parameters[name], value) for value in given):
                continue  # not a weight
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            drawn = torch.randn(parameters[name].shape, generator=generator)
            parameters[name].copy_(drawn)
    module.train(probe.training)
    return module, {name: parameters[name] for name in probe.state}


def _parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return a module's parameters by name. Layers of a Sequential are named by position."""
    places = {
        f"{path}.{name}".lstrip("."): f"{path}.{place}".lstrip(".")
        for path, part in module.named_modules()
        if isinstance(part, torch.nn.Sequential)
        for place, (name, _) in enumerate(part.named_children())
    }
    found = {}
    for name, parameter in module.named_parameters():
        layer, dot, last = name.rpartition(".")
        found[f"{places.get(layer, layer)}{dot}{last}"] = parameter
    return found


def _what_instead(module: torch.nn.Module, probe: Probe, args: dict, kwargs: dict) -> str:
    """Return where missing weights may be: "plain_tensors", "in_a_list" or "in_forward"."""
    held = {n: v for n, v in vars(module).items() if not n.startswith("_")} | module._buffers
    names = {name.split(".")[0] for name in probe.state}
    if any(isinstance(held.get(name), torch.Tensor | np.ndarray) for name in names):
        return "plain_tensors"
    groups = [v.values() if isinstance(v, dict) else v for v in held.values()]
    groups = [group for group in groups if not isinstance(group, torch.Tensor | str)]
    groups = [list(group) for group in groups if isinstance(group, collections.abc.Collection)]
    groups += [list(item) for group in groups for item in group if isinstance(item, list | tuple)]
    if any(isinstance(item, torch.nn.Module | torch.Tensor) for g in groups for item in g):
        return "in_a_list"
    made = []
    hook = torch.nn.modules.module.register_module_parameter_registration_hook
    with hook(lambda *call: made.append(call[1])), contextlib.suppress(Exception):
        module(*args.values(), **kwargs)
    return "in_forward" if made else ""


def materialise(value, dtype=None) -> Any:
    """Convert a probe's argument into the object that the student's code receives."""
    if isinstance(value, Dtype):
        return getattr(torch, value.name)
    if isinstance(value, Built):
        return BUILDERS[value.name](dtype=_floating(dtype), **value.options)
    if isinstance(value, list | tuple):
        return type(value)(materialise(item, dtype) for item in value)
    if not isinstance(value, Array):
        return value
    if value.kind == "numpy":
        made = np.array(value.data)
        return np.repeat(made.T, 2, axis=-1)[..., ::2].T if value.strided else made
    made = torch.from_numpy(np.array(value.data))
    if made.is_floating_point() and dtype is not None and value.data.dtype == np.float64:
        made = made.to(_floating(dtype))
    if value.strided:
        axes = tuple(reversed(range(made.dim())))
        made = torch.stack([made.permute(axes)] * 2, dim=-1)[..., 0].permute(axes)
    return made.requires_grad_() if value.requires_grad else made


def _floating(dtype: str | None) -> torch.dtype:
    return getattr(torch, dtype) if dtype else torch.float64


def _backward(result, grad_outputs, leaves) -> tuple[dict[str, Recorded], bool]:
    """Return the gradients of the leaves, and whether `grad_outputs` was changed."""
    first = result[0] if isinstance(result, tuple | list) else result
    if not isinstance(first, torch.Tensor) or not first.requires_grad:
        return {}, False
    if first.shape != np.shape(grad_outputs):  # the wrong shape is reported anyway
        return {name: record(None) for name in leaves}, False
    grad = torch.from_numpy(np.array(grad_outputs)).to(device=first.device, dtype=first.dtype)
    before = grad.tolist()
    found = torch.autograd.grad(_Given.apply(first, grad), list(leaves.values()), allow_unused=True)
    return {n: record(g) for n, g in zip(leaves, found, strict=True)}, grad.tolist() != before


_OURS = 16  # bytes of `_Given`'s result and its gradient


class _Given(torch.autograd.Function):
    """A number whose gradient with respect to `first` is the tensor `grad` itself, not a copy."""

    @staticmethod
    def forward(ctx, first, grad) -> torch.Tensor:
        ctx.grad = grad
        return first.new_zeros(())

    @staticmethod
    def backward(ctx, *_) -> tuple[torch.Tensor, None]:
        return ctx.grad, None


def _describe_exception(error: BaseException, phase: str) -> Raised:
    message = _encodable(message_of(error)[:MAX_TEXT])
    codes = ((frame.f_code, number) for frame, number in traceback.walk_tb(error.__traceback__))
    own = [(c, number) for c, number in codes if not c.co_filename.startswith(LIBRARIES)][-4:]
    lines = [(c.co_name, n, linecache.getline(c.co_filename, n).strip()[:200]) for c, n in own]
    is_stub = bool(own) and isinstance(error, NotImplementedError)
    unreached = is_stub and _has_code_below(own[-1][0].co_filename, own[-1][1])
    classes = type.__dict__["__mro__"].__get__(type(error))
    kinds = tuple(class_name(kind) for kind in classes[:10])
    return Raised(describe_type(error), message, tuple(lines), phase, kinds, unreached)


def _has_code_below(filename: str, number: int) -> bool:
    """Return whether statements that can never run follow a `raise` on a line of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    blocks = (getattr(node, "body", None) for node in ast.walk(tree))
    return any(
        isinstance(node, ast.Raise) and node.lineno == number
        for block in blocks
        if isinstance(block, list)
        for node in block[:-1]
    )
