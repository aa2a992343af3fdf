"""Digests cover everything but comments, docstrings and layout."""

import ast
from pathlib import Path

import pytest

from course_lib.workspace import sources
from course_lib.workspace.sources import digest_of, reached

LIBRARY = Path(__file__).resolve().parent.parent / "course_lib"
BEFORE = '''
def double(x):
    """Twice as much."""
    if x is None:
        raise ValueError("x must be a number")
    return 2 * x
'''


CHECK, EXERCISE = "checks/judge/x.py", "exercises/lesson/x.py"
MARKED = f"@mistake{BEFORE}"  # students read its docstring
PATTERN = 'import re\n\n_DEFINES = re.compile(r"^def the answer to all of it")\n'
SCRIPT = "// how it moves\nconst step = 1;\n"


@pytest.mark.parametrize(
    ("name", "before", "after", "same"),
    [
        (CHECK, BEFORE, "# first\n" + BEFORE.replace("2 * x", "(2\n        * x)  # twice"), True),
        (CHECK, BEFORE, BEFORE.replace('"""Twice as much."""', '"""The double of x."""'), True),
        (CHECK, BEFORE, BEFORE.replace('    """Twice as much."""\n', ""), True),
        (CHECK, BEFORE, BEFORE.replace("x must be a", 'x must"\n            " be a'), True),
        (CHECK, BEFORE, BEFORE.replace("2 * x", "3 * x"), False),
        (CHECK, BEFORE, BEFORE.replace("x must be a number", "give a number, such as 3"), False),
        (CHECK, PATTERN, PATTERN.replace("^def", "^class"), False),
        (EXERCISE, MARKED, MARKED.replace("Twice", "Three times"), False),
        ("plotting/x.js", SCRIPT, SCRIPT.replace("moves", "steps"), True),
        ("plotting/x.js", SCRIPT, SCRIPT.replace("1", "2"), False),
    ],
)
def test_a_digest_covers_everything_but_comments_docstrings_and_layout(
    tmp_path, name, before, after, same
):
    path, digests = tmp_path / name, []
    path.parent.mkdir(parents=True)
    for text in (before, after):
        path.write_text(text, encoding="utf-8")
        digests.append(digest_of([path], tmp_path))
    assert before != after and (digests[0] == digests[1]) is same


def test_a_digest_does_not_depend_on_how_python_divides_an_f_string(tmp_path, monkeypatch):
    # Python 3.12.1 ends the format of `{x:<{n}}` with an empty text, and 3.11 does not.
    def digest(*width):
        texts = [ast.JoinedStr([ast.Constant(text) for text in parts]) for parts in (width, "ab")]
        tree = ast.Module([ast.Expr(text) for text in texts])
        monkeypatch.setattr(sources.ast, "parse", lambda source: tree)
        sources._read.cache_clear()
        return sources.digest_of([tmp_path / "x.py"], tmp_path)

    (tmp_path / "x.py").touch()
    assert digest("<", "", "20", "") == digest("<20") != digest("<", "2")
    sources._read.cache_clear()


def reached_from(cell):
    return {path.name for path in reached((), LIBRARY, sources=[cell])}


def test_a_lesson_reaches_what_its_cells_import_draw_with_or_take_by_name():
    assert {"figure.js", "stepper.js", "svg.py"} <= reached_from("from course_lib import plotting")
    names = reached_from('f, g = carry_on("bmm", "causal_mask")\nh = carry_on(name)')
    assert {"_batch_matmul.py", "_masked_softmax.py"} <= names
    assert "_batch_matmul.py" in reached_from("def later():\n    from course_lib import bmm")
