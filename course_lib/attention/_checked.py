"""Argument checks for the public functions of this package, read off their own annotations.

A shape is written once, in the signature. `checked` binds its sizes at each call, compares them
across arguments and raises by one template. What it does not know is what the solutions teach,
so the pasted exercises stay free of it.
"""

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn


def checked(function: Callable) -> Callable:
    """Checks the arguments of `function` against its jaxtyping annotations before calling it.

    Sizes with the same name must agree, tensors must share one dtype kind as annotated, floating
    tensors must share one dtype and device. Arguments called `mask` and `valid_lens` follow the
    course's conventions: a bool mask broadcastable to `(*batch, num_queries, num_keys)`, integer
    lengths `(batch,)` or `(batch, num_queries)` in `0..num_keys`. Lengths are looked at only in
    eager CPU calls, since reading them elsewhere would stall the device or break a trace.

    Raises:
        TypeError: an argument has the wrong type or dtype, or tensors disagree about dtype.
        ValueError: a shape, a length or a device does not fit.
    """
    parameters = inspect.signature(function).parameters
    expected = {name: _array_annotation(p.annotation) for name, p in parameters.items()}
    names = tuple(expected)
    plain = {name: _plain_check(name, p.annotation) for name, p in parameters.items()}
    variadic = next((n for n, p in parameters.items() if p.kind is p.VAR_POSITIONAL), None)
    dims = sorted({dim for found in expected.values() if found for dim in found[0].dim_str.split()})

    @functools.wraps(function)
    def call(*args, **kwargs) -> typing.Any:
        arguments = dict(zip(names, args, strict=False)) | kwargs
        if variadic is not None:
            for mask in args:
                check_mask(mask, tuple(getattr(mask, "shape", ())))
        sizes = _own_sizes(arguments.get("self"), dims)
        for name, value in arguments.items():
            check, array = plain.get(name), expected.get(name)
            if check is not None:
                if value is not None or parameters[name].default is not None:
                    check(name, value)
            elif name not in (*_MASKS, variadic) and array is not None:
                annotation, optional = array
                if value is not None or not optional:
                    _check_array(name, value, annotation, sizes)
        _check_agreement(arguments, expected)
        _check_masks(arguments, sizes, expected)
        return function(*args, **kwargs)

    return call


def _plain_check(name: str, annotation) -> Callable | None:
    """The check of an argument that is no array, by its name and annotation."""
    kinds = {annotation, *typing.get_args(annotation)}
    if name in _POSITIVE:
        return _check_positive
    if int in kinds:
        is_count = name in _COUNTS or name.startswith(_PLAIN_STARTS) or name.endswith("_size")
        return _check_count if is_count else None
    return next((_PLAIN_CHECKS[kind] for kind in kinds if kind in _PLAIN_CHECKS), None)


_PLAIN_STARTS = ("num_", "max_len", "embed_dim")
_POSITIVE = {"bandwidth", "initial", "lr"}  # numbers, or tensors that hold one
_AT_LEAST_ONE = {"d", "num_samples", "block_size", "period"}
_COUNTS = ("d", "d_v", "batch", "bytes_per_element", "period")
_MASKS = ("mask", "valid_lens")  # follow the course's conventions, not a shape of their own


def _own_sizes(module, dims) -> dict[str, typing.Any]:
    """The sizes that a module was built with, where its `forward` names them too."""
    own = {dim: getattr(module, dim, None) for dim in dims if dim.isidentifier()}
    return {dim: size for dim, size in own.items() if isinstance(size, int)}


