"""Encode probes and observations as JSON, to send them between processes without pickle.

This module runs in both processes and uses only the standard library and NumPy. Student code may
have written the text to decode, so only the few types named here are created, with bounded sizes.
"""

import base64
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

MAX_TEXT = 4_000_000  # characters of one message; the largest honest one has about 700 000
_MAX_ARRAY_BYTES = 8_000_000
_KINDS = "biufc"


class CodecError(ValueError):
    """A message is malformed. The error says how."""


def encode(value: Any) -> str:
    """Encode dataclasses, arrays and plain values as JSON text."""
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):  # most values
        return value
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value)
        text = base64.b64encode(data.tobytes()).decode("ascii")
        return {"array": [data.dtype.str, list(value.shape), text]}
    if isinstance(value, np.generic):
        return _plain(value.item())
    if is_dataclass(value):
        content = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"object": [type(value).__name__, content]}
    if isinstance(value, Mapping):
        return {"pairs": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item) for item in value]}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    raise CodecError(f"a {type(value).__name__} cannot be sent")


def decode(text: str, expected: type, known: tuple[type, ...]) -> Any:
    """Return the encoded value, which must be of the expected type.

    Dataclasses inside must be `known`. Their annotations are enforced.

    Raises:
        CodecError: the text is too long, not JSON, or contains unexpected types.
    """
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise CodecError("the message is too long")
    try:
        value = _made(json.loads(text), {kind.__name__: kind for kind in known})
    except CodecError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError) as error:
        raise CodecError(f"the message cannot be read ({type(error).__name__})") from None
    if not _check_of(expected)(value):
        raise CodecError(f"the message holds a {type(value).__name__}")
    return value


def _made(value: Any, known: dict[str, type]) -> Any:
    if isinstance(value, list):
        return [_made(item, known) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        return _array(*content)
    if kind == "object":
        name, attributes = content
        return _object(name, attributes, known)
    if kind == "pairs":
        if not all(isinstance(key, bool | int | float | str | None) for key, _ in content):
            raise CodecError("the message holds a key that is no name")
        return {key: _made(item, known) for key, item in content}
    if kind == "tuple":
        return tuple(_made(item, known) for item in content)
    raise CodecError("the message holds an unknown kind of value")


def _array(dtype: str, shape: list[int], text: str) -> np.ndarray:
    kind = np.dtype(str(dtype))
    data = base64.b64decode(text, validate=True)
    if kind.kind not in _KINDS or kind.itemsize > 16 or len(data) > _MAX_ARRAY_BYTES:
        raise CodecError("the message holds an array of another kind or size")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise CodecError("the message holds an array without a shape")
    return np.frombuffer(data, kind).reshape(shape).copy()


def _object(name: str, content: dict, known: dict[str, type]) -> Any:
    kind, values = known[name], {key: _made(item, known) for key, item in content.items()}
    hints = _hints(kind)
    for key, value in values.items():
        if not _check_of(hints[key])(value):
            raise CodecError(f"{name}.{key} is a {type(value).__name__}")
    return kind(**values)


_hints = functools.cache(get_type_hints)


@functools.cache
def _check_of(hint: Any) -> Callable[[Any], bool]:
    """Return a function that tests whether a value and its items match an annotation."""
    origin, parts = get_origin(hint), [h for h in get_args(hint) if h is not Ellipsis]
    if hint is Any:
        return lambda value: True
    if hint is float:
        return lambda value: type(value) in (int, float)
    if origin is None:
        kind = NoneType if hint is None else hint
        return lambda value: type(value) is kind
    checks = [_check_of(part) for part in parts]
    first, last = checks[0], checks[-1]
    if origin in (Union, UnionType):
        return lambda value: any(check(value) for check in checks)
    if origin is list or (origin is tuple and Ellipsis in get_args(hint)):
        return lambda value: type(value) is origin and all(map(first, value))
    if origin is tuple:
        return lambda value: (
            type(value) is tuple
            and len(value) == len(checks)
            and all(check(item) for check, item in zip(checks, value, strict=True))
        )
    if issubclass(origin, Mapping):
        return lambda value: (
            type(value) is dict and all(map(first, value)) and all(map(last, value.values()))
        )
    return lambda value: False
