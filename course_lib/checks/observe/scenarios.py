"""Ways to call a student's object, and arguments that must be made in the same process.

This runs beside the student's code, uses only torch and NumPy, and decides nothing. A probe names a
scenario (`Probe.scenario`) or a builder (`Built.name`) by its function's name. The functions here
are for all exercises. Those of a single lesson are in its `fixtures.py`.
"""

import itertools
import zlib
from collections.abc import Callable

import torch

from course_lib.checks.observe.fake_device import NAME, Elsewhere

SCENARIOS: dict[str, Callable] = {}
BUILDERS: dict[str, Callable] = {}
STATISTICS: set[str] = set()  # scenarios that return a statistic of many calls


def scenario(function: Callable) -> Callable:
    """Register `function(target, probe, args, kwargs) -> result`."""
    SCENARIOS[function.__name__] = function
    return function


def statistic(function: Callable) -> Callable:
    """Register a scenario whose result is a statistic that is not shown to students."""
    STATISTICS.add(function.__name__)
    return scenario(function)


def builder(function: Callable) -> Callable:
    """Register `function(*, dtype, **options) -> argument`."""
    BUILDERS[function.__name__] = function
    return function


def in_dtype(
    dtype: torch.dtype, module: torch.nn.Module, device: torch.device | str | None = None
) -> torch.nn.Module:
    """Convert the real numbers of a module, in place, and move all of it to a device.

    `Module.to` would convert complex buffers, too, and discard their imaginary parts.
    """
    return module._apply(lambda data: data.to(device, dtype if data.is_floating_point() else None))


def in_dtype_of(given: torch.Tensor, module: torch.nn.Module) -> torch.nn.Module:
    """Convert a module, in place, to the device and the dtype of a tensor."""
    return in_dtype(given.dtype, module, given.device)


@scenario
def call(target, probe, args, kwargs):
    """Call the target once."""
    return target(*args.values(), **kwargs)


@scenario
def one_at_a_time(target, probe, args, kwargs):
    """Call `target(blocks)` with blocks that are created on demand and not kept."""
    return target(block.clone() for block in args["blocks"])


@scenario
def with_a_graph(target, probe, args, kwargs):
    """Call the target once. Terms of 0 give unused inputs a gradient of 0 instead of None."""
    return target(*args.values(), **kwargs) + sum(
        0 * v.sum() for v in args.values() if torch.is_tensor(v)
    )


@scenario
def apply_function(target, probe, args, kwargs):
    """Call `target.apply(...)` of a `torch.autograd.Function`, which takes no keywords."""
    return target.apply(*args.values(), *kwargs.values())


@scenario
def apply_function_twice(target, probe, args, kwargs):
    """Call `target.apply(...)` again on other numbers before the first backward pass."""
    result = target.apply(*args.values(), *kwargs.values())
    others = [v.detach().flip(0) if torch.is_tensor(v) else v for v in args.values()]
    target.apply(*others, *kwargs.values())
    return result


@scenario
def between_calls(target, probe, args, kwargs):
    """Call the target once, between calls on other numbers of the same shapes.

    Floating-point tensors get new values, because reordered ones could look like an indexing
    mistake.
    """
    others, named = _complements(_flipped(args)), _complements(_flipped(kwargs))
    target(*others.values(), **named)
    result = target(*args.values(), **kwargs)
    target(*others.values(), **named)
    return result


@scenario
def after_another_call(target, probe, args, kwargs):
    """Call a module after other calls, while others of its class are used.

    State that an answer keeps on its class or in a global variable is overwritten by then.
    """
    fewer = [v[:, : max(v.shape[1] - 1, 1)] for v in args.values() if v.is_floating_point()]
    if not [*target.parameters()]:  # with weights, the number of features cannot change
        fewer = [v[..., : max(v.shape[-1] - 1, 1)] for v in fewer]
    target(*fewer)
    others, named = _flipped(args), _flipped(kwargs)
    target(*others.values(), **named)
    kind, others, named = type(target), _complements(others), _complements(named)
    twice = {n: 2 * v if type(v) is int else v for n, v in probe.construct.items()}
    with torch.random.fork_rng(devices=[]):  # these draws are not the answer's
        second = in_dtype_of(next(iter(args.values())), kind(**probe.construct))
        second.train(target.training)
        kind(**twice)
        second(*others.values(), **named)
    result = target(*args.values(), **kwargs)
    second(*others.values(), **named)
    return result


def _flipped(given):
    """Return other numbers of the same shapes."""
    return {n: v.flip(0) if torch.is_tensor(v) and v.dim() else v for n, v in given.items()}


def _complements(given):
    """Replace each floating-point tensor v with 1 - v."""
    floating = (n for n, v in given.items() if torch.is_tensor(v) and v.is_floating_point())
    return given | {n: 1 - given[n] for n in floating}