def _check_masks(arguments, sizes, expected) -> None:
    mask, valid_lens = arguments.get("mask"), arguments.get("valid_lens")
    if "num_positions" in sizes:  # self-attention: positions are queries and keys
        both = dict.fromkeys(("num_queries", "num_keys"), sizes["num_positions"])
        sizes = both | sizes
    if "num_keys" in sizes:
        batch = next((size for dim, size in sizes.items() if dim.startswith("*")), None)
        batch = (sizes["batch"],) if "batch" in sizes else batch or ()
        batch = (*batch, sizes["num_heads"]) if "num_heads" in sizes else batch
        weights_shape = (*batch, sizes["num_queries"], sizes["num_keys"])
        kind = np.ndarray if isinstance(arguments.get("queries"), np.ndarray) else Tensor
        num_heads = getattr(arguments.get("self"), "num_heads", None)
        if num_heads is not None and getattr(mask, "ndim", 0) == len(weights_shape) + 1:
            check_mask(mask, (*batch, num_heads, *weights_shape[len(batch) :]))  # one per head
        else:
            check_mask(mask, weights_shape, kind)
        check_valid_lens(valid_lens, weights_shape)
        if valid_lens is not None and expected["valid_lens"][0].dim_str != "...":
            _bind_shape("valid_lens", tuple(valid_lens.shape), "batch", sizes)
    elif "valid_lens" in arguments:  # lengths alone, to be turned into a mask
        check_lengths(valid_lens)
        if valid_lens.dim() not in (1, 2):
            raise ValueError(
                "`valid_lens` must have shape (batch,) or (batch, num_queries); "
                f"got {tuple(valid_lens.shape)}."
            )
        check_length_range(valid_lens, arguments["max_len"], "max_len")
    elif "mask" in arguments:
        check_mask(mask, tuple(getattr(mask, "shape", ())))


def check_mask(mask, weights_shape: tuple[int, ...], kind: type = Tensor) -> None:
    """Raises unless `mask` is None or a bool `kind` broadcastable to `weights_shape`."""
    if mask is None:
        return
    if not isinstance(mask, kind) or mask.dtype not in (torch.bool, np.dtype(bool)):
        what = "tensor" if kind is Tensor else "numpy.ndarray"
        raise TypeError(
            f"`mask` must be a bool {what}, True = may attend; got {_describe_type(mask)}."
        )
    fits = mask.ndim <= len(weights_shape) and all(
        size in (1, full)
        for size, full in zip(reversed(mask.shape), reversed(weights_shape), strict=False)
    )
    if not fits:
        raise ValueError(
            "`mask` must be broadcastable to (*batch, num_queries, num_keys) = "
            f"{tuple(weights_shape)}; got {tuple(mask.shape)}."
        )


def check_valid_lens(valid_lens: Tensor | None, weights_shape: tuple[int, ...]) -> None:
    """Raises unless `valid_lens` is None or fits weights of shape `(batch, ..., n, m)`."""
    if valid_lens is None:
        return
    check_lengths(valid_lens)
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
    check_length_range(valid_lens, num_keys, "num_keys")


def check_lengths(valid_lens: Tensor) -> None:
    """Raises TypeError unless `valid_lens` is a tensor of integers."""
    is_tensor = isinstance(valid_lens, Tensor)
    if not is_tensor or valid_lens.dtype.is_floating_point or valid_lens.dtype == torch.bool:
        raise TypeError(
            f"`valid_lens` must be an integer tensor; got {_describe_type(valid_lens)}."
        )


def check_length_range(valid_lens: Tensor, max_len: int, name: str) -> None:
    """Raises ValueError if a length lies outside `0..max_len`; looks in eager CPU calls only."""
    if torch.compiler.is_compiling() or valid_lens.device.type != "cpu" or not valid_lens.numel():
        return
    low, high = int(valid_lens.min()), int(valid_lens.max())
    if low < 0 or high > max_len:
        raise ValueError(
            f"`valid_lens` must lie in 0..{name} = 0..{max_len}; got {low if low < 0 else high}."
        )


def _array_annotation(annotation) -> tuple[typing.Any, bool] | None:
    """Returns (the jaxtyping annotation, whether None is allowed), or None for anything else."""
    options = (annotation,)
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        options = typing.get_args(annotation)
    arrays = [option for option in options if hasattr(option, "dim_str")]
    return (arrays[0], type(None) in options) if arrays else None


def _check_array(name, value, annotation, sizes) -> None:
    if not isinstance(value, annotation.array_type):
        kind = "torch.Tensor" if annotation.array_type is Tensor else "numpy.ndarray"
        raise TypeError(f"`{name}` must be a {kind}; got {_describe_type(value)}.")
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in annotation.dtypes:
        kind = annotation.__name__.split("[")[0].lower()
        raise TypeError(f"`{name}` must be a {kind} tensor; got {_describe_type(value)}.")
    _bind_shape(name, tuple(value.shape), annotation.dim_str, sizes)


