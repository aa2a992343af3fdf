"""Digests cover everything but comments, docstrings and layout."""

import textwrap
from pathlib import Path

import pytest

from course_lib.workspace.sources import digest_of, reached

LIBRARY = Path(__file__).resolve().parent.parent / "course_lib"
BEFORE = '''
def double(x):
    """Twice as much."""
    if x is None:
        raise ValueError("x must be a number")
    return 2 * x
'''


CHECK = "checks/judge/x.py"
PATTERN = 'import re\n\n_DEFINES = re.compile(r"^def the answer to all of it")\n'
SCRIPT = "// how it moves\nconst step = 1;\n"


@pytest.fixture
def library(tmp_path):
    def write(name, text):
        path = tmp_path / "course_lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    write.root = tmp_path / "course_lib"
    return write


def digest(library, text, name):
    return digest_of([library(name, text)], library.root)


@pytest.mark.parametrize(
    ("name", "before", "after", "same"),
    [
        (CHECK, BEFORE, "# first\n" + BEFORE.replace("2 * x", "(2\n        * x)  # twice"), True),
        (CHECK, BEFORE, BEFORE.replace('"""Twice as much."""', '"""The double of x."""'), True),
        (CHECK, BEFORE, BEFORE.replace('    """Twice as much."""\n', ""), True),
        (CHECK, BEFORE, BEFORE.replace("x must be a", 'x must"\n            " be a'), True),
        (CHECK, BEFORE, BEFORE.replace("2 * x", "3 * x"), False),
        (CHECK, BEFORE, BEFORE.replace("2 * x", "x * 2"), False),
        (CHECK, BEFORE, BEFORE.replace("ValueError", "TypeError"), False),
        (CHECK, BEFORE, BEFORE.replace("is None", "is not None"), False),
        (CHECK, BEFORE, BEFORE.replace("x must be a number", "give a number, such as 3"), False),
        (CHECK, BEFORE, BEFORE + "\n\nNAME = 'x'\n", False),
        (CHECK, PATTERN, PATTERN.replace("^def", "^class"), False),
        ("plotting/x.js", SCRIPT, SCRIPT.replace("moves", "steps"), True),
        ("plotting/x.js", SCRIPT, SCRIPT.replace("1", "2"), False),
    ],
)
def test_a_digest_covers_everything_but_comments_docstrings_and_layout(
    library, name, before, after, same
):
    assert before != after
    assert (digest(library, after, name) == digest(library, before, name)) is same


def test_what_draws_reaches_the_scripts_too():
    found = reached((), LIBRARY, sources=["from course_lib import plotting"])
    assert {"figure.js", "stepper.js", "attention.js", "svg.py"} <= {path.name for path in found}


def test_imports_are_followed_wherever_they_are(library):
    library("__init__.py", "import course_lib.never\n")
    library("a/__init__.py", "")
    library("a/one.py", "def later():\n    from course_lib.a import two\n")
    library("a/two.py", "from course_lib.b import three\n")
    library("b.py", "three = 3\n")
    library("c.py", "")
    found = reached([], library.root, sources=["from course_lib.a.one import later"])
    assert [p.relative_to(library.root).as_posix() for p in found] == [
        "a/__init__.py",
        "a/one.py",
        "a/two.py",
        "b.py",
    ]
    found = reached([library.root / "a/one.py"], library.root, skip=lambda p: p.name == "two.py")
    assert {path.name for path in found} == {"one.py", "__init__.py"}


def test_what_carry_on_takes_counts_as_imported(library):
    # The first cell of a lesson takes earlier exercises by their names.
    library("__init__.py", "")
    names = ("one", "two", "three")
    imports = [f"from course_lib.attention._{name} import {name}\n" for name in names]
    library("attention/__init__.py", "".join(imports))
    for name in names:
        library(f"attention/_{name}.py", "")
    cell = 'one, two = carry_on("one", "two")\nother = carry_on(name)'
    found = reached([], library.root, sources=[cell])
    assert [path.stem for path in found] == ["_one", "_two"]
    for cell in ("from course_lib import three", "from course_lib.attention import three"):
        assert [p.stem for p in reached([], library.root, sources=[cell])] == ["_three"]
