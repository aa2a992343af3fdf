"""Short functions and modules, reasons for what is not measured: the linter has no rule for them.

What was longer when this was first measured is written in too_long.txt with its length and may
only get shorter. `python tests/test_style.py` writes that file anew.
"""

import ast
import functools
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
FOREIGN = ("course_lib/grading/sample_class", "course_lib/lab_config")  # what students write
LIST = REPOSITORY / "tests/too_long.txt"
LONGEST_FUNCTION = 39  # lines, from `def` on, without the docstring
LONGEST_MODULE = 299


def lengths(text):
    """The length of a module, under "", and of each of its functions, under its name."""
    found = {"": len(text.splitlines())}

    def visit(node, outer):
        for child in ast.iter_child_nodes(node):
            inner = outer
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{outer}.{child.name}".lstrip(".")
                if not isinstance(child, ast.ClassDef):
                    found[inner] = max(found.get(inner, 0), without_docstring(child))
            visit(child, inner)

    visit(ast.parse(text), "")
    return found


def without_docstring(function):
    length = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return length
    return length - (function.body[0].end_lineno - function.body[0].lineno + 1)


@functools.cache
def too_long():
    """Each name of a module or function that is too long, with its length."""
    found = {}
    for path in sorted((REPOSITORY / "course_lib").rglob("*.py")):
        name = path.relative_to(REPOSITORY).as_posix()
        if not name.startswith(FOREIGN):
            for part, length in lengths(path.read_text(encoding="utf-8")).items():
                if length > (LONGEST_FUNCTION if part else LONGEST_MODULE):
                    found[f"{name}::{part}" if part else name] = length
    return found


def listed():
    pairs = (line.split() for line in LIST.read_text(encoding="utf-8").splitlines())
    return {name: int(length) for length, name in pairs}


def test_no_function_or_module_is_too_long_or_grows():
    """Split it: a function into its steps, a module by what it is about."""
    most = listed()
    grown = {
        name: f"{length} lines; {most[name]} at most" if name in most else f"{length} lines"
        for name, length in too_long().items()
        if length > most.get(name, 0)
    }
    assert grown == {}


def test_what_is_short_again_is_taken_off_the_list():
    now = too_long()
    assert {name for name in listed() if name not in now} == set(), "python tests/test_style.py"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", {"": 1}),
        ('def f():\n    """Two\n    lines."""\n    return 1\n', {"": 4, "f": 2}),
        ("class A:\n    def f(self):\n        def g():\n            pass\n",
         {"": 4, "A.f": 3, "A.f.g": 2}),
        ("if x:\n    async def f():\n        pass\n", {"": 3, "f": 2}),
    ],
)  # fmt: skip
def test_lengths_are_counted_without_docstrings(text, expected):
    assert lengths(text) == expected


def test_what_is_left_out_of_the_measured_coverage_says_why():
    """`# pragma: no cover - REASON`, in at least three words."""
    without = [
        f"{path.relative_to(REPOSITORY)}:{number}"
        for path in sorted((REPOSITORY / "course_lib").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "pragma: no cover" in line
        and not re.search(r"# pragma: no cover - \w+( \S+){2,}$", line)
    ]
    assert without == []


if __name__ == "__main__":
    LIST.write_text("".join(f"{n} {name}\n" for name, n in too_long().items()), encoding="utf-8")
