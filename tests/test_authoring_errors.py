"""Bad input is reported with file, line and remedy, and old notebooks are not changed."""

import re

import pytest
from authoring_toy import SLUG, edit, make_course, snapshot
from waiting import PATIENCE

from course_lib.authoring.builder import build, check_build
from course_lib.workspace.errors import BuildError

TEXT = f"solutions/{SLUG}/{SLUG}.py"


@pytest.fixture
def course(tmp_path):
    """Return the toy course with other files in the place of its notebooks."""
    course = make_course(tmp_path)
    for path in (course.solution(SLUG), course.release(SLUG)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")
    return course


def line_of(course, text: str) -> int:
    lines = course.text(SLUG).read_text().split("\n")
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def assert_build_error(course, message: str, line: int | None = None, path: str = TEXT) -> str:
    before = snapshot(course)
    assert before
    with pytest.raises(BuildError) as caught:
        build(course.root, course=course)
    assert re.search(message, str(caught.value)), str(caught.value)
    assert (caught.value.path, caught.value.line) == (path, line)
    assert str(caught.value).startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert caught.value.remedy
    assert snapshot(course) == before
    assert not list(course.root.rglob(".*.ipynb.*"))
    return str(caught.value)


# Wrong before anything runs: (text in the lesson, its replacement, text of the line, message).
STATIC = {
    "duplicate exercise": (
        '# %% tags=["demo", "hide-input"]\n',
        "# %%\nfrom course_lib.attention import double  # again\n\n# %%\n",
        "# again",
        "exercise `double` appears twice, first in line 26. Remove one",
    ),
    "exercise without check cell": (
        '# %%\ncheck("double")\n',
        "",
        "# ### Why toys?",
        r"check cell `double` of course_lib/.* is not in the lesson. Add a cell 'check\(\"double",
    ),
    "check cell without exercise": (
        "# %%\nfrom course_lib.attention import double\n",
        "",
        'check("double")',
        "check cell without exercise `double`. Put a cell 'from course_lib.attention import",
    ),
    "no heading": (
        "# ### Exercise: `double`\n",
        "# ### Doubling\n",
        "import double",
        "exercise `double` has no heading above it. Write '### Exercise: `double`'",
    ),
    "written question without points": (
        'written="why_toys"',
        'written="why"',
        "# ### Why toys?",
        "unknown written question `why`. Did you mean `why_toys`.* in course_lib/exercises/toy",
    ),
    "empty rubric": (
        "# RUBRIC: one point a sentence.\n",
        "#\n",
        "# ### Why toys?",
        "written question `why_toys` has no rubric",
    ),
    "setup cell missing": (
        "# %%\nimport math\n\nfrom course_lib import carry_on, check, hint\n",
        "",
        "import double",
        "the first code cell is not the setup cell. Begin with a cell that imports",
    ),
    "no Python": (
        "print(double(4)",
        "print(double(4",
        "print(double(4",
        "the cell does not parse: .*A code cell holds plain Python",
    ),
}


@pytest.mark.parametrize("case", STATIC)
def test_mistake_in_the_lesson_text_is_named_before_anything_runs(course, case, monkeypatch):
    old, new, where, message = STATIC[case]
    edit(course.text(SLUG), old, new)
    monkeypatch.setattr("course_lib.authoring.execute.execute", None)
    assert_build_error(course, message, line_of(course, where))
    (drift,) = check_build(course.root, course=course)
    assert re.search(message, drift.reason)


def test_a_lesson_without_cells_or_exercises(course):
    text = course.text(SLUG).read_text()
    course.text(SLUG).write_text("")
    assert_build_error(course, "the lesson has no cells", 1)
    course.text(SLUG).write_text(text)
    del course.lessons[SLUG]
    assert_build_error(course, "Write course_lib/exercises/toy/__init__.py", 1)


SOLUTION = {
    "not there": ("def double", "def duble", None, "no function or class `double`.*`duble`"),
    "syntax": ("return math", "return = math", 11, "invalid syntax. Fix the syntax"),
    "unknown name": (
        "math.prod([2, number])",
        "_helper(cmath.e)",
        8,
        "`double` uses `_helper`, `cmath`, which the notebook does not know. Import it in",
    ),
    "no body": (
        "    # two of them\n    return math.prod([2, number])  # SECRET\n",
        "",
        8,
        "`double` has a docstring and no body",
    ),
}


@pytest.mark.parametrize("case", SOLUTION)
def test_solution_that_cannot_be_pasted(course, case):
    old, new, line, message = SOLUTION[case]
    edit(course.library / "attention" / "_toy.py", old, new)
    assert_build_error(course, message, line, "course_lib/attention/_toy.py")


# Wrong when run: (text in the lesson, its replacement, text of the line, message).
DEMO = "print(double(4), math.floor(2.5))"
DYNAMIC = {
    "error": (
        DEMO,
        "x = 1\n1 / 0  # here",
        "# here",
        "cell `doubling-2` fails at `1 / 0  # here`: ZeroDivisionError: division by zero. Fix",
    ),
    "warning": (
        DEMO,
        "import warnings\nwarnings.warn('old')",
        "import warnings",
        "cell `doubling-2` writes to stderr: .*UserWarning: old",
    ),
    "address": (DEMO, "object()", "object()", "shows a memory address, 0x"),
    "dead kernel": (DEMO, "import os\nos._exit(3)", "import os", "the kernel died in cell"),
}


@pytest.mark.parametrize("case", DYNAMIC)
def test_cell_that_cannot_be_built_is_named(course, case):
    old, new, where, message = DYNAMIC[case]
    edit(course.text(SLUG), old, new)
    assert_build_error(course, message, line_of(course, where))


def test_endless_cell(course, monkeypatch):
    def seconds(client, cell):
        return 1 if "while True" in cell.source else PATIENCE

    monkeypatch.setattr("course_lib.authoring.execute.CELL_TIMEOUT", 1)
    monkeypatch.setattr("nbclient.NotebookClient.timeout_func", seconds)
    edit(course.text(SLUG), DEMO, "while True:\n    pass")
    assert_build_error(course, "did not finish in 1 s", line_of(course, "while True"))


def test_solution_that_fails_its_own_check(course):
    edit(course.library / "attention" / "_toy.py", "prod([2, number])", "prod([3, number])")
    message = (
        "the solution of `double` fails its own check: 0.5 of 2 points "
        r"\(3 should become 6\). Fix course_lib/attention/_toy.py or"
    )
    assert_build_error(course, message, line_of(course, 'check("double")'))
