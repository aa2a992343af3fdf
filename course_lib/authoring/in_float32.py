"""Make an answer compute in float32 and cast its results back, as Llama's code does.

If the answer is correct, its results must still pass every check (`course matrix --correct`).
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

_OPERATORS = ("add", "sub", "mul", "truediv", "pow", "matmul")
_FUNCTIONS = """
    add sub mul div pow square sqrt rsqrt exp log sin cos tanh relu gelu sum mean cumsum norm cdist
    matmul mm bmm baddbmm einsum linear layer_norm softmax log_softmax logsumexp cross_entropy
    nll_loss scaled_dot_product_attention
"""
_ROUNDING = {f"__{side}{name}__" for side in ("", "r") for name in _OPERATORS}
_ROUNDING |= set(_FUNCTIONS.split())
_LARGEST = float(np.finfo(np.float32).max)


def in_float32(answer: Any) -> Any:
    """Return a function or class that does in float32 what `answer` does in float64.

    A call is left unchanged if one of its arguments is a function or has a floating-point dtype
    other than float64.
    """
    if not isinstance(answer, type):
        return _rounding(answer)
    if issubclass(answer, torch.autograd.Function):
        methods: dict[str, Any] = {"apply": staticmethod(_rounding(answer.apply))}
    elif issubclass(answer, torch.nn.Module):
        methods = {"forward": _rounding(answer.forward)}
    else:
        found = {name: vars(answer).get(name) for name in ("append", "attend", "__call__")}
        methods = {name: _rounding(method) for name, method in found.items() if method}
    return type(answer.__name__, (answer,), methods)


def _rounding(function: Callable) -> Callable:
    is_method = next(iter(inspect.signature(function).parameters), "") == "self"

    def in_float32(*args, **kwargs) -> Any:
        given = [*args[is_method:], *kwargs.values()]
        coarse = (torch.float32, torch.float16, torch.bfloat16)
        if any(callable(v) or getattr(v, "dtype", None) in coarse for v in given):
            return function(*args, **kwargs)
        is_double = any(isinstance(v, np.ndarray) and v.dtype == np.float64 for v in given)
        with _Float32():
            if not is_double:
                return function(*args, **kwargs)
            named = {name: _cast(value, np.float32) for name, value in kwargs.items()}
            return _cast(function(*(_cast(value, np.float32) for value in args), **named), float)

    return in_float32


class _Float32(TorchFunctionMode):
    """Round the operands of torch's arithmetic to float32, and cast its results to float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None) -> Any:
        kwargs = dict(kwargs or {})
        operands = [*args, *(args[0] if args and isinstance(args[0], list | tuple) else ())]
        is_double = any(torch.is_tensor(v) and v.dtype == torch.float64 for v in operands)
        if not is_double or function.__name__ not in _ROUNDING:
            return function(*args, **kwargs)
        kwargs.pop("dtype", None)
        named = {name: _cast(value, torch.float32) for name, value in kwargs.items()}
        return _cast(function(*(_cast(v, torch.float32) for v in args), **named), torch.float64)


def _cast(value: Any, dtype: Any) -> Any:
    """Convert floating-point arrays or tensors without making finite numbers infinite."""
    if isinstance(value, list | tuple):
        return type(value)(_cast(item, dtype) for item in value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value.astype(dtype)
    if torch.is_tensor(value) and value.is_floating_point():
        return torch.where(value.isinf(), value, value.clamp(-_LARGEST, _LARGEST)).to(dtype)
    return value
