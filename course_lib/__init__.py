"""The attention course: `check`, `hint`, `progress`, `plotting`, each exercise's reference version.

Public names are found when they are first used, so that `import course_lib` is fast and brings in
no torch. Exercises are registered nowhere: they are course_lib.attention's public functions and
classes. Old Pythons read this file before `__main__` can refuse them: keep its syntax plain.
"""

import ast
import importlib
import os

__version__ = "0.1.0"

_TOOLS = {name: "course_lib.checks" for name in ("check", "hint", "progress")}
_MODULES = ("attention", "checks", "plotting")
_ATTENTION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "attention")
_found = {}


def _exercise_modules():
    """Map the name of each public function and class of course_lib.attention to its module."""
    if not _found:
        _found.update(_scan(_ATTENTION))
    return _found


def _scan(folder):
    found = {}
    for entry in sorted(os.listdir(folder)):
        stem, extension = os.path.splitext(entry)
        if extension != ".py" or stem.startswith("_"):
            continue
        with open(os.path.join(folder, entry), encoding="utf-8") as file:
            tree = ast.parse(file.read(), filename=entry)
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                found[node.name] = "course_lib.attention." + stem
    return found


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError("module 'course_lib' has no attribute '{}'".format(name))
    if name in _MODULES:
        return importlib.import_module("course_lib." + name)
    module = _TOOLS.get(name) or _exercise_modules().get(name)
    if module is not None:
        return getattr(importlib.import_module(module), name)
    import difflib

    near = difflib.get_close_matches(name, __dir__(), n=1)
    hint = "; did you mean '{}'?".format(near[0]) if near else ""
    raise AttributeError("module 'course_lib' has no attribute '{}'{}".format(name, hint))


def __dir__():
    return sorted({"__version__"}.union(_TOOLS, _MODULES, _exercise_modules()))
