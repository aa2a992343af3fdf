"""Probes and observations as JSON text, so that they cross between two processes without pickle.

Runs on both sides: standard library and NumPy only. What is decoded may have been written by a
student's code, so only the few types named here are ever made, and every size is bounded.
"""

import base64
import functools
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

MAX_TEXT = 4_000_000  # characters of one message; the largest honest one has about 700 000
_MAX_ARRAY_BYTES = 8_000_000
_KINDS = "biufc"


class CodecError(ValueError):
    """A message does not hold what it should; it says what."""


def encode(value: Any) -> str:
    """Dataclasses, arrays and plain values as JSON text."""
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):  # nearly everything
        return value
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value)
        text = base64.b64encode(data.tobytes()).decode("ascii")
        return {"array": [data.dtype.str, list(value.shape), text]}
    if isinstance(value, np.generic):
        return _plain(value.item())
    if is_dataclass(value):
        content = {name: _plain(getattr(value, name)) for name in _names(type(value))}
        return {"object": [type(value).__name__, content]}
    if isinstance(value, Mapping):
        return {"pairs": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item) for item in value]}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    raise CodecError(f"a {type(value).__name__} cannot be sent")


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def decode(text: str, expected: type, known: tuple[type, ...]) -> Any:
    """The value that `encode` was given.

    Args:
        text: what arrived.
        expected: the type that it must have.
        known: dataclasses that may occur inside; their annotations are enforced.

    Raises:
        CodecError: it is too long, no JSON, or holds anything else than announced.
    """
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise CodecError("the message is too long")
    try:
        value = _made(json.loads(text), {kind.__name__: kind for kind in known})
    except CodecError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError) as error:
        raise CodecError(f"the message cannot be read ({type(error).__name__})") from None
    if not _fits(value, expected):
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
        return {_key(key): _made(item, known) for key, item in content}
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
    kind = known[name]
    hints = _hints(kind)
    values = {key: _made(item, known) for key, item in content.items()}
    for key, value in values.items():
        if not _fits(value, hints[key]):
            raise CodecError(f"{name}.{key} is a {type(value).__name__}")
    return kind(**values)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _key(key: Any) -> Any:
    if not isinstance(key, bool | int | float | str | None):
        raise CodecError("the message holds a key that is no name")
    return key


def _fits(value: Any, hint: Any) -> bool:
    """Whether a decoded value is what an annotation says, containers and their items included."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in args)
    if hint in (None, NoneType):
        return value is None
    if hint is float:
        return type(value) in (int, float)
    if origin is None:
        return type(value) is hint
    if origin is tuple:
        if type(value) is not tuple:
            return False
        if args[-1] is Ellipsis:
            return all(_fits(item, args[0]) for item in value)
        return len(value) == len(args) and all(map(_fits, value, args))
    if origin is list:
        return type(value) is list and all(_fits(item, args[0]) for item in value)
    if issubclass(origin, Mapping):
        return type(value) is dict and all(
            _fits(key, args[0]) and _fits(item, args[1]) for key, item in value.items()
        )
    return False
