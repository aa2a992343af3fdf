"""Ways to drive a student's object, and arguments that must be made where they are used.

Runs beside the student's code: torch and NumPy only, no decision taken here. A probe names a
scenario (`Probe.scenario`) or a builder (`Built.name`) by its function's name.
"""

from collections.abc import Callable

import torch

SCENARIOS: dict[str, Callable] = {}
BUILDERS: dict[str, Callable] = {}


def scenario(function: Callable) -> Callable:
    """Registers `function(target, probe, args, kwargs) -> result`."""
    SCENARIOS[function.__name__] = function
    return function


def builder(function: Callable) -> Callable:
    """Registers `function(*, device, dtype, **options) -> argument`."""
    BUILDERS[function.__name__] = function
    return function


@scenario
def call(target, probe, args, kwargs):
    """One plain call."""
    return target(*args.values(), **kwargs)


@builder
def generator(*, seed, device, dtype):
    """A seeded torch generator."""
    return torch.Generator().manual_seed(seed)
