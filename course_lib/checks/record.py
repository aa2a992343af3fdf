"""Turns any object into a bounded record of plain data: numbers, names and shapes.

Runs beside the student's code and trusts none of it: a property that raises, a tensor subclass
that lies about itself or a list of a million items ends up as a short, honest description.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

_MAX_ITEMS = 16
_MAX_NUMBERS = 2_000_000


@dataclass
class Recorded:
    """One recorded value.

    Args:
        kind: "tensor", "array", "float", "int", "bool", "none", "str", "tuple", "list", "dict",
            "object", or "unreadable".
        type_name: the type's name, for messages.
        data: the numbers of a tensor, array or number; None if there were too many.
        items: the values of a tuple, list or dict, by position or key.
    """

    kind: str
    type_name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    device: str = ""
    requires_grad: bool = False
    data: np.ndarray | None = None
    items: dict[Any, "Recorded"] = field(default_factory=dict)


def record(value: Any, depth: int = 2) -> Recorded:
    """Records `value`; never raises for what `value` does."""
    try:
        return _record(value, depth)
    except Exception as error:
        return Recorded("unreadable", f"{describe_type(value)} ({type(error).__name__})")


def describe_type(value: Any) -> str:
    """The name of a value's type, as a reader knows it."""
    kind = type(value)
    module = getattr(kind, "__module__", "")
    prefix = f"{module.split('.')[0]}." if module.startswith(("torch", "numpy")) else ""
    return f"{prefix}{kind.__name__}"[:100]


def _record(value, depth) -> Recorded:
    kind, name = type(value), describe_type(value)
    if value is None:
        return Recorded("none", "None")
    if kind in (torch.Tensor, torch.nn.Parameter):
        return _record_tensor(value)
    if kind is np.ndarray:
        return _record_array(value)
    if kind is bool or isinstance(value, np.bool_):
        return Recorded("bool", name, data=np.array(bool(value)))
    if kind is int or isinstance(value, np.integer):
        return Recorded("int", name, data=np.array(float(value)))
    if kind is float or isinstance(value, np.floating):
        return Recorded("float", name, data=np.array(float(value)))
    if kind is str:
        return Recorded("str", name)
    if isinstance(value, tuple | list) and depth:
        items = {i: record(item, depth - 1) for i, item in enumerate(value[:_MAX_ITEMS])}
        return Recorded("tuple" if isinstance(value, tuple) else "list", name, items=items)
    if kind is dict and depth:
        items = {str(k): record(value[k], depth - 1) for k in list(value)[:_MAX_ITEMS]}
        return Recorded("dict", name, items=items)
    return Recorded("object", name)


def _record_tensor(value) -> Recorded:
    plain = value.detach().to("cpu")
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    dtype = str(value.dtype).removeprefix("torch.")
    if plain.dtype in (torch.bfloat16, torch.float16):
        plain = plain.float()
    data = None if plain.numel() > _MAX_NUMBERS else np.array(plain.resolve_conj().numpy())
    shape, device = tuple(value.shape), str(value.device.type)
    return Recorded("tensor", "torch.Tensor", dtype, shape, device, value.requires_grad, data)


def _record_array(value) -> Recorded:
    plain = value.dtype.kind in "biufc"
    data = np.array(value) if plain and value.size <= _MAX_NUMBERS else None
    return Recorded("array", "numpy.ndarray", str(value.dtype), value.shape, "cpu", False, data)
