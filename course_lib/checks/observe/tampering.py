"""Detect changes to the observer, which shares a process with a student's cells.

Only measured bytes and function evaluations need this, because code that wraps the meter can report
too few. Values are judged elsewhere, from numbers that cannot be guessed.
"""

import ast
import contextlib
import functools
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

_DECORATORS = (contextlib.contextmanager(iter).__code__,)  # wrappers of a function in the source
_CACHED = type(functools.cache(print))
_PACKAGE = __name__.rpartition(".")[0]
_MODULES = ("call", "codec", "cost_meter", "observation", "record", "remote", "tampering")
# The parts of torch that the meter uses: classes in Python, and compiled methods.
_BELOW = {
    "torch.utils._python_dispatch": "TorchDispatchMode.",
    "torch.multiprocessing.reductions": "StorageWeakRef.",
}
_COMPILED = (
    (torch.Tensor, "untyped_storage"),
    (torch.Tensor, "numel"),
    (torch.UntypedStorage, "nbytes"),
)


def changes() -> list[str]:
    """Return the qualified names in the observer that differ from their source."""
    found = [f"{name}.{what}" for name in _MODULES for what in _changes_in(name)]
    for home, within in _BELOW.items():
        module = sys.modules[home]
        source = Path(inspect.getfile(module)).read_bytes()
        found += [f"{home}.{what}" for what in _redefined(module, source, within)]
    for owner, name in _COMPILED:
        if not inspect.ismethoddescriptor(inspect.getattr_static(owner, name)):
            found.append(f"{owner.__name__}.{name}")
    return found


def _changes_in(name: str) -> Iterator[str]:
    module = sys.modules.get(f"{_PACKAGE}.{name}")
    if module is None:
        return
    path = Path(__file__).with_name(f"{name}.py")
    source = path.read_bytes()
    for node in ast.parse(source).body:
        home = vars(sys.modules.get(getattr(node, "module", None) or "", module))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PACKAGE):
            for alias in node.names:
                here = vars(module).get(alias.asname or alias.name)
                if here is not home.get(alias.name) and not inspect.ismodule(here):
                    yield alias.name
    yield from _redefined(module, source)


def _redefined(module: ModuleType, source: bytes, within: str = "") -> Iterator[str]:
    """Yield the functions and classes of a module that differ from its source."""
    for qualname, code in _codes(compile(source, module.__name__, "exec", dont_inherit=True)):
        named = qualname.startswith(within)
        if named and not _is(_found(vars(module), qualname.split(".")), code):
            yield qualname


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Return the functions and classes that a source defines, except those inside functions."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and not inner.co_name.startswith("<"):
            yield inner.co_qualname, inner
            if _is_class(inner):
                yield from _codes(inner)


def _is_class(code: CodeType) -> bool:
    return not code.co_flags & inspect.CO_OPTIMIZED


def _found(names: Any, path: list[str]) -> Any:
    """Return the object that a qualified name refers to now, or None."""
    found = names.get(path[0])
    if len(path) > 1:
        return _found(vars(found), path[1:]) if isinstance(found, type) else None
    return found


def _is(found: Any, code: CodeType) -> bool:
    """Return whether an object is the function or class that this code creates."""
    if _is_class(code):
        if not isinstance(found, type):
            return False
        return {name for name in vars(found) if not name.startswith("_")} <= {*code.co_names}
    found = getattr(found, "__func__", getattr(found, "fget", found))
    if getattr(found, "__code__", None) in _DECORATORS or isinstance(found, _CACHED):
        found = inspect.unwrap(found)
    return inspect.isfunction(found) and found.__code__ == code
