"""The attention course: `check`, `hint`, `carry_on`, `progress`, `plotting` and more.

Public names are found when they are first used, so that `import course_lib` is fast and brings in
no torch. Exercises are registered nowhere: they are course_lib.attention's public functions and
classes. Old Pythons read this file before `__main__` can refuse them: keep its syntax plain.
"""

import ast
import importlib
import os

__version__ = "0.1.0"
OLDEST_PYTHON = (3, 11)

_TOOLS = dict.fromkeys(
    ("carry_on", "certificate", "check", "hint", "progress"), "course_lib.notebook.session"
)
_MODULES = ("attention", "checks", "models", "plotting")
_HERE = os.path.dirname(os.path.abspath(__file__))
_ATTENTION = os.path.join(_HERE, "attention")
_EXERCISES = os.path.join(_HERE, "exercises")
_found = {}


def _exercise_modules():
    """Map the name of each public function and class of course_lib.attention to its module."""
    if not _found:
        _found.update(_scan(_ATTENTION))
    return _found


def _stems(folder):
    """List the public modules in a folder, none where it is not there."""
    entries = os.listdir(folder) if os.path.isdir(folder) else []
    names = [os.path.splitext(entry) for entry in sorted(entries)]
    return [stem for stem, ending in names if ending == ".py" and not stem.startswith("_")]


def _folders(folder):
    """List the public packages in a folder, none where it is not there."""
    entries = os.listdir(folder) if os.path.isdir(folder) else []
    names = [name for name in sorted(entries) if not name.startswith("_")]
    return [name for name in names if os.path.exists(os.path.join(folder, name, "__init__.py"))]


def _leaves_out_solutions():
    """Tell whether a lesson has none: in a student's bundle, or where grading hides exercises."""
    lessons = _folders(_EXERCISES)
    return not lessons or bool(set(lessons) - set(_stems(_ATTENTION)))


def _scan(folder):
    found = {}
    for stem in _stems(folder):
        with open(os.path.join(folder, stem + ".py"), encoding="utf-8") as file:
            tree = ast.parse(file.read(), filename=stem + ".py")
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
    is_module = name in _stems(_HERE)  # `from course_lib import bootstrap` asks here first
    if not is_module and _leaves_out_solutions():
        own = importlib.import_module("course_lib.missing_solutions").own_version(name)
        if own is not None:
            return own
    import difflib

    near = difflib.get_close_matches(name, __dir__(), n=1)
    hint = "; did you mean '{}'?".format(near[0]) if near else ""
    raise AttributeError("module 'course_lib' has no attribute '{}'{}".format(name, hint))


def __dir__():
    return sorted({"__version__"}.union(_TOOLS, _MODULES, _exercise_modules()))
