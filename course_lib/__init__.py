"""The attention course: `check`, `hint`, `carry_on`, `progress`, `plotting` and every exercise.

Names are imported when they are first used, so that `import course_lib` is fast and does not import
torch. Old Pythons read this file before `__main__` can refuse them, so keep its syntax plain.
"""

import importlib
import importlib.util
import sys

__version__ = "0.1.0"
OLDEST_PYTHON = (3, 11)
# Packages that lessons, checks and figures import, in addition to the standard library and IPython.
NEEDED = ("jaxtyping", "matplotlib", "numpy", "torch")

_TOOLS = ("carry_on", "check", "hint", "progress")
_PACKAGES = ("attention", "checks", "fused", "models", "plotting")

if "ipykernel" in sys.modules:  # A notebook's first cell imports these next.
    _missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if _missing:
        _said = "The course needs {0}, which this notebook's Python lacks; run: %pip install {0}"
        raise ImportError(_said.format(" ".join(_missing)))


def __getattr__(name):
    if not name.startswith("_"):
        if name in _TOOLS:
            return getattr(importlib.import_module("course_lib.notebook"), name)
        if importlib.util.find_spec("course_lib." + name):
            return importlib.import_module("course_lib." + name)
        attention = importlib.import_module("course_lib.attention")
        if hasattr(attention, name):
            return getattr(attention, name)
        # Some copies of the course leave solutions out. The student's own answer replaces them.
        own = importlib.import_module("course_lib.notebook").own_version(name)
        if own is not None:
            return own
    raise AttributeError("module 'course_lib' has no attribute '{}'".format(name) + _near(name))


def _near(name):
    import difflib

    near = [] if name.startswith("_") else difflib.get_close_matches(name, __dir__(), n=1)
    return "; did you mean '{}'?".format(near[0]) if near else ""


def __dir__():
    attention = importlib.import_module("course_lib.attention")
    exercises = [name for name in dir(attention) if not name.startswith("_")]
    # A student's bundle may leave out a package.
    packages = [name for name in _PACKAGES if importlib.util.find_spec("course_lib." + name)]
    return sorted({"__version__"}.union(_TOOLS, packages, exercises))
