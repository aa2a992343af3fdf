"""The small steps of the build: reading cells, cutting solutions, names, ids."""

import re

import pytest

from course_lib.authoring.assemble import CellIds, first_heading, slugify
from course_lib.authoring.lesson_tree import did_you_mean
from course_lib.authoring.paste import find_solution
from course_lib.authoring.read import read_cells
from course_lib.workspace.errors import BuildError
from course_lib.workspace.sources import bound_names, undefined_names


@pytest.fixture
def paste(tmp_path):
    """Return a function that pastes a name from the source of a module."""

    def cut(source: str, name: str = "f") -> str:
        path = tmp_path / "module.py"
        path.write_text(source)
        solution = find_solution(name, path)
        stub = re.sub(r"### BEGIN SOLUTION.*?### END SOLUTION", "pass", solution.text, flags=re.S)
        compile(stub, name, "exec")
        assert "SOLUTION" not in solution.plain
        return solution.text

    return cut


def test_decorators_of_the_course_are_dropped_and_others_kept(paste):
    source = (
        "from course_lib.x import checked as c\nimport functools\n"
        "@c\n@functools.cache\ndef f(x):\n    return x\n"
    )
    text = paste(source)
    assert text.startswith("@functools.cache\ndef f(x):\n    ### BEGIN")


def test_signature_over_several_lines_and_comments_around_the_body(paste):
    source = (
        "def f(\n    x,  # the first\n    y=1,\n) -> int:\n    # before\n\n    a = x\n\n"
        "    # between\n    return a\n    # after\n\n# not mine\nz = 1\n"
    )
    assert paste(source) == (
        "def f(\n    x,  # the first\n    y=1,\n) -> int:\n    ### BEGIN SOLUTION\n    # before\n\n"
        "    a = x\n\n    # between\n    return a\n    # after\n    ### END SOLUTION"
    )


def test_docstring_whose_last_line_looks_like_a_comment_stays(paste):
    source = 'def f(x):\n    """One.\n\n    # two"""\n    return x\n'
    assert paste(source).startswith('def f(x):\n    """One.\n\n    # two"""\n    ### BEGIN')


def test_every_method_of_a_class_has_its_own_region(paste):
    source = (
        "class F(dict):\n    '''Doc.'''\n\n    size = 3\n\n    def __init__(self):\n"
        "        super().__init__()\n        # end\n\n    # about g\n    @property\n"
        "    def g(self):\n        '''G.'''\n\n        @staticmethod\n        def inner():\n"
        "            return 1\n\n        return inner()\n\n    @checked\n    def h(self):\n"
        "        return 2\n\n\nx = 1\n"
    )
    text = paste("from course_lib.a import checked\n" + source, "F")
    assert text == (
        "class F(dict):\n    '''Doc.'''\n\n    size = 3\n\n    def __init__(self):\n"
        "        ### BEGIN SOLUTION\n        super().__init__()\n        # end\n"
        "        ### END SOLUTION\n\n    # about g\n    @property\n    def g(self):\n"
        "        '''G.'''\n\n        ### BEGIN SOLUTION\n        @staticmethod\n"
        "        def inner():\n            return 1\n\n        return inner()\n"
        "        ### END SOLUTION\n\n    def h(self):\n        ### BEGIN SOLUTION\n"
        "        return 2\n        ### END SOLUTION"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(x): return x\n", "has its body on the line of its signature"),
        ("def f(\n    x,\n): return x\n", "has its body on the line of its signature"),
        ("def f(x):\n    'Doc.'\n", "has a docstring and no body"),
        ("class f:\n    x = 1\n", "has no method"),
        ("def g(x):\n    return x\n", "no function or class `f`"),
    ],
)
def test_source_that_makes_no_stub_is_refused(paste, source, message):
    with pytest.raises(BuildError, match=message):
        paste(source)


def test_undefined_names_are_globals_that_nobody_defines():
    source = (
        "class A(Base):\n    def f(self, x: Float[Tensor, 'n m'] = ZERO) -> 'Unread':\n"
        "        import math\n        y = [helper(i) for i in x]\n        super().f()\n"
        "        return math.pi + len(y) + A.g + other\n"
    )
    assert undefined_names(source, {"Tensor", "other"}) == ["Base", "Float", "ZERO", "helper"]


def test_bound_names_are_imports_assignments_and_definitions():
    source = (
        "import a.b\nfrom c import d as e\nf: int = 1\ndef g():\n    h = 1\nfor i in (): j = k\n"
    )
    assert bound_names(source) == {"a", "e", "f", "g", "i", "j"}


KERNEL = "#     display_name: Python 3\n"
HEADER = f"# ---\n# jupyter:\n#   kernelspec:\n#     name: python3\n{KERNEL}# ---\n\n"


@pytest.mark.parametrize("header", ["", HEADER])
def test_cells_remember_their_lines(header):
    text = header + (
        '# %% [markdown]\n#\n# # Title\n# text\n\n# %% tags=["demo"]\n'
        '\n\n# why\nx = """\n# %% not a cell\n"""\n\n# %%\n\n# %%\ny = 2\n'
    )
    cells = read_cells(text, "lesson.py")
    lines = text.split("\n")
    assert [cell.kind for cell in cells] == ["markdown", "code", "code"]
    assert [lines[cell.line - 1] for cell in cells] == ["# # Title", "# why", "y = 2"]
    assert cells[1].options == {"tags": ["demo"]}
    assert cells[1].source == '# why\nx = """\n# %% not a cell\n"""'


@pytest.mark.parametrize(
    "preface",
    ["# ---\n# jupyter: [\n# ---\n", HEADER + "# Licence: MIT\n", "# Words.\n", "x = 1\n"],
)
def test_text_before_the_first_cell_is_refused(preface):
    with pytest.raises(BuildError, match=r"lesson.py:1: text that belongs to no cell"):
        read_cells(f"{preface}\n# %%\nx = 1\n", "lesson.py")


def test_header_that_is_no_notebook_metadata_is_named():
    header = HEADER.replace(KERNEL, "")
    with pytest.raises(BuildError, match=r"lesson.py:1: not a percent-format .*'display_name' is"):
        read_cells(header + "# %%\nx = 1\n", "lesson.py")


def test_ids_count_within_their_section_and_tell_equal_headings_apart():
    ids = CellIds()
    markdown = ["text", "# 1. A b!", None, "more", "## A B", None, "```\n# no\n```\n### C `d_e`"]
    expected = "start-1 a-b-1 a-b-2 a-b-3 a-b_2-1 a-b_2-2 c-d-e-1"
    assert " ".join(map(ids.next, markdown)) == expected


@pytest.mark.parametrize("heading", ["x" * 200, "日本", "a -- b", "3. Softmax", "`f`(x)"])
def test_ids_are_what_nbformat_allows(heading):
    ids = CellIds()
    for _ in range(120):
        found = ids.next(f"# {heading}")
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", found)


def test_first_heading_skips_fences_and_closing_hashes():
    assert first_heading("~~~\n# no\n~~~\n\n## Yes ##\n# Later") == "Yes"
    assert first_heading("#hashtag") is None
    assert slugify("2. Masks: padding") == "masks-padding"


def test_did_you_mean_lists_all_where_none_is_near():
    assert did_you_mean("q", ["abc", "def"]) == "Known: `abc`, `def`."
    assert did_you_mean("q", []) == "Known: none."
