"""What a call may change around it, and what is put back afterwards: random states and settings.

Runs beside the student's code: standard library, NumPy and torch only.
"""

import contextlib
import functools
import gc
import os
import random
import sys
from collections.abc import Iterator

import numpy as np
import torch

_DEEPEST = 3000  # calls within calls, whatever limit a notebook has set


def seed_torch(seed: int, device: str) -> None:
    """Seeds only the generator in use: `torch.manual_seed` also queues work for absent devices."""
    torch.default_generator.manual_seed(seed)
    if device != "cpu":
        torch.cuda.manual_seed(seed)


def seed_all(seed: int, device: str) -> None:
    """Seeds the global generators of torch, NumPy and Python."""
    np.random.seed(seed % 2**32)
    random.seed(seed)
    seed_torch(seed, device)


def next_draws() -> tuple[float, float, float]:
    """What each global generator draws next: a fraction of the time that asking its state takes."""
    options = {"dtype": torch.float32, "device": "cpu", "generator": torch.default_generator}
    return _RANDOM(), _NUMPY_RANDOM(), torch.rand((), **options).item()


_RANDOM, _NUMPY_RANDOM = random.random, np.random.random_sample  # whatever is put in their place


@functools.lru_cache(maxsize=64)
def seeded_draws(seed: int) -> tuple[float, float, float]:
    """What `next_draws` is after `seed_all`."""
    with random_states_kept():
        seed_all(seed, "cpu")
        return next_draws()


@contextlib.contextmanager
def random_states_kept() -> Iterator[None]:
    """Puts back the states of the global random generators."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def _default_device() -> torch.device:
    """In less than half the time that torch needs to say it."""
    return _EMPTY(0).device


_EMPTY = torch.empty


@contextlib.contextmanager
def restored_globals() -> Iterator[None]:
    """Puts back the global settings that a call may change.

    No garbage is collected meanwhile: what others clean up then would pass for the student's.
    """
    dtype, folder = torch.get_default_dtype(), os.getcwd()
    device, depth = _default_device(), sys.getrecursionlimit()
    collecting = gc.isenabled()
    gc.disable()
    with contextlib.suppress(RecursionError):  # a deeper one would overflow the C stack
        sys.setrecursionlimit(min(depth, _DEEPEST))
    try:
        with torch.enable_grad(), np.errstate(all="warn", under="ignore"):
            yield
    finally:
        sys.setrecursionlimit(depth)
        if collecting:
            gc.enable()
        if _default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        with contextlib.suppress(OSError):
            os.chdir(folder)
