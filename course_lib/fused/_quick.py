"""The taught checks, made in full once for each combination of shapes instead of in each call.

They take 50 microseconds, as long as a small attention itself. Whether arguments fit depends on
types, shapes, dtypes and devices and on the module's sizes and weights: a combination that fitted
fits again. The values of lengths are looked at every time.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.attention._checked import check_length_range, checked

MOST = 1000  # combinations remembered; then all are forgotten


def quickly_checked(function: Callable) -> Callable:
    """`checked` for a function of `values` or `scores` and `valid_lens`; raises what that raises.

    What is traced, and what holds arguments other than tensors, numbers and modules, is checked
    in full each time.
    """
    check_and_call = checked(function)
    names, fitted = tuple(inspect.signature(function).parameters), set()
    place = names.index("valid_lens")

    @functools.wraps(function)
    def call(*args, **kwargs) -> Any:
        if torch.compiler.is_compiling():
            return check_and_call(*args, **kwargs)
        outline = [*kwargs]
        for value in (*args, *kwargs.values()):
            outline += _outline(value)
        outline = tuple(outline)
        if outline not in fitted:
            outputs = check_and_call(*args, **kwargs)
            if len(fitted) >= MOST:
                fitted.clear()
            if _OTHER not in outline:
                fitted.add(outline)
            return outputs
        lengths = args[place] if len(args) > place else kwargs.get("valid_lens")
        if lengths is not None:
            arguments = dict(zip(names, args, strict=False)) | kwargs
            check_length_range(lengths, _num_keys(arguments), "num_keys")
        return function(*args, **kwargs)

    return call


def _num_keys(arguments: dict) -> int:
    return arguments["values"].shape[-2] if "values" in arguments else arguments["scores"].shape[-1]


_OTHER = "something else"


def _outline(value) -> tuple:
    """All of an argument that decides whether it fits, but for the values in tensors.

    It begins with the kind, which tells how far it goes, so that outlines stay apart in a row.
    """
    if isinstance(value, Tensor):
        return type(value), value.shape, value.dtype, value.device
    if value is None or isinstance(value, (int, float)):
        return type(value), value
    if isinstance(value, nn.Module):
        return _outline_of_module(value)
    return (_OTHER,)


def _outline_of_module(module: nn.Module) -> tuple:
    """Its kind, its number of heads, and the weight of its first layer that has one."""
    num_heads = vars(module).get("num_heads")
    for layer in module._modules.values():  # parameters() takes ten times as long
        if layer is not None and (weight := layer._parameters.get("weight")) is not None:
            in_autocast = torch._C._is_any_autocast_enabled()  # asking for one kind takes longer
            if in_autocast:
                in_autocast = weight.device.type, torch.is_autocast_enabled(weight.device.type)
            return type(module), num_heads, weight.shape, weight.dtype, weight.device, in_autocast
    return type(module), num_heads
