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


@pytest.fixture
def library(tmp_path):
    def write(name, text):
        path = tmp_path / "course_lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    write.root = tmp_path / "course_lib"
    return write


def digest(library, text, name="checks/judge/x.py"):
    return digest_of([library(name, text)], library.root)


@pytest.mark.parametrize(
    "after",
    [
        "# first\n" + BEFORE.replace("return 2 * x", "return (2\n            * x)  # twice"),
        BEFORE.replace('"""Twice as much."""', '"""The double of x."""'),
        BEFORE.replace('    """Twice as much."""\n', ""),
        BEFORE.replace('"x must be a number"', '"x must"\n            " be a number"'),
    ],
    ids=["comments and layout", "docstring", "no docstring", "string in pieces"],
)
def test_comments_docstrings_and_layout_leave_the_digest_unchanged(library, after):
    assert digest(library, after) == digest(library, BEFORE)


@pytest.mark.parametrize(
    "after",
    [
        BEFORE.replace("2 * x", "3 * x"),
        BEFORE.replace("2 * x", "x * 2"),
        BEFORE.replace("ValueError", "TypeError"),
        BEFORE.replace("is None", "is not None"),
        BEFORE.replace("x must be a number", "give a number, for example 3"),
        BEFORE + "\n\nNAME = 'x'\n",
    ],
)
def test_every_other_change_alters_the_digest(library, after):
    assert digest(library, after) != digest(library, BEFORE)


def test_a_regular_expression_in_a_check_is_part_of_the_digest(library):
    check = 'import re\n\n_DEFINES = re.compile(r"^def the answer to all of it")\n'
    other = check.replace("^def", "^class")
    assert digest(library, check) != digest(library, other)


def test_a_script_of_the_figures_counts_without_its_comments(library):
    script = "// how it moves\nconst step = 1;\n"
    told, done = script.replace("moves", "steps"), script.replace("1", "2")
    before = digest(library, script, "plotting/x.js")
    assert digest(library, told, "plotting/x.js") == before
    assert digest(library, done, "plotting/x.js") != before


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
