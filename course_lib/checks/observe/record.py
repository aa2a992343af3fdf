"""Turn any object into a bounded record of plain data: numbers, names and shapes.

This runs beside the student's code and does not trust it. Properties that raise, tensor subclasses
that lie about themselves and lists of a million items get a short, correct description.
"""

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch

_MAX_ITEMS = 16
_MAX_NUMBERS = 2_000_000
_MAX_BYTES = 16  # for each number, because `codec` refuses more
_MAX_TEXT = 200


@dataclass
class Recorded:
    """One recorded value.

    Args:
        kind: "tensor", "array", "float", "int", "bool", "none", "str", "tuple", "list", "dict",
            "object", or "unreadable".
        data: the numbers of a tensor, array or number; None if there were too many.
        items: the values of a tuple, list or dict, by position or key.
        text: the beginning of a string, or the digits of an int, which a float64 may round.
    """

    kind: str
    type_name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    device: str = ""
    requires_grad: bool = False
    data: np.ndarray | None = None
    items: dict[Any, "Recorded"] = field(default_factory=dict)
    text: str = ""

    @property
    def numbers(self) -> np.ndarray:
        """Return the numbers; raise ValueError if none were recorded."""
        if self.data is None:
            raise ValueError(f"no numbers were recorded of a {self.type_name}")
        return self.data


def record(value: Any, depth: int = 2) -> Recorded:
    """Record `value`, without raising for anything that `value` does."""
    try:
        return _record(value, depth)
    except Exception as error:
        return Recorded("unreadable", f"{describe_type(value)} ({describe_type(error)})")


def describe_type(value: Any) -> str:
    """Return the name of a value's type for a reader."""
    module, name = type.__dict__["__module__"].__get__(type(value)), class_name(type(value))
    known = isinstance(module, str) and module.startswith(("torch", "numpy"))
    return f"{module.split('.')[0]}.{name}" if known else name


def class_name(kind: type) -> str:
    """Return the name of a class, whatever its metaclass says."""
    return type.__dict__["__name__"].__get__(kind)[:100]


def a_or_an(name: str) -> str:
    """Return the name with its article."""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _record(value, depth) -> Recorded:
    kind, name = type(value), describe_type(value)
    if value is None:
        return Recorded("none", "None")
    if kind in (torch.Tensor, torch.nn.Parameter):
        return _record_tensor(value)
    if kind.__module__ == "course_lib.checks.observe.fake_device":
        # It was kept from an earlier call on the fake device. Its numbers cannot be read.
        dtype = str(value.dtype).removeprefix("torch.")
        return Recorded("tensor", "torch.Tensor", dtype, tuple(value.shape), value.device.type)
    if kind is np.ndarray:
        if not _lies_in_its_memory(value):
            return Recorded("unreadable", f"{name} that reaches beyond its memory")
        is_plain = value.dtype.kind in "biufc" and value.itemsize <= _MAX_BYTES
        data = np.array(value) if is_plain and value.size <= _MAX_NUMBERS else None
        return Recorded("array", "numpy.ndarray", str(value.dtype), value.shape, "cpu", False, data)
    if kind is bool:
        return Recorded("bool", name, data=np.array(value))
    if isinstance(value, np.bool_):
        return Recorded("object", name, data=np.array(value))
    if kind is int or isinstance(value, np.integer):
        digits = str(value) if abs(int(value)) < 10**300 else ""
        return Recorded("int", name, data=np.array(float(value)), text=digits)
    if kind is float or isinstance(value, np.floating):
        return Recorded("float", name, data=np.array(float(value)))
    if kind is str:
        return Recorded("str", name, text=value[:_MAX_TEXT] + "..." * (len(value) > _MAX_TEXT))
    if isinstance(value, tuple | list) and depth:
        # A subclass's own method would run the answer's code again.
        plain = tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)
        items = {i: record(item, depth - 1) for i, item in enumerate(islice(plain, _MAX_ITEMS))}
        return Recorded("tuple" if isinstance(value, tuple) else "list", name, items=items)
    if isinstance(value, dict) and depth:  # a subclass's own methods may lie
        pairs = islice(dict.items(value), _MAX_ITEMS)
        items = {str(key): record(item, depth - 1) for key, item in pairs}
        return Recorded("dict", name, items=items)
    return Recorded("object", name)


def _record_tensor(value) -> Recorded:
    if value.layout is not torch.strided:  # to_dense() trusts the indices, and may crash
        return Recorded("unreadable", f"torch.Tensor with the layout {value.layout}")
    dtype = str(value.dtype).removeprefix("torch.")
    shape, device = tuple(value.shape), str(value.device.type)
    data = None
    if value.numel() <= _MAX_NUMBERS and device != "meta":
        plain = value.detach().to("cpu")
        last = sum((n - 1) * step for n, step in zip(shape, plain.stride(), strict=True))
        end = (plain.storage_offset() + last + 1) * plain.itemsize
        memory = plain.untyped_storage()
        if plain.numel() and not (memory.data_ptr() and end <= memory.nbytes()):
            return Recorded("unreadable", "torch.Tensor that reaches beyond its memory")
        plain = plain.float() if plain.dtype in (torch.bfloat16, torch.float16) else plain
        data = np.array(plain.resolve_conj().resolve_neg().numpy())
    return Recorded("tensor", "torch.Tensor", dtype, shape, device, value.requires_grad, data)


def _lies_in_its_memory(array) -> bool:
    """Return whether no entry lies outside the array that a view such as `as_strided` is of."""
    first = base = array
    while (base := getattr(base, "base", None)) is not None:
        first = base if type(base) is np.ndarray else first
    (low, high), (start, end) = map(np.lib.array_utils.byte_bounds, (array, first))
    return array.size == 0 or (start <= low and high <= end)
