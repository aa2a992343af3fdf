"""Attention at speed: the names of `course_lib.attention`, with its arguments and its numbers.

What the lessons write out is here computed in blocks, by torch's fused kernels or by Triton, so
that nothing is stored that need not be. `need_weights=False` leaves out the attention weights.
Lesson 08 explains how; `course bench attention` measures what it brings. Names are imported when
they are first used.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

_MODULE_OF = {
    "AdditiveAttention": "additive_attention",
    "DotProductAttention": "scaled_dot_product",
    "MultiHeadAttention": "multi_head",
    "kernel_pooling": "kernel_pooling",
    "masked_softmax": "masked_softmax",
    "scaled_dot_product_attention": "scaled_dot_product",
}

__all__ = sorted(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll] (from the table)


class _Package(ModuleType):
    """A package in which a function is not hidden by the submodule of the same name."""

    def __setattr__(self, name: str, value) -> None:
        """Sets an attribute, as the import system does with each submodule it has loaded."""
        if _MODULE_OF.get(name) == name and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    """Finds a public name in its module."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'course_lib.fused' has no attribute '{name}'")
    return getattr(importlib.import_module(f"course_lib.fused.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__]


sys.modules[__name__].__class__ = _Package