@scenario
def after_a_call_with_lengths(target, probe, args, kwargs):
    """Call a module without lengths, after a call in which one position is real."""
    target(*args.values(), valid_lens=torch.ones(len(next(iter(args.values()))), dtype=torch.int64))
    return target(*args.values(), **kwargs)


@scenario
def after_a_call_with_a_mask(target, probe, args, kwargs):
    """Call a module without a mask, after a call in which each query may attend only to key 0."""
    queries, keys = itertools.islice(args.values(), 2)
    first = torch.arange(keys.shape[1], device=keys.device) == 0
    target(*args.values(), mask=first.expand(queries.shape[1], -1))
    return target(*args.values(), **kwargs)


@scenario
def built_by_position(target, probe, args, kwargs):
    """Call a module that was constructed with positional sizes, with the same weights."""
    with torch.random.fork_rng(devices=[]):
        module = in_dtype_of(next(iter(args.values())), type(target)(*probe.construct.values()))
    shapes = {name: tuple(weight.shape) for name, weight in module.named_parameters()}
    for name, weight in target.named_parameters():
        if name in shapes and shapes[name] != tuple(weight.shape):
            raise NotAsRequested(
                f"Built by position, your `{name}` has the shape {shapes[name]} instead of "
                f"{tuple(weight.shape)}.",
                "In which order does your `__init__` take its arguments?",
            )
    module.load_state_dict(target.state_dict())
    result = module.train(target.training)(*args.values(), **kwargs)
    vars(target).update(vars(module))  # attributes are recorded from `target`
    return result


_NOT_PASSED_ON = "Which line decides the device and the dtype of this tensor?"


class NotAsRequested(Exception):
    """Raised by a scenario: the answer ran, but it ignored what was given, such as `device=`."""

    def __init__(self, fact: str, question: str = _NOT_PASSED_ON):
        super().__init__(f"{fact}\n{question}")  # the judge gets the text alone


@scenario
def made_with_device_and_dtype(target, probe, args, kwargs):
    """Create modules with and without `device=` and `dtype=`, check both, then call the first."""
    meta = torch.device(NAME)
    usual = {"device": torch.get_default_device(), "dtype": torch.get_default_dtype()}
    for given in (
        {"device": meta, "dtype": torch.float64},
        {"device": meta, "dtype": torch.bfloat16},
        {},
    ):
        with torch.random.fork_rng(devices=[]):  # these draws are not the answer's
            made = type(target)(**probe.construct, **given)
        said = ", ".join(f"{what}={value}" for what, value in given.items()) or "neither of them"
        for name, parameter in made.named_parameters():
            for what, value in (usual | given).items():
                if (got := getattr(parameter, what)) != value:
                    raise NotAsRequested(f"Given {said}, your `{name}` has the {what} {got}.")
    return target(*args.values(), **kwargs)


@scenario
def with_a_device(target, probe, args, kwargs):
    """Call with `device=` and require the result there, then call without it."""
    _require(target, args, kwargs, device=torch.device(NAME))
    return target(*args.values(), **kwargs)


@scenario
def with_a_device_and_a_dtype(target, probe, args, kwargs):
    """Call with `device=` and `dtype=` and require both, then call without them."""
    _require(target, args, kwargs, device=torch.device(NAME), dtype=torch.bfloat16)
    return target(*args.values(), **kwargs)


def _require(target, args, kwargs, **options):
    with Elsewhere():
        result = target(*args.values(), **kwargs, **options)
    for name, value in options.items():
        if isinstance(result, torch.Tensor) and (got := getattr(result, name)) != value:
            raise NotAsRequested(f"Given {name}={value}, your result has the {name} {got}.")


@scenario
def ask_about_each(target, probe, args, kwargs):
    """Return `target(object, ...)` for each of several objects with separate inputs."""
    objects = [value for name, value in args.items() if name.startswith("object_")]
    rest = [value for name, value in args.items() if not name.startswith("object_")]
    given = [rest, *([value.clone() for value in rest] for _ in objects[1:])]
    # The inputs decide which object comes first, so that answers in turn are wrong half the time.
    first = zlib.crc32(rest[0].detach().cpu().contiguous().numpy().tobytes()) % len(objects)
    order = [*range(first, len(objects)), *range(first)]
    results = {i: target(objects[i], *given[i], **kwargs) for i in order}
    return tuple(results[i] for i in range(len(objects)))


def without_last_digits(outputs):
    """Round outputs to nine digits, so that rounding errors do not affect the result."""
    if outputs.dtype != torch.float64:
        return outputs
    return outputs + (outputs.round(decimals=9) - outputs).detach()