def _bind_shape(name, shape, dim_str, sizes) -> None:
    """Binds the sizes named in `dim_str` to `shape`, or raises with rule and numbers."""
    dims = dim_str.split()
    variadic = next((d for d in dims if d.startswith("*") or d == "..."), None)
    tail = dims if variadic is None else dims[dims.index(variadic) + 1 :]
    fixed = len(dims) - (variadic is not None)
    fits = len(shape) == fixed if variadic is None else len(shape) >= fixed
    if fits:
        parts: list = list(zip(tail, shape[len(shape) - len(tail) :], strict=True))
        if variadic not in (None, "..."):
            parts.append((variadic, shape[: len(shape) - len(tail)]))
        fits = all(_bind_size(dim, size, sizes) for dim, size in parts)
    if not fits:
        rule = ", ".join(dims)
        numbers = ", ".join(_known_size(dim, sizes) for dim in dims)
        raise ValueError(f"`{name}` must have shape ({rule}) = ({numbers}); got {shape}.")


def _bind_size(dim, size, sizes) -> bool:
    return size == int(dim) if dim.isdigit() else sizes.setdefault(dim, size) == size


def _known_size(dim, sizes) -> str:
    if dim not in sizes:
        return dim if dim == "..." or dim.isdigit() else "any"
    return ", ".join(map(str, sizes[dim])) if isinstance(sizes[dim], tuple) else str(sizes[dim])


def _check_agreement(arguments, expected) -> None:
    """Raises unless all tensors share a device and all floating ones a dtype."""
    tensors = {
        f"`{name}`": value
        for name, value in arguments.items()
        if isinstance(value, Tensor) and expected.get(name) is not None
    }
    masks = {f"`{name}`" for name in _MASKS}
    floating = {n: t for n, t in tensors.items() if t.is_floating_point() and n not in masks}
    module = arguments.get("self") if tensors else None
    weights = next(module.parameters(), None) if isinstance(module, nn.Module) else None
    if weights is not None:
        tensors["the module's weights"] = weights
        kind = weights.device.type  # autocast knows no meta device
        if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
            # Under autocast inputs may be wider than the weights.
            floating["the module's weights"] = weights
    for what, group, error in (("device", tensors, ValueError), ("dtype", floating, TypeError)):
        found = {name: getattr(tensor, what) for name, tensor in group.items()}
        if len(set(found.values())) > 1:
            got = ", ".join(f"{name} {value}" for name, value in found.items())
            raise error(f"all tensors must have the same {what}; got {got}.")


def _check_count(name, value) -> None:
    """Raises unless `value` is a whole number, at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt):
        raise TypeError(f"`{name}` must be an int; got {_describe_type(value)}.")
    least = int(name in _AT_LEAST_ONE)
    if value < least:
        raise ValueError(f"`{name}` must be >= {least}; got {value}.")


def _check_positive(name, value) -> None:
    """Raises unless `value` is one number > 0; looks into tensors in eager CPU calls only."""
    is_tensor = isinstance(value, Tensor)
    if isinstance(value, bool) or not isinstance(value, int | float | Tensor | torch.SymFloat):
        raise TypeError(f"`{name}` must be a number; got {_describe_type(value)}.")
    if is_tensor and value.dim():
        raise ValueError(f"`{name}` must be one number; got shape {tuple(value.shape)}.")
    if torch.compiler.is_compiling() or (is_tensor and value.device.type != "cpu"):
        return
    number = value.item() if is_tensor else value
    if not 0 < number < math.inf:
        raise ValueError(f"`{name}` must be finite and > 0; got {number}.")


def _check_floating_dtype(name, value) -> None:
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise TypeError(f"`{name}` must be a floating torch.dtype; got {value}.")


def _check_generator(name, value) -> None:
    if not isinstance(value, torch.Generator):
        raise TypeError(f"`{name}` must be a torch.Generator; got {_describe_type(value)}.")


def _check_callable(name, value) -> None:
    if not callable(value):
        raise TypeError(f"`{name}` must be callable; got {_describe_type(value)}.")


_PLAIN_CHECKS = {
    torch.dtype: _check_floating_dtype,
    torch.Generator: _check_generator,
    Callable: _check_callable,
}


def _describe_type(value) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, np.ndarray):
        return f"a numpy.ndarray of {value.dtype}"
    return type(value).__name__
