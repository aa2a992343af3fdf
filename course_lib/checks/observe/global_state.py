"""Save, restore and compare state that a call may change: random states, settings, variables.

This runs beside the student's code and uses only the standard library, NumPy and torch.
"""

import collections
import contextlib
import functools
import gc
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed the global generators of torch (the CPU's), NumPy and Python."""
    np.random.seed(seed % 2**32)
    random.seed(seed)
    torch.default_generator.manual_seed(seed)  # `torch.manual_seed` also seeds absent devices


def next_draws() -> tuple[float, float, float]:
    """Return the next draw of each global generator, which is faster than reading its state."""
    options = {"dtype": torch.float32, "device": "cpu", "generator": torch.default_generator}
    return _RANDOM(), _NUMPY_RANDOM(), torch.rand((), **options).item()


_RANDOM, _NUMPY_RANDOM = random.random, np.random.random_sample  # may be replaced later


@contextlib.contextmanager
def random_states_kept() -> Iterator[None]:
    """Restore the states of the global random generators."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


class _Setting(NamedTuple):
    read: Callable[[], Any]
    write: Callable[[Any], object]
    usual: Any = None  # None keeps the current value


_EMPTY = torch.empty  # may be replaced later
_NUMPY = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_SETTINGS = {
    "Python's recursion limit": _Setting(
        sys.getrecursionlimit,
        sys.setrecursionlimit,
        3000,  # a deeper one overflows the C stack
    ),
    "Python's warning filters": _Setting(
        lambda: list(warnings.filters), lambda kept: setattr(warnings, "filters", list(kept))
    ),
    "NumPy's error handling": _Setting(np.geterr, lambda kinds: np.seterr(**kinds), _NUMPY),
    "torch's gradient mode": _Setting(torch.is_grad_enabled, torch.set_grad_enabled, True),
    "torch's default dtype": _Setting(
        torch.get_default_dtype, torch.set_default_dtype, torch.float32
    ),
    "torch's default device": _Setting(
        lambda: _EMPTY(0).device,  # twice as fast as asking torch for it
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),
        torch.device("cpu"),
    ),
    "torch's number of threads": _Setting(torch.get_num_threads, torch.set_num_threads, 1),
    "torch's anomaly detection": _Setting(
        torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False
    ),
    "torch's deterministic mode": _Setting(  # setting it imports torch's compiler
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, False
    ),
}


def use_usual_settings() -> None:
    """Reset global settings that an earlier cell may have changed."""
    for setting in _SETTINGS.values():
        if setting.usual is not None and setting.read() != setting.usual:
            with contextlib.suppress(RecursionError):  # the stack is deeper than the limit
                setting.write(setting.usual)


@contextlib.contextmanager
def usual_settings() -> Iterator[list[str]]:
    """Let a call start from the usual settings, and restore those of its caller.

    It yields a list that is filled at the end with the names of settings that the call changed. The
    list stays empty if the call imported a module, which may have changed them. The garbage
    collector is off meanwhile.
    """
    before, folder = {name: s.read() for name, s in _SETTINGS.items()}, os.getcwd()
    collecting, imported = gc.isenabled(), len(sys.modules)
    gc.disable()
    use_usual_settings()
    given = {name: s.read() for name, s in _SETTINGS.items()}
    changed: list[str] = []
    try:
        yield changed
    finally:
        for name, setting in _SETTINGS.items():
            left = setting.read()
            if left != given[name] and len(sys.modules) == imported:
                changed.append(name)
            if left != before[name]:
                setting.write(before[name])
        if collecting:
            gc.enable()
        with contextlib.suppress(OSError):
            os.chdir(folder)


_CACHED = type(functools.lru_cache(lambda: None))
_COLLECTIONS = (dict, list, set, collections.OrderedDict, collections.defaultdict)


def variables_that_stay(obj: Any) -> dict[str, list[tuple[int, int]]]:
    """Return an identity for each variable in which code may keep state between calls, by name.

    These are the default values, class attributes, and global and enclosing variables of a function
    or class, and those of the functions in its module that it calls. Variables with the same name
    are in one list. A changed value has a different identity. The result is empty if the code
    cannot be read.
    """
    try:
        return _variables_that_stay(obj)
    except Exception:
        return {}


def _variables_that_stay(obj: Any) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    left = [obj]
    for user in left:  # the loop appends to it
        kept: dict[str, Any] = {}
        each = user.__wrapped__ if type(user) is _CACHED else user
        if type(each) is FunctionType:
            code, last = each.__code__, each.__defaults__ or ()
            names = code.co_varnames[: code.co_argcount]
            kept = dict(zip(reversed(names), reversed(last), strict=False))
            kept |= each.__kwdefaults__ or {}
            kept |= {n: each.__globals__[n] for n in _names_in(code) if n in each.__globals__}
            with contextlib.suppress(ValueError):  # an empty cell
                inner = [cell.cell_contents for cell in each.__closure__ or ()]
                kept |= dict(zip(code.co_freevars, inner, strict=True))
            kept |= vars(each)
        elif issubclass(type(each), type):
            kept = dict(type.__dict__["__dict__"].__get__(each))
        beside = (value for value in kept.values() if _is_beside(value, each))
        left += [f for f in beside if not any(f is known for known in left)]
        for name, value in kept.items():
            found.setdefault(name, []).append(_identity(value))
    return found


def _is_beside(found: Any, user: Any) -> bool:
    """Return whether a value is a function of the same module, or of a class."""
    if type(found) is _CACHED:
        return True
    if type(found) is not FunctionType:
        return False
    return type(user) is not FunctionType or found.__globals__ is user.__globals__


def _names_in(code: CodeType) -> set[str]:
    inside = (_names_in(part) for part in code.co_consts if type(part) is CodeType)
    return set(code.co_names).union(*inside)


def _identity(value: Any) -> tuple[int, int]:
    """Return two numbers, at least one of which differs after a common change."""
    if type(value) in _COLLECTIONS:
        return id(value), len(value)
    if type(value) is _CACHED:
        return id(value), value.cache_info().currsize
    is_counted = type(value) is torch.Tensor and not value.is_inference()
    return id(value), value._version if is_counted else 0
