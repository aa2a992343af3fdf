"""Argument checks for the public functions of this package.

The decorator `checked` keeps these checks out of the solutions, whose source the lessons show. It
takes the rules from a function's jaxtyping annotations and adds those for masks and lengths.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import jaxtyped
from torch import Tensor


def checked(function: Callable) -> Callable:
    """Check the arguments of `function` before each call.

    Arrays must match their annotations. Shapes other than those of masks and lengths are compared
    in eager calls only. A `mask` must be broadcastable to the attention weights, and `valid_lens`
    must have shape `(batch,)` or `(batch, num_queries)` with values in `0..num_keys`. The values
    are read in eager CPU calls only, because reading them would stall a GPU or break a trace.

    Raises:
        TypeError: an argument is missing, or it has the wrong type or dtype.
        ValueError: a shape does not match, or a length is out of range.
    """
    signature = inspect.signature(function)
    annotations = {}
    for name, parameter in signature.parameters.items():
        options = (parameter.annotation,)
        if typing.get_origin(parameter.annotation) in (types.UnionType, typing.Union):
            options = typing.get_args(parameter.annotation)
        if arrays := [option for option in options if hasattr(option, "dim_str")]:
            annotations[name] = arrays[0], type(None) in options
    passed: set[tuple] = set()

    @functools.wraps(function)
    def call(*args, **kwargs) -> typing.Any:
        # Checks take up to a fifth of a language model's time, so calls alike are checked once.
        form = None if torch.compiler.is_compiling() else _form(args, kwargs)
        if form is not None and form in passed:
            return function(*args, **kwargs)
        arguments = signature.bind(*args, **kwargs).arguments
        given = []  # (name, array, annotation)
        for name, value in arguments.items():
            annotation, optional = annotations.get(name, (None, True))
            for item in value if isinstance(value, tuple) else (value,):  # a tuple is `*masks`
                if annotation is not None and not (item is None and optional):
                    _check_kind(name, item, annotation)
                    given.append((name, item, annotation))
        if not torch.compiler.is_compiling():
            with jaxtyped("context"):  # sizes of the same name must agree
                for name, value, annotation in given:
                    if not isinstance(value, annotation):
                        rule = ", ".join(annotation.dim_str.split())
                        got = tuple(value.shape)
                        raise ValueError(f"`{name}` must have shape ({rule}); got {got}.")
        weights_shape = _weights_shape(arguments)
        if weights_shape is not None:
            _check_mask(arguments.get("mask"), weights_shape)
            _check_valid_lens(arguments.get("valid_lens"), weights_shape)
        elif arguments.keys() == {"valid_lens", "max_len"}:  # `length_mask`: there are no scores
            _check_length_range(arguments["valid_lens"], arguments["max_len"], "max_len")
        if form is not None and len(passed) < _MOST_FORMS:
            passed.add(form)
        return function(*args, **kwargs)

    return call


_MOST_FORMS = 1000  # a language model makes a new one with each token


def _form(args: tuple, kwargs: dict) -> tuple | None:
    """Return what the checks read of the arguments, or None if they read an array's numbers."""
    form: list[typing.Any] = [len(args), *kwargs]
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            dtype = value.dtype
            if not (dtype.is_floating_point or dtype is torch.bool):
                return None  # lengths, whose range is checked
            form += (type(value), value.shape, dtype)
        elif isinstance(value, np.ndarray):
            return None
        else:
            form += (type(value), getattr(value, "num_heads", None))
    return tuple(form)


def _check_kind(name: str, value: typing.Any, annotation: typing.Any) -> None:
    """Raise TypeError unless `value` is an array of the kind and dtype that `annotation` names."""
    is_array = isinstance(value, annotation.array_type)
    if not is_array or str(value.dtype).removeprefix("torch.") not in annotation.dtypes:
        kinds = {"Bool": "a bool", "Int": "an integer", "Float": "a float"}
        kind = kinds[annotation.__name__.split("[")[0]]
        array = "tensor" if annotation.array_type is Tensor else "numpy.ndarray"
        of = f" of {value.dtype}" if hasattr(value, "dtype") else ""
        got = type(value).__name__ + of
        raise TypeError(f"`{name}` must be {kind} {array}; got {got}.")


def _weights_shape(arguments: dict) -> tuple[int, ...] | None:
    """Return the shape of the attention weights, with a head axis if the mask has one."""
    if "scores" in arguments:
        return tuple(arguments["scores"].shape)
    queries = arguments.get("queries", arguments.get("x"))
    keys = arguments.get("keys", queries)
    if queries is None or keys is None or keys.ndim < 2:
        return None
    shape = (*queries.shape[:-1], keys.shape[-2])
    num_heads = getattr(arguments.get("self"), "num_heads", None)
    if num_heads is not None and getattr(arguments.get("mask"), "ndim", 0) > len(shape):
        return shape[0], num_heads, *shape[1:]
    return shape


def _check_mask(mask: Tensor | np.ndarray | None, weights_shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `mask` is None or broadcastable to `weights_shape`."""
    if mask is None:
        return
    sizes = zip(reversed(mask.shape), reversed(weights_shape), strict=False)
    if mask.ndim > len(weights_shape) or any(size not in (1, full) for size, full in sizes):
        raise ValueError(
            "`mask` must be broadcastable to (*batch, num_queries, num_keys) = "
            f"{tuple(weights_shape)}; got {tuple(mask.shape)}."
        )


def _check_valid_lens(valid_lens: Tensor | None, weights_shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `valid_lens` is None or fits `weights_shape`."""
    if valid_lens is None:
        return
    if len(weights_shape) < 3:
        raise ValueError(
            "`valid_lens` must go with a leading batch dimension; the weights have shape "
            f"{tuple(weights_shape)}, so give a `mask` instead."
        )
    batch, num_queries, num_keys = weights_shape[0], weights_shape[-2], weights_shape[-1]
    if tuple(valid_lens.shape) not in ((batch,), (batch, num_queries)):
        raise ValueError(
            f"`valid_lens` must have shape (batch,) = ({batch},) or (batch, num_queries) = "
            f"({batch}, {num_queries}); got {tuple(valid_lens.shape)}."
        )
    _check_length_range(valid_lens, num_keys, "num_keys")


def _check_length_range(valid_lens: Tensor, max_len: int, name: str) -> None:
    """Raise ValueError if a length is outside `0..max_len`, in eager CPU calls only."""
    if torch.compiler.is_compiling() or valid_lens.device.type != "cpu" or not valid_lens.numel():
        return
    low, high = int(valid_lens.min()), int(valid_lens.max())
    if low < 0 or high > max_len:
        got = low if low < 0 else high
        raise ValueError(f"`valid_lens` must lie in 0..{name} = 0..{max_len}; got {got}.")
