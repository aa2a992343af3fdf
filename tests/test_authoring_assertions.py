"""The step that removes assertions from demo cells."""

import textwrap

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.authoring.assertions import StripAssertions


def stripped(*sources, tags=("demo",)):
    """Return the sources of a notebook's cells after the step."""
    cells = [new_code_cell(textwrap.dedent(s).strip(), metadata={"tags": tags}) for s in sources]
    notebook, _ = StripAssertions().preprocess(new_notebook(cells=cells), {})
    return [cell.source for cell in notebook.cells]


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("a = f( 1,2 )  # why\nassert (\n    a\n)\nprint(a)", "a = f( 1,2 )  # why\nprint(a)"),
        ("for a in b:\n    print(a)\n    assert a", "for a in b:\n    print(a)"),
        ("show(b)\nfor a in b:\n    with c:\n        assert a", "show(b)"),
        ("if a:\n    b()\nelse:\n    c()\n    assert c", "if a:\n    b()\nelse:\n    c()"),
        ("show(b)\n\nassert b\n\nshow(c)", "show(b)\n\nshow(c)"),
        ("show('''\nassert this\n''')", "show('''\nassert this\n''')"),
    ],
)  # fmt: skip
def test_assertions_go_and_other_lines_stay_as_written(source, left):
    assert stripped(source) == [left]


def test_what_only_assertions_read_goes_with_them():
    near = "near = sort(b)\nrank, width = near[0], near[1]\nshow(b)\nassert rank < width"
    assert stripped(near) == ["show(b)"]


def test_what_another_cell_reads_stays():
    assert stripped("a = f(b)\nassert a", "show(a)") == ["a = f(b)", "show(a)"]
    assert stripped("a = f(b)\nassert a", "%timeit a") == ["a = f(b)", "%timeit a"]


def test_what_nothing_reads_stays():
    # It may be there for its effect, such as training a model.
    assert stripped("losses = train(model)\nassert model") == ["losses = train(model)"]


def test_a_cell_that_only_asserts_goes():
    assert stripped("show(a)", "b = f(a)\nassert b") == ["show(a)"]


def test_other_cells_keep_their_assertions():
    assert stripped("assert f(2) == 4", tags=()) == ["assert f(2) == 4"]
